"""`tilth catalog copy` between folders and a real PostgreSQL: nothing lost, nothing half made, nothing used twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.catalog_world import World
from tests.codes import WithCode
from tests.sql_world import SqlWorld, table_of
from tilth.base.clock import SystemClock
from tilth.base.errors import ConflictError, NotFoundError
from tilth.catalog import (
    Catalog,
    CatalogExistsError,
    CatalogMovedError,
    InsertPart,
    Joining,
    KeyValue,
    PostgresKV,
    RocksKV,
    parse_postgres,
)
from tilth.catalog.kv import Landed
from tilth.client.cli.main import app
from tilth.joining import check_not_moved
from tilth.recovery import RebuildOptions, copy_catalog, rebuild_catalog
from tools.postgres import PASSWORD, Postgres

pytestmark = pytest.mark.integration


def made(folder: Path, parts: int = 300) -> list[tuple[bytes, bytes]]:
    """A catalog in a folder; returns its records."""
    folder.mkdir()
    with closing(RocksKV(str(folder / "catalog"))) as kv:
        world = World(kv)
        world.table("ünï cödé `quoted`")
        for _ in range(parts):
            world.commit(InsertPart(table=world.t, written=world.written()))
        kv.commit([], {b"\x01\x00\xff": b"", b"\xfe\xff": bytes(range(256)) * 5000}, [])
        return records(kv)


def records(kv: KeyValue) -> list[tuple[bytes, bytes]]:
    return [(key, found.value) for key, found in kv.scan(b"", None)]


def test_there_and_back_it_is_the_same(postgres: Postgres, tmp_path: Path) -> None:
    before = made(tmp_path / "a")
    address = postgres.address(schema="copied")
    report = copy_catalog(str(tmp_path / "a"), address)
    assert report.records == len(before)
    with closing(PostgresKV(SystemClock(), parse_postgres(address))) as shared:
        assert records(shared) == before
        # Its versions are those of a store that goes on.
        Catalog(shared, SystemClock(), "s", lambda: "0" * 32).state.put("later", b"value")
    copy_catalog(address, str(tmp_path / "b"))
    with closing(RocksKV(str(tmp_path / "b" / "catalog"))) as back:
        assert dict(before).items() <= dict(records(back)).items()
        catalog = Catalog(back, SystemClock(), "s", lambda: "0" * 32)
        assert {table.name for table in catalog.tables.all()} == {"t", "ünï cödé `quoted`"}
        assert catalog.state.get("later") == b"value"
        check_not_moved(catalog)
    with closing(RocksKV(str(tmp_path / "a" / "catalog"))) as old, pytest.raises(CatalogMovedError, match="copied"):
        check_not_moved(Catalog(old, SystemClock(), "s", lambda: "0" * 32))
    with pytest.raises(CatalogMovedError):
        copy_catalog(str(tmp_path / "a"), str(tmp_path / "c"))
    assert not (tmp_path / "c" / "catalog").exists()


def test_a_lost_database_is_filled_again_from_the_files_of_its_tables(postgres: Postgres, tmp_path: Path) -> None:
    """A catalog in a database has no journal, so it is rebuilt in a folder and copied from there."""
    root = tmp_path / "tables"
    with closing(PostgresKV(SystemClock(), parse_postgres(postgres.address(schema="lost")))) as shared:
        world = SqlWorld(root, kv=shared)
        world.run("CREATE TABLE t (n BIGINT, s STRING) ENGINE = MergeTree ORDER BY n")
        world.run("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
        names = {part.file.name for part in world.catalog.parts.snapshot(table_of(world, "t").uuid).parts}
    report = rebuild_catalog([str(root)], tmp_path / "made", RebuildOptions(keeps_uncommitted=True))
    assert [each.name for each in report.tables] == ["default.t"]
    address = postgres.address(schema="found")
    copy_catalog(str(tmp_path / "made"), address)
    with closing(PostgresKV(SystemClock(), parse_postgres(address))) as shared:
        again = SqlWorld(root, kv=shared)
        found = again.catalog.parts.snapshot(table_of(again, "t").uuid).parts
        assert ({part.file.name for part in found}, sum(part.rows for part in found)) == (names, 2)
        again.run("INSERT INTO t VALUES (3, 'three')")


def test_a_place_that_has_a_catalog_and_one_without_are_refused(postgres: Postgres, tmp_path: Path) -> None:
    made(tmp_path / "a")
    address = postgres.address(schema="full")
    copy_catalog(str(tmp_path / "a"), address, keeps_source=True)
    with pytest.raises(CatalogExistsError, match="schema=full"):
        copy_catalog(str(tmp_path / "a"), address)
    with pytest.raises(CatalogExistsError):
        copy_catalog(address, str(tmp_path / "a"))
    with pytest.raises(NotFoundError, check=WithCode("CATALOG_NOT_FOUND")):
        copy_catalog(str(tmp_path / "nothing"), postgres.address(schema="empty"))
    assert not (tmp_path / "nothing").exists()
    with closing(RocksKV(str(tmp_path / "a" / "catalog"))) as kept:
        check_not_moved(Catalog(kept, SystemClock(), "s", lambda: "0" * 32))


def test_a_copy_that_ends_in_the_middle_leaves_nothing(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "a")
    address = postgres.address(schema="half")
    copied = iter(range(20))

    def broken(self: object, pairs: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for pair in pairs:
            if next(copied, None) is None:
                raise KeyboardInterrupt
            yield pair

    with monkeypatch.context() as patch:
        patch.setattr("tilth.recovery.copy._Sum.over", broken)
        with pytest.raises(KeyboardInterrupt):
            copy_catalog(str(tmp_path / "a"), address)
    with closing(PostgresKV(SystemClock(), parse_postgres(address))) as shared:
        assert records(shared) == []
    assert copy_catalog(str(tmp_path / "a"), address).records > 20


def test_a_catalog_whose_servers_live_is_not_copied(postgres: Postgres, tmp_path: Path) -> None:
    made(tmp_path / "a")
    address = postgres.address(schema="used")
    copy_catalog(str(tmp_path / "a"), address)
    with closing(PostgresKV(SystemClock(), parse_postgres(address))) as shared:
        catalog = Catalog(shared, SystemClock(), "s", lambda: "0" * 32)
        record = catalog.servers.join(Joining(name="busy", run="r", version="1", url="http://there"))
        over = threading.Event()

        def send_heartbeats() -> None:
            now = record
            while not over.wait(0.3):
                now = catalog.servers.renew(now)

        sender = threading.Thread(target=send_heartbeats)
        sender.start()
        try:
            with pytest.raises(ConflictError, check=WithCode("CATALOG_IN_USE"), match="busy at http://there"):
                copy_catalog(address, str(tmp_path / "b"))
        finally:
            over.set()
            sender.join()
    # It has been killed: nobody sends heartbeats.
    assert copy_catalog(address, str(tmp_path / "b")).records > 0


def test_the_command_line_says_what_it_did_and_no_password(postgres: Postgres, tmp_path: Path) -> None:
    made(tmp_path / "a")
    run = CliRunner()
    wrong = run.invoke(app, ["catalog", "copy", str(tmp_path / "a"), f"postgresql://tilth:{PASSWORD}@127.0.0.1/x"])
    assert wrong.exit_code == 1
    assert "BAD_CATALOG_ADDRESS" in wrong.output
    assert PASSWORD not in wrong.output
    done = run.invoke(app, ["catalog", "copy", str(tmp_path / "a"), postgres.address(schema="cli")])
    assert done.exit_code == 0, done.output
    assert "the same in both catalogs" in done.output
    again = run.invoke(app, ["catalog", "copy", str(tmp_path / "a"), str(tmp_path / "c")])
    assert again.exit_code == 1
    assert "CATALOG_MOVED" in again.output


def test_a_server_that_lives_unseen_commits_nothing_more_once_its_catalog_moves(
    postgres: Postgres, tmp_path: Path
) -> None:
    """A server with a long server.gone-bound sends heartbeats seldom; a commit that it had begun is in the copy."""
    address = postgres.address(schema="moves")
    with (
        closing(PostgresKV(SystemClock(), parse_postgres(address))) as shared,
        closing(postgres.connect()) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        assert isinstance(shared.commit([], {b"\x05a": b"1"}, []), Landed)
        other.execute("BEGIN")
        other.execute("SELECT 1 FROM moves.kv FOR UPDATE")
        late = pool.submit(shared.commit, [], {b"\x05a": b"2"}, [])
        with closing(postgres.connect()) as third:
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            while third.execute(waits).fetchone() == (0,):
                threading.Event().wait(0.02)
            copy = pool.submit(copy_catalog, address, str(tmp_path / "b"))
            moves = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
            while third.execute(moves).fetchone() == (0,):
                assert not copy.done()
                threading.Event().wait(0.02)
        other.execute("ROLLBACK")
        assert isinstance(late.result(60), Landed)
        copy.result(60)
        for _ in range(2):
            with pytest.raises(CatalogMovedError, match=r"to=.*/b"):
                shared.commit([], {b"\x05b": b"1"}, [])
        assert dict(records(shared))[b"\x05a"] == b"2"
        with pytest.raises(CatalogMovedError):
            shared.moves().check()
    with closing(RocksKV(str(tmp_path / "b" / "catalog"))) as copied:
        assert dict(records(copied))[b"\x05a"] == b"2"
    with pytest.raises(CatalogMovedError, match=r"to=.*/b"):
        copy_catalog(address, str(tmp_path / "c"))


def test_a_move_that_fails_leaves_the_catalog_in_use_and_one_that_was_killed_can_begin_again(
    postgres: Postgres, tmp_path: Path
) -> None:
    address = postgres.address(schema="again")
    with closing(PostgresKV(SystemClock(), parse_postgres(address))) as shared:
        assert isinstance(shared.commit([], {b"\x05a": b"1"}, []), Landed)
        with pytest.raises(KeyboardInterrupt), shared.moves().moving("there"):
            raise KeyboardInterrupt
        assert isinstance(shared.commit([], {b"\x05a": b"2"}, []), Landed)
        with closing(postgres.connect()) as killed:
            killed.execute("UPDATE again.format SET moved = 'there'")
        with pytest.raises(CatalogMovedError, match="run `tilth catalog copy` again"):
            shared.moves().check()
        with pytest.raises(CatalogMovedError):
            shared.commit([], {b"\x05a": b"3"}, [])
        copy_catalog(address, str(tmp_path / "b"))
        with pytest.raises(CatalogMovedError, match="copy it from there"):
            shared.moves().check()


def test_a_server_that_holds_its_lock_is_seen_however_seldom_it_sends_heartbeats(
    postgres: Postgres, tmp_path: Path
) -> None:
    address = postgres.address(schema="seldom")
    with closing(PostgresKV(SystemClock(), parse_postgres(address))) as shared:
        record = Catalog(shared, SystemClock(), "s", lambda: "0" * 32).servers.join(
            Joining(name="seldom", run="r", version="1", url="http://there")
        )
        liveness = shared.liveness(600.0)
        liveness.acquire(record.id)
        try:
            with pytest.raises(ConflictError, check=WithCode("CATALOG_IN_USE"), match="seldom at http://there"):
                copy_catalog(address, str(tmp_path / "b"))
        finally:
            liveness.close()
