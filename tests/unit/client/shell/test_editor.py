"""The user's editor: a program that changes the file; one process costs 20 ms."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from tests.codes import WithCode
from tilth.base.errors import InvalidInputError
from tilth.client.shell.editor import edited


def test_the_text_comes_back_and_the_file_is_gone(tmp_path: Path) -> None:
    program = tmp_path / "editor.py"
    program.write_text(
        "import os, sys\n"
        "mode = oct(os.stat(os.path.dirname(sys.argv[-1])).st_mode)\n"
        f"open({str(tmp_path / 'seen')!r}, 'w').write(sys.argv[-1] + ' ' + mode)\n"
        "text = open(sys.argv[-1]).read()\n"
        "open(sys.argv[-1], 'w').write(text.replace('1', '2') + '\\n\\n')\n"
    )
    editor = f"{sys.executable} -S {program} --wait"
    assert edited("SELECT 'ä', 1;", {"EDITOR": "/no/editor", "VISUAL": editor}) == "SELECT 'ä', 2;"
    path, mode = (tmp_path / "seen").read_text().split()
    assert stat.S_IMODE(int(mode, 8)) == 0o700
    assert not Path(path).exists()


@pytest.mark.parametrize("command", ["/no/such/editor", "false", "vi 'open"])
def test_an_editor_that_fails_is_named(command: str) -> None:
    with pytest.raises(InvalidInputError, check=WithCode("EDITOR_FAILED")) as caught:
        edited("SELECT 1", {"EDITOR": command})
    assert f"editor={command}" in caught.value.message


def test_a_ctrl_c_inside_of_the_editor_is_not_ours(tmp_path: Path) -> None:
    """The user ends a command that the editor runs, such as a build."""
    program = tmp_path / "editor.py"
    program.write_text(
        "import os, signal, sys\nos.kill(os.getppid(), signal.SIGINT)\nopen(sys.argv[-1], 'w').write('SELECT 2')\n"
    )
    assert edited("SELECT 1", {"EDITOR": f"{sys.executable} -S {program}"}) == "SELECT 2"
