"""DELETE FROM and UPDATE: rows are found by a Spark job, changed by one commit, and no part is rewritten.

Covers: both statements, from the check to the answer. Does not cover: ALTER .. UPDATE and DELETE, which rewrite parts
in the background (alter/alter_columns.py), finding the rows (query/worker/changes_spark.py).
Always holds: nothing is written before everything is checked; all rows change in one commit or none; where others
changed or replaced a part meanwhile, the statement searches that part or its successors again, and only these.
Rows that were inserted after the statement's snapshot stay as they are, unless they were merged with older ones
before the statement could commit.

    check expressions -> snapshot, with a lease -> Spark job: change segments -> commit
                                                        ^                          | parts changed or gone
                                                        `-- only those parts <-----'
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tilth.base.cancel import pause
from tilth.base.errors import InvalidInputError, RetryError
from tilth.base.logs import Log
from tilth.base.settings import BadSettingError
from tilth.catalog import (
    AddDelta,
    ColumnsPendingError,
    Requirement,
    SchemaChangedError,
    SchemaIs,
    StorageChangedError,
    TxnHandle,
    rebase,
)
from tilth.control.context.audit import audited
from tilth.control.context.names import table_of
from tilth.control.context.services import Call, Services, run_on_worker
from tilth.control.context.warehouse_choice import warehouse_of_write
from tilth.control.kinds import StatementKind
from tilth.control.slots import Queue
from tilth.grammar.literals import read_settings_clause
from tilth.grammar.parse import Form
from tilth.grammar.phrases import parse_assignments, parse_table_name, parse_where, refuse_alias
from tilth.grammar.statements import DeleteRows, UpdateRows
from tilth.grammar.text.cursor import Cursor
from tilth.model.delta import WrittenDelta, by_file
from tilth.model.mutation import MutationKind
from tilth.model.part import Part, PartName
from tilth.model.snapshot import Snapshot
from tilth.model.table import TableDef, full_name
from tilth.model.task import TaskKind
from tilth.model.text.zones import UTC_NAMES, ZONE
from tilth.model.txn import Txn
from tilth.query.results.answer import Outcome, done
from tilth.query.snapshots.damaged import check_reads_all, named, naming
from tilth.query.snapshots.protocol import ChangeResult, ChangeTask, CheckedExpressions, ExpressionsTask
from tilth.query.snapshots.prune import keeper
from tilth.query.snapshots.snapshots import OpenQuery, check_same_columns, narrowed
from tilth.statements.definitions.columns import check_updated
from tilth.statements.errors import BadAlterError
from tilth.statements.rows.select import TRIES_MAX as SCHEMA_TRIES_MAX
from tilth.storage import DeltaWriter, layout_of, output_of, read_changes

#: Maximum attempts; a retry rereads parts that others changed.
TRIES_MAX = 10
#: Spark tasks that write, at most. Each try has the numbers of so many, and one for what this server writes itself.
TASKS_MAX = 8
_TASKS_OF_TRY = TASKS_MAX + 1
#: Maximum wait of an UPDATE for earlier ALTERs, and its poll interval.
COLUMNS_WAIT_SECONDS_MAX = 30.0
_POLL_SECONDS = 0.1

_log = Log("sql")


def _parse_delete(cursor: Cursor) -> DeleteRows:
    if not cursor.at("FROM"):
        hint = "write DELETE FROM t WHERE .., with a condition of the table's own columns"
        raise cursor.refused("DELETE without FROM is not supported: expected FROM, found " + cursor.found(), hint=hint)
    cursor.expect("FROM")
    name = parse_table_name(cursor)
    if not cursor.at("IN", "PARTITION"):
        refuse_alias(cursor, "WHERE", "SETTINGS")
    predicate = parse_where(cursor)
    return DeleteRows(name=name, predicate=predicate, settings=read_settings_clause(cursor))


def _parse_update(cursor: Cursor) -> UpdateRows:
    name = parse_table_name(cursor)
    refuse_alias(cursor, "SET")
    cursor.expect("SET")
    assignments = parse_assignments(cursor)
    predicate = parse_where(cursor)
    return UpdateRows(name=name, assignments=assignments, predicate=predicate, settings=read_settings_clause(cursor))


def change_rows(services: Services, call: Call, statement: DeleteRows | UpdateRows) -> Outcome:
    """Return the number of rows, after the commit."""
    check_reads_all(call.settings)
    verb = "UPDATE" if isinstance(statement, UpdateRows) else "DELETE"
    table = table_of(services, call, statement.name, what=verb)
    with audited(services, call, verb=verb, table=full_name(table)) as audit:
        outcome = _changed(services, call, table, statement)
        audit.outcome = f"done: {outcome.message}"
        return outcome


def _changed(services: Services, call: Call, table: TableDef, statement: DeleteRows | UpdateRows) -> Outcome:
    """Change the rows; begin anew when columns or replicas change meanwhile: nothing has been committed yet."""
    _check_zone(call)
    for _ in range(SCHEMA_TRIES_MAX - 1):
        try:
            return _tried(services, call, table, statement)
        except (SchemaChangedError, StorageChangedError) as error:
            _log.info("change_begins_anew", cause_id=call.query_id, reason=error)
            now = services.catalog.tables.by_id(table.uuid)
            if not isinstance(now, TableDef):
                raise
            table = now
    return _tried(services, call, table, statement)


def _tried(services: Services, call: Call, table: TableDef, statement: DeleteRows | UpdateRows) -> Outcome:
    assignments: Sequence[tuple[str, str]] = ()
    if isinstance(statement, UpdateRows):
        assignments = _assignments(table, statement)
        _wait_for_mutations(services, call, table)
    task = ExpressionsTask(
        table=full_name(table),
        schema=table.schema,
        assignments=tuple(assignments),
        predicate=statement.predicate,
        now_ms=services.clock.now_ms(),
        with_needs=True,
    )
    checked = msgspec.msgpack.decode(run_on_worker(services, task), type=CheckedExpressions)
    with services.opened(call) as query:
        change = _Change(services, call, query, table, checked)
        rows = change.run()
    message = f"{'updated in' if assignments else 'deleted from'} {full_name(table)}: {rows} rows"
    return replace(done(message, rows_written=rows), parts_read=query.parts_read, parts_pruned=query.parts_pruned)


def _check_zone(call: Call) -> None:
    zone = call.zone_name
    if zone not in UTC_NAMES:
        hint = "write times with their zone: TIMESTAMP '2026-01-31 12:00:00+02:00'"
        raise BadSettingError(
            "DELETE and UPDATE compute times only in UTC", setting=ZONE, value=zone, allowed="UTC", hint=hint
        )


def _assignments(table: TableDef, statement: UpdateRows) -> list[tuple[str, str]]:
    """Spell the columns as the table does; raises for columns by which rows are found or laid out."""
    for name, _ in statement.assignments:
        column = table.schema.find(name)
        if column is not None and column.name in table.unique_key:
            hint = "DELETE the row, and INSERT it with the new key"
            raise InvalidInputError.coded(
                "KEY_COLUMN_UPDATE",
                "UPDATE cannot change a column of UNIQUE KEY",
                table=full_name(table),
                column=column.name,
                hint=hint,
            )
    columns = check_updated(table, [name for name, _ in statement.assignments])
    return [(column.name, text) for column, (_, text) in zip(columns, statement.assignments, strict=True)]


def _wait_for_mutations(services: Services, call: Call, table: TableDef) -> None:
    """Until every part has what earlier ALTERs said, of columns and of rows: they must not change what this statement
    sets. Raises ColumnsPendingError when that takes too long.
    """
    seconds = min(COLUMNS_WAIT_SECONDS_MAX, call.settings.mutations_wait_timeout_seconds)
    deadline = services.clock.monotonic() + seconds
    while True:
        pending = services.catalog.mutations.pending(table.uuid)
        if not pending:
            return
        if services.clock.monotonic() >= deadline:
            raise ColumnsPendingError(
                "an ALTER is not done yet",
                table=full_name(table),
                mutation=pending[0].id,
                command=pending[0].command,
                hint=f"nothing was updated: try again when system.mutations shows the ALTER as done, or KILL MUTATION "
                f"'{pending[0].id}'",
            )
        pause(services.clock, _POLL_SECONDS)


class _Change:
    """One DELETE or UPDATE under way."""

    def __init__(
        self, services: Services, call: Call, query: OpenQuery, table: TableDef, checked: CheckedExpressions
    ) -> None:
        self._services = services
        self._call = call
        self._query = query
        self._table = table
        self._checked = checked
        self._layout = layout_of(table, services.root)
        self._keep = keeper(checked.where, table) if query.prune else _every
        #: The searched parts, by their files, with the newest change that was seen of each.
        self._known: dict[str, PartName] = {}
        self._seen: dict[str, int] = {}
        #: The changes to be committed, in files that nobody knows yet.
        self._written: list[WrittenDelta] = []

    def run(self) -> int:
        """Return the number of changed rows. Raises RetryError, SchemaChangedError, ColumnsPendingError."""
        snapshot = self._checked_parts(self._snapshot(self._keep))
        if not snapshot.parts:
            return 0
        table = self._table
        verb = "update" if self._checked.assignments else "delete"
        outputs = [output_of(table, self._services.root, tasks=TRIES_MAX * _TASKS_OF_TRY)]
        transactions = self._services.catalog.transactions
        with transactions.open(f"{verb} {self._call.query_id}", outputs=outputs) as handle:
            busy = RetryError.coded(
                "ROWS_BUSY",
                "others changed the same rows at every try",
                table=full_name(table),
                tries=TRIES_MAX,
                hint="nothing was changed: try again",
            )
            rebase(handle.id, partial(self._attempt, handle, snapshot), tries=TRIES_MAX, busy=busy)
        if self._written:
            self._services.maintenance.wake(table.uuid)
        return sum(target.deleted + target.updated for each in self._written for target in each.targets)

    def _attempt(self, handle: TxnHandle, snapshot: Snapshot, number: int) -> None:
        """Commit the changes of all matching rows; nothing where no row matches. `snapshot`: of the first try."""
        handle.begin_try(number, [self._table.uuid])
        first_task = number * _TASKS_OF_TRY
        if number:
            snapshot = self._repeat_lookup(handle.txn, task=first_task - 1)
        if snapshot.parts:
            self._written += self._found(handle, snapshot, first_task)
        if not self._written:
            return
        try:
            handle.commit(self._updates(self._written), self._requirements())
        except ColumnsPendingError as error:
            raise self._pending(error) from error

    def _repeat_lookup(self, txn: Txn, *, task: int) -> Snapshot:
        """Drop the changes of parts that others have changed or replaced since; return what is there instead.

        `task`: the number that the try before did not use up.
        """
        now = self._snapshot(_every)
        stale, again = outdated_changes(self._written, self._known, self._seen, now)
        self._written = self._without(txn, self._written, stale, task)
        return self._checked_parts(narrowed(now, partial(_is_of, again)))

    def _snapshot(self, keep: Callable[[Part], bool]) -> Snapshot:
        snapshot = self._services.snapshots.hold(self._query, self._table.uuid, keep)
        check_same_columns(self._table, snapshot.table)
        return snapshot

    def _checked_parts(self, snapshot: Snapshot) -> Snapshot:
        check_no_ranges(snapshot, [name for name, _ in self._checked.assignments])
        return snapshot

    def _found(self, handle: TxnHandle, snapshot: Snapshot, first_task: int) -> list[WrittenDelta]:
        """Write the changes of the rows in the snapshot's parts, to files that nobody knows yet."""
        self._known |= {part.file.name: part.name for part in snapshot.parts}
        self._seen |= newest_changes(snapshot)
        task = ChangeTask(
            snapshot=snapshot,
            root=self._services.root.of(self._table.uuid),
            predicate=self._checked.predicate,
            assignments=self._checked.assignments,
            columns=self._checked.columns,
            txn=handle.id,
            first_task=first_task,
            tasks_max=TASKS_MAX,
        )
        dispatcher = self._services.dispatcher
        spec = dispatcher.new_spec(
            TaskKind.QUERY,
            warehouse=warehouse_of_write(self._call, self._table),
            table=full_name(self._table),
            payload=msgspec.msgpack.encode(task),
            txn=handle.id,
            input_bytes=snapshot.bytes,
            rows=snapshot.rows,
        )
        handle.tasks_began()
        with naming(partial(named, self._services.damage, snapshot)):
            result = dispatcher.run(spec)
        handle.tasks_ended(may_have_retried=result.may_have_retried)
        written = msgspec.msgpack.decode(result.payload, type=ChangeResult).written
        if not written:
            handle.wrote_nothing()
        return list(written)

    def _updates(self, written: Sequence[WrittenDelta]) -> list[AddDelta]:
        return [
            AddDelta(
                table=self._table.uuid,
                written=each,
                seen=tuple((target.file, self._seen[target.file]) for target in each.targets),
            )
            for each in written
        ]

    def _pending(self, error: ColumnsPendingError) -> ColumnsPendingError:
        """Return the same error, with what to do where nobody works on it."""
        pending = self._services.catalog.mutations.pending(self._table.uuid)
        if any(each.kind is MutationKind.COLUMNS for each in pending):
            return error
        hint = "the ALTER that would give them to old rows was killed; the next ALTER of columns does it"
        return ColumnsPendingError(table=full_name(self._table), files=error.facts.get("files", ""), hint=hint)

    def _requirements(self) -> list[Requirement]:
        """Require the columns for which new values were computed; which rows go does not depend on them any more."""
        if not self._checked.assignments:
            return []
        return [SchemaIs(table=self._table.uuid, schema_version=self._table.schema_version)]

    def _without(self, txn: Txn, written: Sequence[WrittenDelta], stale: set[str], task: int) -> list[WrittenDelta]:
        """Return the changes of all other files; segments with some of these are written anew without them."""
        kept: list[WrittenDelta] = []
        out = DeltaWriter(self._layout, txn=txn.id, task=task, attempt=0)
        for each in written:
            if stale.isdisjoint(target.file for target in each.targets):
                kept.append(each)
                continue
            changes = read_changes(self._layout.folder, each.file)
            others = changes.filter(
                pc.invert(pc.is_in(changes.column("file").cast(pa.string()), pa.array(sorted(stale), pa.string())))
            )
            if others.num_rows:
                kept.append(out.changes(each.partition, others))
        return kept


def _every(part: Part) -> bool:
    return True


def _is_of(files: Collection[str], part: Part) -> bool:
    return part.file.name in files


def newest_changes(snapshot: Snapshot) -> dict[str, int]:
    """Time of the newest change that the snapshot shows, by data file; 0: it has none."""
    changes = by_file(snapshot.deltas)
    return {
        part.file.name: max((delta.change_ts for delta in changes.get(part.file.name, ())), default=0)
        for part in snapshot.parts
    }


def check_no_ranges(snapshot: Snapshot, names: Iterable[str]) -> None:
    """Raises BadAlterError for a column whose range is kept of a part, though it is no key: it was the TTL's once.

    Queries leave parts out by ranges, and rows would expire by them, should it be the TTL's again.
    """
    table = snapshot.table
    assigned = {column.id: column.name for column in map(table.schema.find, names) if column is not None}
    for part in snapshot.parts if assigned else ():
        written = table.schema_of(part.schema_version)
        for column in () if written is None else written.columns:
            if column.id in assigned and column.name in part.ranges:
                raise BadAlterError(
                    "parts were written while rows expired by this column",
                    table=full_name(table),
                    column=assigned[column.id],
                    part=part.name,
                    hint="OPTIMIZE TABLE .. FINAL rewrites them, if there are several in a partition; or DELETE the "
                    "rows and INSERT them with the right values",
                )


def outdated_changes(
    written: Iterable[WrittenDelta], known: Mapping[str, PartName], seen: Mapping[str, int], now: Snapshot
) -> tuple[set[str], set[str]]:
    """The files whose found changes do not hold any more, and the files to search instead: the same ones where rows
    changed, those that have their blocks where they were replaced. Pure."""
    newest = newest_changes(now)
    targets = {target.file for each in written for target in each.targets}
    gone = {file for file in targets if file not in newest}
    changed = {file for file in targets - gone if newest[file] > seen[file]}
    lost = [known[file] for file in gone]
    heirs = {
        part.file.name
        for part in now.parts
        if part.file.name not in known and any(_overlap(part.name, name) for name in lost)
    }
    return gone | changed, heirs | changed


def _overlap(one: PartName, other: PartName) -> bool:
    return one.partition == other.partition and one.min_block <= other.max_block and other.min_block <= one.max_block


KINDS = (
    StatementKind(
        value=DeleteRows, forms=(Form(words="DELETE", parse=_parse_delete),), perform=change_rows, queue=Queue.CHANGE
    ),
    StatementKind(
        value=UpdateRows, forms=(Form(words="UPDATE", parse=_parse_update),), perform=change_rows, queue=Queue.CHANGE
    ),
)
