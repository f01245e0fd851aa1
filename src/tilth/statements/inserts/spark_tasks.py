"""Rows of a statement that tasks of Spark write, within its transaction.

Covers: the number of tasks, sending the work to a worker, the purpose of the transaction. Does not cover: the work
(query/worker, bodies/spark.py), the commit (commit.py).
Always holds: the transaction knows whether attempts may have left files.

Tests: tests/unit/statements/inserts/test_insert.py, tests/unit/statements/files/test_copy_into.py,
tests/unit/statements/inserts/bodies/test_streamed.py.
"""

from __future__ import annotations

import msgspec

from tilth.catalog import TxnHandle
from tilth.control.context.services import Call, Services
from tilth.control.context.warehouse_choice import warehouse_of_write
from tilth.model.table import TableDef, full_name
from tilth.model.task import TaskKind
from tilth.query.snapshots.protocol import InsertPayload
from tilth.statements.inserts.commit import Writing

#: Minimum and maximum number of tasks that write rows, where nobody has set it.
TASKS_MIN, TASKS_MAX = 32, 1024


def tasks_max_of(services: Services, call: Call, warehouse: str) -> int:
    """Return in how many tasks of a warehouse rows are written: they are named before the work runs."""
    if call.settings.max_insert_tasks:
        return call.settings.max_insert_tasks
    return max(TASKS_MIN, min(TASKS_MAX, services.dispatcher.tasks_at_once(warehouse)))


def writing_of(call: Call, table: TableDef, *, tasks: int) -> Writing:
    """Return the purpose of the transaction of an INSERT whose rows tasks write."""
    label = call.settings.insertion_label
    return Writing(
        table=table,
        actor=f"insert {call.query_id}",
        tasks=tasks,
        labels=((label, None),) if label else (),
        quorum=call.settings.insert_quorum,
        has_tasks=True,
    )


def run_insert(
    services: Services,
    call: Call,
    table: TableDef,
    task: InsertPayload,
    *,
    txn: TxnHandle | None,
    input_bytes: int = 0,
) -> bytes:
    """Run a task that writes rows of the table, and return its answer. `txn`: None where it stores nothing."""
    spec = services.dispatcher.new_spec(
        TaskKind.INSERT,
        warehouse=warehouse_of_write(call, table),
        table=full_name(table),
        payload=msgspec.msgpack.encode(task),
        txn=0 if txn is None else txn.id,
        input_bytes=input_bytes,
    )
    result = services.dispatcher.run(spec)
    if txn is not None:
        txn.tasks_ended(may_have_retried=result.may_have_retried)
    return result.payload
