"""Whole tables through real files: whatever the policies choose, merges change no row of a table."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.long import examples
from tests.part_sources import plain_source
from tilth.maintenance.merge.policy.candidates import CandidatePart, Effort, MergeSelection
from tilth.maintenance.merge.policy.key_bytes import key_bounds
from tilth.maintenance.merge.policy.key_range import KeyRangePolicy
from tilth.maintenance.merge.policy.size_tiered import select_merges
from tilth.maintenance.table.settings import KeyRangeSettings, MergeSettings
from tilth.model.part import WrittenPart
from tilth.model.table import Column, Schema, Transform, TransformKind
from tilth.model.types import Kind, Simple
from tilth.storage import Folder, NewPart, TableLayout, arrow_schema, local_folder, merge_parts, read_part, write_parts

SCHEMA = Schema(
    columns=(
        Column(id=1, name="p", type=Simple(Kind.INT64), nullable=False),
        Column(id=2, name="k", type=Simple(Kind.STRING)),
        Column(id=3, name="v", type=Simple(Kind.FLOAT64)),
    )
)
ROW = st.tuples(
    st.integers(0, 1), st.one_of(st.none(), st.text("abä", max_size=2)), st.one_of(st.none(), st.floats(-9, 9))
)
#: Settings that accept any balance of sizes, and any gain by key.
LOOSE = MergeSettings(base=1.0, expected_parts=-1, parts_max=4, key_range=KeyRangeSettings(budget=4))


def candidates(parts: dict[str, WrittenPart]) -> list[CandidatePart]:
    found = []
    for name, part in parts.items():
        low, high = key_bounds(part.ranges, order_by=("k",), schema=SCHEMA, rows=part.rows)
        found.append(
            CandidatePart(
                name=name,
                partition=part.partition,
                size=part.file.size,
                rows=part.rows,
                age=0.0,
                columns_commit_time=1,
                low=low,
                high=high,
            )
        )
    return sorted(found, key=lambda each: (each.partition, each.name))


def select(parts: dict[str, WrittenPart], is_by_key: bool) -> MergeSelection:
    if is_by_key:
        policy = KeyRangePolicy()
        return policy.select(candidates(parts), being_merged=(), settings=LOOSE, effort=Effort.AGGRESSIVE)
    return select_merges(candidates(parts), being_merged=(), stats={}, workers=1, now=1e9, settings=LOOSE)


def rows_of(folder: Folder, parts: Sequence[WrittenPart]) -> Counter[tuple[object, ...]]:
    tables = [read_part(folder, part.file) for part in parts]
    return Counter(tuple(row.values()) for table in tables for row in table.to_pylist())


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(ROW, min_size=1, max_size=6), min_size=1, max_size=8), st.booleans())
def test_merges_change_no_row(inserts: list[list[tuple[int, str | None, float | None]]], is_by_key: bool) -> None:
    by = (Transform(kind=TransformKind.IDENTITY, column="p"),)
    with tempfile.TemporaryDirectory() as temporary:
        folder = local_folder(temporary)
        layout = TableLayout(folder=folder, schema=SCHEMA, partition_by=by, order_by=("k",), fsync=False)
        parts: dict[str, WrittenPart] = {}
        for txn, insert in enumerate(inserts, start=1):
            columns = [list(column) for column in zip(*insert, strict=True)]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, arrow_schema(SCHEMA), strict=True)]
            for written in write_parts(
                layout, pa.table(arrays, schema=arrow_schema(SCHEMA)), txn=txn, task=0, attempt=0
            ):
                parts[f"{written.partition}_{txn}_{txn}_0_{txn}"] = written
        before = rows_of(folder, list(parts.values()))
        started, txn = len(parts), 1000
        while specs := select(parts, is_by_key).specs:
            for spec in specs:
                txn += 1
                assert txn <= 1000 + started, "each merge makes fewer parts"
                sources = [parts.pop(name) for name in spec.parts]
                read = [plain_source(source.file, SCHEMA) for source in sources]
                merged = merge_parts(
                    NewPart(layout=layout, partition=spec.partition, values=sources[0].values, txn=txn),
                    read,
                    task=0,
                    attempt=0,
                )
                assert merged.written is not None
                parts[f"{spec.partition}_{txn}_{txn}_1_{txn}"] = merged.written
            assert rows_of(folder, list(parts.values())) == before
        assert sum(part.rows for part in parts.values()) == sum(len(insert) for insert in inserts)
