"""The nouns of a report, and the bounds that all checks share. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: Faults that a check names.
NAMED_MAX = 20
#: Reads of two records that belong together, while commits go on.
TRIES_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One statement about a table, and whether it holds."""

    #: Checked object: `db.t`, `db.k topic/0`.
    subject: str
    #: Expected state, in words.
    check: str
    is_ok: bool
    #: The figures; or what is wrong.
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """All checks of one table."""

    #: `database.table`.
    table: str
    checks: tuple[CheckResult, ...]

    @property
    def is_ok(self) -> bool:
        return all(check.is_ok for check in self.checks)
