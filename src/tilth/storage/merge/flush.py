"""Flushing: the present rows of row segments, sorted into one part.

Covers: segments of one partition with all that changed them in, one Parquet file out. Does not cover: which segments
(maintenance), writing segments (parts/segments.py), merging sorted parts (merge.py).
Always holds: the result is the stable sort of the segments' present rows laid end to end in the given order. All of
them are in memory, so whoever chooses segments bounds their bytes.

Tests: tests/integration/storage/test_flush_files.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from tilth.model.delta import PartSource
from tilth.model.part import WrittenPart
from tilth.storage.deltas.sources import read_source
from tilth.storage.parts.key_filter import write_filter
from tilth.storage.parts.part_files import NewPart, PartWriter, exact
from tilth.storage.parts.rowmap import SOURCES_MAX, RowMapWriter, Rows
from tilth.storage.store.paths import file_name
from tilth.storage.values.arrow import shape
from tilth.storage.values.order import ranks_of, stable_order
from tilth.storage.values.unfilterable import unfilterable_in

#: Rows that are put in order at a time, so that what is written is in memory once only.
_BLOCK_ROWS = 64 * 1024


class FlushResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a flush."""

    #: None if no row was left.
    written: WrittenPart | None
    #: Rows in the segments.
    rows_in: int
    #: Bytes of the segments and of their deltas.
    bytes_in: int
    #: Left out because they were deleted.
    rows_deleted: int


def flush_segments(new: NewPart, sources: Sequence[PartSource], *, task: int, attempt: int) -> FlushResult:
    """Sort the rows of segments of one partition into one new part, with its row map and its key filter.

    Deleted rows are left out, new values are written. Raises PartFileNotFoundError and PartFileCorruptError naming the
    file, those of deltas likewise.
    """
    layout = new.layout
    assert len(sources) <= SOURCES_MAX, len(sources)
    name = file_name(txn=new.txn, task=task, attempt=attempt, n=0)
    tables: list[pa.Table] = []
    stretches: list[Rows] = []
    for source in sources:
        live, indexes = read_source(layout.folder, source)
        tables.append(shape(live, layout.schema))
        stretches.append(indexes.astype(np.uint32))
    numbers = np.repeat(np.arange(len(sources), dtype=np.uint16), [len(each) for each in stretches])
    rows = np.concatenate(stretches)
    table = pa.concat_tables(tables).combine_chunks()
    order = stable_order(ranks_of([table.column(exact(layout, key)) for key in layout.order_by], table.num_rows))
    with (
        PartWriter(
            layout,
            name=name,
            partition=new.partition,
            values=new.values,
            unfilterable=unfilterable_in(table),
            sources=sources,
        ) as writer,
        RowMapWriter(layout, name) as row_map,
    ):
        for start in range(0, len(order), _BLOCK_ROWS):
            chosen = order[start : start + _BLOCK_ROWS]
            writer.write(table.take(pa.array(chosen)))
            row_map.write(numbers[chosen], rows[chosen])
        row_map.close()
        written = writer.close()
    if written is not None:
        write_filter(layout, written.file)
    rows_in = sum(source.rows for source in sources)
    return FlushResult(
        written=written,
        rows_in=rows_in,
        bytes_in=sum(source.bytes for source in sources),
        rows_deleted=rows_in - len(order),
    )
