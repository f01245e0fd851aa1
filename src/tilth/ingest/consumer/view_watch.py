"""Reports of slow views while they run, so that users see the name of a slow view before its round ends.

Covers: when a report is due. Does not cover: sending it (task.py), what is shown (service/activity.py).
Always holds: a round whose views are fast reports nothing; a report that fails does not affect the round.

Tests: tests/unit/ingest/service/test_activity.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log

#: Time after which a view that still runs is reported.
SLOW_SECONDS = 2.0

_log = Log("ingest")


class ViewWatch:
    """Watch on the views of a consumer's rounds, which run one after the other. For the consumer's thread."""

    def __init__(self, clock: Clock, report: Callable[[str, float], None]) -> None:
        """`report` gets the view's name and the seconds that it has run; an empty name: the reported view has ended."""
        self._clock = clock
        self._report = report
        #: Set when the running view has ended.
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_reported = False

    def begin(self, view: str) -> None:
        """Note that the round begins this view; the view before it has ended."""
        self.end()
        self._over = over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(view, over), name="tilth-view-watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Note that the running view has ended; without one, do nothing."""
        self._over.set()
        if self._thread is not None:
            # A report that is being sent comes first; the wait is bounded, because the server may not answer.
            self._thread.join(SLOW_SECONDS)
            self._thread = None
        if self._is_reported:
            self._is_reported = False
            self._send("", 0.0)

    def _watch(self, view: str, over: threading.Event) -> None:
        if not self._clock.wait(over, SLOW_SECONDS):
            self._is_reported = True
            self._send(view, SLOW_SECONDS)

    def _send(self, view: str, seconds: float) -> None:
        try:
            self._report(view, seconds)
        except TilthError as error:
            _log.debug("view_not_reported", view=view, reason=error)
