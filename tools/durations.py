"""Durations of tests, from the reports that each lane leaves behind (junit).

    python -m tools.durations [--page]

Covers: the slowest tests and files of the last run of each lane, and the processor time of files; `--page` writes them
to tests/durations.md, from which tests/conftest.py knows which files to begin with. Does not cover: running them
(lanes.py). A fixture counts for the test that asked for it first, and so does the processor time of what it starts.
"""

from __future__ import annotations

import argparse
import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tools.broker import ROOT

#: Reports by lane: `lane-2.xml`.
REPORTS = ROOT / ".cache" / "durations"
PAGE = ROOT / "tests" / "durations.md"
#: Tests and files that are listed.
TESTS_SHOWN = 20
FILES_SHOWN = 80
_FILE_ROW = re.compile(r"^\| `(tests/[^`]+)` \| ([\d.]+) \| [\d.]+ \|$", re.MULTILINE)
#: Property of the last test of a file in a process: processor seconds of that process and of all that it has started.
PROCESSOR = "processor"
#: Lanes of `make test`.
LANES = ("1", "2")


@dataclass(frozen=True, slots=True)
class Timed:
    """A test and its duration, fixtures included."""

    file: str
    name: str
    seconds: float
    #: Processor seconds of its file; zero for all tests but the last.
    processor: float = 0.0


def report_of(lane: str) -> Path:
    """Return where the report of a lane is."""
    return REPORTS / f"lane-{lane}.xml"


def read_report(path: Path) -> list[Timed]:
    """Return the tests of a report. Raises FileNotFoundError, and ET.ParseError where it was cut off."""
    # The project's own file.
    cases = ET.parse(path).getroot().iter("testcase")
    return [
        Timed(
            each.get("classname", "").replace(".", "/") + ".py",
            each.get("name", ""),
            float(each.get("time", "0")),
            sum(float(found.get("value", "0")) for found in each.iter("property") if found.get("name") == PROCESSOR),
        )
        for each in cases
    ]


def processor_seconds(pid: int | None = None) -> float:
    """Return the processor time of a process, or of this one, and of all below it, also of those that have ended."""
    root, total = psutil.Process(pid), 0.0
    for each in (root, *root.children(recursive=True)):
        with suppress(psutil.Error):
            times = each.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def slowest_files(tests: Iterable[Timed]) -> list[tuple[str, float, float]]:
    """Return files with the seconds and the processor seconds of their tests, the slowest first."""
    seconds: dict[str, float] = defaultdict(float)
    processor: dict[str, float] = defaultdict(float)
    for each in tests:
        seconds[each.file] += each.seconds
        processor[each.file] += each.processor
    return sorted(((file, found, processor[file]) for file, found in seconds.items()), key=lambda item: -item[1])


def slow_files() -> dict[str, float]:
    """Return the files that the page lists, with their seconds."""
    return {file: float(seconds) for file, seconds in _FILE_ROW.findall(PAGE.read_text())}


def page(lanes: dict[str, list[Timed]]) -> str:
    """Return the page: each lane's sum, the slowest files and tests of all lanes."""
    tests = [each for lane in lanes.values() for each in lane]
    lines = [
        "# Slowest tests",
        "",
        "Written by `python -m tools.durations --page` from the last run of each lane on two cores.",
        "",
        "| lane | tests | seconds of all tests | of the processor |",
        "|---|---|---|---|",
        *(
            f"| {lane} | {len(found)} | {sum(each.seconds for each in found):.0f} | "
            f"{sum(each.processor for each in found):.0f} |"
            for lane, found in lanes.items()
        ),
        "",
        "| file | s | processor s |",
        "|---|---|---|",
        *(
            f"| `{file}` | {seconds:.1f} | {processor:.1f} |"
            for file, seconds, processor in slowest_files(tests)[:FILES_SHOWN]
        ),
        "",
        "| test | file | s |",
        "|---|---|---|",
        *(
            f"| `{each.name}` | `{each.file}` | {each.seconds:.1f} |"
            for each in sorted(tests, key=lambda each: -each.seconds)[:TESTS_SHOWN]
        ),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.durations", description="The slowest tests.")
    parser.add_argument("--page", action="store_true", help="write tests/durations.md")
    arguments = parser.parse_args()
    lanes = {lane: read_report(report_of(lane)) for lane in LANES if report_of(lane).exists()}
    text = page(lanes)
    if arguments.page:
        PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
