"""Consumers, what they have read and what was lost, as rows.

Covers: `system.kafka_tables`, `system.kafka_log`, `system.ingest_ledger`, `system.ingest_gaps`.

Tests: tests/unit/introspection/test_registry.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.control.context.services import Services
from tilth.ingest import ConsumerStats, Doing, TopicPartitionStats, partition_skew
from tilth.introspection.system_table import (
    INTEGER,
    NUMBER,
    TEXT,
    TEXTS,
    TIME,
    ColumnDoc,
    Row,
    SystemTable,
    TableNames,
    time_of_hybrid,
    time_of_ms,
)
from tilth.model.pushdown import Pushdown

_KAFKA_TABLE_NAME_COLUMNS = (
    ColumnDoc("database", TEXT, "The Kafka table's database."),
    ColumnDoc("table", TEXT, "The Kafka table."),
)


def _rows_of_kafka_tables(services: Services, _: Pushdown) -> Iterator[Row]:
    consumers = services.consume.kafka_tables()
    partitions: dict[str, list[TopicPartitionStats]] = {}
    for one in consumers:
        partitions.setdefault(one.uuid, []).extend(one.partitions)
    for one in consumers:
        slowest_view, share = one.slowest_view or (None, None)
        yield Row(
            one,
            one.doing,
            **_positions(one),
            skew=partition_skew(partitions[one.uuid]),
            reason=one.reason or None,
            last_exception=one.last_exception or None,
            last_exception_time=time_of_ms(one.last_exception_ms),
            slowed=one.slowed or None,
            task=one.task or None,
            **(_activity(one.doing) if one.doing is not None else {}),
            last_round_seconds=one.round_seconds or None,
            view_seconds=[f"{view}={seconds:.3f}" for view, seconds in sorted(one.view_seconds.items())],
            view_choices=[f"{view}={choice}" for view, choice in sorted(one.view_choices.items())],
            slowest_view=slowest_view,
            slowest_view_share=share,
            last_broken=one.last_broken or None,
        )


def _activity(doing: Doing) -> dict[str, object]:
    return {
        "activity": doing.kind.name.lower(),
        "activity_since": time_of_ms(doing.since_ms),
        "last_poll": time_of_ms(doing.polled_ms),
        "round_running_seconds": doing.round_seconds or None,
        "rate": doing.rate or None,
        "bounded_by": doing.bounded_by or None,
    }


def _positions(one: ConsumerStats) -> dict[str, list[str]]:
    """Assigned topic partitions, the position in each, and its end."""
    named = [(f"{each.topic_partition.topic}/{each.topic_partition.partition}", each) for each in one.partitions]
    return {
        "partitions": [name for name, _ in named],
        "offsets": [f"{name}={each.offset}" for name, each in named],
        "stable_offsets": [f"{name}={-1 if each.end is None else each.end.stable}" for name, each in named],
        "high_watermarks": [f"{name}={-1 if each.end is None else each.end.high}" for name, each in named],
    }


KAFKA_TABLES = SystemTable(
    name="kafka_tables",
    doc="One row for each consumer of each Kafka table.",
    is_of_servers=True,
    columns=(
        *_KAFKA_TABLE_NAME_COLUMNS,
        ColumnDoc("consumer", INTEGER, "The consumer's index."),
        ColumnDoc("state", TEXT, "What it does now."),
        ColumnDoc("reason", TEXT, "What it waits for and since when, or how fast it reads and how much is left."),
        ColumnDoc("partitions", TEXTS, "Topic partitions that it reads, as `topic/partition`."),
        ColumnDoc("offsets", TEXTS, "The next offset of each, as `topic/partition=offset`; -1: none is stored yet."),
        ColumnDoc(
            "stable_offsets",
            TEXTS,
            "Up to where each can be read, as `topic/partition=offset`: with `read_committed`, to the first message of "
            "an open transaction; -1: not known yet.",
        ),
        ColumnDoc("high_watermarks", TEXTS, "The offset behind the last message of each; -1: not known yet."),
        ColumnDoc(
            "lag",
            INTEGER,
            "Messages that are not read yet, also those of open transactions and behind a gap; NULL: not known, "
            "because the ends of its topic partitions were not seen lately.",
        ),
        ColumnDoc(
            "lag_age", NUMBER, "Seconds since the ends of all its topic partitions were seen; NULL: one was never seen."
        ),
        ColumnDoc(
            "oldest_unread_age",
            NUMBER,
            "Seconds for which the oldest message that is not read has waited, at most: since its topic partition was "
            "read to its end, or, if that is later, since the last message was sent that was read; 0: all are read. "
            "NULL: not known, as before the first round after a start, or it does not run.",
        ),
        ColumnDoc(
            "uncommitted",
            INTEGER,
            "Messages of the lag that are in transactions which are still open; NULL: not known.",
        ),
        ColumnDoc(
            "skew",
            NUMBER,
            "How unevenly messages are spread over the topic partitions of all consumers of the table: those that the "
            "fullest ever had over the mean; 1 is even. NULL: no message, or an end that was never seen.",
        ),
        ColumnDoc("rounds", INTEGER, "Rounds that it has committed."),
        ColumnDoc("messages", INTEGER, "Messages in them."),
        ColumnDoc("rows", INTEGER, "Rows that they became."),
        ColumnDoc("dead", INTEGER, "Messages that could not be decoded."),
        ColumnDoc("refused", INTEGER, "Messages that a view could not take, once for each such view."),
        ColumnDoc("bytes", INTEGER, "Bytes of messages."),
        ColumnDoc("last_commit", TIME, "When its last round was committed."),
        ColumnDoc("last_exception", TEXT, "What went wrong last."),
        ColumnDoc("last_exception_time", TIME, "When."),
        ColumnDoc("slowed", TEXT, "Why its rounds wait before they write; NULL: they do not."),
        ColumnDoc("task", TEXT, "The task that runs it; NULL: none does."),
        ColumnDoc("uuid", TEXT, "The Kafka table's uuid."),
        ColumnDoc(
            "activity",
            TEXT,
            "`waiting` (for a worker or its Spark, as `reason` says), `reading`, `flush_interval` (messages wait for "
            "it), `open_transaction` (the next message is in one), `starting` (it has not polled the broker yet) or "
            "`idle` (there is no message); NULL: it does not run.",
        ),
        ColumnDoc("activity_since", TIME, "Since when: of `reading` its last round's beginning."),
        ColumnDoc("last_poll", TIME, "When it last polled the broker for the ends of its topic partitions."),
        ColumnDoc("round_running_seconds", NUMBER, "How long its present round has run; NULL: between two rounds."),
        ColumnDoc("rate", NUMBER, "Messages a second of its last rounds while it reads; NULL: not known."),
        ColumnDoc("bounded_by", TEXT, "The setting that bounds a round, and so the rate; NULL: it takes all there is."),
        ColumnDoc("seconds_left", NUMBER, "How long it will read at this rate; NULL: not known."),
        ColumnDoc("last_round_seconds", NUMBER, "How long the last round took."),
        ColumnDoc(
            "view_seconds",
            TEXTS,
            "Of that, by view with a computed SELECT, computing and writing its rows, as `database.view=seconds`.",
        ),
        ColumnDoc(
            "view_choices",
            TEXTS,
            "What computes each of these views in the last round, `kernels` or `Spark`, and why not kernels.",
        ),
        ColumnDoc(
            "slowest_view",
            TEXT,
            "The view that took longest of these, or has run for longer in the present round; NULL: none is known.",
        ),
        ColumnDoc("slowest_view_share", NUMBER, "Its share of that round's time; 1 is all of it."),
        ColumnDoc("last_broken", TEXT, "Its last message that was broken, or that a view could not take, and why."),
        ColumnDoc("next_attempt", TIME, "When it is started again after a failure; NULL: it does not wait for that."),
    ),
    rows=_rows_of_kafka_tables,
)


#: Columns of a round's phases.
_PHASES = {
    "fetch_ms": "How long the slowest task of a committed round waited for messages; NULL: it is another event.",
    "decode_ms": "How long the slowest of its tasks decoded and checked messages; NULL as above.",
    "write_ms": "How long the slowest of its tasks wrote parts, and all SQL of computed views; NULL as above.",
    "commit_ms": "How long the catalog took to commit it, which `duration_ms` does not contain; NULL as above.",
}


def _rows_of_kafka_log(services: Services, _: Pushdown) -> Iterator[Row]:
    for event in services.consume.log():
        yield Row(
            event,
            consumer=event.consumer if event.consumer >= 0 else None,
            event=event.kind.name,
            txn=event.txn or None,
            detail=event.detail,
            **{name: None if event.phases is None else getattr(event.phases, name) for name in _PHASES},
        )


KAFKA_LOG = SystemTable(
    name="kafka_log",
    doc="One row for each step of the last rounds of this server's consumers; empty after a restart.",
    is_of_servers=True,
    columns=(
        ColumnDoc("at", TIME, "When."),
        *_KAFKA_TABLE_NAME_COLUMNS,
        ColumnDoc("consumer", INTEGER, "The consumer's index; NULL: the service itself."),
        ColumnDoc(
            "event",
            TEXT,
            "`EMPTY`, `POLL`, `PARSE_ERROR`, `WRITE`, `EXCEPTION`, `EMPTY_MESSAGE`, `FILTER`, `COMMIT`; "
            "`OFFSETS`: offsets were taken over from a group, a gap was found or closed.",
        ),
        ColumnDoc("messages", INTEGER, "Messages that it is about."),
        ColumnDoc("rows", INTEGER, "Rows that it is about."),
        ColumnDoc("bytes", INTEGER, "Bytes that it is about."),
        ColumnDoc("duration_ms", INTEGER, "How long it took."),
        *(ColumnDoc(name, INTEGER, doc) for name, doc in _PHASES.items()),
        ColumnDoc("txn", INTEGER, "The round's transaction."),
        ColumnDoc("detail", TEXT, "What happened, in words."),
    ),
    rows=_rows_of_kafka_log,
)


def _rows_of_ingest_ledger(services: Services, _: Pushdown) -> Iterator[Row]:
    names = TableNames(services)
    for uuid in services.catalog.offsets.ledgers():
        for entry in services.catalog.offsets.ledger(uuid):
            for one in entry.ranges:
                yield Row(
                    one,
                    **names.row(uuid),
                    txn=entry.txn,
                    consumer=entry.consumer,
                    committed=time_of_hybrid(entry.commit_ts),
                    commit_ts=entry.commit_ts,
                    topic_id=one.topic_id or None,
                    uuid=uuid,
                )


INGEST_LEDGER = SystemTable(
    name="ingest_ledger",
    doc="One row for each stretch of a topic's partition that one round has consumed: the proof of what is in. Those "
    "of dropped Kafka tables stay as long as a table is there that they brought rows to.",
    columns=(
        *_KAFKA_TABLE_NAME_COLUMNS,
        ColumnDoc("txn", INTEGER, "The transaction that stored offsets and rows together."),
        ColumnDoc(
            "consumer",
            INTEGER,
            "The consumer's index; -1: offsets were moved, not read; -2: many old rounds as one, with their sums; "
            "-3: dead letters were replayed, from the first to the last of the partition.",
        ),
        ColumnDoc("topic", TEXT, "The topic."),
        ColumnDoc("partition", INTEGER, "Its partition."),
        ColumnDoc("start", INTEGER, "The first offset."),
        ColumnDoc("end", INTEGER, "The offset behind the last; -1: the topic made anew has no such partition."),
        ColumnDoc("messages", INTEGER, "Messages that were there."),
        ColumnDoc("rows", INTEGER, "Rows of the Kafka table that they became."),
        ColumnDoc("dead", INTEGER, "Messages that could not be decoded."),
        ColumnDoc("refused", INTEGER, "Messages that a view could not take, once for each such view."),
        ColumnDoc("committed", TIME, "When it was committed."),
        ColumnDoc("commit_ts", INTEGER, "The same as a hybrid time: a later mutation has changed these rows."),
        ColumnDoc("topic_id", TEXT, "The topic's id, which is another one once it was deleted and made again."),
        ColumnDoc("uuid", TEXT, "The Kafka table's uuid."),
    ),
    rows=_rows_of_ingest_ledger,
)


def _rows_of_ingest_gaps(services: Services, _: Pushdown) -> Iterator[Row]:
    names = TableNames(services)
    for gap in services.catalog.offsets.gaps():
        yield Row(
            gap, **names.row(gap.kafka_table), end=gap.end if gap.end >= 0 else None, resolution=gap.resolution or None
        )


INGEST_GAPS = SystemTable(
    name="ingest_gaps",
    doc="One row for each stretch of offsets that could not be read. An open one stops its consumer until SYSTEM RESET "
    "CONSUME OFFSET decides, or until the broker proves that the messages are there.",
    columns=(
        *_KAFKA_TABLE_NAME_COLUMNS,
        ColumnDoc("topic", TEXT, "The topic."),
        ColumnDoc("partition", INTEGER, "Its partition."),
        ColumnDoc("start", INTEGER, "The first offset that is missing."),
        ColumnDoc("end", INTEGER, "The first that is there again; NULL: not known."),
        ColumnDoc("reason", TEXT, "Why."),
        ColumnDoc("at", TIME, "When it was found."),
        ColumnDoc("resolution", TEXT, "What the user decided, or why it was closed by itself; NULL while it is open."),
    ),
    rows=_rows_of_ingest_gaps,
)
