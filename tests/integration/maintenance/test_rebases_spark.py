"""Changes that come while parts are merged are rebased by tasks of a real Spark, over real files.

Before the commit of a merge, rows of its sources are deleted and get new values. A model has the same rows.
Costs about 10 s: a dozen small jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.integration.maintenance.test_maintenance_spark import Node
from tilth.base.errors import CorruptError
from tilth.catalog import AddDelta, CommitOutcome, ReplaceParts, Requirement, Update
from tilth.maintenance.work import rebases
from tilth.maintenance.work.task_spark import rebase_runner
from tilth.model.delta import by_file, source_of
from tilth.model.task import TaskKind, TaskState
from tilth.model.txn import LeftoverNote, TxnOutput
from tilth.storage import CHANGE_DELETE, CHANGE_UPDATE, DeltaWriter, data_folder, layout_of, read_part, read_source
from tilth.warehouse import WorkerSession

pytestmark = pytest.mark.integration

PARTS, ROWS = 6, 40


class Changed(Node):
    """A node whose rows change before the commit of each merge; with a model of them, by key."""

    def __init__(self, folder: Path, session: WorkerSession) -> None:
        super().__init__(folder, session)
        self.worker.register(TaskKind.REBASE, rebase_runner())
        self.model: dict[int, str] = {}
        self.before: list[Callable[[], None]] = []
        self._rng = np.random.default_rng(3)
        self._commit = self.catalog.transactions.commit
        self.catalog.transactions.commit = self._watched  # type: ignore[method-assign]

    def fill(self) -> None:
        for _ in range(PARTS):
            self.insert("monday", ROWS)
        self.model = {key: value for _, key, value in self.rows()}

    def change(self, deletes: int, updates: int) -> None:
        """Delete rows and give others new values, of all parts, some of them again; in one commit."""
        snapshot = self.catalog.parts.snapshot(self.table.uuid)
        txn = self.catalog.transactions.open("change", outputs=[TxnOutput(table=self.table.uuid, tasks=1)])
        deltas, files, rows, ops, values = by_file(snapshot.deltas), [], [], [], []
        for part in snapshot.parts:
            keys = read_part(data_folder(self.root, self.table.uuid), part.file, ["k"])["k"].to_pylist()
            live = [(row, key) for row, key in enumerate(keys) if key in self.model]
            chosen = self._rng.permutation(len(live))[: deletes + updates].tolist()
            for number, index in enumerate(chosen):
                row, key = live[index]
                files.append(part.file.name)
                rows.append(row)
                ops.append(CHANGE_DELETE if number < deletes else CHANGE_UPDATE)
                values.append(f"{key} by {txn.id}")
                if number < deletes:
                    del self.model[key]
                else:
                    self.model[key] = values[-1]
        changes = {"file": files, "row": rows, "op": pa.array(ops, pa.int8()), "c3": values}
        with DeltaWriter(layout_of(self.definition(), self.root), txn=txn.id, task=0, attempt=0) as out:
            written = out.changes("monday", pa.table(changes))
        seen = tuple((file, deltas[file][-1].change_ts) for file in set(files) if file in deltas)
        txn.commit([AddDelta(table=self.table.uuid, written=written, seen=seen)])

    def found(self) -> dict[int, str]:
        """Return the rows that a reader sees, by key."""
        snapshot = self.catalog.parts.snapshot(self.table.uuid)
        changes, found = by_file(snapshot.deltas), list[tuple[int, str]]()
        for part in snapshot.parts:
            source = source_of(part, self.definition().schema, changes.get(part.file.name, ()))
            rows, _ = read_source(data_folder(self.root, self.table.uuid), source, ["k", "v"])
            found += zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True)
        assert len(found) == len(dict(found)) == snapshot.rows
        return dict(found)

    def rebase_states(self) -> list[TaskState]:
        return [task.state for task in self.dispatcher.tasks() if task.kind is TaskKind.REBASE]

    def _watched(
        self,
        txn_id: int,
        updates: Sequence[Update],
        requirements: Sequence[Requirement] = (),
        leftovers: LeftoverNote | None = None,
    ) -> CommitOutcome:
        if self.before and any(isinstance(update, ReplaceParts) for update in updates):
            self.before.pop(0)()
        return self._commit(txn_id, updates, requirements, leftovers)


@pytest.fixture
def node(tmp_path: Path, spark: WorkerSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Changed]:
    monkeypatch.setattr(rebases, "HERE_BYTES_MAX", -1)
    node = Changed(tmp_path, spark)
    node.fill()
    node.worker.start()
    node.dispatcher.start()
    yield node
    node.close()


@pytest.mark.parametrize("task_bytes", ["1 GiB", "1000"])
def test_no_change_is_lost_or_done_twice(node: Changed, task_bytes: str) -> None:
    node.catalog.tables.modify_settings(node.table.uuid, {"merge_task_bytes": task_bytes}, ())
    node.change(3, 3)
    node.before = [lambda: node.change(4, 9), lambda: node.change(5, 9), lambda: node.change(0, 20)]
    node.manager.optimize(node.table.uuid, "monday", True)
    assert node.found() == node.model
    assert (node.count() > 1) == (task_bytes == "1000")
    assert node.rebase_states() == [TaskState.DONE] * 3
    # Later changes of the result are laid over those that were rebased.
    node.change(2, 5)
    assert node.found() == node.model
    # All that is left in the folder belongs to somebody.
    snapshot = node.catalog.parts.snapshot(node.table.uuid)
    live = {part.file.name for part in snapshot.parts} | {delta.file.name for delta in snapshot.deltas}
    assert live <= set(node.files())
    assert [name for name in node.files() if name.endswith(".map")] == []


def test_a_task_without_its_row_map_gives_the_merge_up(node: Changed) -> None:
    def lose_the_map() -> None:
        node.change(1, 1)
        for name in node.files():
            if name.endswith(".map"):
                Path(data_folder(node.root, node.table.uuid), name).unlink()

    node.before = [lose_the_map]
    with pytest.raises(CorruptError, match=r"\.map"):
        node.manager.optimize(node.table.uuid, "monday", True)
    assert (node.count(), node.found()) == (PARTS, node.model)
    node.manager.optimize(node.table.uuid, "monday", True)
    assert (node.count(), node.found()) == (1, node.model)
