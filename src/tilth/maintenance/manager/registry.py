"""The tables that are maintained: each with its ops and what is remembered of it.

Covers: tables that come, change and go; their switches, settings and pending mutations. Does not cover: the ops, when
they are polled (manager.py).
Always holds: to register never waits for a table, and a step of a pass over all tables takes a bounded time; what is
read of a table counts before the next events are read, so that those are newer; a table that goes is cancelled first
and forgotten when nothing of it runs any more, and until then it is not registered again, so that no two ops believe
that its parts are theirs.

Tests: tests/unit/maintenance/manager/test_manager.py, tests/unit/maintenance/test_several_servers.py.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tilth.base.errors import RetryError, TilthError
from tilth.base.long_lived import LongLived
from tilth.catalog import Catalog, Leftovers, NotHostedError, TableNotFoundError, TableVersion
from tilth.maintenance.manager.decisions import DecisionLog
from tilth.maintenance.manager.table_ops import TableOps
from tilth.maintenance.table.watch import TableLeftovers, TableWatch
from tilth.maintenance.work.first_reads import FirstReads
from tilth.model.mutation import Mutation
from tilth.model.server import hosts_all
from tilth.model.service import ALL_TABLES, Switch
from tilth.model.table import Relation, TableDef, full_name

#: Tables that are read together, and so many at least.
PAGE_TABLES = 500
PAGE_TABLES_MIN = 16
#: Version of a table without commits, and what such tables have left over.
_UNUSED = TableVersion()
_NOTHING_LEFT = Leftovers(deltas=frozenset(), ended_deltas=frozenset(), trash=frozenset())


@dataclass(frozen=True, slots=True)
class _States:
    """The switches of all tables, and switches and pending mutations by table."""

    of_all: Sequence[Switch]
    switches: defaultdict[str, list[Switch]] = field(default_factory=lambda: defaultdict(list))
    mutations: defaultdict[str, list[Mutation]] = field(default_factory=lambda: defaultdict(list))


class Registry:
    """The tables of one manager. Any thread may query it; `refresh` and its results belong to the manager's thread."""

    def __init__(
        self,
        catalog: Catalog,
        tables: dict[str, TableOps],
        build: Callable[[TableWatch], TableOps],
        *,
        decisions: DecisionLog,
        woken: deque[str],
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
        #: Objects of which the tables are made.
        self.objects = LongLived()

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
        self._set_state(table, self._states(uuid, uuid))
        return table

    def refresh(
        self, now_ms: Callable[[], int], is_over: Callable[[], bool] = lambda: False
    ) -> Iterator[list[TableOps]]:
        """Take in new tables, changes of known ones, their switches and mutations, some tables at a step: as many as
        there is time for before `is_over`, and one at least.

        Yields those that are gone, or another server's now: they leave with `leave`. What is read of a table counts in
        the step that reads it, so that events that are reported between two steps are newer.
        """
        there: set[str] = set()
        after, limit = "", PAGE_TABLES
        while True:
            page = self._catalog.tables.some(after, limit=limit)
            done = self._take_in(page, there, now_ms, is_over)
            if done == len(page) < limit:
                break
            after = page[done - 1].uuid
            # The others are read again.
            limit = min(PAGE_TABLES, max(PAGE_TABLES_MIN, 2 * done))
            yield []
        gone: list[TableOps] = []
        for table in self.all():
            uuid = table.watch.uuid
            # It may have been made behind the pass.
            if uuid in there or (self._hosts(uuid) and self._catalog.tables.by_id(uuid) is not None):
                continue
            gone.append(table)
            if is_over():
                yield gone
                gone = []
        yield gone

    def refresh_one(self, uuid: str, now_ms: Callable[[], int]) -> TableOps | None:
        """Take in one table, new or known. Return it when it is gone."""
        relation = self._catalog.tables.by_id(uuid)
        known = self._tables.get(uuid)
        if not isinstance(relation, TableDef) or not self._hosts(uuid):
            return known
        if known is None:
            self._take_in([relation], set(), now_ms)
        elif self._known(uuid, relation, known.watch.version) is not None:
            self._set_state(known, self._states(uuid, uuid))
        return None

    def _take_in(
        self,
        relations: Sequence[Relation],
        there: set[str],
        now_ms: Callable[[], int],
        is_over: Callable[[], bool] = lambda: False,
    ) -> int:
        """Take in the tables among relations that follow each other in the catalog: new ones, and what has changed of
        known ones, until it is over; add those that are this server's to `there`. Return of how many relations. A few
        reads, whatever their number.
        """
        hosted = {each.uuid: each for each in relations if isinstance(each, TableDef) and self._hosts(each.uuid)}
        if not hosted:
            return len(relations)
        first, last = relations[0].uuid, relations[-1].uuid
        new = hosted.keys() - self._tables.keys()
        read_ms = now_ms()
        versions = self._catalog.parts.versions_among(first, last)
        leftovers = _NOTHING_LEFT
        if any(versions.get(uuid, _UNUSED).counter for uuid in new):
            # Before the versions that count: a table whose version has counted something knows of it.
            leftovers = self._catalog.parts.leftovers_among(first, last)
            read_ms = now_ms()
            versions = self._catalog.parts.versions_among(first, last)
        states = self._states(first, last)
        made: list[TableWatch] = []
        for uuid, definition in hosted.items():
            there.add(uuid)
            version = versions.get(uuid, _UNUSED)
            self._set_version(uuid, version, read_ms=read_ms)
            table = self._known(uuid, definition, version, leftovers, read_ms=read_ms)
            if table is not None:
                self._set_state(table, states)
                if uuid in new:
                    made.append(table.watch)
            if is_over():
                last = uuid
                break
        if made:
            self._first_reads.announce(made, among=[uuid for uuid in versions if uuid <= last])
            self.objects.add(len(made))
        return sum(each.uuid <= last for each in relations)

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
        self.objects.remove()

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

    def _states(self, first: str, last: str) -> _States:
        """Read the switches and the pending mutations of these two tables and of those between them."""
        states = _States(self._catalog.services.among(ALL_TABLES, ALL_TABLES))
        for switch in self._catalog.services.among(first, last):
            states.switches[switch.table].append(switch)
        for entry in self._catalog.mutations.pending_among(first, last):
            states.mutations[entry.table].append(entry)
        return states

    @staticmethod
    def _set_state(table: TableOps, states: _States) -> None:
        watch = table.watch
        watch.set_switches([*states.of_all, *states.switches.get(watch.uuid, ())])
        if watch.set_mutations(states.mutations.get(watch.uuid, ())):
            table.notice_all()
