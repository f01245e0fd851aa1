"""Values of statements in old lines of the query log and the audit log, left out after a time that the operator sets.

Covers: the thread that looks through the lines. Does not cover: what a new line keeps (settings.py), how values are
found in a statement (without_literals.py).
"""

from __future__ import annotations

import threading

from msgspec.structs import replace

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.catalog import Catalog
from tilth.model.service import AuditEvent
from tilth.sql.control.query_log import QueryLog
from tilth.sql.language.without_literals import without_details, without_literals
from tilth.sql.settings import AuditSettings

#: Interval between two looks through the logs.
LOOK_SECONDS = 3600.0
#: The end of a server waits so long for a look.
STOP_SECONDS = 2.0
_DAY_MS = 86_400_000

_log = Log("sql")


class OldValues:
    """Leaves the values out of old lines; `start` it once."""

    def __init__(self, clock: Clock, catalog: Catalog, query_log: QueryLog, settings: AuditSettings) -> None:
        self._clock = clock
        self._catalog = catalog
        self._query_log = query_log
        self._settings = settings
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tilth-old-values", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Look no more; wait for the present look, though not for a catalog that does not answer."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def look(self) -> int:
        """Look through both logs once; return how many lines of the audit log have changed."""
        days = self._settings.literals_days
        if self._settings.is_hidden:
            # Lines of the time before it was set, too.
            before_ms = self._clock.now_ms() + 1
        elif days:
            before_ms = self._clock.now_ms() - int(days * _DAY_MS)
        else:
            return 0
        self._query_log.rewrite(before_ms, text=without_literals)
        return self._catalog.audit.rewrite(_without_values, before_ms=before_ms)

    def _run(self) -> None:
        while True:
            try:
                if changed := self.look():
                    _log.info("values_left_out", lines=changed)
            except TilthError as error:
                _log.warning("values_stay", reason=error)
            if self._clock.wait(self._is_over, LOOK_SECONDS):
                return


def _without_values(event: AuditEvent) -> AuditEvent:
    return replace(event, statement=without_literals(event.statement), outcome=without_details(event.outcome))
