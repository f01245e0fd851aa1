"""Errors as values that can be sent to another process: kind, code, message, facts and hint. Pure.

Covers: the value, conversions of errors. Does not cover: sending it (warehouse/remote, model/answer.py).
Always holds: an error is restored as the class that it had, or as one of the same kind and code; the value names no
class and no function to call.

Tests: tests/unit/model/test_answer.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tilth.base.errors import ErrorKind, TilthError


class CallFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A TilthError as a value."""

    kind: str
    code: str
    message: str
    hint: str = ""
    facts: dict[str, str] = {}


def failure_of(error: TilthError) -> CallFailure:
    return CallFailure(
        kind=error.kind.value, code=error.code, message=error.message, hint=error.hint, facts=error.facts
    )


def error_of(failure: CallFailure) -> TilthError:
    """Return the error as the class that it had if this process knows it; else as the general class of its kind, with
    its code.
    """
    classes = [each for each in _classes() if each.kind == failure.kind]
    found = next((each for each in classes if each.code == failure.code), None)
    # Base classes come first.
    cls = found or next(iter(classes), TilthError)
    error = cls.__new__(cls)
    Exception.__init__(error, failure.message)
    error.message, error.hint, error.facts = failure.message, failure.hint, dict(failure.facts)
    if found is None:
        kinds = {kind.value: kind for kind in ErrorKind}
        error.kind = kinds.get(failure.kind, ErrorKind.INTERNAL)  # type: ignore[misc]  # on this error alone
        error.code = failure.code
    return error


def _classes() -> Iterator[type[TilthError]]:
    """Yield each class with a code of its own, base classes first."""
    waiting: list[type[TilthError]] = [TilthError]
    while waiting:
        one = waiting.pop(0)
        waiting += one.__subclasses__()
        if "code" in vars(one):
            yield one
