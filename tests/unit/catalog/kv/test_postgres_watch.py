"""The watch on the catalog's database: its words on transactions that hold up the vacuum; sessions through a pooler."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from tests.codes import WithCode
from tilth.base.errors import UnavailableError
from tilth.catalog import parse_postgres
from tilth.catalog.kv.postgres import LIMITS
from tilth.catalog.kv.postgres_connect import Connector
from tilth.catalog.kv.postgres_watch import DatabaseStats, notes_of, trouble_of

ADDRESS = parse_postgres("postgresql://tilth@db:6432/tilth")


def test_an_old_snapshot_is_a_note_and_many_dead_rows_are_trouble_that_names_it() -> None:
    old = DatabaseStats(snapshot_seconds=4000.0, snapshot_of="process 71 of pg_dump", synchronous="s", rows=1000)
    assert [note for note in notes_of(old) if "process 71 of pg_dump" in note and "4000 s" in note]
    assert trouble_of(old) == ""
    slow = DatabaseStats(snapshot_seconds=4000.0, snapshot_of="process 71 of pg_dump", dead_rows=300_000, rows=1000)
    assert "300000 dead rows" in trouble_of(slow)
    assert "process 71 of pg_dump" in trouble_of(slow)


def test_what_a_large_catalog_leaves_behind_in_a_minute_is_no_trouble() -> None:
    assert trouble_of(DatabaseStats(dead_rows=300_000, rows=1_000_000)) == ""
    assert "autovacuum" in trouble_of(DatabaseStats(dead_rows=300_000, rows=100_000))
    assert notes_of(DatabaseStats(snapshot_seconds=200.0, snapshot_of="process 7 of tilth")) == ()


@pytest.mark.parametrize(("pid", "seqscan"), [(8, "off"), (7, "on")])
def test_a_session_that_is_not_the_one_that_was_opened_is_a_pooler_s(pid: int, seqscan: str) -> None:
    """Behind a pooler, the backend is another one than at the connect, or has not the options that were sent."""
    connection = cast("Connection[TupleRow]", SimpleNamespace(info=SimpleNamespace(backend_pid=7)))
    connector = Connector(ADDRESS, {})
    connector.check_session(connection, backend_pid=7, seqscan="off")
    with pytest.raises(UnavailableError, check=WithCode("CATALOG_POOLER"), match="pgbouncer") as raised:
        connector.check_session(connection, backend_pid=pid, seqscan=seqscan)
    assert "name the database itself" in raised.value.hint


def test_a_pooler_that_refuses_our_options_is_named() -> None:
    words = "connection failed: FATAL:  unsupported startup parameter: options"
    failure = Connector(ADDRESS, {})._failure([("db", psycopg.OperationalError(words))])
    assert isinstance(failure, UnavailableError)
    assert failure.code == "CATALOG_POOLER"
    both = Connector(ADDRESS, {})._failure(
        [("a", psycopg.OperationalError("off")), ("b", psycopg.OperationalError("no"))]
    )
    assert str(both) == "a: off; b: no"


def test_the_host_that_answered_is_tried_first_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is off delays a process once, not at each connection."""
    asked: list[str] = []
    off = {"127.0.0.1", "127.0.0.3"}

    def connected(kind: object, parameters: Mapping[str, str], seconds: float) -> str:
        asked.append(parameters["hostaddr"])
        if asked[-1] in off:
            raise psycopg.OperationalError("off")
        return asked[-1]

    monkeypatch.setattr("tilth.catalog.kv.postgres_connect._connect", connected)
    connector = Connector(parse_postgres("postgresql://tilth@127.0.0.1,127.0.0.2,127.0.0.3/tilth"), {})
    for _ in range(2):
        assert cast("object", connector.connect(Connection, LIMITS)) == "127.0.0.2"
    assert asked == ["127.0.0.1", "127.0.0.2", "127.0.0.2"]
    # After a failover the host of now is found, and tried first from then on.
    off ^= {"127.0.0.2", "127.0.0.3"}
    for _ in range(2):
        assert cast("object", connector.connect(Connection, LIMITS)) == "127.0.0.3"
    assert asked[3:] == ["127.0.0.2", "127.0.0.1", "127.0.0.3", "127.0.0.3"]
