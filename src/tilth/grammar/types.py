"""Names of types, Spark's and ClickHouse's, to the tree of tilth.model.types and what they promise beyond it. Pure.

Covers: both systems' spellings, Nullable, LowCardinality, parameters. Does not cover: Arrow, keeping the promises
(storage), whether a time zone exists (statements/definitions/tables.py). Always holds: no value of the written type is
lost in the type that is stored (unsigned types widen), and checks refuse what only the stored type has; what cannot be
mapped is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilth.grammar.text.cursor import Cursor, nearest
from tilth.grammar.text.tokens import Token, next_token
from tilth.model.checks import (
    ELEMENT,
    KEY,
    VALUE,
    Check,
    IntegerRange,
    LengthMax,
    OneOf,
    Path,
    Rule,
    SecondDigits,
    UuidText,
)
from tilth.model.text.times import SECOND_DIGITS_MAX
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct

#: Arrays of maps of structs of ...: no deeper than this.
DEPTH_MAX = 32
PRECISION_MAX = 38
#: Default precision of DateTime64, as in ClickHouse.
_DATETIME64_DIGITS = 3

_SIMPLE: dict[str, Kind] = {
    **dict.fromkeys(("boolean", "bool"), Kind.BOOLEAN),
    **dict.fromkeys(("int8", "tinyint", "byte"), Kind.INT8),
    **dict.fromkeys(("int16", "smallint", "short"), Kind.INT16),
    **dict.fromkeys(("int32", "int", "integer"), Kind.INT32),
    **dict.fromkeys(("int64", "bigint", "long"), Kind.INT64),
    **dict.fromkeys(("float32", "float", "real"), Kind.FLOAT32),
    **dict.fromkeys(("float64", "double"), Kind.FLOAT64),
    **dict.fromkeys(("string", "text"), Kind.STRING),
    "binary": Kind.BINARY,
    **dict.fromkeys(("date", "date32"), Kind.DATE),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), Kind.TIMESTAMP),
    "timestamp_ntz": Kind.TIMESTAMP_NTZ,
}
#: Whole numbers without a sign: what stores them, and how many bits they have.
_UNSIGNED: dict[str, tuple[DataType, int]] = {
    "uint8": (Simple(Kind.INT16), 8),
    "uint16": (Simple(Kind.INT32), 16),
    "uint32": (Simple(Kind.INT64), 32),
    "uint64": (Decimal(20, 0), 64),
}
#: The numbers that an Enum's names may have, by bits.
_ENUM_BITS = {"enum": 16, "enum8": 8, "enum16": 16}
#: ClickHouse's decimals that are named by their width, and the digits that fit.
_DECIMAL_DIGITS = {"decimal32": 9, "decimal64": 18, "decimal128": 38}

_INSTEAD = {
    "nested": "use Array(Tuple(..)) or array<struct<..>>",
    "ipv4": "use String or UInt32",
    "ipv6": "use String or binary",
    "json": "use String, and Spark's get_json_object when reading",
    "object": "use String, or a Tuple with its fields",
    "variant": "use String",
    "dynamic": "use String",
    "int128": "use Decimal(38, 0) or String",
    "int256": "use String",
    "uint128": "use Decimal(38, 0) or String",
    "uint256": "use String",
    "decimal256": "use a Decimal of at most 38 digits",
    "bfloat16": "use Float32",
    "aggregatefunction": "store the values and aggregate when reading",
    "simpleaggregatefunction": "store the values and aggregate when reading",
    "bitmap64": "use Array(UInt64)",
    "time": "use String or Int64",
    "time64": "use String or Int64",
    "interval": "use Int64",
    "point": "use Tuple(x Float64, y Float64)",
    **dict.fromkeys(("ring", "linestring"), "use Array(Tuple(x Float64, y Float64))"),
    **dict.fromkeys(("polygon", "multilinestring"), "use Array(Array(Tuple(x Float64, y Float64)))"),
    **dict.fromkeys(("multipolygon", "geometry"), "use String, or arrays of Tuple(x Float64, y Float64)"),
    "bitmap32": "use Array(UInt32)",
    "sketchbinary": "store the values and aggregate when reading",
    "qbit": "use Array(Float32)",
    **dict.fromkeys(("serial", "bigserial"), "use Int64, and give each row its number"),
    **dict.fromkeys(("nothing", "void"), "leave the column out"),
}


@dataclass(frozen=True, slots=True)
class WrittenType:
    """Type that a name stands for."""

    type: DataType
    #: `True` if it was written as Nullable.
    is_nullable: bool = False
    #: Constraints and time zones, as in Column.
    checks: tuple[Check, ...] = ()
    zones: tuple[tuple[Path, str], ...] = ()
    #: Text as written, for the outermost type only.
    text: str = ""


def parse_type(cursor: Cursor) -> WrittenType:
    start = cursor.peek().start
    return replace(_parse(cursor, 0), text=_as_written(cursor.text, start, cursor.last_end))


def _as_written(text: str, start: int, end: int) -> str:
    """Text from one position to another, with one blank where there are some, or a comment."""
    pieces = ""
    at = start
    while at < end:
        token = next_token(text, at)
        pieces += f"{' ' if token.start > at else ''}{token.text}"
        at = token.end
    return pieces


def _parse(cursor: Cursor, depth: int) -> WrittenType:
    if depth > DEPTH_MAX:
        raise cursor.refused(f"types are nested more than {DEPTH_MAX} deep")
    token = cursor.peek()
    name = cursor.name("a type").lower()
    if name in _SIMPLE:
        return WrittenType(Simple(_SIMPLE[name]))
    if name in _UNSIGNED:
        stored, bits = _UNSIGNED[name]
        return _checked(stored, IntegerRange(0, (1 << bits) - 1))
    if name == "uuid":
        return _checked(Simple(Kind.STRING), UuidText())
    if name in ("nullable", "lowcardinality"):
        cursor.expect_symbol("(")
        inner = _parse(cursor, depth + 1)
        cursor.expect_symbol(")")
        return replace(inner, is_nullable=inner.is_nullable or name == "nullable")
    if name in _ENUM_BITS:
        return _enum(cursor, _ENUM_BITS[name])
    if name in _WITH_PARAMETERS:
        return _WITH_PARAMETERS[name](cursor)
    if name in _NESTED:
        return _NESTED[name](cursor, depth)
    raise _unknown(cursor, token)


def _checked(stored: DataType, *rules: Rule) -> WrittenType:
    return WrittenType(stored, checks=tuple(Check(rule) for rule in rules))


def _around(stored: DataType, inner: dict[str, WrittenType]) -> WrittenType:
    """Wrap types into a type, by the steps that lead to them."""
    return WrittenType(
        stored,
        checks=tuple(
            Check(check.rule, (step, *check.path)) for step, written in inner.items() for check in written.checks
        ),
        zones=tuple(((step, *path), zone) for step, written in inner.items() for path, zone in written.zones),
    )


def _unknown(cursor: Cursor, token: Token) -> Exception:
    lowered = token.text.lower()
    if lowered in _INSTEAD or lowered.startswith("interval"):
        return cursor.refused(f"type {token.text} is not supported", at=token, hint=_INSTEAD.get(lowered, "use Int64"))
    near = nearest(token.text, KNOWN_TYPES)
    hint = f"did you mean {near}?" if near else "docs/reference/sql.md#types lists the types"
    return cursor.error(f"unknown type {token.text}", at=token, hint=hint)


# Types with numbers or strings in brackets


def _decimal(cursor: Cursor) -> WrittenType:
    if not cursor.accept_symbol("("):
        return WrittenType(Decimal(10, 0))
    token = cursor.peek()
    precision = cursor.integer("the number of digits")
    scale = cursor.integer("the digits behind the point") if cursor.accept_symbol(",") else 0
    if not 1 <= precision <= PRECISION_MAX or scale > precision:
        hint = f"1 to {PRECISION_MAX} digits, at most all of them behind the point"
        raise cursor.refused(f"decimal({precision},{scale}) is not supported", at=token, hint=hint)
    cursor.expect_symbol(")")
    return WrittenType(Decimal(precision, scale))


def _decimal_of(digits: int) -> Callable[[Cursor], WrittenType]:
    def parse(cursor: Cursor) -> WrittenType:
        cursor.expect_symbol("(")
        token = cursor.peek()
        scale = cursor.integer("the digits behind the point")
        if scale > digits:
            raise cursor.refused(f"a decimal of {digits} digits cannot have {scale} behind the point", at=token)
        cursor.expect_symbol(")")
        return WrittenType(Decimal(digits, scale))

    return parse


def _datetime(cursor: Cursor) -> WrittenType:
    zone = ""
    if cursor.accept_symbol("("):
        zone = cursor.string("a time zone")
        cursor.expect_symbol(")")
    return _time(0, zone)


def _datetime64(cursor: Cursor) -> WrittenType:
    digits, zone = _DATETIME64_DIGITS, ""
    if cursor.accept_symbol("("):
        token = cursor.peek()
        digits = cursor.integer("the digits of the second")
        if digits > SECOND_DIGITS_MAX:
            hint = f"times have microseconds at most: use DateTime64({SECOND_DIGITS_MAX})"
            raise cursor.refused(f"DateTime64({digits}) is not supported", at=token, hint=hint)
        if cursor.accept_symbol(","):
            zone = cursor.string("a time zone")
        cursor.expect_symbol(")")
    return _time(digits, zone)


def _time(digits: int, zone: str) -> WrittenType:
    """Read the type of an instant; the zone is that of texts without one."""
    written = _checked(Simple(Kind.TIMESTAMP), *([SecondDigits(digits)] if digits < SECOND_DIGITS_MAX else []))
    return replace(written, zones=(((), zone),)) if zone else written


def _sized_string(cursor: Cursor, *, is_bytes: bool) -> WrittenType:
    if not cursor.accept_symbol("("):
        return WrittenType(Simple(Kind.STRING))
    token = cursor.peek()
    length = cursor.integer("a length")
    if length < 1:
        raise cursor.error("the length is less than 1", at=token)
    cursor.expect_symbol(")")
    return _checked(Simple(Kind.STRING), LengthMax(length, is_bytes))


def _fixed_string(cursor: Cursor) -> WrittenType:
    if not cursor.is_symbol("("):
        raise cursor.expected("'(' and the number of bytes")
    return _sized_string(cursor, is_bytes=True)


def _enum(cursor: Cursor, bits: int) -> WrittenType:
    """Read an enum's names; the numbers that ClickHouse gives them are checked, kept in the text, and ignored."""
    cursor.expect_symbol("(")
    names: dict[str, int] = {}
    number = 0
    while True:
        token = cursor.peek()
        name = cursor.string("a name of the enum")
        number += 1
        if cursor.accept_symbol("="):
            sign = -1 if cursor.accept_symbol("-") else 1
            number = sign * cursor.integer("a number of the enum")
        if name in names or number in names.values():
            raise cursor.error("this name or number of the enum is there twice", at=token)
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise cursor.error(f"a number of this enum has {bits} bits", at=token)
        names[name] = number
        if not cursor.accept_symbol(","):
            break
    cursor.expect_symbol(")")
    return _checked(Simple(Kind.STRING), OneOf(tuple(names)))


_WITH_PARAMETERS: dict[str, Callable[[Cursor], WrittenType]] = {
    **dict.fromkeys(("decimal", "dec", "numeric"), _decimal),
    **{name: _decimal_of(digits) for name, digits in _DECIMAL_DIGITS.items()},
    **dict.fromkeys(("datetime", "datetime32"), _datetime),
    "datetime64": _datetime64,
    "fixedstring": _fixed_string,
    **dict.fromkeys(("varchar", "char"), lambda cursor: _sized_string(cursor, is_bytes=False)),
}


# Types of types


def _open(cursor: Cursor) -> str:
    """Take `(` or `<` and return what closes it."""
    if cursor.accept_symbol("("):
        return ")"
    if cursor.accept_symbol("<"):
        return ">"
    raise cursor.expected("'(' or '<'")


def _array(cursor: Cursor, depth: int) -> WrittenType:
    closing = _open(cursor)
    element = _parse(cursor, depth + 1)
    cursor.expect_symbol(closing)
    return _around(Array(element.type), {ELEMENT: element})


def _map(cursor: Cursor, depth: int) -> WrittenType:
    closing = _open(cursor)
    token = cursor.peek()
    key = _parse(cursor, depth + 1)
    if key.is_nullable:
        raise cursor.refused("keys of a map cannot be null", at=token, hint="leave Nullable out of the key's type")
    if isinstance(key.type, Map):
        raise cursor.refused("a map cannot be the key of a map", at=token)
    cursor.expect_symbol(",")
    value = _parse(cursor, depth + 1)
    cursor.expect_symbol(closing)
    return _around(Map(key.type, value.type), {KEY: key, VALUE: value})


def _struct(cursor: Cursor, depth: int) -> WrittenType:
    closing = _open(cursor)
    fields: dict[str, WrittenType] = {}
    while True:
        token = cursor.peek()
        name = cursor.name("a field") if _is_named(cursor) else f"_{len(fields) + 1}"
        if name.lower() in (known.lower() for known in fields):
            raise cursor.error(f"field {name} is there twice", at=token)
        cursor.accept_symbol(":")
        fields[name] = _parse(cursor, depth + 1)
        if cursor.accept_symbol(closing):
            return _around(Struct(tuple(Field(each, of.type) for each, of in fields.items())), fields)
        if not cursor.accept_symbol(","):
            raise cursor.expected(f"',' or '{closing}'")


def _is_named(cursor: Cursor) -> bool:
    return cursor.is_name() and (cursor.is_name(1) or cursor.is_symbol(":", 1))


_NESTED: dict[str, Callable[[Cursor, int], WrittenType]] = {
    "array": _array,
    "map": _map,
    **dict.fromkeys(("tuple", "struct"), _struct),
}

#: Type names for hints, as ClickHouse spells them where it has them.
_KNOWN_TYPES_TEXT = (
    "Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float32 Float64 String FixedString Bool Date Date32 "
    "DateTime DateTime64 Decimal Decimal32 Decimal64 Decimal128 UUID Nullable LowCardinality Array Map Tuple "
    "Enum8 Enum16 tinyint smallint int bigint float double boolean binary timestamp timestamp_ntz struct varchar "
    "char"
)
KNOWN_TYPES = tuple(_KNOWN_TYPES_TEXT.split())
