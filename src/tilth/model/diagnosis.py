"""Findings of `tilth doctor`, as it prints them and as its `--json` has them."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Grade(StrEnum):
    """Urgency of a finding."""

    OK = "ok"
    #: It works, and somebody should act before it does not.
    WARNING = "warning"
    #: It does not work, or a server would not start.
    ERROR = "error"


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of one check."""

    #: Name of the check.
    check: str
    grade: Grade
    #: Sentence without a full stop: what was found, with names and numbers.
    sentence: str
    #: Advice for a person; empty: nothing needs to be done.
    todo: str = ""
    #: Page of the documentation, with its heading.
    page: str = ""
    #: Start time of what was found; empty: not known.
    since: str = ""
