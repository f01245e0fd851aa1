"""Writing a part anew from its own rows, changed, as a mutation does.

Covers: rows of one file in, one new file with its row map out; the rows of a changed part or segment in the order of
the sort key. Does not cover: what a mutation changes (maintenance/mutate/task_spark.py).
Always holds: the new file has the rows in the order in which they came, and that is the order of the sort key; memory
is bounded by one batch and one row group, and by the segment where the source is one.

Tests: tests/integration/storage/test_filterable_files.py, tests/integration/storage/test_mutate_runner.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from tilth.model.delta import PartSource
from tilth.model.part import Bound, WrittenPart
from tilth.storage.deltas.deletes import RowIndexes
from tilth.storage.deltas.sources import iter_source, read_source
from tilth.storage.errors import PartFileCorruptError
from tilth.storage.parts.key_filter import write_filter
from tilth.storage.parts.part_files import PartWriter, footer_of
from tilth.storage.parts.rowmap import RowMapWriter
from tilth.storage.store.paths import TableLayout, file_name
from tilth.storage.values.arrow import conform
from tilth.storage.values.order import OrderCheck, ranks_of, stable_order
from tilth.storage.values.unfilterable import NOTHING, Unfilterable, unfilterable_in_file

#: Rows of a batch.
_BLOCK_ROWS = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTarget:
    """Position of the new file of a rewritten part."""

    #: Task number, a part of the new file's name.
    task: int
    partition: str
    values: tuple[Bound, ...]
    #: Columns of the new file whose values may mislead Parquet's filters.
    unfilterable: Unfilterable = NOTHING
    #: The part that is rewritten.
    source: PartSource


def rewrite_target(layout: TableLayout, source: PartSource, values: tuple[Bound, ...], *, task: int) -> RewriteTarget:
    """Raises what `read_part` raises."""
    unfilterable = NOTHING
    if not source.is_segment:
        unfilterable = unfilterable_in_file(layout.schema, source, footer_of(layout.folder, source.file))
    return RewriteTarget(
        task=task, partition=source.name.partition, values=values, unfilterable=unfilterable, source=source
    )


def rewrite_part(
    layout: TableLayout,
    targets: Mapping[str, RewriteTarget],
    batches: Iterator[pa.RecordBatch],
    *,
    txn: int,
    attempt: int,
) -> tuple[str, WrittenPart] | None:
    """Write rows of one file to a new one; the last columns of each batch are the name of the file they are from, and
    the index that each row has there.

    Returns that name and what was written; None, and no file, where there are no rows. Raises BadColumnError where
    values do not fit the layout's columns, PartFileCorruptError where the rows are not in the order of its sort key.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return None
    source: str = first.column(first.num_columns - 2)[0].as_py()
    target = targets[source]
    name = file_name(txn=txn, task=target.task, attempt=attempt, n=0)
    keys = [column.name for column in map(layout.schema.find, layout.order_by) if column is not None]
    order = OrderCheck()
    with (
        PartWriter(
            layout,
            name=name,
            partition=target.partition,
            values=target.values,
            unfilterable=target.unfilterable,
            sources=(target.source,),
        ) as writer,
        RowMapWriter(layout, name) as row_map,
    ):
        for batch in chain([first], batches):
            if not batch.num_rows:
                continue
            names = batch.column(batch.num_columns - 2).unique()
            assert names.to_pylist() == [source], names
            rows = conform(batch.select(range(batch.num_columns - 2)), layout.schema)
            if not order.continues([rows.column(key) for key in keys], rows.num_rows):
                raise PartFileCorruptError("a part file is not sorted", file=f"{layout.folder}/{source}")
            writer.write(rows)
            indexes = batch.column(batch.num_columns - 1).to_numpy().astype(np.uint32)
            row_map.write(np.zeros(len(indexes), np.uint16), indexes)
        row_map.close()
        written = writer.close()
    assert written is not None
    write_filter(layout, written.file)
    return source, written


def ordered_source(layout: TableLayout, source: PartSource) -> Iterator[tuple[pa.Table, RowIndexes]]:
    """The present rows of a part in the columns of its file, with their indexes there, in the order of the sort key.

    Errors as those of `iter_source`.
    """
    if not source.is_segment:
        yield from iter_source(layout.folder, source, block_rows=_BLOCK_ROWS)
        return
    table, indexes = read_source(layout.folder, source)
    keys = [column.name for column in map(source.schema.find, layout.order_by) if column is not None]
    order = stable_order(ranks_of([table.column(key) for key in keys], table.num_rows))
    for start in range(0, len(order), _BLOCK_ROWS):
        chosen = order[start : start + _BLOCK_ROWS]
        yield table.take(pa.array(chosen)), indexes[chosen]
