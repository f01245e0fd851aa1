"""Alarms of servers, workers and the catalog: found from their thresholds on, and gone when all is right again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.alarm_world import AlarmWorld, FakePeers
from tilth.base.errors import UnavailableError
from tilth.base.memory import MemoryReading
from tilth.base.pressure import MemoryGate
from tilth.base.rand import new_rng
from tilth.catalog import Joining
from tilth.introspection.alarms.servers import GONE_SECONDS_MAX
from tilth.membership.member import LEAVING
from tilth.model.server import ServerRecord
from tilth.warehouse import WarehouseInfo, WorkerInfo


@pytest.fixture
def world(tmp_path: Path) -> AlarmWorld:
    return AlarmWorld(tmp_path / "tables")


def record(name: str, **more: object) -> ServerRecord:
    return msgspec.structs.replace(ServerRecord(name=name, epoch=1, run=name, started_ms=1), **more)


def sentences(world: AlarmWorld, name: str) -> list[str]:
    return [each.sentence for each in world.found(name)]


# --- servers and the catalog ---


def test_a_catalog_that_does_not_answer(world: AlarmWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.found("catalog_away") == []

    def away() -> list[object]:
        raise UnavailableError("no connection")

    monkeypatch.setattr(world.catalog.tables, "all", away)
    assert sentences(world, "catalog_away") == ["the catalog does not answer: no connection"]


def test_a_server_that_was_killed_and_one_that_was_stopped(world: AlarmWorld) -> None:
    servers = world.catalog.servers
    world.change(peers=FakePeers(record("s1")))
    killed, stopped = (servers.join(Joining(name=name, run=name, version="1")) for name in ("killed", "stopped"))
    world.clock.advance(1)
    stopped = servers.renew(msgspec.structs.replace(stopped, draining=LEAVING))
    assert servers.end(killed)
    assert servers.end(stopped)
    [finding] = world.found("server_away")
    assert (finding.subject, finding.since_ms) == ("killed", world.clock.now_ms())
    assert finding.sentence == "server killed has been gone since 2026-01-01 00:00:01 UTC, others host its tables"
    servers.drain("killed", "it is sold")
    assert world.found("server_away") == []
    servers.resume("killed")
    world.clock.advance(GONE_SECONDS_MAX)
    assert world.found("server_away") == []


def test_a_former_process_of_a_server_alone_is_no_alarm(world: AlarmWorld) -> None:
    killed = world.catalog.servers.join(Joining(name="killed", run="r", version="1"))
    assert world.catalog.servers.end(killed)
    assert world.found("server_away") == []
    # It joined when it had ended the other one.
    world.change(peers=FakePeers(record("s1", started_ms=world.clock.now_ms())))
    assert world.found("server_away") == []


def test_no_server_hosts_tables(world: AlarmWorld) -> None:
    world.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
    draining = record("s1", draining="its clock is wrong")
    world.change(peers=FakePeers(draining, record("s2")))
    assert world.found("table_without_host") == []
    world.change(peers=FakePeers(draining, record("s2", draining="it starts")))
    assert sentences(world, "table_without_host") == [
        "no server hosts tables, so that 1 tables have no services: s1: its clock is wrong; s2: it starts"
    ]


def test_a_clock_that_is_wrong(world: AlarmWorld) -> None:
    assert world.found("clock_off") == []
    world.catalog.clock_check.compare(2_000, doubt_ms=10, bound_ms=500)
    [finding] = world.found("clock_off")
    assert finding.subject == "s1"
    assert "offset_ms=2000" in finding.sentence
    world.catalog.clock_check.compare(20, doubt_ms=10, bound_ms=500)
    assert world.found("clock_off") == []


def test_memory_that_is_scarce(world: AlarmWorld) -> None:
    reading = MemoryReading(used=79, hard=100, soft=80)
    world.change(memory=MemoryGate(lambda: reading, new_rng()))
    assert world.found("memory_pressure") == []
    reading = MemoryReading(used=90, hard=100, soft=80)
    [sentence] = sentences(world, "memory_pressure")
    assert sentence.startswith("memory of server s1 is scarce: 50% of writes are refused")


# --- workers ---


def with_workers(world: AlarmWorld, monkeypatch: pytest.MonkeyPatch, *workers: WorkerInfo) -> None:
    monkeypatch.setattr(world.dispatch, "workers", lambda: list(workers))


def with_warehouses(world: AlarmWorld, monkeypatch: pytest.MonkeyPatch, *warehouses: WarehouseInfo) -> None:
    monkeypatch.setattr(world.dispatch, "warehouses", lambda: list(warehouses))


def test_workers_that_do_not_answer(world: AlarmWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    [alive] = world.dispatch.workers()
    assert world.found("worker_away") == []
    silent = replace(alive, state="silent", reason="no heartbeat since noon")
    without = replace(alive, name="w2", state="without spark", reason="the JVM has ended")
    drained = replace(alive, state="drained", reason="somebody drains it")
    with_workers(world, monkeypatch, alive, silent, without, drained)
    assert [(each.subject, each.sentence, each.since_ms) for each in world.found("worker_away")] == [
        ("w1", "worker w1 is silent: no heartbeat since noon", 1_000),
        ("w2", "worker w2 is without spark: the JVM has ended", 0),
    ]


def test_a_warehouse_without_a_worker(world: AlarmWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.found("no_worker") == []
    empty = WarehouseInfo(name="write", workers=0, slots=0, running=0, waiting=3, resident=0)
    unused = replace(empty, name="later", waiting=0)
    with_warehouses(world, monkeypatch, empty, unused)
    assert sentences(world, "no_worker") == [
        "warehouse write has no worker, 3 tasks wait: `tilth worker --warehouse write` starts one"
    ]
    with_warehouses(world, monkeypatch, replace(unused, workers_wanted=1), replace(unused, name="used", waiting=1))
    assert [each.subject for each in world.found("no_worker")] == ["later", "used"]


def test_a_warehouse_with_too_few_workers(world: AlarmWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    few = WarehouseInfo(name="nightly", workers=1, slots=4, running=4, waiting=2, resident=0, workers_wanted=3)
    well = (replace(few, workers=3), replace(few, workers_wanted=0), replace(few, workers=0))
    with_warehouses(world, monkeypatch, *well)
    assert world.found("workers_missing") == []
    with_warehouses(world, monkeypatch, few)
    assert sentences(world, "workers_missing") == ["warehouse nightly has 1 of 3 workers, 2 tasks wait"]
