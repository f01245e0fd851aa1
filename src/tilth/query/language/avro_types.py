"""Schemas of Avro files as types of columns. Pure.

Covers: which type the values of a schema have, and the schema by which they are decoded. Does not cover: bytes
(query/worker/avro_blocks.py), values (query/worker/avro_arrays.py).
Always holds: the schema for decoding has the same encoding as that of the file, and neither names of the file's nor
logical types nor enums: each field is called by its position, and a member of a union is a record with that member
alone, so that a value says which member it is. What no column can hold is refused by its field's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct
from tilth.query.errors import UnreadableFileError

#: Maximum number of types in a schema, each use of a named one counted: a few names that name one another would make
#: millions.
TYPES_MAX = 10_000
#: Maximum number of types inside of one another.
DEPTH_MAX = 64
DECIMAL_DIGITS_MAX = 38


class AvroReading(StrEnum):
    """Meaning of a decoded value."""

    #: The value as it is: numbers, booleans, bytes, nothing.
    PLAIN = "plain"
    #: Bytes of UTF-8.
    TEXT = "text"
    #: Days since 1970.
    DATE = "date"
    #: Microseconds since 1970.
    MICROS = "micros"
    #: Milliseconds since 1970.
    MILLIS = "millis"
    #: Nanoseconds since 1970.
    NANOS = "nanos"
    #: Bytes of a whole number, the greatest first.
    DECIMAL = "decimal"
    #: The 16 bytes of a UUID.
    UUID = "uuid"
    #: The position of a word.
    ENUM = "enum"


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroLeaf:
    """Values without others in them."""

    type: DataType
    decoded: object
    reading: AvroReading = AvroReading.PLAIN
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroRecord:
    """A record, or a union, which is a record of its members: all but one of them are NULL.

    A decoded record is a dict: the value of a field by its key, "f" and its position.
    """

    type: DataType
    decoded: object
    fields: tuple[tuple[str, AvroType], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroItems:
    """An array."""

    type: DataType
    decoded: object
    element: AvroType


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroEntries:
    """A map; its keys are texts."""

    type: DataType
    decoded: object
    value: AvroType


AvroType = AvroLeaf | AvroRecord | AvroItems | AvroEntries


def field_key(position: int) -> str:
    """Return the key of a field in a decoded record."""
    return f"f{position}"


def read_avro_schema(text: bytes | str) -> AvroRecord:
    """Return the columns of a file. Raises UnreadableFileError."""
    try:
        schema = msgspec.json.decode(text)
        found = _Reader().read(schema, "", "", 0)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableFileError("the schema of the file cannot be read", because=error) from error
    if not isinstance(found, AvroRecord) or isinstance(schema, list):
        raise UnreadableFileError("the values of the file are no records", hint="COPY INTO reads records: a row each")
    return found


@dataclass(slots=True)
class _Reader:
    """Reads one schema."""

    count: int = 0
    #: Named types by their full names, and those that are not read to their end.
    named: dict[str, tuple[Mapping[str, object], str]] = field(default_factory=dict)
    under_way: set[str] = field(default_factory=set)

    def read(self, schema: object, space: str, path: str, depth: int) -> AvroType:
        """Return the type of a schema inside of a namespace; `path`: the field's name for people."""
        self.count += 1
        if self.count > TYPES_MAX or depth > DEPTH_MAX:
            raise _refused("the schema has too many types", path)
        if isinstance(schema, list):
            return self._union(schema, space, path, depth)
        if isinstance(schema, str):
            return self._named(schema, space, path, depth)
        if not isinstance(schema, dict):
            raise _refused("the schema has something that is no type", path)
        kind = schema.get("type")
        match kind:
            case "record" | "error" | "enum" | "fixed":
                return self._defined(schema, kind, space, path, depth)
            case "array":
                element = self.read(schema.get("items"), space, f"{path}[]", depth + 1)
                if _is_empty(element.decoded):
                    # A damaged length would make a list of any size of no bytes.
                    raise _refused("the elements of an array have no bytes", path)
                decoded = {"type": "array", "items": element.decoded}
                return AvroItems(type=Array(element.type), decoded=decoded, element=element)
            case "map":
                value = self.read(schema.get("values"), space, f"{path}[]", depth + 1)
                decoded = {"type": "map", "values": value.decoded}
                return AvroEntries(type=Map(Simple(Kind.STRING), value.type), decoded=decoded, value=value)
            case str() if kind in _PRIMITIVES:
                return _logical(_PRIMITIVES[kind], kind, schema, path)
        return self.read(kind, space, path, depth + 1)

    def _named(self, name: str, space: str, path: str, depth: int) -> AvroType:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        for full in (_full_name(name, space), name):
            if full in self.under_way:
                raise _refused("a type that has itself in it is not supported", path)
            if full in self.named:
                schema, outer = self.named[full]
                return self._content(schema, full, outer, path, depth)
        raise _refused(f"the schema has no type {name}", path)

    def _defined(self, schema: Mapping[str, object], kind: str, space: str, path: str, depth: int) -> AvroType:
        name, own = schema.get("name"), schema.get("namespace")
        if not isinstance(name, str) or not name:
            raise _refused(f"a type {kind} has no name", path)
        full = _full_name(name, own if isinstance(own, str) else space)
        self.named[full] = (schema, full.rpartition(".")[0])
        return self._content(schema, full, full.rpartition(".")[0], path, depth)

    def _content(self, schema: Mapping[str, object], full: str, space: str, path: str, depth: int) -> AvroType:
        match schema["type"]:
            case "enum":
                words = schema.get("symbols")
                if not isinstance(words, list) or not words or not all(isinstance(each, str) for each in words):
                    raise _refused("an enum has no symbols", path)
                return AvroLeaf(type=Simple(Kind.STRING), decoded="int", reading=AvroReading.ENUM, words=tuple(words))
            case "fixed":
                size = schema.get("size")
                if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                    raise _refused("a type fixed has no size", path)
                decoded = {"type": "fixed", "name": f"n{self.count}", "size": size}
                plain = AvroLeaf(type=Simple(Kind.BINARY), decoded=decoded)
                return _logical(plain, "fixed", schema, path)
        self.under_way.add(full)
        found = self._fields(schema, space, path, depth)
        self.under_way.discard(full)
        return found

    def _fields(self, schema: Mapping[str, object], space: str, path: str, depth: int) -> AvroRecord:
        # The record's number comes before those of its fields.
        name, given = f"n{self.count}", schema.get("fields")
        if not isinstance(given, list) or not given:
            raise _refused("a record has no fields", path)
        fields: list[tuple[str, AvroType]] = []
        names: set[str] = set()
        for each in given:
            own = each.get("name") if isinstance(each, dict) else None
            if not isinstance(own, str) or not own:
                raise _refused("a field has no name", path)
            inner = f"{path}.{own}" if path else own
            if own.lower() in names:
                raise _refused("names of fields differ in case alone", inner)
            names.add(own.lower())
            fields.append((own, self.read(each.get("type"), space, inner, depth + 1)))
        return _record(name, fields)

    def _union(self, members: Sequence[object], space: str, path: str, depth: int) -> AvroType:
        name = f"n{self.count}"
        found = [self.read(each, space, path, depth + 1) for each in members]
        if not found:
            raise _refused("a union has no members", path)
        others = [each for each in found if each.decoded != "null"]
        decoded = [each.decoded for each in found]
        if len(decoded) - len(others) > 1:
            raise _refused("a union has a member twice", path)
        if len(others) < 2:
            return replace(others[0] if others else found[0], decoded=decoded)
        for kinds, widest in _WIDENED:
            if all(each in kinds for each in others):
                return replace(widest, decoded=decoded)
        numbered = [(f"member{number}", each) for number, each in enumerate(others)]
        fields = tuple(numbered)
        records = iter(
            {"type": "record", "name": f"{name}m{number}", "fields": [_decoded_field(number, each)]}
            for number, each in enumerate(others)
        )
        members_decoded = [each.decoded if each.decoded == "null" else next(records) for each in found]
        return AvroRecord(type=_struct(fields), decoded=members_decoded, fields=fields)


_PRIMITIVES: Mapping[str, AvroLeaf] = {
    # A field of no values fits any column.
    "null": AvroLeaf(type=Simple(Kind.STRING), decoded="null"),
    "boolean": AvroLeaf(type=Simple(Kind.BOOLEAN), decoded="boolean"),
    "int": AvroLeaf(type=Simple(Kind.INT32), decoded="int"),
    "long": AvroLeaf(type=Simple(Kind.INT64), decoded="long"),
    "float": AvroLeaf(type=Simple(Kind.FLOAT32), decoded="float"),
    "double": AvroLeaf(type=Simple(Kind.FLOAT64), decoded="double"),
    "bytes": AvroLeaf(type=Simple(Kind.BINARY), decoded="bytes"),
    "string": AvroLeaf(type=Simple(Kind.STRING), decoded="bytes", reading=AvroReading.TEXT),
}
#: Unions of numbers whose widest type holds them all.
_WIDENED = (
    ((_PRIMITIVES["int"], _PRIMITIVES["long"]), _PRIMITIVES["long"]),
    ((_PRIMITIVES["float"], _PRIMITIVES["double"]), _PRIMITIVES["double"]),
)
_TIMES: Mapping[str, tuple[Kind, AvroReading]] = {
    "timestamp-millis": (Kind.TIMESTAMP, AvroReading.MILLIS),
    "timestamp-micros": (Kind.TIMESTAMP, AvroReading.MICROS),
    "timestamp-nanos": (Kind.TIMESTAMP, AvroReading.NANOS),
    "local-timestamp-millis": (Kind.TIMESTAMP_NTZ, AvroReading.MILLIS),
    "local-timestamp-micros": (Kind.TIMESTAMP_NTZ, AvroReading.MICROS),
    "local-timestamp-nanos": (Kind.TIMESTAMP_NTZ, AvroReading.NANOS),
}
_UUID_BYTES = 16


def _logical(plain: AvroLeaf, kind: str, schema: Mapping[str, object], path: str) -> AvroLeaf:
    """Return the type with its logical type; one that is unknown, or does not fit, has no meaning, as Avro says."""
    logical = schema.get("logicalType")
    if logical == "date" and kind == "int":
        return replace(plain, type=Simple(Kind.DATE), reading=AvroReading.DATE)
    if kind == "long" and isinstance(logical, str) and logical in _TIMES:
        time, reading = _TIMES[logical]
        return replace(plain, type=Simple(time), reading=reading)
    if logical == "uuid" and kind == "fixed" and schema.get("size") == _UUID_BYTES:
        return replace(plain, type=Simple(Kind.STRING), reading=AvroReading.UUID)
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and precision > 0 and 0 <= scale <= precision:
            if precision > DECIMAL_DIGITS_MAX:
                raise _refused(f"a decimal of {precision} digits is not supported: {DECIMAL_DIGITS_MAX} at most", path)
            return replace(plain, type=Decimal(precision, scale), reading=AvroReading.DECIMAL)
    return plain


def _record(name: str, fields: Sequence[tuple[str, AvroType]]) -> AvroRecord:
    decoded = [_decoded_field(position, each) for position, (_, each) in enumerate(fields)]
    schema = {"type": "record", "name": name, "fields": decoded}
    return AvroRecord(type=_struct(fields), decoded=schema, fields=tuple(fields))


def _decoded_field(position: int, each: AvroType) -> dict[str, object]:
    return {"name": field_key(position), "type": each.decoded}


def _struct(fields: Sequence[tuple[str, AvroType]]) -> Struct:
    return Struct(tuple(Field(name, each.type) for name, each in fields))


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _is_empty(decoded: object) -> bool:
    """Return whether a value may have no bytes."""
    match decoded:
        case "null" | {"type": "fixed", "size": 0}:
            return True
        case {"type": "record", "fields": list() as fields}:
            return all(_is_empty(each["type"]) for each in fields)
    return False


def _refused(message: str, path: str) -> UnreadableFileError:
    return UnreadableFileError(message, field=path) if path else UnreadableFileError(message)
