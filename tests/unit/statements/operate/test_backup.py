"""BACKUP CATALOG: where it writes, what it refuses, what it leaves when it fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.sql_world import SqlWorld, refused
from tilth.base.errors import ErrorKind, TilthError
from tilth.catalog import BadDumpError, CatalogExistsError, CatalogSettings, MemoryKV, load_dump
from tilth.node import backup_root
from tilth.query.language.redact import redacted
from tilth.recovery import restore_catalog
from tilth.storage import BadStoreError
from tilth.storage.store.backends.buckets import ObjectTimes
from tilth.testing import BucketFault, FakeBucket


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


@pytest.fixture
def bucket() -> Iterator[FakeBucket]:
    with FakeBucket() as bucket:
        yield bucket


def bucket_world(tmp_path: Path, bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch) -> tuple[SqlWorld, str]:
    """A world whose backups go to a bucket, and the options of its addresses."""
    monkeypatch.setenv("BACKUP_KEY", "tilthkey")
    monkeypatch.setenv("BACKUP_SECRET", "very-hidden")
    options = f"?endpoint={bucket.endpoint}&key=env:BACKUP_KEY&secret=env:BACKUP_SECRET"
    settings = CatalogSettings(backup_folder=f"s3://tilth/kept{options}")
    return SqlWorld(tmp_path / "tables", backups=backup_root(settings, tmp_path)), options


def test_a_backup_in_a_bucket_is_restored_by_its_address(
    tmp_path: Path, bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, options = bucket_world(tmp_path, bucket, monkeypatch)
    world.run("CREATE DATABASE d")
    [(file, size, records, _)] = world.rows("BACKUP CATALOG TO 'nightly/one'")
    assert file == "s3://tilth/kept/nightly/one"
    [(other, _, _, _)] = world.rows("BACKUP CATALOG TO 's3://tilth/kept/two'")
    assert sorted(bucket.objects) == ["kept/nightly/one", "kept/two"]
    assert len(bucket.objects["kept/nightly/one"]) == size
    header, found = restore_catalog(f"{file}{options}", tmp_path / "new")
    assert (header.server, found) == ("s1", records)
    with pytest.raises(CatalogExistsError):
        restore_catalog(f"{other}{options}", tmp_path / "new")
    with pytest.raises(BadDumpError, match="cannot be read") as caught:
        restore_catalog(f"{file}-not{options}", tmp_path / "newer")
    assert "env:" not in str(caught.value)
    assert not (tmp_path / "newer").exists()


def test_a_backup_in_a_bucket_is_never_replaced(
    tmp_path: Path, bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = bucket_world(tmp_path, bucket, monkeypatch)
    world.run("BACKUP CATALOG TO 'a'")
    before = bucket.objects["kept/a"]
    assert refused(world, "BACKUP CATALOG TO 'a'").code == "BACKUP_EXISTS"
    # Somebody else is faster: only the put itself can know.
    monkeypatch.setattr("tilth.statements.operate.backup.are_there", lambda *_: [False])
    world.run("CREATE DATABASE d")
    assert refused(world, "BACKUP CATALOG TO 'a'").code == "BACKUP_EXISTS"
    assert bucket.objects == {"kept/a": before}


def test_a_bucket_that_is_away_leaves_nothing(
    tmp_path: Path, bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = bucket_world(tmp_path, bucket, monkeypatch)
    bucket.plan(None, *[BucketFault.REQUEST_CUT] * 40)
    monkeypatch.setattr("tilth.storage.store.backends.objects.ObjectTimes", partial(ObjectTimes, retries_max=0))
    error = refused(world, "BACKUP CATALOG TO 'a'")
    assert error.kind in (ErrorKind.RETRY, ErrorKind.UNAVAILABLE)
    assert "very-hidden" not in str(error)
    assert bucket.objects == {}


@pytest.mark.parametrize(
    "place",
    [
        *("", "../x", "a//b", "a/", ".", "a b", "s3://other/kept/x", "s3://{name}/x", "s3://{name}/kept/../x"),
        *("s3://{name}/keptx/y", "/etc/x", "file:///etc/x", "s3://AKIA:very-hidden@{name}/kept/x"),
        "s3://{name}/kept/x?endpoint=http://mine.example&secret=very-hidden",
    ],
)
def test_no_object_is_written_elsewhere(
    tmp_path: Path, bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    world, _ = bucket_world(tmp_path, bucket, monkeypatch)
    text = f"BACKUP CATALOG TO '{place.format(name='tilth')}'"
    error = refused(world, text)
    assert error.kind is ErrorKind.INVALID
    assert "very-hidden" not in str(error)
    assert "very-hidden" not in redacted(text).text
    assert bucket.objects == {}


def test_a_node_whose_backups_are_on_its_disk_takes_no_address(world: SqlWorld, folder: Path) -> None:
    assert refused(world, "BACKUP CATALOG TO 's3://bucket/x'").kind is ErrorKind.INVALID
    assert not folder.exists()


def test_an_address_with_a_secret_is_no_backup_folder(tmp_path: Path) -> None:
    settings = CatalogSettings(backup_folder="s3://bucket/x?key=env:K&secret=very-hidden")
    with pytest.raises(BadStoreError) as caught:
        backup_root(settings, tmp_path)
    assert caught.value.facts["setting"] == "catalog.backup-folder"
    assert "very-hidden" not in str(caught.value)


def test_a_running_node_restores_nothing(world: SqlWorld) -> None:
    with pytest.raises(TilthError) as caught:
        world.run("RESTORE CATALOG FROM 's3://bucket/x'")
    assert "tilth catalog restore" in caught.value.hint
