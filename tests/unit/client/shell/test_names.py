"""Names that the shell reads in the background, from a server that answers, hangs, or answers something else."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from tests.unit.app_transport import AppTransport
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.base.errors import UnavailableError
from tilth.client import Connection
from tilth.client.shell.names import STALE_SECONDS, TABLES_WITH_COLUMNS_MAX, Named, Names
from tilth.control.running import Origin
from tilth.query.results.answer import Answer
from tilth.server import build_app
from tilth.testing.clock import ManualClock


@dataclass
class NamingRooms(FakeRooms):
    """Answers what the shell reads; others hang until they may go on."""

    tables: list[tuple[str, str]] = field(default_factory=lambda: [("Shop", "orders"), ("default", "it's")])
    may_answer: threading.Event = field(default_factory=threading.Event)

    def run(
        self, text: str, *, database: str, settings: Mapping[str, str], origin: Origin, streams: bool = False
    ) -> Answer:
        assert self.may_answer.wait(10)
        self._answered("run", text, database, dict(settings))
        return Answer(query_id="q", columns=[], table=pa.table(self._columns(text)))

    def _columns(self, text: str) -> dict[str, list[str]]:
        if "FROM system.tables" in text:
            databases, names = zip(*self.tables, strict=True)
            return {"database": list(databases), "name": list(names), "engine": ["MergeTree"] * len(names)}
        if "FROM system.columns WHERE" in text:
            return {"name": ["late"], "type": ["int"]}
        if "FROM system.columns" in text:
            return {"database": ["Shop"], "table": ["orders"], "name": ["id"], "type": ["bigint"]}
        if "FROM system.settings" in text:
            return {"name": ["max_execution_time"], "scope": ["session"]}
        if text.startswith("DESCRIBE"):
            return {"name": ["query_id"], "type": ["string"], "comment": [""]}
        return {"name": ["tasks"] if "TABLES" in text else ["Shop", "default"] if "DATABASES" in text else ["abs"]}


class Changes:
    """Waits until names have changed so many times."""

    def __init__(self) -> None:
        self._seen = threading.Semaphore(0)

    def note(self) -> None:
        self._seen.release()

    def wait(self) -> None:
        assert self._seen.acquire(timeout=10)


@pytest.fixture
def rooms() -> NamingRooms:
    return NamingRooms()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def names(rooms: NamingRooms, clock: ManualClock, changes: Changes) -> Iterator[Names]:
    connection = Connection("http://tilth.test", transport=AppTransport(build_app(context_of(rooms))))
    names = Names(clock, connection, changed=changes.note)
    names.start()
    yield names
    rooms.may_answer.set()
    names.stop()


def test_nothing_waits_for_a_server_that_hangs(names: Names, rooms: NamingRooms, changes: Changes) -> None:
    for _ in range(1000):
        assert names.known().tables == {}
        names.refresh()
    rooms.may_answer.set()
    changes.wait()
    known = names.known()
    assert known.databases == (Named("Shop", "database"), Named("default", "database"))
    assert known.tables["shop"] == (Named("orders", "MergeTree"),)
    assert known.tables["system"] == (Named("tasks", "system table"),)
    assert known.columns == {("shop", "orders"): (Named("id", "bigint"),)}
    assert known.settings == (Named("max_execution_time", "session"),)
    assert all(call[3] == {"readonly": "1", "log_queries": "0"} for call in rooms.calls)


def test_columns_of_one_table_are_read_when_they_are_wanted(names: Names, rooms: NamingRooms, changes: Changes) -> None:
    rooms.tables += [("many", f"t{number}") for number in range(TABLES_WITH_COLUMNS_MAX)]
    rooms.may_answer.set()
    changes.wait()
    assert names.known().columns == {}
    names.want_columns(("default", "it's"))
    names.want_columns(("default", "unheard-of"))
    names.want_columns(("system", "tasks"))
    changes.wait()
    changes.wait()
    assert set(names.known().columns) == {("default", "it's"), ("system", "tasks")}
    assert "\"table\" = 'it''s'" in str(rooms.texts[-2])
    assert rooms.texts[-1] == "DESCRIBE system.`tasks`"


def test_a_server_that_goes_away_is_said_and_names_stay(
    names: Names, rooms: NamingRooms, clock: ManualClock, changes: Changes
) -> None:
    rooms.may_answer.set()
    changes.wait()
    rooms.error = UnavailableError("the catalog is away")
    names.known()
    assert len(rooms.calls) == 6
    clock.advance(STALE_SECONDS + 1)
    names.known()
    changes.wait()
    assert names.problem == "the catalog is away"
    assert names.known().tables["shop"]
    rooms.error = None
    names.refresh()
    changes.wait()
    assert names.problem == ""


def test_an_answer_of_another_shape_is_no_error(names: Names, rooms: NamingRooms, changes: Changes) -> None:
    rooms.tables = [("a", "b")]
    rooms._columns = lambda text: {"one": ["1"]}  # type: ignore[method-assign]
    rooms.may_answer.set()
    changes.wait()
    assert (names.known().tables, names.problem) == ({"system": (Named("1", "system table"),)}, "")
