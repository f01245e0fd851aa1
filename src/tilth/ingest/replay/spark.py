"""The Spark jobs of a replay.

    letters of one view, some of them   1 job      their positions and sizes, as many as one transaction takes
                                        1 job      dead-letter table -> files of letters
                                        a round    files -> parts, dead letters again, as from a topic (rounds/spark.py)
                                        1 job      the change segments by which the letters leave the table

Covers: these jobs, the facts on their way back. Does not cover: which view comes when, commits
(service/letter_replay.py).
Always holds: letters are replayed in the order of topics, partitions and offsets; what is deleted is what was read.

Tests: tests/integration/ingest/test_replayed_letters.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import assert_never

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from tilth.base.mailbox import Mailbox, new_mailbox
from tilth.ingest.errors import UnreadRangesError, ViewFailedError
from tilth.ingest.replay.orders import (
    READERS_MAX,
    CountLetters,
    LetterPosition,
    LetterSource,
    Replayed,
    ReplayLetters,
    ReplayOrder,
    ResolveKeys,
)
from tilth.ingest.rounds.letters import POSITION_COLUMNS, Letters, LettersWritten, LetterWriter
from tilth.ingest.rounds.round import DeadLetters, RoundJob
from tilth.ingest.rounds.spark import run_round
from tilth.ingest.settings import read_config
from tilth.ingest.views.views import check_view, constant_defaults
from tilth.model.delta import WrittenDelta
from tilth.model.offset import OffsetRange
from tilth.model.table import full_name
from tilth.storage import UpsertRequest, layout_of, note_unanswered, resolve_all
from tilth.storage.read.spark import FILE_COLUMN, ROW_COLUMN, file_error, located_snapshot
from tilth.warehouse import TaskContext, TaskResult, run_in_task, run_tasks

#: Offsets at and above it are no broker's; numbers of messages are sums of offsets.
_OFFSETS_MAX = 1 << 48
#: A task that reads fewer letters costs more than it saves.
_TASK_LETTERS_MIN = 8192
_ADDRESSEE = "addressee"


def replay_letters(context: TaskContext, order: bytes) -> TaskResult:
    """Run an order of `ReplayOrder`; raises TilthErrors, and Spark's own errors of the statement's condition."""
    work: ReplayOrder = msgspec.msgpack.decode(order, type=ReplayOrder)
    letters = new_mailbox()
    try:
        return TaskResult(payload=_answer(context, work, letters))
    except (PySparkException, Py4JError) as error:
        damage = file_error(error, letters)
        if damage is not None:
            note_unanswered(damage)
            raise damage from error
        raise


def _answer(context: TaskContext, work: ReplayOrder, letters: Mailbox) -> bytes:
    match work:
        case CountLetters(source=source):
            counted = _letters(context.session, source, letters).groupBy(_ADDRESSEE).count().collect()
            return msgspec.msgpack.encode({row[_ADDRESSEE]: row["count"] for row in counted})
        case ReplayLetters():
            return msgspec.msgpack.encode(_replay(context, work, letters))
        case ResolveKeys(requests=requests):
            changes = run_in_task(context.session, partial(_resolve, requests), tuple[tuple[WrittenDelta, ...], ...])
            return msgspec.msgpack.encode(changes)
    assert_never(work)


def _replay(context: TaskContext, order: ReplayLetters, letters: Mailbox) -> Replayed:
    mine = _letters(context.session, order.source, letters).where(f.col(_ADDRESSEE) == order.addressee)
    if order.after is not None:
        mine = mine.where(_is_after(order.after))
    chosen, last, is_end = _choose(mine, order)
    if last is None:
        return Replayed()
    tasks = max(1, min(READERS_MAX, context.fit().tasks, chosen // _TASK_LETTERS_MIN))
    written = _write(mine.where(~_is_after(last)), order, tasks)
    files = [each for found in written for each in found.files]
    left = sum(found.left for found in written)
    context.raise_if_cancelled()
    kept = Letters(layout_of(order.source.snapshot.table, order.source.root), tuple(each.name for each in files))
    job = _job(context.session, order, kept, splits=tuple(each.ranges for each in files))
    count = sum(each.letters for each in files)
    try:
        facts = run_round(context.session, job, check_cancelled=context.raise_if_cancelled)
    except ViewFailedError as error:
        return Replayed(letters=count, failures=dict(error.facts))
    if facts.messages != count:
        raise UnreadRangesError(table=full_name(order.kafka), views=", ".join(plan.view for plan in job.plans))
    partitions = {part.file.name: part.name.partition for part in order.source.snapshot.parts}
    deletions = run_in_task(
        context.session,
        partial(_write_deletions, kept, partitions, order.txn, order.first_task + READERS_MAX),
        tuple[WrittenDelta, ...],
    )
    kept.remove()
    return Replayed(facts=facts, deletions=deletions, letters=count, left=left, last=last, is_end=is_end)


def _letters(session: SparkSession, source: LetterSource, letters: Mailbox) -> DataFrame:
    """The letters with what they have of their messages; rows that can be no message's are not among them."""
    # A session of its own: the views run under the settings of the task's.
    reading = session.newSession()
    for name, value in {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.variable.substitute": "false",
    }.items():
        reading.conf.set(name, value)
    table = source.snapshot.table
    rows = located_snapshot(reading, source.snapshot, source.root.of(table.uuid), mailbox=letters)
    if source.predicate:
        rows = rows.where(f.expr(source.predicate))
    if source.topics is not None:
        rows = rows.where(f.col("topic").isin(list(source.topics)))
    found = rows.select(
        f.col(FILE_COLUMN).cast("string").alias("file"),
        f.col(ROW_COLUMN).cast("bigint").alias("row"),
        *(f.col(name).alias(name) for name in POSITION_COLUMNS),
        f.expr("unix_millis(`timestamp`)").alias("ms"),
        *(f.col(name).alias(name) for name in ("key", "raw")),
        # A letter that was not decoded is for all views.
        f.expr("coalesce(`view`, '')").alias(_ADDRESSEE),
    )
    is_message = f.col("topic").isNotNull() & f.col("partition").isNotNull() & f.col("raw").isNotNull()
    return found.where(is_message & f.col("offset").between(0, _OFFSETS_MAX - 1))


def _is_after(position: LetterPosition) -> Column:
    topic, partition, offset = map(f.col, POSITION_COLUMNS)
    in_partition = (partition > position.partition) | ((partition == position.partition) & (offset > position.offset))
    return (topic > position.topic) | ((topic == position.topic) & in_partition)


def _choose(mine: DataFrame, order: ReplayLetters) -> tuple[int, LetterPosition | None, bool]:
    """Return how many letters one transaction takes, the greatest position among them, and whether none is greater."""
    size = f.expr("length(`raw`) + coalesce(length(`key`), 0)").cast("bigint").alias("size")
    first = mine.select(*POSITION_COLUMNS, size).orderBy(*POSITION_COLUMNS).limit(order.letters_max).collect()
    total = count = 0
    last: LetterPosition | None = None
    for row in first:
        total += row["size"]
        if count and total > order.bytes_max:
            break
        count += 1
        last = LetterPosition(topic=row["topic"], partition=row["partition"], offset=row["offset"])
    return count, last, count == len(first) < order.letters_max


def _write(chosen: DataFrame, order: ReplayLetters, tasks: int) -> list[LettersWritten]:
    """Write the letters to files, those of one message in one task."""
    ordered = (
        chosen.drop(_ADDRESSEE)
        .repartitionByRange(tasks, *POSITION_COLUMNS)
        .sortWithinPartitions(*POSITION_COLUMNS, "file", "row")
    )
    layout = layout_of(order.source.snapshot.table, order.source.root)
    return run_tasks(ordered, LetterWriter(layout, order.txn, order.first_task), LettersWritten)


def _job(
    session: SparkSession, order: ReplayLetters, kept: Letters, *, splits: tuple[tuple[OffsetRange, ...], ...]
) -> RoundJob:
    kafka, root, dead = order.kafka, order.source.root, order.source.snapshot.table
    plans = tuple(
        check_view(
            session,
            kafka,
            each.target,
            each.view.select,
            view=full_name(each.view),
            target_columns=each.view.target_columns,
        )
        for each in order.views
    )
    return RoundJob(
        config=read_config(kafka),
        schema=kafka.schema,
        name=kafka.name,
        defaults=constant_defaults(session, kafka),
        plans=plans,
        layouts={each.target.uuid: layout_of(each.target, root) for each in order.views},
        dead_letters=DeadLetters(table=dead.uuid, layout=layout_of(dead, root)),
        txn=order.txn,
        splits=splits,
        failing=order.failing,
        letters=kept,
    )


# --- inside tasks ----------------------------------------------------------------------------------------------------


def _write_deletions(
    kept: Letters, partitions: dict[str, str], txn: int, first_task: int, /, *, task: int, attempt: int
) -> tuple[WrittenDelta, ...]:
    return kept.deletions(partitions, txn=txn, first_task=first_task, attempt=attempt)


def _resolve(
    requests: Sequence[Sequence[UpsertRequest]], /, *, task: int, attempt: int
) -> tuple[tuple[WrittenDelta, ...], ...]:
    return tuple(resolve_all(each, attempt=attempt) for each in requests)
