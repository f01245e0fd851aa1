"""A mailbox for tasks in the middle of a plan: their rows go to other tasks, so they leave their answers in files.

Covers: one file for each answer, as bytes. Does not cover: the form of answers (model/answer.py), running tasks
(warehouse/session/spark.py).
Always holds: a letter is complete or absent; only regular files with the names of letters are read, up to a size.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tilth.base.errors import TilthError
from tilth.base.units import MIB

#: Upper bound for the answer of a task, which has only facts about files and ranges of offsets.
ANSWER_BYTES_MAX = 256 * MIB
_BEING_WRITTEN = ".part"
_NAME = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")
#: Flags for reading a letter: links are not followed, and opening a pipe does not wait for its writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class AnswerUnreadableError(TilthError):
    """the answer of a task cannot be read"""

    code = "TASK_ANSWER_UNREADABLE"


@dataclass(frozen=True, slots=True, order=True)
class Letter:
    """The answer of one attempt of a task."""

    key: int
    attempt: int
    packed: bytes


@dataclass(frozen=True, slots=True)
class Mailbox:
    """A folder to which tasks send answers and from which their driver reads them; goes to the tasks by value."""

    folder: str

    def send(self, packed: bytes, *, key: int, attempt: int) -> None:
        """Write the answer of a task atomically. Raises OSError."""
        path = os.path.join(self.folder, f"{key}-{attempt}")
        with open(f"{path}-{os.getpid()}{_BEING_WRITTEN}", "wb") as file:
            file.write(packed)
        os.replace(file.name, path)

    def letters(self) -> list[Letter]:
        """Return all letters in the order of their keys and attempts. Raises AnswerUnreadableError."""
        # The folder may be gone with its parent, as after Spark was killed.
        names = os.listdir(self.folder) if os.path.isdir(self.folder) else ()
        return sorted(self._letter(name) for name in names if not name.endswith(_BEING_WRITTEN))

    def _letter(self, name: str) -> Letter:
        found = _NAME.fullmatch(name)
        if found is None:
            raise AnswerUnreadableError("there is a file in a mailbox that no task of this job has sent", file=name)
        try:
            packed = _content(os.path.join(self.folder, name))
        except OSError as error:
            raise AnswerUnreadableError(task=found[1], attempt=found[2], reason=error.strerror) from error
        if packed is None:
            reason = f"it is no regular file of {ANSWER_BYTES_MAX} bytes at most"
            raise AnswerUnreadableError(task=found[1], attempt=found[2], reason=reason)
        return Letter(int(found[1]), int(found[2]), packed)


def _content(path: str) -> bytes | None:
    with os.fdopen(os.open(path, _READ), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > ANSWER_BYTES_MAX:
            return None
        return file.read(ANSWER_BYTES_MAX)


@contextmanager
def mailbox_in(parent: str) -> Iterator[Mailbox]:
    """An empty mailbox for one job below a folder that all tasks see; it is removed at the end."""
    # Only this user can write into a folder of mkdtemp.
    mailbox = Mailbox(tempfile.mkdtemp(prefix="mail-", dir=parent))
    try:
        yield mailbox
    finally:
        shutil.rmtree(mailbox.folder, ignore_errors=True)
