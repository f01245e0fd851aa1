"""What the doctor says of a server: its statements run in a real engine, the rest is as a test says. No Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.alarm_world import AlarmWorld
from tests.docs.pages import anchors_of
from tests.tidy.sources import ROOT
from tilth.base.errors import UnavailableError
from tilth.doctor import check_server
from tilth.model.diagnosis import Diagnosis, Grade
from tilth.model.wire import Health
from tilth.testing.clock import ManualClock

WELL = Health(status="ok", version="1", server="a", components={"catalog": "ok", "spark": "ok"})
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@dataclass
class FakeServer:
    """A server whose system tables have the rows of a test, by table."""

    url: str = "http://tilth.test"
    state: Health = WELL
    readiness: Health = WELL
    error: Exception | None = None
    tables: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    statements: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    def health(self) -> Health:
        if self.error is not None:
            raise self.error
        return self.state

    def ready(self) -> Health:
        return self.readiness

    def rows(self, statement: str, settings: Mapping[str, str]) -> list[tuple[Any, ...]]:
        self.statements.append((statement, settings))
        name = statement.partition("FROM system.")[2].split()[0]
        if "clock_offset_ms" in statement:
            name = "clocks"
        return self.tables.get(name, [])


def said(server: FakeServer, *, version: str = "1") -> dict[str, list[Diagnosis]]:
    """What is found, by check; what needs a person has a page that is there."""
    clock = ManualClock(now_ms=int(NOW.timestamp() * 1000))
    found: dict[str, list[Diagnosis]] = {}
    for each in check_server(clock, server, version, seconds_max=5):
        found.setdefault(each.check, []).append(each)
        assert bool(each.todo) is (each.grade is not Grade.OK)
        page, _, anchor = each.page.partition("#")
        assert not page or anchor in anchors_of(ROOT / page)
    return found


def test_a_server_that_is_well() -> None:
    server = FakeServer(tables={"servers": [("a", "1")], "clocks": [("a", None, True, NOW)]})
    assert {name: [(each.grade, each.sentence) for each in found] for name, found in said(server).items()} == {
        "server": [(Grade.OK, "http://tilth.test answers as server a, and its 2 components work")],
        "statements": [(Grade.OK, "statements work: Spark has run a first query")],
        "alarms": [(Grade.OK, "no alarm: nothing needs a person now")],
        "services": [(Grade.OK, "no service fails or is late")],
        "leases": [(Grade.OK, "every lease is held by a process that lives")],
        "versions": [(Grade.OK, "1 servers, 0 workers and this client have version 1")],
        "clocks": [(Grade.OK, "the clocks of servers, database and this machine agree")],
    }
    assert all(settings["readonly"] == "1" and settings["log_queries"] == "0" for _, settings in server.statements)


def test_a_server_that_does_not_answer_is_one_finding() -> None:
    error = UnavailableError("the Tilth server does not answer", url="http://tilth.test", hint="check the address")
    found = said(FakeServer(error=error))
    assert [(name, each[0].sentence, each[0].todo) for name, each in found.items()] == [
        ("server", "the Tilth server does not answer: url=http://tilth.test", "check the address")
    ]


def test_components_that_do_not_work_and_notes() -> None:
    components = {"catalog": "ok", "spark": "it has not answered since 12:00"}
    state = Health(status="degraded", version="1", server="a", components=components, notes={"catalog database": "x"})
    found = said(FakeServer(state=state))
    assert [(each.grade, each.sentence) for each in found["server"]] == [
        (Grade.ERROR, "spark: it has not answered since 12:00"),
        (Grade.WARNING, "catalog database: x"),
    ]
    assert len(found) == 7


def test_a_server_that_starts() -> None:
    starting = Health(
        status="degraded", version="1", server="a", components={"statements": "Spark runs its first query"}
    )
    assert said(FakeServer(readiness=starting))["statements"][0].sentence == (
        "statements do not work yet: Spark runs its first query"
    )


def test_alarms_have_their_own_words() -> None:
    page = "docs/operate/questions.md#3-is-the-disk-full"
    rows = [("critical", "the disk is full", NOW, "Make room.", page), ("warning", "w", None, "Do it.", page)]
    found = said(FakeServer(tables={"alarms": rows}))["alarms"]
    assert found[0] == Diagnosis(
        check="alarms",
        grade=Grade.ERROR,
        sentence="the disk is full",
        todo="Make room.",
        page=page,
        since="2026-01-31 12:00:00 UTC",
    )
    assert (found[1].grade, found[1].since) == (Grade.WARNING, "")
    many = said(FakeServer(tables={"alarms": rows * 50}))["alarms"]
    assert (len(many), many[-1].sentence) == (21, "there are 80 more alarms")


def test_services_that_fail_are_late_or_stopped_on_purpose() -> None:
    late = NOW - timedelta(seconds=300)
    rows = [
        ("shop", "orders", "merge", "running", "failed", "no room", 2, NOW, NOW, None),
        ("shop", "orders", "gc", "running", "idle", "", 0, late, NOW, None),
        ("shop", "orders", "flush", "running", "idle", "", 0, NOW - timedelta(seconds=60), NOW, None),
        ("shop", "a", "flush", "stopped", "stopped", "", 0, None, NOW, "a migration"),
        ("shop", "b", "flush", "stopped", "stopped", "", 0, None, NOW, "a migration"),
    ]
    assert [(each.grade, each.sentence) for each in said(FakeServer(tables={"bg_threads": rows}))["services"]] == [
        (Grade.WARNING, "merge of shop.orders has failed 2 times in a row: no room"),
        (Grade.ERROR, "gc of shop.orders should have polled 300 s ago, and has not"),
        (Grade.OK, "stopped on purpose: flush because a migration of 2 tables"),
    ]


def test_leases_without_holders() -> None:
    rows = [(f"table/{number}", "a-1") for number in range(5)]
    assert said(FakeServer(tables={"leases": rows}))["leases"][0].sentence == (
        "5 leases are held by processes that do not live any more: table/0 of a-1, table/1 of a-1, table/2 of a-1"
    )


def test_versions_that_differ() -> None:
    tables = {"workers": [("w", "2")]}
    assert said(FakeServer(tables=tables))["versions"][0].sentence == "versions differ: worker w 2, this client 1"
    same = said(FakeServer(tables={"workers": [("w", "1")]}))["versions"][0]
    assert (same.grade, same.sentence) == (Grade.OK, "0 servers, 1 workers and this client have version 1")
    of_sources = said(FakeServer(tables={"workers": [("w", "1")]}), version="")["versions"][0]
    assert (of_sources.grade, of_sources.sentence) == (Grade.OK, "0 servers, 1 workers have version 1")


@pytest.mark.parametrize(
    ("ahead_seconds", "offset_ms", "grade", "sentence"),
    [
        (-90, None, Grade.WARNING, "the clock of this machine is 90.0 s ahead of that of server a"),
        (5, None, Grade.WARNING, "the clock of this machine is 5.0 s behind that of server a"),
        (
            0,
            300.0,
            Grade.WARNING,
            "the clock of server a is 300 ms ahead of the catalog's database, 500 ms is the bound",
        ),
        (0, -900.0, Grade.ERROR, "the clock of server a is 900 ms behind the catalog's database, 500 ms is the bound"),
        (1, 100.0, Grade.OK, "the clocks of servers, database and this machine agree"),
    ],
)
def test_clocks(ahead_seconds: int, offset_ms: float | None, grade: Grade, sentence: str) -> None:
    server = FakeServer(tables={"clocks": [("a", offset_ms, True, NOW + timedelta(seconds=ahead_seconds))]})
    assert [(each.grade, each.sentence) for each in said(server)["clocks"]] == [(grade, sentence)]


def test_the_bound_of_clocks_has_a_unit() -> None:
    clocks = [("a", 300.0, True, NOW)]
    found = said(FakeServer(tables={"clocks": clocks, "settings": [("250ms",)]}))["clocks"]
    assert [(each.grade, each.sentence) for each in found] == [
        (Grade.ERROR, "the clock of server a is 300 ms ahead of the catalog's database, 250 ms is the bound")
    ]


def test_every_statement_runs(tmp_path: Path) -> None:
    world = AlarmWorld(tmp_path)

    class RealServer(FakeServer):
        def rows(self, statement: str, settings: Mapping[str, str]) -> list[tuple[Any, ...]]:
            table = world.run(statement, settings=settings).table
            return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    world.run("CREATE TABLE t (a BIGINT) ENGINE = MergeTree ORDER BY a")
    found = said(RealServer())
    assert found.keys() == {"server", "statements", "alarms", "services", "leases", "versions", "clocks"}
    # The fakes of this world have a Kafka table without a broker, no versions, and a clock of their own.
    sentences = {name: [each.sentence for each in several] for name, several in found.items()}
    assert sentences["alarms"] == ["no alarm: nothing needs a person now"]
    assert sentences["services"] == ["consume of default.k has failed 2 times in a row: the broker does not answer"]
    assert sentences["leases"] == ["every lease is held by a process that lives"]
    assert [each.grade for each in found["versions"]] == [Grade.OK]
    assert all(each.startswith("the clock of this machine is") for each in sentences["clocks"])
