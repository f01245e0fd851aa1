"""Compactions of deltas against a model: a part's rows read with the sources and with what was made of them are the
same, at every time at which something changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest

from tilth.base.rand import Rng, new_rng
from tilth.model.delta import Delta, DeltaKind, PartSource, Target, WrittenDelta, applied_order, by_file
from tilth.model.part import PartName
from tilth.model.table import Column, Schema
from tilth.model.types import Array, Kind, Simple
from tilth.storage import TableLayout, local_folder, write_parts
from tilth.storage.deltas.deltas import DeltaWriter, open_values
from tilth.storage.deltas.sources import read_source
from tilth.storage.errors import DeltaFileNotFoundError
from tilth.storage.merge import compact
from tilth.storage.merge.compact import compact_changes, compact_major, compact_minor, fold_updates
from tilth.storage.parts.segments import write_segments

SCHEMA = Schema(
    columns=(
        Column(id=1, name="k", type=Simple(Kind.INT64), nullable=False),
        Column(id=2, name="a", type=Simple(Kind.STRING)),
        Column(id=5, name="b", type=Array(Simple(Kind.INT64))),
    )
)
ROWS = 40

T = TypeVar("T")


class Files:
    """Parts of one partition in a folder, and changes of their rows."""

    def __init__(self, folder: Path, schema: Schema = SCHEMA) -> None:
        self.layout = TableLayout(folder=local_folder(folder), schema=schema, fsync=False)
        self.txn = 0
        self.ts = 0
        self.sources: dict[str, PartSource] = {}

    def next_names(self) -> dict[str, int]:
        self.txn += 1
        return {"txn": self.txn, "task": 0, "attempt": 0}

    def part(self, *, is_segment: bool = False, schema: Schema = SCHEMA) -> PartSource:
        rows = pa.table(
            {
                "k": pa.array(range(ROWS), pa.int64()),
                "a": pa.array([f"old {n}" for n in range(ROWS)]),
                "b": pa.array([[n] for n in range(ROWS)], pa.list_(pa.int64())),
            }
        )
        write = write_segments if is_segment else write_parts
        [written] = write(self.layout, rows, **self.next_names())
        source = PartSource(
            name=PartName("all", self.txn, self.txn, 0, self.txn),
            file=written.file,
            rows=ROWS,
            is_segment=is_segment,
            schema=schema,
        )
        self.sources[source.file.name] = source
        return source

    def change(
        self, *changes: tuple[PartSource, int, dict[int, object] | None], layout: TableLayout | None = None
    ) -> Delta:
        """A change segment: of each row of a part new values by column id, or None for a delete."""
        ids = sorted({number for _, _, values in changes for number in values or {}})
        types = {2: pa.string(), 5: pa.list_(pa.int64())}
        columns: dict[str, pa.Array] = {
            "file": pa.array([source.file.name for source, _, _ in changes]),
            "row": pa.array([row for _, row, _ in changes], pa.int64()),
            "op": pa.array([int(values is not None) for _, _, values in changes], pa.int8()),
        }
        for number in ids:
            given = [values if values is not None else {} for _, _, values in changes]
            columns[f"c{number}"] = pa.array([values.get(number) for values in given], types[number])
            columns[f"p{number}"] = pa.array([number in values for values in given])
        return self.committed(self.writer(layout).changes("all", pa.table(columns)))

    def writer(self, layout: TableLayout | None = None) -> DeltaWriter:
        return DeltaWriter(layout or self.layout, **self.next_names())

    def committed(self, written: WrittenDelta) -> Delta:
        self.ts += 10
        return Delta(
            kind=written.kind,
            partition=written.partition,
            file=written.file,
            targets=written.targets,
            columns=written.columns,
            change_ts=written.change_ts or self.ts,
            commit_ts=self.ts,
        )

    def content(self, deltas: Iterable[Delta]) -> dict[str, list[tuple[int, dict[str, object]]]]:
        """Of each part its live rows with their indexes, read with these deltas."""
        changes = by_file(deltas)
        found = {}
        for name, source in self.sources.items():
            changed = _with(source, changes.get(name, ()))
            table, rows = read_source(self.layout.folder, changed)
            found[name] = list(zip(rows.tolist(), table.to_pylist(), strict=True))
        return found

    def flushed(self, sources: Sequence[Delta], kept: Iterable[PartSource] = ()) -> list[Delta]:
        """What FLUSH_DELTAS makes of change segments."""
        names = {each.file.name for each in kept}
        written = compact_changes(self.writer(), "all", sources, list(self.sources.values()), kept=names)
        return applied_order(self.committed(each) for each in written)


def _with(source: PartSource, deltas: Sequence[Delta]) -> PartSource:
    return PartSource(
        name=source.name,
        file=source.file,
        rows=source.rows,
        is_segment=source.is_segment,
        schema=source.schema,
        deltas=tuple(deltas),
    )


def _only(deltas: Iterable[Delta], kind: DeltaKind) -> Delta:
    [found] = [delta for delta in deltas if delta.kind is kind]
    return found


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_change_segments_become_one_delta_of_a_kind_for_each_part(files: Files) -> None:
    one, two = files.part(), files.part()
    first = files.change((one, 3, None), (one, 4, {2: "x"}), (two, 7, {2: "y", 5: [1, 2]}))
    second = files.change((one, 4, {5: None}), (two, 7, {2: None}), (two, 9, None), (one, 1, None))
    third = files.change((one, 6, {2: "z"}))
    made = files.flushed([first, second, third])
    assert {(delta.kind.value, delta.targets, delta.columns, delta.change_ts) for delta in made} == {
        ("delete", (Target(file=one.file.name, deleted=2),), (), third.change_ts),
        ("update", (Target(file=one.file.name, updated=2),), (2, 5), third.change_ts),
        ("delete", (Target(file=two.file.name, deleted=1),), (), second.change_ts),
        ("update", (Target(file=two.file.name, updated=1),), (2, 5), second.change_ts),
    }
    before = files.content([first, second, third])
    assert files.content(made) == before
    assert dict(before[one.file.name])[4] == {"k": 4, "a": "x", "b": None}
    assert dict(before[two.file.name])[7] == {"k": 7, "a": None, "b": [1, 2]}


def test_new_values_of_rows_that_are_gone_are_left_out(files: Files) -> None:
    part = files.part()
    made = files.flushed([files.change((part, 3, {2: "x"})), files.change((part, 3, None))])
    assert [delta.kind for delta in made] == [DeltaKind.DELETE]
    assert _only(made, DeltaKind.DELETE).targets == (Target(file=part.file.name, deleted=1),)


def test_what_changes_rows_that_are_not_flushed_stays_a_change_segment(files: Files) -> None:
    part, segment = files.part(), files.part(is_segment=True)
    sources = [
        files.change((part, 3, None), (segment, 4, {2: "x"}), (segment, 5, {2: "y"})),
        files.change((segment, 4, {5: [9]}), (segment, 5, None)),
        files.change((part, 8, {2: "z"})),
    ]
    made = files.flushed(sources, kept=[segment])
    changes = _only(made, DeltaKind.CHANGES)
    assert changes.targets == (Target(file=segment.file.name, deleted=1, updated=1),)
    # The time of the newest of those that change it, not of all.
    assert changes.change_ts == sources[1].change_ts
    assert len(made) == 3
    assert files.content(made) == files.content(sources)
    again = files.change((segment, 4, {2: "later"}))
    assert files.content([*made, again]) == files.content([*sources, again])


def test_what_is_no_target_is_left_out(files: Files) -> None:
    part, gone = files.part(), files.part()
    changes = files.change((part, 3, None), (gone, 4, None))
    del files.sources[gone.file.name]
    [made] = files.flushed([changes])
    assert made.targets == (Target(file=part.file.name, deleted=1),)


def test_parts_of_different_columns_keep_changes_of_their_own_types(files: Files) -> None:
    """A column's type may differ between two shapes of parts: their values never meet."""
    segment = files.part(is_segment=True)
    newer = Schema(columns=(SCHEMA.columns[0], Column(id=2, name="a", type=Simple(Kind.BINARY)), SCHEMA.columns[2]))
    other = files.part(is_segment=True, schema=newer)
    layout = TableLayout(folder=files.layout.folder, schema=newer, fsync=False)
    sources = [files.change((segment, 1, {2: "x"})), files.change((other, 1, {2: "y"}), layout=layout)]
    made = files.flushed(sources, kept=[segment, other])
    assert [delta.kind for delta in made] == [DeltaKind.CHANGES, DeltaKind.CHANGES]
    assert [delta.targets[0].file for delta in made] == [segment.file.name, other.file.name]


def test_deltas_of_a_kind_become_one(files: Files) -> None:
    part = files.part()
    deltas: list[Delta] = []
    for n in range(4):
        deltas += files.flushed([files.change((part, n, None), (part, 10 + n, {2: f"{n}"}), (part, 20, {5: [n]}))])
    source = _with(part, applied_order(deltas))
    made = [files.committed(each) for each in compact_minor(files.writer(), source)]
    assert [(delta.kind, delta.targets[0].deleted, delta.targets[0].updated) for delta in made] == [
        (DeltaKind.DELETE, 4, 0),
        (DeltaKind.UPDATE, 0, 5),
    ]
    assert {delta.change_ts for delta in made} == {source.change_ts}
    assert files.content(made) == files.content(deltas)


def test_updates_become_columns_and_deletes_stay(files: Files) -> None:
    part = files.part()
    first = files.flushed([files.change((part, 3, None), (part, 4, {2: "x"}))])
    source = _with(part, first)
    [column] = [files.committed(each) for each in compact_major(files.writer(), source, {2})]
    assert (column.kind, column.columns, column.targets[0].updated) == (DeltaKind.COLUMN, (2,), ROWS)
    assert column.change_ts == source.change_ts
    deletes = _only(first, DeltaKind.DELETE)
    assert files.content([column, deletes]) == files.content(first)
    # A second one is laid over the first.
    second = files.flushed([files.change((part, 5, {5: [7]}), (part, 4, {2: None}))])
    updates = _with(part, applied_order([column, *second]))
    [columns] = [files.committed(each) for each in compact_major(files.writer(), updates, {2, 5})]
    assert columns.columns == (2, 5)
    assert files.content([columns, deletes]) == files.content([column, deletes, *second])


def test_columns_written_apart_say_the_same_as_together(files: Files) -> None:
    part = files.part()
    deltas = files.flushed([files.change((part, 4, {2: "x"}), (part, 5, {5: [7]}))])
    deltas += files.flushed([files.change((part, 4, {5: [8]}), (part, 6, {5: None}))])
    source = _with(part, applied_order(deltas))
    made = [files.committed(each) for group in ({2}, {5}) for each in compact_major(files.writer(), source, group)]
    assert [delta.columns for delta in made] == [(2,), (5,)]
    # Each has the time of the newest delta with one of its columns.
    assert [delta.change_ts for delta in made] == [deltas[0].change_ts, deltas[1].change_ts]
    assert files.content(made) == files.content(deltas)
    later = files.flushed([files.change((part, 4, {2: "y"}))])
    assert files.content([*made, *later]) == files.content([*deltas, *later])


def test_columns_of_many_blocks_become_row_groups(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "_BLOCK_ROWS", 7)
    files.layout = replace(files.layout, row_group_rows=9)
    part = files.part()
    changes: list[tuple[PartSource, int, dict[int, object] | None]] = [
        (part, row, {2: f"new {row}"}) for row in (0, 8, 9, 39)
    ]
    deltas = files.flushed([files.change(*changes)])
    [column] = [files.committed(each) for each in compact_major(files.writer(), _with(part, deltas), {2})]
    assert column.targets[0].updated == ROWS
    with open_values(files.layout.folder, column) as parquet:
        sizes = [parquet.metadata.row_group(number).num_rows for number in range(parquet.num_row_groups)]
    assert sizes == [9, 9, 9, 9, 4]
    assert files.content([column]) == files.content(deltas)


def test_a_missing_file_is_named(files: Files) -> None:
    part = files.part()
    changes = files.change((part, 3, None))
    (Path(files.layout.folder) / changes.file.name).unlink()
    with pytest.raises(DeltaFileNotFoundError, match=changes.file.name):
        files.flushed([changes])


def test_of_several_new_values_the_last_one_that_is_given_counts() -> None:
    older = pa.table({"row": [1, 2], "p2": [True, True], "c2": ["a", "b"]})
    newer = pa.table({"row": [2, 0], "p2": [False, True], "c2": [None, "c"], "p3": [True, True], "c3": [5, None]})
    assert fold_updates([older, newer]).to_pydict() == {
        "row": [0, 1, 2],
        "p2": [True, True, True],
        "c2": ["c", "a", "b"],
        "p3": [True, False, True],
        "c3": [None, None, 5],
    }


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_compactions_changes_nothing(tmp_path: Path, seed: int) -> None:
    """Random changes and compactions; after each step every part reads as in the model."""
    rng = new_rng(seed)
    files = Files(tmp_path)
    parts = [files.part(), files.part(), files.part(is_segment=True)]
    model = {part.file.name: dict(files.content([])[part.file.name]) for part in parts}
    opened: list[Delta] = []
    for _ in range(25):
        match _one(rng, ["change", "change", "change", "flush", "minor", "major"]):
            case "change":
                changes = []
                for part in _some(rng, parts, 3):
                    rows = model[part.file.name]
                    for row in _some(rng, sorted(rows), 4):
                        values = _random_change(rng)
                        changes.append((part, row, values))
                        if values is None:
                            del rows[row]
                        else:
                            rows[row] |= {{2: "a", 5: "b"}[number]: value for number, value in values.items()}
                if changes:
                    opened.append(files.change(*changes))
            case "flush":
                sources = [delta for delta in opened if delta.kind is DeltaKind.CHANGES][: 1 + int(rng.random() * 5)]
                kept = [part for part in parts if part.is_segment or rng.random() < 0.2]
                opened = [delta for delta in opened if delta not in sources] + files.flushed(sources, kept)
            case "minor" | "major" as kind:
                opened = _compacted(files, opened, _one(rng, parts[:2]), rng, kind=kind)
        assert files.content(opened) == {name: sorted(rows.items()) for name, rows in model.items()}, seed


def _one(rng: Rng, items: Sequence[T]) -> T:
    return items[int(rng.random() * len(items))]


def _some(rng: Rng, items: Sequence[T], most: int) -> list[T]:
    """At least one, where there is one."""
    shuffled = list(items)
    rng.shuffle(shuffled)
    return shuffled[: 1 + int(rng.random() * most)]


def _random_change(rng: Rng) -> dict[int, object] | None:
    if rng.random() < 0.3:
        return None
    values: dict[int, object] = {2: _one(rng, ["x", "y", None]), 5: _one(rng, [[1], [], [2, 3], None])}
    return {number: values[number] for number in _some(rng, [2, 5], 2)}


def _compacted(files: Files, opened: list[Delta], part: PartSource, rng: Rng, *, kind: str) -> list[Delta]:
    own = [delta for delta in applied_order(opened) if [each.file for each in delta.targets] == [part.file.name]]
    sparse = (DeltaKind.DELETE, DeltaKind.UPDATE) if kind == "minor" else (DeltaKind.UPDATE, DeltaKind.COLUMN)
    sources = [delta for delta in own if delta.kind in sparse]
    if not any(delta.kind in (DeltaKind.UPDATE, sparse[0]) for delta in sources):
        return opened
    source = _with(part, sources)
    written: list[WrittenDelta] = []
    if kind == "minor":
        written += compact_minor(files.writer(), source)
    else:
        columns = {column for delta in sources for column in delta.columns}
        for group in [columns] if rng.random() < 0.5 else [{column} for column in columns]:
            written += compact_major(files.writer(), source, group)
    made = [files.committed(each) for each in written]
    return [delta for delta in opened if delta not in sources] + made


def test_row_indexes_stay_whole_numbers_of_64_bits(files: Files) -> None:
    part = files.part()
    [made] = files.flushed([files.change((part, ROWS - 1, None))])
    _, rows = read_source(files.layout.folder, _with(part, [made]))
    assert rows.dtype == np.int64
    assert len(rows) == ROWS - 1
