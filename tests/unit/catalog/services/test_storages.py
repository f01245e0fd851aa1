"""Tables that are created in a storage while another server changes or drops it: neither works on a half change."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.catalog_world import SCHEMA, Racing, World
from tests.codes import WithCode
from tilth.base.errors import NotFoundError
from tilth.model.storage import Storage
from tilth.model.table import TableDef

STORAGE = Storage(name="r", root="replicas://r", replica_ids=("a", "b", "c"))
SETTINGS = {"storage_policy": "r"}


class Racers:
    """Two servers over one catalog; `kv.before` is called just before the next commit of either."""

    def __init__(self) -> None:
        self.kv = Racing()
        self.world = World(self.kv)
        assert self.world.catalog.storages.create(STORAGE)

    @property
    def storages(self) -> list[str]:
        return [each.name for each in self.world.catalog.storages.all()]

    def make_table(self) -> str:
        return self.world.table("u", settings=SETTINGS)


@pytest.fixture
def racers() -> Racers:
    return Racers()


def test_a_storage_in_which_a_table_is_made_meanwhile_is_not_dropped(racers: Racers) -> None:
    racers.kv.before = racers.make_table
    assert [each.name for each in racers.world.catalog.storages.drop("r")] == ["u"]
    assert racers.storages == ["r"]


def test_no_table_is_made_in_a_storage_that_is_dropped_meanwhile(racers: Racers) -> None:
    racers.kv.before = lambda: racers.world.catalog.storages.drop("r")
    with pytest.raises(NotFoundError, check=WithCode("STORAGE_DROPPED")):
        racers.make_table()
    assert racers.world.catalog.tables.find("default", "u") is None
    assert racers.storages == []


def test_a_replica_is_not_replaced_with_a_table_that_nobody_has_looked_at(racers: Racers) -> None:
    """Its only complete replica may be the one that goes."""
    after = replace(STORAGE, replica_ids=("d", "b", "c"))
    racers.kv.before = racers.make_table
    assert not racers.world.catalog.storages.replace(after, STORAGE, [], {})
    assert racers.world.catalog.storages.all() == [STORAGE]
    [table] = [each for each in racers.world.catalog.tables.all() if each.name == "u"]
    assert racers.world.catalog.storages.replace(after, STORAGE, [], {table.uuid: (1, 2)})


def test_a_table_that_is_made_while_a_replica_is_replaced_is_there(racers: Racers) -> None:
    after = replace(STORAGE, replica_ids=("d", "b", "c"))
    racers.kv.before = lambda: racers.world.catalog.storages.replace(after, STORAGE, [], {})
    racers.make_table()
    assert racers.world.catalog.storages.all() == [after]
    assert racers.world.catalog.tables.find("default", "u") is not None


def test_dropped_tables_count_until_they_are_forgotten(racers: Racers) -> None:
    table = racers.make_table()
    racers.world.catalog.tables.drop(table)
    assert [each.uuid for each in racers.world.catalog.storages.drop("r")] == [table]
    racers.world.catalog.tables.forget(table)
    assert racers.world.catalog.storages.drop("r") == []
    assert racers.world.catalog.storages.drop("r") == []
    assert racers.storages == []


def test_a_rebuilt_catalog_takes_tables_whose_storage_is_made_later(racers: Racers) -> None:
    racers.world.catalog.storages.drop("r")
    table = TableDef(uuid="", database="default", name="v", schema=SCHEMA, settings=SETTINGS)
    with pytest.raises(NotFoundError, check=WithCode("STORAGE_DROPPED")):
        racers.world.catalog.tables.create(table)
    assert racers.world.catalog.tables.create(table, may_lack_storage=True).name == "v"
