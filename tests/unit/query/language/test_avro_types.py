"""Schemas of Avro files as columns, and what is refused by name."""

from __future__ import annotations

import json

import pytest

from tilth.model.types import spark_name
from tilth.query.errors import UnreadableFileError
from tilth.query.language.avro_types import DEPTH_MAX, AvroRecord, read_avro_schema


def read(kind: object, *others: object) -> AvroRecord:
    """The columns of a schema whose first field has this type."""
    fields = [{"name": f"c{number}", "type": each} for number, each in enumerate((kind, *others))]
    return read_avro_schema(json.dumps({"type": "record", "name": "Row", "namespace": "n.m", "fields": fields}))


def logical(kind: str, logical_type: str, **facts: object) -> dict[str, object]:
    return {"type": kind, "logicalType": logical_type, **facts}


ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ENUM}]}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "bigint"),
        ("float", "float"),
        ("double", "double"),
        ("bytes", "binary"),
        ({"type": "string", "avro.java.string": "String"}, "string"),
        ({"type": {"type": "string"}}, "string"),
        (ENUM, "string"),
        ({"type": "fixed", "name": "F", "size": 3}, "binary"),
        (logical("int", "date"), "date"),
        (logical("long", "timestamp-millis"), "timestamp"),
        (logical("long", "timestamp-nanos"), "timestamp"),
        (logical("long", "local-timestamp-micros"), "timestamp_ntz"),
        (logical("bytes", "decimal", precision=38, scale=38), "decimal(38,38)"),
        (logical("fixed", "decimal", precision=4, name="F", size=2), "decimal(4,0)"),
        (logical("fixed", "uuid", name="F", size=16), "string"),
        # A logical type that does not fit, or that nobody knows, has no meaning.
        (logical("long", "date"), "bigint"),
        (logical("int", "time-millis"), "int"),
        (logical("bytes", "decimal", precision=2, scale=3), "binary"),
        (logical("bytes", "decimal", precision="2"), "binary"),
        (["null", "int"], "int"),
        (["int"], "int"),
        (["null"], "string"),
        (["long", "null", "int"], "bigint"),
        (["float", "double"], "double"),
        (["null", "int", ["null", "string"]][:2], "int"),
        (["string", "null", "int"], "struct<member0:string,member1:int>"),
        ({"type": "array", "items": ["null", logical("int", "date")]}, "array<date>"),
        ({"type": "map", "values": {"type": "array", "items": "long"}}, "map<string,array<bigint>>"),
        (INNER, "struct<x:int,y:string>"),
        ({"type": "error", "name": "X", "fields": [{"name": "a b.", "type": "int"}]}, "struct<`a b.`:int>"),
    ],
)
def test_types_of_avro_are_those_of_columns(kind: object, name: str) -> None:
    [(_, found)] = read(kind).fields
    assert spark_name(found.type) == name


def test_names_stand_for_types_in_their_namespace() -> None:
    found = read(INNER, "Inner", "n.m.E", ["null", "Inner"], {"type": "record", "name": "o.I", "fields": [
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["Z", "Y"]}}, {"name": "f", "type": "E"},
    ]}, "o.E", "E")  # fmt: skip
    types = [spark_name(each.type) for _, each in found.fields]
    assert types[:3] == ["struct<x:int,y:string>", "struct<x:int,y:string>", "string"]
    assert types[3:] == ["struct<x:int,y:string>", "struct<e:string,f:string>", "string", "string"]
    words = [getattr(each, "words", ()) for _, each in found.fields]
    assert (words[2], words[5], words[6]) == (("A",), ("Z", "Y"), ("A",))


def test_members_of_a_union_are_records_in_the_schema_for_decoding() -> None:
    [(_, found)] = read(["int", "null", {"type": "enum", "name": "E", "symbols": ["A"]}]).fields
    members = found.decoded
    assert isinstance(members, list)
    assert members[1] == "null"
    assert [each["fields"] for each in (members[0], members[2])] == [
        [{"name": "f0", "type": "int"}],
        [{"name": "f1", "type": "int"}],
    ]


def bomb(levels: int) -> list[object]:
    """Records each of which has the one before twice."""
    found: list[object] = [{"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}]
    for level in range(levels):
        fields = [{"name": name, "type": f"R{level}"} for name in "ab"]
        found.append({"type": "record", "name": f"R{level + 1}", "fields": fields})
    return found


def nested(levels: int) -> object:
    return {"type": "array", "items": nested(levels - 1)} if levels else "int"


RECURSIVE = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}


@pytest.mark.parametrize(
    ("kinds", "told", "field"),
    [
        ([RECURSIVE], "itself", "c0.next"),
        (["Nope"], "no type Nope", "c0"),
        ([None], "", "c0"),
        ([{"type": "array"}], "no type", "c0[]"),
        ([{"type": "array", "items": "null"}], "no bytes", "c0"),
        ([{"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}], "no bytes", "c0"),
        ([logical("bytes", "decimal", precision=39, scale=2)], "39 digits", "c0"),
        ([[]], "no members", "c0"),
        ([{"type": "enum", "name": "E", "symbols": []}], "no symbols", "c0"),
        ([{"type": "fixed", "name": "F", "size": True}], "no size", "c0"),
        ([{"type": "record", "name": "R", "fields": []}], "no fields", "c0"),
        ([{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}]}],
         "case", "c0.A"),
        ([nested(DEPTH_MAX + 1)], "too many types", None),
        (bomb(20), "too many types", None),
    ],
)  # fmt: skip
def test_what_no_column_can_hold_is_refused_by_its_field(kinds: list[object], told: str, field: str | None) -> None:
    with pytest.raises(UnreadableFileError) as caught:
        read(*kinds)
    assert told in caught.value.message
    if field is not None:
        assert caught.value.facts["field"] == field


@pytest.mark.parametrize(
    "text", ["", "{", b"\xff", '"int"', '["null"]', "[" * 100_000, "7", "{}", '{"type": "record"}']
)
def test_a_text_that_is_no_schema_of_records_is_refused(text: str | bytes) -> None:
    with pytest.raises(UnreadableFileError):
        read_avro_schema(text)
