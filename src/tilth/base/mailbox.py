"""Answers of tasks that run in other processes: a value, or an error with its type, code, facts and hint.

Covers: answers as bytes; a mailbox for tasks whose rows go elsewhere, so that they cannot return an answer. Does not
cover: running tasks (warehouse/session/spark.py).
Always holds: an answer counts once, however often its task was tried; an error of one try is not forgotten.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tilth.base.errors import TilthError

_BEING_WRITTEN = ".part"


def pack(answer: object) -> bytes:
    """Encode the answer, or the TilthError in its place."""
    return pickle.dumps(answer)


# Any: what was packed.
def unpack(packed: bytes) -> Any:
    """Return the answer; raises the TilthError that was packed in its place."""
    answer = pickle.loads(packed)
    if isinstance(answer, TilthError):
        raise answer
    return answer


@dataclass(frozen=True, slots=True)
class Mailbox:
    """A folder to which tasks send answers and from which their driver takes them; goes to the tasks by value."""

    folder: str

    def send(self, answer: object, *, key: int, attempt: int) -> None:
        """Leave the answer of a task, or its error, whole or not at all. Raises OSError."""
        path = os.path.join(self.folder, f"{key}-{attempt}")
        with open(f"{path}-{os.getpid()}{_BEING_WRITTEN}", "wb") as file:
            file.write(pack(answer))
        os.replace(file.name, path)

    # Any: what was sent.
    def answers(self) -> list[Any]:
        """One answer for each key, in the keys' order, of its last attempt; raises the TilthError of any attempt."""
        letters = sorted(self._letters())
        answers = {key: unpack(packed) for key, _, packed in letters}
        return list(answers.values())

    def error(self) -> TilthError | None:
        """The first error that a task sent."""
        try:
            self.answers()
        except TilthError as error:
            return error
        return None

    def _letters(self) -> Iterator[tuple[int, int, bytes]]:
        # Its parent may be gone, as with a Spark that was killed.
        for name in os.listdir(self.folder) if os.path.isdir(self.folder) else ():
            if not name.endswith(_BEING_WRITTEN):
                key, _, attempt = name.partition("-")
                with open(os.path.join(self.folder, name), "rb") as file:
                    yield int(key), int(attempt), file.read()


@contextmanager
def mailbox_in(parent: str) -> Iterator[Mailbox]:
    """An empty mailbox for one job below a folder that all tasks see; it is removed at the end."""
    # Only its user can write into it: what is unpacked was packed by us.
    mailbox = Mailbox(tempfile.mkdtemp(prefix="mail-", dir=parent))
    try:
        yield mailbox
    finally:
        shutil.rmtree(mailbox.folder, ignore_errors=True)
