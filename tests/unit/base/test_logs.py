"""Logs of bounded size, whose owner alone reads them, and whose lines show no secret that went through the process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tilth.base import logs
from tilth.base.logs import Log, hide_in_lines, rotate_appended
from tilth.base.secrets import HIDDEN, without_secrets
from tilth.base.settings import BadSettingError, LogSettings, read_settings

BOUNDS = LogSettings(size_max=2_000, files_max=3)


@pytest.fixture(autouse=True)
def log_of_the_tests() -> Iterator[None]:
    yield
    logs.set_up(level="info", path=None)


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_the_nodes_log_is_rotated(tmp_path: Path) -> None:
    logs.set_up(level="info", path=str(tmp_path / "node.log"), settings=BOUNDS)
    log = Log("test")
    for number in range(300):
        log.info("something", number=number)
    assert files(tmp_path) == ["node.log", "node.log.1", "node.log.2"]
    assert all(each.stat().st_size <= BOUNDS.size_max for each in tmp_path.iterdir())
    assert all(each.stat().st_mode & 0o077 == 0 for each in tmp_path.iterdir())
    assert "number=299" in (tmp_path / "node.log").read_text()


def test_a_file_to_which_another_process_appends_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "spark.out"
    assert not rotate_appended(path, BOUNDS)
    with path.open("ab", buffering=0) as process:
        for number in range(1, 6):
            process.write(str(number).encode() * 2_001)
            assert rotate_appended(path, BOUNDS)
            process.write(b"after")
            assert path.read_bytes() == b"after"
            assert not rotate_appended(path, BOUNDS)
    assert files(tmp_path) == ["spark.out", "spark.out.1", "spark.out.2"]
    assert (tmp_path / "spark.out.1").read_bytes()[-3:] == b"555"
    assert all(each.stat().st_size <= BOUNDS.size_max for each in tmp_path.iterdir())


def test_the_bounds_are_settings_of_the_node() -> None:
    read = read_settings(LogSettings, {"log.size-max": "1 MiB", "log.files-max": "9", "server.body-max": "1 MiB"})
    assert read == LogSettings(size_max=1 << 20, files_max=9)
    for name, text in (("log.size-max", "1"), ("log.files-max", "1")):
        with pytest.raises(BadSettingError, match=name):
            read_settings(LogSettings, {name: text})


def test_no_line_shows_a_secret_that_is_known(tmp_path: Path) -> None:
    logs.set_up(level="info", path=str(tmp_path / "node.log"))
    hide_in_lines(["hunter2-hunter2"])
    try:
        raise ValueError("with hunter2-hunter2 in it")
    except ValueError as error:
        Log("test").error("broke", error=error, fact="hunter2-hun..")
    text = (tmp_path / "node.log").read_text()
    assert "hunter2" not in text
    assert "Traceback" in text
    assert HIDDEN in text


def test_a_short_secret_is_hidden_where_it_stands_alone() -> None:
    assert without_secrets("p is a password: 'p'", ["p"]) == f"{HIDDEN} is a password: '{HIDDEN}'"
    assert without_secrets("nothing", ["", HIDDEN]) == "nothing"
    assert without_secrets("abcdefgh and abcdefghij", ["abcdefghij", "abcdefgh"]) == f"{HIDDEN} and {HIDDEN}"
