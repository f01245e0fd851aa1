from pathlib import Path

from tilth.doctor import folder_sizes, tails
from tilth.doctor.node_files import TAIL_BYTES


def test_sizes_by_folder_and_no_content(tmp_path: Path) -> None:
    data = tmp_path / "tables" / "u1" / "data"
    data.mkdir(parents=True)
    (data / "secret-row.parquet").write_bytes(bytes(3000))
    (tmp_path / "storage-root").write_bytes(b"x")
    (tmp_path / "tables" / "link").symlink_to("/")
    lines = folder_sizes(tmp_path).splitlines()
    assert [line.split() for line in lines] == [
        [".", "1", "files", "1", "B"],
        ["tables", "0", "files", "0", "B"],
        ["tables/u1", "1", "files", "2.9", "KiB"],
    ]


def test_tails_begin_with_a_whole_line(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "spark.log").write_text("password=hunter2 " * (TAIL_BYTES // 10) + "\nlast\n")
    (tmp_path / "log" / "link").symlink_to("/etc/passwd")
    own = tmp_path / "own.log"
    own.write_bytes(b"a\xff\n")
    assert dict(tails(tmp_path, str(own))) == {"own.log": "a\ufffd\n", "spark.log": "last\n"}
    in_folder = str(tmp_path / "log" / "spark.log")
    assert [name for name, _ in tails(tmp_path, in_folder)] == ["spark.log"]
    assert dict(tails(tmp_path / "none", "/nowhere/x")) == {"x": "it cannot be read: No such file or directory\n"}
