"""BACKUP CATALOG: where it writes, what it refuses, what it leaves when it fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.sql_world import SqlWorld, refused
from tilth.base.errors import ErrorKind
from tilth.catalog import MemoryKV, load_dump


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    return SqlWorld(tmp_path / "tables")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where backups lie."""
    return tmp_path / "backups"


def test_the_answer_says_what_was_written(world: SqlWorld, folder: Path) -> None:
    world.run("CREATE DATABASE d")
    [(file, size, records, created)] = world.rows("BACKUP CATALOG TO 'first'")
    path = folder / "first"
    assert (file, size) == (str(path), path.stat().st_size)
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("rb") as source:
        header, keys = load_dump(source, MemoryKV())
    assert (header.server, keys) == ("s1", records)
    assert created is not None
    assert os.listdir(folder) == ["first"]


def test_a_path_may_have_folders_and_blanks(world: SqlWorld, folder: Path) -> None:
    world.run("BACKUP CATALOG TO '2026/nightly one.bak'")
    assert (folder / "2026" / "nightly one.bak").exists()
    world.run(f"BACKUP CATALOG TO '{folder}/whole'")
    assert (folder / "whole").exists()


@pytest.mark.parametrize("path", ["", " ", "/", "../x", "a/../../x", "/etc/x", ".", "a/", "a\\0b", "a.unfinished"])
def test_no_file_is_written_elsewhere(world: SqlWorld, folder: Path, path: str) -> None:
    error = refused(world, f"BACKUP CATALOG TO '{path}'")
    assert error.kind is ErrorKind.INVALID
    assert not folder.exists()


def test_a_link_leads_nowhere(world: SqlWorld, folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    assert refused(world, "BACKUP CATALOG TO 'link/x'").kind is ErrorKind.INVALID
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_backup_is_never_replaced(world: SqlWorld, folder: Path) -> None:
    world.run("BACKUP CATALOG TO 'a'")
    before = (folder / "a").read_bytes()
    world.run("CREATE DATABASE d")
    assert refused(world, "BACKUP CATALOG TO 'a'").code == "BACKUP_EXISTS"
    assert (folder / "a").read_bytes() == before


def test_one_that_came_meanwhile_is_not_replaced(
    world: SqlWorld, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def link(old: str, new: str) -> None:
        Path(new).write_text("mine")
        real(old, new)

    monkeypatch.setattr(os, "link", link)
    assert refused(world, "BACKUP CATALOG TO 'a'").code == "BACKUP_EXISTS"
    assert (folder / "a").read_text() == "mine"
    assert os.listdir(folder) == ["a"]


def test_what_a_crash_left_is_no_hindrance(world: SqlWorld, folder: Path) -> None:
    folder.mkdir()
    (folder / "a.unfinished").write_bytes(b"half" * 100_000)
    world.run("BACKUP CATALOG TO 'a'")
    with (folder / "a").open("rb") as source:
        load_dump(source, MemoryKV())
    assert os.listdir(folder) == ["a"]


def test_a_folder_that_cannot_be_written_is_named(world: SqlWorld, folder: Path) -> None:
    folder.write_text("a file")
    error = refused(world, "BACKUP CATALOG TO 'a'")
    assert (error.code, error.kind) == ("BACKUP_FAILED", ErrorKind.UNAVAILABLE)
    assert "catalog.backup-folder" in str(error)


def test_it_is_in_the_audit_log(world: SqlWorld) -> None:
    world.run("BACKUP CATALOG TO 'a'")
    refused(world, "BACKUP CATALOG TO 'a'")
    found = world.rows("SELECT verb, outcome FROM system.audit_log ORDER BY time")
    assert [verb for verb, _ in found] == ["BACKUP CATALOG"] * 2
    found.sort(key=lambda row: row[1] != "done")
    assert found[0][1] == "done"
    assert "BACKUP_EXISTS" in str(found[1][1])
