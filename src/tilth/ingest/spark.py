"""The Spark jobs of a round: fetch, decode, run the views, write sorted parts.

Covers: the fused pass (one Arrow pass for all views that pick columns, and for dead letters) and the pass of a view
that Spark SQL computes. Does not cover: choosing ranges (task.py), commits (manager.py). Always holds: which rows a
task writes follows from its ranges alone; the files of an attempt carry its number; nothing here knows the catalog.
See also: DESIGN.md 7, MEASURED.md "One round".
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from tilth.base.clock import SystemClock
from tilth.base.errors import RetryError, TilthError
from tilth.base.units import MIB
from tilth.ingest.dead import dead_letter_rows
from tilth.ingest.decode import Broken, Decoded, Decoder
from tilth.ingest.errors import RoundStorageError
from tilth.ingest.kafka import fetch
from tilth.ingest.ops import ops_of
from tilth.ingest.rounds import RoundFacts, RoundJob, WrittenTo, joined_ranges
from tilth.ingest.settings import ErrorMode
from tilth.ingest.views import FusedPlan, Picked, SqlPlan, spark_ddl
from tilth.model.offset import LedgerRange, OffsetRange
from tilth.model.row_op import OP_COLUMN
from tilth.model.types import quoted
from tilth.storage import TableLayout, arrow_schema, write_rows

#: A task sorts and writes what it has when it holds this much; more: larger parts, more memory.
HELD_BYTES_MAX = 128 * MIB
#: Broken messages that a task holds before it writes them.
HELD_BROKEN_MAX = 20_000

_FACTS = "facts binary"
#: What tasks tell, by group of ranges, so that a group that is read twice counts once; True: it is an error.
_Told = dict[int, tuple[bool, bytes]]


def run_round(session: SparkSession, job: RoundJob) -> RoundFacts:
    """Runs all views over the job's ranges; returns what was read and written.

    Raises the TilthError of a task as it was. Files of a round that failed are left for the transaction's cleaner.
    """
    runs = []
    if job.fused:
        runs.append(_run_fused(session, job))
    for number, plan in enumerate(job.computed, start=1):
        runs.append(_run_computed(session, job, plan, first_task=number * len(job.groups)))
    if not job.fused and job.dead_letters is not None and any(run.dead for run in runs):
        runs.append(_run_fused(session, job))
    first = runs[0]
    if any(run.ranges != first.ranges for run in runs):
        raise RetryError("the topic changed between the passes of a round", table=job.config.table)
    return RoundFacts(
        ranges=joined_ranges(first.ranges),
        parts=tuple(written for run in runs for written in run.parts),
        bytes=first.bytes,
        broken=first.broken,
    )


def _run_fused(session: SparkSession, job: RoundJob) -> RoundFacts:
    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for group in _groups(batches):
            yield _answer(_guarded(partial(_fused_task, job, group, _attempt())))

    tasks = len(job.groups)
    rows = session.range(0, tasks, 1, tasks).mapInArrow(call, _FACTS).collect()
    return _total(_read(bytes(row["facts"])) for row in rows)


def _run_computed(session: SparkSession, job: RoundJob, plan: SqlPlan, *, first_task: int) -> RoundFacts:
    told: Accumulator[_Told] = session.sparkContext.accumulator({}, _ToldParam())
    columns = plan.needed

    def source(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for group in _groups(batches):
            yield from _decoding_task(job, columns, group, told)

    def sink(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = first_task + _task_number()
        yield _answer(_guarded(lambda: _writing_task(job, plan, batches, task, _attempt())))

    tasks = len(job.groups)
    decoded = session.range(0, tasks, 1, tasks).mapInArrow(source, spark_ddl(job.schema, columns))
    decoded.createOrReplaceTempView(quoted(job.name))
    computed = session.sql(plan.text)
    named = computed.toDF(*[f"o{i}" for i in range(len(computed.columns))]).selectExpr(*plan.projection)
    # As many writers at most as task numbers were reserved, whatever the view shuffles.
    rows = named.coalesce(tasks).mapInArrow(sink, _FACTS).collect()
    read = _total(_read(answer) for _, (_, answer) in sorted(told.value.items()))
    written = _total(_read(bytes(row["facts"])) for row in rows)
    return RoundFacts(ranges=read.ranges, parts=written.parts, bytes=read.bytes, broken=read.broken)


# --- inside tasks ----------------------------------------------------------------------------------------------------


def _fused_task(job: RoundJob, task: int, attempt: int) -> RoundFacts:
    """Everything for one group of ranges."""
    columns = tuple(dict.fromkeys(name for plan in job.fused for name in plan.needed))
    reading = _Reading(job, columns, job.groups[task])
    writer = _PartWriter(job, task, attempt)
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for decoded, size in reading:
        held.append(decoded.rows)
        held_bytes += size
        if held_bytes >= HELD_BYTES_MAX:
            _write_fused(job, writer, held)
            held, held_bytes = [], 0
        if len(reading.broken) >= HELD_BROKEN_MAX:
            _write_broken(job, writer, reading)
    _write_fused(job, writer, held)
    _write_broken(job, writer, reading)
    return msgspec.structs.replace(reading.facts(), parts=tuple(writer.written))


def _decoding_task(
    job: RoundJob, columns: Sequence[str], group: int, told: Accumulator[_Told]
) -> Iterator[pa.RecordBatch]:
    """Streams the decoded rows to Spark and tells the facts beside."""
    reading = _Reading(job, columns, job.groups[group])
    try:
        for decoded, _ in reading:
            if decoded.rows.num_rows:
                yield decoded.rows
            reading.broken.clear()
        told.add({group: (False, _pack(reading.facts()))})
    except TilthError as error:
        told.add({group: (True, _pack(error))})


def _writing_task(
    job: RoundJob, plan: SqlPlan, batches: Iterable[pa.RecordBatch], task: int, attempt: int
) -> RoundFacts:
    """Sorts and writes what the view computed."""
    writer = _PartWriter(job, task, attempt)
    layout = job.layouts[plan.target]
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= HELD_BYTES_MAX:
            writer.write(plan.target, layout, _said(pa.Table.from_batches(held), layout), plan.view)
            held, held_bytes = [], 0
    if held:
        writer.write(plan.target, layout, _said(pa.Table.from_batches(held), layout), plan.view)
    return RoundFacts(parts=tuple(writer.written))


class _Reading:
    """One task's way through its ranges; iterate once, then ask for the facts."""

    def __init__(self, job: RoundJob, columns: Sequence[str], ranges: Sequence[OffsetRange]) -> None:
        self._job = job
        self._ranges = ranges
        self._decoder = Decoder(job.schema, job.config, columns=columns, defaults=job.defaults, checks=job.checks)
        self._counts = {(each.topic, each.partition): [0, 0, 0] for each in ranges}
        self._bytes = 0
        self._first_broken = ""
        #: Broken messages that were not written yet.
        self.broken: list[Broken] = []

    def __iter__(self) -> Iterator[tuple[Decoded, int]]:
        """Decoded rows and the bytes of their messages."""
        # What is decoded is many small objects and no cycles: looking for cycles is a tenth of the time.
        gc.disable()
        try:
            for fetched in fetch(SystemClock(), self._job.config, self._ranges):
                decoded = self._decoder.decode(fetched.topic, fetched.partition, fetched.messages)
                size = sum(map(len, fetched.messages))
                self._count(fetched.topic, fetched.partition, decoded)
                self._bytes += size
                yield decoded, size
        finally:
            gc.enable()

    def facts(self) -> RoundFacts:
        return RoundFacts(
            ranges=tuple(
                LedgerRange(
                    topic=each.topic,
                    partition=each.partition,
                    start=each.start,
                    end=each.end,
                    messages=self._counts[each.topic, each.partition][0],
                    rows=self._counts[each.topic, each.partition][1],
                    dead=self._counts[each.topic, each.partition][2],
                )
                for each in self._ranges
            ),
            bytes=self._bytes,
            broken=self._first_broken,
        )

    def _count(self, topic: str, partition: int, decoded: Decoded) -> None:
        counts = self._counts[topic, partition]
        counts[0] += decoded.messages
        counts[1] += decoded.rows.num_rows
        if decoded.broken and self._job.config.error_mode is not ErrorMode.STREAM:
            counts[2] += len(decoded.broken)
            self.broken.extend(decoded.broken)
        if decoded.broken and not self._first_broken:
            first = decoded.broken[0]
            self._first_broken = f"{first.topic}/{first.partition}@{first.offset}: {first.reason}"


class _PartWriter:
    """Writes parts under one task's names; numbers run on within a table."""

    def __init__(self, job: RoundJob, task: int, attempt: int) -> None:
        self._txn = job.txn
        self._task = task
        self._attempt = attempt
        self._next: dict[str, int] = {}
        self.written: list[WrittenTo] = []

    def write(self, table: str, layout: TableLayout, rows: pa.Table, view: str = "") -> None:
        if rows.num_rows == 0:
            return
        first = self._next.get(table, 0)
        try:
            parts = write_rows(layout, rows, txn=self._txn, task=self._task, attempt=self._attempt, first_n=first)
        except TilthError as error:
            # Which column, storage says; which view, only we know.
            if view:
                error.facts["view"] = view
                error.message = f"{error.message} view={view}"
            raise
        self._next[table] = first + len(parts)
        self.written.extend(WrittenTo(table=table, part=part) for part in parts)


def _write_fused(job: RoundJob, writer: _PartWriter, held: Sequence[pa.RecordBatch]) -> None:
    if not held or not job.fused:
        return
    table = pa.Table.from_batches(held)
    for plan in job.fused:
        layout = job.layouts[plan.target]
        writer.write(plan.target, layout, _project(table, plan, layout), plan.view)


def _project(table: pa.Table, plan: FusedPlan, layout: TableLayout) -> pa.Table:
    types = arrow_schema(layout.schema, field_ids=False)
    arrays = [_pick(table, each, types.field(each.target).type) for each in plan.columns]
    names = [each.target for each in plan.columns]
    if plan.op is None:
        return pa.table(arrays, names=names)
    return pa.table([*arrays, ops_of(table[plan.op])], names=[*names, OP_COLUMN])


def _pick(table: pa.Table, picked: Picked, data_type: pa.DataType) -> pa.ChunkedArray:
    if picked.source is None:
        return pa.chunked_array([pa.repeat(pa.scalar(picked.constant, data_type), table.num_rows)])
    return table[picked.source]


def _said(rows: pa.Table, layout: TableLayout) -> pa.Table:
    """What Spark computed; its last column may say what rows do."""
    if rows.num_columns == len(layout.schema.columns):
        return rows
    last = rows.num_columns - 1
    return rows.set_column(last, OP_COLUMN, ops_of(rows.column(last)))


def _write_broken(job: RoundJob, writer: _PartWriter, reading: _Reading) -> None:
    if reading.broken and job.dead_letters is not None:
        writer.write(job.dead_letters.table, job.dead_letters.layout, dead_letter_rows(reading.broken))
    reading.broken.clear()


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    """The groups of ranges that this task is to read, by the numbers in its rows.

    Not by the task's own number: Spark may put several groups into one task, and the branches of a UNION number theirs
    anew.
    """
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _task_number() -> int:
    place = TaskContext.get()
    assert place is not None
    return place.partitionId()


def _attempt() -> int:
    place = TaskContext.get()
    assert place is not None
    return place.attemptNumber()


# --- facts on their way ----------------------------------------------------------------------------------------------


class _ToldParam(AccumulatorParam[_Told]):
    """Collects what tasks tell."""

    def zero(self, value: _Told) -> _Told:
        return {}

    def addInPlace(self, value1: _Told, value2: _Told) -> _Told:  # noqa: N802  # Spark's name
        for group, (is_error, answer) in value2.items():
            # A view may read a group twice; that it failed once must not be forgotten.
            if is_error or group not in value1:
                value1[group] = (is_error, answer)
        return value1


def _guarded(work: Callable[[], RoundFacts]) -> bytes:
    """The facts, or the error: Spark would turn it into text."""
    try:
        return _pack(work())
    except TilthError as error:
        return _pack(error)
    except OSError as error:
        hint = "check the disk's free space and its permissions; the round is tried again by itself"
        return _pack(RoundStorageError(why=error.strerror or str(error), path=error.filename or "-", hint=hint))


def _pack(answer: RoundFacts | TilthError) -> bytes:
    return pickle.dumps(answer)


def _read(answer: bytes) -> RoundFacts:
    told: Any = pickle.loads(answer)
    if isinstance(told, TilthError):
        raise told
    assert isinstance(told, RoundFacts)
    return told


def _answer(facts: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([facts], pa.binary())], names=["facts"])


def _total(answers: Iterable[RoundFacts]) -> RoundFacts:
    known = list(answers)
    return RoundFacts(
        ranges=tuple(each for facts in known for each in facts.ranges),
        parts=tuple(each for facts in known for each in facts.parts),
        bytes=sum(facts.bytes for facts in known),
        broken=next((facts.broken for facts in known if facts.broken), ""),
    )
