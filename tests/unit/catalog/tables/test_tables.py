"""Names, definitions, views; dropping, bringing back and forgetting."""

from __future__ import annotations

import pytest

from tests.catalog_world import SCHEMA, World
from tests.codes import WithCode
from tilth.base.errors import ConflictError, UnavailableError, UnknownOutcomeError
from tilth.base.rand import new_rng
from tilth.catalog import (
    DatabaseNotFoundError,
    MemoryKV,
    ReservedNameError,
    TableExistsError,
    TableInUseError,
    TableNotFoundError,
    WrongEngineError,
)
from tilth.model.service import ServiceKind, Switch, SwitchState
from tilth.model.table import TableDef, ViewDef
from tilth.testing import Fault, FaultyKV


@pytest.fixture
def world() -> World:
    return World()


def test_databases(world: World) -> None:
    tables = world.catalog.tables
    assert tables.databases() == ["default"]
    tables.create_database("db")
    tables.create_database("db", if_not_exists=True)
    tables.create_database("default", if_not_exists=True)
    with pytest.raises(ConflictError, check=WithCode("DATABASE_EXISTS")):
        tables.create_database("db")
    assert tables.databases() == ["db", "default"]
    world.table("t", "db")
    with pytest.raises(ConflictError, check=WithCode("DATABASE_NOT_EMPTY"), match="tables=t"):
        tables.drop_database("db")
    tables.drop(tables.get("db", "t").uuid)
    tables.drop_database("db")
    tables.drop_database("db", if_exists=True)
    tables.create_database("db2")
    with pytest.raises(DatabaseNotFoundError, match="did you mean db2"):
        tables.drop_database("db")
    for name in ("system", ""):
        with pytest.raises(ReservedNameError):
            tables.create_database(name)
    with pytest.raises(ReservedNameError):
        tables.drop_database("default")


def test_names(world: World) -> None:
    tables = world.catalog.tables
    relation = TableDef(uuid="", database="default", name="flights", schema=SCHEMA)
    made = tables.create(relation)
    assert len(made.uuid) == 32
    assert tables.create(relation, if_not_exists=True) == made == tables.get("default", "flights")
    assert tables.find("default", "flights") == tables.by_id(made.uuid) == made
    with pytest.raises(TableExistsError, match=r"default\.flights"):
        tables.create(relation)
    with pytest.raises(TableNotFoundError, match="did you mean flights"):
        tables.get("default", "flight")
    with pytest.raises(DatabaseNotFoundError):
        tables.get("nowhere", "flights")
    with pytest.raises(DatabaseNotFoundError):
        tables.create(TableDef(uuid="", database="nowhere", name="x", schema=SCHEMA))
    with pytest.raises(ReservedNameError):
        tables.create(TableDef(uuid="", database="system", name="x", schema=SCHEMA))
    assert tables.find("default", "none") is None
    assert tables.by_id("none") is None
    tables.create_database("a")
    world.table("z", "a")
    assert [(each.database, each.name) for each in tables.list()] == [
        ("a", "z"),
        ("default", "flights"),
        ("default", "t"),
    ]
    assert [each.name for each in tables.list("a")] == ["z"]


def test_settings(world: World) -> None:
    tables = world.catalog.tables
    tables.modify_settings(world.t, {"a": "1", "b": "2"})
    changed = tables.modify_settings(world.t, {"a": "3"}, ["b", "never_set"])
    assert isinstance(changed, TableDef)
    assert changed.settings == {"a": "3"}
    assert tables.by_id(world.t) == changed
    view = world.view("v", world.kafka(), world.t)
    with pytest.raises(WrongEngineError):
        tables.modify_settings(view, {"a": "1"})
    with pytest.raises(TableNotFoundError):
        tables.modify_settings("none", {})


def test_renaming(world: World) -> None:
    tables = world.catalog.tables
    tables.create_database("db")
    world.insert()
    tables.rename(world.t, "db", "t2")
    assert tables.find("default", "t") is None
    assert tables.get("db", "t2").uuid == world.t
    assert tables.rename(world.t, "db", "t2").name == "t2"
    assert len(world.names()) == 1
    world.table("other")
    with pytest.raises(TableExistsError):
        tables.rename(world.t, "default", "other")
    with pytest.raises(DatabaseNotFoundError):
        tables.rename(world.t, "nowhere", "t")


def test_views_hold_what_they_stand_on(world: World) -> None:
    tables = world.catalog.tables
    kafka, other = world.kafka(), world.table("other")
    first, second = world.view("v1", kafka, world.t), world.view("v2", kafka, other)
    assert {each.uuid for each in tables.views_of(kafka)} == {first, second}
    assert [each.uuid for each in tables.views_into(world.t)] == [first]
    assert tables.views_of(world.t) == []
    for uuid, views in ((kafka, "default.v1, default.v2"), (world.t, "default.v1")):
        with pytest.raises(TableInUseError) as caught:
            tables.drop(uuid)
        assert caught.value.facts["views"] == views
    tables.drop(first)
    tables.drop(world.t)
    assert [each.uuid for each in tables.views_of(kafka)] == [second]


def test_a_view_needs_the_right_ends(world: World) -> None:
    kafka = world.kafka()

    def view(source: str, target: str) -> ViewDef:
        return ViewDef(uuid="", database="default", name="v", source=source, target=target, select="SELECT 1")

    for source, target in ((world.t, world.t), (kafka, kafka)):
        with pytest.raises(WrongEngineError):
            world.catalog.tables.create(view(source, target))
    for source, target in (("none", world.t), (kafka, "none")):
        with pytest.raises(TableNotFoundError):
            world.catalog.tables.create(view(source, target))
    assert world.catalog.tables.find("default", "v") is None


def test_undrop_brings_back_the_last_one_with_all_it_held(world: World) -> None:
    tables = world.catalog.tables
    world.insert()
    tables.drop(world.t)
    assert tables.by_id(world.t) is None
    with pytest.raises(TableNotFoundError):
        world.catalog.parts.snapshot(world.t)
    world.clock.advance(1)
    second = world.table("t")
    with pytest.raises(TableExistsError):
        tables.undrop("default", "t")
    tables.drop(second)
    assert [each.relation.uuid for each in tables.dropped()] == [world.t, second]
    assert tables.undrop("default", "t").uuid == second
    tables.rename(second, "default", "t2")
    assert tables.undrop("default", "t").uuid == world.t
    assert world.catalog.parts.snapshot(world.t).rows == 10
    with pytest.raises(TableNotFoundError):
        tables.undrop("default", "t")


def test_definitions_that_have_not_changed_are_not_decoded_again(world: World) -> None:
    tables = world.catalog.tables
    others = [world.table(name) for name in ("a", "b", "c")]
    for uuid in others:
        tables.drop(uuid)
    before = {each.relation.uuid: each for each in tables.dropped()}
    [live] = tables.all()
    assert tables.all()[0] is live
    tables.undrop("default", "a")
    tables.forget(others[1])
    tables.rename(others[0], "default", "d")
    tables.drop(others[0])
    found = {each.relation.name: each for each in tables.dropped()}
    assert found.keys() == {"c", "d"}
    assert found["c"] is before[others[2]]
    world.clock.advance(1)
    tables.drop(world.t)
    assert [each.relation.name for each in tables.dropped()][-1] == "t"


def test_undrop_of_a_view_needs_its_ends(world: World) -> None:
    tables = world.catalog.tables
    kafka = world.kafka()
    view = world.view("v", kafka, world.t)
    tables.drop(view)
    tables.drop(kafka)
    with pytest.raises(TableNotFoundError):
        tables.undrop("default", "v")
    tables.undrop("default", "k")
    tables.undrop("default", "v")
    assert [each.uuid for each in tables.views_of(kafka)] == [view]


def test_forgetting_leaves_no_key_of_the_table(world: World) -> None:
    kv = world.kv
    assert isinstance(kv, MemoryKV)
    tables = world.catalog.tables
    parts = [*world.insert(), *world.insert()]
    world.merge(parts)
    ended = [(entry, 1) for entry in world.catalog.parts.entries(world.t, "all")[:1]]
    world.catalog.parts.move_to_trash(world.t, ended, now_ms=1)
    world.catalog.readers.open(world.t, 1, "q", 1000)
    switch = Switch(table=world.t, service=ServiceKind.MERGE, state=SwitchState.STOPPED, since_ms=1)
    world.catalog.services.set(switch)
    with pytest.raises(TableNotFoundError):
        tables.forget(world.t)
    tables.drop(world.t)
    tables.forget(world.t)
    assert tables.dropped() == []
    left = {key[:1] for key, _ in kv.scan(b"\x01", None) if world.t.encode() in key}
    assert left == set()
    with pytest.raises(TableNotFoundError):
        tables.undrop("default", "t")


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
def test_a_lost_answer_changes_no_answer(fault: Fault) -> None:
    faulty = FaultyKV(MemoryKV(), new_rng(1))
    world = World(faulty)
    tables = world.catalog.tables
    faulty.plan_commits(fault)
    tables.create_database("db")
    faulty.plan_commits(fault)
    made = tables.create(TableDef(uuid="", database="db", name="x", schema=SCHEMA))
    faulty.plan_commits(fault)
    tables.rename(made.uuid, "db", "y")
    faulty.plan_commits(fault)
    tables.drop(made.uuid)
    faulty.plan_commits(fault)
    assert tables.undrop("db", "y").uuid == made.uuid
    faulty.plan_commits(fault)
    lease = world.catalog.leases.acquire("a", "s1")
    assert world.catalog.leases.get("a") == lease
    assert lease.epoch == 1


def test_an_answer_that_is_lost_before_reading_fails_is_found_out_later() -> None:
    """The change landed, its answer was lost, and the first read after it failed: it is not done or refused twice."""
    faulty = FaultyKV(MemoryKV(), new_rng(1))
    world = World(faulty)
    tables = world.catalog.tables
    faulty.plan_commits(Fault.ANSWER_LOST)
    faulty.plan_reads(None, None, Fault.REFUSED, Fault.REFUSED)
    tables.create_database("db")
    faulty.plan_commits(Fault.ANSWER_LOST)
    faulty.plan_reads(*[None] * 3, Fault.REFUSED, Fault.REFUSED)
    tables.drop_database("db")
    assert tables.databases() == ["default"]


def test_a_change_that_stays_unknown_is_reported_as_such() -> None:
    faulty = FaultyKV(MemoryKV(), new_rng(1))
    world = World(faulty)
    faulty.plan_commits(Fault.REQUEST_LOST)
    faulty.plan_reads(None, None, *[Fault.REFUSED] * 4)
    with pytest.raises(UnknownOutcomeError):
        world.catalog.tables.create_database("db")
    faulty.plan_commits(Fault.REFUSED)
    with pytest.raises(UnavailableError):
        world.catalog.tables.create_database("db")


def test_forgetting_takes_leases_and_saved_state_along(world: World) -> None:
    kafka = world.kafka()
    for uuid in (world.t, kafka):
        for name in (f"table/{uuid}", f"consumer/{uuid}/0", f"consumer/{uuid}/11"):
            world.catalog.leases.acquire(name, "s1")
        for name in (f"maintenance/trash/{uuid}", f"ingest/{uuid}/topics"):
            world.catalog.state.put(name, b"x")
    world.catalog.tables.drop(kafka)
    world.catalog.tables.forget(kafka)
    assert {lease.name.split("/")[1] for lease in world.catalog.leases.list()} == {world.t}
    assert len(world.catalog.leases.list()) == 3
    assert world.catalog.state.get(f"ingest/{kafka}/topics") is None
    assert world.catalog.state.get(f"maintenance/trash/{kafka}") is None
    assert world.catalog.state.get(f"ingest/{world.t}/topics") == b"x"
