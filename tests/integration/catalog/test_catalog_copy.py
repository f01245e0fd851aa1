"""`tilth catalog copy` between folders and a real PostgreSQL: nothing lost, nothing half made, nothing used twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.catalog_world import World
from tilth.base.clock import SystemClock
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
from tilth.client.cli.main import app
from tilth.joining import check_not_moved
from tilth.recovery import copy_catalog
from tilth.recovery.copy import CatalogInUseError, CatalogNotFoundError
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


def test_a_place_that_has_a_catalog_and_one_without_are_refused(postgres: Postgres, tmp_path: Path) -> None:
    made(tmp_path / "a")
    address = postgres.address(schema="full")
    copy_catalog(str(tmp_path / "a"), address, keeps_source=True)
    with pytest.raises(CatalogExistsError, match="schema=full"):
        copy_catalog(str(tmp_path / "a"), address)
    with pytest.raises(CatalogExistsError):
        copy_catalog(address, str(tmp_path / "a"))
    with pytest.raises(CatalogNotFoundError):
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

        def prove() -> None:
            now = record
            while not over.wait(0.3):
                now = catalog.servers.renew(now)

        prover = threading.Thread(target=prove)
        prover.start()
        try:
            with pytest.raises(CatalogInUseError, match="busy at http://there"):
                copy_catalog(address, str(tmp_path / "b"))
        finally:
            over.set()
            prover.join()
    # It has been killed: nobody proves anything.
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
    assert "the same at both places" in done.output
    again = run.invoke(app, ["catalog", "copy", str(tmp_path / "a"), str(tmp_path / "c")])
    assert again.exit_code == 1
    assert "CATALOG_MOVED" in again.output
