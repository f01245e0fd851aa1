"""Checks run side by side, each within a bounded time.

Covers: what a check returns, a check that fails or hangs. Does not cover: the checks.
Always holds: each check has at least one finding in the result, and the order is that of the checks.

Tests: tests/unit/doctor/test_broken_setups.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from tilth.base.bounded_calls import BoundedCalls, CallAnswered, CallFailed, CallSilent
from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.model.diagnosis import Diagnosis, Grade

PAGE = "docs/operate/doctor.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """One check."""

    name: str
    #: Returns what was found, at least one finding, given this check. Its TilthErrors and OSErrors become findings.
    run: Callable[[Checkup], Sequence[Diagnosis]]
    #: Heading of the check on the page of the doctor.
    heading: str

    @property
    def page(self) -> str:
        return f"{PAGE}#{self.heading}"

    def found(self, grade: Grade, sentence: str, todo: str = "") -> Diagnosis:
        return Diagnosis(check=self.name, grade=grade, sentence=sentence, todo=todo, page=self.page if todo else "")


def ok(check: str, sentence: str) -> Diagnosis:
    return Diagnosis(check=check, grade=Grade.OK, sentence=sentence)


def failed(check: str, error: TilthError, page: str) -> Diagnosis:
    """Return the finding of an error of a check."""
    return Diagnosis(check=check, grade=Grade.ERROR, sentence=error.message, todo=error.hint, page=page)


def run_checks(clock: Clock, checks: Sequence[Checkup], *, seconds_max: float) -> list[Diagnosis]:
    """Run the checks, and return what they find within the time."""
    outcomes = BoundedCalls[Sequence[Diagnosis]](clock, seconds_max=seconds_max).read(
        {each.name: partial(each.run, each) for each in checks}
    )
    found: list[Diagnosis] = []
    for check in checks:
        match outcomes[check.name]:
            case CallAnswered(value=several):
                found.extend(several)
            case CallFailed(error=TilthError() as error):
                found.append(failed(check.name, error, check.page))
            case CallFailed(error=ImportError() as error):
                sentence = f"a library that a server needs cannot be imported: {error}"
                found.append(check.found(Grade.ERROR, sentence, "pip install 'tilth[server]'"))
            case CallFailed(error=OSError() as error):
                sentence = f"it could not be checked: {error.strerror or error}: {error.filename or ''}".rstrip(": ")
                found.append(check.found(Grade.ERROR, sentence, "repair what the sentence names"))
            case CallFailed(error=error):
                sentence = f"the check has failed by a defect of Tilth: {error!r}"
                found.append(check.found(Grade.ERROR, sentence, "report it with the output of `tilth bundle`"))
            case CallSilent():
                sentence = f"the check has not ended within {seconds_max:g} s"
                found.append(check.found(Grade.ERROR, sentence, "see on the page what the check waits for"))
            case other:
                assert_never(other)
    return found
