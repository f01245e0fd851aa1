"""Types of ClickHouse and ByConity that Tilth does not have, and what holds their values. Pure.

Tests: tests/unit/migration/test_translate_clickhouse.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilth.grammar.text.tokens import Token, TokenKind
from tilth.grammar.types import PRECISION_MAX
from tilth.migration.draft import Draft, depth_change, is_name, is_word, matching, shown
from tilth.migration.report import Difference
from tilth.model.text.times import SECOND_DIGITS_MAX

#: Words that end a column's type.
_BEHIND_TYPE = (
    *("DEFAULT", "MATERIALIZED", "ALIAS", "EPHEMERAL", "CODEC", "COMMENT", "TTL", "NOT", "NULL", "PRIMARY"),
    *("STATISTICS", "SETTINGS", "COLLATE", "AUTO_INCREMENT", "KV", "BYTEMAP", "GENERATED"),
)
_AS_TEXT = "compared and sorted as text; functions of the type are not there"
_POINT = "Tuple(x Float64, y Float64)"


@dataclass(frozen=True, slots=True)
class _Instead:
    type: str
    why: str
    instead: str = ""


#: Replacements of types, by names in lower case. The grammar refuses each of them (grammar/types.py).
REPLACED = {
    "ipv4": _Instead("String", _AS_TEXT, "UInt32 where addresses are compared"),
    "ipv6": _Instead("String", _AS_TEXT),
    "json": _Instead("String", "kept as text", "get_json_object when reading, or columns for its fields"),
    "object": _Instead("String", "kept as text", "get_json_object when reading, or a Tuple with its fields"),
    "variant": _Instead("String", "kept as text", "a column for each type"),
    "dynamic": _Instead("String", "kept as text"),
    "time": _Instead("String", _AS_TEXT, "Int64 with seconds"),
    "time64": _Instead("String", _AS_TEXT, "Int64 with microseconds"),
    "bfloat16": _Instead("Float32", "every value is one of Float32"),
    **dict.fromkeys(
        ("int128", "int256", "uint128", "uint256", "decimal256"),
        _Instead("String", f"Decimal has 38 digits at most; {_AS_TEXT}", "Decimal(38, 0) where values fit"),
    ),
    "bitmap64": _Instead("Array(UInt64)", "a list of numbers; functions of bitmaps are not there"),
    "bitmap32": _Instead("Array(UInt32)", "a list of numbers; functions of bitmaps are not there"),
    "point": _Instead(_POINT, "functions of geometries are not there"),
    **dict.fromkeys(("ring", "linestring"), _Instead(f"Array({_POINT})", "functions of geometries are not there")),
    **dict.fromkeys(
        ("polygon", "multilinestring"), _Instead(f"Array(Array({_POINT}))", "functions of geometries are not there")
    ),
    "multipolygon": _Instead(f"Array(Array(Array({_POINT})))", "functions of geometries are not there"),
}
_STATES = ("aggregatefunction", "simpleaggregatefunction", "sketchbinary")


def end_of_type(tokens: Sequence[Token], start: int, end: int) -> int:
    """Index behind the type that begins at this token."""
    depth = 0
    for index in range(start, end):
        if depth == 0 and index > start and is_word(tokens[index], *_BEHIND_TYPE):
            return index
        depth += depth_change(tokens[index])
    return end


def replace_types(draft: Draft, tokens: Sequence[Token], start: int, end: int, column: str) -> None:
    """Replace types that Tilth does not have, each with a finding. Raises RefusedError for states of aggregates."""
    index = start
    while index < end:
        token = tokens[index]
        is_name_of_field = index + 1 < end and is_name(tokens[index + 1])
        if token.kind is not TokenKind.WORD or is_name_of_field:
            index += 1
            continue
        has_arguments = index + 1 < end and tokens[index + 1].text == "("
        last = matching(tokens, index + 1) if has_arguments else index
        if _replace_type(draft, tokens, index, last, column):
            index = last
        index += 1


def _replace_type(draft: Draft, tokens: Sequence[Token], at: int, last: int, column: str) -> bool:
    token = tokens[at]
    name = token.text.lower()
    written = shown(draft.text[token.start : tokens[last].end])
    if name in _STATES:
        why = "states of aggregate functions are not stored"
        raise draft.refused(token.start, f"type {written} of column {column}", why, "store the values, aggregate later")
    if name == "nested":
        draft.replace(token.start, token.end, "Array(Tuple")
        draft.replace(tokens[last].end, tokens[last].end, ")")
        why = "one column that is a list of structs, not a column of each field"
        draft.find(Difference.DIFFERS, token.start, f"{column} {written} is created as Array(Tuple(..))", why)
        return False
    if name == "datetime64" and last > at and _digits(tokens[at + 2]) > SECOND_DIGITS_MAX:
        draft.replace(tokens[at + 2].start, tokens[at + 2].end, str(SECOND_DIGITS_MAX))
        why = "times have microseconds at most, and values with further digits are refused"
        draft.find(
            Difference.DIFFERS,
            token.start,
            f"{column} {written} is created as DateTime64({SECOND_DIGITS_MAX})",
            why,
            "Int64 with nanoseconds",
        )
        return False
    is_long = name in ("decimal", "dec", "numeric") and last > at and _digits(tokens[at + 2]) > PRECISION_MAX
    found = REPLACED["decimal256" if is_long else name] if is_long or name in REPLACED else None
    if name.startswith("interval"):
        found = _Instead("Int64", "a number of units")
    if found is None:
        return False
    draft.replace(token.start, tokens[last].end, found.type)
    what = f"{column} {written} is created as {found.type}"
    draft.find(Difference.DIFFERS, token.start, what, found.why, found.instead)
    return True


def _digits(token: Token) -> int:
    return int(token.text) if token.text.isdecimal() and len(token.text) < 9 else 0
