"""Files of users to files of a table, in the tasks of one Spark job.

Covers: the frame of a COPY INTO from Spark's own readers and from that of Avro, rows counted file by file, rows that
cannot be stored. Does not cover: which files (statements/files), the commit, values in lines (lines_spark.py) and of
Avro (avro_spark.py).
Always holds: each file is named, none is found by a pattern, and none is passed over; a row of the driver's is none of
a file; a value that does not fit is an error or a skipped row, never NULL; nothing is committed here.

Tests: tests/integration/sql/test_copy_on_spark.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions

from tilth.base import tracing
from tilth.base.errors import InvalidInputError, TilthError, UnavailableError
from tilth.formats import BadValueError
from tilth.model.answer import unpack
from tilth.model.loaded_file import SkippedRow
from tilth.model.part import WrittenPart
from tilth.model.table import OP_COLUMN, OP_UPSERT, UPSERT_WORDS, TableDef
from tilth.model.task import Cost
from tilth.model.types import DataType, Decimal, Simple, quoted, spark_name
from tilth.query.errors import BadFileRowError, UnknownColumnError, UnreadableFileError
from tilth.query.language.coerce import INTEGER_DIGITS, is_assignable
from tilth.query.language.spark_errors import from_spark
from tilth.query.snapshots.protocol import FileFormat, FileRows, LoadFilesResult, LoadFilesTask
from tilth.query.worker.avro_spark import (
    ERROR_MARK,
    PIECE_START,
    ROW,
    AvroColumn,
    AvroReader,
    avro_frame,
    columns_of_shape,
    cut_files,
)
from tilth.query.worker.file_shapes_spark import shapes_of
from tilth.query.worker.lines_spark import (
    BAD,
    FILE,
    LineReader,
    lines_frame,
    marked_lines,
    unknown_column,
    whole_reader,
)
from tilth.query.worker.target_spark import model_type, target_rows
from tilth.storage import BUFFER_BYTES, Folder, TableLayout, layout_of, shape_rows, stretches, write_many
from tilth.storage.read.hadoop_spark import let_spark_reach, own_uri, spark_uri, store_error
from tilth.warehouse import OverRows, TaskContext, TaskResult, has_large_row, of_small_rows, run_tasks, schema_of

#: Different schemas or headers that the files of one COPY may have.
SHAPES_MAX = 100
_WHOLE = frozenset(map(Simple, INTEGER_DIGITS))
#: Spark reads the files that it is given, or fails.
_OPTIONS = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
#: Characters of names that stand for others in paths that Spark is given. It has an option not to read them so, with
#: which each such name stands for all files of the list (checked on Spark 4.3).
_WILDCARDS = re.compile(r"[\\\[\]{}*?]")
_NO_FILE_SYSTEM = re.compile(r"No FileSystem for scheme|Class org\.apache\.hadoop\.fs\.\S+ not found")
_FAILED_FILE = re.compile(r"(?:reading file|Path does not exist:)\s+(\S+?)\.?(?=\s|$)")


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of a task: files by the hash of their path as Spark has it."""

    parts: tuple[WrittenPart, ...]
    rows: dict[int, int]
    skipped: tuple[tuple[int, SkippedRow], ...]


def run_copy(context: TaskContext, task: LoadFilesTask) -> TaskResult:
    """Read the files and write their rows. Raises BadFileRowError, UnreadableFileError, BadValueError."""
    copying = _Copying(context.session, task, tasks=context.fit().tasks)
    result = copying.guarded(lambda: copying.result(context.raise_if_cancelled))
    cost = Cost(output_bytes=sum(part.file.size for part in result.parts))
    return TaskResult(payload=msgspec.msgpack.encode(result), actual=cost)


class _Copying:
    """One COPY under way."""

    def __init__(self, session: SparkSession, task: LoadFilesTask, *, tasks: int) -> None:
        self._session = session
        self._task = task
        #: Tasks that run at once.
        self._tasks = tasks
        self._folder = Folder(task.root)
        self._above = spark_uri(self._folder)
        #: Path of each file by the hash of its name in Spark; of one that Spark does not read, by its number.
        self._paths: dict[int, str] = {}

    def guarded(self, act: Callable[[], LoadFilesResult]) -> LoadFilesResult:
        """Run it; raises Spark's errors as TilthErrors that name the file."""
        try:
            return act()
        except BadFileRowError as error:
            if "file" not in error.facts:
                raise
            raise self._named(error) from error
        except (PySparkException, Py4JError, RecursionError) as error:
            if not self._task.is_measured and has_large_row(error):
                return LoadFilesResult(parts=(), files=(), has_large_row=True)
            raise self._read_error(error) from error

    def result(self, check: Callable[[], None]) -> LoadFilesResult:
        if self._task.format is not FileFormat.AVRO:
            let_spark_reach(self._session, self._task.root)
        for name, value in self._task.insert.spark.items():
            self._session.conf.set(name, value)
        insert = self._task.insert
        layout = layout_of(insert.target, insert.root, quorum=insert.quorum)
        writer: OverRows[_Written] = _Writer(layout, insert.txn, self._task.skipped_max, is_check=self._task.is_check)
        with tracing.part("analyze"):
            groups = self._groups()
            reader = self._whole_reader(groups)
            if reader is None:
                frame = self._frame(groups)
            else:
                frame, writer = marked_lines(self._lines(self._task.paths)), _LinesWriter(reader, writer)
        rows = frame.coalesce(insert.tasks_max)
        try:
            with tracing.part("spark"):
                answers = run_tasks(rows if self._task.is_measured else of_small_rows(rows), writer, _Written)
        finally:
            check()
        return self._summed(answers)

    def _summed(self, answers: Sequence[_Written]) -> LoadFilesResult:
        rows: dict[str, int] = {}
        skipped: dict[str, list[SkippedRow]] = {}
        for answer in answers:
            for name, count in answer.rows.items():
                path = self._paths[name]
                rows[path] = rows.get(path, 0) + count
            for name, row in answer.skipped:
                skipped.setdefault(self._paths[name], []).append(row)
        count = sum(map(len, skipped.values()))
        if count > self._task.skipped_max:
            raise _too_many(self._task.skipped_max)
        return LoadFilesResult(
            parts=tuple(part for answer in answers for part in answer.parts),
            files=tuple(
                FileRows(rows=rows.get(path, 0), skipped=tuple(skipped.get(path, ()))) for path in self._task.paths
            ),
        )

    def _groups(self) -> dict[str, list[str]]:
        """Return the files by their columns: a schema or a line of names, or nothing where all have the table's."""
        task = self._task
        groups: dict[str, list[str]] = {}
        if task.format is FileFormat.JSON or (task.format is FileFormat.CSV and not task.has_header):
            groups[""] = list(task.paths)
        else:
            for path, shape in zip(task.paths, shapes_of(self._session, task, tasks=self._tasks), strict=True):
                groups.setdefault(shape, []).append(path)
        if len(groups) > SHAPES_MAX:
            hint = "load those with the same columns by themselves: PATTERN '..'"
            raise UnreadableFileError("the files have too many different columns", shapes=len(groups), hint=hint)
        return groups

    def _whole_reader(self, groups: Mapping[str, Sequence[str]]) -> LineReader | None:
        """Return the reader of lines whose rows the same tasks write; None: Spark computes columns in between."""
        if not self._task.format.is_lines or len(groups) > 1:
            return None
        [shape] = groups
        return whole_reader(self._task, shape)

    def _lines(self, paths: Sequence[str]) -> DataFrame:
        frame = self._session.read.options(**_OPTIONS).format("text").load(self._spelled(paths))
        self._note(frame, paths)
        return frame

    def _spelled(self, paths: Sequence[str]) -> list[str]:
        """Return the names of files with wildcards escaped."""
        return [_WILDCARDS.sub(r"\\\g<0>", f"{self._above}/{path}") for path in paths]

    def _frame(self, groups: Mapping[str, Sequence[str]]) -> DataFrame:
        """The rows of all files in the target's columns, with the file of each, and why it cannot be stored."""
        frames = [self._group(paths, shape) for shape, paths in groups.items()]
        _check_alike(frames)
        if any(OP_COLUMN in frame.columns for frame in frames):
            none = functions.lit(OP_UPSERT).cast("tinyint")
            frames = [each if OP_COLUMN in each.columns else each.withColumn(OP_COLUMN, none) for each in frames]
        return reduce(DataFrame.unionByName, frames)

    def _group(self, paths: Sequence[str], shape: str) -> DataFrame:
        """Rows of files that have the same columns."""
        if self._task.format.is_lines:
            frame, columns = lines_frame(self._lines(paths), self._task, shape)
        elif self._task.format is FileFormat.AVRO:
            frame, columns = self._avro(paths, columns_of_shape(shape))
        else:
            reader = self._session.read.options(**_OPTIONS).option("mergeSchema", "false")
            frame = reader.format(self._task.format.value.lower()).load(self._spelled(paths))
            self._note(frame, paths)
            columns = self._columns(frame.columns, paths[0])
            frame = self._of_spark(frame, columns)
        # A row may lack a column that another one brings.
        optional = _computed_names(self._task.insert.target, columns) if self._task.format.is_lines else ()
        insert = msgspec.structs.replace(self._task.insert, columns=tuple(name for _, name in columns))
        try:
            return target_rows(frame, insert, None, beside=(FILE, BAD), optional=optional)
        except BadValueError as error:
            hint = "load the files into a table with their types, and INSERT .. SELECT CAST(..) from there"
            raise error.with_facts(hint=hint, file=self._folder.uri(paths[0])) from error

    def _avro(self, paths: Sequence[str], given: Sequence[AvroColumn]) -> tuple[DataFrame, list[tuple[str, str]]]:
        """Return the rows of Avro files that have the same columns, and the columns that are loaded."""
        columns = self._columns([each.name for each in given], paths[0])
        loaded = {name for name, _ in columns}
        numbers = {path: number for number, path in enumerate(self._task.paths)}
        chosen = [numbers[path] for path in paths]
        reader = AvroReader(
            root=self._task.root,
            paths=tuple(paths),
            names=tuple(chosen),
            columns=tuple(each for each in given if each.name in loaded),
            tasks=cut_files([self._task.sizes[number] for number in chosen], tasks=self._tasks),
        )
        self._paths |= dict(zip(chosen, paths, strict=True))
        frame = avro_frame(self._session, reader)
        where = functions.concat_ws(",", functions.col(ROW), functions.col(PIECE_START))
        return self._judged(frame, columns, _Marks(functions.col(FILE), where, functions.col(BAD))), columns

    def _of_spark(self, frame: DataFrame, columns: Sequence[tuple[str, str]]) -> DataFrame:
        """Return the rows of files that Spark reads, with their marks."""
        metadata = frame.metadataColumn("_metadata")
        is_parquet = self._task.format is FileFormat.PARQUET
        row = metadata.getField("row_index") if is_parquet else functions.lit(-1)
        file = functions.xxhash64(metadata.getField("file_path"))
        return self._judged(frame, columns, _Marks(file, row.cast("string"), functions.lit(None).cast("binary")))

    def _judged(self, frame: DataFrame, columns: Sequence[tuple[str, str]], marks: _Marks) -> DataFrame:
        """Return the columns of files without lines, with the file of each row, and what of it cannot be stored."""
        given = {field.name: field.dataType for field in schema_of(frame).fields}
        selected, reasons, operations = {}, [], []
        for name, own in columns:
            column, value = self._task.insert.target.schema.find(own), functions.col(quoted(name))
            if column is None:
                operations.append((name, value))
                continue
            source = model_type(given[name], column.type)
            if not column.nullable and OP_COLUMN not in dict(columns).values():
                reasons.append(functions.when(value.isNull(), f"column `{own}`: NULL in a column that is NOT NULL"))
            if _may_misfit(source, column.type):
                cast = value.try_cast(spark_name(column.type))
                text = functions.concat(functions.lit(f"column `{own}`: out of range: "), value.cast("string"))
                reasons.append(functions.when(value.isNotNull() & cast.isNull(), text))
                value = cast.alias(name)
            selected[name] = value
        reason = functions.coalesce(*reasons) if reasons else functions.lit(None).cast("string")
        own_bad = functions.concat(marks.row, functions.lit(":"), reason).cast("binary")
        bad = functions.coalesce(marks.bad, own_bad)
        for name, value in operations:
            # A row that is not stored has no operation that may be wrong.
            selected[name] = functions.when(bad.isNull(), value.cast("string")).otherwise(UPSERT_WORDS[0]).alias(name)
        kept = [selected[name] for name, _ in columns]
        return frame.select(*kept, marks.file.alias(FILE), bad.alias(BAD))

    def _columns(self, names: Sequence[str], path: str) -> list[tuple[str, str]]:
        """Return the columns of a file that are loaded, each with that of the table."""
        wanted = {name.lower(): name for name in self._task.insert.columns}
        known = [(name, wanted[name.lower()]) for name in names if name.lower() in wanted]
        unknown = [name for name in names if name.lower() not in wanted]
        if unknown and not self._task.skip_unknown:
            raise unknown_column(unknown[0], wanted.values()).with_facts(file=self._folder.uri(path))
        if not known:
            raise UnknownColumnError("no column of the file is one of the table", file=self._folder.uri(path))
        return known

    def _note(self, frame: DataFrame, paths: Sequence[str]) -> None:
        """Remember the hashes of the files' names. Raises UnreadableFileError where Spark would pass over one."""
        found = frame.inputFiles()
        named = {unquote(urlsplit(uri).path): uri for uri in found}
        # A path of the location is the end of Spark's whole name.
        above = unquote(urlsplit(self._above).path) if "%" not in self._above else urlsplit(self._above).path
        missing = [path for path in paths if f"{above}/{path}" not in named]
        if missing or len(found) != len(paths):
            name = self._folder.uri(missing[0]) if missing else str(self._folder)
            raise UnreadableFileError("Spark does not see the file", file=name, files=len(paths), seen=len(found))
        spelled = [(spelling, path) for path in paths for spelling in _spellings(named[f"{above}/{path}"])]
        uris = functions.lit([spelling for spelling, _ in spelled])
        hashes = functions.transform(uris, lambda uri: functions.xxhash64(uri)).alias("hashes")
        [row] = self._session.range(0, 1, 1, 1).select(hashes).collect()
        self._paths |= dict(zip(row["hashes"], (path for _, path in spelled), strict=True))

    def _named(self, error: BadFileRowError) -> BadFileRowError:
        """Return the error of a task with the file's name instead of its hash."""
        return error.with_facts(file=self._folder.uri(self._paths[int(error.facts["file"])]))

    def _read_error(self, error: BaseException) -> TilthError:
        text = str(error)
        if _NO_FILE_SYSTEM.search(text):
            hint = "write the files as Avro, which is read without Spark's readers, or put them into S3 or HDFS"
            raise UnavailableError.coded(
                "SPARK_WITHOUT_STORE", "Spark cannot read files of this store", store=self._folder, hint=hint
            ) from error
        found = _FAILED_FILE.search(text)
        if found is None:
            return from_spark(error, "", lambda position: position, "", is_whole=False)
        causes = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("Caused by:")]
        because = causes[-1] if causes else ""
        name = own_uri(unquote(found[1]))
        if (away := store_error(name, text, because)) is not None:
            return away
        return UnreadableFileError(file=re.sub("^file:/+", "/", name), format=self._task.format, because=because)


@dataclass(frozen=True, slots=True)
class _Marks:
    """Expressions for each row."""

    file: Column
    #: Index of the row; in Avro files, a comma and the byte from which rows are counted follow.
    row: Column
    #: Mark of a row that the reader refuses.
    bad: Column


@dataclass(frozen=True, slots=True)
class _LinesWriter:
    """Reads lines and writes their rows in one task. It goes to the tasks."""

    reader: LineReader
    writer: OverRows[_Written]

    def __call__(self, rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> _Written:
        return self.writer(self.reader(rows), task=task, attempt=attempt)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the rows of one task, and counts them file by file. It goes to the tasks."""

    layout: TableLayout
    txn: int
    skipped_max: int
    is_check: bool

    def __call__(self, rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> _Written:
        counts: dict[int, int] = {}
        skipped: list[tuple[int, SkippedRow]] = []
        parts: list[WrittenPart] = []
        for held in stretches(rows, bytes_max=BUFFER_BYTES):
            good = self._without_bad(held, skipped)
            for each in good.column(FILE).value_counts().to_pylist():
                counts[each["values"]] = counts.get(each["values"], 0) + each["counts"]
            plain = good.drop_columns([FILE, BAD])
            try:
                if self.is_check:
                    shape_rows(self.layout, plain)
                else:
                    first_n = len(parts)
                    parts += write_many(self.layout, plain, txn=self.txn, task=task, attempt=attempt, first_n=first_n)
            except InvalidInputError as error:
                raise self._of_file(error, good) from error
        return _Written(parts=tuple(parts), rows=counts, skipped=tuple(skipped))

    def _without_bad(self, held: pa.Table, skipped: list[tuple[int, SkippedRow]]) -> pa.Table:
        """Return the rows that can be stored; the others are added to `skipped`. Raises BadFileRowError."""
        bad = held.column(BAD)
        if bad.null_count == len(bad):
            return held
        marked = held.select([FILE, BAD]).filter(pc.is_valid(bad)).to_pylist()
        for each in marked:
            if each[BAD].startswith(ERROR_MARK):
                unpack(each[BAD].removeprefix(ERROR_MARK), type(None), task=0)
        found = [(each[FILE], _skipped_row(each[BAD])) for each in marked]
        if not self.skipped_max:
            file, row = min(found, key=lambda each: (each[1].block_start, each[1].line))
            # Any: facts are of any type.
            facts: dict[str, Any] = {"block_start": row.block_start} if row.block_start else {}
            hint = "correct the file, or skip such rows: OPTIONS (ON_ERROR = 'skip')"
            if row.line:
                facts = {"line": row.line, **facts}
            raise BadFileRowError(file=file, **facts, why=row.reason, hint=hint)
        skipped += found
        if len(skipped) > self.skipped_max:
            raise _too_many(self.skipped_max)
        return held.filter(pc.is_null(bad))

    def _of_file(self, error: InvalidInputError, rows: pa.Table) -> InvalidInputError:
        """Return the error with the file of its rows, if they are those of one."""
        files = pc.unique(rows.column(FILE)).to_pylist()
        if len(files) != 1:
            return error
        return BadFileRowError(file=files[0], why=error.message, hint=error.hint)


def _computed_names(table: TableDef, columns: Sequence[tuple[str, str]]) -> list[str]:
    """Return those of the columns that have an expression, in small letters."""
    found = (table.schema.find(own) for _, own in columns)
    return [column.name.lower() for column in found if column is not None and column.expression]


def _spellings(uri: str) -> tuple[str, ...]:
    """Return the ways in which Spark writes the name of a file: of one on a local disk there are two."""
    if not uri.startswith("file:"):
        return (uri,)
    path = uri.removeprefix("file:").lstrip("/")
    return f"file:/{path}", f"file:///{path}"


def _skipped_row(mark: bytes) -> SkippedRow:
    """Return what is encoded in a column BAD: by a task in Python, or by Spark, as the row's index and the reason."""
    if mark[0] & 0x80:
        return msgspec.msgpack.decode(mark, type=SkippedRow)
    where, _, reason = mark.decode(errors="backslashreplace").partition(":")
    index, _, start = where.partition(",")
    return SkippedRow(line=int(index) + 1, block_start=int(start or 0), reason=reason)


def _may_misfit(source: DataType, target: DataType) -> bool:
    """True for a number that goes into a column of another type of numbers, which may not hold it."""
    is_number = all(isinstance(each, Decimal) or each in _WHOLE for each in (source, target))
    return source != target and is_number and is_assignable(source, target)


def _check_alike(frames: Sequence[DataFrame]) -> None:
    """Raises UnreadableFileError where a column has different types: Spark would make one of them."""
    types: dict[str, str] = {}
    for frame in frames:
        for field in schema_of(frame).fields:
            if types.setdefault(field.name, field.dataType.simpleString()) != field.dataType.simpleString():
                hint = "load those with the same types by themselves: PATTERN '..'"
                raise UnreadableFileError("the files have different types of a column", column=field.name, hint=hint)


def _too_many(skipped_max: int) -> BadFileRowError:
    hint = "correct the files, or raise OPTIONS (SKIPPED_MAX = ..); see system.loaded_files for what was skipped before"
    return BadFileRowError("more rows cannot be stored than may be skipped", skipped_max=skipped_max, hint=hint)
