"""Names of types, Spark's and ClickHouse's, to the tree of tilth.model.types. Pure.

Covers: both systems' spellings, Nullable, LowCardinality, parameters. Does not cover: Arrow (storage). Always holds: no
value of the written type is lost in the type that is stored (unsigned types widen); what cannot be mapped is refused by
its name.
"""

from __future__ import annotations

from collections.abc import Callable

from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct
from tilth.sql.grammar.cursor import Cursor, nearest
from tilth.sql.grammar.tokens import Token

#: Arrays of maps of structs of ...: no deeper than this.
DEPTH_MAX = 32
_PRECISION_MAX = 38

_SIMPLE: dict[str, Kind] = {
    **dict.fromkeys(("boolean", "bool"), Kind.BOOLEAN),
    **dict.fromkeys(("int8", "tinyint", "byte"), Kind.INT8),
    **dict.fromkeys(("int16", "smallint", "short", "uint8"), Kind.INT16),
    **dict.fromkeys(("int32", "int", "integer", "uint16"), Kind.INT32),
    **dict.fromkeys(("int64", "bigint", "long", "uint32"), Kind.INT64),
    **dict.fromkeys(("float32", "float", "real"), Kind.FLOAT32),
    **dict.fromkeys(("float64", "double"), Kind.FLOAT64),
    **dict.fromkeys(("string", "text", "uuid"), Kind.STRING),
    "binary": Kind.BINARY,
    **dict.fromkeys(("date", "date32"), Kind.DATE),
    **dict.fromkeys(("timestamp", "timestamp_ltz", "datetime32"), Kind.TIMESTAMP),
    "timestamp_ntz": Kind.TIMESTAMP_NTZ,
}
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
    "nothing": "",
    "void": "",
}


def parse_type(cursor: Cursor) -> tuple[DataType, bool]:
    """A type, and whether it was written as Nullable."""
    return _parse(cursor, 0)


def _parse(cursor: Cursor, depth: int) -> tuple[DataType, bool]:
    if depth > DEPTH_MAX:
        raise cursor.refused(f"types are nested more than {DEPTH_MAX} deep")
    token = cursor.peek()
    name = cursor.name("a type").lower()
    if name in _SIMPLE:
        return Simple(_SIMPLE[name]), False
    if name in ("nullable", "lowcardinality"):
        cursor.expect_symbol("(")
        inner, is_nullable = _parse(cursor, depth + 1)
        cursor.expect_symbol(")")
        return inner, is_nullable or name == "nullable"
    if name in _WITH_PARAMETERS:
        return _WITH_PARAMETERS[name](cursor), False
    if name in _NESTED:
        return _NESTED[name](cursor, depth), False
    raise _unknown(cursor, token)


def _unknown(cursor: Cursor, token: Token) -> Exception:
    lowered = token.text.lower()
    if lowered in _INSTEAD or lowered.startswith("interval"):
        return cursor.refused(f"type {token.text} is not supported", at=token, hint=_INSTEAD.get(lowered, "use Int64"))
    near = nearest(token.text, KNOWN_TYPES)
    return cursor.error(f"unknown type {token.text}", at=token, hint=f"did you mean {near}?" if near else "")


# Types with numbers or strings in brackets


def _decimal(cursor: Cursor) -> DataType:
    if not cursor.take_symbol("("):
        return Decimal(10, 0)
    token = cursor.peek()
    precision = cursor.integer("the number of digits")
    scale = cursor.integer("the digits behind the point") if cursor.take_symbol(",") else 0
    if not 1 <= precision <= _PRECISION_MAX or scale > precision:
        hint = f"1 to {_PRECISION_MAX} digits, at most all of them behind the point"
        raise cursor.refused(f"decimal({precision},{scale}) is not supported", at=token, hint=hint)
    cursor.expect_symbol(")")
    return Decimal(precision, scale)


def _decimal_of(digits: int) -> Callable[[Cursor], DataType]:
    def parse(cursor: Cursor) -> DataType:
        cursor.expect_symbol("(")
        token = cursor.peek()
        scale = cursor.integer("the digits behind the point")
        if scale > digits:
            raise cursor.refused(f"a decimal of {digits} digits has no {scale} behind the point", at=token)
        cursor.expect_symbol(")")
        return Decimal(digits, scale)

    return parse


def _datetime(cursor: Cursor) -> DataType:
    """The zone is how ClickHouse shows the instant; the instant is the same."""
    if cursor.take_symbol("("):
        cursor.string("a time zone")
        cursor.expect_symbol(")")
    return Simple(Kind.TIMESTAMP)


def _datetime64(cursor: Cursor) -> DataType:
    if cursor.take_symbol("("):
        token = cursor.peek()
        digits = cursor.integer("the digits of the second")
        if digits > 6:
            hint = "times are kept in microseconds: use DateTime64(6)"
            raise cursor.refused(f"DateTime64({digits}) is not supported", at=token, hint=hint)
        if cursor.take_symbol(","):
            cursor.string("a time zone")
        cursor.expect_symbol(")")
    return Simple(Kind.TIMESTAMP)


def _sized_string(cursor: Cursor) -> DataType:
    if cursor.take_symbol("("):
        cursor.integer("a length")
        cursor.expect_symbol(")")
    return Simple(Kind.STRING)


def _enum(cursor: Cursor) -> DataType:
    cursor.expect_symbol("(")
    while True:
        cursor.string("a name of the enum")
        if cursor.take_symbol("="):
            cursor.take_symbol("-")
            cursor.integer("a number of the enum")
        if not cursor.take_symbol(","):
            break
    cursor.expect_symbol(")")
    return Simple(Kind.STRING)


_WITH_PARAMETERS: dict[str, Callable[[Cursor], DataType]] = {
    "uint64": lambda _: Decimal(20, 0),
    **dict.fromkeys(("decimal", "dec", "numeric"), _decimal),
    **{name: _decimal_of(digits) for name, digits in _DECIMAL_DIGITS.items()},
    "datetime": _datetime,
    "datetime64": _datetime64,
    **dict.fromkeys(("fixedstring", "varchar", "char"), _sized_string),
    **dict.fromkeys(("enum", "enum8", "enum16"), _enum),
}


# Types of types


def _open(cursor: Cursor) -> str:
    """Takes `(` or `<` and returns what closes it."""
    if cursor.take_symbol("("):
        return ")"
    if cursor.take_symbol("<"):
        return ">"
    raise cursor.expected("'(' or '<'")


def _array(cursor: Cursor, depth: int) -> DataType:
    closing = _open(cursor)
    element, _ = _parse(cursor, depth + 1)
    cursor.expect_symbol(closing)
    return Array(element)


def _map(cursor: Cursor, depth: int) -> DataType:
    closing = _open(cursor)
    token = cursor.peek()
    key, is_nullable = _parse(cursor, depth + 1)
    if is_nullable:
        raise cursor.refused("keys of a map cannot be null", at=token, hint="leave Nullable out of the key's type")
    if isinstance(key, Map):
        raise cursor.refused("a map cannot be the key of a map", at=token)
    cursor.expect_symbol(",")
    value, _ = _parse(cursor, depth + 1)
    cursor.expect_symbol(closing)
    return Map(key, value)


def _struct(cursor: Cursor, depth: int) -> DataType:
    closing = _open(cursor)
    fields: list[Field] = []
    seen: set[str] = set()
    while True:
        token = cursor.peek()
        name = cursor.name("a field") if _is_named(cursor) else f"_{len(fields) + 1}"
        if name.lower() in seen:
            raise cursor.error(f"field {name} is there twice", at=token)
        seen.add(name.lower())
        cursor.take_symbol(":")
        fields.append(Field(name, _parse(cursor, depth + 1)[0]))
        if cursor.take_symbol(closing):
            return Struct(tuple(fields))
        if not cursor.take_symbol(","):
            raise cursor.expected(f"',' or '{closing}'")


def _is_named(cursor: Cursor) -> bool:
    return cursor.is_name() and (cursor.is_name(1) or cursor.is_symbol(":", 1))


_NESTED: dict[str, Callable[[Cursor, int], DataType]] = {
    "array": _array,
    "map": _map,
    **dict.fromkeys(("tuple", "struct"), _struct),
}

#: For hints, as ClickHouse spells them where it has them.
_KNOWN_TYPES_TEXT = (
    "Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float32 Float64 String FixedString Bool Date Date32 "
    "DateTime DateTime64 Decimal Decimal32 Decimal64 Decimal128 UUID Nullable LowCardinality Array Map Tuple "
    "Enum8 Enum16 tinyint smallint int bigint float double boolean binary timestamp timestamp_ntz struct varchar "
    "char"
)
KNOWN_TYPES = tuple(_KNOWN_TYPES_TEXT.split())
