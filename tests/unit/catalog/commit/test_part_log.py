"""Sort keys of parts in the part log: they are forgotten after a while, the events stay."""

from __future__ import annotations

from msgspec.structs import replace

from tests.catalog_world import SCHEMA, World
from tilth.catalog import InsertPart
from tilth.catalog.records.keys import Space, span
from tilth.model.part import ColumnRange, PartEvent
from tilth.model.table import TableDef

PERSON = "Zebra Person"


def sorted_table(world: World) -> str:
    table = TableDef(uuid=world.new_id(), database="default", name="sorted", schema=SCHEMA, order_by=("a",))
    return world.catalog.tables.create(table).uuid


def insert(world: World, table: str, name: str) -> None:
    written = replace(world.written(), ranges={"a": ColumnRange(name, name, 0)})
    world.commit(InsertPart(table=table, written=written))


def events(world: World) -> list[PartEvent]:
    return world.catalog.part_log.recent(limit=100)


def stored(world: World) -> bytes:
    start, end = span(Space.PART_LOG)
    with world.kv.view() as view:
        return b"".join(found.value for _, found in view.scan(start, end))


def test_keys_of_old_events_are_forgotten_and_the_events_stay() -> None:
    world = World()
    table = sorted_table(world)
    for number in range(3):
        insert(world, table, f"{PERSON} {number}")
        world.clock.advance(60)
    log = world.catalog.part_log
    before = events(world)
    assert [each.key is not None for each in before] == [True] * 3
    assert log.forget_sort_keys(before[1].at_ms) == 1
    assert [each.key is not None for each in events(world)] == [False, True, True]
    assert log.forget_sort_keys(world.clock.now_ms()) == 2
    assert log.forget_sort_keys(world.clock.now_ms()) == 0
    assert PERSON.encode() not in stored(world)
    assert events(world) == [replace(each, key=None) for each in before]
    insert(world, table, PERSON)
    world.clock.advance(60)
    # Another process looks at all of them.
    assert world.reopened().part_log.forget_sort_keys(world.clock.now_ms()) == 1
    assert PERSON.encode() not in stored(world)
