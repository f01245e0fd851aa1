"""`system.kafka_tables`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.ingest import ConsumerStats
from tilth.sql.services import Services
from tilth.sql.system_tables.table import INTEGER, TEXT, TEXTS, TIME, ColumnDoc, Row, SystemTable, time_of_ms


def _rows(services: Services) -> Iterator[Row]:
    for one in services.consume.kafka_tables():
        yield (
            one.database,
            one.table,
            one.consumer,
            one.state,
            one.reason or None,
            *_positions(one),
            one.lag,
            one.uncommitted,
            one.rounds,
            one.messages,
            one.rows,
            one.dead,
            one.refused,
            one.bytes,
            time_of_ms(one.last_commit_ms),
            one.last_exception or None,
            time_of_ms(one.last_exception_ms),
            one.slowed or None,
            one.task or None,
            one.uuid,
        )


def _positions(one: ConsumerStats) -> tuple[list[str], list[str], list[str], list[str]]:
    """Assigned topic partitions, where each stands, and how far it reaches."""
    names = [f"{each.place.topic}/{each.place.partition}" for each in one.partitions]
    offsets, stable, high = [], [], []
    for name, each in zip(names, one.partitions, strict=True):
        offsets.append(f"{name}={each.offset}")
        stable.append(f"{name}={-1 if each.end is None else each.end.stable}")
        high.append(f"{name}={-1 if each.end is None else each.end.high}")
    return names, offsets, stable, high


TABLE = SystemTable(
    name="kafka_tables",
    doc="One row for each consumer of each Kafka table.",
    columns=(
        ColumnDoc("database", TEXT, "The Kafka table's database."),
        ColumnDoc("table", TEXT, "The Kafka table."),
        ColumnDoc("consumer", INTEGER, "The consumer's index."),
        ColumnDoc("state", TEXT, "What it does now."),
        ColumnDoc("reason", TEXT, "What it waits for and since when, or how fast it reads and how much is left."),
        ColumnDoc("partitions", TEXTS, "Topic partitions that it reads, as `topic/partition`."),
        ColumnDoc("offsets", TEXTS, "The next offset of each, as `topic/partition=offset`; -1: none is stored yet."),
        ColumnDoc(
            "stable_offsets",
            TEXTS,
            "Up to where each can be read, as `topic/partition=offset`: with `read_committed`, to the first message of "
            "an open transaction; -1: not heard yet.",
        ),
        ColumnDoc("high_watermarks", TEXTS, "The offset behind the last message of each; -1: not heard yet."),
        ColumnDoc(
            "lag",
            INTEGER,
            "Messages that are not read yet, as far as is known: also those of open transactions and behind a gap.",
        ),
        ColumnDoc("uncommitted", INTEGER, "Messages of the lag that are in transactions which are still open."),
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
    ),
    rows=_rows,
)
