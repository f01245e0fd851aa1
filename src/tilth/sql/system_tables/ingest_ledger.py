"""`system.ingest_ledger`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable, TableNames, time_of_hybrid


def _rows(services: Services) -> Iterator[Row]:
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


TABLE = SystemTable(
    name="ingest_ledger",
    doc="One row for each stretch of a topic's partition that one round has consumed: the proof of what is in. Those "
    "of dropped Kafka tables stay as long as a table is there that they brought rows to.",
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
    rows=_rows,
)
