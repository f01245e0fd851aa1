"""The catalog: its repositories over one store, wired.

Tests: tests/unit/membership/test_lost_histories.py, tests/unit/maintenance/cleaner/test_left_files.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilth.base.clock import Clock
from tilth.base.ids import IdSource
from tilth.catalog.commit.clock_check import ClockCheck
from tilth.catalog.commit.commit import CommitChecks, Committer
from tilth.catalog.commit.part_log import PartLog
from tilth.catalog.commit.transactions import Transactions
from tilth.catalog.commit.txn_handle import Later, Sweep, keep_files
from tilth.catalog.commit.visible_parts import VisiblePartsCache
from tilth.catalog.kv import Incarnation, KeyValue
from tilth.catalog.kv.dump import ByteSink, DumpHeader, write_dump
from tilth.catalog.offsets.labels import Labels
from tilth.catalog.offsets.loaded_files import LoadedFiles
from tilth.catalog.offsets.offsets import Offsets
from tilth.catalog.offsets.pipes import Pipes
from tilth.catalog.offsets.streams import Streams
from tilth.catalog.parts.history import History
from tilth.catalog.parts.parts import Parts
from tilth.catalog.parts.totals import TotalsCache
from tilth.catalog.parts.trash import Trash
from tilth.catalog.records import codec
from tilth.catalog.records.hybrid_clock import HybridClock
from tilth.catalog.records.keys import Space
from tilth.catalog.records.small_commit import read_all
from tilth.catalog.services.copy_notes import CopyNotes
from tilth.catalog.services.leases import Leases
from tilth.catalog.services.placements import Placements
from tilth.catalog.services.readers import Readers
from tilth.catalog.services.results import ResultFolders
from tilth.catalog.services.servers import Servers
from tilth.catalog.services.service_audit import AuditLog
from tilth.catalog.services.storages import Storages
from tilth.catalog.services.switches import SavedState, ServiceSwitches
from tilth.catalog.services.throttle import Throttle
from tilth.catalog.services.warehouses import Warehouses
from tilth.catalog.settings import CatalogSettings
from tilth.catalog.stats import CatalogStats, Counters
from tilth.catalog.tables.mutations import Mutations
from tilth.catalog.tables.secrets import SecretStore
from tilth.catalog.tables.tables import Tables
from tilth.model.delta import Delta
from tilth.model.part import DataFile, Part
from tilth.model.server import ServerRecord
from tilth.model.storage import DEFAULT_STORAGE, STORAGE_SETTING
from tilth.model.table import TableDef


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The files of one table, by name."""

    #: Named by entries and by deltas that have not ended: they stay as long as they are.
    live: dict[str, DataFile]
    #: Files in the trash, or of deltas that have ended: they may be removed at any time.
    leaving: dict[str, DataFile]


class Catalog:
    """Repositories of the catalog over one store. Opening it reads a handful of keys, however many parts there are;
    memory holds no more than what was read lately (commit/visible_parts.py).
    """

    def __init__(
        self,
        kv: KeyValue,
        clock: Clock,
        server: str,
        ids: IdSource,
        *,
        commit_attempts_max: int = CatalogSettings().commit_attempts_max,
        is_checking: bool = False,
        sweep: Sweep = keep_files,
    ) -> None:
        """`sweep` removes files of transactions that did not commit; by default they stay, as without a storage.
        `is_checking` checks every commit's invariants, as tests do: it reads a little and doubles the folding."""
        self._kv = kv
        self._counters = Counters()
        #: Id of the server's process that has it open: its transactions, leases and holds are known by it.
        self.server = server
        #: All ids that this process has had: it gets another when it joins anew.
        self._own_ids = {server}
        #: Source of transaction ids, block ids and commit timestamps.
        self.clock = HybridClock(clock)
        #: Check that this machine's clock agrees with the database's, or with the time that has passed.
        self.clock_check = ClockCheck(clock, server=lambda: self.server)
        shown = VisiblePartsCache(history=lambda: kv.incarnation)
        committer = Committer(
            clock,
            self.clock,
            kv,
            self._counters,
            shown,
            checks=CommitChecks(attempts_max=commit_attempts_max, clock=self.clock_check, is_checking=is_checking),
            server=lambda: self.server,
        )
        self.transactions = Transactions(
            clock, self.clock, kv, committer, self.clock_check, server=lambda: self.server, sweep=sweep
        )
        self._committer = committer
        self.tables = Tables(clock, kv, ids=ids)
        self.secrets = SecretStore(kv)
        self.parts = Parts(clock, self.clock, kv, shown, TotalsCache(history=lambda: kv.incarnation))
        self.history = History(clock, kv)
        self.labels = Labels(clock, kv)
        self.loaded_files = LoadedFiles(clock, kv)
        self.pipes = Pipes(clock, kv)
        self.streams = Streams(kv)
        self.mutations = Mutations(clock, kv)
        self.trash = Trash(clock, self.clock, kv)
        self.offsets = Offsets(clock, kv)
        self.leases = Leases(clock, kv)
        self.readers = Readers(clock, kv, ids=ids)
        self.services = ServiceSwitches(clock, kv)
        self.servers = Servers(clock, kv)
        self.placements = Placements(clock, kv)
        self.storages = Storages(clock, kv)
        self.copies = CopyNotes(clock, kv, server=lambda: self.server)
        self.warehouses = Warehouses(clock, kv)
        self.part_log = PartLog(clock, kv)
        self.state = SavedState(clock, kv)
        self.results = ResultFolders(clock, self.state)
        self.audit = AuditLog(clock, self.clock, kv)
        self.throttle = Throttle(clock, self.parts, self.services, self._counters)

    @property
    def incarnation(self) -> Incarnation:
        """The incarnation of the store; it changes with a failover that may have lost the last commits."""
        return self._kv.incarnation

    def serve_as(self, record: ServerRecord) -> None:
        """Use another id from now on: this process has joined the servers of the catalog, or joined them anew."""
        self.server, self.clock.number = record.id, record.number
        self._own_ids.add(record.id)
        self.transactions.serve_as(record.id)

    def is_own(self, server: str) -> bool:
        """Return whether this is the present id of this process, or a former one."""
        return server in self._own_ids

    def follow_storages(self, changed: Callable[[], None]) -> None:
        """Call `changed` when a commit finds that this process knows an outdated definition of a storage."""
        self._committer.when_storage_changed = changed

    def sweep_with(self, sweep: Sweep) -> None:
        """Let `sweep` remove leftover files from now on: a server's needs the storages, which the catalog names."""
        self.transactions.sweep = sweep

    def sweep_on(self, later: Later) -> None:
        """Let `later` run each removal of leftover files; before this call the transaction waits for it."""
        self.transactions.later = later

    def is_unused(self) -> bool:
        """Return whether the catalog has never had a server, a table or a transaction."""
        return not (self.servers.all() or self.tables.all() or self.tables.dropped() or self.transactions.newest_time())

    def stats(self) -> CatalogStats:
        return self._counters.stats()

    def dump(self, header: DumpHeader, sink: ByteSink, *, between: Callable[[], None]) -> int:
        """Write all records of one snapshot; return how many. `between` is called now and then, and may raise."""
        return write_dump(self._kv, header, sink, between=between)

    def close(self) -> None:
        self._kv.close()

    def storage_of(self, table: str) -> str | None:
        """Return the storage that the table with this uuid names, also of one that was dropped; None: no such table."""
        found = self.tables.by_id(table)
        if found is None:
            dropped = (each.relation for each in self.tables.dropped())
            found = next((each for each in dropped if each.uuid == table), None)
        return found.settings.get(STORAGE_SETTING, DEFAULT_STORAGE) if isinstance(found, TableDef) else None

    def stored_files(self, table: str) -> Iterator[tuple[Part | Delta, bool]]:
        """Yield each part and delta that has a file in the table's store, and whether that file may be removed at any
        time (`KnownFiles.leaving`). They are read from one snapshot, without all of them in memory at once.
        """
        with self._kv.view() as view:
            for entry in read_all(view, codec.ENTRIES, Space.ENTRY, table):
                if isinstance(entry, Part):
                    yield entry, False
            for item in read_all(view, codec.TRASH, Space.TRASH, table):
                yield item.part, True
            for space in (Space.DELTA, Space.ENDED_DELTA):
                for delta in read_all(view, codec.DELTAS, space, table):
                    yield delta, bool(delta.end_ts)

    def files_of(self, table: str) -> KnownFiles:
        """Return all files of a table that somebody may need."""
        # One snapshot for both lists: a part that is brought back from the trash between two would be in neither.
        with self._kv.view() as view:
            entries = read_all(view, codec.ENTRIES, Space.ENTRY, table)
            live = {entry.file.name: entry.file for entry in entries if isinstance(entry, Part)}
            trashed = (item.part for item in read_all(view, codec.TRASH, Space.TRASH, table))
            leaving = {part.file.name: part.file for part in trashed}
        for delta in self.parts.deltas(table, is_all=True):
            (leaving if delta.end_ts else live)[delta.file.name] = delta.file
        return KnownFiles(live={name: file for name, file in live.items() if name not in leaving}, leaving=leaving)
