"""Maintenance over a real RocksDB, real files, a real Spark: merges keep every row, collecting keeps every reader."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.waiting import wait_until
from tilth.base.clock import SystemClock
from tilth.base.ids import random_id
from tilth.base.rand import new_rng
from tilth.base.settings import read_settings
from tilth.catalog import Catalog, InsertPart, RocksKV
from tilth.maintenance import MaintenanceManager, ManagerSettings
from tilth.maintenance.manager.manager import StandIns
from tilth.maintenance.one_part.task_spark import merge_runner
from tilth.model.part import Part
from tilth.model.service import ServiceKind, ServiceStats
from tilth.model.table import Column, Schema, TableDef, Transform, TransformKind
from tilth.model.task import TaskKind
from tilth.model.txn import TxnOutput
from tilth.model.types import Kind, Simple
from tilth.storage import (
    PartFileCorruptError,
    clean_transaction,
    data_folder,
    layout_of,
    local_root,
    read_part,
    write_parts,
)
from tilth.warehouse import Dispatcher, EmbeddedWorker, WorkerSession

pytestmark = pytest.mark.integration
#: Tasks of these tests end before their transaction: none writes later.
GRACE_MS = 500
SCHEMA = Schema(
    columns=(
        Column(id=1, name="day", type=Simple(Kind.STRING)),
        Column(id=2, name="k", type=Simple(Kind.INT64)),
        Column(id=3, name="v", type=Simple(Kind.STRING)),
    )
)


class Node:
    """The rooms that maintenance stands on, wired, with a table `default.t`."""

    def __init__(self, folder: Path, session: WorkerSession) -> None:
        self.root = local_root(folder / "tables")
        self.clock = SystemClock()
        self.catalog = Catalog(RocksKV(str(folder / "catalog")), self.clock, "s1", random_id)
        self.worker = EmbeddedWorker(self.clock, session, name="here", memory_bytes=1 << 30)
        self.worker.register(TaskKind.MERGE, merge_runner())
        self.dispatcher = Dispatcher(self.clock, random_id, {"write": [self.worker]}, slots={"write": 4})
        self.manager = self.new_manager()
        self.table = self.catalog.tables.create(
            TableDef(
                uuid="",
                database="default",
                name="t",
                schema=SCHEMA,
                partition_by=(Transform(kind=TransformKind.IDENTITY, column="day"),),
                order_by=("k",),
                # Seen before they are hidden, so nothing goes by itself while a test counts.
                settings={"cleanup_delay_period": "1", "cleanup_delay_period_random_add": "0"},
            )
        )
        self._numbers = itertools.count()

    def new_manager(self) -> MaintenanceManager:
        """As a start of the server makes it."""
        return MaintenanceManager(
            self.clock,
            self.catalog,
            self.dispatcher,
            self.root,
            read_settings(ManagerSettings, {}),
            stand_ins=StandIns(rng=new_rng(1), grace_ms=GRACE_MS),
        )

    def start(self) -> None:
        self.worker.start()
        self.dispatcher.start()
        self.manager.start()

    def close(self) -> None:
        self.manager.stop()
        self.dispatcher.stop()
        self.worker.stop()
        self.catalog.close()

    def definition(self) -> TableDef:
        found = self.catalog.tables.by_id(self.table.uuid)
        assert isinstance(found, TableDef)
        return found

    def insert(self, day: str, rows: int = 50, *, start: int | None = None) -> list[Part]:
        """Rows in one part with the keys from `start` on; else with keys that no other insert has."""
        txn = self.catalog.transactions.open("insert", outputs=[TxnOutput(table=self.table.uuid, tasks=1)])
        start = next(self._numbers) * 1000 if start is None else start
        keys = [start + (i * 37) % rows for i in range(rows)]
        data = pa.table({"day": [day] * rows, "k": keys, "v": [f"v{key}" for key in keys]})
        written = write_parts(layout_of(self.definition(), self.root), data, txn=txn.id, task=0, attempt=0)
        updates = [InsertPart(table=self.table.uuid, written=each) for each in written]
        return [part for _, part in txn.commit(updates).parts]

    def rows(self, at: int | None = None) -> list[tuple[str, int, str]]:
        """What a reader sees, read from the files."""
        found: list[tuple[str, int, str]] = []
        for part in self.catalog.parts.snapshot(self.table.uuid, at=at).parts:
            table = read_part(data_folder(self.root, self.table.uuid), part.file)
            keys = table.column("k").to_pylist()
            assert keys == sorted(keys)
            found += zip(table.column("day").to_pylist(), keys, table.column("v").to_pylist(), strict=True)
        return sorted(found)

    def files(self) -> list[str]:
        return sorted(os.listdir(data_folder(self.root, self.table.uuid)))

    def count(self) -> int:
        return len(self.catalog.parts.snapshot(self.table.uuid).parts)

    def service(self, kind: ServiceKind) -> ServiceStats:
        return next(row for row in self.manager.stats() if row.service is kind)


@pytest.fixture
def node(tmp_path: Path, spark: WorkerSession) -> Iterator[Node]:
    node = Node(tmp_path, spark)
    yield node
    node.close()


def test_thirty_parts_are_merged_and_every_row_is_kept(node: Node) -> None:
    for i in range(30):
        node.insert("monday" if i % 3 else "tuesday")
    before, ts = node.rows(), node.catalog.parts.snapshot(node.table.uuid).ts
    assert len(before) == 1500
    node.start()
    wait_until(lambda: node.count() <= 4)
    assert node.rows() == before
    # The past reads as before: nothing was collected.
    assert node.rows(at=ts) == before
    # More parts come while it runs.
    for _ in range(8):
        node.insert("monday")
    wait_until(lambda: node.count() <= 4)
    assert len(node.rows()) == 1900
    assert [run.error for run in node.manager.runs()] == [""] * len(node.manager.runs())
    assert node.catalog.transactions.unfinished() == []


def test_collecting_waits_for_readers_and_then_frees_the_disk(node: Node) -> None:
    for _ in range(10):
        node.insert("monday")
    before = node.rows()
    snapshot = node.catalog.parts.snapshot(node.table.uuid)
    node.start()
    # The merge's row map goes right after its commit.
    wait_until(lambda: (node.count(), len(node.files())) == (1, 11))
    lease = node.catalog.readers.open(node.table.uuid, snapshot.ts, "a test", 600_000)
    given = {"old_parts_lifetime": "0", "ttl_for_trash_items": "0", "tablet_history_max_age_sec": "0"}
    node.catalog.tables.modify_settings(node.table.uuid, given, ())
    node.manager.wake()
    wait_until(lambda: "the oldest reader" in node.service(ServiceKind.GC).reason)
    assert node.manager.gc_now(node.table.uuid).moved == 0
    assert node.rows(at=snapshot.ts) == before
    node.catalog.readers.close(lease)
    wait_until(lambda: len(node.files()) == 1)
    assert node.rows() == before
    wait_until(lambda: len(list(node.catalog.parts.all_entries(node.table.uuid))) == 1)
    # A file goes before its record does.
    wait_until(lambda: node.catalog.trash.items(limit=1) == ([], None))


def test_a_damaged_part_is_named_and_stops_no_merge(node: Node) -> None:
    # Six on each side of the damaged one: as many as a merge of parts of one size needs, whatever the last bytes are.
    bad = [node.insert("bad")[0] for _ in range(13)]
    path = os.path.join(data_folder(node.root, node.table.uuid), bad[6].file.name)
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[:10] + b"\xff" * 60 + whole[70:])
    node.start()
    wait_until(lambda: node.service(ServiceKind.MERGE).failures >= 1)
    assert bad[6].file.name in node.service(ServiceKind.MERGE).last_exception
    for _ in range(10):
        node.insert("good")
    # One part of the good ones, the damaged part, and one of its neighbours on each side.
    wait_until(lambda: node.count() == 4)
    assert bad[6] in node.catalog.parts.snapshot(node.table.uuid).parts
    # After a restart it is known before anything was tried.
    again = node.new_manager()
    [row] = [row for row in again.explain_merge(node.table.uuid) if row.state == "damaged"]
    assert row.first_part == str(bad[6].name)
    assert "restore the file from a backup" in row.reason
    # From a backup, with another time and place on the disk.
    Path(path).unlink()
    Path(path).write_bytes(whole)
    node.manager.damage.recheck_now()
    assert not [row for row in node.manager.explain_merge(node.table.uuid) if row.state == "damaged"]
    assert node.manager.optimize(node.table.uuid, "bad", True).parts_after == 1
    assert len(node.rows()) == 23 * 50


def test_a_store_that_is_away_is_told_and_loses_nothing(node: Node) -> None:
    for _ in range(10):
        node.insert("monday")
    before = node.rows()
    folder = data_folder(node.root, node.table.uuid)
    os.rename(folder, f"{folder}.away")
    node.start()
    wait_until(lambda: node.service(ServiceKind.MERGE).state == "failed")
    assert "the folder of a table's files is not there" in node.service(ServiceKind.MERGE).reason
    os.rename(f"{folder}.away", folder)
    wait_until(lambda: node.count() == 1)
    assert node.rows() == before


def test_optimize_final_leaves_one_part_in_each_partition(node: Node) -> None:
    for i in range(6):
        node.insert("monday" if i % 2 else "tuesday", rows=10 * (i + 1))
    before = node.rows()
    node.worker.start()
    node.dispatcher.start()
    report = node.manager.optimize(node.table.uuid, None, True)
    assert (report.parts_before, report.parts_after) == (6, 2)
    assert report.rows_merged >= 210
    assert node.rows() == before


def _cut_in_four(node: Node) -> list[Part]:
    """Three parts with the same keys, whose merge is cut into four ranges."""
    node.catalog.tables.modify_settings(node.table.uuid, {"parquet_row_group_rows": "20"}, ())
    parts = [part for _ in range(3) for part in node.insert("monday", rows=400, start=0)]
    share = sum(part.bytes for part in parts) // 4 + 1
    node.catalog.tables.modify_settings(node.table.uuid, {"merge_task_bytes": str(share)}, ())
    node.worker.start()
    node.dispatcher.start()
    return parts


def test_a_large_merge_is_cut_into_key_ranges(node: Node) -> None:
    """About two seconds: a job of one task, and one of four."""
    sources = _cut_in_four(node)
    before = node.rows()
    report = node.manager.optimize(node.table.uuid, None, True)
    assert (report.parts_before, report.parts_after, report.merges) == (3, 1, 1)
    ranges = node.catalog.parts.visible(node.table.uuid, "monday")
    assert node.rows() == before
    assert len(ranges) == 4
    # Each key is three times there, and a cut may fall between its rows.
    folder = data_folder(node.root, node.table.uuid)
    keys = [read_part(folder, part.file).column("k").to_pylist() for part in ranges]
    assert all(one[-1] <= other[0] for one, other in itertools.pairwise(keys))
    assert (keys[0][0], keys[-1][-1]) == (0, 399)
    # The files follow from the numbers of the tasks; no row map is left.
    [txn] = {part.name.mutation for part in ranges}
    made = [f"{txn}-{task}.0-0.parquet" for task in range(4)]
    assert node.files() == sorted([*made, *(part.file.name for part in sources)])
    [event] = [event for event in node.catalog.part_log.recent(limit=100) if event.event == "merge"]
    assert (event.rows, event.sources) == (1200, 3)
    assert "cut into 4 key ranges, a task each" in event.reason
    assert node.manager.optimize(node.table.uuid, None, True).merges == 0


def test_one_range_that_fails_leaves_the_table_as_it_was(node: Node) -> None:
    """About two seconds. Three of four ranges write their files."""
    parts = _cut_in_four(node)
    path = Path(str(data_folder(node.root, node.table.uuid))) / parts[0].file.name
    footer = pq.read_metadata(path)
    column = footer.row_group(footer.num_row_groups - 1).column(2)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 8] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(PartFileCorruptError, match=parts[0].file.name):
        node.manager.optimize(node.table.uuid, None, True)
    assert node.catalog.parts.visible(node.table.uuid, "monday") == parts
    [txn] = node.catalog.transactions.unfinished()
    written = {name.partition(".")[0] for name in node.files() if name.startswith(f"{txn.id}-")}
    assert written >= {f"{txn.id}-{task}" for task in range(3)}
    # All of them are found by the record of the transaction.
    clean_transaction(node.root, txn)
    assert node.files() == sorted(part.file.name for part in parts)


def test_what_an_earlier_run_left_is_cleaned_by_name(node: Node, tmp_path: Path, spark: WorkerSession) -> None:
    kept = node.insert("monday")
    txn = node.catalog.transactions.begin("insert", outputs=[TxnOutput(table=node.table.uuid, tasks=1)])
    data = pa.table({"day": ["x"], "k": [1], "v": ["v"]})
    write_parts(layout_of(node.definition(), node.root), data, txn=txn.id, task=0, attempt=0)
    assert len(node.files()) == 2
    node.catalog.close()
    again = Node.__new__(Node)
    again.__dict__.update(node.__dict__)
    again.catalog = Catalog(RocksKV(str(tmp_path / "catalog")), node.clock, "s1", random_id)
    again.manager = MaintenanceManager(
        node.clock,
        again.catalog,
        node.dispatcher,
        node.root,
        read_settings(ManagerSettings, {}),
        stand_ins=StandIns(rng=new_rng(1)),
    )
    again.manager.start()
    try:
        assert again.files() == [part.file.name for part in kept]
        assert again.catalog.transactions.unfinished() == []
    finally:
        again.manager.stop()
        node.catalog = again.catalog
