"""SYSTEM CHECK FILES [REPAIR]: compares the files of a table's storage with the catalog, and removes orphans.

Covers: the statement and its rows. Does not cover: what an orphan is (verify/stored.py). Always holds: any server may
run it, because it removes no file that others need: the catalog decides whether a transaction can still commit.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tilth.base.cancel import apart
from tilth.control.context.audit import audited
from tilth.control.context.names import table_of
from tilth.control.context.services import Call, Services
from tilth.control.kinds import StatementKind
from tilth.grammar.parse import Form
from tilth.grammar.phrases import parse_name
from tilth.grammar.statements import Name, Statement
from tilth.grammar.text.cursor import Cursor
from tilth.model.table import TableDef, full_name
from tilth.query.results.answer import Outcome
from tilth.verify import FileState, StoredReport, check_stored

_HINT = "orphans that were removed stay removed; run the statement again to continue"
_TIME = pa.timestamp("ms", "UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFiles(Statement):
    """SYSTEM CHECK FILES: compares the files of a table's storage with the catalog."""

    name: Name
    #: `True` if old orphans are removed.
    is_repair: bool = False


def _parse(cursor: Cursor) -> CheckFiles:
    cursor.expect("FILES")
    return CheckFiles(name=parse_name(cursor), is_repair=cursor.accept("REPAIR"))


def check_files(services: Services, call: Call, statement: CheckFiles) -> Outcome:
    """Return one row for each file that differs from the catalog, and one for each replica."""
    what = f"SYSTEM CHECK FILES{' REPAIR' if statement.is_repair else ''}"
    table = table_of(services, call, statement.name, what=what)
    if not statement.is_repair:
        return _outcome(_checked(services, table, None))
    age_ms = round(call.settings.repair_files_older_than_seconds * 1000)
    with audited(services, call, verb=what, table=full_name(table)) as audit:
        report = _checked(services, table, age_ms)
        left = report.count(FileState.ORPHAN, FileState.SIDECAR) - report.removed
        audit.outcome = f"done: {report.removed} files removed, {left} orphans left"
    return _outcome(report)


def _checked(services: Services, table: TableDef, age_ms: int | None) -> StoredReport:
    return apart(
        lambda: check_stored(services.catalog, services.root, services.clock, table, repair_age_ms=age_ms),
        name="check-files",
        hint=_HINT,
    )


def _outcome(report: StoredReport) -> Outcome:
    rows = report.rows
    return Outcome(
        table=pa.table(
            {
                "replica": pa.array([each.replica for each in rows], pa.int64()),
                "file": pa.array([each.file for each in rows], pa.string()),
                "state": pa.array([each.state.value for each in rows], pa.string()),
                "bytes": pa.array([each.bytes for each in rows], pa.int64()),
                "modified": pa.array([each.modified_ms or None for each in rows], pa.int64()).cast(_TIME),
                "txn": pa.array([each.txn or None for each in rows], pa.int64()),
                "since": pa.array([each.since_ms or None for each in rows], pa.int64()).cast(_TIME),
                "removed": pa.array([each.is_removed for each in rows], pa.bool_()),
                "detail": pa.array([each.detail for each in rows], pa.string()),
            }
        )
    )


KINDS = (StatementKind(value=CheckFiles, forms=(Form(words="SYSTEM CHECK", parse=_parse),), perform=check_files),)
