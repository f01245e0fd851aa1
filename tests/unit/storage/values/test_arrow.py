"""Types in Arrow's words, and bringing rows into a table's shape."""

import datetime
from decimal import Decimal as Number

import pyarrow as pa
import pytest

from tilth.model.table import Column, Schema
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct
from tilth.storage import (
    BadColumnError,
    UnmappedTypeError,
    arrow_schema,
    arrow_type,
    conform,
    schema_from_arrow,
    type_from_arrow,
)

TYPES: list[DataType] = [
    *(Simple(kind) for kind in Kind),
    Decimal(20, 0),
    Decimal(9, 2),
    Array(Simple(Kind.STRING)),
    Map(Simple(Kind.STRING), Array(Simple(Kind.INT32))),
    Struct((Field("a", Simple(Kind.DATE)), Field("b", Array(Decimal(5, 1))))),
]


def _schema(*columns: tuple[str, DataType], nullable: bool = True) -> Schema:
    return Schema(
        columns=tuple(
            Column(id=number, name=name, type=of, nullable=nullable) for number, (name, of) in enumerate(columns, 1)
        )
    )


@pytest.mark.parametrize("of", TYPES, ids=str)
def test_every_type_survives_arrow(of: DataType) -> None:
    assert type_from_arrow(arrow_type(of)) == of


def test_a_schema_survives_arrow_with_its_ids() -> None:
    schema = Schema(
        columns=(Column(id=7, name="a", type=TYPES[0]), Column(id=3, name="b", type=TYPES[5], nullable=False))
    )
    assert schema_from_arrow(arrow_schema(schema)) == schema


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.uint8(), Simple(Kind.INT16)),
        (pa.uint32(), Simple(Kind.INT64)),
        (pa.uint64(), Decimal(20, 0)),
        (pa.timestamp("ms", "Europe/Berlin"), Simple(Kind.TIMESTAMP)),
        (pa.timestamp("ns"), Simple(Kind.TIMESTAMP_NTZ)),
        (pa.dictionary(pa.int8(), pa.string()), Simple(Kind.STRING)),
        (pa.large_list(pa.large_string()), Array(Simple(Kind.STRING))),
    ],
    ids=str,
)
def test_types_of_others_widen(arrow: pa.DataType, expected: DataType) -> None:
    assert type_from_arrow(arrow) == expected


def test_a_type_that_cannot_be_stored_is_named() -> None:
    with pytest.raises(UnmappedTypeError, match="duration"):
        type_from_arrow(pa.duration("s"))


def test_rows_are_cast_ordered_and_filled_up() -> None:
    schema = _schema(("id", Simple(Kind.INT64)), ("At", Simple(Kind.TIMESTAMP)), ("new", Simple(Kind.STRING)))
    when = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    rows = pa.table({"at": pa.array([when], pa.timestamp("ms", "UTC")), "ID": pa.array([1], pa.int8())})
    shaped = conform(rows, schema)
    assert shaped.to_pylist() == [{"id": 1, "At": when, "new": None}]
    assert shaped.schema.equals(arrow_schema(schema), check_metadata=True)


def test_dictionaries_and_batches_are_taken() -> None:
    batch = pa.record_batch({"s": pa.array(["a", "b", "a"]).dictionary_encode()})
    assert conform(batch, _schema(("s", Simple(Kind.STRING)))).column("s").to_pylist() == ["a", "b", "a"]


def test_decimals_and_nested_values_fit_themselves() -> None:
    schema = _schema(("d", Decimal(9, 2)), ("l", Array(Simple(Kind.INT64))))
    rows = pa.table({"d": [Number("1.5")], "l": pa.array([[1, None]], pa.list_(pa.int32()))})
    assert conform(rows, schema).to_pylist() == [{"d": Number("1.50"), "l": [1, None]}]


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        (pa.table({"id": ["no number"]}), "column=id"),
        (pa.table({"id": [1 << 40]}), "column=id"),
        (pa.table({"id": pa.array([None], pa.int32())}), "NOT NULL"),
        (pa.table({"other": [1]}), "column=id"),
        (pa.table({"id": [1], "other": [1]}), "column=other"),
        (pa.table([[1], [2]], names=["id", "ID"]), "column=ID"),
    ],
    ids=["text", "too large", "null", "missing", "unknown", "twice"],
)
def test_what_does_not_fit_is_named(rows: pa.Table, word: str) -> None:
    with pytest.raises(BadColumnError, match=word):
        conform(rows, _schema(("id", Simple(Kind.INT32)), nullable=False))
