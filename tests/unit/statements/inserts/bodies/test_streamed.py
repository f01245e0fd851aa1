"""Large bodies from the first piece to the commit; Spark's tasks run here, one after the other, in this process."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.codes import WithCode
from tests.sql_world import SqlWorld
from tilth.base.errors import TilthError, UnavailableError
from tilth.formats import find_format
from tilth.maintenance.cleaner.cleaner import Cleaner
from tilth.maintenance.cleaner.ended import GRACE_MS
from tilth.model.table import TableDef
from tilth.model.task import TaskSpec
from tilth.model.txn import TxnState
from tilth.query.results.answer import Answer
from tilth.query.snapshots.protocol import BodyTask, InsertPayload
from tilth.statements.inserts.bodies import arrow_ranges, ranges, spark, streamed
from tilth.statements.inserts.bodies.heads import route_head
from tilth.storage import data_folder, list_files, local_root, read_source, sources_of
from tilth.warehouse import Parallelism

ROWS = 5000


class InProcess:
    """Runs a task of the dispatcher as Spark would, without Spark."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks: list[BodyTask] = []
        self.files: list[list[str]] = []
        self.root: Path | None = None
        self.meanwhile: Callable[[], None] = lambda: None
        monkeypatch.setattr(spark, "run_tasks", self._run_tasks)

    def __call__(self, spec: TaskSpec) -> bytes:
        task = msgspec.msgpack.decode(spec.payload, type=InsertPayload)
        assert isinstance(task, BodyTask)
        self.tasks.append(task)
        self.files.append([each.path for each in list_files(task.folder)])
        session = SimpleNamespace(range=lambda first, last, step, count: count)
        context: Any = SimpleNamespace(
            spec=spec,
            session=session,
            raise_if_cancelled=lambda: None,
            fit=lambda: Parallelism(tasks=3, cores=3, reason=""),
        )
        try:
            return spark.write_body(context, task).payload
        finally:
            self.meanwhile()

    def _run_tasks(self, count: int, function: Any, answer: Any) -> list[Any]:
        return [function(iter(()), task=number, attempt=0) for number in range(count)]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlWorld:
    # Small blocks and ranges, so that small bodies have many of them.
    for module, name, value in (
        (ranges, "RANGE_BYTES", 4096),
        (ranges, "RANGE_BYTES_MAX", 16_384),
        (arrow_ranges, "RANGE_BYTES", 4096),
        (arrow_ranges, "RANGE_BYTES_MAX", 65_536),
        (streamed, "BLOCK_BYTES", 1024),
    ):
        monkeypatch.setattr(module, name, value)
    made = SqlWorld(tmp_path)
    made.run("CREATE TABLE t (a Int64 NOT NULL, s String DEFAULT 'none', d Date) ENGINE = MergeTree ORDER BY a")
    made.run("CREATE TABLE k (a Int64, s String) ENGINE = MergeTree ORDER BY a UNIQUE KEY a")
    return made


@pytest.fixture
def tasks(world: SqlWorld, monkeypatch: pytest.MonkeyPatch) -> InProcess:
    found = InProcess(monkeypatch)
    world.dispatch.answer = found
    return found


def send(
    world: SqlWorld, body: bytes, form: str, table: str = "t", *, bytes_max: int = 1 << 30, **settings: str
) -> Answer:
    def pieces() -> Iterator[bytes]:
        for at in range(0, len(body), 777):
            yield body[at : at + 777]

    found = find_format(form)
    assert found is not None
    head = route_head("default", table, found)
    return world.engine.insert_body(head, pieces(), bytes_max=bytes_max, settings=settings)


def table_of(world: SqlWorld, name: str) -> TableDef:
    table = world.catalog.tables.get("default", name)
    assert isinstance(table, TableDef)
    return table


# Any: a row's values.
def stored(world: SqlWorld, folder: Path, name: str = "t") -> list[tuple[Any, ...]]:
    """The rows that the table has now."""
    table = table_of(world, name)
    snapshot = world.catalog.parts.snapshot(table.uuid)
    found: list[tuple[Any, ...]] = []
    for source in sources_of(snapshot.table, snapshot.parts, snapshot.deltas):
        rows, _ = read_source(data_folder(local_root(folder), table.uuid), source)
        found += [tuple(row.values()) for row in rows.to_pylist()]
    return found


def left(world: SqlWorld, folder: Path) -> list[str]:
    """Names of bodies that are still there; what tasks have written before an error, the cleaner removes."""
    files = list_files(data_folder(local_root(folder), table_of(world, "t").uuid))
    return [each.path for each in files if each.path.endswith(".arrow")]


def running(world: SqlWorld) -> list[str]:
    return [txn.actor for txn in world.catalog.transactions.unfinished() if txn.state is TxnState.RUNNING]


CSV = "".join(f'{n},"text, with ""quotes"" and\na line {n}",2020-01-01\n' for n in range(ROWS)).encode()
JSON = "".join(f'{{"a": {n}, "s": "é{n}"}}\n' for n in range(ROWS)).encode()


def arrow(rows: pa.Table, *, batch: int = 100) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=batch)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("form", "body", "text"),
    [
        ("CSV", CSV, 'text, with "quotes" and\na line {}'),
        ("CSVWithNames", b"\n\na,S,d\r\n" + CSV, 'text, with "quotes" and\na line {}'),
        ("JSONEachRow", JSON, "é{}"),
        ("Arrow", arrow(pa.table({"A": range(ROWS)})), "none"),
        ("Arrow", arrow(pa.table({"a": range(ROWS), "s": [f"é{n}" for n in range(ROWS)]})), "é{}"),
    ],
)
def test_a_body_becomes_rows_and_its_file_goes(
    world: SqlWorld, tasks: InProcess, tmp_path: Path, form: str, body: bytes, text: str
) -> None:
    answer = send(world, body, form)
    assert (answer.rows_written, answer.message) == (ROWS, f"inserted into default.t: {ROWS} rows")
    [task] = tasks.tasks
    assert len(task.ranges) > 5
    assert task.file.size == len(body)
    assert sorted((row[0], row[1]) for row in stored(world, tmp_path)) == [(n, text.format(n)) for n in range(ROWS)]
    # Three tasks had parts of it, and each wrote one.
    assert len(world.catalog.parts.snapshot(table_of(world, "t").uuid).parts) == 3
    assert left(world, tmp_path) == []
    assert running(world) == []


def test_the_later_row_of_a_key_wins(world: SqlWorld, tasks: InProcess, tmp_path: Path) -> None:
    body = "".join(f'{{"a": {n % 7}, "s": "{n}"}}\n' for n in range(ROWS)) + '{"a": 3, "_op": "delete"}\n'
    send(world, body.encode(), "JSONEachRow", "k")
    assert len(tasks.tasks[0].ranges) > 5
    assert dict(stored(world, tmp_path, "k")) == {n % 7: f"{n}" for n in range(ROWS) if n % 7 != 3}


@pytest.mark.parametrize("row", [1, 77, ROWS - 1])
@pytest.mark.parametrize(
    ("form", "line", "code"),
    [
        ("JSONEachRow", b'{"a": "x"}', "BAD_VALUE"),
        ("JSONEachRow", b'{"a": 1, "zz": 2}', "UNKNOWN_COLUMN"),
        ("JSONEachRow", b'{"s": "no a"}', "BAD_VALUE"),
        ("JSONEachRow", b'{"a": nonsense}', "BAD_VALUE"),
        ("JSONEachRow", b'{"a": 1, "s": "\\ud800"}', "BAD_VALUE"),
        ("CSV", b"x,y,2020-01-01", "BAD_VALUE"),
        ("CSV", b"1,y", "BAD_VALUE"),
        ("CSV", b"1,y,someday", "BAD_VALUE"),
    ],
)
def test_an_error_names_the_row_as_a_small_insert_does(
    world: SqlWorld, tasks: InProcess, tmp_path: Path, row: int, form: str, line: bytes, code: str
) -> None:
    lines = JSON.splitlines() if form == "JSONEachRow" else [b"%d,a,2020-01-01" % n for n in range(ROWS)]
    lines[row - 1] = line
    body = b"\n".join(lines)
    with pytest.raises(TilthError) as small:
        world.engine.insert_text("default", "t", input_format=form, data=body)
    with pytest.raises(TilthError) as large:
        send(world, body, form)
    assert large.value.code == code
    for fact in ("row", "column"):
        assert large.value.facts.get(fact) == small.value.facts.get(fact)
    assert f"row={small.value.facts.get('row', '')}" in f"{large.value} row="
    assert (stored(world, tmp_path), left(world, tmp_path)) == ([], [])


def test_arrow_is_refused_as_a_small_insert_is(world: SqlWorld, tasks: InProcess, tmp_path: Path) -> None:
    values: list[int | None] = [*range(ROWS)]
    values[4321] = None
    body = arrow(pa.table({"a": values}))
    with pytest.raises(TilthError) as small:
        world.engine.insert_arrow("default", "t", pa.table({"a": values}))
    with pytest.raises(TilthError) as large:
        send(world, body, "Arrow")
    assert (large.value.code, large.value.facts.get("row")) == (small.value.code, small.value.facts.get("row"))
    assert (stored(world, tmp_path), left(world, tmp_path)) == ([], [])


@pytest.mark.parametrize("body", [b"nonsense" * 500, arrow(pa.table({"a": range(ROWS)}))[:-5000], b"\xff" * 8000])
def test_what_is_no_arrow_stream_is_refused(world: SqlWorld, tasks: InProcess, tmp_path: Path, body: bytes) -> None:
    with pytest.raises(TilthError, check=WithCode("BAD_BODY")):
        send(world, body, "Arrow")
    assert (tasks.tasks, left(world, tmp_path)) == ([], [])


@pytest.mark.parametrize(
    ("form", "body"),
    [
        ("JSONEachRow", b",".join(JSON.splitlines())),
        ("CSV", b'1,"' + b"never closed\n" * 5000),
        ("CSVWithNames", b"name" * 1000),
        ("Arrow", arrow(pa.table({"a": range(50_000)}), batch=50_000)),
    ],
)
def test_a_body_without_ends_of_rows_is_refused(
    world: SqlWorld, tasks: InProcess, tmp_path: Path, form: str, body: bytes
) -> None:
    with pytest.raises(TilthError, check=WithCode("INSERT_NOT_CUT")):
        send(world, body, form)
    assert (tasks.tasks, left(world, tmp_path)) == ([], [])


def test_limits(world: SqlWorld, tasks: InProcess, tmp_path: Path) -> None:
    with pytest.raises(TilthError, check=WithCode("INSERT_TOO_LARGE")):
        send(world, JSON, "JSONEachRow", bytes_max=len(JSON) - 1)
    with pytest.raises(TilthError, check=WithCode("INSERT_TOO_LARGE")):
        send(world, JSON, "JSONEachRow", max_insert_bytes=str(len(JSON) - 1))
    assert tasks.tasks == []
    # Rows are larger than their text.
    short = b'{"a":1}\n' * 2000
    with pytest.raises(TilthError, check=WithCode("INSERT_TOO_LARGE")):
        send(world, short, "JSONEachRow", max_insert_bytes=str(len(short)))
    assert (stored(world, tmp_path), left(world, tmp_path)) == ([], [])
    assert send(world, JSON, "JSONEachRow", bytes_max=len(JSON)).rows_written == ROWS


def test_a_label_counts_once(world: SqlWorld, tasks: InProcess, tmp_path: Path) -> None:
    assert send(world, JSON, "JSONEachRow", insertion_label="x").rows_written == ROWS
    assert "already inserted" in send(world, JSON, "JSONEachRow", insertion_label="x").message
    assert (len(stored(world, tmp_path)), len(tasks.tasks)) == (ROWS, 1)


def test_a_column_is_renamed_meanwhile(world: SqlWorld, tasks: InProcess, tmp_path: Path) -> None:
    def rename() -> None:
        tasks.meanwhile = lambda: None
        world.run("ALTER TABLE t RENAME COLUMN s TO name")

    tasks.meanwhile = rename
    assert send(world, arrow(pa.table({"a": range(ROWS), "s": ["x"] * ROWS})), "Arrow").rows_written == ROWS
    assert len(tasks.tasks) == 2
    assert {row[1] for row in stored(world, tmp_path)} == {"x"}
    assert left(world, tmp_path) == []


def test_a_table_is_dropped_meanwhile(world: SqlWorld, tasks: InProcess) -> None:
    def drop() -> None:
        world.run("DROP TABLE t")

    tasks.meanwhile = drop
    with pytest.raises(TilthError) as refused:
        send(world, JSON, "JSONEachRow")
    assert refused.value.code in ("SCHEMA_CHANGED", "TABLE_NOT_FOUND")


def test_a_client_that_leaves_leaves_nothing(world: SqlWorld, tasks: InProcess, tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield JSON[:20_000]
        raise UnavailableError("gone")

    form = find_format("JSONEachRow")
    assert form is not None
    with pytest.raises(UnavailableError):
        world.engine.insert_body(route_head("default", "t", form), pieces(), bytes_max=1 << 30)
    assert (tasks.tasks, left(world, tmp_path)) == ([], [])
    assert running(world) == []


def test_the_cleaner_removes_the_body_of_a_server_that_was_killed(world: SqlWorld, tmp_path: Path) -> None:
    form = find_format("JSONEachRow")
    assert form is not None
    reached, over = threading.Event(), threading.Event()

    def pieces() -> Iterator[bytes]:
        yield JSON[:50_000]
        reached.set()
        over.wait(60)
        raise UnavailableError("the server was killed")

    def insert() -> None:
        with suppress(TilthError):
            world.engine.insert_body(route_head("default", "t", form), pieces(), bytes_max=1 << 30)

    inserting = threading.Thread(target=insert, daemon=True)
    inserting.start()
    assert reached.wait(30)
    [name] = left(world, tmp_path)
    # A killed server leaves its transaction in the catalog, where nobody has it.
    [txn] = world.catalog.transactions.unfinished()
    world.catalog.transactions._live._handles.clear()
    world.catalog.transactions.abort(txn.id, "its server was killed")
    cleaner = Cleaner(world.clock, world.catalog, local_root(tmp_path), dropped_kept_ms=86_400_000)
    for _ in range(3):
        world.clock.advance(GRACE_MS / 1000 + 1)
        cleaner.tick()
    assert name not in left(world, tmp_path)
    over.set()
    inserting.join(30)


def test_nothing_is_read_before_it_is_clear_that_it_may_be_stored(world: SqlWorld, tasks: InProcess) -> None:
    def never() -> Iterator[bytes]:
        yield from (pytest.fail("nothing of the body is needed") for _ in b"x")

    form = find_format("CSV")
    assert form is not None
    with pytest.raises(TilthError, check=WithCode("TABLE_NOT_FOUND")):
        world.engine.insert_body(route_head("default", "nope", form), never(), bytes_max=9)
    with pytest.raises(TilthError, check=WithCode("READONLY_SETTING")):
        world.engine.insert_body(route_head("default", "t", form), never(), bytes_max=9, settings={"readonly": "1"})
