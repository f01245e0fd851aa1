"""The history file: its statements, its bound, its mode."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from prompt_toolkit.history import InMemoryHistory

from tilth.client.shell.history import BYTES_MAX, FILE, KEPT_CHARACTERS_MAX, history_of

SECRET = "CREATE TABLE k (a Int64) ENGINE = Kafka SETTINGS kafka_sasl_password = 'hunter2';"


def test_statements_are_kept_for_the_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("")
    path.chmod(0o644)
    history = history_of(path)
    for text in ("SELECT 1;", "SELECT\n 'ä';", SECRET, "x" * (KEPT_CHARACTERS_MAX + 1), "SELECT '\udc80';"):
        history.append_string(text)
    assert SECRET in history.get_strings()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "hunter2" not in path.read_text()
    assert list(history_of(path).load_history_strings()) == ["SELECT '?';", "SELECT\n 'ä';", "SELECT 1;"]


def test_a_file_that_has_grown_keeps_its_last_half(tmp_path: Path) -> None:
    path = tmp_path / "history"
    with path.open("w") as file:
        for number in range(BYTES_MAX // 30):
            file.write(f"\n# 2026-01-01 00:00:00.000000\n+SELECT {number};\n")
    assert path.stat().st_size > BYTES_MAX
    kept = list(history_of(path).load_history_strings())
    assert path.stat().st_size <= BYTES_MAX // 2 + 1
    assert kept[0] == f"SELECT {BYTES_MAX // 30 - 1};"
    assert all(text.startswith("SELECT ") for text in kept)
    assert len(kept) > BYTES_MAX // 120


def test_without_a_file_there_is_a_history(tmp_path: Path) -> None:
    assert isinstance(history_of(tmp_path / "no folder" / "history"), InMemoryHistory)
    path = tmp_path / "folder" / "history"
    path.parent.mkdir()
    history = history_of(path)
    path.unlink()
    path.parent.rmdir()
    history.append_string("SELECT 1;")
    assert history.get_strings() == ["SELECT 1;"]


def test_a_file_that_is_no_file_is_left_alone(tmp_path: Path) -> None:
    """Some people link it to /dev/null, which root would close to all others."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o622)
    pipe.chmod(0o622)
    (tmp_path / "history").symlink_to(pipe)
    assert isinstance(history_of(tmp_path / "history"), InMemoryHistory)
    assert stat.S_IMODE(pipe.stat().st_mode) == 0o622


def test_it_is_in_the_home_of_its_user_who_may_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    history_of().append_string("SELECT 1;")
    assert "SELECT 1;" in (tmp_path / ".tilth_history").read_text()
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    assert isinstance(history_of(FILE), InMemoryHistory)
