"""The watch on a real PostgreSQL finds old snapshots and dead rows that hold up its clean-up; its facts are read
without making anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import pytest

from tilth.base.clock import SystemClock
from tilth.catalog import PostgresKV, inspect_postgres, parse_postgres
from tilth.catalog.kv import Landed, postgres_watch
from tilth.catalog.kv.postgres_watch import PostgresWatch
from tilth.health import notes_of
from tools.postgres import Postgres

pytestmark = pytest.mark.integration
SECONDS_MAX = 30.0
DEAD_ROWS_MAX = 50


def opened(postgres: Postgres, schema: str) -> PostgresKV:
    return PostgresKV(SystemClock(), parse_postgres(postgres.address(schema=schema)))


def wait(watch: PostgresWatch, is_so: Callable[[], bool]) -> None:
    """Wait for a condition of the watch: a backend reports its numbers a little late."""
    deadline = time.monotonic() + SECONDS_MAX
    watch.step()
    while not is_so():
        assert time.monotonic() < deadline, (watch.trouble, watch.notes)
        time.sleep(0.05)
        watch.step()


def test_an_old_snapshot_is_a_note_and_dead_rows_behind_it_are_trouble(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_watch, "SNAPSHOT_SECONDS_MAX", 0.2)
    monkeypatch.setattr(postgres_watch, "DEAD_ROWS_MAX", DEAD_ROWS_MAX)
    with closing(opened(postgres, "order")) as kv, closing(opened(postgres, "elsewhere")) as other:
        assert isinstance(kv.commit([], {b"a": b"0"}, []), Landed)
        watch, beside = kv.database_watch(), other.database_watch()
        try:
            with closing(postgres.connect()) as report:
                report.execute("SET application_name = 'a report'")
                report.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                report.execute("SELECT 1")
                who = f"process {report.info.backend_pid} of a report"
                wait(watch, lambda: who in notes_of(watch, 0).get("catalog database", ""))
                assert watch.trouble == ""
                # A connection that ends reports its numbers at once.
                with closing(opened(postgres, "order")) as writer:
                    for number in range(2 * DEAD_ROWS_MAX):
                        assert isinstance(writer.commit([], {b"a": b"%d" % number}, []), Landed)
                wait(watch, lambda: "dead rows of the catalog" in watch.trouble)
                assert who in watch.trouble
                assert "end it" in watch.trouble
                # Dead rows count in the catalog's own schema only.
                beside.step()
                assert beside.trouble == ""
                assert who in notes_of(beside, 0)["catalog database"]
            with closing(postgres.connect()) as connection:
                connection.execute('VACUUM "order".kv')
            wait(watch, lambda: watch.trouble == "" and notes_of(watch, 0) == {})
        finally:
            watch.stop()
            beside.stop()


def test_facts_are_read_and_nothing_is_made(postgres: Postgres) -> None:
    address = parse_postgres(postgres.address(schema="inspected"))
    facts = inspect_postgres(SystemClock(), address, {}, seconds_max=SECONDS_MAX)
    assert (facts.format, facts.may_create, facts.moved, facts.is_newer) == (0, True, "", False)
    assert facts.version.split(".")[0].isdecimal()
    # One machine has one clock.
    assert abs(facts.ahead_ms) <= facts.error_ms + 5
    with closing(postgres.connect()) as connection:
        found = connection.execute("SELECT to_regnamespace('inspected') IS NULL").fetchone()
        assert found == (True,)
        opened(postgres, "inspected").close()
        assert inspect_postgres(SystemClock(), address, {}, seconds_max=SECONDS_MAX).format == 1
        connection.execute("UPDATE inspected.format SET format = 99, moved = '/data/catalog'")
        facts = inspect_postgres(SystemClock(), address, {}, seconds_max=SECONDS_MAX)
    assert (facts.format, facts.moved, facts.is_newer) == (99, "/data/catalog", True)
