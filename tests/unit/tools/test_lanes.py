"""What `make test` and `make test-long` run, and in which order."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.long import VARIABLE, cases, examples
from tools import durations, lanes
from tools.broker import ROOT


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


def test_files_that_share_stores_stay_in_one_process() -> None:
    files = (ROOT / "tests" / "integration" / "storage").glob("test_*.py")
    users = re.compile(r"hdfs: HdfsCluster|s3_server: S3Server|params=KINDS")
    found = {path.relative_to(ROOT).as_posix() for path in files if users.search(path.read_text())}
    assert found == set(lanes.ON_STORES)
    assert {lanes.scope_of(file) for file in lanes.ON_STORES} == {"stores"}
    assert lanes.scope_of("tests/a.py") == "tests/a.py"


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


def test_a_report_has_the_seconds_of_tests_and_the_processor_time_of_files(tmp_path: Path) -> None:
    report = tmp_path / "lane-2.xml"
    last = '<properties><property name="processor" value="2.5"/><property name="other" value="x"/></properties>'
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="tests.a.test_b" name="test_one" time="1.5"/>'
        f'<testcase classname="tests.a.test_b" name="test_two" time="0.25">{last}</testcase>'
        f'<testcase classname="tests.test_c" name="test_three" time="4">{last}</testcase>'
        "</testsuite></testsuites>"
    )
    tests = durations.read_report(report)
    assert durations.slowest_files(tests) == [("tests/test_c.py", 4.0, 2.5), ("tests/a/test_b.py", 1.75, 2.5)]
    text = durations.page({"2": tests})
    assert "| 2 | 3 | 6 | 5 |" in text
    assert "| `tests/a/test_b.py` | 1.8 | 2.5 |" in text


def test_processor_time_counts_processes_that_have_ended() -> None:
    before = durations.processor_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)
    assert durations.processor_seconds() > before + 0.02
