"""INSERT: rows given by value are written right here, rows of a query by Spark.

Always holds: files first, then one commit; a failure leaves a transaction that is marked aborted, whose files the
cleaner removes by name; when the outcome of the commit is not known nothing is deleted. Where a partition has many
parts the writer waits before it writes, and is refused where it has too many.
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
from tilth.catalog import InsertDelay, InsertPart, Requirement, SchemaChangedError, SchemaIs
from tilth.model.part import WrittenPart
from tilth.model.table import Column, TableDef, full_name
from tilth.model.task import TaskKind
from tilth.model.txn import Txn, TxnOutput
from tilth.sql.answer import Outcome, done
from tilth.sql.errors import InsertTooLargeError
from tilth.sql.formats import default_of, read_rows, table_of_rows, target_columns
from tilth.sql.grammar import InsertData, InsertQuery, InsertValues
from tilth.sql.protocol import InsertResult, InsertTask
from tilth.sql.services import Call, Services, table_of
from tilth.sql.values import column_array
from tilth.storage import clean_transaction, conform, layout_of, partition_ids, write_parts
from tilth.warehouse import QUERY_WAREHOUSE

_ZONE = "spark.sql.session.timeZone"

_log = Log("sql")


def insert_values(services: Services, call: Call, statement: InsertValues) -> Outcome:
    table = table_of(services, call, statement.name, what="INSERT")

    def act(table: TableDef, names: Sequence[str]) -> Outcome:
        columns = target_columns(table.schema, names)
        rows = table_of_rows(table.schema, columns, statement.rows, zone=_zone(call))
        return _stored(services, call, table, rows)

    return _once_more(services, call, table, statement.columns, act)


def insert_data(services: Services, call: Call, statement: InsertData) -> Outcome:
    table = table_of(services, call, statement.name, what="INSERT")
    _check_size(call, len(statement.data))

    def act(table: TableDef, names: Sequence[str]) -> Outcome:
        rows = read_rows(table.schema, tuple(names), statement.format, statement.data, zone=_zone(call))
        return _stored(services, call, table, rows)

    return _once_more(services, call, table, statement.columns, act)


def store_named(services: Services, call: Call, table: TableDef, rows: pa.Table) -> Outcome:
    """Stores rows whose columns are found by name; columns that are not there get their defaults."""
    _check_size(call, rows.nbytes)

    def act(table: TableDef, names: Sequence[str]) -> Outcome:
        renamed = rows.rename_columns(list(names))
        return _stored(services, call, table, _completed(table, renamed, zone=_zone(call)))

    return _once_more(services, call, table, rows.column_names, act)


def _completed(table: TableDef, rows: pa.Table, *, zone: tzinfo) -> pa.Table:
    """With the defaults of the columns that are not there."""
    target_columns(table.schema, rows.column_names)
    given = {name.lower() for name in rows.column_names}
    for position, column in enumerate(table.schema.columns, start=1):
        if column.name.lower() not in given and column.default is not None:
            values = [default_of(column)] * rows.num_rows
            rows = rows.append_column(column.name, column_array(column, values, zone=zone, position=position))
    return rows


def _stored(services: Services, call: Call, table: TableDef, rows: pa.Table) -> Outcome:
    """Writes the rows and commits them."""
    _check_size(call, rows.nbytes)
    conformed = conform(rows, table.schema)
    if not conformed.num_rows:
        return _inserted(table, 0)
    if not services.catalog.throttle.is_calm(table):
        partitions = partition_ids(table.schema, table.partition_by, conformed).ids
        services.catalog.throttle.check(table, partitions)
        _wait(services, call, services.catalog.throttle.delay(table, partitions))

    def write(txn: int) -> Sequence[WrittenPart]:
        return write_parts(layout_of(table, services.root), conformed, txn=txn, task=0, attempt=0)

    return _committed(services, call, table, tasks=1, write=write)


def insert_query(services: Services, call: Call, statement: InsertQuery) -> Outcome:
    table = table_of(services, call, statement.name, what="INSERT")
    # To which partitions the rows will go is not known before they are computed.
    _wait(services, call, services.catalog.throttle.delay(table))

    def act(table: TableDef, names: Sequence[str]) -> Outcome:
        return _computed(services, call, table, statement.query, target_columns(table.schema, names))

    return _once_more(services, call, table, statement.columns, act)


def _computed(services: Services, call: Call, table: TableDef, query_text: str, columns: tuple[Column, ...]) -> Outcome:
    for column in table.schema.columns:
        if column not in columns and column.default is None:
            default_of(column)
    tasks_max = call.settings.max_insert_tasks

    def write(txn: int) -> Sequence[WrittenPart]:
        task = InsertTask(
            query_id=call.query_id,
            text=query_text,
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


def _once_more(
    services: Services,
    call: Call,
    table: TableDef,
    names: Sequence[str],
    act: Callable[[TableDef, Sequence[str]], Outcome],
) -> Outcome:
    """Does the insert, and once more when an ALTER came in between: into the same columns, whatever they are called
    now. `names` are those that the statement names; none: all of them.
    """
    try:
        return act(table, names)
    except SchemaChangedError as error:
        now = services.catalog.tables.by_id(table.uuid)
        ids = [column.id for column in target_columns(table.schema, names)]
        if not isinstance(now, TableDef):
            raise
        by_id = {column.id: column.name for column in now.schema.columns}
        if any(each not in by_id for each in ids):
            # A column that the rows bring is gone: what becomes of its values is not for us to decide.
            raise
        _log.info("insert_again", cause_id=call.query_id, table=full_name(now), reason=error)
        return act(now, [by_id[each] for each in ids])


def _wait(services: Services, call: Call, delay: InsertDelay | None) -> None:
    """Slows a writer whose partition has many parts."""
    if delay is not None:
        _log.info("insert_delayed", cause_id=call.query_id, ms=round(delay.milliseconds, 3), reason=delay.reason)
        services.clock.sleep(delay.milliseconds / 1000)


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
        requirements: list[Requirement] = [
            SchemaIs(table=table.uuid, schema_version=table.schema_version),
            services.catalog.throttle.requirement(table),
        ]
        transactions.commit_or_raise(txn.id, updates, requirements)
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
