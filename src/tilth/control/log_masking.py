"""Masking of literals in expired lines of the query log and the audit log.

Covers: the thread that masks them. Does not cover: new lines, how literals are found (query/language/masking.py).
"""

from __future__ import annotations

import threading

from msgspec.structs import replace

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.catalog import AuditSettings, Catalog
from tilth.control.query_log import QueryLog
from tilth.model.service import AuditEvent
from tilth.query.language.masking import mask_details, mask_literals

#: Interval between two runs.
PERIOD_SECONDS = 3600.0
#: Longest wait for a run when the server stops.
STOP_SECONDS = 2.0
_DAY_MS = 86_400_000

_log = Log("sql")


class LogMasking:
    """Masks the literals of expired lines; `start` it once."""

    def __init__(self, clock: Clock, catalog: Catalog, query_log: QueryLog, audit: AuditSettings) -> None:
        self._clock = clock
        self._catalog = catalog
        self._query_log = query_log
        self._audit = audit
        #: Time before which all lines of the audit log are masked.
        self._masked_ms = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tilth-log-masking", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the present run, which is not waited for if the catalog does not answer."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def mask_expired(self) -> int:
        """Mask the expired lines of both logs; return how many lines of the audit log have changed."""
        days = self._audit.literals_days
        if self._audit.is_masking:
            # Lines from before the setting was changed, and lines of servers with another value.
            before_ms = self._clock.now_ms() + 1
        elif days:
            before_ms = self._clock.now_ms() - int(days * _DAY_MS)
        else:
            return 0
        self._query_log.mask(before_ms, mask_literals)
        changed = self._catalog.audit.rewrite(_masked, since_ms=self._masked_ms, before_ms=before_ms)
        # Clocks of servers differ, and may be set back.
        self._masked_ms = max(0, before_ms - int(PERIOD_SECONDS * 1000))
        return changed

    def _run(self) -> None:
        while True:
            try:
                if lines := self.mask_expired():
                    _log.info("literals_masked", lines=lines)
            except TilthError as error:
                _log.warning("masking_failed", reason=error)
            if self._clock.wait(self._is_over, PERIOD_SECONDS):
                return


def _masked(event: AuditEvent) -> AuditEvent:
    return replace(event, statement=mask_literals(event.statement), outcome=mask_details(event.outcome))
