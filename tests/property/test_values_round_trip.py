"""What a SELECT writes in a format, an INSERT in that format reads as what it was: every type, hostile values.

Values go from Arrow through the server's writers and back through INSERT's readers; as literals through the grammar.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.long import examples
from tilth.formats import Reading, to_stored
from tilth.formats.kinds.arrow import ARROW
from tilth.formats.kinds.csv import CSV, CSV_WITH_NAMES
from tilth.formats.kinds.json import JSON, JSON_ROWS
from tilth.grammar.statements import InsertValues
from tilth.model.table import Column, Schema
from tilth.model.text.literals import spark_literal
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct
from tilth.model.wire import Summary
from tilth.query.language.values import literal
from tilth.statements.inserts.defaults import stored_of
from tilth.statements.inserts.rows import InsertTarget, read_rows, table_of_rows
from tilth.statements.registry import parse
from tilth.storage import array_of, conform

_SUMMARY = Summary(query_id="q", elapsed_ms=0, rows=0, message="")
_SHORT = Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64
_BITS = dict(zip(_SHORT, (8, 16, 32, 64), strict=True))

texts = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    [
        "",
        "\\N",
        "NULL",
        '"',
        "a,b",
        "a\r\nb",
        "\n",
        "\r",
        "\u2028\u2029\x85\x0b\x0c",
        "\x00",
        "it's",
        "\\",
        "${x}",
        "nan",
        "1",
    ]
)
floats = st.floats() | st.sampled_from(
    [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 5e-324, 1.7976931348623157e308]
)
#: In days: the ends of what Spark and Python know, the calendar's change, years before 1 and after 9999.
days = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-(2**31), 2**31 - 1, -141_428, -719_163, 2_932_897, 0])
micros = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [-(2**63), 2**63 - 1, -1, 0, 1_500_000, 253_402_300_800_000_000, -62_135_596_800_000_001]
)


def values_of(data_type: DataType) -> st.SearchStrategy[Any]:
    """Values as Arrow takes them, none of them NULL."""
    match data_type:
        case Simple(kind=Kind.BOOLEAN):
            return st.booleans()
        case Simple(kind=kind) if kind in _BITS:
            bound = 1 << _BITS[kind] - 1
            return st.integers(-bound, bound - 1) | st.sampled_from([-bound, bound - 1, 0])
        case Simple(kind=Kind.FLOAT32):
            return st.floats(width=32) | st.sampled_from([0.0, -0.0, float("inf"), float("nan")])
        case Simple(kind=Kind.FLOAT64):
            return floats
        case Simple(kind=Kind.STRING):
            return texts
        case Simple(kind=Kind.BINARY):
            return st.binary(max_size=5) | st.sampled_from([b"", b"\xff\x00", b"AAE="])
        case Simple(kind=Kind.DATE):
            return days
        case Simple():
            return micros
        case Decimal(precision=precision, scale=scale):
            bound = 10**precision - 1
            return (st.integers(-bound, bound) | st.sampled_from([bound, -bound, 0])).map(
                lambda unscaled: Number(unscaled).scaleb(-scale) if abs(unscaled) < 10**27 else exact(unscaled, scale)
            )
        case Array(element=element):
            return st.lists(st.none() | values_of(element), max_size=3)
        case Map(key=key, value=value):
            entries = st.tuples(values_of(key), st.none() | values_of(value))
            return st.lists(entries, max_size=2, unique_by=lambda entry: told_key(entry[0]))
        case Struct(fields=fields):
            return st.fixed_dictionaries({field.name: st.none() | values_of(field.type) for field in fields})


def told_key(key: object) -> str:
    """The same for keys that are the same; the order of a dict's items says nothing."""
    return repr(sorted(key.items()) if isinstance(key, dict) else key)


def exact(unscaled: int, scale: int) -> Number:
    """A Decimal of more digits than Python's context keeps."""
    sign, digits = int(unscaled < 0), tuple(map(int, str(abs(unscaled))))
    return Number((sign, digits, -scale))


simple_types = st.sampled_from([Simple(kind) for kind in Kind] + [Decimal(38, 0), Decimal(38, 38), Decimal(5, 2)])
key_types = simple_types | st.just(Struct((Field("a", Simple(Kind.INT32)), Field("b c", Simple(Kind.STRING)))))
types = st.recursive(
    simple_types,
    lambda inner: (
        st.builds(Array, inner)
        | st.builds(Map, key_types, inner)
        | st.lists(inner, min_size=1, max_size=2).map(
            lambda found: Struct(tuple(Field(f"f{index}", each) for index, each in enumerate(found)))
        )
    ),
    max_leaves=3,
)
#: A type and some rows of it, NULL among them.
columns = types.flatmap(
    lambda data_type: st.tuples(st.just(data_type), st.lists(st.none() | values_of(data_type), min_size=1, max_size=4))
)


def schema_of(data_types: Iterable[DataType]) -> Schema:
    return Schema(columns=tuple(Column(id=n + 1, name=f"c{n}", type=each) for n, each in enumerate(data_types)))


def told(table: pa.Table, schema: Schema) -> list[list[str]]:
    """The values in a form in which NaN equals NaN, and -0.0 does not equal 0.0."""
    return [[repr(stored_of(value, column.type)) for value in table.column(column.name)] for column in schema.columns]


def nothing_computed(columns: Any, rows: int) -> dict[str, pa.Array]:
    raise AssertionError("no default is computed here")


@settings(max_examples=examples(300))
@given(st.lists(columns, min_size=1, max_size=3))
def test_what_select_writes_insert_reads(found: list[tuple[DataType, list[Any]]]) -> None:
    rows = min(len(values) for _, values in found)
    schema = schema_of(data_type for data_type, _ in found)
    arrays = [array_of(values[:rows], data_type) for data_type, values in found]
    table = pa.table(arrays, names=list(schema.names))
    target, expected = InsertTarget(schema), told(table, schema)
    for form, name in (
        (JSON_ROWS, "JSONEachRow"),
        (CSV_WITH_NAMES, "CSVWithNames"),
        (CSV, "CSV"),
        (JSON, "JSONEachRow"),
    ):
        body = b"".join(form.encode(table, [], _SUMMARY)).decode()
        if form is JSON:
            answers = json.loads(body, parse_float=Number)["rows"]
            body = "\n".join(json.dumps(dict(zip(schema.names, row, strict=True)), default=float) for row in answers)
        read = read_rows(target, (), name, body, reading=Reading(), compute=nothing_computed)
        assert told(conform(read, schema), schema) == expected, (form, body)
    with pa.ipc.open_stream(b"".join(ARROW.encode(table, [], _SUMMARY))) as reader:
        assert told(conform(reader.read_all(), schema), schema) == expected


@settings(max_examples=examples(300))
@given(columns)
def test_literals_say_exactly_the_value(found: tuple[DataType, list[Any]]) -> None:
    data_type, values = found
    schema = schema_of([data_type])
    written = [spark_literal(value, data_type) for value in values]
    statement = parse(f"INSERT INTO t VALUES {', '.join(f'({text})' for text in written)}")
    assert isinstance(statement, InsertValues)
    read = table_of_rows(
        InsertTarget(schema), schema.columns, statement.rows, reading=Reading(), compute=nothing_computed
    )
    given_array = pa.table([array_of(values, data_type)], names=["c0"])
    assert told(conform(read, schema), schema) == told(given_array, schema)
    for text in written:
        known = literal(text)
        assert known is not None
        to_stored(known[0], data_type)
