"""Answers of tasks that run in other processes: a value of the type that the caller names, or an error. Pure.

Covers: encoding answers, reading the answers in a mailbox. Does not cover: the mailbox's files (base/mailbox.py),
running tasks (warehouse/session/spark.py).
Always holds: reading runs no code, whatever the bytes are: the result is a value of the expected type or an error of
the task. One answer of each task counts, however often it was attempted; an error of any attempt is raised.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from tilth.base.errors import TilthError
from tilth.base.mailbox import AnswerUnreadableError, Mailbox
from tilth.model.failure import CallFailure, error_of, failure_of

T = TypeVar("T")

_HINT = "the processes of Spark run another version of Tilth, or something else writes where they answer"


class _Value(msgspec.Struct, Generic[T], frozen=True, tag="value", forbid_unknown_fields=True):
    value: T


class _Error(msgspec.Struct, frozen=True, tag="error", forbid_unknown_fields=True):
    error: CallFailure


def pack(answer: object) -> bytes:
    """Encode an answer or a TilthError. Raises TypeError for an answer that is no value."""
    if isinstance(answer, TilthError):
        return msgspec.msgpack.encode(_Error(failure_of(answer)))
    return msgspec.msgpack.encode(_Value(answer))


def unpack(packed: bytes, answer: type[T], *, task: int, attempt: int | None = None) -> T:
    """Return the answer of a task. Raises the TilthError with which the task failed, and AnswerUnreadableError.

    `answer`: type of the packed value.
    """
    try:
        # mypy does not regard a type as hashable.
        found = _decoder(answer).decode(packed)  # type: ignore[arg-type]
    # The messages of these errors quote no value; bytes that are nested too deeply raise RecursionError.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        tried = {} if attempt is None else {"attempt": str(attempt)}
        raise AnswerUnreadableError(task=task, **tried, reason=error, hint=_HINT) from None
    if isinstance(found, _Error):
        raise error_of(found.error)
    value: T = found.value
    return value


@lru_cache(maxsize=256)
# Any: the type is known to `unpack`.
def _decoder(answer: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(_Value[answer] | _Error)


def answers_in(mailbox: Mailbox, answer: type[T]) -> list[T]:
    """Return the answer of the last attempt for each key, in the order of the keys. Raises the TilthError of any
    attempt, and AnswerUnreadableError.
    """
    letters = mailbox.letters()
    answers = {each.key: unpack(each.packed, answer, task=each.key, attempt=each.attempt) for each in letters}
    return list(answers.values())


def error_in(mailbox: Mailbox) -> TilthError | None:
    """Return the first error in the mailbox of tasks that send nothing but errors; None: there is none."""
    try:
        answers_in(mailbox, type(None))
    except TilthError as error:
        return error
    return None
