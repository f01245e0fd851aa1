"""Failovers of the catalog's database to a standby that lacks the end of the log, former primaries, and states restored
from a snapshot: real PostgreSQL behind one address that follows the primary.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.codes import WithCode
from tests.waiting import wait_until
from tilth.base.clock import SystemClock
from tilth.base.errors import UnavailableError
from tilth.catalog.errors import CatalogAwayError, FormerPrimaryError
from tilth.catalog.kv import AtVersion, Conflict, Landed, Unknown, postgres
from tilth.catalog.kv.postgres import PostgresKV
from tilth.catalog.kv.postgres_address import parse_postgres
from tools.postgres import Postgres
from tools.postgres_pair import STANDBY, PostgresPair

pytestmark = pytest.mark.integration
SECONDS_MAX = 30.0


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[PostgresPair]:
    made = PostgresPair(tmp_path / "pair")
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def synchronous(tmp_path: Path) -> Iterator[PostgresPair]:
    made = PostgresPair(tmp_path / "pair", is_synchronous=True)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def opened(pair: PostgresPair, schema: str = "c") -> PostgresKV:
    return PostgresKV(SystemClock(), parse_postgres(pair.address(schema=schema)))


def version(kv: PostgresKV, key: bytes) -> int:
    found = kv.get(key)
    return 0 if found is None else found.version


def put(kv: PostgresKV, key: bytes, value: bytes = b"") -> int:
    outcome = kv.commit([], {key: value}, [])
    assert isinstance(outcome, Landed), outcome
    return outcome.version


def test_no_version_is_given_out_twice_after_a_failover_without_the_tail(pair: PostgresPair) -> None:
    with closing(opened(pair)) as one, closing(opened(pair)) as other:
        kept = put(one, b"a", b"kept")
        pair.wait_for_standby()
        pair.cut_replication()
        lost = {put(one, b"a", b"lost %d" % number) for number in range(100)}
        pair.fail_over()
        # Both connect at the same time, and only one of them can open the history.
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda each: wait_until(lambda: _answers(each), "it does not answer"), (one, other)))
        assert version(one, b"a") == version(other, b"a") == kept
        again = {put(each, b"a") for _ in range(100) for each in (one, other)}
        assert not again & lost
        assert min(again) > max(lost)
        assert isinstance(one.commit([AtVersion(b"a", min(lost))], {b"a": b"from the lost tail"}, []), Conflict)
        assert one.incarnation == other.incarnation
        assert one.incarnation.number == 2
        assert one.incarnation.timeline == 2


@pytest.mark.long
def test_each_failover_begins_a_history_and_a_restart_of_the_same_database_does_not(pair: PostgresPair) -> None:
    with closing(opened(pair)) as kv:
        put(kv, b"a")
        pair.primary.kill()
        pair.primary.start()
        wait_until(lambda: _answers(kv), "it does not answer")
        assert kv.incarnation.number == 1
        for number in (2, 3):
            pair.wait_for_standby()
            pair.fail_over()
            wait_until(lambda: _answers(kv), "it does not answer")
            assert kv.incarnation.number == number
            pair.add_standby()
    with closing(opened(pair)) as kv:
        assert kv.incarnation.number == 3


def test_a_former_primary_is_refused_by_who_knows_the_later_one(
    pair: PostgresPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LIMITS", dataclasses.replace(postgres.LIMITS, wait=2.0))
    with closing(opened(pair)) as kv, closing(opened(pair)) as unaware:
        put(kv, b"a", b"1")
        pair.wait_for_standby()
        pair.fail_over(keeps_former=True)
        wait_until(lambda: _answers(kv), "it does not answer")
        put(kv, b"a", b"2")
        pair.return_to_former()
        # Also a connection that has stayed open is refused as soon as its process knows the later history.
        with pytest.raises(FormerPrimaryError, match=r"found=1 .*timeline 1.* known=2 .*timeline 2"):
            _until_refused(lambda: kv.get(b"a"))
        with pytest.raises((FormerPrimaryError, CatalogAwayError)):
            kv.commit([], {b"a": b"3"}, [])
        pair.return_to_primary()
        wait_until(lambda: _answers(kv), "it does not go on")
        found = kv.get(b"a")
        assert found is not None
        assert found.value == b"2"
        assert _answers(unaware)
        assert unaware.incarnation == kv.incarnation


def test_a_commit_whose_answer_was_lost_in_a_failover_is_decided_by_the_new_primary(pair: PostgresPair) -> None:
    """The commit waits for a locked row when the primary dies, so that no standby has it."""
    with closing(opened(pair)) as kv, closing(pair.connect()) as holder:
        put(kv, b"a", b"1")
        holder.execute("BEGIN")
        holder.execute("SELECT 1 FROM c.kv FOR UPDATE")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(kv.commit, [], {b"a": b"2"}, [])
            blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            with closing(pair.connect()) as looker:
                wait_until(lambda: looker.execute(blocked).fetchone() == (1,), "it does not wait")
            pair.fail_over()
            with pytest.raises(CatalogAwayError, match="nothing was applied"):
                waiting.result()
        assert (kv.get(b"a") or pytest.fail("gone")).value == b"1"
        assert isinstance(kv.commit([], {b"a": b"3"}, []), Landed)


def test_a_database_that_was_set_back_is_another_history_for_who_has_seen_more(tmp_path: Path) -> None:
    database = Postgres(tmp_path / "postgres")
    try:
        database.start()
        with closing(PostgresKV(SystemClock(), parse_postgres(database.address()))) as kv:
            put(kv, b"a", b"1")
            database.save_state()
            wait_until(lambda: _answers(kv), "it does not answer")
            assert kv.incarnation.number == 1
            lost = put(kv, b"a", b"lost")
            database.set_back()
            wait_until(lambda: _answers(kv), "it does not answer")
            assert kv.incarnation.number == 2
            assert kv.incarnation.timeline == 1
            assert (kv.get(b"a") or pytest.fail("gone")).value == b"1"
            assert put(kv, b"a", b"2") > lost
    finally:
        database.stop()


def test_commits_wait_for_the_disk_whatever_the_role_says(pair: PostgresPair) -> None:
    address = parse_postgres(pair.address(schema="strong"))
    with closing(pair.connect()) as admin:
        admin.execute("ALTER ROLE tilth SET synchronous_commit = off")
        admin.execute("ALTER DATABASE postgres SET synchronous_commit = local")
        try:
            with closing(PostgresKV(SystemClock(), address)) as kv:
                admin.execute(
                    "CREATE FUNCTION strong.seen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                    "NEW.v := convert_to(current_setting('synchronous_commit'), 'utf8'); RETURN NEW; END $$"
                )
                admin.execute(
                    "CREATE TRIGGER seen BEFORE INSERT ON strong.kv FOR EACH ROW EXECUTE FUNCTION strong.seen()"
                )
                put(kv, b"a")
                assert (kv.get(b"a") or pytest.fail("gone")).value == b"on"
        finally:
            admin.execute("ALTER ROLE tilth RESET synchronous_commit")
            admin.execute("ALTER DATABASE postgres RESET synchronous_commit")


def test_a_commit_is_landed_only_when_the_standby_has_it(
    synchronous: PostgresPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection of the commit breaks while the standby is away."""
    monkeypatch.setattr(postgres, "LIMITS", dataclasses.replace(postgres.LIMITS, decide=3.0))
    monkeypatch.setattr(postgres, "CONFIRM_SECONDS", 1.0)
    with closing(opened(synchronous)) as kv:
        put(kv, b"a", b"1")
        synchronous.cut_replication()
        outcomes: list[object] = []
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(kv.commit, [], {b"a": b"2"}, [])
            wait_until(lambda: _waiting(synchronous) >= 1, "it does not wait for the standby")
            # Reads go on, and do not show the waiting commit.
            assert (kv.get(b"a") or pytest.fail("gone")).value == b"1"
            synchronous.front.cut()
            synchronous.front.mend()
            outcomes.append(waiting.result())
        assert isinstance(outcomes[0], Unknown), outcomes
        assert "synchronous standby" in outcomes[0].reason
        # No read shows a commit that no standby has.
        assert (kv.get(b"a") or pytest.fail("gone")).value == b"1"
        with pytest.raises(CatalogAwayError, match="may not be durable yet"):
            kv.confirm()
        synchronous.mend_replication()
        wait_until(lambda: (kv.get(b"a") or pytest.fail("gone")).value == b"2", "it does not land")
        kv.confirm()


@pytest.mark.long
def test_a_commit_whose_wait_was_cancelled_is_not_landed_before_a_synchronous_one(
    synchronous: PostgresPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "CONFIRM_SECONDS", 2.0)
    with closing(opened(synchronous)) as kv:
        put(kv, b"a", b"1")
        cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        for is_mended in (False, True):
            synchronous.cut_replication()
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(kv.commit, [], {b"a": b"2"}, [])
                with closing(synchronous.connect()) as admin:
                    wait_until(lambda admin=admin: bool(admin.execute(cancel).fetchall()), "it does not wait")  # type: ignore[misc]
                if is_mended:
                    synchronous.mend_replication()
                assert isinstance(waiting.result(), Landed if is_mended else Unknown)
            synchronous.mend_replication()
            synchronous.wait_for_standby()


def test_a_server_that_requires_a_standby_commits_nothing_without_one(pair: PostgresPair) -> None:
    address = parse_postgres(pair.address(schema="c"))
    with pytest.raises(UnavailableError, check=WithCode("NO_SYNCHRONOUS_STANDBY"), match=r"catalog\.require-sync"):
        PostgresKV(SystemClock(), address, requires_sync=True)
    pair.primary.configure("synchronous_standby_names", STANDBY)
    with closing(PostgresKV(SystemClock(), address, requires_sync=True)) as kv:
        put(kv, b"a", b"1")
        pair.primary.configure("synchronous_standby_names", "")

        def refused() -> bool:
            try:
                put(kv, b"a", b"2")
            except UnavailableError as error:
                if error.code != "NO_SYNCHRONOUS_STANDBY":
                    raise
                return True
            return False

        # The database applies changed settings a little later.
        wait_until(refused, "it commits without a standby")
        assert kv.get(b"a") is not None


@pytest.mark.long
def test_what_commits_wait_for_is_said_within_ten_seconds(synchronous: PostgresPair) -> None:
    with closing(opened(synchronous)) as kv:
        watch = kv.database_watch()
        watch.start()
        try:
            wait_until(lambda: watch.trouble == "", "it says something")
            assert watch.notes == ()
            synchronous.cut_replication()
            with ThreadPoolExecutor(1) as pool:
                began = time.monotonic()
                waiting = pool.submit(kv.commit, [], {b"a": b"1"}, [])
                wait_until(lambda: "1 commit waits for its synchronous standby" in watch.trouble, "it says nothing")
                assert time.monotonic() - began < 10
                synchronous.mend_replication()
                assert isinstance(waiting.result(), Landed)
            wait_until(lambda: watch.trouble == "", "it still says something")
            synchronous.primary.configure("synchronous_standby_names", "")
            wait_until(lambda: "replicates asynchronously" in "".join(watch.notes), "there is no note")
        finally:
            watch.stop()


def _answers(kv: PostgresKV) -> bool:
    try:
        kv.get(b"a")
    except CatalogAwayError:
        return False
    return True


def _until_refused(ask: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            ask()
        except CatalogAwayError:
            threading.Event().wait(0.05)


def _waiting(pair: PostgresPair) -> int:
    with closing(pair.connect()) as connection:
        row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchone()
    assert row is not None
    return int(str(row[0]))
