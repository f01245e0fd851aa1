"""Values as literals of Spark SQL that say their type. Pure.

Covers: every type that a table stores. Does not cover: reading them (grammar/literals.py).
Always holds: the literal means the same in every session: whatever its zone, its quoting of backslashes, its
substitution of variables; nothing is rounded.
"""

from __future__ import annotations

import re
from typing import Any, assert_never

from tilth.model.text.times import DAY_US, date_text, is_known_to_python, time_text
from tilth.model.types import Array, DataType, Decimal, Kind, Map, Simple, Struct, spark_name

#: Texts that every lexer reads alike: without quotes, backslashes, `${..}` and control characters.
_PLAIN = re.compile(r"[^'\"\\$`\x00-\x1f\x7f]*")

# A number, a text, bytes, days or microseconds since 1970 for dates and times, a list, (key, value) pairs, or a dict
# with the fields of a struct.
Stored = Any


def spark_literal(value: Stored, data_type: DataType) -> str:
    """The value of this type in Spark's words, as in `CAST(1 AS tinyint)`."""
    if value is None:
        return f"CAST(NULL AS {spark_name(data_type)})"
    match data_type:
        case Simple(kind=kind):
            return _simple(value, kind)
        case Decimal():
            inner = f"'{value:f}'"
        case Array(element=element):
            inner = f"array({_listed(spark_literal(each, element) for each in value)})"
        case Map(key=key, value=of):
            pairs = (f"{spark_literal(one, key)}, {spark_literal(other, of)}" for one, other in value)
            inner = f"map({_listed(pairs)})"
        case Struct(fields=fields):
            parts = (f"{_text(field.name)}, {spark_literal(value.get(field.name), field.type)}" for field in fields)
            inner = f"named_struct({_listed(parts)})"
        case _:
            assert_never(data_type)
    return f"CAST({inner} AS {spark_name(data_type)})"


def float_text(number: float) -> str:
    """Return the shortest text of a float; NaN, Infinity and -Infinity for those that are not finite."""
    return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(number), repr(number))


def _simple(value: Stored, kind: Kind) -> str:
    match kind:
        case Kind.BOOLEAN:
            return "true" if value else "false"
        case Kind.INT8 | Kind.INT16 | Kind.INT32 | Kind.INT64:
            return f"CAST({value} AS {kind.value})"
        case Kind.FLOAT32 | Kind.FLOAT64:
            return f"CAST('{float_text(value)}' AS {kind.value})"
        case Kind.STRING:
            return _text(value)
        case Kind.BINARY:
            return f"X'{value.hex()}'"
        case Kind.DATE:
            return _time_literal(kind, date_text(value), value)
        case Kind.TIMESTAMP:
            return _time_literal(kind, f"{time_text(value, between=' ')}Z", value // DAY_US)
        case Kind.TIMESTAMP_NTZ:
            return _time_literal(kind, time_text(value, between=" "), value // DAY_US)
    assert_never(kind)


def _time_literal(kind: Kind, text: str, days: int) -> str:
    """Return the literal that people write, if such literals can have the year; else a cast."""
    return f"{kind.name} '{text}'" if is_known_to_python(days) else f"CAST('{text}' AS {kind.value})"


def _text(text: str) -> str:
    return f"'{text}'" if _PLAIN.fullmatch(text) else f"CAST(X'{text.encode().hex()}' AS string)"


def _listed(parts: Any) -> str:
    return ", ".join(parts)
