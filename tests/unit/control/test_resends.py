"""Queries whose Spark is lost: sent again once, if nothing was answered yet, and never what writes or was cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.sql_world import FakeDispatch, SqlWorld, fake_rooms, refused
from tilth.base.cancel import Cancellation
from tilth.base.errors import TilthError
from tilth.control.running import Origin, StatementLimits
from tilth.control.slots import Queue
from tilth.model.task import TaskSpec
from tilth.query.results.answer import Answer
from tilth.query.results.files import write_partition, write_schema
from tilth.query.results.spark import to_stream
from tilth.query.results.stream import RowStream, begun_again, rows_of_table
from tilth.query.snapshots.protocol import (
    CheckedExpressions,
    ExpressionsTask,
    InsertPayload,
    InsertTask,
    QueryTask,
    WorkerTask,
)
from tilth.statements.engine import SqlEngine
from tilth.storage import local_root
from tilth.warehouse import (
    Handle,
    SparkAwayError,
    SparkMemoryError,
    SparkRestartingError,
    TaskLostError,
    TaskResult,
    TaskStalledError,
)

SELECT = "SELECT count(*) FROM range(3)"
ROWS = pa.table({"a": pa.array([3], pa.int64())})
KILLED = SparkRestartingError("Spark ended while the task ran", reason="the JVM was ended by SIGKILL")
AWAY = SparkAwayError(reason="Spark does not start")


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    return SqlWorld(tmp_path)


def failing_first(*errors: TilthError, then: bytes = b"") -> Callable[[TaskSpec], bytes]:
    """Answer the first tasks with these errors, and others with the bytes."""
    left = list(errors)

    def answer(spec: TaskSpec) -> bytes:
        if left:
            raise left.pop(0)
        return then or to_stream(ROWS)

    return answer


def queries_of(dispatch: FakeDispatch) -> list[QueryTask]:
    tasks = [msgspec.msgpack.decode(spec.payload, type=WorkerTask) for spec in dispatch.specs]
    return [task for task in tasks if isinstance(task, QueryTask)]


@pytest.mark.parametrize("error", [KILLED, TaskLostError("the worker is gone", worker="w1")], ids=["jvm", "worker"])
def test_a_query_whose_spark_or_worker_is_lost_is_sent_again(world: SqlWorld, error: TilthError) -> None:
    world.dispatch.answer = failing_first(error)
    answer = world.run(SELECT)
    assert answer.table.to_pylist() == [{"a": 3}]
    first, second = queries_of(world.dispatch)
    # A worker that was given up may still ask for tables under the id of the first.
    assert first.query_id == answer.query_id != second.query_id
    assert [spec.waits_for_spark for spec in world.dispatch.specs] == [True, True]
    [(why, code)] = world.rows(f"SELECT sent_again, error_code FROM system.query_log WHERE text = '{SELECT}'")
    assert (why, code) == (f"{error.code}: {error.message}", None)
    assert world.engine.statement_stats().sent_again == 1


def test_a_query_that_loses_spark_twice_is_not_sent_a_third_time(world: SqlWorld) -> None:
    """It may be the reason why the JVM ends."""
    world.dispatch.answer = failing_first(KILLED, KILLED)
    assert refused(world, SELECT).code == "SPARK_RESTARTING"
    assert len(world.dispatch.specs) == 2
    assert world.engine.statement_stats().sent_again == 1


@pytest.mark.parametrize("error", [SparkMemoryError(), AWAY, TaskStalledError()], ids=lambda error: error.code)
def test_what_is_no_loss_is_answered_at_once(world: SqlWorld, error: TilthError) -> None:
    world.dispatch.answer = failing_first(error)
    assert refused(world, SELECT) is error
    assert len(world.dispatch.specs) == 1
    assert world.rows("SELECT max(sent_again) FROM system.query_log") == [(None,)]


def test_a_query_that_was_cancelled_is_not_sent_again(world: SqlWorld) -> None:
    """Its cancelled work may be why the JVM was killed."""
    origin = Origin(cancellation=Cancellation())

    def answer(spec: TaskSpec) -> bytes:
        origin.cancel("KILL QUERY")
        raise KILLED

    world.dispatch.answer = answer
    with pytest.raises(TilthError, match="cancelled") as caught:
        world.engine.run(SELECT, origin=origin)
    assert caught.value.code == "QUERY_WAS_CANCELLED"
    assert (len(world.dispatch.specs), world.engine.statement_stats().sent_again) == (1, 0)


def test_an_insert_is_not_sent_again_and_its_checks_are(world: SqlWorld) -> None:
    world.run("CREATE TABLE t (a BIGINT) ENGINE = MergeTree ORDER BY a")
    world.dispatch.answer = failing_first(KILLED)
    assert refused(world, "INSERT INTO t SELECT id FROM range(3)").code == "SPARK_RESTARTING"
    [spec] = world.dispatch.specs
    assert isinstance(msgspec.msgpack.decode(spec.payload, type=InsertPayload), InsertTask)
    assert not spec.waits_for_spark
    world.dispatch.specs.clear()
    checked = msgspec.msgpack.encode(CheckedExpressions(predicate="a = 1", assignments=()))
    world.dispatch.answer = failing_first(KILLED, then=checked)
    world.run("DELETE FROM t WHERE a = 1")
    tasks = [msgspec.msgpack.decode(spec.payload, type=WorkerTask) for spec in world.dispatch.specs]
    assert [type(task) for task in tasks] == [ExpressionsTask, ExpressionsTask]
    assert all(spec.waits_for_spark for spec in world.dispatch.specs)
    assert world.rows("SELECT kind FROM system.query_log WHERE sent_again LIKE '%SIGKILL%'") == [("DeleteRows",)]


def test_a_query_over_system_tables_that_needs_spark_does_not_wait_for_it(world: SqlWorld) -> None:
    world.dispatch.answer = failing_first(AWAY)
    text = "SELECT name, explode(array(1, 2)) FROM system.settings"
    assert refused(world, text).code == "BAD_QUERY"
    assert [spec.waits_for_spark for spec in world.dispatch.specs] == [False]


# Rows that are computed while they are sent


class Streaming(FakeDispatch):
    """Returns a task that has begun to write its result, and ends as the test says."""

    def __init__(self, world: SqlWorld) -> None:
        super().__init__()
        self._clock = world.clock
        self.handles: list[Handle] = []
        #: Writes into the folder of a result, by the number of the sending.
        self.writes: list[Callable[[str], None]] = []
        #: Numbers of the sendings that end at once.
        self.ends: set[int] = set()

    def run_until(self, spec: TaskSpec, is_enough: Callable[[], bool], *, poll_seconds: float) -> TaskResult | Handle:
        self.specs.append(spec)
        task = msgspec.msgpack.decode(spec.payload, type=QueryTask)
        write = self.writes[len(self.specs) - 1]
        write(task.folder)
        if not is_enough():
            return TaskResult(payload=to_stream(ROWS))
        handle = Handle(self._clock, self, spec)
        if len(self.handles) in self.ends:
            handle.end(TaskResult())
        self.handles.append(handle)
        return handle

    def cancel(self, task_id: str) -> None:
        """It has ended."""

    abandon = cancel

    def obstacle(self, task_id: str) -> str:
        return ""


def begin(folder: str, schema: pa.Schema = ROWS.schema) -> None:
    write_schema(folder, schema)


def begin_with_a_row(folder: str) -> None:
    begin(folder)
    write_partition(folder, 0, ROWS.schema, iter(ROWS.to_batches()), attempt=1)


def streaming(world: SqlWorld, tmp_path: Path, *writes: Callable[[str], None]) -> tuple[SqlEngine, Streaming]:
    dispatch = Streaming(world)
    dispatch.writes = list(writes)
    (tmp_path / "results").mkdir()
    rooms = fake_rooms(world.clock, world.new_id, world.catalog, root=local_root(tmp_path))
    limits = StatementLimits(slots=dict.fromkeys(Queue, 1))
    return SqlEngine(replace(rooms, dispatcher=dispatch, results=str(tmp_path / "results")), limits=limits), dispatch


def started(engine: SqlEngine) -> tuple[Answer, RowStream]:
    answer = engine.run(SELECT, streams=True)
    assert answer.stream is not None
    return answer, answer.stream


def last_line(engine: SqlEngine) -> tuple[int, str | None, str | None]:
    [row] = engine.run(
        f"SELECT rows, error_code, sent_again FROM system.query_log WHERE text = '{SELECT}'"
    ).table.to_pylist()
    return row["rows"], row["error_code"], row["sent_again"]


def test_a_stream_that_is_lost_before_its_first_row_begins_again(world: SqlWorld, tmp_path: Path) -> None:
    engine, dispatch = streaming(world, tmp_path, begin, begin_with_a_row)
    _, stream = started(engine)
    dispatch.handles[0].end(KILLED)
    rows = iter(stream)
    assert next(rows).to_pylist() == [{"a": 3}]
    # It has a slot again while it runs.
    assert engine.run(
        "SELECT queue, state FROM system.processes WHERE kind = 'Query' AND queue = 'query'"
    ).table.num_rows
    dispatch.handles[1].end(TaskResult())
    assert list(rows) == []
    assert list((tmp_path / "results").iterdir()) == []
    assert last_line(engine) == (1, None, f"SPARK_RESTARTING: {KILLED.message}")
    assert engine.statement_stats().sent_again == 1


def test_rows_that_are_collected_the_second_time_follow_too(world: SqlWorld, tmp_path: Path) -> None:
    engine, dispatch = streaming(world, tmp_path, begin, lambda folder: None)
    _, stream = started(engine)
    dispatch.handles[0].end(TaskLostError("the worker is gone"))
    assert pa.Table.from_batches(stream).to_pylist() == [{"a": 3}]
    assert last_line(engine)[:2] == (1, None)


def test_a_stream_that_is_lost_after_its_first_row_breaks_off(world: SqlWorld, tmp_path: Path) -> None:
    engine, dispatch = streaming(world, tmp_path, begin_with_a_row)
    _, stream = started(engine)
    rows = iter(stream)
    next(rows)
    dispatch.handles[0].end(KILLED)
    with pytest.raises(SparkRestartingError):
        next(rows)
    assert len(dispatch.specs) == 1
    assert last_line(engine) == (1, "SPARK_RESTARTING", None)


def test_a_query_that_was_sent_again_is_not_sent_a_third_time_as_a_stream(world: SqlWorld, tmp_path: Path) -> None:
    def lose(folder: str) -> None:
        raise KILLED

    engine, dispatch = streaming(world, tmp_path, lose, begin)
    _, stream = started(engine)
    dispatch.handles[0].end(KILLED)
    with pytest.raises(SparkRestartingError):
        list(stream)
    assert len(dispatch.specs) == 2
    assert last_line(engine)[1:] == ("SPARK_RESTARTING", f"SPARK_RESTARTING: {KILLED.message}")


def test_a_stream_with_other_columns_does_not_take_its_place(world: SqlWorld, tmp_path: Path) -> None:
    """The columns of the first may have been sent."""
    other = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    engine, dispatch = streaming(world, tmp_path, begin, lambda folder: begin(folder, other))
    dispatch.ends = {1}
    _, stream = started(engine)
    dispatch.handles[0].end(KILLED)
    with pytest.raises(SparkRestartingError):
        list(stream)
    assert list((tmp_path / "results").iterdir()) == []


def test_a_cancelled_stream_does_not_begin_again(world: SqlWorld, tmp_path: Path) -> None:
    engine, dispatch = streaming(world, tmp_path, begin)
    origin = Origin()
    stream = engine.run(SELECT, streams=True, origin=origin).stream
    assert stream is not None
    origin.cancel("KILL QUERY")
    dispatch.handles[0].end(KILLED)
    with pytest.raises(TilthError) as caught:
        list(stream)
    assert (caught.value.code, len(dispatch.specs)) == ("QUERY_WAS_CANCELLED", 1)


def test_the_late_end_of_the_lost_task_leaves_the_new_slot(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task's end is seen before those who want to hear of it have all been called."""
    late: list[Callable[[], None]] = []
    monkeypatch.setattr(Handle, "when_ended", lambda self, act: late.append(act))
    engine, dispatch = streaming(world, tmp_path, begin, begin_with_a_row)
    _, stream = started(engine)
    dispatch.handles[0].end(KILLED)
    rows = iter(stream)
    next(rows)
    late[0]()
    running = engine._services.running
    [(statement, ahead)] = running.list()
    assert (statement.queue, ahead) == (Queue.QUERY, None)
    # There is one slot, and the statement has it.
    assert not running._board.arrive("another", Queue.QUERY, ("host", "1"))
    running._board.leave("another")


def test_a_stream_that_was_closed_meanwhile_takes_no_other() -> None:
    closed: list[TilthError | None] = []

    def lost() -> Iterator[pa.RecordBatch]:
        yield from ()
        raise KILLED

    def again(error: TilthError) -> RowStream:
        whole.close(None)
        return RowStream(ROWS.schema, iter(ROWS.to_batches()), lambda rows, size, error: closed.append(error))

    first = RowStream(ROWS.schema, lost(), lambda rows, size, error: None)
    whole = begun_again(first, again)
    with pytest.raises(SparkRestartingError):
        list(whole)
    assert closed == [KILLED]


def test_rows_that_are_all_there_are_a_stream() -> None:
    assert pa.Table.from_batches(rows_of_table(ROWS)).equals(ROWS)
