"""Shapes of files of users, found in Spark's tasks: their columns.

Covers: schemas of Parquet, ORC and Avro, the line of names of CSV. Does not cover: rows (copy_spark.py).
Always holds: files with equal shapes have the same columns, of the same types; no file is read whole.

Tests: tests/integration/sql/test_copy_on_spark.py.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyspark.sql import SparkSession

from tilth.query.errors import UnreadableFileError
from tilth.query.snapshots.protocol import FileFormat, LoadFilesTask
from tilth.query.worker.avro_spark import avro_shape
from tilth.storage import Folder, StoreRoot, open_file
from tilth.warehouse import run_tasks

#: Files that one task opens.
FILES_PER_TASK = 64
#: Maximum length of a line of names.
HEADER_BYTES_MAX = 1 << 20


def shapes_of(session: SparkSession, task: LoadFilesTask, *, tasks: int) -> list[str]:
    """Return the shape of each file. Raises UnreadableFileError and the errors of the store.

    `tasks`: how many of Spark's tasks share the files at most.
    """
    count = len(task.paths)
    shared = max(1, min(count // FILES_PER_TASK + 1, tasks))
    shapes = _Shapes(task.format, task.root, task.paths)
    answers = run_tasks(session.range(0, count, 1, shared), shapes, list[tuple[int, str]])
    found = dict(each for answer in answers for each in answer)
    return [found[index] for index in range(count)]


@dataclass(frozen=True, slots=True)
class _Shapes:
    """Finds the shapes of the files with these numbers. It goes to the tasks."""

    format: FileFormat
    root: StoreRoot
    paths: tuple[str, ...]

    def __call__(self, rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> list[tuple[int, str]]:
        return [(index, self._shape(self.paths[index])) for batch in rows for index in batch.column(0).to_pylist()]

    def _shape(self, path: str) -> str:
        folder = Folder(self.root)
        try:
            with open_file(folder, path) as file:
                if self.format is FileFormat.CSV:
                    return _first_line(file, path)
                if self.format is FileFormat.AVRO:
                    return avro_shape(file)
                schema = pq.read_schema(file) if self.format is FileFormat.PARQUET else orc.ORCFile(file).schema
                return str(schema.to_string(show_field_metadata=False, show_schema_metadata=False))
        except UnreadableFileError as error:
            raise error.with_facts(file=folder.uri(path), format=self.format) from error
        except (pa.ArrowException, OSError, UnicodeError, EOFError) as error:
            raise UnreadableFileError(file=folder.uri(path), format=self.format, because=error) from error


def _first_line(file: pa.NativeFile, path: str) -> str:
    if path.endswith(".gz"):
        begin = gzip.GzipFile(fileobj=file).read(HEADER_BYTES_MAX)
    elif path.endswith(".bz2"):
        begin = bz2.BZ2File(file).read(HEADER_BYTES_MAX)
    else:
        begin = file.read(HEADER_BYTES_MAX)
    return bytes(begin).split(b"\n", 1)[0].removeprefix(codecs.BOM_UTF8).decode().rstrip("\r")
