"""What no file of the project may say: things left undone, places of one machine, addresses in the lock."""

from __future__ import annotations

import re
from pathlib import Path

from tests.tidy.sources import ROOT, place, text_files

#: In two halves, so that this file does not say them either.
UNDONE = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|NotImplemented" r"Error)\b")
#: Homes of people, and this project's own place on the disk.
MACHINE_PATHS = re.compile(rf"{re.escape(str(ROOT))}\b|/(?:home|Users)/\w+/|(?<![\w.])/ro" r"ot/")


def test_nothing_is_left_undone() -> None:
    assert _lines_with(UNDONE) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert _lines_with(MACHINE_PATHS) == []


def test_the_locks_name_no_address() -> None:
    """A lock holds names, versions and hashes; where packages come from is the installer's own business."""
    locks = sorted(ROOT.glob("*.lock"))
    assert [lock.name for lock in locks] == ["requirements-build.lock", "requirements-server.lock", "requirements.lock"]
    assert [
        lock.name for lock in locks if re.search(r"://|--(extra-)?index|--find-links|@ file", lock.read_text())
    ] == []


def test_the_locks_hash_every_requirement() -> None:
    for lock in ROOT.glob("*.lock"):
        requirements = [line for line in lock.read_text().splitlines() if re.match(r"[a-z0-9]", line)]
        assert [line for line in requirements if not re.fullmatch(r"\S+==\S+( ; .+)? \\", line)] == [], lock.name


def _lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{place(path)}:{number} {line.strip()[:80]}"
        for path in text_files()
        for number, line in enumerate(_text(path).splitlines(), start=1)
        if pattern.search(line)
    ]


def _text(path: Path) -> str:
    return path.read_text(errors="replace")
