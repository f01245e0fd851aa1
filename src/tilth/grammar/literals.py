"""Literals, partition literals and setting texts. Pure.

Covers: ClickHouse's spelling, `[1]`, `{'a': 1}`, `(1, 'a')`, and Spark's, `array(1)`, `map('a', 1)`, `X'00'`, CAST.
Always holds: a literal is exact: `1.5` is a Decimal, `1.5e0` a float, and nothing is computed.

Tests: tests/unit/grammar/test_insert.py, tests/unit/grammar/text/test_elsewhere.py.
"""

from __future__ import annotations

import binascii
import math
from datetime import date, datetime
from decimal import Decimal

from tilth.grammar.statements import Partition, PartitionId, PartitionValues, SettingTexts
from tilth.grammar.text.cursor import Cursor
from tilth.grammar.text.tokens import TokenKind
from tilth.grammar.types import parse_type
from tilth.model.literal import ArrayValue, CastValue, MapValue, StructValue, TupleValue, Value
from tilth.model.text.times import read_time

#: Arrays in maps in tuples in ...: no deeper than this.
DEPTH_MAX = 64
_WORDS: dict[str, Value] = {
    "NULL": None,
    "TRUE": True,
    "FALSE": False,
    "NAN": float("nan"),
    "INF": float("inf"),
    "INFINITY": float("inf"),
}
_TIME_WORDS = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")
#: Functions that make a literal of literals.
_CALLS = ("ARRAY", "MAP", "NAMED_STRUCT", "STRUCT", "TUPLE", "CAST")
_EXPECTED = "a literal"


def parse_value(cursor: Cursor, *, hint: str = "", depth: int = 0) -> Value:
    """One literal. The hint says what to do with anything that is more than a literal."""
    if depth > DEPTH_MAX:
        raise cursor.refused(f"literals are nested more than {DEPTH_MAX} deep")
    token = cursor.peek()
    if token.kind is TokenKind.STRING:
        return cursor.string(_EXPECTED)
    if token.kind is TokenKind.NUMBER:
        return _number(cursor, negative=False)
    if cursor.accept_symbol("-") or cursor.accept_symbol("+"):
        return _signed(cursor, negative=token.text == "-")
    if cursor.is_symbol("(", 1) and token.text.upper() in _CALLS:
        return _called(cursor, hint, depth)
    if cursor.accept_symbol("["):
        return ArrayValue(_items(cursor, "]", hint, depth))
    if cursor.accept_symbol("{"):
        return MapValue(_entries(cursor, hint, depth))
    if cursor.accept_symbol("("):
        return TupleValue(_items(cursor, ")", hint, depth))
    word = token.text.upper()
    if token.kind is TokenKind.WORD and word in _WORDS and not cursor.is_symbol("(", 1):
        cursor.advance()
        return _WORDS[word]
    if word in _TIME_WORDS and cursor.is_string(1):
        return _time_literal(cursor)
    if word == "X" and cursor.is_string(1) and cursor.peek(1).start == token.end:
        return _bytes(cursor)
    if token.text.startswith('"'):
        hint = "double quotes name columns: put texts in single quotes"
    raise cursor.expected(_EXPECTED, hint=hint)


def is_literal_call(word: str) -> bool:
    """True if Spark makes a literal by a call of this name."""
    return word.upper() in _CALLS


def parse_partition(cursor: Cursor) -> Partition:
    """Read the part of a statement behind the word PARTITION."""
    if cursor.at("ID") and cursor.is_string(1):
        cursor.advance()
        return PartitionId(cursor.string("the partition's id"))
    if cursor.at("ALL"):
        hint = "name one partition; TRUNCATE TABLE t empties the table, OPTIMIZE TABLE t takes all partitions"
        raise cursor.refused("PARTITION ALL is not supported", hint=hint)
    hint = "write PARTITION 'text', PARTITION 202401, PARTITION ('a', 1) or PARTITION ID 'x'"
    if cursor.at("TUPLE") and cursor.is_symbol("(", 1):
        cursor.advance()
    if cursor.accept_symbol("("):
        return PartitionValues(_items(cursor, ")", hint, 0))
    return PartitionValues((parse_value(cursor, hint=hint),))


def parse_settings(cursor: Cursor) -> SettingTexts:
    """`a = 1, b = 'x'`; a value is a number, a string, true or false, and is kept as text."""
    settings: dict[str, str] = {}
    while True:
        token = cursor.peek()
        name = cursor.name("the name of a setting")
        if name in settings:
            raise cursor.error(f"setting {name} is given twice", at=token)
        cursor.expect_symbol("=")
        settings[name] = parse_setting_value(cursor)
        if not cursor.accept_symbol(","):
            return tuple(settings.items())


def read_settings_clause(cursor: Cursor) -> SettingTexts:
    return parse_settings(cursor) if cursor.accept("SETTINGS") else ()


def skip_settings(cursor: Cursor) -> None:
    """Skip SETTINGS behind a statement that none of them changes."""
    for name, _ in read_settings_clause(cursor):
        cursor.notice(f"the setting {name} has no effect on this statement")


def parse_setting_value(cursor: Cursor) -> str:
    if cursor.is_string():
        return cursor.string("a value")
    for word in ("TRUE", "FALSE"):
        if cursor.accept(word):
            return word.lower()
    sign = "-" if cursor.accept_symbol("-") else ""
    hint = "put texts in single quotes" if cursor.is_name() else ""
    if cursor.is_name() and cursor.is_symbol("(", 1):
        hint = "a setting is a number, a text, true or false; storages are made by CREATE STORAGE"
        raise cursor.refused(f"{cursor.peek().text}(..) as a setting's value is not supported", hint=hint)
    if cursor.peek().kind is not TokenKind.NUMBER:
        raise cursor.expected("a number, a string, true or false", hint=hint)
    return sign + cursor.number("a number").text


def _signed(cursor: Cursor, *, negative: bool) -> Value:
    word = cursor.peek().text.upper()
    if cursor.peek().kind is TokenKind.WORD and word in ("INF", "INFINITY"):
        cursor.advance()
        return float("-inf" if negative else "inf")
    return _number(cursor, negative=negative)


def _number(cursor: Cursor, *, negative: bool) -> int | float | Decimal:
    text = cursor.number("a number").text.lower()
    value: int | float | Decimal
    if text.startswith("0x"):
        value = int(text, 16)
    elif "e" in text:
        value = float(text)
        if math.isinf(value):
            # More than a float can hold: no infinity was meant.
            value = Decimal(text)
    elif "." in text:
        # copy_negate, because the minus of Decimal would round to the context's precision.
        exact = Decimal(text)
        return exact.copy_negate() if negative else exact
    else:
        value = int(text)
    return -value if negative else value


def _time_literal(cursor: Cursor) -> date | datetime:
    word = cursor.choose(*_TIME_WORDS)
    token = cursor.peek()
    text = cursor.string("a string")
    try:
        if word == "DATE":
            return date.fromisoformat(text)
        # For its check of digits that a datetime would drop.
        read_time(text)
        return datetime.fromisoformat(text)
    except ValueError as error:
        shape = "'2024-01-31'" if word == "DATE" else "'2024-01-31 12:00:00'"
        hint = (
            f"write it as {shape}, with at most 6 digits behind the second; years outside of 1 to 9999 as a plain text"
        )
        raise cursor.error(f"not a {word.lower()}: {token.text}", at=token, hint=hint) from error


def _bytes(cursor: Cursor) -> bytes:
    cursor.advance()
    token = cursor.peek()
    text = cursor.string("a string")
    try:
        # An odd number of digits has a zero before it, as in Spark.
        return binascii.unhexlify(text.rjust(len(text) + len(text) % 2, "0"))
    except ValueError as error:
        raise cursor.error("these are not hexadecimal digits", at=token, hint="write bytes as in X'00ff'") from error


def _called(cursor: Cursor, hint: str, depth: int) -> Value:
    token = cursor.advance()
    word = token.text.upper()
    cursor.expect_symbol("(")
    if word == "CAST":
        inner = parse_value(cursor, hint=hint, depth=depth + 1)
        cursor.expect("AS")
        written = parse_type(cursor)
        cursor.expect_symbol(")")
        return CastValue(inner, written.type)
    items = _items(cursor, ")", hint, depth)
    if word == "ARRAY":
        return ArrayValue(items)
    if word in ("STRUCT", "TUPLE"):
        return TupleValue(items)
    if len(items) % 2:
        raise cursor.error(f"{word.lower()} takes pairs", at=token)
    pairs = tuple(zip(items[::2], items[1::2], strict=True))
    if word == "MAP":
        return MapValue(pairs)
    names = [name for name, _ in pairs]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise cursor.error("the fields of named_struct have names, each another one", at=token)
    return StructValue(tuple((str(name), value) for name, value in pairs))


def _items(cursor: Cursor, closing: str, hint: str, depth: int) -> tuple[Value, ...]:
    if cursor.accept_symbol(closing):
        return ()
    items = [parse_value(cursor, hint=hint, depth=depth + 1)]
    while not cursor.accept_symbol(closing):
        _expect_comma(cursor, closing, hint)
        items.append(parse_value(cursor, hint=hint, depth=depth + 1))
    return tuple(items)


def _entries(cursor: Cursor, hint: str, depth: int) -> tuple[tuple[Value, Value], ...]:
    if cursor.accept_symbol("}"):
        return ()
    entries: list[tuple[Value, Value]] = []
    while True:
        key = parse_value(cursor, hint=hint, depth=depth + 1)
        cursor.expect_symbol(":")
        entries.append((key, parse_value(cursor, hint=hint, depth=depth + 1)))
        if cursor.accept_symbol("}"):
            return tuple(entries)
        _expect_comma(cursor, "}", hint)


def _expect_comma(cursor: Cursor, closing: str, hint: str) -> None:
    if not cursor.accept_symbol(","):
        raise cursor.expected(f"',' or '{closing}'", hint=hint)
