"""Random changes of a part through real files, against lists: whatever kinds of deltas come in whatever order."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.long import examples
from tilth.model.delta import Delta, DeltaKind, PartSource, WrittenDelta, applied_order
from tilth.model.part import PartName, WrittenPart
from tilth.model.table import Column, Schema, Transform, TransformKind
from tilth.model.types import Array, Kind, Simple
from tilth.storage import (
    DeltaFileCorruptError,
    DeltaWriter,
    PartFileCorruptError,
    TableLayout,
    arrow_type,
    iter_source,
    load_changes,
    local_folder,
    read_changes,
    read_deletes,
    read_source,
    write_parts,
    write_segments,
)

_RELAXED = settings(max_examples=examples(80), suppress_health_check=[HealthCheck.too_slow])
_STRINGS = Array(Simple(Kind.STRING))
SCHEMA = Schema(
    columns=(
        Column(id=2, name="n", type=Simple(Kind.INT64)),
        Column(id=4, name="s", type=Simple(Kind.STRING)),
        Column(id=9, name="l", type=_STRINGS),
    )
)
_VALUES: dict[int, st.SearchStrategy[Any]] = {
    2: st.one_of(st.none(), st.integers(-9, 9)),
    4: st.one_of(st.none(), st.sampled_from(["", "a", "bb", "ä"])),
    9: st.one_of(st.none(), st.lists(st.sampled_from(["x", "y"]), max_size=2)),
}
_NAMES = {column.id: column.name for column in SCHEMA.columns}
_ROWS = st.lists(st.tuples(*(_VALUES[column.id] for column in SCHEMA.columns)), min_size=1, max_size=24)
#: Another file that the same change segments change, and nobody reads.
_OTHER = "99-0.0-0.parquet"


@dataclass
class _Model:
    """The part as it should be."""

    rows: list[dict[int, Any]]
    deleted: set[int] = field(default_factory=set)
    deltas: list[Delta] = field(default_factory=list)

    @property
    def now(self) -> int:
        return len(self.deltas) + 1

    def take(self, written: WrittenDelta, change_ts: int) -> None:
        self.deltas.append(
            Delta(
                kind=written.kind,
                partition=written.partition,
                file=written.file,
                targets=written.targets,
                columns=written.columns,
                change_ts=change_ts,
                commit_ts=change_ts,
            )
        )

    def live(self) -> list[tuple[int, dict[str, Any]]]:
        return [
            (number, {_NAMES[column]: value for column, value in row.items()})
            for number, row in enumerate(self.rows)
            if number not in self.deleted
        ]


@st.composite
def _updates(draw: st.DrawFn, rows: int) -> tuple[list[int], dict[int, list[tuple[bool, Any]]]]:
    """Rows, perhaps some of them twice, and for some columns whether they get a value and which."""
    numbers = draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=8))
    columns = draw(st.lists(st.sampled_from(sorted(_VALUES)), min_size=1, max_size=3, unique=True))
    return numbers, {column: [(draw(st.booleans()), draw(_VALUES[column])) for _ in numbers] for column in columns}


def _value_columns(updates: dict[int, list[tuple[bool, Any]]]) -> dict[str, pa.Array]:
    arrays: dict[str, pa.Array] = {}
    for column, given_values in updates.items():
        kind = arrow_type(next(each.type for each in SCHEMA.columns if each.id == column))
        arrays[f"c{column}"] = pa.array([value for _, value in given_values], kind)
        arrays[f"p{column}"] = pa.array([is_given for is_given, _ in given_values])
    return arrays


def _update(model: _Model, numbers: list[int], updates: dict[int, list[tuple[bool, Any]]]) -> None:
    for column, given_values in updates.items():
        for number, (is_given, value) in zip(numbers, given_values, strict=True):
            if is_given:
                model.rows[number][column] = value


def _change_segment(draw: st.DrawFn, layout: TableLayout, model: _Model, file: str) -> WrittenDelta:
    deletes = draw(st.lists(st.integers(0, len(model.rows) - 1), max_size=6, unique=True))
    numbers, updates = draw(_updates(len(model.rows)))
    others = draw(st.integers(0, 3))
    rows = [*numbers, *deletes, *range(others)]
    empty = len(deletes) + others
    arrays = {
        name: pa.concat_arrays([array, pa.nulls(empty, array.type)]) for name, array in _value_columns(updates).items()
    }
    files = pa.array([file] * (len(rows) - others) + [_OTHER] * others)
    ops = [1] * len(numbers) + [0] * empty
    table = pa.table(
        {
            "file": files.dictionary_encode() if draw(st.booleans()) else files,
            "row": pa.array(rows, pa.int64()),
            "op": pa.array(ops, pa.int8()),
            **arrays,
        }
    )
    _update(model, numbers, updates)
    model.deleted |= set(deletes)
    written = DeltaWriter(layout, txn=model.now, task=1, attempt=0).changes("all", table)
    target = next(target for target in written.targets if target.file == file)
    assert (target.deleted, target.updated) == (len(deletes), len(set(numbers)))
    assert {target.file: target.deleted for target in written.targets}.get(_OTHER, 0) == others
    return written


@st.composite
def _histories(draw: st.DrawFn, folder: str) -> tuple[TableLayout, PartSource, _Model]:
    layout = TableLayout(folder=local_folder(f"{folder}/data"), schema=SCHEMA, row_group_rows=5, fsync=False)
    rows = draw(_ROWS)
    arrays = [
        pa.array([row[index] for row in rows], arrow_type(column.type)) for index, column in enumerate(SCHEMA.columns)
    ]
    write = draw(st.sampled_from([write_parts, write_segments]))
    (part,) = write(layout, pa.table(arrays, names=list(SCHEMA.names)), txn=0, task=0, attempt=0)
    model = _Model([dict(zip(_NAMES, row, strict=True)) for row in rows])
    for kind in draw(st.lists(st.sampled_from(list(DeltaKind)), max_size=6)):
        writer, change_ts = DeltaWriter(layout, txn=model.now, task=1, attempt=0), model.now
        match kind:
            case DeltaKind.CHANGES:
                written = _change_segment(draw, layout, model, part.file.name)
            case DeltaKind.DELETE:
                deletes = sorted(draw(st.sets(st.integers(0, len(rows) - 1), min_size=1)))
                model.deleted |= set(deletes)
                written = writer.deletes("all", part.file.name, np.array(deletes, np.int64), change_ts=change_ts)
            case DeltaKind.UPDATE:
                numbers, updates = draw(_updates(len(rows)))
                table = pa.table({"row": pa.array(numbers, pa.int64()), **_value_columns(updates)})
                _update(model, numbers, updates)
                written = writer.updates("all", part.file.name, table, change_ts=change_ts)
            case DeltaKind.COLUMN:
                columns = draw(st.lists(st.sampled_from(sorted(_VALUES)), min_size=1, max_size=3, unique=True))
                dense = {column: [(True, draw(_VALUES[column])) for _ in rows] for column in columns}
                arrays_of = {name: a for name, a in _value_columns(dense).items() if name.startswith("c")}
                _update(model, list(range(len(rows))), dense)
                written = writer.columns("all", part.file.name, [pa.table(arrays_of)], change_ts=change_ts)
        model.take(written, model.now)
    return layout, _source(part, model), model


def _source(part: WrittenPart, model: _Model) -> PartSource:
    return PartSource(
        name=PartName("all", 1, 1, 0, 0),
        file=part.file,
        rows=part.rows,
        is_segment=part.is_segment,
        schema=SCHEMA,
        deltas=tuple(applied_order(reversed(model.deltas))),
    )


@_RELAXED
@given(st.data())
def test_a_part_with_changes_reads_as_in_the_model(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        layout, source, model = data.draw(_histories(folder))
        live = model.live()
        table, rows = read_source(layout.folder, source)
        assert list(zip(rows.tolist(), table.to_pylist(), strict=True)) == live

        names = data.draw(st.lists(st.sampled_from(SCHEMA.names), min_size=1, max_size=3, unique=True))
        blocks = list(
            iter_source(layout.folder, source, columns=names, block_rows=data.draw(st.integers(1, len(model.rows) + 1)))
        )
        found = [
            (number, row)
            for table, rows in blocks
            for number, row in zip(rows.tolist(), table.to_pylist(), strict=True)
        ]
        assert found == [(number, {name: row[name] for name in names}) for number, row in live]

        changes = load_changes(layout.folder, source, ())
        assert (changes.deleted.tolist(), changes.has_updates) == (sorted(model.deleted), False)
        by_delta = [read_deletes(layout.folder, delta, source.file.name) for delta in source.deltas]
        assert {int(row) for rows in by_delta for row in rows} == model.deleted
        assert len(table) == len(model.rows) - len(model.deleted)


@_RELAXED
@given(st.data())
def test_damage_is_reported_whatever_the_kind_of_file(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        layout, source, _ = data.draw(_histories(folder))
        delta = data.draw(st.sampled_from([None, *source.deltas]))
        file = source.file if delta is None else delta.file
        with open(layout.folder.uri(file.name), "r+b") as opened:
            if data.draw(st.booleans()):
                opened.truncate(data.draw(st.integers(0, file.size - 1)))
            elif delta is None and not source.is_segment:
                # Only the pages of Parquet parts are verified.
                return
            else:
                index = data.draw(st.integers(0, file.size - 1))
                opened.seek(index)
                byte = opened.read(1)[0]
                opened.seek(index)
                opened.write(bytes([byte ^ (1 << data.draw(st.integers(0, 7)))]))
        wanted = PartFileCorruptError if delta is None else DeltaFileCorruptError
        with pytest.raises(wanted, match=file.name):
            read_source(layout.folder, source)
        with pytest.raises(wanted, match=file.name):
            list(iter_source(layout.folder, source, block_rows=3))


@_RELAXED
@given(_ROWS, st.integers(1, 4))
def test_segments_have_the_rows_of_their_partition_in_the_order_in_which_they_came(
    rows: list[tuple[Any, ...]], partitions: int
) -> None:
    schema = Schema(columns=(*SCHEMA.columns, Column(id=11, name="at", type=Simple(Kind.INT64))))
    by = (Transform(kind=TransformKind.BUCKET, column="n", argument=partitions),)
    arrays = [pa.array([row[index] for row in rows], arrow_type(c.type)) for index, c in enumerate(SCHEMA.columns)]
    arrays.append(pa.array(range(len(rows)), pa.int64()))
    with tempfile.TemporaryDirectory() as temporary:
        folder = local_folder(temporary)
        layout = TableLayout(folder=folder, schema=schema, partition_by=by, order_by=("s",), fsync=False)
        given_rows = pa.table(arrays, names=list(schema.names))
        written = write_segments(layout, given_rows, txn=5, task=0, attempt=0)
        seen: list[int] = []
        for part in written:
            source = PartSource(
                name=PartName(part.partition, 1, 1, 0, 5),
                file=part.file,
                rows=part.rows,
                is_segment=True,
                schema=schema,
            )
            table, _ = read_source(folder, source)
            order = table.column("at").to_pylist()
            assert order == sorted(order)
            assert table.to_pylist() == given_rows.take(order).to_pylist()
            assert part.ranges["s"].nulls == table.column("s").null_count
            seen += order
        assert sorted(seen) == list(range(len(rows)))
        assert len({part.partition for part in written}) == len(written)


@_RELAXED
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 99), st.booleans()), min_size=1, max_size=40))
def test_a_change_segment_is_read_whole_by_file_and_row(changes: list[tuple[int, int, bool]]) -> None:
    names = [f"{number * 5 % 7}-0.0-0.parquet" for number in range(6)]
    table = pa.table(
        {
            "file": pa.DictionaryArray.from_arrays(pa.array([file for file, _, _ in changes], pa.int32()), names),
            "row": [row for _, row, _ in changes],
            "op": pa.array([int(is_update) for _, _, is_update in changes], pa.int8()),
            "c2": pa.array(range(len(changes)), pa.int32()),
        }
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = local_folder(temporary)
        layout = TableLayout(folder=folder, schema=SCHEMA, fsync=False)
        written = DeltaWriter(layout, txn=1, task=0, attempt=0, first_n=3).changes("all", table)
        found = read_changes(folder, written.file)
    assert written.file.name == "1-0.0-3.arrow"
    assert pa.types.is_dictionary(found.schema.field("file").type)
    # Sorting keeps the order of equals.
    wanted = sorted(
        ((file, row, op, index) for index, (file, row, op) in enumerate(changes)), key=lambda each: each[:2]
    )
    assert [(row["file"], row["row"], row["op"], row["c2"], row["p2"]) for row in found.to_pylist()] == [
        (names[file], row, int(op), index, op) for file, row, op, index in wanted
    ]
    for target in written.targets:
        of_one = [(row, op) for file, row, op in changes if names[file] == target.file]
        assert target.deleted == len({row for row, op in of_one if not op})
        assert target.updated == len({row for row, op in of_one if op})
