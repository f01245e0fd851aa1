"""Flushes and merges over a real RocksDB, real files, a real Spark, while others change the rows they read: nobody
aborts, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.integration.maintenance.test_maintenance_spark import Node
from tests.waiting import wait_until
from tilth.base.rand import new_rng
from tilth.base.settings import read_settings
from tilth.catalog import (
    AddDelta,
    CommitOutcome,
    InsertPart,
    PartsChangedError,
    PartsGoneError,
    ReplaceParts,
    Requirement,
    Update,
)
from tilth.maintenance import MaintenanceManager, ManagerSettings
from tilth.maintenance.deltas.task_spark import delta_runner
from tilth.maintenance.one_part.task_spark import flush_runner
from tilth.model.delta import seen_of
from tilth.model.task import TaskKind
from tilth.model.txn import LeftoverNote, TxnOutput
from tilth.storage import (
    CHANGE_DELETE,
    CHANGE_UPDATE,
    DeltaWriter,
    TableLayout,
    layout_of,
    read_source,
    sources_of,
    write_segments,
)
from tilth.warehouse import WorkerSession

pytestmark = pytest.mark.integration


class ChangingNode(Node):
    """Rows are known by their keys."""

    def __init__(self, folder: Path, session: WorkerSession) -> None:
        super().__init__(folder, session)
        self.worker.register(TaskKind.FLUSH, flush_runner())
        self.worker.register(TaskKind.DELTA, delta_runner())
        settings = read_settings(ManagerSettings, {"flush_threshold_secs": "0"})
        self.manager = MaintenanceManager(
            self.clock, self.catalog, self.dispatcher, self.root, replace(settings, workers=2)
        )
        self.conflicts = 0

    @property
    def layout(self) -> TableLayout:
        return layout_of(self.definition(), self.root)

    def insert_segment(self, keys: Sequence[int]) -> None:
        txn = self.catalog.transactions.open("insert", outputs=[TxnOutput(table=self.table.uuid, tasks=1)])
        data = pa.table({"day": ["monday"] * len(keys), "k": keys, "v": [f"v{key}" for key in keys]})
        written = write_segments(self.layout, data, txn=txn.id, task=0, attempt=0)
        updates = [InsertPart(table=self.table.uuid, written=each) for each in written]
        txn.commit(updates)

    def change(self, news: Mapping[int, str | None]) -> None:
        """New values of `v` by key, None deletes; looks for the rows again as often as somebody comes between."""
        txn = self.catalog.transactions.open("change", outputs=[TxnOutput(table=self.table.uuid, tasks=1)])
        for n in range(100):
            snapshot = self.catalog.parts.snapshot(self.table.uuid)
            sources = sources_of(snapshot.table, snapshot.parts, snapshot.deltas)
            found = [
                (source.file.name, int(row), news[key])
                for source in sources
                for table, rows in [read_source(self.layout.folder, source, ["k"])]
                for key, row in zip(table["k"].to_pylist(), rows, strict=True)
                if key in news
            ]
            assert len(found) == len(news)
            files, rows, values = zip(*found, strict=True)
            changes = pa.table(
                {
                    "file": pa.array(files).dictionary_encode(),
                    "row": pa.array(rows, pa.int64()),
                    "op": pa.array([CHANGE_DELETE if each is None else CHANGE_UPDATE for each in values], pa.int8()),
                    "c3": pa.array(values, pa.string()),
                    "p3": pa.array([each is not None for each in values]),
                }
            )
            delta = DeltaWriter(self.layout, txn=txn.id, task=0, attempt=0, first_n=n).changes("monday", changes)
            update = AddDelta(table=self.table.uuid, written=delta, seen=seen_of(sources))
            try:
                txn.commit([update])
            except (PartsChangedError, PartsGoneError):
                self.conflicts += 1
                continue
            return
        raise AssertionError("somebody always comes between")

    def values(self) -> dict[int, str]:
        """What a reader sees, by key."""
        snapshot = self.catalog.parts.snapshot(self.table.uuid)
        found: dict[int, str] = {}
        for source in sources_of(snapshot.table, snapshot.parts, snapshot.deltas):
            table, _ = read_source(self.layout.folder, source)
            keys = table["k"].to_pylist()
            assert source.is_segment or keys == sorted(keys)
            assert found.keys().isdisjoint(keys)
            found |= dict(zip(keys, table["v"].to_pylist(), strict=True))
        assert len(found) == snapshot.rows
        return found

    def segments(self) -> int:
        return self.catalog.parts.version(self.table.uuid).segments


@pytest.fixture
def node(tmp_path: Path, spark: WorkerSession) -> Iterator[ChangingNode]:
    node = ChangingNode(tmp_path, spark)
    yield node
    node.close()


def test_changes_that_come_before_the_commit_arrive(node: ChangingNode, monkeypatch: pytest.MonkeyPatch) -> None:
    real = node.catalog.transactions.commit
    coming: list[dict[int, str | None]] = []

    def commit(
        txn_id: int,
        updates: Sequence[Update],
        requirements: Sequence[Requirement] = (),
        leftovers: LeftoverNote | None = None,
    ) -> CommitOutcome:
        if coming and any(isinstance(update, ReplaceParts) for update in updates):
            node.change(coming.pop(0))
        return real(txn_id, updates, requirements, leftovers)

    monkeypatch.setattr(node.catalog.transactions, "commit", commit)
    node.worker.start()
    node.dispatcher.start()
    node.manager.step()
    for first in (200, 100, 0):
        node.insert_segment([first + (i * 37) % 100 for i in range(100)])
    node.change({5: None, 120: "early", 150: "early"})
    expected: dict[int, str | None] = {key: f"v{key}" for key in range(300)}
    expected |= {5: None, 120: "early", 150: "early"}
    coming += [{7: None, 120: "late"}, {8: "late", 250: None, 120: "latest"}]
    expected |= {7: None, 120: "latest", 8: "late", 250: None}
    report = node.manager.flush_now(node.table.uuid)
    assert (report.segments, report.parts, report.rows) == (3, 1, 299)
    assert (coming, node.segments(), node.count()) == ([], 0, 1)
    assert node.values() == {key: value for key, value in expected.items() if value is not None}
    # The same for a merge, which folds what the flush brought over.
    node.insert_segment([300, 301])
    node.manager.flush_now(node.table.uuid)
    coming += [{301: "late", 8: None}, {9: None}]
    expected |= {300: "v300", 301: "late", 8: None, 9: None}
    assert node.manager.optimize(node.table.uuid, final=True).merges == 2
    assert node.values() == {key: value for key, value in expected.items() if value is not None}
    assert node.catalog.parts.deltas(node.table.uuid) == []
    assert not [name for name in node.files() if name.endswith(".map")]
    assert node.catalog.transactions.unfinished() == []


def test_writers_flushes_and_merges_side_by_side(node: ChangingNode) -> None:
    rng = new_rng(5)
    node.start()
    expected: dict[int, str | None] = {}
    for turn in range(12):
        keys = [turn * 10 + (i * 7) % 10 for i in range(10)]
        node.insert_segment(keys)
        expected |= {key: f"v{key}" for key in keys}
        live = [key for key, value in expected.items() if value is not None]
        chosen = {live[int(rng.random() * len(live))] for _ in range(4)}
        news = {key: None if key % 3 == 0 else f"new{turn}" for key in chosen}
        node.change(news)
        expected |= news
        node.manager.wake(node.table.uuid)
    wait_until(lambda: node.segments() == 0)
    node.manager.optimize(node.table.uuid, final=True)
    assert node.values() == {key: value for key, value in expected.items() if value is not None}
    assert [run.error for run in node.manager.runs() if run.error] == []
