"""Remover of what did not land: files of aborted and lost transactions and of tries that failed, folders of dropped
tables, old records.

Covers: the end of transactions without a commit, of tables past UNDROP, of finished transactions and part events.
Does not cover: parts that were replaced (gc/part_gc.py).
Always holds: a transaction's files go only after its record says that it can never commit, or landed without them, as
the note that came with its commit says (`transactions.unswept`); files are found by name;
a dropped table's record goes before its folder, and a note makes sure that the folder follows. A server leaves alone
what another one that lives works on; one of them, the steward, cleans up after those that are gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.hybrid import milliseconds, pack
from tilth.base.logs import Log
from tilth.catalog import Catalog, TableNotFoundError, TxnFinishedError, TxnNotFoundError
from tilth.maintenance.work.left_files import sweep_again
from tilth.model.server import STEWARD, hosts_all, server_of
from tilth.model.table import KafkaDef, full_name
from tilth.model.txn import Txn, TxnState, UnsweptTxn
from tilth.storage import Roots, away_reason, drop_table_folder, parse_root

#: A running transaction that nobody works on is lost after this.
LOST_AFTER_MS = 600_000
#: Between an abort and the removal: a task that is being killed may still write.
GRACE_MS = 15_000
#: Dropped tables that one round forgets.
FORGET_BATCH = 10
#: Between two rounds of trimming.
TRIM_PERIOD_MS = 600_000
FINISHED_KEPT_MS = 86_400_000
PART_LOG_KEPT_MS = 7 * 86_400_000
#: So long it is known that there was a server.
SERVERS_KEPT_MS = 7 * 86_400_000
#: So long an insert with the same label is known (docs/policies/part-gc.md#records-that-are-trimmed).
LABEL_KEPT_MS = 16_800_000
#: So long, and among so many of its Kafka table, a round has an entry of its own in the ledger; older ones are folded.
LEDGER_KEPT_MS = 86_400_000
LEDGER_KEPT_MAX = 10_000
#: Whatever their number, the newest entries are left alone: who verifies the table has read its version shortly before.
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
        hosts: Callable[[str], bool] = hosts_all,
    ) -> None:
        self._clock = clock
        self._catalog = catalog
        self._root = root
        self._hosts = hosts
        #: What was begun before is of an earlier process, unless it is of another server that lives.
        self._began = catalog.clock.now()
        self._dropped_kept_ms = dropped_kept_ms
        self._grace_ms = grace_ms
        #: When an aborted transaction was first seen.
        self._aborted_ms: dict[int, int] = {}
        #: When one that landed was first seen with files that nobody removes.
        self._unswept_ms: dict[int, int] = {}
        self._trimmed_ms = 0
        #: Dropped tables looked at so far.
        self._forgotten = 0
        self._lock = threading.Lock()

    def start(self) -> int:
        """End what an earlier run left; return how many transactions."""
        # First, for a transaction that begins meanwhile is of one that lives.
        unfinished = self._catalog.transactions.unfinished()
        unswept = self._catalog.transactions.unswept()
        living = self._others()
        left = [txn for txn in unfinished if txn.id < self._began and txn.server not in living]
        for txn in left:
            self._abort(txn.id, "the server ended before it committed")
            # Where its storage is away, later.
            self._guarded("clean_transaction", str(txn.id), partial(self._remove, txn))
        for each in unswept:
            # The tasks of a server that has died may write on elsewhere: what they may leave has its turn in `tick`.
            if each.txn.id < self._began and each.txn.server not in living and not each.may_write_on:
                self._guarded("sweep_transaction", str(each.txn.id), partial(self._sweep, each))
        return len(left)

    def tick(self) -> None:
        """One round over transactions, dropped tables and old records. One that fails stops no other."""
        now_ms = self._clock.now_ms()
        unfinished = self._catalog.transactions.unfinished()
        self._clean_transactions(unfinished, now_ms)
        self._guarded("sweep_transactions", "-", partial(self._sweep_transactions, now_ms))
        if not self._hosts(STEWARD):
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
        if now_ms - self._trimmed_ms >= TRIM_PERIOD_MS:
            self._trimmed_ms = now_ms
            self._guarded("trim", "-", partial(self._trim, now_ms))
            self._guarded("fold_ledgers", "-", partial(self._fold_ledgers, now_ms))

    def _clean_transactions(self, unfinished: Sequence[Txn], now_ms: int) -> None:
        live, unsettled = self._catalog.transactions.live(), self._catalog.transactions.unsettled()
        waiting: dict[str, str] = {}
        others = self._others() if unfinished else set()
        for txn in unfinished:
            if txn.server in others:
                continue
            is_own = txn.server == self._catalog.server or txn.id in live
            if not is_own and not self._hosts(STEWARD):
                continue
            if txn.state is TxnState.ABORTED and self._away(txn, waiting):
                continue
            work = partial(self._look_at, txn, now_ms, live=live, unsettled=unsettled)
            if not is_own and txn.state is TxnState.RUNNING and server_of(txn.server) is not None:
                work = partial(self._abort, txn.id, f"its server {txn.server} is gone")
            self._guarded("clean_transaction", str(txn.id), work)

    def _sweep_transactions(self, now_ms: int) -> None:
        """Remove what failed tries have left of transactions that landed and that nobody else does it for."""
        transactions = self._catalog.transactions
        transactions.forget_swept()
        # In this order: what has landed is live until it is swept.
        unswept, live, swept = transactions.unswept(), transactions.live(), transactions.swept()
        ids = {each.txn.id for each in unswept}
        self._unswept_ms = {txn: seen_ms for txn, seen_ms in self._unswept_ms.items() if txn in ids}
        left = [each for each in unswept if each.txn.id not in live | swept]
        others = self._others() if left else set()
        waiting: dict[str, str] = {}
        for each in left:
            is_own = each.txn.server == self._catalog.server
            if self._away(each.txn, waiting):
                continue
            if each.txn.server in others or not (is_own or self._hosts(STEWARD)):
                continue
            since_ms = self._unswept_ms.setdefault(each.txn.id, now_ms)
            if not each.may_write_on or now_ms - since_ms >= self._grace_ms:
                self._guarded("sweep_transaction", str(each.txn.id), partial(self._sweep, each))

    def _away(self, txn: Txn, known: dict[str, str]) -> bool:
        """Return whether a replica of its tables is away, for then no file of it is known to be gone; say so once."""
        for output in txn.outputs:
            if output.table not in known:
                storage = self._catalog.storage_of(output.table)
                reason = known[output.table] = "" if storage is None else away_reason(self._root.of(output.table))
                if reason:
                    _log.info("removals_wait", table=output.table, reason=reason)
        return any(known[output.table] for output in txn.outputs)

    def _others(self) -> set[str]:
        """Return the ids of other servers that live."""
        return {each.id for each in self._catalog.servers.live()} - {self._catalog.server}

    def forget_table(self, uuid: str) -> None:
        """End a dropped table for good: first its records, then its folder."""
        if uuid not in self._folders():
            text = self._root.of(uuid).text
            self._change_folders(lambda folders: folders | {uuid: text})
        try:
            self._catalog.tables.forget(uuid)
        except TableNotFoundError:
            # Somebody brought it back a moment ago; `_remove_folders` sees that.
            _log.info("table_not_forgotten", cause_id=uuid)
        self._remove_folders()

    def _look_at(self, txn: Txn, now_ms: int, *, live: set[int], unsettled: set[int]) -> None:
        if txn.state is TxnState.RUNNING:
            if txn.id in unsettled:
                self._abort(txn.id, "its work has failed, and the catalog could not be asked then")
            elif txn.id not in live and now_ms - milliseconds(txn.id) > LOST_AFTER_MS:
                self._abort(txn.id, f"nobody has worked on it for {LOST_AFTER_MS // 1000} s")
            return
        since_ms = self._aborted_ms.setdefault(txn.id, now_ms)
        if now_ms - since_ms >= self._grace_ms:
            self._remove(txn)

    def _abort(self, txn_id: int, reason: str) -> None:
        try:
            self._catalog.transactions.abort(txn_id, reason)
        except (TxnFinishedError, TxnNotFoundError) as error:
            # It was ended by its actor between the look and now.
            _log.info("abort_not_needed", cause_id=str(txn_id), reason=error)

    def _remove(self, txn: Txn) -> None:
        with self._lock:
            if self._catalog.transactions.resolve(txn.id) is not TxnState.ABORTED:
                return
            files = sweep_again(self._catalog, self._root, txn)
            self._catalog.transactions.forget(txn.id)
            self._aborted_ms.pop(txn.id, None)
        _log.info("transaction_cleaned", cause_id=str(txn.id), actor=txn.actor, files=files)

    def _sweep(self, unswept: UnsweptTxn) -> None:
        # The files of a table that is gone for good go with its folder, and nobody finds its storage any more.
        outputs = (each for each in unswept.txn.outputs if self._catalog.storage_of(each.table) is not None)
        txn = msgspec.structs.replace(unswept.txn, outputs=tuple(outputs))
        with self._lock:
            files = sweep_again(self._catalog, self._root, txn, keep=frozenset(unswept.keep))
            self._catalog.transactions.sweep_done(txn.id)
        _log.info("transaction_swept", cause_id=str(txn.id), actor=txn.actor, files=files)

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
            drop_table_folder(parse_root(folders[uuid]), uuid)
            _log.info("table_folder_removed", cause_id=uuid)
        self._change_folders(lambda now: {each: root for each, root in now.items() if each != uuid})

    def _folders(self) -> dict[str, str]:
        """Return the tables whose folders are to go, and the root of each: nothing else knows it any more."""
        return self._decoded_folders(self._catalog.state.get(_FOLDERS))

    def _decoded_folders(self, found: bytes | None) -> dict[str, str]:
        stored = {} if found is None else msgspec.msgpack.decode(found, type=dict[str, str] | list[str])
        # Of an older version, which had one root.
        return stored if isinstance(stored, dict) else {uuid: self._root.of(uuid).text for uuid in stored}

    def _change_folders(self, step: Callable[[dict[str, str]], dict[str, str]]) -> None:
        def change(found: bytes | None) -> bytes:
            return msgspec.msgpack.encode(step(self._decoded_folders(found)))

        self._catalog.state.change(_FOLDERS, change)

    def _trim(self, now_ms: int) -> None:
        txns = self._catalog.transactions.trim_finished(pack(max(0, now_ms - FINISHED_KEPT_MS)))
        events = self._catalog.part_log.trim(max(0, now_ms - PART_LOG_KEPT_MS))
        tables = {mutation.table for mutation in self._catalog.mutations.all()}
        mutations = sum(self._catalog.mutations.trim(table) for table in tables)
        labels = self._catalog.labels.trim(pack(max(0, now_ms - LABEL_KEPT_MS)))
        self._catalog.servers.forget(max(0, now_ms - SERVERS_KEPT_MS))
        if txns or events or mutations or labels:
            _log.info("records_trimmed", transactions=txns, events=events, mutations=mutations, labels=labels)

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
