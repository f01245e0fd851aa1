"""Compactions of deltas over a real RocksDB, real files, a real Spark: whatever they do, every row reads as before."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.waiting import wait_until
from tilth.base.clock import SystemClock
from tilth.base.ids import random_id
from tilth.base.rand import new_rng
from tilth.base.settings import read_settings
from tilth.catalog import AddDelta, Catalog, InsertPart, RocksKV
from tilth.maintenance import MaintenanceManager, ManagerSettings
from tilth.maintenance.deltas.task_spark import delta_runner
from tilth.maintenance.manager.manager import StandIns
from tilth.model.delta import Delta, DeltaKind, by_file
from tilth.model.part import Part
from tilth.model.service import ServiceKind, Switch, SwitchState
from tilth.model.snapshot import Snapshot
from tilth.model.table import Column, Schema, TableDef
from tilth.model.task import TaskKind
from tilth.model.txn import TxnOutput
from tilth.model.types import Kind, Simple
from tilth.storage import (
    DeltaWriter,
    TableLayout,
    data_folder,
    layout_of,
    local_root,
    read_deletes,
    read_source,
    sources_of,
    write_parts,
)
from tilth.warehouse import Dispatcher, EmbeddedWorker, WorkerSession

pytestmark = pytest.mark.integration
SCHEMA = Schema(
    columns=(Column(id=1, name="k", type=Simple(Kind.INT64)), Column(id=2, name="v", type=Simple(Kind.STRING)))
)
ROWS = 200
#: Values of the rows, by key.
Rows = dict[int, str]


class Node:
    """The rooms that maintenance stands on, wired, with a table `default.t` that nothing merges."""

    def __init__(self, folder: Path, session: WorkerSession, schema: Schema = SCHEMA, **settings: str) -> None:
        self.root = local_root(folder / "tables")
        self.clock = SystemClock()
        self.catalog = Catalog(RocksKV(str(folder / "catalog")), self.clock, "s1", random_id, is_checking=True)
        self.worker = EmbeddedWorker(self.clock, session, name="here", memory_bytes=1 << 30)
        self.worker.register(TaskKind.DELTA, delta_runner())
        self.dispatcher = Dispatcher(self.clock, random_id, {"write": [self.worker]}, slots={"write": 4})
        given = {"flush_threshold_secs": "0", "tablet_delta_store_major_compact_min_ratio": "0", **settings}
        self.manager = MaintenanceManager(
            self.clock,
            self.catalog,
            self.dispatcher,
            self.root,
            read_settings(ManagerSettings, given),
            stand_ins=StandIns(rng=new_rng(1)),
        )
        made = self.catalog.tables.create(
            TableDef(uuid="", database="default", name="t", schema=schema, order_by=("k",), next_column_id=5)
        )
        assert isinstance(made, TableDef)
        self.table = made
        off = Switch(table=self.table.uuid, service=ServiceKind.MERGE, state=SwitchState.STOPPED, since_ms=1)
        self.catalog.services.set(off)
        self.uuid = self.table.uuid

    def start(self) -> None:
        self.worker.start()
        self.dispatcher.start()
        self.manager.start()

    def close(self) -> None:
        self.manager.stop()
        self.dispatcher.stop()
        self.worker.stop()
        self.catalog.close()

    @property
    def layout(self) -> TableLayout:
        return layout_of(self.table, self.root)

    def insert(self, first: int) -> Part:
        """A part with ROWS keys from the first one on."""
        txn = self.catalog.transactions.open("insert", outputs=[TxnOutput(table=self.uuid, tasks=1)])
        keys = range(first, first + ROWS)
        texts = {name: [f"{name}{key}" for key in keys] for name in self.table.schema.names[1:]}
        rows = pa.table({"k": pa.array(keys, pa.int64()), **texts})
        [written] = write_parts(self.layout, rows, txn=txn.id, task=0, attempt=0)
        update = InsertPart(table=self.uuid, written=written)
        return txn.commit([update]).parts[0][1]

    def change(self, *changes: tuple[Part, int, str | None]) -> None:
        """Of each row of a part a new value, or None for a delete."""
        txn = self.catalog.transactions.open("change", outputs=[TxnOutput(table=self.uuid, tasks=1)])
        table = pa.table(
            {
                "file": [part.file.name for part, _, _ in changes],
                "row": pa.array([row for _, row, _ in changes], pa.int64()),
                "op": pa.array([int(value is not None) for _, _, value in changes], pa.int8()),
                "c2": pa.array([value for _, _, value in changes], pa.string()),
                "p2": [value is not None for _, _, value in changes],
            }
        )
        written = DeltaWriter(self.layout, txn=txn.id, task=0, attempt=0).changes("all", table)
        known = by_file(self.catalog.parts.deltas(self.uuid))
        seen = tuple((file, deltas[-1].change_ts) for file, deltas in known.items())
        update = AddDelta(table=self.uuid, written=written, seen=seen)
        txn.commit([update])

    def rows(self, snapshot: Snapshot | None = None) -> Rows:
        """What a reader sees, read from the files."""
        taken = snapshot or self.catalog.parts.snapshot(self.uuid)
        found: Rows = {}
        for source in sources_of(taken.table, taken.parts, taken.deltas):
            table, _ = read_source(data_folder(self.root, self.uuid), source)
            found |= dict(zip(table.column("k").to_pylist(), table.column("v").to_pylist(), strict=True))
        assert len(found) == taken.rows
        return found

    def open(self) -> list[Delta]:
        return self.catalog.parts.deltas(self.uuid)

    def is_compacted(self) -> bool:
        """Whether each part has one delta of a kind at most, and no update that is not in a column."""
        changes = by_file(self.open())
        sparse = {DeltaKind.CHANGES, DeltaKind.UPDATE}
        kinds = [[delta.kind for delta in deltas] for deltas in changes.values()]
        return all(sparse.isdisjoint(each) and len(set(each)) == len(each) for each in kinds)


@pytest.fixture
def node(tmp_path: Path, spark: WorkerSession) -> Iterator[Node]:
    node = Node(tmp_path, spark)
    yield node
    node.close()


def test_changes_are_compacted_and_every_row_reads_as_before(node: Node) -> None:
    one, two = node.insert(0), node.insert(ROWS)
    model = {key: f"v{key}" for key in range(2 * ROWS)}
    node.change((one, 3, None), (one, 4, "x"), (two, 5, "y"))
    node.change((one, 4, "z"), (two, 5, None), (two, 6, "w"))
    model |= {4: "z", ROWS + 6: "w"}
    del model[3], model[ROWS + 5]
    past = node.catalog.parts.snapshot(node.uuid)
    assert node.rows(past) == model
    node.start()
    wait_until(node.is_compacted)
    assert node.rows() == model
    # More changes come while it runs.
    for n in range(6):
        node.change((one, 10 + n, None), (two, 20 + n, f"again {n}"))
        del model[10 + n]
        model[ROWS + 20 + n] = f"again {n}"
        assert node.rows() == model
    wait_until(node.is_compacted)
    assert node.rows() == model
    # The past is read by the deltas of then.
    at_then = node.catalog.parts.snapshot(node.uuid, at=past.ts)
    assert [delta.kind for delta in at_then.deltas] == [DeltaKind.CHANGES, DeltaKind.CHANGES]
    assert len(node.rows(at_then)) == 2 * ROWS - 2
    assert [run.error for run in node.manager.runs()] == [""] * len(node.manager.runs())
    deletes = [delta for delta in node.open() if delta.kind is DeltaKind.DELETE]
    assert sum(len(read_deletes(node.layout.folder, delta, delta.targets[0].file)) for delta in deletes) == 8


def test_columns_are_written_by_a_spark_task_each(tmp_path: Path, spark: WorkerSession) -> None:
    more = tuple(Column(id=number, name=f"v{number}", type=Simple(Kind.STRING)) for number in (3, 4))
    node = Node(tmp_path, spark, Schema(columns=(*SCHEMA.columns, *more)), merge_task_bytes="1")
    one = node.insert(0)
    changes = {"file": [one.file.name] * 2, "row": [3, 4], "op": pa.array([1, 1], pa.int8())}
    txn = node.catalog.transactions.open("change", outputs=[TxnOutput(table=node.uuid, tasks=1)])
    values = {"c2": ["x", None], "p2": [True, False], "c4": ["y", "z"], "p4": [True, True]}
    written = DeltaWriter(node.layout, txn=txn.id, task=0, attempt=0).changes("all", pa.table(changes | values))
    txn.commit([AddDelta(table=node.uuid, written=written)])
    node.start()
    wait_until(lambda: sorted(delta.columns for delta in node.open()) == [(2,), (4,)])
    assert {delta.kind for delta in node.open()} == {DeltaKind.COLUMN}
    taken = node.catalog.parts.snapshot(node.uuid)
    [source] = sources_of(taken.table, taken.parts, taken.deltas)
    table, _ = read_source(data_folder(node.root, node.uuid), source)
    rows = [tuple(row.values()) for row in table.slice(2, 3).to_pylist()]
    assert rows == [(2, "v2", "v32", "v42"), (3, "x", "v33", "y"), (4, "v4", "v34", "z")]
    node.close()


def test_without_its_past_nothing_is_left_but_what_is_read(node: Node) -> None:
    one = node.insert(0)
    for n in range(3):
        node.change((one, n, None), (one, 50, f"{n}"))
    node.start()
    wait_until(node.is_compacted)
    before = node.rows()
    time.sleep(0.01)
    report = node.manager.gc_now(node.uuid, is_forced=True)
    assert report.removed >= 4
    read = {one.file.name, *(delta.file.name for delta in node.open())}
    assert set(os.listdir(node.layout.folder)) == read
    assert node.catalog.parts.deltas(node.uuid, is_all=True) == node.open()
    assert node.rows() == before
    assert len(before) == ROWS - 3
