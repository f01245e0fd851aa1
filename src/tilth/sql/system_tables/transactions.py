"""`system.transactions`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.model.txn import Txn
from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, TEXT, TEXTS, TIME, ColumnDoc, Row, SystemTable, time_of_hybrid

#: The newest ones are shown.
TRANSACTIONS_MAX = 10_000


def _rows(services: Services) -> Iterator[Row]:
    transactions = services.catalog.transactions
    found: dict[int, Txn] = {txn.id: txn for txn in transactions.unfinished()}
    found |= {txn.id: txn for txn in transactions.recent(TRANSACTIONS_MAX)}
    for txn in sorted(found.values(), key=lambda txn: -txn.id):
        yield Row(
            txn,
            begun=time_of_hybrid(txn.id),
            committed=time_of_hybrid(txn.commit_ts),
            tables=[output.table for output in txn.outputs],
            fences=[f"{fence.name}@{fence.epoch}" for fence in txn.fences],
        )


TABLE = SystemTable(
    name="transactions",
    doc="One row for each transaction that is not finished, and for the last finished ones, newest first.",
    columns=(
        ColumnDoc("id", INTEGER, "The transaction; its files' names begin with it."),
        ColumnDoc("actor", TEXT, "Who writes."),
        ColumnDoc("state", TEXT, "`running`, `finished` or `aborted`."),
        ColumnDoc("begun", TIME, "When it began."),
        ColumnDoc("committed", TIME, "When it was committed."),
        ColumnDoc("tables", TEXTS, "Uuids of the tables into which it may write."),
        ColumnDoc("fences", TEXTS, "The rights to act that its commit has to hold, with their epochs."),
        ColumnDoc("server", TEXT, "The server that runs it."),
        ColumnDoc("reason", TEXT, "Why it was aborted."),
    ),
    rows=_rows,
)
