"""Writes whose files tasks outside have written, over a real folder and a catalog in memory: about a second."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.codes import WithCode
from tests.outside_world import OutsideWorld
from tests.sql_world import table_of
from tilth.base.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    TilthError,
    UnavailableError,
    UnknownOutcomeError,
)
from tilth.catalog import SchemaChangedError, StreamRecord, TableNotFoundError, TooManyPartsError, Unknown
from tilth.formats import BadValueError
from tilth.maintenance.cleaner.cleaner import Cleaner
from tilth.model.outside_write import StreamBatch, WriteRequest, WrittenFiles
from tilth.model.txn import TxnState
from tilth.query.errors import UnknownColumnError
from tilth.statements.inserts import outside
from tilth.storage import local_root

PLAIN = "(a BIGINT NOT NULL, b STRING DEFAULT 'x') ENGINE = MergeTree ORDER BY a"
PARTITIONED = "(a BIGINT NOT NULL, d DATE NOT NULL) ENGINE = MergeTree ORDER BY a PARTITION BY d"
KEYED = "(a BIGINT NOT NULL, b STRING) ENGINE = MergeTree ORDER BY a UNIQUE KEY a"


@pytest.fixture
def world(tmp_path: Path) -> OutsideWorld:
    return OutsideWorld(tmp_path, table=PLAIN)


def cleaned(world: OutsideWorld) -> list[str]:
    """The files that are left after the cleaner has had its time."""
    cleaner = Cleaner(world.clock, world.catalog, local_root(world.folder), dropped_kept_ms=86_400_000)
    for _ in range(4):
        world.clock.advance(60)
        cleaner.tick()
    return world.files()


def test_files_of_tasks_land_in_one_commit(world: OutsideWorld) -> None:
    opened = world.begin("a")
    facts = [world.write(opened, [{"a": 3}, {"a": 1}]), world.write(opened, [{"a": 2}], task=1)]
    assert world.values() == []
    [txn] = world.catalog.transactions.unfinished()
    assert (txn.id, txn.state, txn.actor.split()[0]) == (opened.txn, TxnState.RUNNING, "insert")
    [shown] = world.rows("SELECT state FROM system.transactions")
    assert shown == ("running",)
    outcome = world.commit(opened, *facts)
    assert (outcome.rows, outcome.is_repeated, outcome.notices) == (3, False, ())
    assert (world.values(), world.values("b")) == ([1, 2, 3], ["x", "x", "x"])
    version = world.catalog.parts.version(table_of(world).uuid)
    assert version.counter == 1
    # Whoever lost the answer asks again.
    assert world.commit(opened, *facts) == outcome
    assert world.catalog.parts.version(table_of(world).uuid) == version
    assert world.catalog.transactions.leftover_notes() == []
    with pytest.raises(ConflictError, check=WithCode("WRITE_LANDED")):
        world.engine.abort_write(opened.id, "too late")
    assert world.values() == [1, 2, 3]


def test_an_abort_removes_by_name(world: OutsideWorld) -> None:
    kept, gone = world.begin("a"), world.begin("a")
    landed = world.write(kept, [{"a": 1}])
    world.write(gone, [{"a": 2}], task=3)
    world.commit(kept, landed)
    world.engine.abort_write(gone.id, "the job failed")
    world.engine.abort_write(gone.id, "the job failed")
    # A task that goes on writing has its later file removed, too.
    world.write(gone, [{"a": 2}], task=2)
    assert cleaned(world) == [part.file.name for part in landed.parts]
    with pytest.raises(ConflictError, match="the job failed", check=WithCode("WRITE_ENDED")):
        world.commit(gone)
    with pytest.raises(ConflictError, check=WithCode("WRITE_ENDED")):
        world.engine.renew_write(gone.id)
    world.engine.abort_write("0" * 32, "")


def test_a_silent_writer_is_aborted(world: OutsideWorld) -> None:
    opened, other = world.begin("a", silence_seconds=10), world.begin("a", silence_seconds=1000)
    facts = world.write(opened, [{"a": 1}])
    for _ in range(3):
        world.clock.advance(9)
        world.engine.renew_write(opened.id)
        world.engine.outside_writes.end_silent()
    world.clock.advance(11)
    world.engine.outside_writes.end_silent()
    with pytest.raises(ConflictError, match="silent for 11 s", check=WithCode("WRITE_ENDED")):
        world.commit(opened, facts)
    assert cleaned(world) == []
    world.engine.renew_write(other.id)


def test_a_server_that_was_started_anew_says_so(world: OutsideWorld, tmp_path: Path) -> None:
    landed, lost = world.begin("a"), world.begin("a")
    facts = world.write(landed, [{"a": 1}])
    world.commit(landed, facts)
    restarted = OutsideWorld(tmp_path, kv=world.catalog._kv)
    # A commit of the former process stays.
    assert restarted.commit(landed, facts).rows == 1
    with pytest.raises(NotFoundError, check=WithCode("WRITE_UNKNOWN")):
        restarted.commit(lost)
    with pytest.raises(NotFoundError, check=WithCode("WRITE_UNKNOWN")):
        restarted.engine.renew_write(lost.id)
    assert restarted.values() == [1]


def test_a_server_that_stops_aborts_what_is_open(world: OutsideWorld) -> None:
    opened = world.begin("a")
    world.engine.outside_writes.stop()
    [txn] = world.catalog.transactions.unfinished()
    assert (txn.state, "the server stops" in txn.reason) == (TxnState.ABORTED, True)
    with pytest.raises(ConflictError, check=WithCode("WRITE_ENDED")):
        world.commit(opened)
    with pytest.raises(TilthError, match="the server stops"):
        world.begin("a")


def test_a_label_lands_once(world: OutsideWorld) -> None:
    first, second = world.begin("a", label="it's"), world.begin("a", label="it's")
    rows = [world.write(opened, [{"a": 7}]) for opened in (first, second)]
    assert world.commit(first, rows[0]).is_repeated is False
    repeated = world.commit(second, rows[1])
    assert (repeated.rows, repeated.is_repeated) == (1, True)
    assert world.commit(second, rows[1]) == repeated
    third = world.begin("a", label="it's")
    assert (third.id, third.labelled_rows) == ("", 1)
    assert world.values() == [7]
    assert cleaned(world) == [rows[0].parts[0].file.name]


def test_a_batch_lands_once(world: OutsideWorld) -> None:
    def send(number: int, query: str = "q1", **more: Any) -> tuple[int, bool, tuple[str, ...]]:
        opened = world.begin("a")
        facts = world.write(opened, [{"a": number}])
        outcome = world.commit(opened, facts, stream=StreamBatch(query=query, batch=number, **more))
        return outcome.rows, outcome.is_repeated, outcome.notices

    assert send(0) == (1, False, ())
    assert send(1) == (1, False, ())
    assert send(1) == (1, True, ())
    assert world.values() == [0, 1]
    with pytest.raises(ConflictError, check=WithCode("STREAM_BATCH_OLD")):
        send(0)
    # Another query may be one with a new checkpoint: it is told.
    _, _, [notice] = send(0, "q2")
    assert "q1" in notice
    assert send(1, "q2") == (1, False, ())
    assert send(5, "q3", name="orders")[2] == ()
    with pytest.raises(ConflictError, check=WithCode("STREAM_CHECKPOINT_LOST")):
        send(0, "q4", name="orders")
    with pytest.raises(ConflictError, check=WithCode("STREAM_CHECKPOINT_LOST")):
        send(0, "q4", name="orders", new_query="q3")
    assert send(0, "q4", name="orders", new_query="q4")[:2] == (1, False)
    assert world.values() == [0, 0, 0, 1, 1, 5]
    assert len(cleaned(world)) == 6


def test_rows_of_a_unique_key_are_upserts(tmp_path: Path) -> None:
    world = OutsideWorld(tmp_path, table=KEYED)
    first = world.begin("a", "b")
    world.commit(first, world.write(first, [{"a": 1, "b": "old"}, {"a": 2, "b": "old"}]))
    second = world.begin("a", "b", "_op")
    # A key that comes in two tasks is there once; one that is deleted is gone.
    facts = [
        world.write(second, [{"a": 1, "b": "new", "_op": "upsert"}, {"a": 2, "b": None, "_op": "delete"}]),
        world.write(second, [{"a": 1, "b": "newest", "_op": "upsert"}], task=1),
    ]
    assert world.commit(second, *facts).rows == 3
    assert (world.values(), world.values("b")) == ([1], ["newest"])
    third = world.begin("a", "b", is_overwrite=True)
    world.commit(third, world.write(third, [{"a": 1, "b": "x"}, {"a": 3, "b": "y"}, {"a": 3, "b": "z"}]))
    assert (world.values(), world.values("b")) == ([1, 3], ["x", "z"])


def test_an_overwrite_replaces_in_one_commit(tmp_path: Path) -> None:
    world = OutsideWorld(tmp_path, table=PARTITIONED)

    def rows(*pairs: tuple[int, str]) -> pa.Table:
        days = pa.array([day for _, day in pairs]).cast(pa.date32()) if pairs else pa.array([], pa.date32())
        return pa.table({"a": pa.array([number for number, _ in pairs], pa.int64()), "d": days})

    def write(*pairs: tuple[int, str], **request: Any) -> int:
        opened = world.begin("a", "d", **request)
        return world.commit(opened, world.write(opened, rows(*pairs))).rows

    write((1, "2026-01-01"), (2, "2026-01-02"))
    counter = world.catalog.parts.version(table_of(world).uuid).counter
    write((10, "2026-01-01"), (11, "2026-01-03"), is_overwrite=True, partitions=("2026-01-01", "2026-01-03"))
    assert world.values() == [2, 10, 11]
    assert world.catalog.parts.version(table_of(world).uuid).counter == counter + 1
    with pytest.raises(InvalidInputError, match="2026", check=WithCode("ROWS_OUTSIDE_PARTITIONS")):
        write((12, "2026-01-02"), is_overwrite=True, partitions=("2026-01-01",))
    assert world.values() == [2, 10, 11]
    # Without rows the partitions are empty afterwards.
    write(is_overwrite=True, partitions=("2026-01-03",))
    assert world.values() == [2, 10]
    write((5, "2026-02-01"), is_overwrite=True)
    assert world.values() == [5]
    write(is_overwrite=True)
    assert world.values() == []
    with pytest.raises(BadValueError, match="neither the id"):
        write(is_overwrite=True, partitions=("no day",))
    with pytest.raises(InvalidInputError, match="overwrite"):
        world.begin("a", "d", partitions=("2026-01-01",))


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("DROP TABLE t", TableNotFoundError),
        ("ALTER TABLE t ADD COLUMN c INT", SchemaChangedError),
        ("ALTER TABLE t DROP COLUMN b", SchemaChangedError),
    ],
)
def test_a_table_that_was_changed_meanwhile(world: OutsideWorld, statement: str, error: type[TilthError]) -> None:
    opened = world.begin("a")
    facts = world.write(opened, [{"a": 1}])
    world.run(statement)
    with pytest.raises(error):
        world.commit(opened, facts)
    with pytest.raises(error):
        world.commit(opened, facts)
    assert world.catalog.transactions.live() == set()


def test_what_would_refuse_an_insert_refuses_its_begin(world: OutsideWorld) -> None:
    with pytest.raises(UnknownColumnError, match="no_such"):
        world.begin("a", "no_such")
    with pytest.raises(BadValueError, match="twice"):
        world.begin("a", "A")
    with pytest.raises(BadValueError, match="missing"):
        world.begin("b")
    with pytest.raises(TableNotFoundError):
        world.begin("a", table="u")
    with pytest.raises(InvalidInputError, match="tasks"):
        world.begin("a", tasks=0)
    with pytest.raises(TilthError, check=WithCode("READ_ONLY")):
        world.engine.begin_write("system", "tables", WriteRequest(columns=("a",)))
    with pytest.raises(TilthError, check=WithCode("READONLY_SETTING")):
        world.engine.begin_write("default", "t", WriteRequest(columns=("a",)), settings={"readonly": "1"})
    assert world.catalog.transactions.unfinished() == []


def test_columns_that_the_server_would_compute_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = OutsideWorld(tmp_path, table=PLAIN)
    table = table_of(world)
    a, b = table.schema.columns
    computed = replace(b, default="uuid()", written_default="uuid()", is_default_computed=True)
    changed = replace(table, schema=replace(table.schema, columns=(a, computed)))
    monkeypatch.setattr(outside, "table_of", lambda *given, **options: changed)
    with pytest.raises(BadValueError, match=r"computed by the server's Spark.*column=b"):
        world.begin("a")
    world.begin("a", "b")


def test_too_many_parts_refuse_the_commit(tmp_path: Path) -> None:
    world = OutsideWorld(tmp_path, table=PLAIN + " SETTINGS parts_to_throw_insert = 2, parts_to_delay_insert = 0")
    opened = world.begin("a")
    facts = [world.write(opened, [{"a": number}], task=number) for number in range(3)]
    with pytest.raises(TooManyPartsError):
        world.commit(opened, *facts)
    assert cleaned(world) == []


def test_a_lost_answer_of_the_catalog_is_asked_for(world: OutsideWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = world.begin("a")
    facts = world.write(opened, [{"a": 1}])
    transactions = world.catalog.transactions
    real = transactions.commit
    has_landed = threading.Event()

    def lose(*given: Any) -> Unknown:
        if has_landed.is_set():
            real(*given)
        return Unknown("the answer was lost")

    monkeypatch.setattr(transactions, "commit", lose)
    with pytest.raises(UnknownOutcomeError):
        world.commit(opened, facts)
    with pytest.raises(UnknownOutcomeError):
        world.commit(opened, facts)
    assert world.files() == [part.file.name for part in facts.parts]
    # Nobody asks any more: it is settled, and its files go.
    world.clock.advance(700)
    world.engine.outside_writes.end_silent()
    with pytest.raises(ConflictError, check=WithCode("WRITE_ENDED")):
        world.commit(opened, facts)
    assert cleaned(world) == []
    has_landed.set()
    opened = world.begin("a")
    facts = world.write(opened, [{"a": 2}])
    with pytest.raises(UnknownOutcomeError):
        world.commit(opened, facts)
    assert world.commit(opened, facts).rows == 1
    assert world.values() == [2]


def away(*given: Any) -> None:
    raise UnavailableError("the catalog is away")


def test_a_catalog_that_is_away_leaves_the_outcome_unknown(
    world: OutsideWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = world.catalog.transactions
    opened = world.begin("a")
    facts = world.write(opened, [{"a": 1}])
    with monkeypatch.context() as lost:
        lost.setattr(transactions, "commit", lambda *given: Unknown("the answer was lost"))
        with pytest.raises(UnknownOutcomeError):
            world.commit(opened, facts)
        lost.setattr(transactions, "resolve", away)
        with pytest.raises(UnknownOutcomeError):
            world.commit(opened, facts)
        with pytest.raises(UnknownOutcomeError):
            world.engine.commit_write("0" * 32, WrittenFiles(txn=opened.txn, parts=facts.parts, tasks=1))
    transactions.abort(opened.txn, "test")
    with pytest.raises(ConflictError, check=WithCode("WRITE_ENDED")):
        world.commit(opened, facts)


def test_silent_writers_are_aborted_after_the_catalog_was_away(
    world: OutsideWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes, transactions = world.engine.outside_writes, world.catalog.transactions
    opened = world.begin("a", silence_seconds=10)
    resolve, calls, is_back = transactions.resolve, [0], threading.Event()

    def answer(txn: int) -> TxnState | None:
        calls[0] += 1
        if calls[0] == 1:
            away()
        is_back.set()
        return resolve(txn)

    monkeypatch.setattr(transactions, "resolve", answer)
    writes.start()
    for _ in range(1000):
        world.clock.advance(11)
        if is_back.wait(0.01):
            break
    writes.stop()
    with pytest.raises(ConflictError, match="silent", check=WithCode("WRITE_ENDED")):
        world.engine.renew_write(opened.id)


def test_a_server_stops_while_the_catalog_is_away(world: OutsideWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = world.begin("a"), world.begin("a")
    monkeypatch.setattr(world.catalog.transactions, "resolve", away)
    world.engine.outside_writes.stop()
    states = {txn.id: txn.state for txn in world.catalog.transactions.unfinished()}
    assert states == {first.txn: TxnState.ABORTED, second.txn: TxnState.ABORTED}


def test_of_a_write_that_has_ended_the_answer_alone_is_kept(world: OutsideWorld) -> None:
    writes = world.engine.outside_writes
    landed, refused, aborted = (world.begin("a") for _ in range(3))
    handles = [weakref.ref(writes._open[each.id].handle) for each in (landed, refused, aborted)]
    world.commit(landed, world.write(landed, [{"a": 1}]))
    facts = world.write(refused, [{"a": 1}])
    for _ in range(2):
        with pytest.raises(InvalidInputError, check=WithCode("BAD_WRITTEN_FILE")):
            world.commit(refused, facts, facts)
    world.engine.abort_write(aborted.id, "")
    gc.collect()
    assert [each() for each in handles] == [None, None, None]


def test_streams_of_the_table_are_read_for_a_first_batch_alone(
    world: OutsideWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = world.catalog.streams
    read: list[str] = []
    real = streams.of

    def of(table: str) -> list[StreamRecord]:
        read.append(table)
        return real(table)

    monkeypatch.setattr(streams, "of", of)
    for number in range(3):
        opened = world.begin("a")
        world.commit(opened, stream=StreamBatch(query="q1", batch=number))
    assert len(read) == 1


def test_retried_tasks_leave_nothing(world: OutsideWorld) -> None:
    opened = world.begin("a")
    world.write(opened, [{"a": 1}])
    second = world.write(opened, [{"a": 1}], attempt=1)
    world.write(opened, [{"a": 5}], task=1, attempt=2)
    third = world.write(opened, [{"a": 5}], task=1)
    assert world.commit(opened, second, third, has_retried=True).rows == 2
    assert world.values() == [1, 5]
    assert cleaned(world) == sorted(part.file.name for each in (second, third) for part in each.parts)


def test_so_many_writes_are_open(world: OutsideWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "OPEN_MAX", 1)
    opened = world.begin("a")
    with pytest.raises(TilthError, check=WithCode("TOO_MANY_WRITES")):
        world.begin("a")
    world.engine.abort_write(opened.id, "")
    world.begin("a")
