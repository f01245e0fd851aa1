"""DELETE and UPDATE over a catalog in memory: what is committed, what is looked into again, who is told.

The worker of these tests deletes or updates the rows whose `v` is at least LIMIT, and writes real segments.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.sql_world import SqlWorld, refused, table_of
from tilth.base.errors import ErrorKind
from tilth.catalog import AddDelta, HidePartition, ReplaceParts
from tilth.catalog.commit.commit_locks import LOCK_SECONDS
from tilth.model.delta import DeltaKind, Target, WrittenDelta
from tilth.model.part import DataFile, Part, PartName
from tilth.model.snapshot import Snapshot
from tilth.model.task import TaskSpec
from tilth.model.txn import TxnState
from tilth.query.snapshots.predicates import Compare, Comparison
from tilth.query.snapshots.protocol import ChangeResult, ChangeTask, CheckedExpressions, ExpressionsTask, WorkerTask
from tilth.statements.rows import delete_update
from tilth.storage import DeltaWriter, layout_of, read_source, sources_of, write_parts
from tilth.warehouse import TaskLostError

LIMIT = 10


class Worker:
    """Finds the rows of a ChangeTask; `meanwhile` runs after each look, before the answer."""

    def __init__(self, world: SqlWorld) -> None:
        self.world = world
        self.tasks: list[ChangeTask] = []
        self.where = CheckedExpressions(assignments=(), predicate="").where
        self.meanwhile: Callable[[int], None] = lambda _: None

    def __call__(self, spec: TaskSpec) -> bytes:
        task = msgspec.msgpack.decode(spec.payload, type=WorkerTask)
        if isinstance(task, ExpressionsTask):
            assert task.with_needs
            checked = CheckedExpressions(assignments=task.assignments, predicate=task.predicate, where=self.where)
            return msgspec.msgpack.encode(checked)
        assert isinstance(task, ChangeTask)
        self.tasks.append(task)
        written = tuple(found(task))
        self.meanwhile(len(self.tasks))
        return msgspec.msgpack.encode(ChangeResult(written=written))

    def looked_into(self) -> list[list[str]]:
        """The parts of each look."""
        return [[str(part.name) for part in task.snapshot.parts] for task in self.tasks]


def found(task: ChangeTask) -> list[WrittenDelta]:
    """A segment for each partition."""
    layout = layout_of(task.snapshot.table, task.root)
    by_partition: dict[str, list[tuple[str, int]]] = {}
    sources = sources_of(task.snapshot.table, task.snapshot.parts, task.snapshot.deltas)
    for source in sources:
        table, rows = read_source(layout.folder, source)
        for row in rows[pc.greater_equal(table.column("v"), LIMIT).to_numpy()]:
            by_partition.setdefault(source.name.partition, []).append((source.file.name, int(row)))
    return [
        DeltaWriter(layout, txn=task.txn, task=task.first_task, attempt=0, first_n=n).changes(
            partition, changed(places, task)
        )
        for n, (partition, places) in enumerate(sorted(by_partition.items()))
    ]


def changed(places: list[tuple[str, int]], task: ChangeTask) -> pa.Table:
    columns: dict[str, pa.Array] = {
        "file": pa.array([file for file, _ in places]),
        "row": pa.array([row for _, row in places], pa.int64()),
        "op": pa.array([1 if task.assignments else 0] * len(places), pa.int8()),
    }
    if task.assignments:
        columns["c3"] = pa.array(["x"] * len(places))
    return pa.table(columns)


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    made = SqlWorld(tmp_path)
    made.run("CREATE TABLE t (p Int64, v Int64, s String) ENGINE = MergeTree PARTITION BY p ORDER BY v")
    made.run("INSERT INTO t VALUES (1, 1, 'a'), (1, 11, 'b'), (2, 2, 'c'), (2, 12, 'd')")
    made.run("INSERT INTO t VALUES (1, 13, 'e'), (2, 3, 'f')")
    return made


@pytest.fixture
def worker(world: SqlWorld) -> Worker:
    made = Worker(world)
    world.dispatch.answer = made
    return made


def shown(world: SqlWorld) -> Snapshot:
    return world.catalog.parts.snapshot(table_of(world).uuid)


def rows_now(world: SqlWorld) -> list[tuple[object, ...]]:
    snapshot = shown(world)
    layout = layout_of(snapshot.table, world.engine._services.root)
    found = []
    for source in sources_of(snapshot.table, snapshot.parts, snapshot.deltas):
        found += [tuple(row.values()) for row in read_source(layout.folder, source)[0].to_pylist()]
    return sorted(found)


def merge(world: SqlWorld, partition: str) -> None:
    """All parts of the partition become one."""
    snapshot = shown(world)
    layout = layout_of(snapshot.table, world.engine._services.root)
    parts = [part for part in snapshot.parts if part.name.partition == partition]
    sources = sources_of(snapshot.table, parts, snapshot.deltas)
    rows = pa.concat_tables([read_source(layout.folder, source)[0] for source in sources])
    txn = world.catalog.transactions.open("merge")
    [written] = write_parts(layout, rows, txn=txn.id, task=0, attempt=0)
    seen = tuple((source.file.name, source.change_ts) for source in sources)
    names = tuple(part.name for part in parts)
    update = ReplaceParts(table=snapshot.table.uuid, sources=names, written=written, seen=seen)
    txn.commit([update])


def states(world: SqlWorld) -> list[TxnState]:
    """Of the statements that changed rows, or tried to."""
    recent = world.catalog.transactions.recent(50)
    return [txn.state for txn in recent if txn.actor.startswith(("delete", "update"))]


def test_rows_are_deleted_in_one_commit(world: SqlWorld, worker: Worker) -> None:
    before, version = shown(world), world.catalog.parts.version(table_of(world).uuid).counter
    answer = world.run("DELETE FROM t WHERE v >= 10")
    assert (answer.message, answer.rows_written, answer.parts_read) == ("deleted from default.t: 3 rows", 3, 4)
    assert rows_now(world) == [(1, 1, "a"), (2, 2, "c"), (2, 3, "f")]
    assert shown(world).parts == before.parts
    assert world.catalog.parts.version(table_of(world).uuid).counter == version + 1
    assert (world.catalog.readers.list(), world.catalog.transactions.unfinished()) == ([], [])
    assert ("wake", table_of(world).uuid) in world.maintenance.calls
    assert world.catalog.audit.recent(1)[0].outcome == "done: deleted from default.t: 3 rows"
    assert world.rows("SELECT partition, kind, deleted_rows, updated_rows, parts, active FROM system.deltas") == [
        ("1", "changes", 2, 0, 2, True),
        ("2", "changes", 1, 0, 1, True),
    ]
    assert world.rows("SELECT sum(rows), sum(deleted_rows) FROM system.parts") == [(3, 3)]
    assert world.rows("SELECT rows, deleted_rows, deltas, parts FROM system.partitions") == [(1, 2, 1, 2), (2, 1, 1, 2)]


def test_rows_get_new_values(world: SqlWorld, worker: Worker) -> None:
    answer = world.run("UPDATE t SET S = 'x' WHERE v >= 10")
    assert (answer.message, answer.rows_written) == ("updated in default.t: 3 rows", 3)
    assert [row for row in rows_now(world) if row[2] == "x"] == [(1, 11, "x"), (1, 13, "x"), (2, 12, "x")]
    assert worker.tasks[0].assignments == (("s", "'x'"),)
    assert world.rows("SELECT sum(updated_rows), max(columns) FROM system.deltas") == [(3, ["s"])]


def test_what_the_ranges_rule_out_is_not_looked_into(world: SqlWorld, worker: Worker) -> None:
    worker.where = Compare("v", Comparison.GREATER_OR_EQUAL, LIMIT)
    assert world.run("DELETE FROM t WHERE v >= 10").rows_written == 3
    assert [len(parts) for parts in worker.looked_into()] == [3]
    world.run("DELETE FROM t WHERE v >= 10", settings={"prune_parts": "0"})
    assert [len(parts) for parts in worker.looked_into()] == [3, 4]


def test_nothing_that_matches_is_no_commit(world: SqlWorld, worker: Worker) -> None:
    world.run("DELETE FROM t WHERE v >= 10")
    version = world.catalog.parts.version(table_of(world).uuid)
    assert world.run("DELETE FROM t WHERE v >= 10").message == "deleted from default.t: 0 rows"
    assert world.catalog.parts.version(table_of(world).uuid) == version
    assert states(world) == [TxnState.ABORTED, TxnState.FINISHED]
    worker.where = Compare("v", Comparison.GREATER, 1_000)
    assert world.run("UPDATE t SET s = 'x' WHERE v > 1000").rows_written == 0
    assert (len(states(world)), len(worker.tasks)) == (2, 2)


def test_only_a_part_that_changed_meanwhile_is_looked_into_again(world: SqlWorld, worker: Worker) -> None:
    def other(look: int) -> None:
        if look == 1:
            worker.meanwhile = lambda _: None
            table, snapshot = table_of(world), shown(world)
            [part] = [part for part in snapshot.parts if part.name.partition == "1" and part.rows == 2]
            layout = layout_of(table, world.engine._services.root)
            txn = world.catalog.transactions.open("other")
            gone = pa.table({"file": [part.file.name], "row": [1], "op": pa.array([0], pa.int8())})
            written = DeltaWriter(layout, txn=txn.id, task=0, attempt=0).changes("1", gone)
            update = AddDelta(table=table.uuid, written=written)
            txn.commit([update])

    worker.meanwhile = other
    assert world.run("UPDATE t SET s = 'x' WHERE v >= 10").rows_written == 2
    assert rows_now(world) == [(1, 1, "a"), (1, 13, "x"), (2, 2, "c"), (2, 3, "f"), (2, 12, "x")]
    first, second = worker.looked_into()
    assert (len(first), len(second)) == (4, 1)
    assert worker.tasks[1].first_task == delete_update.TASKS_MAX + 1


def test_what_has_come_of_merged_parts_is_looked_into_and_new_rows_are_not(world: SqlWorld, worker: Worker) -> None:
    def other(look: int) -> None:
        if look == 1:
            merge(world, "1")
            world.run("INSERT INTO t VALUES (1, 99, 'new'), (2, 99, 'new')")

    worker.meanwhile = other
    assert world.run("UPDATE t SET s = 'x' WHERE v >= 10").rows_written == 3
    assert [row for row in rows_now(world) if row[2] in ("x", "new")] == [
        (1, 11, "x"),
        (1, 13, "x"),
        (1, 99, "new"),
        (2, 12, "x"),
        (2, 99, "new"),
    ]
    merged = [part for part in shown(world).parts if part.name.level == 1]
    assert worker.looked_into()[1:] == [[str(part.name) for part in merged]]


def test_rows_that_are_dropped_meanwhile_need_nothing(world: SqlWorld, worker: Worker) -> None:
    def drop(look: int) -> None:
        txn = world.catalog.transactions.open("drop")
        update = HidePartition(table=table_of(world).uuid, partition="1")
        txn.commit([update])

    worker.meanwhile = drop
    assert world.run("DELETE FROM t WHERE v >= 10").rows_written == 1
    assert (len(worker.tasks), rows_now(world)) == (1, [(2, 2, "c"), (2, 3, "f")])

    def truncate(look: int) -> None:
        world.run("TRUNCATE TABLE t")

    worker.meanwhile = truncate
    world.run("INSERT INTO t VALUES (1, 50, 'y')")
    assert world.run("DELETE FROM t WHERE v >= 10").rows_written == 0


def test_it_ends_when_others_are_always_faster(world: SqlWorld, worker: Worker) -> None:
    def take_longer_than_the_lock_lasts(_: int) -> None:
        world.clock.advance(LOCK_SECONDS)
        merge(world, "1")

    worker.meanwhile = take_longer_than_the_lock_lasts
    before = rows_now(world)
    error = refused(world, "UPDATE t SET s = 'x' WHERE v >= 10")
    assert (error.code, error.kind) == ("ROWS_BUSY", ErrorKind.RETRY)
    assert len(worker.tasks) == delete_update.TRIES_MAX
    assert rows_now(world) == before
    assert states(world) == [TxnState.ABORTED]
    assert world.catalog.readers.list() == []


def test_it_begins_anew_when_columns_change_meanwhile(world: SqlWorld, worker: Worker) -> None:
    def alter(look: int) -> None:
        if look == 1:
            world.run("ALTER TABLE t ADD COLUMN n Int64")
            world.run("KILL MUTATION WHERE table = 't'")

    worker.meanwhile = alter
    error = refused(world, "UPDATE t SET s = 'x' WHERE v >= 10")
    # Nobody rewrites parts here: the second try meets what the first one has not.
    assert (error.code, error.kind) == ("COLUMNS_PENDING", ErrorKind.RETRY)
    assert "was killed" in error.hint
    assert [task.snapshot.table.schema_version for task in worker.tasks] == [1, 2]
    assert states(world) == [TxnState.ABORTED] * 2
    assert world.run("DELETE FROM t WHERE v >= 10").rows_written == 3


def test_an_update_waits_for_an_alter_and_names_it(world: SqlWorld, worker: Worker) -> None:
    world.run("ALTER TABLE t RENAME COLUMN s TO note")
    [entry] = world.catalog.mutations.pending(table_of(world).uuid)
    started = world.clock.monotonic()
    error = refused(world, "UPDATE t SET note = 'x' WHERE v >= 10", {"mutations_wait_timeout_seconds": "3"})
    assert (error.code, error.kind, error.facts["mutation"]) == ("COLUMNS_PENDING", ErrorKind.RETRY, str(entry.id))
    assert 3 <= world.clock.monotonic() - started < 4
    assert world.run("DELETE FROM t WHERE v >= 13").rows_written == 3
    assert worker.tasks[-1].snapshot.table.schema.names == ("p", "v", "note")
    sleep = world.clock.sleep

    def finishing(seconds: float) -> None:
        sleep(seconds)
        world.run(f"KILL MUTATION '{entry.id}'")

    world.clock.sleep = finishing  # type: ignore[method-assign]
    # It has waited, and found nothing to do.
    assert world.run("UPDATE t SET note = 'x' WHERE v >= 10").rows_written == 0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("UPDATE t SET p = 1 WHERE true", "BAD_ALTER"),
        ("UPDATE t SET v = 1 WHERE true", "BAD_ALTER"),
        ("UPDATE t SET x = 1 WHERE true", "UNKNOWN_COLUMN"),
        ("DELETE FROM nope WHERE true", "TABLE_NOT_FOUND"),
        ("DELETE FROM system.parts WHERE true", "READ_ONLY"),
    ],
)
def test_refusals_come_before_any_work(world: SqlWorld, worker: Worker, text: str, code: str) -> None:
    assert refused(world, text).code == code
    assert (world.dispatch.specs, states(world)) == ([], [])


def test_a_column_of_the_ttl_is_not_updated(world: SqlWorld, worker: Worker) -> None:
    world.run("CREATE TABLE e (a Int64, d Date) ENGINE = MergeTree ORDER BY a TTL d + INTERVAL 1 DAY")
    assert "MODIFY TTL" in refused(world, "UPDATE e SET d = NULL WHERE true").hint


def test_nor_is_one_by_which_rows_expired_when_parts_were_written(world: SqlWorld, worker: Worker) -> None:
    """Its range is kept, and queries leave parts out by it."""
    world.run("CREATE TABLE e (v Int64, d Date, s String) ENGINE = MergeTree ORDER BY v TTL d + INTERVAL 1 DAY")
    world.run("INSERT INTO e VALUES (11, '2026-01-01', 'a')")
    world.run("ALTER TABLE e REMOVE TTL")
    world.run("ALTER TABLE e MODIFY COLUMN d Date COMMENT 'was the TTL'")
    error = refused(world, "UPDATE e SET d = NULL WHERE true")
    assert (error.code, error.facts["column"]) == ("BAD_ALTER", "d")
    assert (worker.tasks, world.catalog.readers.list()) == ([], [])
    assert world.run("UPDATE e SET s = 'x' WHERE true").rows_written == 1


def test_without_a_worker_nothing_is_left(world: SqlWorld) -> None:
    assert refused(world, "DELETE FROM t WHERE v >= 10").code == "UNAVAILABLE"
    assert (states(world), world.catalog.readers.list()) == ([], [])


# Parts to search again


def part(partition: str, low: int, high: int, file: str) -> Part:
    return Part(
        name=PartName(partition, low, high, 0, 1),
        schema_version=1,
        rows=9,
        file=DataFile(name=file, size=1, checksum=1),
    )


def delta(*files: str) -> WrittenDelta:
    targets = tuple(Target(file=file, deleted=1) for file in files)
    file = DataFile(name="d", size=1, checksum=1)
    return WrittenDelta(kind=DeltaKind.CHANGES, partition="a", file=file, targets=targets)


@pytest.mark.parametrize(
    ("parts", "stale", "again"),
    [
        # Nothing happened.
        ([part("a", 1, 1, "f1"), part("a", 2, 2, "f2"), part("a", 9, 9, "f9")], set(), set()),
        # Merged with one that has no matching rows, and with a newer one.
        ([part("a", 1, 3, "m")], {"f1", "f2"}, {"m"}),
        # Only one of them, in a part with another partition's blocks beside it.
        ([part("a", 2, 2, "f2"), part("a", 1, 1, "m"), part("b", 1, 1, "n")], {"f1"}, {"m"}),
        # Dropped; what came later stays as it is.
        ([part("a", 9, 9, "f9")], {"f1", "f2"}, set()),
    ],
)
def test_only_what_became_of_the_parts_is_looked_into(
    world: SqlWorld, parts: list[Part], stale: set[str], again: set[str]
) -> None:
    known = {f"f{block}": PartName("a", block, block, 0, 1) for block in (1, 2, 3)}
    now = Snapshot(table=table_of(world), ts=5, version=1, parts=tuple(parts))
    seen = dict.fromkeys(known, 0)
    assert delete_update.outdated_changes([delta("f1"), delta("f2")], known, seen, now) == (stale, again)


def test_no_task_writes_on_behind_a_change_whose_jobs_ended_well(world: SqlWorld, worker: Worker) -> None:
    """Otherwise the files of its names would be removed again and again for a day."""
    world.run("DELETE FROM t WHERE v >= 10")
    assert [note.may_write_on for note in world.catalog.transactions.leftover_notes()] == [False]


def test_a_change_whose_job_was_lost_may_be_written_on(world: SqlWorld, worker: Worker) -> None:
    def lose(number: int) -> None:
        raise TaskLostError("the worker is gone")

    worker.meanwhile = lose
    assert refused(world, "DELETE FROM t WHERE v >= 10").code == TaskLostError.code
    [txn] = world.catalog.transactions.unfinished()
    assert not world.catalog.transactions.is_cleaned(txn.id)
