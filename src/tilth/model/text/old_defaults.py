"""Defaults as older versions kept them, in the words that Spark reads. Pure.

Covers: literals of ClickHouse (`[1, 2]`, `{'a': 1}`, `(1, 'a')`, `nan`), numbers and texts as defaults of dates and
times, texts in double quotes. Does not cover: defaults of this version (sql/inserts/defaults.py), which Spark has read
before they were kept.
Always holds: what cannot be read stays as it is; times without a zone are in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal as Number
from typing import Any

from tilth.model.text.literals import spark_literal
from tilth.model.text.quotes import with_single_quotes
from tilth.model.text.times import micros_of, read_date, read_time
from tilth.model.types import Array, DataType, Kind, Map, Simple, Struct, spark_name

_TOKEN = re.compile(
    r"""\s*(?:
      (?:(?P<type>date|timestamp)\s*)?'(?P<text>(?:[^'\\]|\\.|'')*)'
    | (?P<number>[+-]?\s*(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<word>[+-]?\s*\w+)
    | (?P<symbol>[][{}(),:])
    )\s*""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "infinity": "Infinity"}
_TIMES = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DEPTH_MAX = 64

# A match of _TOKEN, or what stands in brackets behind them.
_Tree = Any


def readable_default(text: str, data_type: DataType) -> str:
    """The default as Spark reads it."""
    try:
        tokens = _tokens(text)
        tree = _tree(next(tokens), tokens, 0)
        if next(tokens, None) is not None:
            return with_single_quotes(text)
        return _needed(tree, data_type) or text
    except (ValueError, StopIteration, ArithmeticError):
        return with_single_quotes(text)


def _tokens(text: str) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.end() == at:
            raise ValueError(text[at:])
        yield found
        at = found.end()


def _tree(first: re.Match[str], others: Iterator[re.Match[str]], depth: int) -> _Tree:
    """One literal, which begins with the first token."""
    if depth > _DEPTH_MAX:
        raise ValueError("too deep")
    closing = {"[": "]", "{": "}", "(": ")"}.get(first["symbol"])
    if closing is None:
        if first["symbol"] is not None:
            raise ValueError(first[0])
        return first
    items: list[_Tree] = []
    while True:
        token = next(others)
        if token["symbol"] == closing:
            return (first["symbol"], items)
        if token["symbol"] not in (",", ":"):
            items.append(_tree(token, others, depth + 1))


def _needed(tree: _Tree, data_type: DataType) -> str | None:
    """Return the literal that Spark reads as meant, where it does not read the literal as it is written."""
    if isinstance(tree, tuple):
        return _collection(tree, data_type)
    word = (tree["word"] or "").replace(" ", "").lower()
    if word.lstrip("+-") in _NOT_FINITE:
        sign = "-" if word.startswith("-") else ""
        return f"CAST('{sign}{_NOT_FINITE[word.lstrip('+-')]}' AS {spark_name(data_type)})"
    if isinstance(data_type, Simple) and data_type.kind in _TIMES and not word:
        return spark_literal(_time(tree, data_type.kind), data_type)
    return None


def _collection(tree: tuple[str, list[_Tree]], data_type: DataType) -> str:
    bracket, items = tree
    match bracket, data_type:
        case "[", Array(element=element):
            inner = f"array({', '.join(_inner(item, element) for item in items)})"
        case "{", Map(key=key, value=value) if len(items) % 2 == 0:
            types = (key, value) * (len(items) // 2)
            inner = f"map({', '.join(_inner(item, of) for item, of in zip(items, types, strict=True))})"
        case "(", Struct(fields=fields) if len(items) == len(fields):
            named = (f"'_{i}', {_inner(item, f.type)}" for i, (item, f) in enumerate(zip(items, fields, strict=True)))
            inner = f"named_struct({', '.join(named)})"
        case _:
            raise ValueError(bracket)
    return f"CAST({inner} AS {spark_name(data_type)})"


def _inner(tree: _Tree, data_type: DataType) -> str:
    text = _needed(tree, data_type)
    return text if text is not None else f"CAST({tree[0].strip()} AS {spark_name(data_type)})"


def _time(token: re.Match[str], kind: Kind) -> int:
    if token["number"] is not None:
        seconds = Number(token["number"].replace(" ", ""))
        if kind is Kind.DATE:
            raise ValueError("no date")
        return micros_of(_EPOCH + timedelta(microseconds=int(seconds * 1_000_000)))
    text = token["text"]
    if kind is Kind.DATE:
        return read_date(text)
    wall, offset = read_time(text.strip())
    return wall if kind is Kind.TIMESTAMP_NTZ else wall - (offset or 0)
