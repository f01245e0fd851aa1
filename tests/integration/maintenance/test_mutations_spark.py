"""Mutations over a real RocksDB, real files, a real Spark: the right rows, in order, beside merges, past a damaged
part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.maintenance.test_maintenance_spark import Node
from tests.waiting import wait_until
from tilth.catalog import StartMutation
from tilth.maintenance.mutate.task_spark import mutate_runner
from tilth.model.mutation import MutationKind, MutationState
from tilth.model.service import ServiceKind
from tilth.model.table import Column, Schema
from tilth.model.task import TaskKind
from tilth.model.types import Kind, Simple
from tilth.storage import data_folder
from tilth.warehouse import WorkerSession

pytestmark = pytest.mark.integration


class MutatingNode(Node):
    def __init__(self, folder: Path, session: WorkerSession) -> None:
        super().__init__(folder, session)
        self.worker.register(TaskKind.MUTATE, mutate_runner())

    def alter(
        self,
        kind: MutationKind,
        *,
        predicate: str = "",
        assignments: tuple[tuple[str, str], ...] = (),
        schema: Schema | None = None,
    ) -> int:
        start = StartMutation(
            table=self.table.uuid,
            from_version=self.definition().schema_version,
            kind=kind,
            command=f"{kind} {predicate}",
            predicate=predicate,
            assignments=assignments,
            schema=schema,
            next_column_id=4 if schema else 0,
        )
        txn = self.catalog.transactions.open("alter")
        txn.commit([start])
        self.manager.wake(self.table.uuid)
        return txn.id

    def state(self, entry: int) -> MutationState:
        return self.catalog.mutations.get(self.table.uuid, entry).state


@pytest.fixture
def node(tmp_path: Path, spark: WorkerSession) -> Iterator[MutatingNode]:
    node = MutatingNode(tmp_path, spark)
    yield node
    node.close()


def test_entries_of_every_kind_one_after_the_other_beside_merges(node: MutatingNode) -> None:
    for i in range(6):
        node.insert("monday" if i % 2 else "tuesday", rows=20)
    before, ts = node.rows(), node.catalog.parts.snapshot(node.table.uuid).ts
    node.start()
    deleted = node.alter(MutationKind.DELETE, predicate="k % 2 = 1")
    updated = node.alter(MutationKind.UPDATE, predicate="day = 'monday'", assignments=(("v", "concat(v, '!')"),))
    columns = (*node.definition().schema.columns, Column(id=4, name="w", type=Simple(Kind.INT64), default="7"))
    widened = node.alter(MutationKind.COLUMNS, schema=Schema(columns=columns))
    last = node.alter(MutationKind.DELETE, predicate="w = 7 AND k % 1000 = 0")
    wait_until(lambda: node.state(last) is MutationState.DONE)
    assert {node.state(each) for each in (deleted, updated, widened)} == {MutationState.DONE}
    expected = [(day, k, f"{v}!" if day == "monday" else v) for day, k, v in before if k % 2 == 0 and k % 1000]
    assert node.rows() == expected
    assert node.rows(at=ts) == before
    parts = node.catalog.parts.snapshot(node.table.uuid).parts
    assert {part.schema_version for part in parts} == {2}
    assert [run.error for run in node.manager.runs()] == [""] * len(node.manager.runs())
    assert node.catalog.transactions.unfinished() == []


def test_a_damaged_part_is_named_and_a_kill_frees_the_entries_behind_it(node: MutatingNode) -> None:
    node.catalog.tables.modify_settings(node.table.uuid, {"max_addition_bg_task_num": "0"}, ())
    parts = [node.insert(day, rows=20)[0] for day in ("monday", "tuesday", "sunday")]
    bad = parts[1]
    path = os.path.join(data_folder(node.root, node.table.uuid), bad.file.name)
    with open(path, "r+b") as file:
        file.seek(10)
        file.write(b"\xff" * 60)
    node.start()
    entry = node.alter(MutationKind.DELETE, predicate="k % 2 = 1")
    behind = node.alter(MutationKind.DELETE, predicate="day = 'nowhere'")
    wait_until(lambda: any(told.latest_failed_part == str(bad.name) for told in node.manager.mutations()))
    wait_until(lambda: node.manager.mutations()[0].parts_to_do == 1)
    told, _ = node.manager.mutations()
    assert bad.file.name in told.latest_fail_reason
    assert node.state(behind) is MutationState.PENDING
    sound = [part for part in node.catalog.parts.snapshot(node.table.uuid).parts if part.name != bad.name]
    assert [part.rows for part in sound] == [10, 10]
    assert node.service(ServiceKind.MUTATE).failures >= 1
    node.catalog.mutations.kill(node.table.uuid, entry, "a test")
    node.catalog.mutations.kill(node.table.uuid, behind, "a test")
    node.manager.wake(node.table.uuid)
    wait_until(lambda: node.service(ServiceKind.MUTATE).state == "idle")
    # The files of failed attempts are gone; the three old ones and the two new ones are left.
    wait_until(lambda: len(node.files()) == 5)
