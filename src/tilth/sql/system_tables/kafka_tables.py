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
            *_positions(one),
            one.lag,
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


def _positions(one: ConsumerStats) -> tuple[list[str], list[str]]:
    """Assigned partitions, and where each stands."""
    places = [f"{each.place.topic}/{each.place.partition}" for each in one.partitions]
    return places, [f"{place}={each.offset}" for place, each in zip(places, one.partitions, strict=True)]


TABLE = SystemTable(
    name="kafka_tables",
    doc="One row for each consumer of each Kafka table.",
    columns=(
        ColumnDoc("database", TEXT, "The Kafka table's database."),
        ColumnDoc("table", TEXT, "The Kafka table."),
        ColumnDoc("consumer", INTEGER, "The consumer's index."),
        ColumnDoc("state", TEXT, "What it does now."),
        ColumnDoc("partitions", TEXTS, "Topic partitions that it reads, as `topic/partition`."),
        ColumnDoc("offsets", TEXTS, "The next offset of each, as `topic/partition=offset`; -1: none is stored yet."),
        ColumnDoc("lag", INTEGER, "Messages that are not read yet, as far as is known."),
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
