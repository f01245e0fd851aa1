"""A table whose rows change, in a real catalog, with real files and the maintenance manager's real ops; no Spark.

Covers: writes as the rooms do them, one op at a time, what comes between files and commit, restarts and crashes, reads
of now and of the past against a model. Does not cover: what is done in which order (simulation/test_sequences.py).
Always holds: nothing sleeps and time stands still unless it is moved, so a run follows from its seed.

What runs in one Spark task elsewhere is called here by a stand-in for the session, in this process
(sequence_standins.py).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from tests.removals import watch_removals
from tests.sequence_standins import Died, InProcessWorker, LosingKV
from tests.simulation.sequence_model import SCHEMA, Fresh, Model, Row, Rows, Shape, definition, in_order, settings_of
from tilth.base.clock import Clock
from tilth.base.errors import RetryError, UnknownOutcomeError
from tilth.base.rand import new_rng
from tilth.base.settings import read_settings
from tilth.catalog import (
    AddDelta,
    Catalog,
    Committed,
    HidePartition,
    InsertPart,
    KeyValue,
    NoRowsSince,
    RestorePartition,
    RocksKV,
    TxnHandle,
    Update,
    rebase,
)
from tilth.maintenance import MaintenanceManager, ManagerSettings, sweep_transaction
from tilth.maintenance.kinds import OpKind, Prepared
from tilth.maintenance.manager.manager import StandIns
from tilth.maintenance.merge.policy.candidates import Effort
from tilth.maintenance.settings import DeltaSettings, FlushSettings
from tilth.maintenance.work.op import Op
from tilth.model.delta import PartSource, seen_of
from tilth.model.history import ancient_mark
from tilth.model.lease import ReaderLease
from tilth.model.part import ColumnRange, WrittenPart
from tilth.model.table import TableDef
from tilth.model.txn import Txn, TxnOutput
from tilth.storage import (
    CHANGE_DELETE,
    CHANGE_UPDATE,
    FILTER_EXTENSION,
    MAP_EXTENSION,
    OP_COLUMN,
    OP_DELETE,
    OP_UPSERT,
    UPSERT_TRIES_MAX,
    DeltaWriter,
    arrow_schema,
    data_folder,
    key_scope,
    layout_of,
    local_root,
    presence_name,
    read_source,
    resolve_all,
    sidecar_name,
    sources_of,
    upsert_lookup,
    value_name,
    write_rows,
)
from tilth.testing import Fault, ManualClock
from tilth.warehouse import Dispatcher

#: Columns that an UPDATE may change.
UPDATED = ("v", "w")
ARROW_SCHEMA = arrow_schema(SCHEMA, field_ids=False)
#: Attempts to rebase a change: as many as the rooms make.
CHANGE_TRIES_MAX = 20
#: Between two steps: so much that every op looks again.
STEP_SECONDS = 1.1
HOLD_MS = 10_000_000
#: Settings of a table that remove files as soon as they are not needed.
AT_ONCE = {
    "old_parts_lifetime": "0",
    "ttl_for_trash_items": "0",
    "cleanup_delay_period": "0",
    "cleanup_delay_period_random_add": "0",
}

Meant = Callable[[Row], bool]
Changed = Callable[[Row], Row]
#: A data file, an index in it, and what becomes of the row; None: it is deleted.
_Line = tuple[str, int, Row | None]


@dataclass(frozen=True, slots=True)
class Held:
    """A reader that holds a snapshot, and what it must go on seeing."""

    lease: ReaderLease
    rows: Rows


class SequenceWorld:
    """One table `default.t` and its model."""

    def __init__(
        self,
        folder: Path,
        shape: Shape,
        *,
        seed: int = 0,
        history: float = 3600.0,
        settings: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        workers: int = 1,
    ) -> None:
        self.shape = shape
        self.model = Model(shape)
        self.history = history
        self.manual = ManualClock()
        self.clock: Clock = clock or self.manual
        self.rng = new_rng(seed)
        self._seed = seed
        self.root = local_root(folder / "tables")
        self._kv_folder = str(folder / "catalog")
        self._workers = workers
        self._ids = count(1)
        self.uuid = self._new_id()
        self._open()
        watch_removals(self.root.uri, lambda: self.kv)
        given = {"tablet_history_max_age_sec": str(history), **settings_of(shape), **(settings or {})}
        self.catalog.tables.create(definition(self.uuid, shape, given))
        self.folder = data_folder(self.root, self.uuid)
        self.holds: list[Held] = []
        #: Number of times that each op did something, and of other events.
        self.counts: Counter[str] = Counter()
        #: Called at each failpoint that is passed.
        self.at: Callable[[str], None] = lambda _: None
        self._known: dict[tuple[str, ...], Rows] = {}
        self._forgotten = 0
        #: When maintenance committed: readers of then and a moment before must not notice.
        self._op_times: list[int] = []

    # --- the process ---

    def open_kv(self, folder: str) -> KeyValue:
        """RocksDB without a sync: processes die here, machines do not. A test may put another store in its place."""
        kv = RocksKV(folder, cache_bytes=1 << 20)
        kv._is_synced = False
        return kv

    def _open(self) -> None:
        self.kv = self.open_kv(self._kv_folder)
        self.faulty = LosingKV(self.kv, new_rng(self._seed))
        self.catalog = Catalog(self.faulty, self.clock, "s1", self._new_id, is_checking=True, sweep=self._sweep)
        self.dispatcher = Dispatcher(
            self.clock, self._new_id, {name: [InProcessWorker()] for name in ("write",)}, slots={"write": 8}
        )
        values = read_settings(ManagerSettings, {})
        settings = replace(
            values,
            is_enabled=self._workers > 1,
            workers=self._workers,
            polling_ms=20,
            flush=FlushSettings(threshold_secs=0),
            deltas=DeltaSettings(major_ratio_min=0.0),
        )
        self.manager = MaintenanceManager(
            self.clock,
            self.catalog,
            self.dispatcher,
            self.root,
            settings,
            stand_ins=StandIns(rng=new_rng(self._seed), memory=lambda: 0),
        )

    def _sweep(self, txn: Txn, *, keep: Collection[str]) -> None:
        self.faulty.check_alive()
        sweep_transaction(self.catalog, self.root, txn, keep=keep)

    def die(self) -> NoReturn:
        """The process ends in the middle of what it does, until `restart`."""
        self.faulty.is_dead = True
        raise Died

    def close(self) -> None:
        self.manager.stop()
        self.catalog.close()

    def restart(self, *, is_killed: bool = False) -> None:
        """The process ends, in order or not, and another one begins on the same folders."""
        if not is_killed:
            self.manager.stop()
        self.counts["restarts"] += 1
        self.catalog.close()
        self._open()
        # The manager's start does this before its thread begins.
        self.manager._cleaner.start()

    def _new_id(self) -> str:
        return f"{next(self._ids):032x}"

    @property
    def table(self) -> TableDef:
        found = self.catalog.tables.by_id(self.uuid)
        assert isinstance(found, TableDef)
        return found

    # --- writes ---

    def insert(self, batch: Sequence[Fresh], model: Model | None = None) -> None:
        """One commit; rows of a table with a unique key replace those that are there.

        `model`: of the writer, who is the only one with these keys; none: the table's.
        """
        table = self.table
        layout = layout_of(table, self.root)
        rows = pa.Table.from_pylist([fresh.row._asdict() for fresh in batch], schema=ARROW_SCHEMA)
        if self.shape.is_unique:
            ops = [OP_DELETE if fresh.is_delete else OP_UPSERT for fresh in batch]
            rows = rows.append_column(OP_COLUMN, pa.array(ops, pa.int8()))
        with self._work("insert", tasks=1 + UPSERT_TRIES_MAX) as work:
            written = write_rows(layout, rows, txn=work.id, task=0, attempt=0)
            updates = [InsertPart(table=self.uuid, written=part) for part in written]
            if self.shape.is_unique:
                attempt = partial(self._commit_upserts, work, table, written, updates)
                committed = rebase(work.id, attempt, tries=UPSERT_TRIES_MAX, busy=RetryError("refused for ever"))
            else:
                committed = work.commit(updates)
        model = model or self.model
        model.insert(batch)
        model.note(committed.commit_ts)

    def _commit_upserts(
        self,
        work: TxnHandle,
        table: TableDef,
        written: Sequence[WrittenPart],
        updates: Sequence[InsertPart],
        number: int,
    ) -> Committed:
        """With the older rows of these keys, looked for again when others were faster."""
        self.counts["upsert again"] += number > 0
        work.begin_try(number, [self.uuid])
        scope = key_scope(table, written)
        snapshot = self.catalog.parts.snapshot(self.uuid, partitions=scope)
        lookup = upsert_lookup(table, written, snapshot, root=self.root, txn=work.id, task=1 + number)
        changes = resolve_all(lookup.requests, attempt=0)
        added = [AddDelta(table=self.uuid, written=each, seen=lookup.seen) for each in changes]
        return work.commit([*updates, *added], [NoRowsSince(table=self.uuid, ts=lookup.ts, partitions=scope)])

    def change(
        self,
        deleted: Meant,
        updated: Meant = lambda _: False,
        changed: Changed = lambda row: row,
        *,
        columns: Collection[str] = UPDATED,
        model: Model | None = None,
    ) -> int:
        """DELETE and UPDATE of rows, in one commit: what is not deleted may be updated, in these columns.

        `model` as in `insert`. Returns how many rows.
        """

        def attempt(number: int) -> tuple[int, int]:
            self.counts["change again"] += number > 0
            work.begin_try(number, [self.uuid])
            updates, rows = self._changes(work.txn, number, deleted, updated, changed, columns)
            return rows, work.commit(updates).commit_ts if rows else 0

        with self._work("change", tasks=CHANGE_TRIES_MAX) as work:
            rows, ts = rebase(work.id, attempt, tries=CHANGE_TRIES_MAX, busy=RetryError("refused for ever"))
        if not rows:
            self.catalog.transactions.forget(work.id)
        model = model or self.model
        found = model.delete(deleted) + model.update(updated, changed)
        assert found == rows, f"{rows} rows were changed, not {found}"
        if rows:
            model.note(ts)
        return rows

    def drop(self, partition: str) -> Rows:
        """DROP PARTITION; returns the rows that were there."""
        [part, *_] = self.catalog.parts.visible(self.uuid, partition)
        value = part.values[0] if part.values else None
        gone = tuple(row for row in self.model.rows if value in (None, row.p))
        ts = self._commit(HidePartition(table=self.uuid, partition=partition))
        self.model.delete(lambda row: row in gone)
        self.model.note(ts)
        return gone

    def undrop(self, partition: str, rows: Rows) -> None:
        """Brings back what `drop`, the last change of rows, returned: as if it had never been away, in the past too."""
        ts = self._commit(RestorePartition(table=self.uuid, partition=partition))
        self.model.rows = (*self.model.rows, *rows)
        self.model.states[-1] = self.model.rows
        self.model.note(ts)

    def _commit(self, update: Update) -> int:
        with self.catalog.transactions.open("drop") as work:
            return work.commit([update]).commit_ts

    def _work(self, actor: str, *, tasks: int) -> TxnHandle:
        return self.catalog.transactions.open(actor, outputs=[TxnOutput(table=self.uuid, tasks=tasks)])

    def _changes(
        self, txn: Txn, task: int, deleted: Meant, updated: Meant, changed: Changed, columns: Collection[str]
    ) -> tuple[list[AddDelta], int]:
        snapshot = self.catalog.parts.snapshot(self.uuid)
        found: dict[str, list[_Line]] = {}
        seen: dict[str, list[PartSource]] = {}
        for source in sources_of(snapshot.table, snapshot.parts, snapshot.deltas):
            table, indexes = read_source(self.folder, source)
            lines: list[_Line] = []
            for values, index in zip(table.to_pylist(), indexes.tolist(), strict=True):
                row = Row(**values)
                if deleted(row):
                    lines.append((source.file.name, index, None))
                elif updated(row):
                    lines.append((source.file.name, index, changed(row)))
            if lines:
                found.setdefault(source.name.partition, []).extend(lines)
                seen.setdefault(source.name.partition, []).append(source)
        layout = layout_of(self.table, self.root)
        updates = [
            AddDelta(
                table=self.uuid,
                written=DeltaWriter(layout, txn=txn.id, task=task, attempt=0, first_n=n).changes(
                    partition, _change_table(lines, columns)
                ),
                seen=seen_of(seen[partition]),
            )
            for n, (partition, lines) in enumerate(found.items())
        ]
        return updates, sum(map(len, found.values()))

    # --- maintenance ---

    def step_time(self, seconds: float = STEP_SECONDS) -> None:
        """Moves the clock; the manager hears the news, and the cleaner has its turn."""
        self.manual.advance(seconds)
        self.manager.step()

    def op(self, kind: OpKind) -> Op:
        return next(op for op in self.manager._registry.get(self.uuid).ops if op.kind is kind)

    def run(self, kind: OpKind) -> str | None:
        """One run, if there is something to do after `step_time`; returns what was done. Raises what it failed with."""
        op = self.op(kind)
        stats = op.stats()
        self.faulty.settle()
        if not stats.is_runnable:
            return None
        prepared = op.prepare()
        if not isinstance(prepared, Prepared):
            return None
        before = set(self.files())
        try:
            told = op.perform(prepared)
        except UnknownOutcomeError:
            # It is asked for again by the next look.
            self.counts["outcome unknown"] += 1
            told = "nobody knows yet"
        finally:
            self.faulty.settle()
        self._op_times.append(self.catalog.parts.version(self.uuid).last_commit_ts)
        self.counts[kind.value] += 1
        self.counts[f"{kind.value} files removed"] += len(before.difference(self.files()))
        return told

    def merge_all(self) -> int:
        """Merges all parts of each partition; returns how many merges that took."""
        self.step_time()
        command = self.manager._registry.get(self.uuid).command()
        merges = 0
        for partition in self.catalog.parts.partitions(self.uuid):
            # 0: parts that others have taken are not waited for.
            try:
                merges += len(command.merges.optimize(partition, Effort.FINAL, deadline_ms=0))
            except UnknownOutcomeError:
                self.counts["outcome unknown"] += 1
            finally:
                self.faulty.settle()
        self.counts["merges"] += merges
        self._op_times.append(self.catalog.parts.version(self.uuid).last_commit_ts)
        return merges

    def collect_all(self) -> None:
        """All that is not needed now goes, whatever the past; readers' holds end, and it is known what has landed."""
        for op in self.manager._registry.get(self.uuid).ops:
            op.stats()
        for held in self.holds:
            self.catalog.readers.close(held.lease)
        self.holds.clear()
        for _ in range(4):
            self.step_time(60.0)
            self.manager.gc_now(self.uuid, is_forced=True)
        self._forgotten = self.catalog.clock.now()

    def lose_answer(self, *, has_landed: bool) -> None:
        """Nobody will know for a while whether the next commit has landed."""
        self.faulty.plan_commits(Fault.ANSWER_LOST if has_landed else Fault.REQUEST_LOST)

    # --- reading ---

    def hold(self) -> None:
        """A reader begins to read what is there now."""
        snapshot = self.catalog.parts.snapshot(self.uuid)
        lease = self.catalog.readers.open(self.uuid, snapshot.ts, "reader", HOLD_MS)
        self.holds.append(Held(lease, self.model.rows))

    def release(self) -> None:
        self.catalog.readers.close(self.holds.pop(0).lease)

    def files(self) -> list[str]:
        return os.listdir(self.folder) if os.path.isdir(self.folder) else []

    def rows(self, at: int | None = None) -> Rows:
        """What a reader finds."""
        snapshot = self.catalog.parts.snapshot(self.uuid, at=at)
        found: list[Row] = []
        there = set(self.files())
        for part, source in zip(
            snapshot.parts, sources_of(snapshot.table, snapshot.parts, snapshot.deltas), strict=True
        ):
            names = (source.file.name, *(delta.file.name for delta in source.deltas))
            gone = [name for name in names if name not in there]
            assert not gone, f"{gone} of {source.name} are gone at {at}"
            # Files never change, so what they say together is read once.
            if names not in self._known:
                self._known[names] = self._read(source, part.ranges)
            found += self._known[names]
        assert len(found) == snapshot.rows, f"{len(found)} rows at {at}, the catalog says {snapshot.rows}"
        return tuple(found)

    def _read(self, source: PartSource, ranges: Mapping[str, ColumnRange]) -> Rows:
        table, indexes = read_source(self.folder, source)
        rows = tuple(Row(**values) for values in table.to_pylist())
        assert len(set(indexes.tolist())) == len(rows)
        assert sorted(indexes.tolist()) == indexes.tolist()
        if not source.is_segment:
            keys = [
                tuple((getattr(row, name) is not None, getattr(row, name)) for name in self.shape.order_by)
                for row in rows
            ]
            assert keys == sorted(keys), f"{source.name} is not sorted"
        for name, known in ranges.items():
            for value in (getattr(row, name) for row in rows):
                assert value is None or known.low is None or known.low <= value <= known.high, (
                    source.name,
                    name,
                    value,
                )
        return rows

    def ahm(self) -> int:
        """The oldest time at which reads are allowed."""
        mark = ancient_mark(self.catalog.clock.now(), self.history)
        assert mark is not None
        return max(mark, self._forgotten)

    def check(self, *, past: int | None = None) -> None:
        """Now, what readers hold and so many times of the past, None: all, must be as the model says."""
        self._expect(None, self.model.rows)
        times = self.model.times_from(self.ahm(), self._op_times)
        if past is not None and len(times) > past:
            self.rng.shuffle(times)
            times = times[:past]
        for ts in times:
            self._expect(ts, self.model.at(ts))
        for held in self.holds:
            self._expect(held.lease.snapshot_ts, held.rows)

    def _expect(self, at: int | None, wanted: Rows) -> None:
        found, model = in_order(self.rows(at)), in_order(wanted)
        if found != model:
            more = [row for row in found if row not in model]
            missing = [row for row in model if row not in found]
            raise AssertionError(f"at {at}: more {_told(more)}, missing {_told(missing)}, {len(found)} rows")

    def check_files(self) -> None:
        """After `collect_all`: there is no file that nobody needs."""
        snapshot = self.catalog.parts.snapshot(self.uuid)
        parts = {part.file.name for part in snapshot.parts}
        wanted = parts | {delta.file.name for delta in snapshot.deltas}
        allowed = {sidecar_name(name, FILTER_EXTENSION) for name in parts}
        if self.counts["restarts"]:
            # A row map stays with its part when nobody was left to remove it after the commit.
            allowed |= {sidecar_name(name, MAP_EXTENSION) for name in parts}
        there = set(self.files())
        assert wanted <= there, f"missing: {sorted(wanted - there)}"
        assert there <= wanted | allowed, f"left: {sorted(there - wanted - allowed)}"
        assert not self.catalog.transactions.unfinished()
        assert not self.catalog.transactions.leftover_notes()


def _change_table(lines: Sequence[_Line], columns: Collection[str]) -> pa.Table:
    table: dict[str, Any] = {
        "file": [file for file, _, _ in lines],
        "row": pa.array([index for _, index, _ in lines], pa.int64()),
        "op": pa.array([CHANGE_UPDATE if row else CHANGE_DELETE for _, _, row in lines], pa.int8()),
    }
    if any(row for _, _, row in lines):
        for name in columns:
            column = SCHEMA.find(name)
            assert column is not None
            values = [getattr(row, name) if row else None for _, _, row in lines]
            table[value_name(column.id)] = pa.array(values, ARROW_SCHEMA.field(name).type)
            table[presence_name(column.id)] = pa.array([row is not None for _, _, row in lines])
    return pa.table(table)


def _told(rows: Sequence[tuple[Any, ...]]) -> str:
    return str([tuple(value for _, value in row) for row in rows[:5]])
