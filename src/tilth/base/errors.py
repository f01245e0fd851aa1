"""Errors, worded so that the caller knows what to do next.

Covers: the error type of every room, its kinds, its wire form. Does not cover: mapping to HTTP (server/errors.py).
Always holds: the kind determines what to do; the code is stable and may be matched by programs; the message names the
thing.

Tests: tests/unit/warehouse/remote/test_channel.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Self, cast

#: Folder of the documentation with a page for each code.
ERROR_PAGES = "docs/errors"
_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,99}")


class ErrorKind(StrEnum):
    """Action that an error requires of the caller."""

    #: The statement or the input is wrong: change it.
    INVALID = "invalid"
    #: The thing named does not exist.
    NOT_FOUND = "not_found"
    #: The thing exists already, or is in a state that forbids this.
    CONFLICT = "conflict"
    #: Nothing was applied; the same call may succeed later.
    RETRY = "retry"
    #: A component is down or unreachable: check it, then try again.
    UNAVAILABLE = "unavailable"
    #: The caller has lost the right to act: drop what you hold.
    FENCED = "fenced"
    #: It may or may not have happened: read before you act, delete nothing.
    UNKNOWN_OUTCOME = "unknown_outcome"
    #: Stored bytes are not what they should be.
    CORRUPT = "corrupt"
    #: A defect of Tilth.
    INTERNAL = "internal"


class TilthError(Exception):
    """Something went wrong."""

    kind: ClassVar[ErrorKind] = ErrorKind.INTERNAL
    #: Stable, upper case, for programs.
    code: str = "INTERNAL_ERROR"

    def __init__(self, message: str | None = None, *, hint: str = "", **facts: object) -> None:
        """`facts` are appended to the message as key=value, in the order given; the hint is what to do."""
        text = message or _first_line(type(self).__doc__)
        self.facts = {name: str(value) for name, value in facts.items()}
        self.message = f"{text}: {_listed(self.facts)}" if facts else text
        self.hint = hint
        super().__init__(self.message)

    @classmethod
    def coded(cls, code: str, message: str, /, *, hint: str = "", **facts: object) -> Self:
        """Return an error of this kind with a code of its own; for one that a single call raises and nothing catches
        by its class.
        """
        error = cls(message, hint=hint, **facts)
        error.code = code
        return error

    def with_facts(self, *, hint: str | None = None, **facts: object) -> Self:
        """Return this error, of the same class, code and sentence, with more facts, or with other values of those that
        it has; the hint stays unless one is given.
        """
        before, added = _listed(self.facts), {name: str(value) for name, value in facts.items()}
        after = self.facts | added
        if before and self.message.endswith(before):
            message = self.message.removesuffix(before) + _listed(after)
        else:
            message = f"{self.message}{' ' if before else ': '}{_listed(added)}"
        error = _rebuild(type(self), self.code, message, self.hint if hint is None else hint, after)
        return cast("Self", error)

    @property
    def page(self) -> str:
        """Page of the documentation on the code: cause and cure."""
        return page_of(self.code)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def _render_traceback_(self) -> list[str]:
        """Return the lines that a notebook shows: what is wrong and what to do, without the way through the code.

        Raises itself for a defect, of which a notebook then shows that way.
        """
        if self.kind is ErrorKind.INTERNAL:
            raise self
        what_to_do = [f"  what to do: {self.hint}"] if self.hint else []
        return [f"{self.code}: {self.message}", *what_to_do, *([f"  see: {self.page}"] if self.page else [])]

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Pickle the error with its facts, for users who send it to other processes of their own."""
        return _rebuild, (type(self), self.code, self.message, self.hint, self.facts)


class InvalidInputError(TilthError):
    """the input is not valid"""

    kind = ErrorKind.INVALID
    code = "INVALID_INPUT"


class NotFoundError(TilthError):
    """no such thing"""

    kind = ErrorKind.NOT_FOUND
    code = "NOT_FOUND"


class ConflictError(TilthError):
    """the state of the thing forbids this"""

    kind = ErrorKind.CONFLICT
    code = "CONFLICT"


class RetryError(TilthError):
    """nothing was applied; try again"""

    kind = ErrorKind.RETRY
    code = "TRY_AGAIN"


class UnavailableError(TilthError):
    """a component does not answer"""

    kind = ErrorKind.UNAVAILABLE
    code = "UNAVAILABLE"


class FolderError(UnavailableError):
    """the node's folder cannot be used"""

    code = "BAD_DATA_FOLDER"


class FencedError(TilthError):
    """another actor is the holder now"""

    kind = ErrorKind.FENCED
    code = "FENCED"


class UnknownOutcomeError(TilthError):
    """it is not known whether the commit landed"""

    kind = ErrorKind.UNKNOWN_OUTCOME
    code = "UNKNOWN_OUTCOME"


class CorruptError(TilthError):
    """stored bytes are damaged"""

    kind = ErrorKind.CORRUPT
    code = "CORRUPT"


def page_of(code: str) -> str:
    """Return the page of the documentation on an error code; empty for a text that is no code."""
    return f"{ERROR_PAGES}/{code}.md" if _CODE.fullmatch(code) else ""


def as_exception(error: BaseException) -> Exception:
    """Return the error itself if it is an Exception, else a TilthError for a defect, with the error as its cause.

    Panics of libraries in Rust and SystemExit are no Exceptions: code that relays errors to a waiting thread catches
    them too. StopIteration and StopAsyncIteration count as defects, as a future refuses them and a loop would end
    silently.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    reason = f"{type(error).__name__}: {error}"
    defect = TilthError("a library has failed in a way that it does not expect", reason=reason)
    defect.__cause__ = error
    return defect


def _listed(facts: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in facts.items())


def _first_line(doc: str | None) -> str:
    return (doc or "error").strip().splitlines()[0].rstrip(".")


def _rebuild(cls: type[TilthError], code: str, message: str, hint: str, facts: dict[str, str]) -> TilthError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.code, error.message, error.hint, error.facts = code, message, hint, facts
    return error
