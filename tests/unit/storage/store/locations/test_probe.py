"""Whether two processes see the same files below a root."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tilth.storage import RootNotSharedError, check_probe, local_root, write_probe


def test_the_same_folder_is_found_and_left_as_it_was(tmp_path: Path) -> None:
    path = write_probe(local_root(tmp_path), b"one", server="a")
    check_probe(str(tmp_path), path, b"one", own_name="w")
    check_probe(f"file://{tmp_path}", path, b"one", own_name="w")
    assert [each.name for each in tmp_path.iterdir()] == [path]


def test_another_folder_of_the_same_name_is_found_out(tmp_path: Path) -> None:
    path = write_probe(local_root(tmp_path), b"of a former process", server="a")
    with pytest.raises(RootNotSharedError, match="not those that the server sees"):
        check_probe(str(tmp_path), path, b"one", own_name="w")


def test_each_server_proves_the_folder_by_a_file_of_its_own(tmp_path: Path) -> None:
    path = write_probe(local_root(tmp_path), b"of a", server="a")
    assert write_probe(local_root(tmp_path), b"of b", server="b") != path
    check_probe(str(tmp_path), path, b"of a", own_name="w")


@pytest.mark.parametrize("what", ["no folder", "no file", "a folder instead"])
def test_what_is_missing_is_named(tmp_path: Path, what: str) -> None:
    root = tmp_path / "tables"
    root.mkdir()
    path = write_probe(local_root(root), b"one", server="a")
    (root / path).unlink()
    if what == "no folder":
        shutil.rmtree(root)
    elif what == "a folder instead":
        (root / path).mkdir()
    with pytest.raises(RootNotSharedError, match="tables") as raised:
        check_probe(str(root), path, b"one", own_name="w")
    assert "same path" in raised.value.hint


def test_a_store_whose_keys_are_not_here_is_named_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROBE_KEY", raising=False)
    root = "s3://bucket/tables?endpoint=http://127.0.0.1:9&key=env:PROBE_KEY&secret=env:PROBE_SECRET"
    with pytest.raises(RootNotSharedError, match="cannot reach the storage") as raised:
        check_probe(root, "p", b"one", own_name="w")
    assert "s3://bucket/tables" in str(raised.value)
