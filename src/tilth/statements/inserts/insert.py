"""INSERT: rows given by value are read and written right here, rows of a query are computed by Spark.

Covers: the ways in which rows come, back-pressure, labels, which inserts share a commit. Does not cover: waiting for
each other (control/insert_batches.py), the transaction (commit.py), unique keys (upserts.py).
Always holds: rows that cannot be read refuse their own INSERT before anything is written, and no other; an INSERT is
answered when it is committed. Where a partition has many parts the writer waits before it writes, and is refused where
it has too many; a refusal for want of memory may be tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import pyarrow as pa

from tilth.base.cancel import pause
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.base.settings import cached_settings
from tilth.base.threads import Completion, completing
from tilth.catalog import InsertDelay, LabelTakenError, SchemaChangedError, StorageChangedError, TxnHandle
from tilth.control.context.names import table_of
from tilth.control.context.services import Call, Services
from tilth.control.context.warehouse_choice import warehouse_of_write
from tilth.control.insert_batches import BatchLimits, OfferedInsert, PreparedInsert
from tilth.control.kinds import StatementKind
from tilth.control.slots import Queue
from tilth.formats import Reading, RowOptions
from tilth.grammar.insert import parse_insert
from tilth.grammar.parse import Form
from tilth.grammar.statements import InsertData, InsertQuery, InsertValues
from tilth.model.part import WrittenPart
from tilth.model.table import Column, TableDef, full_name
from tilth.query.language.unpacked import decoded_bytes
from tilth.query.results.answer import PENDING, Outcome, done
from tilth.query.settings import AUTO, InsertSettings
from tilth.query.snapshots.damaged import QueryParts, check_reads_all, naming
from tilth.query.snapshots.protocol import InsertResult, InsertTask
from tilth.statements.inserts.arrow_streams import check_size
from tilth.statements.inserts.commit import commit_insert, store
from tilth.statements.inserts.defaults import computing
from tilth.statements.inserts.named_rows import completed
from tilth.statements.inserts.objects import read_objects
from tilth.statements.inserts.rows import (
    OP,
    check_deletes,
    read_rows,
    table_of_rows,
    target_columns,
    target_of,
)
from tilth.statements.inserts.spark_tasks import run_insert, tasks_max_of, writing_of
from tilth.storage import TableLayout, layout_of, partition_ids, shape_rows

_log = Log("sql")

# Function of the current definition of the table, of the names of the columns that the INSERT brings, and of
# `Call.on_complete`.
Act = Callable[[TableDef, Sequence[str], Completion[Outcome] | None], Outcome]


def insert_values(services: Services, call: Call, statement: InsertValues) -> Outcome:
    table = table_of(services, call, statement.name, what="INSERT")

    def act(table: TableDef, names: Sequence[str], on_complete: Completion[Outcome] | None) -> Outcome:
        target = target_of(table)
        reading, compute = Reading(zone=call.zone), computing(services, call, table.schema)
        columns = target_columns(target, names)
        rows = table_of_rows(target, columns, statement.rows, reading=reading, compute=compute)
        return _stored(services, call, table, rows, on_complete)

    return done_once(services, call, table, statement.columns, act)


def insert_data(services: Services, call: Call, statement: InsertData) -> Outcome:
    table = table_of(services, call, statement.name, what="INSERT")
    check_size(len(statement.data), call.settings.max_insert_bytes)

    def act(table: TableDef, names: Sequence[str], on_complete: Completion[Outcome] | None) -> Outcome:
        reading, compute = Reading(zone=call.zone), computing(services, call, table.schema)
        target, form = target_of(table), statement.format
        options = RowOptions(csv_delimiter=call.settings.csv_delimiter, skip_unknown=call.settings.skip_unknown)
        rows = read_objects(target, names, form, statement.data, reading=reading, options=options)
        if rows is None:
            rows = read_rows(target, names, form, statement.data, reading=reading, compute=compute, options=options)
        return _stored(services, call, table, rows, on_complete)

    return done_once(services, call, table, statement.columns, act)


def store_named(services: Services, call: Call, table: TableDef, data: pa.Table | Callable[[int], pa.Table]) -> Outcome:
    """Store rows whose columns are found by name; columns that are not there get their defaults.

    `data`: the rows, or a function that reads them, and checks that they take no more than its argument, in bytes.
    """
    bytes_max = call.settings.max_insert_bytes
    if isinstance(data, pa.Table):
        rows = data
        check_size(decoded_bytes(rows), bytes_max)
    else:
        rows = data(bytes_max)

    def act(table: TableDef, names: Sequence[str], on_complete: Completion[Outcome] | None) -> Outcome:
        renamed = rows.rename_columns(list(names))
        complete = completed(target_of(table), renamed, computing(services, call, table.schema))
        return _stored(services, call, table, complete, on_complete)

    return done_once(services, call, table, rows.column_names, act)


def insert_query(services: Services, call: Call, statement: InsertQuery) -> Outcome:
    check_reads_all(call.settings)
    table = table_of(services, call, statement.name, what="INSERT")

    def act(table: TableDef, names: Sequence[str], on_complete: Completion[Outcome] | None) -> Outcome:
        # To which partitions the rows will go is not known before they are computed.
        wait_for_merges(services, call, services.catalog.throttle.delay(table))
        return _computed(services, call, table, statement.query, target_columns(target_of(table), names))

    return done_once(services, call, table, statement.columns, act)


def done_once(services: Services, call: Call, table: TableDef, names: Sequence[str], act: Act) -> Outcome:
    """Does the insert unless one with its label is done, or memory is scarce.

    `names` are the columns that the statement names; none: all of them.
    """
    label = call.settings.insertion_label
    earlier = earlier_answer(services, table, label)
    if earlier is not None:
        return earlier
    services.memory.check()

    def attempt(first: Callable[[], Outcome]) -> Outcome:
        try:
            return _once_more(services, call, table, names, act, first)
        except LabelTakenError:
            # Sent twice at once: the other one was faster.
            earlier = earlier_answer(services, table, label)
            if earlier is None:
                raise
            return earlier

    # An outcome that is pending is tried again for the same reasons.
    on_complete = completing(call.on_complete, attempt)
    return attempt(lambda: act(table, names, on_complete))


def earlier_answer(services: Services, table: TableDef, label: str) -> Outcome | None:
    """Answer to an insert whose label is taken."""
    found = services.catalog.labels.find(table.uuid, label) if label else None
    if found is None:
        return None
    return done(f"already inserted into {full_name(table)}: {found.rows} rows, label {label}; nothing was written")


def _once_more(
    services: Services, call: Call, table: TableDef, names: Sequence[str], act: Act, first: Callable[[], Outcome]
) -> Outcome:
    """Perform the INSERT by `first`, and once more when an ALTER came in between: into the same columns under their new
    names, or into the new replicas.
    """
    try:
        return first()
    except StorageChangedError as error:
        _log.info("insert_again", cause_id=call.query_id, table=full_name(table), reason=error)
        return act(table, names, None)
    except SchemaChangedError as error:
        now = services.catalog.tables.by_id(table.uuid)
        ids = [column.id for column in target_columns(target_of(table), names)]
        if not isinstance(now, TableDef):
            raise
        by_id = {column.id: column.name for column in (*now.schema.columns, OP)}
        if any(each not in by_id for each in ids):
            # A column that the rows bring is gone: what becomes of its values is not for us to decide.
            raise
        _log.info("insert_again", cause_id=call.query_id, table=full_name(now), reason=error)
        return act(now, [by_id[each] for each in ids], None)


def _stored(
    services: Services, call: Call, table: TableDef, rows: pa.Table, on_complete: Completion[Outcome] | None
) -> Outcome:
    """Write the rows and commit them, perhaps with those of others, and then without waiting where that is possible."""
    if rows.get_total_buffer_size() > call.settings.max_insert_bytes:
        check_size(rows.nbytes, call.settings.max_insert_bytes)
    layout = layout_of(table, services.root, quorum=call.settings.insert_quorum)
    shaped = shape_rows(layout, rows, is_numbered=True)
    if not shaped.num_rows:
        return inserted(table, 0)
    if not services.catalog.throttle.is_calm(table):
        partitions = partition_ids(table.schema, table.partition_by, shaped).ids
        services.catalog.throttle.check(table, partitions)
        wait_for_merges(services, call, services.catalog.throttle.delay(table, partitions))
    settings = call.settings
    limits = BatchLimits(
        wait_seconds=settings.async_insert_busy_timeout_ms / 1000,
        bytes_max=settings.async_insert_max_data_size,
        rows_max=settings.async_insert_max_rows,
    )
    # Sums of slices cost a tenth of a millisecond, and these rows are none.
    size = shaped.get_total_buffer_size()
    insert = PreparedInsert(
        query_id=call.query_id,
        table=table,
        rows=shaped,
        label=settings.insertion_label,
        quorum=layout.folder.root.quorum,
        is_large=size > limits.bytes_max or shaped.num_rows > limits.rows_max,
    )
    outcome = inserted(table, shaped.num_rows)
    if insert.is_large or not _is_batched(call, table, layout):

        def store_alone() -> Outcome:
            store(services, [insert])
            return outcome

        if on_complete is None:
            return store_alone()
        # It shares no commit, so it must not hold up those that are prepared behind it.
        services.insert_batches.start_alone(lambda: on_complete(store_alone))
        return PENDING
    offered = OfferedInsert(payload=insert, rows=shaped.num_rows, bytes=size, store=partial(store, services))
    # No statement waits for more copies than it requires, or gets fewer.
    shape = (table.schema_version, insert.quorum)
    batches = services.insert_batches
    if on_complete is None:
        batches.add(table.uuid, offered, shape=shape, label=insert.label, limits=limits)
        return outcome

    def answer(error: TilthError | None) -> None:
        on_complete(lambda: _settled(outcome, error))

    batches.offer(table.uuid, offered, shape=shape, label=insert.label, limits=limits, answer=answer)
    return PENDING


def _settled(outcome: Outcome, error: TilthError | None) -> Outcome:
    if error is not None:
        raise error
    return outcome


def _is_batched(call: Call, table: TableDef, layout: TableLayout) -> bool:
    """Follow the statement's setting, else the table's, else batch where rows become segments."""
    async_insert = call.settings.async_insert
    if async_insert == AUTO:
        async_insert = cached_settings(InsertSettings, table.settings).async_insert
    return layout.is_buffered if async_insert == AUTO else async_insert == "1"


def _computed(services: Services, call: Call, table: TableDef, query_text: str, columns: tuple[Column, ...]) -> Outcome:
    target = target_of(table)
    for column in table.schema.columns:
        if column in columns:
            continue
        if OP in columns:
            check_deletes(target, column)
        if column.default is None and not column.expression and (OP not in columns or target.needs(column)):
            target.missing_value(column)
    tasks_max = tasks_max_of(services, call, warehouse_of_write(call, table))

    def write(txn: TxnHandle) -> Sequence[WrittenPart]:
        task = InsertTask(
            query_id=call.query_id,
            text=query_text,
            spark=dict(call.settings.spark),
            target=table,
            root=services.root.of(table.uuid),
            columns=tuple(column.name for column in columns),
            is_partial=target.is_partial,
            txn=txn.id,
            tasks_max=tasks_max,
            quorum=call.settings.insert_quorum,
        )
        return msgspec.msgpack.decode(run_insert(services, call, table, task, txn=txn), type=InsertResult).parts

    reading = QueryParts(services.damage, skips=False)
    with naming(reading.named), services.opened(call, seen=reading.seen) as query:
        rows = commit_insert(services, writing_of(call, table, tasks=tasks_max), write)
    return replace(inserted(table, rows), parts_read=query.parts_read, parts_pruned=query.parts_pruned)


def wait_for_merges(services: Services, call: Call, delay: InsertDelay | None) -> None:
    """Slow a writer whose partition has many parts."""
    if delay is not None:
        _log.info("insert_delayed", cause_id=call.query_id, ms=round(delay.milliseconds, 3), reason=delay.reason)
        pause(services.clock, delay.milliseconds / 1000)


def inserted(table: TableDef, rows: int) -> Outcome:
    return done(f"inserted into {full_name(table)}: {rows} rows", rows_written=rows)


KINDS = (
    StatementKind(
        value=InsertValues,
        forms=(Form(words="INSERT", parse=parse_insert),),
        perform=insert_values,
        queue=Queue.INSERT,
    ),
    StatementKind(value=InsertData, perform=insert_data, queue=Queue.INSERT),
    StatementKind(value=InsertQuery, perform=insert_query, queue=Queue.CHANGE),
)
