"""The audit log: a line for each statement that changes what the node keeps or does, refused or not.

Tests: tests/unit/control/test_running.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.base.secrets import without_secrets
from tilth.control.context.services import Call, Services
from tilth.membership.peers import note_unanswered
from tilth.model.service import AuditEvent
from tilth.query.language.masking import log_outcome, log_statement

_log = Log("sql")


@dataclass(slots=True)
class Audit:
    """Outcome of a statement that was not refused, for the audit log."""

    outcome: str = "done"


@contextmanager
def audited(
    services: Services, call: Call, *, verb: str, table: str = "", because: str = "", duration_ms: int = 0
) -> Iterator[Audit]:
    """Add a line to the audit log when the block is over, with what the block says of its outcome, or the error that
    refused it. A line that cannot be recorded is in the server's log, and the answer has a notice.

    `verb` is the statement without names, as in `ALTER .. DROP PARTITION`; `table` is `database.table`.
    """
    audit = Audit()
    outcome = "INTERNAL_ERROR: a defect, see the log"
    try:
        yield audit
        outcome = audit.outcome
    except TilthError as error:
        outcome = f"{error.code}: {error}"
        raise
    finally:
        event = AuditEvent(
            at_ms=services.clock.now_ms(),
            verb=verb,
            table=table,
            statement=log_statement(services.audit, call.text),
            duration_ms=duration_ms,
            because=because,
            query_id=call.query_id,
            client=call.client,
            outcome=log_outcome(services.audit, without_secrets(outcome, call.secrets)),
        )
        try:
            services.catalog.audit.record(event)
        except TilthError as error:
            # The outcome of the block stands: its commit, or the error that refused it.
            _log.error(
                "not_in_audit_log", cause_id=call.query_id, verb=verb, table=table, outcome=event.outcome, reason=error
            )
            note_unanswered(f"system.audit_log lacks this statement: {error.message}")
