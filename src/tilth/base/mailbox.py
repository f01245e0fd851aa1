"""A mailbox for tasks that fail in the middle of a plan: their letter is in the text of what they raise.

Spark brings the text of a task's error to its driver, and nothing else of it.

Covers: a letter in a text, and its way out. Does not cover: the form of letters (model/answer.py), answers of tasks
that end well (warehouse/session/beside_spark.py).
Always holds: a letter is whole or absent; one of another job, or in a value of a row, is none, for nobody can guess the
mark of a mailbox.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from tilth.base.errors import TilthError
from tilth.base.ids import random_id
from tilth.base.units import KIB

#: Upper bound for a letter, which has the facts of an error.
LETTER_BYTES_MAX = 64 * KIB
_FORM = "tilth-letter:{mark}:{letter}:end"


class AnswerUnreadableError(TilthError):
    """the answer of a task cannot be read"""

    code = "TASK_ANSWER_UNREADABLE"


class LetterError(Exception):
    """Error of a task, with a letter for its driver in the text."""


@dataclass(frozen=True, slots=True)
class Mailbox:
    """The mark of the letters of one job; goes to its tasks by value."""

    mark: str

    def letter(self, packed: bytes) -> LetterError | None:
        """Return what a task raises so that its driver gets the letter; None: it is too long."""
        if len(packed) > LETTER_BYTES_MAX:
            return None
        return LetterError(_FORM.format(mark=self.mark, letter=base64.b64encode(packed).decode()))

    def find(self, text: str) -> bytes | None:
        """Return the letter in the text of Spark's error; None: there is none. Raises AnswerUnreadableError."""
        form = _FORM.format(mark=re.escape(self.mark), letter=r"([A-Za-z0-9+/=]*)")
        found = re.search(form, text)
        if found is None:
            return None
        try:
            return base64.b64decode(found[1], validate=True)
        except binascii.Error as error:
            raise AnswerUnreadableError("the error of a task cannot be read", reason=error) from None


def new_mailbox() -> Mailbox:
    """Return a mailbox with a mark of its own."""
    return Mailbox(random_id())
