"""Writing a part anew from its own rows, changed, as a mutation does.

Covers: rows of one file in, one new file out. Does not cover: what is changed (maintenance/spark.py).
Always holds: the new file has the rows in the order in which they came, and that is the order of the sort key; memory
is bounded by one batch and one row group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from tilth.model.part import Bound, WrittenPart
from tilth.storage.arrow import conform
from tilth.storage.errors import PartFileCorruptError
from tilth.storage.order import OrderCheck
from tilth.storage.parts import PartWriter
from tilth.storage.paths import TableLayout, file_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a part that is rewritten belongs."""

    #: By which its new file is named.
    task: int
    partition: str
    values: tuple[Bound, ...]


def rewrite_part(
    layout: TableLayout, places: Mapping[str, Place], batches: Iterator[pa.RecordBatch], *, txn: int, attempt: int
) -> tuple[str, WrittenPart] | None:
    """Writes rows of one file to a new one; the last column of each batch is the name of the file they are from.

    Returns that name and what was written; None, and no file, where there are no rows. Raises BadColumnError where
    values do not fit the layout's columns, PartFileCorruptError where the rows are not in the order of its sort key.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return None
    source: str = first.column(first.num_columns - 1)[0].as_py()
    place = places[source]
    name = file_name(txn=txn, task=place.task, attempt=attempt, n=0)
    keys = [column.name for column in map(layout.schema.find, layout.order_by) if column is not None]
    order = OrderCheck()
    with PartWriter(layout, name=name, partition=place.partition, values=place.values) as writer:
        for batch in chain([first], batches):
            names = batch.column(batch.num_columns - 1).unique()
            assert names.to_pylist() in ([source], []), names
            rows = conform(batch.select(range(batch.num_columns - 1)), layout.schema)
            if not order.continues([rows.column(key) for key in keys], rows.num_rows):
                raise PartFileCorruptError("a part file is not sorted", file=f"{layout.folder}/{source}")
            writer.write(rows)
        written = writer.close()
    assert written is not None
    return source, written
