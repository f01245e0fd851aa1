"""Files that change rows of parts: change segments, deletion vectors, new values of some or all rows of a part.

Covers: writing and reading the four kinds of model.DeltaKind. Does not cover: laying them over a part's rows
(changes.py), the layout of deletion vectors (deletes.py).
Always holds: a file is complete and on the disk before its WrittenDelta exists; new values have exactly the types of
the schema that they were written by; what a reader gets was verified, and what is damaged or missing names the file.

A change segment has the columns of CHANGE_SCHEMA_BASE, and for each column with new values its own two: `c{id}`, the
value, and `p{id}`, whether there is one: NULL is a value. It has one record batch for each file that it changes, rows
in their order, so that who reads one part's changes decodes no others'. `file` is a dictionary; the order of the
batches stands in the schema's metadata.

Tests: tests/property/test_delta_files.py, tests/integration/storage/test_segment_files.py.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, pairwise
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tilth.model.delta import Delta, DeltaKind, Target, WrittenDelta
from tilth.model.part import DataFile
from tilth.model.table import Column, Schema
from tilth.storage.deltas.deletes import BadVectorError, RowIndexes, decode_deletes, encode_deletes
from tilth.storage.errors import BadColumnError
from tilth.storage.parts.part_files import damaged_error
from tilth.storage.parts.segments import write_ipc
from tilth.storage.store.files.files import FileFinisher, corrupt_error, end_file, make_folder, new_file, read_verified
from tilth.storage.store.files.whole import open_whole, read_whole
from tilth.storage.store.paths import DELETE_EXTENSION, PART_EXTENSION, SEGMENT_EXTENSION, TableLayout, file_name
from tilth.storage.store.protocol import NewFile
from tilth.storage.store.root import Folder
from tilth.storage.values.arrow import FIELD_ID, arrow_type, one_chunk

#: Values of `op` in the rows of a change segment.
CHANGE_DELETE = 0
CHANGE_UPDATE = 1
CHANGE_SCHEMA_BASE = pa.schema(
    [
        pa.field("file", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("op", pa.int8(), nullable=False),
    ]
)
_FILES = b"tilth.files"
_FILES_SEPARATOR = b"\n"
_VALUE_NAME = re.compile(r"([cp])([1-9]\d*)")


def value_name(column: int) -> str:
    """Name of the column with new values of a column, by its id."""
    return f"c{column}"


def presence_name(column: int) -> str:
    """Name of the column that marks rows with a new value of a column."""
    return f"p{column}"


class DeltaWriter:
    """Writes the deltas of one attempt of a task; each kind of file is numbered for itself.

    As a context manager it ends several files at once where the store takes its time, and waits for them at the exit;
    else each file waits for itself.

    Tables have the columns of a change segment: `c{id}` and `p{id}`. Their types are those of the layout's schema, or
    of the `schema` that a method is called with. Raises BadColumnError where a value does not fit its column.
    """

    def __init__(self, layout: TableLayout, *, txn: int, task: int, attempt: int, first_n: int = 0) -> None:
        self._layout = layout
        self._name = partial(file_name, txn=txn, task=task, attempt=attempt)
        self._numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(first_n))
        self._endings: FileFinisher | None = None

    def __enter__(self) -> DeltaWriter:
        self._endings = FileFinisher(self._layout.folder, fsync=self._layout.fsync)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._endings is not None:
            self._endings.__exit__(kind, error, traceback)
        self._endings = None

    @property
    def folder(self) -> Folder:
        return self._layout.folder

    def changes(self, partition: str, changes: pa.Table, *, schema: Schema | None = None) -> WrittenDelta:
        """Write a change segment of at least one row; rows may come in any order, of one row the later one counts.

        `changes`: the columns of CHANGE_SCHEMA_BASE (`file` may be plain strings), `c{id}` and `p{id}`; without `p{id}`
        all updated rows have a value.
        """
        rows = one_chunk(changes.column("row")).cast(pa.int64())
        op = one_chunk(changes.column("op")).cast(pa.int8())
        values, columns = _values(schema or self._layout.schema, changes, pc.equal(op, CHANGE_UPDATE))
        names, codes = _files(changes.column("file"))
        order = np.lexsort((_indexes(rows), codes))
        codes = codes[order]
        files = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), names)
        fields = [*CHANGE_SCHEMA_BASE, *(pa.field(name, array.type) for name, array in values)]
        metadata = {_FILES: _FILES_SEPARATOR.join(name.encode() for name in names.to_pylist())}
        ordered = [array.take(pa.array(order)) for array in (rows, op, *(array for _, array in values))]
        table = pa.table([files, *ordered], schema=pa.schema(fields, metadata))
        whole = table.combine_chunks().to_batches()[0]
        starts = np.searchsorted(codes, np.arange(len(names) + 1)).tolist()
        spans = [(start, end - start) for start, end in pairwise(starts)]
        targets = tuple(
            _target(file, ordered[0].slice(*span), ordered[1].slice(*span))
            for file, span in zip(names.to_pylist(), spans, strict=True)
        )
        layout, name = self._layout, self._next_name(SEGMENT_EXTENSION)
        make_folder(layout.folder, fsync=layout.fsync)
        file = write_ipc(layout.folder, name, table, [whole.slice(*span) for span in spans], end=self._end)
        return WrittenDelta(
            kind=DeltaKind.CHANGES, partition=partition, file=file, targets=targets, columns=tuple(columns)
        )

    def deletes(self, partition: str, file: str, rows: RowIndexes, *, change_ts: int = 0) -> WrittenDelta:
        """Write the deleted rows of the data file as a deletion vector."""
        layout = self._layout
        make_folder(layout.folder, fsync=layout.fsync)
        sink = new_file(layout.folder, self._next_name(DELETE_EXTENSION))
        try:
            sink.write(encode_deletes(file, rows))
        except BaseException:
            sink.give_up()
            raise
        return WrittenDelta(
            kind=DeltaKind.DELETE,
            partition=partition,
            file=self._end(sink),
            targets=(Target(file=file, deleted=len(np.unique(rows))),),
            change_ts=change_ts,
        )

    def updates(
        self, partition: str, file: str, table: pa.Table, *, change_ts: int = 0, schema: Schema | None = None
    ) -> WrittenDelta:
        """Write new values for some rows of the data file: `row`, `c{id}` and `p{id}` as in a change segment.

        Of one row the later one counts.
        """
        rows = one_chunk(table.column("row")).cast(pa.int64())
        is_updated = pa.array(np.ones(table.num_rows, bool))
        values, columns = _values(schema or self._layout.schema, table, is_updated)
        order = pa.array(np.argsort(_indexes(rows), kind="stable"))
        arrays = [rows.take(order), *(array.take(order) for _, array in values)]
        fields = [pa.field("row", pa.int64(), nullable=False), *(_field(name, array) for name, array in values)]
        return WrittenDelta(
            kind=DeltaKind.UPDATE,
            partition=partition,
            file=self._write_parquet([pa.table(arrays, schema=pa.schema(fields))]),
            targets=(Target(file=file, updated=len(np.unique(_indexes(rows)))),),
            columns=tuple(columns),
            change_ts=change_ts,
        )

    def columns(
        self,
        partition: str,
        file: str,
        blocks: Iterable[pa.Table],
        *,
        change_ts: int = 0,
        schema: Schema | None = None,
    ) -> WrittenDelta:
        """Write the values of some columns for all rows of the data file: `c{id}`, in the order of the file's rows.

        `blocks`: tables of one schema, with a row at least, of which a row group is held at a time.
        """
        columns: list[int] = []
        rows = 0

        def fitting() -> Iterator[pa.Table]:
            nonlocal columns, rows
            for block in blocks:
                is_updated = pa.array(np.ones(block.num_rows, bool))
                values, columns = _values(schema or self._layout.schema, block, is_updated, has_presence=False)
                fields = [_field(name, array) for name, array in values]
                rows += block.num_rows
                yield pa.table([array for _, array in values], schema=pa.schema(fields))

        written = self._write_parquet(fitting())
        return WrittenDelta(
            kind=DeltaKind.COLUMN,
            partition=partition,
            file=written,
            targets=(Target(file=file, updated=rows),),
            columns=tuple(columns),
            change_ts=change_ts,
        )

    def _write_parquet(self, blocks: Iterable[pa.Table]) -> DataFile:
        layout = self._layout
        row_groups = _row_groups(blocks, layout.row_group_rows)
        first = next(row_groups)
        make_folder(layout.folder, fsync=layout.fsync)
        file = new_file(layout.folder, self._next_name(PART_EXTENSION))
        try:
            with pq.ParquetWriter(
                pa.PythonFile(file, mode="w"),
                first.schema,
                version="2.6",
                compression="zstd",
                compression_level=layout.zstd_level,
                write_page_checksum=True,
                store_schema=False,
            ) as writer:
                for row_group in chain([first], row_groups):
                    writer.write_table(row_group, row_group_size=layout.row_group_rows)
        except BaseException:
            file.give_up()
            raise
        return self._end(file)

    def _end(self, file: NewFile) -> DataFile:
        if self._endings is not None:
            return self._endings.end(file)
        return end_file(self._layout.folder, file, fsync=self._layout.fsync)

    def _next_name(self, extension: str) -> str:
        return self._name(n=next(self._numbers[extension]), extension=extension)


def read_changes(folder: Folder, file: DataFile) -> pa.Table:
    """All rows of a change segment, by file and row; raises DeltaFileNotFoundError and DeltaFileCorruptError."""
    buffer = read_verified(folder, file, is_delta=True)
    try:
        table = pa.ipc.open_file(buffer, options=pa.ipc.IpcReadOptions(use_threads=False)).read_all()
    except (pa.ArrowException, OSError) as error:
        raise damaged_error(folder, file, error, is_delta=True) from error
    return table.replace_schema_metadata()


@dataclass(frozen=True, slots=True)
class FoundChanges:
    """Changes of rows in a file of which no record is known."""

    #: Deleted rows by the name of the data file.
    deletes: Mapping[str, RowIndexes]
    #: `True` if the file has new values too.
    has_updates: bool


def read_unrecorded(folder: Folder, name: str) -> FoundChanges | None:
    """Return the changes in a file whose record is lost; None where it is no file with changes of rows.

    Raises FileNotFoundError, and a CorruptError where no copy of it is whole.
    """
    try:
        if name.endswith(f".{DELETE_EXTENSION}"):
            file, rows = read_whole(folder, name, lambda data: decode_deletes(memoryview(data)))
            return FoundChanges({file: rows}, has_updates=False)
        if name.endswith(f".{PART_EXTENSION}"):
            names = pq.ParquetFile(open_whole(folder, name)).schema_arrow.names
            is_delta = all(each == "row" or _VALUE_NAME.fullmatch(each) for each in names)
            return FoundChanges({}, has_updates=True) if is_delta else None
        reader = pa.ipc.open_file(open_whole(folder, name))
        if _FILES not in (reader.schema.metadata or {}):
            return None
        files = reader.schema.metadata[_FILES].decode().split(_FILES_SEPARATOR.decode())
        tables = [pa.Table.from_batches([reader.get_batch(number)]) for number in range(reader.num_record_batches)]
        deletes = {file: deletes_of(table) for file, table in zip(files, tables, strict=True)}
        has_updates = any(len(deletes[file]) < table.num_rows for file, table in zip(files, tables, strict=True))
        return FoundChanges({file: rows for file, rows in deletes.items() if len(rows)}, has_updates=has_updates)
    except FileNotFoundError:
        raise
    # BadVectorError is a ValueError.
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise corrupt_error(folder, name, is_delta=True, because=(str(error).splitlines() or [""])[0]) from error


def read_deletes(folder: Folder, delta: Delta, file: str) -> RowIndexes:
    """Read the rows of the data file that a DELETE or CHANGES delta deletes, in their order, each once; errors as
    above.
    """
    if delta.kind is DeltaKind.DELETE:
        return _vector(folder, delta, file)
    if delta.kind is not DeltaKind.CHANGES:
        return np.zeros(0, np.int64)
    return deletes_of(read_target(folder, delta, file, ()))


def deletes_of(changes: pa.Table) -> RowIndexes:
    """Return the rows that a change segment's rows of one file delete, each once."""
    return _distinct(_indexes(changes.column("row"))[_indexes(changes.column("op")) == CHANGE_DELETE])


def read_target(folder: Folder, delta: Delta | WrittenDelta, file: str, columns: Collection[int]) -> pa.Table:
    """Read the changes of one data file from a change segment: `row`, `op`, new values of these columns; errors as
    above.
    """
    buffer = read_verified(folder, delta.file, is_delta=True)
    try:
        schema = pa.ipc.open_file(buffer).schema
        wanted = ["row", "op", *_value_names(columns)]
        options = pa.ipc.IpcReadOptions(
            included_fields=[schema.get_field_index(name) for name in wanted], use_threads=False
        )
        reader = pa.ipc.open_file(buffer, options=options)
        number = (schema.metadata or {})[_FILES].split(_FILES_SEPARATOR).index(file.encode())
        return pa.Table.from_batches([reader.get_batch(number)]).select(wanted).replace_schema_metadata()
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise damaged_error(folder, delta.file, error, is_delta=True) from error


def read_updates(folder: Folder, delta: Delta, columns: Collection[int]) -> pa.Table:
    """The rows of an UPDATE delta: `row`, new values of these columns; errors as above."""
    with open_values(folder, delta) as parquet:
        try:
            return parquet.read(columns=["row", *_value_names(columns)], use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise damaged_error(folder, delta.file, error, is_delta=True) from error


def open_values(folder: Folder, delta: Delta) -> pq.ParquetFile:
    """The file of an UPDATE or COLUMN delta, verified; errors as above."""
    buffer = read_verified(folder, delta.file, is_delta=True)
    try:
        return pq.ParquetFile(pa.BufferReader(buffer), pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise damaged_error(folder, delta.file, error, is_delta=True) from error


def _value_names(columns: Iterable[int]) -> list[str]:
    return [name(column) for column in columns for name in (value_name, presence_name)]


def _vector(folder: Folder, delta: Delta, file: str) -> RowIndexes:
    buffer = read_verified(folder, delta.file, is_delta=True)
    try:
        target, rows = decode_deletes(memoryview(buffer))
    except BadVectorError as error:
        raise corrupt_error(folder, delta.file.name, is_delta=True, because=error) from error
    if target != file:
        raise corrupt_error(folder, delta.file.name, is_delta=True, target=target, expected_target=file)
    return rows


def _indexes(values: pa.Array | pa.ChunkedArray) -> RowIndexes:
    found: RowIndexes = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    return found


def _target(file: str, rows: pa.Array, op: pa.Array) -> Target:
    indexes, is_delete = _indexes(rows), _indexes(op) == CHANGE_DELETE
    return Target(file=file, deleted=len(_distinct(indexes[is_delete])), updated=len(_distinct(indexes[~is_delete])))


def _distinct(ordered: RowIndexes) -> RowIndexes:
    """Remove repetitions of rows that come in their order."""
    if not len(ordered):
        return ordered
    is_first = np.append(True, ordered[1:] != ordered[:-1])
    return ordered if is_first.all() else ordered[is_first]


def _files(column: pa.ChunkedArray) -> tuple[pa.Array, RowIndexes]:
    """The names that occur, each once, and for each row which of them it has."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    encoded = one_chunk(column.unify_dictionaries())
    used, codes = np.unique(_indexes(encoded.indices), return_inverse=True)
    return encoded.dictionary.take(pa.array(used)).cast(pa.string()), codes


def _values(
    schema: Schema, table: pa.Table, updated: pa.Array, *, has_presence: bool = True
) -> tuple[list[tuple[str, pa.Array]], list[int]]:
    """The new values by their names, two arrays for each column or one, and the columns' ids, in their order."""
    known = {column.id: column for column in schema.columns}
    given: set[int] = set()
    for name in table.column_names:
        found = _VALUE_NAME.fullmatch(name)
        if found is not None:
            given.add(int(found[2]))
        elif name not in CHANGE_SCHEMA_BASE.names:
            raise BadColumnError("no column of changes", column=name)
    arrays: list[tuple[str, pa.Array]] = []
    for number in sorted(given):
        if number not in known:
            raise BadColumnError("the table has no such column", column=number, known=", ".join(schema.names))
        present = updated
        if presence_name(number) in table.column_names:
            given_presence = one_chunk(table.column(presence_name(number))).cast(pa.bool_())
            present = pc.and_(updated, pc.fill_null(given_presence, False))
        arrays.append((value_name(number), _fitting(known[number], table.column(value_name(number)), present)))
        if has_presence:
            arrays.append((presence_name(number), present))
    return arrays, sorted(given)


def _fitting(column: Column, values: pa.ChunkedArray, present: pa.Array) -> pa.Array:
    array = one_chunk(values)
    target = arrow_type(column.type)
    try:
        array = array if array.type == target else pc.cast(array, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        because = (str(error).splitlines() or [""])[0]
        raise BadColumnError(
            column=column.name, type=column.declared_type, given=str(array.type), because=because
        ) from error
    if not column.nullable and array.null_count:
        nulls = pc.sum(pc.and_(present, pc.is_null(array))).as_py()
        if nulls:
            raise BadColumnError("nulls in a column that is NOT NULL", column=column.name, nulls=nulls)
    return array


def _row_groups(blocks: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield the blocks in tables of whole row groups of so many rows; the last one may be smaller."""
    pending: list[pa.Table] = []
    for block in blocks:
        pending.append(block)
        if sum(each.num_rows for each in pending) >= rows:
            table = pa.concat_tables(pending)
            left = table.num_rows % rows
            pending = [table.slice(table.num_rows - left)] if left else []
            yield table.slice(0, table.num_rows - left)
    if pending:
        yield pa.concat_tables(pending)


def _field(name: str, array: pa.Array) -> pa.Field:
    found = _VALUE_NAME.fullmatch(name)
    metadata = {FIELD_ID: found[2].encode()} if found is not None and found[1] == "c" else None
    return pa.field(name, array.type, metadata=metadata)
