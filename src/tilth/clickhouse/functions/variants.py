"""Ways to call a function of ours: which arguments fit, and the expression of Spark that stands for the call. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class ArgumentKind(StrEnum):
    """Type that an argument must have for a variant to apply."""

    ANY = "any"
    NUMBER = "number"
    #: Numbers, by what they hold.
    WHOLE = "whole"
    #: Whole numbers of 64 bits and more, which a double may not hold.
    LONG = "long"
    #: Whole numbers of more than 64 bits with a sign.
    WIDE = "wide"
    DECIMAL = "decimal"
    FLOAT = "float"
    #: Floats of 32 bits.
    SINGLE = "single"
    TEXT = "text"
    DATE = "date"
    #: A point in time.
    TIME = "time"
    BOOLEAN = "boolean"
    #: Arrays and maps.
    COLLECTION = "collection"
    ARRAY = "array"
    #: Arrays by their elements, which may be NULL.
    ARRAY_OF_WHOLE = "array<whole>"
    ARRAY_OF_DECIMAL = "array<decimal>"
    ARRAY_OF_FLOAT = "array<float>"
    ARRAY_OF_TEXT = "array<text>"
    ARRAY_OF_DATE = "array<date>"
    ARRAY_OF_TIME = "array<time>"
    MAP = "map"
    TUPLE = "tuple"
    #: Intervals: of days and parts of a day, or of months.
    DAYS = "days"
    MONTHS = "months"
    #: Values that are never NULL.
    FILLED_WHOLE = "whole!"
    FILLED_LONG = "long!"
    FILLED_WIDE = "wide!"
    FILLED_DECIMAL = "decimal!"
    FILLED_FLOAT = "float!"
    FILLED_TEXT = "text!"
    FILLED_DATE = "date!"
    FILLED_TIME = "time!"
    FILLED_BOOLEAN = "boolean!"


#: Begin of an expression that is none: such a call is refused, with what follows.
REFUSED = "!"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to call a function."""

    #: One for each argument; None: any number of arguments, which go to another function as they are.
    arguments: tuple[ArgumentKind, ...] | None
    #: A Spark SQL expression in which `$1` is the first argument; of any number of arguments: the other function.
    expression: str


#: Names of functions, without `clickhouse_`, with the kinds of their arguments and their expressions.
Lines = Iterator[tuple[str, tuple[ArgumentKind, ...], str]]


def raised(why: str, kind: str = "STRING") -> str:
    """Return an expression of that type that is an error."""
    return f"CAST(raise_error('{why}') AS {kind})"


def literal(text: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def bound(name: str, value: str, inner: str) -> str:
    """Return an expression in which a name stands for a value, which is computed once."""
    return f"element_at(transform(array({value}), {name} -> {inner}), 1)"
