"""The pager: what it gets, and that one that fails loses no rows."""

from __future__ import annotations

import io
import signal
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tilth.client.shell.pager import DEFAULT_PAGER, LESS, Pager


def shown(command: str | None, lines: int, *, is_terminal: bool = True) -> str:
    console = Console(file=io.StringIO(), width=40, height=20, force_terminal=is_terminal, color_system=None)
    pager = Pager({} if command is None else {"PAGER": command})
    pager.show(console, lambda: console.print("\n".join(f"row {number}" for number in range(lines))))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def saved(tmp_path: Path) -> tuple[str, Path]:
    """A pager that saves what it gets, and its file. One process costs 20 ms."""
    path = tmp_path / "paged"
    program = f"import sys; open({str(path)!r}, 'w').write(sys.stdin.read())"
    return f'{sys.executable} -S -c "{program}"', path


def test_what_is_longer_than_the_screen_goes_to_the_pager(saved: tuple[str, Path]) -> None:
    command, path = saved
    assert shown(command, 17) == "".join(f"row {number}\n" for number in range(17))
    assert not path.exists()
    before = signal.getsignal(signal.SIGINT)
    assert shown(command, 100) == ""
    assert path.read_text().splitlines() == [f"row {number}" for number in range(100)]
    assert signal.getsignal(signal.SIGINT) is before


def test_without_a_terminal_or_a_pager_rows_are_printed(saved: tuple[str, Path]) -> None:
    command, path = saved
    assert shown(command, 100, is_terminal=False).count("row") == 100
    assert not path.exists()
    for none in ("", " ", "cat", "/no/such/pager -x", "less 'open"):
        assert shown(none, 100).count("row") == 100
    assert Pager({})._command == DEFAULT_PAGER == "less -SFRX"


def test_a_pager_that_is_left_early_is_no_error() -> None:
    # These lines are more than a pipe holds.
    assert shown("true", 20_000) == ""


@pytest.mark.parametrize(("given", "options"), [({}, LESS), ({"LESS": "-i"}, "-i")])
def test_colours_are_passed_on_to_less_where_its_options_are_not_set(
    tmp_path: Path, given: dict[str, str], options: str
) -> None:
    program = f"import os; open({str(tmp_path / 'options')!r}, 'w').write(os.environ['LESS'])"
    pager = Pager({"PAGER": f'{sys.executable} -S -c "{program}"', **given})
    pager.show(Console(file=io.StringIO(), height=1, force_terminal=True), lambda: None)
    assert (tmp_path / "options").read_text() == options
