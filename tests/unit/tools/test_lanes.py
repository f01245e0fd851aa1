"""What `make test` and `make test-long` run, and in which order."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from tests.long import VARIABLE, cases, examples
from tools import durations, lanes


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that are run instead of running them."""
    run: list[list[str]] = []

    def note(command: Sequence[str], **_: object) -> object:
        run.append([*command])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", note)
    return run


def test_long_tests_are_left_out_of_each_lane_and_run_by_one_command(commands: list[list[str]]) -> None:
    run = lanes.Lanes(2)
    run.fast()
    run.slow()
    assert [command[command.index("not long") - 1] for command in commands] == ["-m", "-m"]
    commands.clear()
    run.long()
    assert not any("not long" in command for command in commands)
    [command] = commands
    assert set(lanes.LONG) <= set(command)
    assert set(lanes.SLOW) < set(lanes.LONG)


def test_of_cases_the_first_is_run_always() -> None:
    marked = cases("abcd", first=2, and_also="d")
    assert [marked[0], marked[1], marked[3]] == ["a", "b", "d"]
    assert [mark.name for mark in marked[2].marks] == ["long"]


def test_all_examples_are_made_where_a_run_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert [examples(number) for number in (400, 20, 5)] == [100, 10, 5]
    monkeypatch.setenv(VARIABLE, "1")
    assert examples(400) == 400


def test_the_page_of_durations_says_which_files_are_slow() -> None:
    seconds = list(durations.slow_files().values())
    assert len(seconds) > 10
    assert seconds == sorted(seconds, reverse=True)
