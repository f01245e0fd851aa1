"""Folders of stored results: those of living servers stay, those of others go, twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.maintenance.cleaner.test_left_files import Server
from tilth.catalog import ResultFolder
from tilth.maintenance.cleaner.left_results import LATE_MS


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def store(server: Server, name: str) -> Path:
    """A file of a result that this server streams."""
    path = f"results/{name}"
    server.catalog.results.add(path, ResultFolder(server=server.catalog.server, root=str(server.root)))
    return late(server, name)


def late(server: Server, name: str) -> Path:
    """A file that a task of the result writes."""
    file = server.root / "results" / name / "000000.1.000000.arrow"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"rows")
    return file


def test_the_result_of_a_living_server_stays_and_that_of_one_that_is_gone_goes(server: Server, tmp_path: Path) -> None:
    other = Server(tmp_path, server)
    mine, theirs = store(server, "mine"), store(other, "theirs")
    server.tick(86_400)
    assert (mine.exists(), theirs.exists()) == (True, True)
    server.catalog.servers.end(other.record)
    server.is_coordinator = False
    server.tick()
    assert theirs.exists()
    server.is_coordinator = True
    server.tick()
    assert (mine.exists(), theirs.parent.exists()) == (True, False)


def test_what_a_task_writes_late_goes_with_the_second_removal(server: Server) -> None:
    file = store(server, "r")
    server.catalog.servers.end(server.record)
    server.open("s1")
    server.tick()
    assert not file.parent.exists()
    late(server, "r")
    server.tick(LATE_MS / 1000 - 2)
    assert file.exists()
    server.tick(3)
    assert not file.parent.exists()
    assert server.catalog.results.all() == {}


def test_a_result_that_has_ended_is_removed_once_more(server: Server) -> None:
    file = store(server, "r")
    server.catalog.results.note_removal("results/r")
    server.tick(1)
    assert file.exists()
    first = server.catalog.results.all()
    server.catalog.results.note_removal("results/r")
    assert server.catalog.results.all() == first
    server.tick(LATE_MS / 1000)
    assert not file.parent.exists()
    assert server.catalog.results.all() == {}
    # Nobody knows it any more.
    server.catalog.results.note_removal("results/r")
    assert server.catalog.results.all() == {}


def test_a_folder_that_cannot_be_removed_stops_no_other(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = store(server, "bad"), store(server, "good")
    server.catalog.results.add("results/bad", ResultFolder(server="gone#1", root="/dev/null/nowhere"))
    server.catalog.results.add("results/good", ResultFolder(server="gone#1", root=str(server.root)))
    server.tick()
    assert (bad.exists(), good.exists()) == (True, False)
    server.tick(LATE_MS / 1000)
    assert list(server.catalog.results.all()) == ["results/bad"]
