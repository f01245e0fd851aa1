"""Files that a task of a user's Spark writes for a table: sorted, partitioned and checked as the rows of every INSERT.

Covers: missing columns, row operations, how many rows are held. Does not cover: the files (storage/parts), how facts
come back to the driver (writes.py, stream_writes.py).
Always holds: nothing is committed here; the files of two attempts of a task have different names.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow as pa

from tilth.base.errors import InvalidInputError
from tilth.formats import BadValueError, op_array
from tilth.model.outside_write import OpenWrite
from tilth.model.part import WrittenPart
from tilth.model.table import OP_COLUMN, full_name
from tilth.model.types import Array, DataType, Decimal, Kind, Map, Simple, Struct, spark_name
from tilth.query.language.coerce import is_assignable, is_rounded
from tilth.storage import BUFFER_BYTES, StoreRoot, layout_of, shape_rows, stretches, type_from_arrow, write_many


class TaskWrite(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that all tasks of a write need."""

    opened: OpenWrite
    #: Names of the rows' columns, by position.
    names: tuple[str, ...]


class TaskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of one task for the commit."""

    txn: int
    task: int
    attempt: int
    parts: tuple[WrittenPart, ...]


def write_task(write: TaskWrite, batches: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> TaskFacts:
    """Write the rows of a task; raises what refuses rows of an INSERT, and InvalidInputError (TOO_MANY_TASKS)."""
    opened = write.opened
    if task >= opened.tasks:
        raise InvalidInputError.coded(
            "TOO_MANY_TASKS",
            "the write has more tasks than it has said",
            table=full_name(opened.table),
            task=task,
            tasks=opened.tasks,
            hint="use coalesce(..) on the rows, or the option tasks",
        )
    layout = layout_of(opened.table, _root(opened), quorum=opened.quorum)
    defaults = _defaults(opened)
    written: list[WrittenPart] = []
    for held in stretches(batches, bytes_max=BUFFER_BYTES):
        rows = _completed(opened, held.rename_columns(list(write.names)), defaults)
        written += write_many(layout, rows, txn=opened.txn, task=task, attempt=attempt, first_n=len(written))
    return TaskFacts(txn=opened.txn, task=task, attempt=attempt, parts=tuple(written))


def check_columns(write: TaskWrite, schema: pa.Schema) -> None:
    """Check without rows that columns of these types fit the table, as those of INSERT .. SELECT must.

    Raises BadValueError, BadColumnError and UnmappedTypeError naming the column.
    """
    opened = write.opened
    for name, given in zip(write.names, schema.types, strict=True):
        column = opened.table.schema.find(name)
        if column is None or pa.types.is_null(given):
            continue
        source = type_from_arrow(given)
        is_kept = is_assignable(source, column.type) or is_rounded(source, column.type)
        if not is_kept or _depends_on_who_casts(source, column.type):
            raise BadValueError(
                "a value might be lost on the way into the column",
                table=full_name(opened.table),
                column=column.name,
                type=column.declared_type,
                given=spark_name(source),
                hint="say with CAST what is wanted",
            )
    rows = schema.empty_table().rename_columns(list(write.names))
    shape_rows(layout_of(opened.table, _root(opened)), _completed(opened, rows, _defaults(opened)))


def _depends_on_who_casts(source: DataType, target: DataType) -> bool:
    """True if Spark and Arrow differ in what the cast gives: numbers as texts, days as times of a zone."""
    match source, target:
        case Simple() | Decimal(), Simple(kind=Kind.STRING):
            return source != target
        case Simple(kind=Kind.DATE), Simple(kind=Kind.TIMESTAMP):
            return True
        case Array(element=given), Array(element=wanted):
            return _depends_on_who_casts(given, wanted)
        case Map(), Map():
            return _depends_on_who_casts(source.key, target.key) or _depends_on_who_casts(source.value, target.value)
        case Struct(), Struct():
            pairs = zip(source.fields, target.fields, strict=True)
            return any(_depends_on_who_casts(one.type, other.type) for one, other in pairs)
    return False


def _root(opened: OpenWrite) -> StoreRoot:
    return msgspec.msgpack.decode(opened.root, type=StoreRoot)


def _defaults(opened: OpenWrite) -> pa.Table | None:
    if not opened.defaults:
        return None
    with pa.ipc.open_stream(opened.defaults) as reader:
        return reader.read_all().combine_chunks()


def _completed(opened: OpenWrite, rows: pa.Table, defaults: pa.Table | None) -> pa.Table:
    """Return the rows with the values of missing columns, and operations as numbers."""
    if opened.op_column:
        index = rows.column_names.index(opened.op_column)
        rows = rows.set_column(index, OP_COLUMN, op_array(rows.column(index)))
    if defaults is None:
        return rows
    filled = defaults.take(pa.array(np.zeros(rows.num_rows, np.int64)))
    for name, values in zip(filled.column_names, filled.columns, strict=True):
        rows = rows.append_column(name, values)
    return rows
