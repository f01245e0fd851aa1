"""DRILL FAILOVER and ALTER SERVER where they cannot be: one server, names that are not there, times nobody meant.
What they do is tested on servers (tests/integration/membership).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sql_world import SqlWorld
from tilth.base.errors import TilthError
from tilth.catalog import Joining
from tilth.grammar.errors import SqlSyntaxError
from tilth.grammar.statements import Name
from tilth.statements.operate.drill import DrillFailover
from tilth.statements.registry import parse


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    made = SqlWorld(tmp_path)
    made.run("CREATE TABLE t (id BIGINT) ENGINE = MergeTree ORDER BY id")
    return made


def test_a_server_alone_has_nowhere_to_go(world: SqlWorld) -> None:
    with pytest.raises(TilthError, match="no other server") as raised:
        world.run("DRILL FAILOVER t")
    assert raised.value.code == "NOWHERE_TO_GO"
    assert "second server" in raised.value.hint
    assert world.catalog.placements.all() == []
    [line] = [each for each in world.catalog.audit.recent(10) if each.verb == "DRILL FAILOVER"]
    assert line.outcome.startswith("NOWHERE_TO_GO")


def test_a_table_that_is_not_there_is_named(world: SqlWorld) -> None:
    with pytest.raises(TilthError, match="missing"):
        world.run("DRILL FAILOVER missing FOR SECONDS 3")


@pytest.mark.parametrize("text", ["DRILL", "DRILL t", "DRILL FAILOVER", "DRILL FAILOVER t FOR 3", "DRILL FAILOVER t 3"])
def test_half_of_it_is_refused(text: str) -> None:
    with pytest.raises(SqlSyntaxError):
        parse(text)


@pytest.mark.parametrize("seconds", ["0", "3601", "-1", "99999999999999999999"])
def test_a_time_that_nobody_meant_is_refused(seconds: str) -> None:
    with pytest.raises(SqlSyntaxError):
        parse(f"DRILL FAILOVER t FOR SECONDS {seconds}")


def test_it_reads_as_it_is_written() -> None:
    assert parse("drill failover table `a b`.t for seconds 7;") == DrillFailover(name=Name("a b", "t"), seconds=7)


def test_a_server_that_is_not_known_is_not_drained(world: SqlWorld) -> None:
    with pytest.raises(TilthError, match="no such server") as raised:
        world.run("ALTER SERVER other DRAIN BECAUSE 'x'")
    assert raised.value.code == "SERVER_NOT_FOUND"
    world.catalog.servers.join(Joining(name="other", run="r", version="1"))
    world.run("ALTER SERVER other DRAIN BECAUSE 'its disk'")
    assert world.catalog.servers.drains() == {"other": "its disk"}
    world.run("ALTER SERVER other RESUME")
    world.run("ALTER SERVER `other` DRAIN")
    assert world.catalog.servers.drains() == {"other": ""}
