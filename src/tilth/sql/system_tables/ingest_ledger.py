"""`system.ingest_ledger`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.model.table import KafkaDef
from tilth.sql.services import Services
from tilth.sql.system_tables.table import INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable, time_of_hybrid


def _rows(services: Services) -> Iterator[Row]:
    for kafka in services.catalog.tables.list():
        if not isinstance(kafka, KafkaDef):
            continue
        for entry in services.catalog.offsets.ledger(kafka.uuid):
            for one in entry.ranges:
                yield (
                    kafka.database,
                    kafka.name,
                    entry.txn,
                    entry.consumer,
                    one.topic,
                    one.partition,
                    one.start,
                    one.end,
                    one.messages,
                    one.rows,
                    one.dead,
                    one.refused,
                    time_of_hybrid(entry.commit_ts),
                    entry.commit_ts,
                )


TABLE = SystemTable(
    name="ingest_ledger",
    doc="One row for each stretch of a topic's partition that one round has consumed: the proof of what is in.",
    columns=(
        ColumnDoc("database", TEXT, "The Kafka table's database."),
        ColumnDoc("table", TEXT, "The Kafka table."),
        ColumnDoc("txn", INTEGER, "The transaction that stored offsets and rows together."),
        ColumnDoc(
            "consumer",
            INTEGER,
            "The consumer's index; -1: offsets were moved, not read; -2: many old rounds as one, with their sums.",
        ),
        ColumnDoc("topic", TEXT, "The topic."),
        ColumnDoc("partition", INTEGER, "Its partition."),
        ColumnDoc("start", INTEGER, "The first offset."),
        ColumnDoc("end", INTEGER, "The offset behind the last."),
        ColumnDoc("messages", INTEGER, "Messages that were there."),
        ColumnDoc("rows", INTEGER, "Rows of the Kafka table that they became."),
        ColumnDoc("dead", INTEGER, "Messages that could not be decoded."),
        ColumnDoc("refused", INTEGER, "Messages that a view could not take, once for each such view."),
        ColumnDoc("committed", TIME, "When it was committed."),
        ColumnDoc("commit_ts", INTEGER, "The same as a hybrid time: a later mutation has changed these rows."),
    ),
    rows=_rows,
)
