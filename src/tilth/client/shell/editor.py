"""A statement in the user's editor: `$VISUAL`, `$EDITOR`, else `vi`.

Always holds: the text is in a file that only its user can read, and which is gone afterwards.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tilth.base.errors import InvalidInputError
from tilth.client.shell.interrupts import left_to_child

DEFAULT_EDITOR = "vi"
_HINT = "set EDITOR to the command of an editor that waits, as in EDITOR='code --wait'"


def edited(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the text as the user left it. Raises InvalidInputError (EDITOR_FAILED) if there is no editor."""
    command = environment.get("VISUAL") or environment.get("EDITOR") or DEFAULT_EDITOR
    # The folder has mode 0700.
    with tempfile.TemporaryDirectory(prefix="tilth-sql-") as folder:
        path = Path(folder) / "statement.sql"
        path.write_text(text, encoding="utf-8", errors="replace")
        try:
            # A Ctrl-C of the user, as in what an editor runs, must not end it with all that was written.
            with left_to_child():
                code = subprocess.run([*shlex.split(command), str(path)], check=False).returncode
            reason = f"it ended with {code}" if code else ""
        except (OSError, ValueError) as error:
            reason = str(error)
        if reason:
            raise InvalidInputError.coded(
                "EDITOR_FAILED", "the editor failed", editor=command, reason=reason, hint=_HINT
            )
        return path.read_text(encoding="utf-8", errors="replace").rstrip()
