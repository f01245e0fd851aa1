"""Steps after the commit of a statement cannot refuse it.

An error, or a second run on another server, would say that it was not applied.

Modules: statements/engine.py, maintenance/manager/manager.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sql_world import SqlWorld, table_of
from tilth.base.errors import UnavailableError
from tilth.base.settings import read_settings
from tilth.catalog import NotHostedError
from tilth.maintenance import ManagerSettings
from tilth.maintenance.manager.manager import MaintenanceManager
from tilth.model.table import KafkaDef
from tilth.storage import local_root
from tilth.warehouse import Dispatcher


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    made = SqlWorld(tmp_path)
    made.run("CREATE TABLE t (a BIGINT) ENGINE = MergeTree ORDER BY a")
    made.run("INSERT INTO t VALUES (1)")
    return made


def commits(world: SqlWorld) -> list[str]:
    """Return the kinds of the table's commits, the oldest first."""
    return [commit.actor.split()[0] for _, commit in reversed(world.catalog.history.commits(table_of(world).uuid, 9))]


@pytest.mark.parametrize(
    ("statement", "kind"), [("ALTER TABLE t DROP PARTITION ID 'all'", "drop"), ("TRUNCATE TABLE t", "truncate")]
)
def test_parts_of_another_servers_table_are_hidden_once(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, kind: str
) -> None:
    """The commit had landed when the end of merges, which run elsewhere, was asked for: the statement was sent to that
    server, which did it once more, or it was refused.
    """
    dispatcher = Dispatcher(world.clock, world.new_id, {}, slots={})
    manager = MaintenanceManager(
        world.clock,
        world.catalog,
        dispatcher,
        local_root(tmp_path),
        read_settings(ManagerSettings, {}),
        hosts=lambda uuid: False,
    )
    with pytest.raises(NotHostedError):
        manager.optimize(table_of(world).uuid)
    monkeypatch.setattr(world.maintenance, "cancel_partition", manager.cancel_partition)
    world.run(statement)
    assert commits(world) == ["insert", kind]
    assert world.catalog.parts.visible(table_of(world).uuid, "all") == []


def test_an_audit_log_that_fails_does_not_refuse_what_was_applied(
    world: SqlWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(event: object) -> None:
        raise UnavailableError("the catalog does not answer")

    monkeypatch.setattr(world.catalog.audit, "record", away)
    answer = world.run("ALTER TABLE t DROP PARTITION ID 'all'")
    assert answer.notices == ("system.audit_log lacks this statement: the catalog does not answer",)
    assert commits(world) == ["insert", "drop"]
    # The error of the statement itself is the one that is shown.
    monkeypatch.setattr(world.maintenance, "optimize", _elsewhere)
    with pytest.raises(NotHostedError, match="elsewhere"):
        world.run("OPTIMIZE TABLE t")


def _elsewhere(*_: object, **__: object) -> None:
    raise NotHostedError("elsewhere")


def test_settings_that_are_stored_are_not_refused_because_consumers_run_on(world: SqlWorld) -> None:
    world.run("CREATE TABLE k (a BIGINT) ENGINE = Kafka('h:1', 'x', 'g', 'JSONEachRow')")
    world.consume.adopting_fails = UnavailableError("consumers are still ending")
    answer = world.run("ALTER TABLE k MODIFY SETTING kafka_num_consumers = 3")
    assert "adopt them when they have ended: consumers are still ending" in answer.notices[0]
    kafka = world.catalog.tables.get("default", "k")
    assert isinstance(kafka, KafkaDef)
    assert kafka.settings["kafka_num_consumers"] == "3"
