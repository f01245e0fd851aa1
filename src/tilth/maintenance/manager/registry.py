"""The tables that are maintained: each with its ops and what is remembered of it.

Covers: tables that come, change and go; their switches, settings and pending mutations. Does not cover: the ops, when
they are polled (manager.py).
Always holds: to register never waits for a table; a table that goes is cancelled first and forgotten when nothing of it
runs any more, and until then it is not registered again, so that no two ops believe that its parts are theirs.

Tests: tests/unit/maintenance/manager/test_manager.py, tests/unit/maintenance/test_several_servers.py.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from tilth.base.errors import RetryError, TilthError
from tilth.catalog import Catalog, Leftovers, NotHostedError, TableNotFoundError, TableVersion
from tilth.maintenance.manager.decisions import DecisionLog
from tilth.maintenance.manager.table_ops import TableOps
from tilth.maintenance.table.watch import TableLeftovers, TableWatch
from tilth.maintenance.work.first_reads import FirstReads
from tilth.model.mutation import Mutation, MutationState
from tilth.model.server import hosts_all
from tilth.model.service import ALL_TABLES, Switch
from tilth.model.table import TableDef, full_name

#: Version of a table without commits.
_UNUSED = TableVersion()


class Registry:
    """The tables of one manager. Any thread may query it; `refresh` and its results belong to the manager's thread."""

    def __init__(
        self,
        catalog: Catalog,
        tables: dict[str, TableOps],
        build: Callable[[TableWatch], TableOps],
        decisions: DecisionLog,
        woken: deque[str],
        *,
        first_reads: FirstReads,
        hosts: Callable[[str], bool] = hosts_all,
    ) -> None:
        """`tables`: where they are kept, by uuid; `build` makes a table's ops; `woken`: each new table, and each in
        which something has changed, is added there; `hosts(uuid)`: whether a table is this server's.
        """
        self._catalog = catalog
        self._tables = tables
        self._build = build
        self._decisions = decisions
        self._woken = woken
        self._first_reads = first_reads
        self._hosts = hosts
        self._lock = threading.Lock()
        self._leaving: dict[str, TableOps] = {}

    def all(self) -> list[TableOps]:
        with self._lock:
            return list(self._tables.values())

    def known(self, uuid: str) -> list[TableOps]:
        """Return the ops of a table; none where it was not reported."""
        with self._lock:
            found = self._tables.get(uuid)
        return [] if found is None else [found]

    def get(self, uuid: str) -> TableOps:
        """Return the ops of a table, also of one that was not reported yet. Raises TableNotFoundError,
        NotHostedError where it is another server's, and RetryError (TABLE_MOVING) while its former ops are ending.
        """
        found = self._tables.get(uuid)
        if found is not None:
            return found
        relation = self._catalog.tables.by_id(uuid)
        if not isinstance(relation, TableDef):
            raise TableNotFoundError("no such table of rows", uuid=uuid)
        if not self._hosts(uuid):
            raise NotHostedError(table=full_name(relation), uuid=uuid)
        table = self._add(relation, self._catalog.parts.version(uuid))
        if table is None:
            raise RetryError.coded(
                "TABLE_MOVING",
                "the table is this server's again, and what ran for it when it left has not ended yet",
                table=full_name(relation),
                hint="try again in a few seconds",
            )
        self._refresh(table)
        return table

    def refresh(self, now_ms: int) -> list[TableOps]:
        """Take in new tables, changes of known ones, their switches and mutations.

        Returns those that are gone, or another server's now: they leave with `leave`.
        """
        # Four reads of the catalog, whatever the number of tables, and where some are new what they have left over.
        tables = (each for each in self._catalog.tables.all() if isinstance(each, TableDef))
        there = {each.uuid: each for each in tables if self._hosts(each.uuid)}
        switches: defaultdict[str, list[Switch]] = defaultdict(list)
        for switch in self._catalog.services.all():
            switches[switch.table].append(switch)
        pending: defaultdict[str, list[Mutation]] = defaultdict(list)
        for entry in self._catalog.mutations.all():
            if entry.state is MutationState.PENDING:
                pending[entry.table].append(entry)
        with self._lock:
            gone = [table for uuid, table in self._tables.items() if uuid not in there]
            new = there.keys() - self._tables.keys()
        # Before the versions: a table whose version has counted something knows of it.
        leftovers = self._catalog.parts.leftovers() if new else None
        versions = self._catalog.parts.versions()
        for uuid, definition in there.items():
            version = versions.get(uuid, _UNUSED)
            self._set_version(uuid, version, read_ms=now_ms)
            table = self._known(uuid, definition, version, leftovers, read_ms=now_ms)
            if table is not None:
                table.watch.set_switches([*switches[ALL_TABLES], *switches[uuid]])
                _set_mutations(table, pending[uuid])
        if new:
            found = (self._tables.get(uuid) for uuid in new)
            self._first_reads.announce((each.watch for each in found if each is not None), among=versions)
        return gone

    def refresh_one(self, uuid: str) -> TableOps | None:
        """Refresh one table that is known. Return it when it is gone."""
        table = self._tables.get(uuid)
        if table is None:
            return None
        relation = self._catalog.tables.by_id(uuid)
        if not isinstance(relation, TableDef) or not self._hosts(uuid):
            return table
        if self._known(uuid, relation, table.watch.version) is not None:
            self._refresh(table)
        return None

    def leave(self, table: TableOps) -> None:
        """Stop polling the table, and cancel its ops."""
        self._first_reads.forget(table.watch.uuid)
        with self._lock:
            self._tables.pop(table.watch.uuid, None)
            self._leaving[table.watch.uuid] = table
        table.cancel()

    def leaving(self) -> list[TableOps]:
        """Return the tables that have left and whose ops may still run."""
        with self._lock:
            return list(self._leaving.values())

    def forget(self, uuid: str) -> None:
        """Forget a table of which nothing runs any more."""
        with self._lock:
            self._leaving.pop(uuid, None)

    def _set_version(self, uuid: str, version: TableVersion, *, read_ms: int) -> None:
        """Note the version of a known table; where it has changed and no event says why, everything is refreshed."""
        known = self._tables.get(uuid)
        if known is not None and known.watch.set_version(version, read_ms=read_ms):
            known.notice_all()

    def _known(
        self,
        uuid: str,
        definition: TableDef,
        version: TableVersion,
        leftovers: Leftovers | None = None,
        *,
        read_ms: int = 0,
    ) -> TableOps | None:
        """Return the table, its definition up to date; none while it is leaving or cannot be registered."""
        known = self._tables.get(uuid)
        try:
            if known is None:
                return self._add(definition, version, leftovers, read_ms=read_ms)
            if known.watch.definition is not definition and known.watch.definition != definition:
                known.watch.redefine(definition)
                known.notice_all()
        except TilthError as error:
            # A storage that is not known here yet, for one: this table waits, the others do not.
            self._decisions.refused("", full_name(definition), str(error))
            return None
        return known

    def _add(
        self, definition: TableDef, version: TableVersion, leftovers: Leftovers | None = None, *, read_ms: int = 0
    ) -> TableOps | None:
        """Make a table without the lock; of two threads that make one the first wins. None while it is leaving."""
        with self._lock:
            if definition.uuid in self._leaving:
                return None
        watch = TableWatch(definition, version=version, read_ms=read_ms)
        if leftovers is not None:
            watch.leftovers = TableLeftovers(
                has_deltas=definition.uuid in leftovers.deltas,
                has_ended_deltas=definition.uuid in leftovers.ended_deltas,
                has_trash=definition.uuid in leftovers.trash,
            )
        made = self._build(watch)
        with self._lock:
            if definition.uuid in self._leaving:
                return None
            added = self._tables.setdefault(definition.uuid, made)
        added.watch.woken = self._woken.append
        self._woken.append(definition.uuid)
        return added

    def _refresh(self, table: TableOps) -> None:
        uuid = table.watch.uuid
        services = sorted({op.kind.traits.service for op in table.ops})
        found = [self._catalog.services.switch(of, service) for of in (ALL_TABLES, uuid) for service in services]
        table.watch.set_switches(switch for switch in found if switch is not None)
        _set_mutations(table, self._catalog.mutations.pending(uuid))


def _set_mutations(table: TableOps, pending: Iterable[Mutation]) -> None:
    if table.watch.set_mutations(pending):
        table.notice_all()
