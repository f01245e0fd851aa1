"""Addresses of files of users, over folders of a temporary directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.codes import WithCode
from tilth.storage import (
    BadLocationError,
    StoreRoot,
    changed_files,
    check_pattern,
    find_folder,
    is_like_pattern,
    list_folder,
    local_root,
    parse_root,
)

S3 = parse_root("s3://landing/in?endpoint=http://127.0.0.1:9000&key=env:K&secret=env:S")
STORAGE = parse_root("s3://lake/tables")


def put(folder: Path, name: str, data: bytes = b"x") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def paths(folder: Path, address: str | None = None) -> list[str]:
    return [each.path for each in list_folder(find_folder(address or str(folder), [local_root(folder)], []))]


def test_an_address_below_a_location_has_the_way_to_it() -> None:
    found = find_folder("s3://landing/in/2026/x y%20'z", [local_root("/data"), S3], [])
    assert (found.root, found.path) == (S3, "2026/x y%20'z")
    assert found.address == "s3://landing/in/2026/x y%20'z"
    assert find_folder("s3a://landing/in", [S3], []).path == ""
    deeper = parse_root("s3://landing/in/2026")
    assert find_folder("s3://landing/in/2026/a", [S3, deeper], []).root == deeper
    assert find_folder("s3://lake/tables/files/a", [], [STORAGE]).root == StoreRoot("s3://lake/tables/files")


@pytest.mark.parametrize(
    "address",
    [
        "s3://landing/other",
        "s3://landing/inside",
        "s3://other/in",
        "s3://landing/in/../other",
        "s3://landing/in/./x",
        "gs://landing/in",
        "s3://landing/in?key=AKIA&secret=x",
        "s3://user:password@landing/in",
        "s3://lake/tables/0123/data",
        "s3://lake/tables/filesystem",
        "/data/x\n",
        "/data/../etc",
        "data/x",
        "/database",
        "file://host/data",
        "",
        "http://metadata/latest",
    ],
)
def test_all_else_is_refused(address: str) -> None:
    with pytest.raises(BadLocationError, check=WithCode("BAD_FILE_LOCATION")) as refused:
        find_folder(address, [local_root("/data"), S3], [STORAGE])
    assert "AKIA" not in str(refused.value) + str(refused.value.facts)
    assert "password" not in str(refused.value) + str(refused.value.facts)


def test_without_a_location_nothing_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(BadLocationError):
        find_folder(str(tmp_path), [], [])


def test_names_are_taken_as_they_are(tmp_path: Path) -> None:
    names = ["a b.json", "a%20b.json", "a'b.json", 'a"b.json', "a\nb.json", "a[1]*?.json", "ü/{x}.json", "a:b", "a\\b"]
    for name in names:
        put(tmp_path, name)
    assert paths(tmp_path) == sorted(names)
    assert paths(tmp_path, f"{tmp_path}/a[1]*?.json") == ["a[1]*?.json"]
    assert paths(tmp_path, f"file://{tmp_path}/a%20b.json") == ["a%20b.json"]
    assert paths(tmp_path, f"{tmp_path}/ü/") == ["ü/{x}.json"]
    assert paths(tmp_path, f"{tmp_path}/a") == []


def test_hidden_files_are_left_out(tmp_path: Path) -> None:
    for name in ("_SUCCESS", ".a.json.crc", "_delta_log/0.json", ".x/a.json", "a/_b", "part._COPYING_", "a/b"):
        put(tmp_path, name)
    assert paths(tmp_path) == ["a/b"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    allowed, outside = tmp_path / "in", tmp_path / "out"
    put(outside, "secret.json")
    put(allowed, "a.json")
    (allowed / "link.json").symlink_to(outside / "secret.json")
    (allowed / "folder").symlink_to(outside)
    os.mkfifo(allowed / "pipe")
    assert paths(allowed) == ["a.json"]
    with pytest.raises(BadLocationError):
        paths(allowed, f"{allowed}/folder")
    with pytest.raises(BadLocationError):
        paths(allowed, f"{allowed}/link.json")
    # The operator's own location may be a link.
    (tmp_path / "alias").symlink_to(allowed)
    assert paths(tmp_path / "alias") == ["a.json"]


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    put(tmp_path, os.fsdecode(b"a\xff.json"))
    with pytest.raises(BadLocationError) as refused:
        paths(tmp_path)
    assert "a\\udcff.json" in refused.value.facts["file"]


def test_files_that_changed_are_found(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        put(tmp_path, name)
    folder = find_folder(str(tmp_path), [local_root(tmp_path)], [])
    files = list_folder(folder)
    assert changed_files(folder, files) == []
    put(tmp_path, "a", b"longer")
    (tmp_path / "b").unlink()
    status = (tmp_path / "c").stat()
    (tmp_path / "c").unlink()
    put(tmp_path, "e")
    os.utime(put(tmp_path, "c"), ns=(status.st_atime_ns, status.st_mtime_ns))
    assert [each.path for each in changed_files(folder, files)][:2] == ["a", "b"]


def test_changes_are_found_without_a_listing_of_other_folders(tmp_path: Path) -> None:
    for name in ("day=1/a", "day=1/h=1/b", "day=2/a"):
        put(tmp_path, name)
    folder = find_folder(str(tmp_path), [local_root(tmp_path)], [])
    first, second, other = list_folder(folder)
    put(tmp_path, os.fsdecode(b"day=3/a\xff.json"))
    assert changed_files(folder, [first]) == changed_files(folder, [second, first]) == []
    with pytest.raises(BadLocationError):
        changed_files(folder, [first, other])
    put(tmp_path, "day=1/a", b"longer")
    (tmp_path / "day=1/h=1/b").unlink()
    assert changed_files(folder, [second, first]) == [second, first]
    assert (changed_files(folder, [first]), changed_files(folder, [second])) == ([first], [second])
    named = find_folder(str(tmp_path / "day=2/a"), [local_root(tmp_path)], [])
    assert changed_files(named, list_folder(named)) == []


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.json", "a.json", True),
        ("*.json", "x/a.json", False),
        ("**/*.json", "a.json", True),
        ("**/*.json", "x/y/a.json", True),
        ("day=*/part-?.parquet", "day=1/part-0.parquet", True),
        ("day=*/part-?.parquet", "day=1/part-10.parquet", False),
        ("**", "x/y", True),
        ("x/**/b/**/c", "x/1/b/2/3/c", True),
        ("x/**/b/**/c", "x/1/2/3/c", False),
        ("[ab].json", "a.json", True),
        ("[!a].json", "a.json", False),
        ("A.json", "a.json", False),
        ("a*a*a*a*a*a*a*a*b", "a" * 3000, False),
        ("**/" * 12 + "b", "a/" * 200 + "c", False),
    ],
)
def test_patterns(pattern: str, path: str, expected: bool) -> None:
    check_pattern(pattern)
    assert is_like_pattern(path, pattern) is expected


@pytest.mark.parametrize("pattern", ["", "/a", "a//b", "../a", "a/./b", "a**", "**b/c"])
def test_patterns_that_no_path_is_like(pattern: str) -> None:
    with pytest.raises(BadLocationError):
        check_pattern(pattern)
