"""The rows of a query to files of users, in the tasks of one Spark job.

Covers: writing Parquet, ORC, Avro, JSON and CSV. Does not cover: values of ORC and of Avro (orc_values.py,
avro_encode.py), where they may be written, which files count (statements/files/export.py).
Always holds: a file is never written over another; its name has the export and the attempt, and an attempt that finds
that the export is over removes what it wrote.

Tests: tests/integration/sql/test_export_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from tilth.base.errors import ConflictError
from tilth.base.units import MIB
from tilth.formats import find_format
from tilth.model.wire import Summary
from tilth.query.results.answer import columns_of
from tilth.query.results.spark import described, readable, without_voids
from tilth.query.snapshots.protocol import EXPORT_MARKER, ExportedFile, ExportTask, FileFormat
from tilth.query.worker.avro_encode import write_avro
from tilth.query.worker.orc_values import check_orc_values, orc_schema
from tilth.storage import Folder, make_folder, new_whole_file, read_file, remove_files, stretches
from tilth.storage.store.protocol import NewFile
from tilth.warehouse import run_tasks

#: Bytes of rows that are encoded at a time; a row group of Parquet.
PIECE_BYTES = 128 * MIB
EXTENSIONS = {
    FileFormat.PARQUET: "parquet",
    FileFormat.ORC: "orc",
    FileFormat.AVRO: "avro",
    FileFormat.JSON: "json",
    FileFormat.CSV: "csv",
}


def exported(frame: DataFrame, task: ExportTask) -> list[ExportedFile]:
    """Write the rows; return the files. Raises ConflictError (EXPORT_OVER) and the errors of the store."""
    schema = described(frame)
    write = _Writer(task.folder, task.id, task.format, schema, has_header=task.has_header)
    rows = without_voids(frame).coalesce(task.tasks_max)
    return [file for files in run_tasks(rows, write, list[ExportedFile]) for file in files]


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the rows of one task; it goes to the tasks."""

    folder: Folder
    export: str
    format: FileFormat
    schema: pa.Schema
    has_header: bool

    def __call__(self, rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> list[ExportedFile]:
        first = next(rows, None)
        # One file has the columns where there are no rows.
        if first is None and task:
            return []
        spark_task = TaskContext.get()
        assert spark_task is not None
        # Spark counts attempts anew when it runs a stage again; this number it gives once.
        name = f"part-{self.export}-{task}-{spark_task.taskAttemptId()}.{EXTENSIONS[self.format]}"
        self._check()
        make_folder(self.folder, fsync=False)
        counted = _Counted(chain(() if first is None else (first,), rows), self.schema)
        with new_whole_file(self.folder, name) as file:
            self._encode(counted, file)
            size = file.written.size
        try:
            self._check()
        except ConflictError:
            remove_files(self.folder, [name])
            raise
        return [ExportedFile(name=name, rows=counted.rows, size=size)]

    def _check(self) -> None:
        """Raises ConflictError (EXPORT_OVER) where the marker is not that of this export."""
        try:
            found = read_file(self.folder, EXPORT_MARKER).to_pybytes().decode()
        except FileNotFoundError:
            found = ""
        if found != self.export:
            raise ConflictError.coded(
                "EXPORT_OVER", "the export is over, or another one has cleaned up after it", folder=self.folder
            )

    def _encode(self, rows: Iterable[pa.Table], file: NewFile) -> None:
        plain = self.schema.remove_metadata()
        match self.format:
            case FileFormat.PARQUET:
                with pq.ParquetWriter(file, plain, compression="zstd") as parquet:
                    for table in rows:
                        parquet.write_table(table)
            case FileFormat.ORC:
                columns = orc_schema(plain)
                with orc.ORCWriter(file, compression="zstd") as writer:
                    for table in rows:
                        check_orc_values(table)
                        writer.write(table.cast(columns))
            case FileFormat.AVRO:
                write_avro(rows, plain, file)
            case _:
                names = "CSVWithNames" if self.has_header else "CSV"
                form = find_format("JSONEachRow" if self.format is FileFormat.JSON else names)
                assert form is not None
                batches = (batch for table in rows for batch in table.to_batches())
                summary = Summary(query_id="", elapsed_ms=0.0, rows=0)
                for piece in form.encode_batches(plain, batches, columns_of(self.schema), lambda: summary):
                    file.write(piece)


class _Counted:
    """Rows in tables of a bounded size, counted as they pass."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        self.rows = 0
        self._batches = batches
        self._schema = schema

    def __iter__(self) -> Iterator[pa.Table]:
        for held in stretches(self._batches, bytes_max=PIECE_BYTES):
            self.rows += held.num_rows
            table = pa.Table.from_arrays(held.columns, names=self._schema.names)
            yield readable(table.cast(self._schema.remove_metadata()))
        if not self.rows:
            # A file has its columns even so.
            yield self._schema.remove_metadata().empty_table()
