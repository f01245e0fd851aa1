"""Batches of streams in a catalog of the tests; no clock, no disk: under a second."""

from __future__ import annotations

import pytest

from tests.catalog_world import Racing, World
from tests.codes import WithCode
from tilth.base.errors import ConflictError, ErrorKind
from tilth.catalog import BatchLandedError, InsertBatch, InsertPart
from tilth.catalog.rules import fold_streams


@pytest.fixture
def world() -> World:
    return World()


def batch(world: World, number: int, *, query: str = "q1", stream: str = "", is_new: bool = False) -> InsertBatch:
    return InsertBatch(
        table=world.t,
        stream=stream or query,
        query=query,
        batch=number,
        rows=10,
        is_new_checkpoint=is_new,
    )


def test_a_batch_lands_once_however_late_it_comes_again(world: World) -> None:
    streams = world.catalog.streams
    assert (streams.find(world.t, "q1"), streams.of(world.t)) == (None, [])
    [part] = world.commit(InsertPart(table=world.t, written=world.written()), batch(world, 0))
    found = streams.find(world.t, "q1")
    assert found is not None
    assert (found.batch, found.rows, found.commit_ts, found.txn) == (0, 10, part.commit_ts, part.name.mutation)
    # Labels are forgotten after a time, batches are not.
    world.catalog.labels.trim(part.commit_ts + 1)
    world.catalog.transactions.trim_finished(part.commit_ts + 1)
    with pytest.raises(BatchLandedError) as refused:
        world.commit(InsertPart(table=world.t, written=world.written()), batch(world, 0))
    assert (refused.value.code, refused.value.kind) == ("STREAM_BATCH_LANDED", ErrorKind.CONFLICT)
    assert world.names() == [part.name]
    # Batches without rows are left out by some queries.
    world.commit(batch(world, 4))
    assert [each.batch for each in streams.of(world.t)] == [4]


def test_a_stream_that_goes_back_is_refused(world: World) -> None:
    world.commit(batch(world, 7))
    with pytest.raises(ConflictError, match="checkpoint was restored", check=WithCode("STREAM_BATCH_OLD")) as refused:
        world.commit(batch(world, 6))
    assert (refused.value.facts["batch"], refused.value.facts["last_batch"]) == ("6", "7")


def test_a_named_stream_goes_on_with_its_checkpoint_alone(world: World) -> None:
    world.commit(batch(world, 7, stream="orders"))
    other = batch(world, 0, query="q2", stream="orders")
    with pytest.raises(ConflictError, check=WithCode("STREAM_CHECKPOINT_LOST")) as refused:
        world.commit(other)
    assert (refused.value.facts["query"], refused.value.facts["last_query"]) == ("q2", "q1")
    world.commit(batch(world, 0, query="q2", stream="orders", is_new=True))
    with pytest.raises(BatchLandedError):
        world.commit(batch(world, 0, query="q2", stream="orders", is_new=True))
    world.commit(batch(world, 1, query="q2", stream="orders"))
    # The first checkpoint is the wrong one now.
    with pytest.raises(ConflictError, check=WithCode("STREAM_CHECKPOINT_LOST")):
        world.commit(batch(world, 8, stream="orders"))
    # Streams without a name, and those of other tables, know nothing of it.
    world.commit(batch(world, 0, query="q2"))
    assert [each.stream for each in world.catalog.streams.of(world.t)] == ["orders", "q2"]


def test_of_two_at_once_one_lands() -> None:
    kv = Racing()
    world = World(kv)
    txn = world.catalog.transactions.open("insert")
    kv.before = lambda: World(kv).commit(batch(world, 0))
    with pytest.raises(BatchLandedError):
        txn.commit([batch(world, 0)])


def test_a_commit_has_a_batch_of_a_stream_once(world: World) -> None:
    with pytest.raises(BatchLandedError):
        world.commit(batch(world, 0), batch(world, 0))
    assert world.catalog.streams.of(world.t) == []


def test_a_table_has_so_many_streams(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_streams, "STREAMS_MAX", 2)
    for query in ("q1", "q2"):
        world.commit(batch(world, 0, query=query))
    with pytest.raises(ConflictError, check=WithCode("TOO_MANY_STREAMS")):
        world.commit(batch(world, 0, query="q3"))
    world.commit(batch(world, 1, query="q1"))


def test_names_of_streams_are_any_text(world: World) -> None:
    for name in ("it's", 'q"', "a\x00b", "ä/日本", ""):
        world.commit(InsertBatch(table=world.t, stream=name, query="q", batch=3, rows=0))
        found = world.catalog.streams.find(world.t, name)
        assert found is not None
        assert (found.stream, found.batch) == (name, 3)


def test_streams_go_with_their_table(world: World) -> None:
    world.commit(batch(world, 0))
    world.catalog.tables.drop(world.t)
    world.catalog.tables.forget(world.t)
    assert world.catalog.streams.of(world.t) == []
