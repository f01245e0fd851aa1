"""Answers of tasks that run in other processes: a value of the type that the caller names, or an error. Pure.

Covers: encoding and reading answers, one or those of many tasks. Does not cover: their way to the driver
(warehouse/session/spark.py, warehouse/session/beside_spark.py, base/mailbox.py).
Always holds: reading runs no code, whatever the bytes are: the result is a value of the expected type or an error of
the task. One answer of each task counts, however often it was given; an error is raised, whichever it is of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from tilth.base.errors import TilthError
from tilth.base.mailbox import AnswerUnreadableError, Mailbox
from tilth.model.failure import CallFailure, error_of, failure_of

T = TypeVar("T")

_HINT = "the processes of Spark run another version of Tilth, or something else answers for them"


class _Value(msgspec.Struct, Generic[T], frozen=True, tag="value", forbid_unknown_fields=True):
    value: T


class _Error(msgspec.Struct, frozen=True, tag="error", forbid_unknown_fields=True):
    error: CallFailure


def pack(answer: object) -> bytes:
    """Encode an answer or a TilthError. Raises TypeError for an answer that is no value."""
    if isinstance(answer, TilthError):
        return msgspec.msgpack.encode(_Error(failure_of(answer)))
    return msgspec.msgpack.encode(_Value(answer))


def unpack(packed: bytes, answer: type[T], *, task: int) -> T:
    """Return the answer of a task. Raises the TilthError with which the task failed, and AnswerUnreadableError.

    `answer`: type of the packed value.
    """
    try:
        # mypy does not regard a type as hashable.
        found = _decoder(answer).decode(packed)  # type: ignore[arg-type]
    # The messages of these errors quote no value; bytes that are nested too deeply raise RecursionError.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AnswerUnreadableError(task=task, reason=error, hint=_HINT) from None
    if isinstance(found, _Error):
        raise error_of(found.error)
    value: T = found.value
    return value


@lru_cache(maxsize=256)
# Any: the type is known to `unpack`.
def _decoder(answer: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(_Value[answer] | _Error)


def answers_of(letters: Iterable[tuple[int, bytes]], answer: type[T]) -> list[T]:
    """Return the last answer for each key, in the order of the keys. Raises the TilthError of any of them, and
    AnswerUnreadableError.

    `letters`: keys and packed answers, in the order in which they came.
    """
    answers = {key: unpack(packed, answer, task=key) for key, packed in letters}
    return [answers[key] for key in sorted(answers)]


def error_in(text: str, mailbox: Mailbox) -> TilthError | None:
    """Return the error that a task has sent in the text of Spark's error; None: it has sent none."""
    try:
        packed = mailbox.find(text)
        if packed is not None:
            unpack(packed, type(None), task=0)
    except TilthError as error:
        return error
    return None
