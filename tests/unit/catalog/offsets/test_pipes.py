"""Pipes in the catalog, and the files that they could not load."""

from __future__ import annotations

import msgspec
import pytest

from tests.catalog_world import World
from tests.unit.catalog.offsets.test_loaded_files import Noting
from tilth.catalog import TableNotFoundError
from tilth.catalog.records.keys import Space, news_of, pack
from tilth.model.pipe import FailedFile, Pipe


@pytest.fixture
def world() -> World:
    return World()


def a_pipe(world: World, name: str = "p", *, pipe_id: str = "1") -> Pipe:
    return Pipe(
        table=world.t, name=name, id=pipe_id, address="/in", format="JSON", every_ms=1_000, created_ms=1, query_id="q"
    )


def a_file(name: str) -> FailedFile:
    return FailedFile(
        file=name, size=1, modified_ms=1, schema_version=1, code="BAD_FILE_ROW", error="no", failed_ms=5, query_id="q"
    )


def test_a_pipe_is_one_of_a_kind_in_its_table(world: World) -> None:
    pipes, pipe = world.catalog.pipes, a_pipe(world)
    assert pipes.create(pipe)
    assert not pipes.create(a_pipe(world, pipe_id="2"))
    other = msgspec.structs.replace(pipe, table=world.table("other"))
    assert pipes.create(other)
    assert pipes.find(world.t, "p") == pipe
    assert pipes.of(world.t) == [pipe]
    assert {each.table for each in pipes.all()} == {pipe.table, other.table}


def test_no_table_no_pipe(world: World) -> None:
    with pytest.raises(TableNotFoundError):
        world.catalog.pipes.create(msgspec.structs.replace(a_pipe(world), table="none"))
    assert world.catalog.pipes.all() == []


def test_failed_files_belong_to_their_pipe(world: World) -> None:
    pipes, pipe = world.catalog.pipes, a_pipe(world)
    pipes.create(pipe)
    pipes.fail(pipe, [a_file("/in/" + "x" * 3_000), a_file("/in/b"), a_file("/in/c")])
    pipes.clear(pipe, ["/in/b", "/in/none"])
    assert set(pipes.failed(pipe)) == {"/in/" + "x" * 3_000, "/in/c"}
    assert pipes.drop(pipe)
    assert not pipes.drop(pipe)
    assert pipes.failed(pipe) == {}
    again = a_pipe(world, pipe_id="2")
    pipes.create(again)
    # A poll of the former pipe that has not heard of its end.
    pipes.fail(pipe, [a_file("/in/a")])
    assert (pipes.failed(pipe), pipes.failed(again), pipes.drop(pipe)) == ({}, {}, False)
    assert pipes.find(world.t, "p") == again


def test_a_refresh_forgets_failed_files_and_is_seen(world: World) -> None:
    pipes, pipe = world.catalog.pipes, a_pipe(world)
    pipes.create(pipe)
    pipes.fail(pipe, [a_file("/in/a")])
    pipes.refresh(pipe, now_ms=7)
    pipes.refresh(pipe, now_ms=7)
    found = pipes.find(world.t, "p")
    assert found is not None
    assert (found.refreshed_ms, pipes.failed(pipe)) == (8, {})
    pipes.drop(pipe)
    pipes.refresh(pipe, now_ms=9)
    assert pipes.all() == []


def test_many_files_fail_at_once(world: World) -> None:
    pipes, pipe = world.catalog.pipes, a_pipe(world)
    pipes.create(pipe)
    names = [f"/in/{number}" for number in range(2_500)]
    pipes.fail(pipe, [a_file(name) for name in names])
    assert len(pipes.failed(pipe)) == 2_500
    pipes.clear(pipe, names)
    assert pipes.failed(pipe) == {}


def test_failed_files_are_forgotten_without_a_request_for_each() -> None:
    kv = Noting()
    world = World(kv)
    pipes, pipe = world.catalog.pipes, a_pipe(world)
    pipes.create(pipe)
    names = [f"/in/{number}" for number in range(5)]
    pipes.fail(pipe, [a_file(name) for name in names])
    kv.single.clear()
    pipes.clear(pipe, [*names, "/in/none"])
    assert pipes.failed(pipe) == {}
    assert kv.single == [pack(Space.PIPE, world.t, "p")]


def test_other_servers_hear_of_a_pipe(world: World) -> None:
    assert news_of([pack(Space.PIPE, world.t, "p")]) == {world.t}
    assert news_of([pack(Space.FAILED_FILE, world.t, "1", "x")]) == set()
