"""A merge that is cut into key ranges, through real files: laid end to end, the results of the ranges are the result of
the merge that is not cut, in its order, whatever the keys are and wherever it is cut.

Ranges are those that are planned, and such as cut before any rows at all.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import tempfile
from collections.abc import Sequence
from decimal import Decimal as Number
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.long import examples
from tests.part_sources import as_delta, new_part, plain_source
from tilth.model.delta import Delta, PartSource
from tilth.model.part import WrittenPart
from tilth.model.table import Column, Schema
from tilth.model.txn import Txn, TxnOutput, TxnState
from tilth.model.types import DataType, Decimal, Kind, Simple
from tilth.storage import (
    Cut,
    CutPlan,
    DeltaWriter,
    MergeResult,
    PartRebaser,
    TableLayout,
    arrow_schema,
    check_file,
    clean_transaction,
    data_folder,
    local_folder,
    local_root,
    merge_parts,
    plan_ranges,
    ranges_of,
    read_part,
    write_parts,
)
from tilth.storage.deltas.sources import read_source

_RELAXED = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
#: Keys that libraries compare in ways of their own.
_HOSTILE: dict[DataType, st.SearchStrategy[Any]] = {
    Simple(Kind.FLOAT64): st.sampled_from([math.nan, -0.0, 0.0, math.inf, -math.inf, 5e-324, -1.5]),
    Simple(Kind.FLOAT32): st.sampled_from([math.nan, -0.0, 0.0, 2.25]),
    Simple(Kind.INT64): st.sampled_from([-(2**63), -1, 0, 2**63 - 1]),
    Simple(Kind.BOOLEAN): st.booleans(),
    Simple(Kind.STRING): st.sampled_from(["", "\x00", "a\x00", "a", "ä", "'", "z" * 70, "\U0010ffff"]),
    Simple(Kind.BINARY): st.sampled_from([b"", b"\x00", b"\xff", b"\xff\x00"]),
    Simple(Kind.DATE): st.sampled_from(
        [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(2000, 1, 1)]
    ),
    Decimal(38, 0): st.sampled_from([Number(-(10**38) + 1), Number(0), Number(10**38 - 1)]),
}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Sources, and rows that are deleted in them before the merge, and while it runs."""

    schema: Schema
    order_by: tuple[str, ...]
    tables: list[Any]
    group_rows: int
    before: list[tuple[int, int]]
    meanwhile: list[tuple[int, int]]


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    key_types = draw(st.lists(st.sampled_from(list(_HOSTILE)), min_size=1, max_size=2))
    columns = [Column(id=number + 1, name=f"c.{number}", type=of) for number, of in enumerate(key_types)]
    schema = Schema(columns=(*columns, Column(id=9, name="at", type=Simple(Kind.STRING))))
    keys = st.tuples(*(st.one_of(st.none(), _HOSTILE[of]) for of in key_types))
    # One key of half of all rows, or of all of them, now and then.
    common = draw(keys)
    share = draw(st.sampled_from([0.0, 0.5, 1.0]))
    row = st.one_of(st.just(common), keys) if share == 0.5 else st.just(common) if share else keys
    inserts = draw(st.lists(st.lists(row, min_size=1, max_size=30), min_size=1, max_size=4))
    tables = []
    for number, insert in enumerate(inserts):
        values = [[each[index] for each in insert] for index in range(len(key_types))]
        values.append([f"{number}-{place}" for place in range(len(insert))])
        arrays = [pa.array(column, field.type) for column, field in zip(values, arrow_schema(schema), strict=True)]
        tables.append(pa.table(arrays, schema=arrow_schema(schema)))
    places = [(number, place) for number, insert in enumerate(inserts) for place in range(len(insert))]
    return Case(
        schema=schema,
        order_by=tuple(column.name for column in columns[: draw(st.integers(0, len(columns)))]),
        tables=tables,
        group_rows=draw(st.sampled_from([1, 3, 10, 100])),
        before=draw(st.lists(st.sampled_from(places), max_size=10, unique=True)),
        meanwhile=draw(st.lists(st.sampled_from(places), max_size=10, unique=True)),
    )


def _deletes(
    layout: TableLayout, sources: Sequence[PartSource], places: Sequence[tuple[int, int]], *, txn: int
) -> list[PartSource]:
    """The sources with these rows deleted."""
    found = []
    for number, source in enumerate(sources):
        rows = sorted(row for of, row in places if of == number)
        deltas: tuple[Delta, ...] = ()
        if rows:
            written = DeltaWriter(layout, txn=txn, task=number, attempt=0).deletes(
                "all", source.file.name, pa.array(rows, pa.int64()).to_numpy()
            )
            deltas = (as_delta(written, txn),)
        found.append(msgspec.structs.replace(source, deltas=deltas))
    return found


def _rows(layout: TableLayout, written: WrittenPart | None, deltas: Sequence[Delta] = ()) -> list[Any]:
    if written is None:
        return []
    source = plain_source(written.file, layout.schema, rows=written.rows)
    table = read_source(layout.folder, msgspec.structs.replace(source, deltas=tuple(deltas)))[0]
    # Text, because NaN is not equal to itself.
    return [repr(row) for row in table.to_pylist()]


def _cut(layout: TableLayout, sources: Sequence[PartSource], plan: CutPlan, *, txn: int) -> list[MergeResult]:
    return [
        merge_parts(new_part(layout, txn=txn), sources, task=task, attempt=0, within=within, block_rows=4)
        for task, within in enumerate(ranges_of(plan))
    ]


@_RELAXED
@given(_cases(), st.integers(2, 6), st.data())
def test_the_ranges_laid_end_to_end_are_the_merge(case: Case, wanted: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        layout = TableLayout(
            folder=local_folder(temporary),
            schema=case.schema,
            order_by=case.order_by,
            row_group_rows=case.group_rows,
            fsync=False,
        )
        parts = [
            part
            for txn, table in enumerate(case.tables, start=1)
            for part in write_parts(layout, table, txn=txn, task=0, attempt=0)
        ]
        plain = [plain_source(part.file, case.schema, rows=part.rows) for part in parts]
        order = merge_parts(new_part(layout, txn=100), plain, task=0, attempt=0).written
        sources = _deletes(layout, plain, case.before, txn=200)
        whole = merge_parts(new_part(layout, txn=300), sources, task=0, attempt=0)
        if data.draw(st.booleans()):
            plan = plan_ranges(layout, sources, wanted)
            assert len(plan.cuts) < wanted
            assert bool(plan.why_fewer) == (len(plan.cuts) + 1 < wanted)
        else:
            plan = CutPlan(cuts=_anywhere(layout, parts, order, data))
        results = _cut(layout, sources, plan, txn=400)
        assert [row for each in results for row in _rows(layout, each.written)] == _rows(layout, whole.written)
        assert sum(each.rows_in for each in results) == whole.rows_in
        assert sum(each.rows_deleted for each in results) == whole.rows_deleted
        for each in results:
            if each.written is not None:
                check_file(layout.folder, each.written.file)
        # Deletes that come meanwhile reach the range that has the row.
        late = [place for place in case.meanwhile if place not in case.before]
        newer = _deletes(layout, plain, late, txn=500)
        left: list[Any] = []
        for task, each in enumerate(results):
            deltas: list[Delta] = []
            if each.written is not None:
                rebaser = PartRebaser(layout, "all", each.written.file)
                found = rebaser.rebase(newer, txn=400, task=task, n=0)
                deltas = [] if found is None else [as_delta(found, 600)]
            left += _rows(layout, each.written, deltas)
        gone = {read_part(layout.folder, parts[of].file).to_pylist()[row]["at"] for of, row in late}
        assert left == [row for row in _rows(layout, whole.written) if not any(f"'at': '{at}'" in row for at in gone)]


def _anywhere(
    layout: TableLayout, parts: Sequence[WrittenPart], order: WrittenPart | None, data: st.DataObject
) -> tuple[Cut, ...]:
    """Cuts before any rows, in the order of the result."""
    assert order is not None
    places = {
        row["at"]: Cut(number, place)
        for number, part in enumerate(parts)
        for place, row in enumerate(read_part(layout.folder, part.file).to_pylist())
    }
    merged = [row["at"] for row in read_part(layout.folder, order.file).to_pylist()]
    chosen = data.draw(st.lists(st.integers(0, len(merged) - 1), max_size=5, unique=True))
    return tuple(places[merged[index]] for index in sorted(chosen))


def _numbers(temporary: str, keys: Sequence[Sequence[int]], *, group_rows: int) -> tuple[TableLayout, list[PartSource]]:
    schema = Schema(columns=(Column(id=1, name="k", type=Simple(Kind.INT64)),))
    layout = TableLayout(
        folder=local_folder(temporary), schema=schema, order_by=("k",), row_group_rows=group_rows, fsync=False
    )
    parts = [
        part
        for txn, each in enumerate(keys, start=1)
        for part in write_parts(
            layout, pa.table([pa.array(each, pa.int64())], schema=arrow_schema(schema)), txn=txn, task=0, attempt=0
        )
    ]
    return layout, [plain_source(part.file, schema, rows=part.rows) for part in parts]


def test_ranges_have_about_as_many_bytes_each_and_read_little_more() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        layout, sources = _numbers(temporary, [range(0, 40_000, 2), range(1, 40_000, 2)], group_rows=200)
        plan = plan_ranges(layout, sources, 8)
        assert plan.why_fewer == ""
        results = _cut(layout, sources, plan, txn=9)
        rows = [each.rows_in for each in results]
        assert len(rows) == 8
        assert max(rows) < 1.1 * sum(rows) / 8
        whole = merge_parts(new_part(layout, txn=10), sources, task=0, attempt=0)
        # A cut falls into a row group of each source, which two ranges read.
        assert sum(each.bytes_in for each in results) < 1.2 * whole.bytes_in
        assert max(each.bytes_in for each in results) < 0.2 * whole.bytes_in


def test_one_key_of_half_the_rows_is_cut_too() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        keys = [*range(2_000), *[5_000] * 4_000, *range(6_000, 8_000)]
        layout, sources = _numbers(temporary, [keys, keys], group_rows=100)
        results = _cut(layout, sources, plan_ranges(layout, sources, 4), txn=9)
        # The key's rows take next to no bytes and count as well.
        assert max(each.rows_in for each in results) < 5_500
        bounds = [each.written.ranges["k"] for each in results if each.written is not None]
        # Ranges touch in the key that is cut, and nowhere else.
        assert [(one.high, other.low) for one, other in pairwise(bounds)][1] == (5_000, 5_000)


def test_a_range_that_was_tried_again_is_the_same_and_what_was_given_up_is_found_by_name() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = local_root(temporary)
        layout, sources = _numbers(temporary, [range(0, 900, 3), range(900)], group_rows=20)
        layout = dataclasses.replace(layout, folder=data_folder(root, "t"))
        (Path(temporary) / "t" / "data").mkdir(parents=True)
        for source in sources:
            (Path(temporary) / source.file.name).rename(Path(temporary) / "t" / "data" / source.file.name)
        ranges = ranges_of(plan_ranges(layout, sources, 3))
        attempts = [
            [
                merge_parts(new_part(layout, txn=9), sources, task=task, attempt=attempt, within=within).written
                for attempt in (0, 1)
            ]
            for task, within in enumerate(ranges)
        ]
        assert len(attempts) == 3
        for first, second in attempts:
            assert first is not None
            assert second is not None
            assert (first.file.checksum, first.ranges) == (second.file.checksum, second.ranges)
        # The job names the first attempt of one range and the second one of the others.
        kept = [written.file.name for written in (attempts[0][1], attempts[1][0], attempts[2][1]) if written]
        outputs = (TxnOutput(table="t", tasks=3),)
        txn = Txn(id=9, actor="merge", state=TxnState.FINISHED, fences=(), outputs=outputs, server="s")
        clean_transaction(root, txn, keep=kept)
        files = {path.name for path in (Path(temporary) / "t" / "data").glob("*.parquet")}
        assert files == {*kept, *(source.file.name for source in sources)}
        clean_transaction(root, txn)
        left = {path.name for path in (Path(temporary) / "t" / "data").iterdir()}
        assert left == {source.file.name for source in sources}


def test_many_parts_of_one_row_group_give_few_ranges() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        layout, sources = _numbers(temporary, [range(number, 2_000, 20) for number in range(20)], group_rows=1_000)
        plan = plan_ranges(layout, sources, 8)
        assert len(plan.cuts) == 1
        assert plan.why_fewer == "more would read the same row groups too often"
