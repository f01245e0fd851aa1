"""Entries of a bundle: what is read from a real engine, and the archive. No Spark."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.alarm_world import AlarmWorld
from tests.unit.app_transport import AppTransport
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.client import AnswerLostError, Connection, Result
from tilth.client.bundle import ROWS_MAX, TABLES, BundleEntry, cleaned, server_entries, write_archive
from tilth.server import build_app

#: Columns with literals of statements, rows or messages.
HELD_BACK = {"query", "error", "command", "statement", "create_statement", "comment", "last_broken", "last_exception"}


def test_every_statement_runs_and_none_reads_literals(tmp_path: Path) -> None:
    world = AlarmWorld(tmp_path)
    for table, columns in TABLES.items():
        found = world.run(f"SELECT {columns} FROM system.{table} LIMIT {ROWS_MAX}", settings={"readonly": "1"}).table
        allowed = {"last_exception"} if table == "bg_threads" else set()
        assert set(found.column_names) & HELD_BACK <= allowed, table


def test_what_a_server_says_of_itself() -> None:
    rooms = FakeRooms()
    connection = Connection("http://tilth.test", transport=AppTransport(build_app(context_of(rooms))))
    entries = {each.name: each.text for each in server_entries(connection)}
    assert entries["server/alarms.jsonl"] == '{"a":1}\n'
    assert '"components":{"catalog":"ok"}' in entries["server/health.json"]
    assert entries["server/metrics.txt"] == "tilth_up 1.0\n"
    assert len(entries) == len(TABLES) + 3
    settings = [call[3] for call in rooms.calls if call[0] == "run"]
    assert settings == [{"readonly": "1", "log_queries": "0", "max_execution_time": "10"}] * (len(TABLES) + 1)


class SilentConnection(Connection):
    """A connection to a server whose statements hang."""

    def sql(self, text: str, settings: Mapping[str, str] | None = None) -> Result:
        raise AnswerLostError("the Tilth server did not answer in time")


def test_a_server_that_hangs_is_not_waited_for_with_each_statement() -> None:
    connection = SilentConnection("http://tilth.test", transport=AppTransport(build_app(context_of(FakeRooms()))))
    assert [each.name for each in server_entries(connection)] == [
        "server/health.json",
        "server/metrics.txt",
        "server/settings.jsonl",
        "server/alarms.jsonl",
        "server/away.txt",
    ]


def test_the_archive_is_new_private_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    entries = cleaned([BundleEntry("a.txt", "hunter2\udcff\n"), BundleEntry("log/b", "x")], lambda text: text[1:])
    write_archive(str(path), entries, at=1_700_000_000)
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        content = {each.name: archive.extractfile(each) for each in archive}
        assert {name: file.read() for name, file in content.items() if file is not None} == {
            "tilth-bundle/a.txt": b"unter2?\n",
            "tilth-bundle/log/b": b"",
        }
    with pytest.raises(FileExistsError):
        write_archive(str(path), entries, at=0)
    assert path.exists()


def test_a_full_disk_leaves_no_half_of_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "addfile", fail)
    with pytest.raises(OSError, match="No space left"):
        write_archive(str(tmp_path / "b.tar.gz"), [BundleEntry("a", "x")], at=0)
    assert list(tmp_path.iterdir()) == []
