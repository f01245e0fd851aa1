"""Types that an INSERT .. SELECT may put into columns. Pure.

Always holds: what is allowed loses nothing, or fails at the value that does not fit; never does a value change
silently.

Tests: tests/unit/statements/test_sql_answers.py, tests/unit/query/test_sql_pure.py.
"""

from __future__ import annotations

from tilth.model.types import Array, DataType, Decimal, Kind, Map, Simple, Struct

#: Decimal digits that every value fits into.
INTEGER_DIGITS = {Kind.INT8: 3, Kind.INT16: 5, Kind.INT32: 10, Kind.INT64: 19}
_FLOATS = (Kind.FLOAT32, Kind.FLOAT64)


def is_assignable(source: DataType, target: DataType) -> bool:
    """True where a cast keeps the value or fails; integers and decimals are checked value by value."""
    if source == target:
        return True
    match source, target:
        case Simple(kind=given), Simple(kind=wanted):
            return _is_assignable_kind(given, wanted)
        case Simple(kind=given), Decimal():
            return given in INTEGER_DIGITS
        case Decimal(scale=scale), Decimal(scale=wanted_scale):
            return scale <= wanted_scale
        case Decimal(scale=scale), Simple(kind=wanted):
            return wanted in (Kind.FLOAT64, Kind.STRING) or (scale == 0 and wanted in INTEGER_DIGITS)
        case Array(element=given_element), Array(element=wanted_element):
            return is_assignable(given_element, wanted_element)
        case Map(key=given_key, value=given_value), Map(key=wanted_key, value=wanted_value):
            return is_assignable(given_key, wanted_key) and is_assignable(given_value, wanted_value)
        case Struct(fields=given_fields), Struct(fields=wanted_fields):
            return len(given_fields) == len(wanted_fields) and all(
                one.name.lower() == other.name.lower() and is_assignable(one.type, other.type)
                for one, other in zip(given_fields, wanted_fields, strict=True)
            )
    return False


def is_narrowed(source: DataType, target: DataType) -> bool:
    """True if whole numbers go into a column of whole numbers that does not hold all of them."""
    if not isinstance(target, Simple) or target.kind not in INTEGER_DIGITS:
        return False
    if isinstance(source, Decimal):
        return source.precision - source.scale >= INTEGER_DIGITS[target.kind]
    return isinstance(source, Simple) and INTEGER_DIGITS.get(source.kind, 0) > INTEGER_DIGITS[target.kind]


def is_rounded(source: DataType, target: DataType) -> bool:
    """True if whole numbers go into a column of floats that does not have all of them."""
    if not isinstance(source, Simple) or not isinstance(target, Simple):
        return False
    digits = INTEGER_DIGITS.get(source.kind, 0)
    return (target.kind is Kind.FLOAT32 and digits > INTEGER_DIGITS[Kind.INT16]) or (
        target.kind is Kind.FLOAT64 and digits > INTEGER_DIGITS[Kind.INT32]
    )


def _is_assignable_kind(given: Kind, wanted: Kind) -> bool:
    if wanted is Kind.STRING:
        return given is not Kind.BINARY
    if given in INTEGER_DIGITS:
        return wanted in INTEGER_DIGITS or wanted in _FLOATS
    if given is Kind.FLOAT32:
        return wanted is Kind.FLOAT64
    if given is Kind.DATE:
        return wanted in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)
    return False
