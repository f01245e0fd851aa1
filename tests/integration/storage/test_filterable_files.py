"""Real files: which leaves get statistics and dictionaries, and what merges know of the values of their sources."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace as replace_struct

from tests.part_sources import as_delta, new_part, plain_source
from tilth.model.delta import DeltaKind, PartSource
from tilth.model.part import DataFile
from tilth.model.table import Column, Schema
from tilth.model.types import Array, Field, Kind, Simple, Struct
from tilth.storage import (
    DeltaWriter,
    PartWriter,
    TableLayout,
    arrow_schema,
    flush_segments,
    local_folder,
    merge_parts,
    read_part,
    rewrite_part,
    rewrite_target,
    write_parts,
    write_segments,
)
from tilth.storage.values.unfilterable import NOTE

pytestmark = pytest.mark.integration
POINT = Struct((Field("name", Simple(Kind.STRING)), Field("xs", Array(Simple(Kind.FLOAT64)))))
SCHEMA = Schema(
    columns=(
        Column(id=1, name="k", type=Simple(Kind.INT64)),
        Column(id=2, name="a.b", type=Simple(Kind.FLOAT64)),
        Column(id=3, name="day", type=Simple(Kind.DATE)),
        Column(id=4, name="point", type=POINT),
    )
)
LEAVES = ("k", "a.b", "day", "point.name", "point.xs.list.element")
EARLY = -200_000


@pytest.fixture
def layout(tmp_path: Path) -> TableLayout:
    return TableLayout(folder=local_folder(tmp_path), schema=SCHEMA, order_by=("k",), row_group_rows=4, fsync=False)


def _rows(
    keys: Sequence[int], x: Sequence[float | None] = (1.0,), day: int = 0, xs: Sequence[float] = (1.0,)
) -> pa.Table:
    columns: dict[str, list[Any]] = {
        "k": list(keys),
        "a.b": [x[target % len(x)] for target, _ in enumerate(keys)],
        "day": [day for _ in keys],
        "point": [{"name": "n", "xs": list(xs)} for _ in keys],
    }
    schema = arrow_schema(SCHEMA, field_ids=False)
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _written(layout: TableLayout, txn: int, rows: pa.Table) -> DataFile:
    (part,) = write_parts(layout, rows, txn=txn, task=0, attempt=0)
    return part.file


def _merged(layout: TableLayout, txn: int, *sources: PartSource) -> DataFile:
    """In blocks smaller than a row group."""
    written = merge_parts(new_part(layout, txn=txn), sources, task=0, attempt=0, block_rows=2).written
    assert written is not None
    return written.file


def _source(file: DataFile, rows: int = 0) -> PartSource:
    return plain_source(file, SCHEMA, rows=rows)


def _without(layout: TableLayout, file: DataFile) -> tuple[set[str], set[str]]:
    """The leaves that have no statistics in some row group, and those that have no dictionary."""
    metadata = pq.read_metadata(Path(layout.folder, file.name))
    chunks = [
        metadata.row_group(group).column(target) for group in range(metadata.num_row_groups) for target in range(5)
    ]
    assert {chunk.path_in_schema for chunk in chunks} == set(LEAVES)
    assert all(chunk.has_column_index == chunk.is_stats_set for chunk in chunks)
    return (
        {chunk.path_in_schema for chunk in chunks if not chunk.is_stats_set},
        {chunk.path_in_schema for chunk in chunks if not chunk.has_dictionary_page} - {"k"},
    )


@pytest.mark.parametrize(
    ("rows", "statistics", "dictionary"),
    [
        (_rows(range(9)), set(), set()),
        # Also where only the last row group has it.
        (_rows(range(9), x=[1.0] * 8 + [math.nan]), {"a.b"}, set()),
        (_rows(range(9), x=[1.0] * 8 + [-0.0]), set(), {"a.b"}),
        (_rows(range(9), day=EARLY), {"day"}, {"day"}),
        (
            _rows(range(9), xs=[0.0, math.nan]),
            {"point.xs.list.element"},
            {"point.xs.list.element"},
        ),
    ],
    ids=["none", "nan", "zero", "early", "nested"],
)
def test_a_leaf_with_unfilterable_values_has_nothing_to_misjudge_them_by(
    layout: TableLayout, rows: pa.Table, statistics: set[str], dictionary: set[str]
) -> None:
    file = _written(layout, 1, rows)
    assert file.is_filterable
    assert _without(layout, file) == (statistics, dictionary)
    (segment,) = write_segments(layout, rows, txn=2, task=0, attempt=0)
    source = replace_struct(_source(segment.file, segment.rows), is_segment=True)
    flushed = flush_segments(new_part(layout, txn=3), [source], task=0, attempt=0).written
    assert flushed is not None
    assert flushed.file.is_filterable
    assert _without(layout, flushed.file) == (statistics, dictionary)
    # Any row of the result may have the unfilterable values of one source.
    merged = _merged(layout, 4, _source(_written(layout, 5, _rows([-1]))), _source(file))
    assert merged.is_filterable
    assert _without(layout, merged)[0] == statistics
    assert dictionary <= _without(layout, merged)[1]


@pytest.mark.parametrize("late", [{"x": [math.nan]}, {"x": [0.0]}, {"day": EARLY}, {"xs": [math.nan]}], ids=str)
def test_a_value_that_comes_too_late_is_reported(layout: TableLayout, late: dict[str, Any]) -> None:
    with PartWriter(layout, name="1-0.0-0.parquet", partition="all", values=()) as writer:
        writer.write(_rows(range(8)))
        writer.write(_rows(range(8, 16), **late))
        part = writer.close()
    assert part is not None
    assert not part.file.is_filterable
    # The next merge knows.
    merged = _merged(layout, 2, _source(part.file))
    assert merged.is_filterable
    assert any(_without(layout, merged))


def test_zeros_may_come_late_where_there_is_no_dictionary(layout: TableLayout) -> None:
    with PartWriter(layout, name="1-0.0-0.parquet", partition="all", values=()) as writer:
        writer.write(_rows(range(4), x=[1.0, 2.0, 3.0, 4.0]))
        writer.write(_rows(range(4, 8), x=[0.0, -0.0]))
        part = writer.close()
    assert part is not None
    assert part.file.is_filterable


def test_new_values_beside_a_file_are_seen_when_they_are_folded_in(layout: TableLayout) -> None:
    file = _written(layout, 1, _rows(range(8)))
    changes = pa.table({"row": pa.array([6]), "c2": pa.array([math.nan]), "p2": pa.array([True])})
    delta = DeltaWriter(layout, txn=2, task=0, attempt=0).updates("all", file.name, changes)
    assert delta.kind is DeltaKind.UPDATE
    source = replace_struct(_source(file, 8), deltas=(as_delta(delta, 5),))
    merged = _merged(layout, 3, source)
    assert math.isnan(read_part(layout.folder, merged).column("a.b")[6].as_py())
    # Nobody knew before its first row group was written.
    assert not merged.is_filterable
    again = _merged(layout, 4, _source(merged))
    assert again.is_filterable
    assert _without(layout, again)[0] == {"a.b"}


def test_columns_are_followed_by_id(layout: TableLayout) -> None:
    file = _written(layout, 1, _rows(range(8), x=[math.nan], day=EARLY))
    renamed = Schema(
        columns=(
            SCHEMA.columns[0],
            # A new column with an old name, and the old one under another.
            Column(id=9, name="a.b", type=Simple(Kind.FLOAT64)),
            Column(id=2, name="day", type=Simple(Kind.FLOAT64)),
            Column(id=8, name="since", type=Simple(Kind.DATE), default="'1500-01-01'"),
            SCHEMA.columns[3],
        )
    )
    after = replace(layout, schema=renamed)
    merged = _merged(after, 2, _source(file))
    assert merged.is_filterable
    metadata = pq.read_metadata(Path(layout.folder, merged.name))
    chunks = [metadata.row_group(0).column(target) for target in range(metadata.num_columns)]
    assert {chunk.path_in_schema for chunk in chunks if not chunk.is_stats_set} == {"day", "since"}


def test_a_rewritten_part_knows_what_its_source_has(layout: TableLayout) -> None:
    rows = _rows(range(8), x=[1.0] * 7 + [math.nan])
    file = _written(layout, 1, rows)
    target = rewrite_target(layout, _source(file), (), task=0)
    batches = [
        pa.RecordBatch.from_arrays(
            [*batch.columns, pa.array([file.name] * 4), pa.array(range(4 * number, 4 * number + 4))],
            names=[*batch.schema.names, "file", "row"],
        )
        for number, batch in enumerate(rows.to_batches(max_chunksize=4))
    ]
    rewritten = rewrite_part(layout, {file.name: target}, iter(batches), txn=2, attempt=0)
    assert rewritten is not None
    assert rewritten[1].file.is_filterable
    assert _without(layout, rewritten[1].file)[0] == {"a.b"}
    # Without that, the value would have come too late.
    unknown = replace(target, unfilterable=type(target.unfilterable)())
    blind = rewrite_part(layout, {file.name: unknown}, iter(batches), txn=3, attempt=0)
    assert blind is not None
    assert not blind[1].file.is_filterable


def test_the_note_is_of_the_file_s_own_rows(layout: TableLayout) -> None:
    file = _written(layout, 1, _rows(range(3), x=[math.nan, 0.0], day=EARLY))
    noted = pq.read_metadata(Path(layout.folder, file.name)).metadata[NOTE]
    assert noted == b'{"statistics":["a.b","day"],"dictionary":["a.b","day"]}'
