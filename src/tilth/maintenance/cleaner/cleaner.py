"""Removal of files of transactions without a commit, of folders of dropped tables, and of old records.

Covers: tables past UNDROP, old records of finished transactions, part events, labels and ledgers. Does not cover:
transactions and their files (ended.py), parts that were replaced (gc/part_gc.py).
Always holds: a dropped table's record is removed before its folder, and a note makes sure that the folder follows;
while the clock is in doubt nothing is removed because of its age.

Tests: tests/unit/maintenance/test_several_servers.py, tests/unit/maintenance/cleaner/test_left_files.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.hybrid import pack
from tilth.base.logs import Log
from tilth.catalog import Catalog, TableNotFoundError
from tilth.maintenance.cleaner.current_replicas import current_root
from tilth.maintenance.cleaner.ended import GRACE_MS, EndedTxns
from tilth.maintenance.cleaner.left_results import LeftResults
from tilth.maintenance.settings import ManagerSettings
from tilth.model.server import COORDINATOR, hosts_all
from tilth.model.table import KafkaDef, full_name
from tilth.storage import Roots, drop_table_folder, parse_root

#: Dropped tables that one round forgets.
FORGET_BATCH = 10
#: Interval between two rounds of trimming.
TRIM_PERIOD_MS = 600_000
FINISHED_KEPT_MS = 86_400_000
#: Time for which records of lost transactions are kept. Meanwhile their files do not count as orphans, and rows can be
#: read from them (docs/operate/servers.md#a-failover-without-the-end-of-the-log).
LOST_KEPT_MS = 30 * 86_400_000
PART_LOG_KEPT_MS = 7 * 86_400_000
#: Retention of the sort key's range in events of the part log, for EXPLAIN MERGE over the past.
SORT_KEYS_KEPT_MS = 86_400_000
#: Retention of the records of ended servers.
SERVERS_KEPT_MS = 7 * 86_400_000
#: Retention of the labels of inserts (docs/policies/part-gc.md#records-that-are-trimmed).
LABEL_KEPT_MS = 16_800_000
#: Retention of the records of loaded files (docs/policies/part-gc.md#records-that-are-trimmed).
LOADED_FILES_KEPT_MS = 180 * 86_400_000
#: Retention and maximum number, by Kafka table, of ledger entries of single rounds; older ones are folded.
LEDGER_KEPT_MS = 86_400_000
LEDGER_KEPT_MAX = 10_000
#: The newest entries are not folded, whatever their number: who verifies the table has read its version shortly before.
LEDGER_SETTLED_MS = 600_000
#: Folders of tables whose records are going or gone.
_FOLDERS = "maintenance/folders"

_log = Log("maintenance")


class Cleaner:
    """One server's cleaner; `start` once, then `tick` now and then, from one thread."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        root: Roots,
        *,
        dropped_kept_ms: int,
        grace_ms: int = GRACE_MS,
        failover_grace_ms: int = int(ManagerSettings().failover_grace * 1000),
        hosts: Callable[[str], bool] = hosts_all,
    ) -> None:
        self._clock = clock
        self._catalog = catalog
        self._root = root
        self._hosts = hosts
        self._ended = EndedTxns(
            clock, catalog, root, grace_ms=grace_ms, failover_grace_ms=failover_grace_ms, hosts=hosts
        )
        self._left_results = LeftResults(clock, catalog)
        self._dropped_kept_ms = dropped_kept_ms
        #: Monotonic time of the last trimming.
        self._trimmed_at = -TRIM_PERIOD_MS / 1000
        #: Doubt about the clock that was logged last; empty: the clock is not in doubt.
        self._doubt = ""
        #: Number of dropped tables that were checked.
        self._forgotten = 0

    def start(self) -> int:
        """End what an earlier run left; return how many transactions."""
        return self._ended.start()

    def tick(self) -> None:
        """One round over transactions, dropped tables and old records. One that fails stops no other."""
        now_ms = self._clock.now_ms()
        self._ended.tick(now_ms)
        if not self._hosts(COORDINATOR) or self._is_clock_in_doubt():
            return
        over = [
            each
            for each in self._catalog.tables.dropped()
            if each.is_going or now_ms - each.dropped_ms >= self._dropped_kept_ms
        ]
        # Not always the same first ones: one that fails stops no other.
        turn = self._forgotten % max(1, len(over))
        for dropped in (over[turn:] + over[:turn])[:FORGET_BATCH]:
            uuid = dropped.relation.uuid
            self._guarded("forget_table", uuid, partial(self.forget_table, uuid))
        self._forgotten += len(over[:FORGET_BATCH])
        self._guarded("remove_folders", "-", self._remove_folders)
        self._guarded("remove_results", "-", partial(self._left_results.remove, self._guarded))
        if self._clock.monotonic() - self._trimmed_at >= TRIM_PERIOD_MS / 1000:
            self._trimmed_at = self._clock.monotonic()
            self._guarded("trim", "-", partial(self._trim, now_ms))
            self._guarded("fold_ledgers", "-", partial(self._fold_ledgers, now_ms))

    def _is_clock_in_doubt(self) -> bool:
        error = self._catalog.clock_check.removal_error()
        if error is None:
            self._doubt = ""
            return False
        if not self._doubt:
            _log.warning("removals_wait", reason=error)
        self._doubt = str(error)
        return True

    def forget_table(self, uuid: str) -> None:
        """End a dropped table for good: first its records, then its folder."""
        if uuid not in self._folders():
            text = self._root.of(uuid).text
            self._change_folders(lambda folders: folders | {uuid: text})
        try:
            self._catalog.tables.forget(uuid)
        except TableNotFoundError:
            # An UNDROP has just brought it back; `_remove_folders` sees that.
            _log.info("table_not_forgotten", cause_id=uuid)
        self._remove_folders()

    def _remove_folders(self) -> None:
        folders = self._folders()
        if not folders:
            return
        dropped = {each.relation.uuid for each in self._catalog.tables.dropped()}
        for uuid in folders:
            if uuid in dropped:
                continue
            self._guarded("remove_folder", uuid, partial(self._remove_folder, uuid))

    def _remove_folder(self, uuid: str) -> None:
        folders = self._folders()
        if self._catalog.tables.by_id(uuid) is None:
            # The note may come from a server that did not know of a new replica yet.
            drop_table_folder(current_root(self._catalog, parse_root(folders[uuid])), uuid)
            _log.info("table_folder_removed", cause_id=uuid)
        self._change_folders(lambda now: {each: root for each, root in now.items() if each != uuid})

    def _folders(self) -> dict[str, str]:
        """Return the tables whose folders are to go, and the root of each: nothing else knows it any more."""
        return _decoded(self._catalog.state.get(_FOLDERS))

    def _change_folders(self, step: Callable[[dict[str, str]], dict[str, str]]) -> None:
        def change(found: bytes | None) -> bytes:
            return msgspec.msgpack.encode(step(_decoded(found)))

        self._catalog.state.change(_FOLDERS, change)

    def _trim(self, now_ms: int) -> None:
        txns = self._catalog.transactions.trim_finished(pack(max(0, now_ms - FINISHED_KEPT_MS)))
        lost = self._catalog.transactions.lost.trim(max(0, now_ms - LOST_KEPT_MS))
        if lost:
            hint = "SYSTEM CHECK FILES lists their files as orphans from now on"
            _log.warning("lost_transactions_forgotten", count=lost, hint=hint)
        events = self._catalog.part_log.trim(max(0, now_ms - PART_LOG_KEPT_MS))
        self._catalog.part_log.forget_sort_keys(max(0, now_ms - SORT_KEYS_KEPT_MS))
        tables = {mutation.table for mutation in self._catalog.mutations.all()}
        mutations = sum(self._catalog.mutations.trim(table) for table in tables)
        labels = self._catalog.labels.trim(pack(max(0, now_ms - LABEL_KEPT_MS)))
        files = self._catalog.loaded_files.trim(pack(max(0, now_ms - LOADED_FILES_KEPT_MS)))
        self._catalog.servers.forget(max(0, now_ms - SERVERS_KEPT_MS))
        if txns or events or mutations or labels or files:
            _log.info(
                "records_trimmed", transactions=txns, events=events, mutations=mutations, labels=labels, files=files
            )

    def _fold_ledgers(self, now_ms: int) -> None:
        for relation in self._catalog.tables.all():
            if isinstance(relation, KafkaDef):
                self._guarded("fold_ledger", relation.uuid, partial(self._fold_ledger, relation, now_ms))

    def _fold_ledger(self, kafka: KafkaDef, now_ms: int) -> None:
        count = self._catalog.offsets.fold_ledger(
            kafka.uuid,
            before_ts=pack(max(0, now_ms - LEDGER_KEPT_MS)),
            settled_ts=pack(max(0, now_ms - LEDGER_SETTLED_MS)),
            kept_max=LEDGER_KEPT_MAX,
        )
        if count:
            _log.info("ledger_folded", cause_id=kafka.uuid, table=full_name(kafka), entries=count)

    def _guarded(self, action: str, cause_id: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (TilthError, OSError) as error:
            _log.warning(f"{action}_failed", cause_id=cause_id, reason=error)


def _decoded(found: bytes | None) -> dict[str, str]:
    return {} if found is None else msgspec.msgpack.decode(found, type=dict[str, str])
