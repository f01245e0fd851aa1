"""Texts that were typed before, for the arrow keys and Ctrl-R: in a file that only its user can read.

Always holds: a statement that may hold a password or a key is not in the file (client/secrets.py), though the running
shell has it; the file has mode 0600 and a bound; without a file, and without a home, the shell works.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from tilth.client.secrets import may_hold_secret

FILE = "~/.tilth_history"
#: A file that is larger at the start keeps its last half.
BYTES_MAX = 4 << 20
#: A longer text is data rather than a statement.
KEPT_CHARACTERS_MAX = 64 << 10


class StatementHistory(FileHistory):
    """Statements in a file, without those that may hold secrets."""

    def store_string(self, string: str) -> None:
        if len(string) > KEPT_CHARACTERS_MAX or may_hold_secret(string):
            return
        try:
            super().store_string(string)
        except OSError:
            # The disk is full, or the folder is gone; the running shell still has it.
            return


def history_of(path: str | Path = FILE) -> History:
    """Return the history in this file, made if it is not there; one in memory where there can be no such file."""
    # Without a home the `~` stays, and no folder has that name.
    path = os.path.expanduser(path)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return InMemoryHistory()
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        # A link to /dev/null, by which some people have no history: root would close that to all others.
        os.close(descriptor)
        return InMemoryHistory()
    with os.fdopen(descriptor, "r+b") as file:
        try:
            os.fchmod(descriptor, 0o600)
        except OSError:
            # Somebody else's file, which others may read.
            return InMemoryHistory()
        size = file.seek(0, os.SEEK_END)
        if size > BYTES_MAX:
            file.seek(size - BYTES_MAX // 2)
            # The first entry is cut; an empty line is between two of them.
            _, _, kept = file.read().partition(b"\n\n")
            file.seek(0)
            file.write(b"\n" + kept)
            file.truncate()
    return StatementHistory(path)
