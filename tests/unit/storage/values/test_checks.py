"""Checks of declared types on Arrow arrays: which rows break them, in every nesting, slice and chunking."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tilth.grammar.statements import CreateTable
from tilth.model.table import Column, Schema
from tilth.statements.definitions.columns import column_of
from tilth.statements.registry import parse
from tilth.storage import (
    BadColumnError,
    array_of,
    arrow_type,
    conform,
    conform_column,
    exact_cast,
    misfits,
    valid_texts,
)

UUID, CAPITAL = "61f0c404-5cb3-11e7-907b-a6006ad3dba0", "61F0C404-5CB3-11E7-907B-A6006AD3DBA0"


def column(declared: str, name: str = "c") -> Column:
    table = parse(f"CREATE TABLE t ({name} {declared}) ENGINE = MergeTree")
    assert isinstance(table, CreateTable)
    return column_of(table.columns[0], 1)


CASES: list[tuple[str, list[Any], list[int]]] = [
    ("UInt8", [0, 255, None, 256, -1], [3, 4]),
    ("UInt64", [Decimal(0), Decimal(2**64 - 1), None, Decimal(2**64), Decimal(-1)], [3, 4]),
    ("Enum8('a' = 1, '' = 2)", ["a", "", None, "b", "A"], [3, 4]),
    ("FixedString(3)", ["", "abc", "é", None, "éé", "abcd"], [4, 5]),
    ("VARCHAR(2)", ["", "éé", None, "abc"], [3]),
    ("UUID", [UUID, CAPITAL, None, "", UUID + "0", f"{{{UUID}}}", UUID.replace("-", "")], [3, 4, 5, 6]),
    ("DateTime", [0, 1_000_000, -1_000_000, None, 1, -1, 999_999, 2**63 - 1], [4, 5, 6, 7]),
    ("DateTime64(3)", [1_000, -1_000, None, 1, -999], [3, 4]),
    ("Array(UInt8)", [[1], None, [], [None, 255], [1, 300, -1], [0], [-1]], [4, 6]),
    ("Map(UUID, VARCHAR(1))", [[(UUID, "a")], None, [], [("x", "b")], [(UUID, "ab")], [(CAPITAL, None)]], [3, 4]),
    ("Tuple(a Array(Tuple(b UInt8)), d VARCHAR(1))", [{"a": [{"b": 1}, None], "d": "x"}, None, {"a": None, "d": None},
      {"a": [{"b": 1}, {"b": 256}], "d": "x"}, {"a": [], "d": "xy"}], [3, 4]),
    ("Array(Array(Enum('x')))", [[["x"], [], None], [["x"], ["y"]], None], [1]),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "values", "bad"), CASES, ids=[case[0] for case in CASES])
def test_the_rows_that_break_a_promise(declared: str, values: list[Any], bad: list[int]) -> None:
    made = column(declared)
    array = array_of(values, made.type)
    twice = pa.concat_arrays([array, array])
    cut = [array.slice(start, 1) for start in range(len(array))]
    for given in (array, twice.slice(len(array)), pa.chunked_array(cut), pa.chunked_array([array[:0], array])):
        assert [each.row for each in misfits(given, made)] == bad
    good = pa.chunked_array([array_of([v for row, v in enumerate(values) if row not in bad], made.type)])
    assert len(conform_column(good, made)) == len(values) - len(bad)
    with pytest.raises(BadColumnError, match="a value does not fit its column: column=c") as caught:
        conform_column(pa.chunked_array(cut), made)
    assert set(caught.value.facts) == {"column", "type", "value", "why"}
    with pytest.raises(BadColumnError, match=f"row={bad[0] + 1} "):
        conform(pa.table([array], names=["c"]), Schema(columns=(made,)), is_numbered=True)


def test_what_lies_under_null_breaks_nothing() -> None:
    made = column("Array(UInt8)")
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 1, 2]), pa.array([300, 1], pa.int16()), type=arrow_type(made.type), mask=pa.array([True, False])
    )
    assert misfits(hidden, made) == []


@pytest.mark.parametrize("declared", ["UUID", "Array(UUID)", "Map(String, UUID)", "Map(UUID, Int8)", "Tuple(a UUID)"])
def test_a_uuid_is_kept_in_small_letters(declared: str) -> None:
    made = column(declared)
    shapes: dict[str, Any] = {
        "UUID": lambda text: text,
        "Array(UUID)": lambda text: [text, None],
        "Map(String, UUID)": lambda text: [("K", text)],
        "Map(UUID, Int8)": lambda text: [(text, 1)],
        "Tuple(a UUID)": lambda text: {"a": text},
    }
    given, expected = ([shapes[declared](text), None, shapes[declared](UUID)] for text in (CAPITAL, UUID))
    array = array_of([None, *given], made.type).slice(1)
    assert conform_column(pa.chunked_array([array]), made).to_pylist() == expected


def test_a_column_without_checks_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilth.storage.values.checks._leaves", None)
    values = pa.chunked_array([pa.array([300], pa.int32())])
    assert conform_column(values, column("Int32")).equals(values)
    assert misfits(values, column("Int32")) == []


# Casts


@pytest.mark.parametrize(
    ("values", "target"),
    [
        (pa.array([1e39]), pa.float32()),
        (pa.array([[0.5], [-1e39]]), pa.list_(pa.float32())),
        (pa.array(["1e400"]), pa.float64()),
        (pa.array([1.005]), pa.decimal128(9, 2)),
        (pa.array([1], pa.timestamp("us")), pa.date32()),
        (pa.array([[1]], pa.list_(pa.timestamp("us"))), pa.list_(pa.date32())),
        (pa.array([{"a": 1e39}]), pa.struct([("a", pa.float32())])),
        (pa.array([2]), pa.bool_()),
        (pa.array([1_001], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([1.5]), pa.int32()),
    ],
)
def test_casts_that_would_change_a_value_fail(values: pa.Array, target: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid):
        exact_cast(values, target)
    with pytest.raises(pa.ArrowInvalid):
        exact_cast(pa.chunked_array([values[:0], values]), target)


@pytest.mark.parametrize(
    ("values", "target", "expected"),
    [
        (pa.array([float("inf"), 0.1, None]), pa.float32(), [float("inf"), 0.10000000149011612, None]),
        (pa.array(["1.5", "-Infinity", None]), pa.float64(), [1.5, float("-inf"), None]),
        (pa.array([0.1, None]), pa.decimal128(9, 2), [Decimal("0.10"), None]),
        (pa.array([0, 1]), pa.bool_(), [False, True]),
        (pa.array([[1_000]], pa.list_(pa.timestamp("ns"))), pa.list_(pa.timestamp("us")), None),
        (pa.array(["a", "b", "a"]).dictionary_encode(), pa.string(), ["a", "b", "a"]),
        (pa.array([], pa.float64()), pa.float32(), []),
    ],
)
def test_casts_that_keep_values(values: pa.Array, target: pa.DataType, expected: list[Any] | None) -> None:
    found = exact_cast(values, target)
    assert found.type == target
    assert expected is None or found.to_pylist() == expected


def test_texts_that_are_not_utf8() -> None:
    raw = pa.array([b"a\xff", None, b"ok"]).view(pa.string())
    with pytest.raises(BadColumnError, match="UTF-8: column=c"):
        conform_column(pa.chunked_array([raw]), column("String"))
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 3]), raw)
    assert valid_texts(raw).to_pylist() == ["a\ufffd", None, "ok"]
    assert valid_texts(nested.slice(1)).to_pylist() == [[None, "ok"]]
    assert valid_texts(pa.StructArray.from_arrays([raw], ["x"])).to_pylist()[0] == {"x": "a\ufffd"}
