"""Parts and segments with changes are merged, flushed and rewritten as in a table in memory; what changes meanwhile
arrives at the result."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.long import examples
from tests.part_sources import as_delta, new_part
from tilth.model.delta import Delta, DeltaKind, PartSource, WrittenDelta
from tilth.model.part import PartName, WrittenPart
from tilth.model.table import Column, Schema
from tilth.model.types import Array, Kind, Simple
from tilth.storage import (
    CHANGE_DELETE,
    CHANGE_UPDATE,
    DeltaWriter,
    Expiry,
    Folder,
    PartRebaser,
    RewriteTarget,
    TableLayout,
    arrow_schema,
    flush_segments,
    iter_source,
    local_folder,
    merge_parts,
    ordered_source,
    read_part,
    read_source,
    remove_row_map,
    rewrite_part,
    write_parts,
    write_segments,
)

SCHEMA = Schema(
    columns=(
        Column(id=1, name="k", type=Simple(Kind.INT64)),
        Column(id=2, name="s", type=Simple(Kind.STRING)),
        Column(id=4, name="v", type=Simple(Kind.FLOAT64)),
        Column(id=5, name="l", type=Array(Simple(Kind.INT32))),
        Column(id=7, name="d", type=Simple(Kind.DATE)),
    )
)
Row = dict[str, Any]
#: Columns that changes may have new values of.
VALUES: Mapping[int, tuple[str, st.SearchStrategy[Any]]] = {
    2: ("s", st.one_of(st.none(), st.sampled_from(["a", "b", "c"]))),
    4: ("v", st.one_of(st.none(), st.integers(-5, 5).map(float))),
    5: ("l", st.one_of(st.none(), st.lists(st.integers(0, 3), max_size=2))),
}
ROW = st.fixed_dictionaries({"k": st.one_of(st.none(), st.integers(0, 4)), **dict(VALUES.values()), "d": st.just(None)})
INSERTS = st.lists(st.lists(ROW, min_size=1, max_size=12), min_size=1, max_size=5)


@dataclass
class Table:
    """Parts of one partition with their changes: the files, and in memory what they must contain."""

    folder: Folder
    is_segment: bool
    order_by: tuple[str, ...] = ("k",)
    parts: list[WrittenPart] = field(default_factory=list)
    #: Rows of each part; None where one was deleted.
    rows: list[list[Row | None]] = field(default_factory=list)
    deltas: list[list[Delta]] = field(default_factory=list)
    ts: int = 0

    @property
    def layout(self) -> TableLayout:
        return TableLayout(folder=self.folder, schema=SCHEMA, order_by=self.order_by, fsync=False)

    def insert(self, rows: Sequence[Row]) -> None:
        write = write_segments if self.is_segment else write_parts
        [part] = write(self.layout, table_of(rows), txn=len(self.parts) + 1, task=0, attempt=0)
        self.parts.append(part)
        known = PartSource(
            name=name_of(part), file=part.file, rows=part.rows, is_segment=part.is_segment, schema=SCHEMA
        )
        self.rows.append(list(read_source(self.folder, known)[0].to_pylist()))
        self.deltas.append([])

    def sources(self, since: int = 0) -> list[PartSource]:
        return [
            PartSource(
                name=name_of(part),
                file=part.file,
                rows=part.rows,
                is_segment=part.is_segment,
                schema=SCHEMA,
                deltas=tuple(delta for delta in deltas if delta.change_ts > since),
            )
            for part, deltas in zip(self.parts, self.deltas, strict=True)
        ]

    def live(self) -> list[Row]:
        return [row for rows in self.rows for row in rows if row is not None]

    def change(self, data: st.DataObject) -> None:
        """A delta of any kind over rows that are there."""
        self.ts += 1
        kind = data.draw(st.sampled_from(list(DeltaKind)))
        if kind is DeltaKind.CHANGES:
            self._segment(data)
            return
        number = data.draw(st.integers(0, len(self.parts) - 1))
        there = [index for index, row in enumerate(self.rows[number]) if row is not None]
        file, names = self.parts[number].file.name, {"txn": 1000 + self.ts, "task": 0, "attempt": 0}
        if kind is DeltaKind.DELETE and there:
            gone = data.draw(st.sets(st.sampled_from(there), min_size=1))
            rows = pa.array(sorted(gone), pa.int64()).to_numpy()
            self._add(number, DeltaWriter(self.layout, **names).deletes("all", file, rows))
            for index in gone:
                self.rows[number][index] = None
        elif kind is DeltaKind.UPDATE and there:
            chosen = sorted(data.draw(st.sets(st.sampled_from(there), min_size=1)))
            news = [self._new_values(data) for _ in chosen]
            table = values_table(news).append_column("row", pa.array(chosen, pa.int64()))
            self._add(number, DeltaWriter(self.layout, **names).updates("all", file, table))
            for index, new in zip(chosen, news, strict=True):
                self._set(number, index, new)
        elif kind is DeltaKind.COLUMN:
            column = data.draw(st.sampled_from(list(VALUES)))
            news = [{column: data.draw(VALUES[column][1])} for _ in self.rows[number]]
            table = values_table(news).select([f"c{column}"])
            self._add(number, DeltaWriter(self.layout, **names).columns("all", file, [table]))
            for index in there:
                self._set(number, index, news[index])

    def _segment(self, data: st.DataObject) -> None:
        positions = [
            (number, index)
            for number, rows in enumerate(self.rows)
            for index, row in enumerate(rows)
            if row is not None
        ]
        if not positions:
            return
        chosen = sorted(data.draw(st.sets(st.sampled_from(positions), min_size=1)))
        ops = [data.draw(st.sampled_from([CHANGE_DELETE, CHANGE_UPDATE])) for _ in chosen]
        news = [{} if op == CHANGE_DELETE else self._new_values(data) for op in ops]
        table = values_table(news)
        files = pa.array([self.parts[number].file.name for number, _ in chosen]).dictionary_encode()
        table = table.append_column("file", files)
        table = table.append_column("row", pa.array([index for _, index in chosen], pa.int64()))
        table = table.append_column("op", pa.array(ops, pa.int8()))
        written = DeltaWriter(self.layout, txn=1000 + self.ts, task=0, attempt=0).changes("all", table)
        for number in {number for number, _ in chosen}:
            self._add(number, written)
        for (number, index), op, new in zip(chosen, ops, news, strict=True):
            if op == CHANGE_DELETE:
                self.rows[number][index] = None
            else:
                self._set(number, index, new)

    def _new_values(self, data: st.DataObject) -> dict[int, Any]:
        columns = data.draw(st.sets(st.sampled_from(list(VALUES)), min_size=1))
        return {column: data.draw(VALUES[column][1]) for column in sorted(columns)}

    def _set(self, number: int, index: int, new: Mapping[int, Any]) -> None:
        row = self.rows[number][index]
        assert row is not None
        self.rows[number][index] = row | {VALUES[column][0]: value for column, value in new.items()}

    def _add(self, number: int, written: WrittenDelta) -> None:
        self.deltas[number].append(as_delta(written, self.ts))


def name_of(part: WrittenPart) -> PartName:
    return PartName("all", 1, 1, 0, 1)


def table_of(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=arrow_schema(SCHEMA, field_ids=False))


def values_table(news: Sequence[Mapping[int, Any]]) -> pa.Table:
    """`c` and `p` of every column that some row has a new value of."""
    columns: dict[str, pa.Array] = {}
    for identity in sorted({column for new in news for column in new}):
        kind = arrow_schema(SCHEMA).field(VALUES[identity][0]).type
        columns[f"c{identity}"] = pa.array([new.get(identity) for new in news], kind)
        columns[f"p{identity}"] = pa.array([identity in new for new in news])
    return pa.table(columns) if columns else pa.table({"op": pa.array([0] * len(news))}).drop_columns(["op"])


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["k"] is not None, row["k"] or 0))


def result_rows(table: Table, part: WrittenPart | None, deltas: Sequence[Delta] = ()) -> list[Row]:
    if part is None:
        return []
    source = PartSource(
        name=name_of(part), file=part.file, rows=part.rows, is_segment=False, schema=SCHEMA, deltas=tuple(deltas)
    )
    return list(read_source(table.folder, source)[0].to_pylist())


def make(table: Table, is_lone_rewrite: bool) -> tuple[WrittenPart | None, list[PartSource]]:
    """Merges, flushes, or rewrites the first part; with the sources in the order of the row map."""
    sources = table.sources()
    if is_lone_rewrite:
        batches = (
            batch
            for rows, indexes in ordered_source(table.layout, sources[0])
            for batch in rows.append_column("_file", pa.array([sources[0].file.name] * rows.num_rows))
            .append_column("_row", pa.array(indexes))
            .to_batches()
        )
        targets = {sources[0].file.name: RewriteTarget(task=0, partition="all", values=(), source=sources[0])}
        found = rewrite_part(table.layout, targets, batches, txn=500, attempt=0)
        return (None if found is None else found[1]), sources[:1]
    kernel: Callable[..., Any] = flush_segments if table.is_segment else merge_parts
    more = {} if table.is_segment else {"block_rows": 3}
    result = kernel(new_part(table.layout, txn=500), sources, task=0, attempt=0, **more)
    assert result.rows_deleted == sum(row is None for rows in table.rows for row in rows)
    return result.written, sources


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(INSERTS, st.booleans(), st.booleans(), st.data())
def test_the_result_has_what_changed_before_and_meanwhile(
    inserts: list[list[Row]], is_segment: bool, is_lone_rewrite: bool, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = local_folder(temporary)
        table = Table(folder, is_segment)
        for rows in inserts[:1] if is_lone_rewrite else inserts:
            table.insert(rows)
        for _ in range(data.draw(st.integers(0, 4))):
            table.change(data)
        seen, expected = table.ts, in_order(table.live())
        written, sources = make(table, is_lone_rewrite)
        assert result_rows(table, written) == expected
        assert (written is None) == (not expected)
        # Round by round, as long as there are new ones, as a commit that is refused does it.
        arrived: list[Delta] = []
        rebaser = None if written is None else PartRebaser(table.layout, "all", written.file)
        for n in range(data.draw(st.integers(0, 3))):
            for _ in range(data.draw(st.integers(1, 2))):
                table.change(data)
            new = table.sources(since=seen)[: len(sources)]
            # Also what was seen already comes again: deltas may have been joined with newer ones.
            again = data.draw(st.booleans())
            if rebaser is not None:
                delta = rebaser.rebase(
                    table.sources()[: len(sources)] if again else new, txn=500, task=0, n=len(arrived)
                )
                if delta is not None:
                    arrived.append(as_delta(delta, 10_000 + n))
            seen = table.ts
        assert result_rows(table, written, arrived) == in_order(table.live())
        deleted = sum(target.deleted for delta in arrived for target in delta.targets)
        assert deleted + len(table.live()) == len(expected)
        if written is not None:
            assert remove_row_map(folder, written.file.name)


def test_without_a_sort_key_parts_are_laid_end_to_end() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = local_folder(temporary)
        table = Table(folder, False, order_by=())
        for start in (5, 0):
            table.insert([{"k": start + number} for number in range(3)])
        rows = pa.array([1], pa.int64()).to_numpy()
        delta = DeltaWriter(table.layout, txn=9, task=0, attempt=0).deletes("all", table.parts[0].file.name, rows)
        table.deltas[0].append(as_delta(delta, 1))
        merged = merge_parts(new_part(table.layout, txn=10), table.sources(), task=0, attempt=0)
        assert merged.written is not None
        assert read_part(folder, merged.written.file)["k"].to_pylist() == [5, 7, 0, 1, 2]
        later = DeltaWriter(table.layout, txn=11, task=0, attempt=0).deletes("all", table.parts[1].file.name, rows)
        table.deltas[1].append(as_delta(later, 2))
        found = PartRebaser(table.layout, "all", merged.written.file).rebase(
            table.sources(since=1), txn=10, task=0, n=0
        )
        assert found is not None
        assert result_rows(table, merged.written, [as_delta(found, 3)])[2:] == [
            {"k": 0, "s": None, "v": None, "l": None, "d": None},
            {"k": 2, "s": None, "v": None, "l": None, "d": None},
        ]


def test_changes_of_rows_that_have_expired_are_passed_over() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = local_folder(temporary)
        table = Table(folder, False)
        table.insert([{"k": 1, "d": None}, {"k": 2, "d": None}])
        old = pa.table({"k": [0], "d": pa.array([3], pa.date32())})
        [part] = write_parts(table.layout, old, txn=5, task=0, attempt=0)
        source = PartSource(name=name_of(part), file=part.file, rows=1, is_segment=False, schema=SCHEMA)
        sources = [source, *table.sources()]
        merged = merge_parts(
            new_part(table.layout, txn=6),
            sources,
            task=0,
            attempt=0,
            expired=Expiry(column="d", below=10),
        )
        assert merged.rows_expired == 1
        assert merged.written is not None
        rows = pa.array([0], pa.int64()).to_numpy()
        gone = as_delta(DeltaWriter(table.layout, txn=7, task=0, attempt=0).deletes("all", part.file.name, rows), 1)
        changed = PartSource(
            name=source.name, file=source.file, rows=1, is_segment=False, schema=SCHEMA, deltas=(gone,)
        )
        rebaser = PartRebaser(table.layout, "all", merged.written.file)
        assert rebaser.rebase([changed, *table.sources()], txn=6, task=0, n=0) is None


def test_a_changed_part_is_read_in_blocks() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = local_folder(temporary)
        table = Table(folder, False)
        table.insert([{"k": number} for number in range(10)])
        rows = pa.array([2, 3], pa.int64()).to_numpy()
        delta = DeltaWriter(table.layout, txn=9, task=0, attempt=0).deletes("all", table.parts[0].file.name, rows)
        table.deltas[0].append(as_delta(delta, 1))
        found = [indexes.tolist() for _, indexes in iter_source(folder, table.sources()[0], block_rows=4)]
        assert found == [[0, 1], [4, 5, 6, 7], [8, 9]]
