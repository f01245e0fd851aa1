"""Pipes: what they load, when they poll, what stops them; polls run in the test's own thread, over a fake of Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.copy_world import CopyWorld
from tests.sql_world import table_of
from tilth.base.errors import TilthError, UnavailableError
from tilth.catalog import MemoryKV
from tilth.catalog.offsets.loaded_files import LoadedFiles
from tilth.introspection.alarms.alarms import ALARMS
from tilth.introspection.alarms.observation import Observation
from tilth.model.loaded_file import LoadedFile
from tilth.model.task import TaskSpec
from tilth.query.errors import BadFileRowError, UnreadableFileError
from tilth.query.snapshots.protocol import LoadFilesTask
from tilth.statements.files import pipe_poll
from tilth.statements.files.pipe_manager import PipeManager
from tilth.statements.files.pipe_poll import FAILED_MAX
from tilth.storage import UserFile, UserFolder, list_folder


class PipeWorld(CopyWorld):
    """A server whose pipes poll when a test says so."""

    def __init__(self, folder: Path, *, kv: MemoryKV | None = None, hosts: Callable[[str], bool] = lambda _: True):
        self.kv = kv or MemoryKV()
        super().__init__(folder, kv=self.kv)
        engine = self.engine
        self.pipes = PipeManager(self.clock, self.catalog, server="s1", hosts=hosts, start_poll=_at_once)
        engine._services = replace(engine._services, pipes=self.pipes)
        self.pipes.serve(engine._services, engine.run_inside)
        #: Files that cannot be read, by name, with the error of each.
        self.bad: dict[str, Callable[[str], TilthError]] = {}
        answer = self.dispatch.answer
        assert answer is not None

        def judged(spec: TaskSpec) -> bytes:
            self.raise_bad(spec)
            return answer(spec)

        self.dispatch.answer = judged

    def raise_bad(self, spec: TaskSpec) -> None:
        task = msgspec.msgpack.decode(spec.payload, type=LoadFilesTask)
        for path in task.paths:
            if path in self.bad:
                self.tasks.append(task)
                raise self.bad[path](f"{self.files}/{path}")

    def put(self, name: str, size: int = 1, *, age: float = 60.0) -> Path:
        """Put a file that changed `age` seconds ago."""
        path = super().put(name, size)
        changed = self.clock.now_ms() / 1000 - age
        os.utime(path, (changed, changed))
        return path

    def create(self, more: str = "", *, name: str = "p", every: str = "10 SECONDS") -> None:
        self.run(f"CREATE PIPE {name} EVERY {every} AS COPY INTO t FROM '{self.files}' FORMAT JSON {more}")

    def poll(self, seconds: float = 10.0) -> None:
        """Let time pass, and let the pipes that are due poll."""
        self.clock.advance(seconds)
        self.pipes.wake()
        self.pipes.turn()

    def pipe(self, columns: str) -> tuple[object, ...]:
        (row,) = self.rows(f"SELECT {columns} FROM system.pipes")
        return row

    def loads(self) -> list[tuple[str, ...]]:
        return [task.paths for task in self.tasks]


def _at_once(act: Callable[[], None], _: str) -> None:
    """Poll in the thread of the test."""
    act()


@pytest.fixture
def world(tmp_path: Path) -> PipeWorld:
    return PipeWorld(tmp_path)


# --- what is loaded, and when ---


def test_new_files_are_loaded_once(world: PipeWorld) -> None:
    world.create("PATTERN '*.json'")
    world.put("a.json")
    world.put("b.json", 2)
    world.put("c.txt")
    world.poll()
    assert world.loaded() == {"a.json": 1, "b.json": 1}
    world.poll()
    world.put("d.json", age=-1)
    world.poll()
    assert world.loads() == [("a.json", "b.json")]
    world.poll()
    assert world.loads() == [("a.json", "b.json"), ("d.json",)]
    assert world.pipe("state, files_found, files_waiting, files_loaded, rows_loaded, polls, failures, last_error") == (
        "idle",
        3,
        0,
        3,
        3,
        4,
        0,
        None,
    )
    texts = world.rows("SELECT text, rows_written FROM system.query_log WHERE kind = 'LoadPipe' ORDER BY started")
    assert texts == [("COPY INTO default.t BY PIPE p: 2 files", 2), ("COPY INTO default.t BY PIPE p: 1 files", 1)]


def test_a_poll_waits_for_its_time(world: PipeWorld) -> None:
    world.create(every="1 MINUTE")
    world.poll(0)
    world.put("a.json")
    world.poll(59)
    assert world.loads() == []
    world.poll(1)
    assert world.loads() == [("a.json",)]
    (last, due) = world.rows("SELECT last_poll, next_poll FROM system.pipes")[0]
    assert (due - last).total_seconds() == 60  # type: ignore[operator]


def test_a_file_that_grows_is_loaded_when_it_does_not(world: PipeWorld) -> None:
    world.create()
    world.put("a.json", 1, age=0)
    world.poll(0)
    assert (world.loads(), "1 may still grow" in str(world.pipe("reason")[0])) == ([], True)
    world.put("a.json", 2, age=-5)
    world.poll()
    assert world.loads() == []
    world.poll()
    assert world.loads() == [("a.json",)]


def test_a_file_from_the_future_is_loaded_when_it_stays_as_it_is(world: PipeWorld) -> None:
    """The clock of the files' store may be ahead."""
    world.create()
    world.put("a.json", age=-3_600)
    world.poll()
    world.poll()
    assert world.loads() == [("a.json",)]


def test_a_file_that_may_grow_is_not_waited_for_longer_than_it_takes(world: PipeWorld) -> None:
    world.create(every="1 HOUR")
    world.put("a.json", age=0)
    world.poll(0)
    assert world.loads() == []
    world.poll(10)
    assert world.loads() == [("a.json",)]
    world.put("b.json")
    world.poll(3_599)
    assert len(world.loads()) == 1


def test_a_file_that_changes_while_it_is_read_is_left_for_later(world: PipeWorld) -> None:
    world.create()
    world.put("a.json")
    world.put("b.json")
    world.meanwhile = lambda: world.put("a.json", 9, age=0)
    world.poll()
    assert world.loaded() == {"b.json": 1}
    assert world.rows("SELECT * FROM system.pipe_errors") == []
    world.poll()
    assert world.loaded() == {"a.json": 1, "b.json": 1}
    assert world.pipe("failures, files_failed") == (0, 0)


def test_a_poll_lists_once_and_reads_the_ledger_of_new_files(world: PipeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[UserFolder] = []
    read: list[str] = []
    find = LoadedFiles.find

    def list_noted(folder: UserFolder) -> list[UserFile]:
        listed.append(folder)
        return list_folder(folder)

    def noted(self: LoadedFiles, table: str, files: Iterable[str]) -> dict[str, LoadedFile]:
        names = list(files)
        read.extend(names)
        return find(self, table, names)

    monkeypatch.setattr(pipe_poll, "list_folder", list_noted)
    monkeypatch.setattr(LoadedFiles, "find", noted)
    for number in range(30):
        world.put(f"{number}.json")
    world.create()
    world.poll()
    assert (len(listed), len(read)) == (1, 30)
    world.poll()
    assert (len(listed), len(read)) == (2, 60)
    world.put("new.json")
    world.poll()
    assert (len(listed), len(read)) == (3, 61)


def test_a_load_is_bounded(world: PipeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe_poll, "LOAD_BYTES_MAX", 2)
    monkeypatch.setattr(pipe_poll, "LOADS_MAX", 2)
    world.create()
    for number in range(5):
        world.put(f"{number}.json", age=100 - number)
    world.poll()
    assert world.loads() == [("0.json", "1.json"), ("2.json", "3.json")]
    assert world.pipe("files_waiting") == (1,)
    world.poll(0)
    assert world.loads()[2:] == [("4.json",)]
    assert world.pipe("files_waiting") == (0,)


# --- errors ---


def test_a_bad_file_is_recorded_and_blocks_no_other(world: PipeWorld) -> None:
    world.bad["b.json"] = lambda file: BadFileRowError(file=file, line=3, why="no")
    for name in ("a.json", "b.json", "c.json"):
        world.put(name)
    world.create()
    world.poll()
    assert world.loaded() == {"a.json": 1, "c.json": 1}
    [(file, code, text, query_id)] = world.rows("SELECT file, code, error, query_id FROM system.pipe_errors")
    assert (file, code) == (f"{world.files}/b.json", "BAD_FILE_ROW")
    assert "line=3" in str(text)
    assert world.rows(f"SELECT error_code FROM system.query_log WHERE query_id = '{query_id}'") == [("BAD_FILE_ROW",)]
    assert world.pipe("state, failures, files_failed, last_error_code") == ("idle", 0, 1, "BAD_FILE_ROW")
    before = len(world.tasks)
    world.poll()
    world.poll()
    assert len(world.tasks) == before
    assert found(world, "pipe_files_failed")


def test_a_bad_file_without_a_name_is_found_by_halves(world: PipeWorld) -> None:
    world.bad["5.json"] = lambda _: UnreadableFileError()
    for number in range(8):
        world.put(f"{number}.json")
    world.create()
    world.poll()
    assert world.rows("SELECT file FROM system.pipe_errors") == [(f"{world.files}/5.json",)]
    assert sorted(world.loaded()) == [f"{number}.json" for number in range(8) if number != 5]


def test_a_bad_file_is_tried_again_when_it_changes_or_the_columns_do(world: PipeWorld) -> None:
    world.bad["a.json"] = lambda file: BadFileRowError(file=file)
    world.put("a.json")
    world.create()
    world.poll()
    assert len(world.tasks) == 1
    world.run("ALTER TABLE t ADD COLUMN b Int64")
    world.poll()
    assert len(world.tasks) == 2
    world.put("a.json", 5)
    world.poll()
    assert len(world.tasks) == 3
    world.bad.clear()
    world.poll()
    assert len(world.tasks) == 3
    world.run("ALTER PIPE p ON t REFRESH")
    world.poll(0)
    assert world.loaded() == {"a.json": 1}
    assert world.rows("SELECT * FROM system.pipe_errors") == []
    assert not found(world, "pipe_files_failed")


def test_a_bad_file_can_be_loaded_by_hand(world: PipeWorld) -> None:
    world.bad["a.json"] = lambda file: BadFileRowError(file=file)
    world.put("a.json")
    world.create()
    world.poll()
    world.bad.clear()
    world.run(f"COPY INTO t FROM '{world.files}/a.json' FORMAT JSON OPTIONS (ON_ERROR = 'skip')")
    world.poll()
    assert world.rows("SELECT * FROM system.pipe_errors") == []
    assert world.pipe("files_failed") == (0,)


def test_a_file_that_is_replaced_is_an_error_of_its_own(world: PipeWorld) -> None:
    world.put("a.json")
    world.create()
    world.poll()
    world.put("a.json", 7)
    world.put("b.json")
    world.poll()
    world.poll()
    assert world.loaded() == {"a.json": 1, "b.json": 1}
    assert world.rows("SELECT code, query_id FROM system.pipe_errors") == [("FILE_CHANGED", None)]
    assert world.pipe("files_failed, failures") == (1, 0)
    world.run("DROP PIPE p ON t")
    world.create("OPTIONS (CHANGED = 'load')")
    world.poll()
    assert world.rows("SELECT sum(rows) FROM system.parts") == [(3,)]
    assert world.rows("SELECT * FROM system.pipe_errors") == []


def test_failures_of_the_pipe_wait_longer_each_time(world: PipeWorld) -> None:
    world.bad["a.json"] = lambda _: UnavailableError("the store is away")
    world.put("a.json")
    world.create()
    waits = []
    for _ in range(8):
        world.poll(400)
        (last, due) = world.rows("SELECT last_poll, next_poll FROM system.pipes")[0]
        waits.append((due - last).total_seconds())  # type: ignore[operator]
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300]
    assert world.pipe("state, failures, last_error_code") == ("failed", 8, "UNAVAILABLE")
    assert "the store is away" in str(world.pipe("reason"))
    assert found(world, "pipe_fails")
    assert world.rows("SELECT state, failures FROM system.bg_threads WHERE service = 'copy'") == [("failed", 8)]
    world.bad.clear()
    world.poll(300)
    assert world.pipe("state, failures, files_loaded") == ("idle", 0, 1)
    assert not found(world, "pipe_fails")


def test_a_file_that_holds_up_the_pipe_comes_behind_the_others(world: PipeWorld) -> None:
    """Spark ends with it: nothing says that it is the file's fault."""
    world.bad["a.json"] = lambda _: UnavailableError("Spark has ended")
    for name in ("a.json", "b.json", "c.json", "d.json"):
        world.put(name)
    world.create()
    for _ in range(6):
        world.poll(400)
    assert world.loaded() == {"b.json": 1, "c.json": 1, "d.json": 1}
    assert world.pipe("state, files_failed") == ("failed", 0)


def test_a_poll_that_gets_no_thread_begins_later(world: PipeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(act: Callable[[], None], name: str) -> None:
        raise RuntimeError("can't start new thread")

    world.create()
    world.put("a.json")
    with monkeypatch.context() as patched:
        patched.setattr(world.pipes, "_start_poll", refuse)
        with pytest.raises(RuntimeError):
            world.poll()
    world.poll()
    assert world.loaded() == {"a.json": 1}


def test_a_folder_that_vanishes_fails_until_it_is_there(world: PipeWorld) -> None:
    world.create()
    world.poll()
    world.files.rmdir()
    world.poll()
    assert world.pipe("state, last_error_code") == ("failed", "BAD_FILE_LOCATION")
    world.put("a.json")
    world.poll()
    assert world.pipe("state, files_loaded") == ("idle", 1)


def test_the_list_of_locations_is_checked_at_each_poll(world: PipeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put("a.json")
    world.create()
    monkeypatch.setitem(world.engine._services.node_settings.texts, "storage.file-locations", "/elsewhere")
    world.poll()
    assert world.pipe("state, last_error_code") == ("failed", "BAD_FILE_LOCATION")
    assert world.tasks == []


def test_a_column_that_is_gone_is_no_fault_of_the_files(world: PipeWorld) -> None:
    world.run("CREATE TABLE u (a Int64, b Int64) ENGINE = MergeTree ORDER BY a")
    world.run(f"CREATE PIPE p AS COPY INTO u (a, b) FROM '{world.files}' FORMAT JSON")
    world.run("ALTER TABLE u RENAME COLUMN b TO c")
    world.put("a.json")
    world.poll()
    assert world.pipe("state, last_error_code, files_failed") == ("failed", "UNKNOWN_COLUMN", 0)
    assert (world.tasks, world.rows("SELECT * FROM system.pipe_errors")) == ([], [])


def test_a_load_that_is_killed_is_tried_again_after_a_wait(world: PipeWorld) -> None:
    world.create()
    world.put("a.json")
    world.meanwhile = lambda: world.run("KILL QUERY WHERE query_id IN (SELECT last_query_id FROM system.pipes)")
    world.poll()
    assert (world.loaded(), world.pipe("state, last_error_code")) == ({}, ("failed", "QUERY_WAS_CANCELLED"))
    world.poll()
    assert (world.loaded(), world.pipe("state, failures")) == ({"a.json": 1}, ("idle", 0))


def test_too_many_failed_files_stop_a_pipe(world: PipeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FAILED_MAX == 10_000
    monkeypatch.setattr(pipe_poll, "FAILED_MAX", 1)
    for name in ("a.json", "b.json"):
        world.bad[name] = lambda file: BadFileRowError(file=file)
        world.put(name)
    world.create()
    world.poll()
    world.put("c.json")
    world.poll()
    assert world.pipe("state, last_error_code") == ("failed", "TOO_MANY_FAILED_FILES")
    assert world.loaded() == {}


# --- switches, servers, tables ---


def test_a_stopped_table_loads_nothing(world: PipeWorld) -> None:
    world.create()
    world.pipes.turn()
    world.put("a.json")
    world.run("SYSTEM STOP COPY t BECAUSE 'a benchmark'")
    assert world.pipe("state") == ("stopped",)
    world.poll()
    assert (world.tasks, world.pipe("state, reason, next_poll")) == ([], ("stopped", "stopped: a benchmark", None))
    query = "SELECT switch, state, because FROM system.bg_threads WHERE service = 'copy'"
    assert world.rows(query) == [("stopped", "stopped", "a benchmark")]
    world.run("SYSTEM START COPY ON t")
    world.poll(0)
    assert world.loaded() == {"a.json": 1}
    world.run("SYSTEM STOP COPY")
    world.put("b.json")
    world.poll()
    assert world.loaded() == {"a.json": 1}


def test_stop_while_a_load_runs_ends_it_behind_its_commit(world: PipeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe_poll, "LOAD_BYTES_MAX", 1)
    world.create()
    world.put("a.json")
    world.put("b.json")
    world.meanwhile = lambda: world.run("SYSTEM STOP COPY t")
    world.poll()
    assert world.loaded() == {"a.json": 1}
    assert world.pipe("state") == ("stopped",)


def test_a_switch_and_a_failed_file_survive_a_restart(tmp_path: Path) -> None:
    world = PipeWorld(tmp_path)
    world.bad["b.json"] = lambda file: BadFileRowError(file=file)
    world.put("a.json")
    world.put("b.json")
    world.create()
    world.poll()
    world.run("SYSTEM STOP COPY t")
    after = PipeWorld(tmp_path, kv=world.kv)
    after.put("c.json")
    after.poll()
    assert after.tasks == []
    after.run("SYSTEM START COPY t")
    after.poll()
    assert after.loads() == [("c.json",)]
    assert after.rows("SELECT code FROM system.pipe_errors") == [("BAD_FILE_ROW",)]


def test_two_servers_load_no_file_twice(tmp_path: Path) -> None:
    """Each of two servers is the host for itself, as for a moment when a table moves."""
    first = PipeWorld(tmp_path)
    second = PipeWorld(tmp_path, kv=first.kv)
    first.create()
    first.put("a.json")
    first.put("b.json")
    first.meanwhile = lambda: second.poll()
    first.poll()
    first.poll()
    assert first.loaded() == {"a.json": 1, "b.json": 1}
    assert first.rows("SELECT sum(rows) FROM system.parts") == [(2,)]
    assert first.pipe("failures, files_failed") == (0, 0)


def test_the_host_alone_polls(tmp_path: Path) -> None:
    hosted = {True}
    world = PipeWorld(tmp_path, hosts=lambda _: bool(hosted))
    world.create()
    world.put("a.json")
    world.poll()
    hosted.clear()
    world.put("b.json")
    world.poll()
    assert world.loads() == [("a.json",)]
    assert world.pipes.states() == []
    assert world.pipes.numbers().files == 1


def test_a_pipe_goes_and_comes_with_its_table(world: PipeWorld) -> None:
    world.create()
    world.put("a.json")
    world.poll()
    world.run("RENAME TABLE t TO moved")
    world.put("b.json")
    world.poll()
    assert world.pipe("table, state, files_loaded") == ("moved", "idle", 2)
    world.run("DROP TABLE moved")
    world.put("c.json")
    world.poll()
    assert (len(world.tasks), world.rows("SELECT * FROM system.pipes"), world.pipes.states()) == (2, [], [])
    world.run("UNDROP TABLE moved")
    world.poll()
    assert world.pipe("table, files_loaded") == ("moved", 1)
    uuid = table_of(world, "moved").uuid
    world.run("DROP TABLE moved")
    world.catalog.tables.forget(uuid)
    assert world.catalog.pipes.all() == []


def test_a_table_that_is_dropped_while_it_loads_is_no_failure_of_others(world: PipeWorld) -> None:
    world.create()
    world.put("a.json")
    world.meanwhile = lambda: world.run("DROP TABLE t")
    world.poll()
    world.poll()
    assert world.pipes.states() == []
    files = [path.name for path in world.table_root.rglob("*.parquet")]
    assert files == []


def test_columns_that_change_while_it_loads_are_read_by_the_next_poll(world: PipeWorld) -> None:
    world.create()
    world.put("a.json")
    world.meanwhile = lambda: world.run("ALTER TABLE t ADD COLUMN b Int64")
    world.poll()
    assert (world.loaded(), world.pipe("state, failures, files_failed")) == ({}, ("idle", 0, 0))
    world.poll()
    assert world.loaded() == {"a.json": 1}


def test_a_pipe_that_is_dropped_while_it_loads_begins_nothing_more(
    world: PipeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe_poll, "LOAD_BYTES_MAX", 1)
    world.create()
    world.put("a.json")
    world.put("b.json")
    world.bad["b.json"] = lambda file: BadFileRowError(file=file)
    world.meanwhile = lambda: world.run("DROP PIPE p ON t")
    world.poll()
    assert world.loads() == [("a.json",)]
    assert world.catalog.pipes.all() == []


def test_ten_thousand_files_are_loaded_by_some_commits(world: PipeWorld) -> None:
    for number in range(10_000):
        (world.files / f"{number}.json").write_bytes(b"x")
    world.clock.advance(10 * 365 * 86_400 * 10)
    world.create()
    world.poll()
    assert [len(paths) for paths in world.loads()] == [1_000] * 10
    assert world.pipe("files_found, files_loaded, files_waiting") == (10_000, 10_000, 0)


def test_counts_are_metrics(world: PipeWorld) -> None:
    world.bad["b.json"] = lambda file: BadFileRowError(file=file)
    world.put("a.json")
    world.put("b.json")
    world.create()
    world.poll()
    numbers = world.pipes.numbers()
    assert (numbers.pipes, numbers.polls, numbers.loads, numbers.files, numbers.rows) == (1, 1, 1, 1, 1)
    assert (numbers.failed, numbers.failing, numbers.waiting, numbers.failures) == (1, 1, 0, 0)


def found(world: PipeWorld, name: str) -> list[str]:
    """Sentences of an alarm."""
    (alarm,) = (each for each in ALARMS if each.name == name)
    return [each.sentence for each in alarm.find(Observation(world.engine._services))]
