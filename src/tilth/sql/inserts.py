"""INSERT: rows given by value are written right here, rows of a query by Spark.

Always holds: files first, then one commit; a failure leaves a transaction that is marked aborted, whose files the
cleaner removes by name; when the outcome of the commit is not known nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import pyarrow as pa

from tilth.base.errors import UnknownOutcomeError
from tilth.base.logs import Log
from tilth.base.settings import BadSettingError
from tilth.catalog import InsertPart, SchemaIs
from tilth.model.part import WrittenPart
from tilth.model.table import TableDef, full_name
from tilth.model.task import TaskKind
from tilth.model.txn import Txn, TxnOutput
from tilth.sql.answer import Outcome, done
from tilth.sql.errors import InsertTooLargeError
from tilth.sql.formats import default_of, read_rows, table_of_rows, target_columns
from tilth.sql.grammar import InsertData, InsertQuery, InsertValues
from tilth.sql.protocol import InsertResult, InsertTask
from tilth.sql.services import Call, Services, table_of
from tilth.sql.values import column_array
from tilth.storage import clean_transaction, conform, layout_of, write_parts
from tilth.warehouse import QUERY_WAREHOUSE

_ZONE = "spark.sql.session.timeZone"

_log = Log("sql")


def insert_values(services: Services, call: Call, statement: InsertValues) -> Outcome:
    table = table_of(services, call, statement.name, what="INSERT")
    columns = target_columns(table.schema, statement.columns)
    rows = table_of_rows(table.schema, columns, statement.rows, zone=_zone(call))
    return store(services, call, table, rows)


def insert_data(services: Services, call: Call, statement: InsertData) -> Outcome:
    table = table_of(services, call, statement.name, what="INSERT")
    _check_size(call, len(statement.data))
    rows = read_rows(table.schema, statement.columns, statement.format, statement.data, zone=_zone(call))
    return store(services, call, table, rows)


def store_named(services: Services, call: Call, table: TableDef, rows: pa.Table) -> Outcome:
    """Stores rows whose columns are found by name; columns that are not there get their defaults."""
    _check_size(call, rows.nbytes)
    target_columns(table.schema, rows.column_names)
    given = {name.lower() for name in rows.column_names}
    for position, column in enumerate(table.schema.columns, start=1):
        if column.name.lower() not in given and column.default is not None:
            values = [default_of(column)] * rows.num_rows
            rows = rows.append_column(column.name, column_array(column, values, zone=_zone(call), position=position))
    return store(services, call, table, rows)


def store(services: Services, call: Call, table: TableDef, rows: pa.Table) -> Outcome:
    """Writes the rows and commits them."""
    _check_size(call, rows.nbytes)
    conformed = conform(rows, table.schema)
    if not conformed.num_rows:
        return _inserted(table, 0)

    def write(txn: int) -> Sequence[WrittenPart]:
        return write_parts(layout_of(table, services.root), conformed, txn=txn, task=0, attempt=0)

    return _committed(services, call, table, tasks=1, write=write)


def insert_query(services: Services, call: Call, statement: InsertQuery) -> Outcome:
    table = table_of(services, call, statement.name, what="INSERT")
    columns = target_columns(table.schema, statement.columns)
    for column in table.schema.columns:
        if column not in columns and column.default is None:
            default_of(column)
    tasks_max = call.settings.max_insert_tasks

    def write(txn: int) -> Sequence[WrittenPart]:
        task = InsertTask(
            query_id=call.query_id,
            text=statement.query,
            spark=dict(call.settings.spark),
            target=table,
            root=services.root,
            columns=tuple(column.name for column in columns),
            txn=txn,
            tasks_max=tasks_max,
        )
        spec = services.dispatcher.new_spec(
            TaskKind.INSERT,
            warehouse=QUERY_WAREHOUSE,
            table=full_name(table),
            payload=msgspec.msgpack.encode(task),
            txn=txn,
        )
        result = services.dispatcher.run(spec)
        return msgspec.msgpack.decode(result.payload, type=InsertResult).parts

    with services.desk.opened(call.query_id, database=call.database, prune=call.settings.prune_parts) as query:
        outcome = _committed(services, call, table, tasks=tasks_max, write=write, may_retry=True)
    return replace(outcome, parts_read=query.parts_read, parts_pruned=query.parts_pruned)


def _committed(
    services: Services,
    call: Call,
    table: TableDef,
    *,
    tasks: int,
    write: Callable[[int], Sequence[WrittenPart]],
    may_retry: bool = False,
) -> Outcome:
    """Begins a transaction, writes, commits. `may_retry`: a task of the writing may have had several attempts."""
    transactions = services.catalog.transactions
    txn = transactions.begin(f"insert {call.query_id}", outputs=[TxnOutput(table=table.uuid, tasks=tasks)])
    try:
        written = write(txn.id)
        updates = [InsertPart(table=table.uuid, written=part) for part in written]
        transactions.commit_or_raise(txn.id, updates, [SchemaIs(table=table.uuid, schema_version=table.schema_version)])
    except UnknownOutcomeError:
        raise
    except BaseException as error:
        transactions.abort(txn.id, f"{type(error).__name__}: {error}")
        raise
    services.maintenance.wake()
    if may_retry:
        _sweep(services, txn, written)
    return _inserted(table, sum(part.rows for part in written))


def _sweep(services: Services, txn: Txn, written: Sequence[WrittenPart]) -> None:
    """Rids the table of what failed attempts of its tasks left: nobody looks for files of a finished transaction."""
    try:
        clean_transaction(services.root, txn, keep={part.file.name for part in written})
    except OSError as error:
        # The rows are committed; all that is lost is the space.
        _log.warning("failed_attempts_left", cause_id=str(txn.id), reason=error)


def _inserted(table: TableDef, rows: int) -> Outcome:
    return done(f"inserted into {full_name(table)}: {rows} rows", rows_written=rows)


def _check_size(call: Call, size: int) -> None:
    if size > call.settings.max_insert_bytes:
        raise InsertTooLargeError(
            bytes=size,
            bytes_max=call.settings.max_insert_bytes,
            hint="send fewer rows at once, use INSERT .. SELECT, or raise the setting max_insert_bytes",
        )


def _zone(call: Call) -> tzinfo:
    name = call.settings.spark.get(_ZONE)
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise BadSettingError(setting=_ZONE, value=name, allowed="the name of a time zone") from error
