"""Report on a script of DDL: a verdict for each statement, and its differences line by line. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ForeignSystem(StrEnum):
    """The system that a statement is written for."""

    BYCONITY = "byconity"
    CLICKHOUSE = "clickhouse"
    KUDU = "kudu"
    DELTA = "delta"
    ICEBERG = "iceberg"


#: Systems whose statements are ClickHouse's.
OF_CLICKHOUSE = (ForeignSystem.CLICKHOUSE, ForeignSystem.BYCONITY)


class StatementVerdict(StrEnum):
    """Outcome of one statement."""

    #: Tilth reads it as it is written.
    UNCHANGED = "unchanged"
    #: Tilth gets another text, and the findings say where it differs.
    CHANGED = "changed"
    #: Nothing is created for it.
    REFUSED = "refused"
    #: It creates nothing, so that importing DDL does not run it.
    SKIPPED = "skipped"


class Difference(StrEnum):
    """Kind of a finding."""

    #: Rows and answers are the same.
    NOTE = "note"
    #: Created, and means something else.
    DIFFERS = "differs"
    #: A part of the statement for which nothing is created.
    LEFT_OUT = "left out"
    #: The reason why nothing is created for the statement.
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlFinding:
    """One difference between the statement that was read and the one that goes out."""

    #: Line of the script, from 1.
    line: int
    kind: Difference
    what: str
    why: str = ""
    #: The nearest thing to do.
    instead: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """One statement of the script."""

    #: Line of its first word, from 1.
    line: int
    #: First words and the name, as `CREATE TABLE d.t`.
    what: str
    source: ForeignSystem
    verdict: StatementVerdict
    #: Statement for Tilth; None: there is none.
    statement: str | None = None
    #: Settings of the session under which the statement means what it did; in pairs.
    settings: tuple[tuple[str, str], ...] = ()
    findings: tuple[DdlFinding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlReport:
    """All statements of a script in their order."""

    statements: tuple[Translated, ...]

    @property
    def has_refused(self) -> bool:
        return any(each.verdict is StatementVerdict.REFUSED for each in self.statements)

    @property
    def is_same(self) -> bool:
        """True if every statement creates what it did elsewhere, apart from notes."""
        return not self.has_refused and all(
            finding.kind is Difference.NOTE for each in self.statements for finding in each.findings
        )
