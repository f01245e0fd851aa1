"""New values laid over rows, deleted rows left out; kernels only, no files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tilth.model.table import Column, Schema
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct
from tilth.storage import PartChanges, arrow_type
from tilth.storage.deltas.changes import Patch

INT = Simple(Kind.INT64)
SCHEMA = Schema(columns=(Column(id=3, name="a", type=INT), Column(id=5, name="b", type=Simple(Kind.STRING))))


def _changes(deleted: list[int], patches: dict[int, tuple[list[int], pa.Array]]) -> PartChanges:
    return PartChanges(
        deleted=np.array(deleted, np.int64),
        patches={c: Patch(rows=np.array(rows, np.int64), values=values) for c, (rows, values) in patches.items()},
        columns={},
    )


def test_nothing_changed_leaves_the_rows_themselves() -> None:
    changes = _changes([], {})
    table = pa.table({"a": [1, 2]})
    assert (changes.is_empty, changes.has_updates, changes.keep(0, 2)) == (True, False, None)
    assert changes.apply(table, 0, SCHEMA) is table


@pytest.mark.parametrize(
    ("first", "count", "stays"),
    [(0, 3, None), (0, 4, [1, 1, 1, 0]), (3, 2, [0, 1]), (4, 5, [1, 1, 1, 1, 0]), (9, 5, None), (3, 0, None)],
)
def test_a_block_keeps_what_is_not_deleted(first: int, count: int, stays: list[int] | None) -> None:
    kept = _changes([3, 8], {}).keep(first, count)
    assert (None if kept is None else kept.astype(int).tolist()) == stays


def test_values_are_found_by_the_columns_id_and_the_rows_position() -> None:
    changes = _changes([11], {3: ([10, 12, 99], pa.array([-1, None, -3])), 7: ([10], pa.array([0]))})
    table = pa.table({"b": ["x", "y", "z", "w"], "a": pa.chunked_array([[1, 2], [3, 4]])})
    assert changes.apply(table, 10, SCHEMA).to_pydict() == {"b": ["x", "y", "z", "w"], "a": [-1, 2, None, 4]}
    live, rows = changes.live(table, 10, SCHEMA)
    assert live.to_pydict() == {"b": ["x", "z", "w"], "a": [-1, None, 4]}
    assert rows.tolist() == [10, 12, 13]
    assert changes.apply(table, 13, SCHEMA).column("a").to_pylist() == [1, 2, 3, 4]


_KINDS: list[tuple[DataType, list[Any], Any]] = [
    (INT, [1, None, 3], 9),
    (Simple(Kind.STRING), ["a", None, "c"], "longer"),
    (Simple(Kind.BINARY), [b"a", None, b"c"], b""),
    (Simple(Kind.BOOLEAN), [True, None, False], True),
    (Decimal(38, 2), [1, None, 3], 9),
    (Array(Simple(Kind.STRING)), [["a"], None, []], ["x", None]),
    (Map(Simple(Kind.STRING), INT), [[("a", 1)], None, []], [("k", 2)]),
    (Struct((Field("x", INT), Field("y", Array(INT)))), [{"x": 1, "y": [1]}, None, {"x": None, "y": None}], None),
]


@pytest.mark.parametrize(("of", "old", "new"), _KINDS)
def test_values_of_any_type_are_replaced(of: DataType, old: list[Any], new: Any) -> None:
    kind = arrow_type(of)
    schema = Schema(columns=(Column(id=1, name="c", type=of),))
    table = pa.table({"c": pa.chunked_array([pa.array(old, kind), pa.array(old, kind)])})
    changes = _changes([], {1: ([1, 5], pa.array([new, None], kind))})
    found = changes.apply(table, 0, schema)
    wanted = pa.array([old[0], new, old[2], old[0], old[1], None], kind)
    assert found.column("c").type == kind
    assert found.column("c").to_pylist() == wanted.to_pylist()


def test_a_dictionary_stays_one() -> None:
    column = pa.array(["x", "y", "x"]).dictionary_encode()
    table = pa.table({"b": column})
    found = _changes([], {5: ([0], pa.array(["new"]))}).apply(table, 0, SCHEMA)
    assert found.schema == table.schema
    assert found.column("b").to_pylist() == ["new", "y", "x"]
