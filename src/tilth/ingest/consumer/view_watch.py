"""Reports of the view that a round has been in for long, so that a slow one has a name before the round ends.

Covers: when a report is due. Does not cover: sending it (task.py), what is shown (service/activity.py).
Always holds: a round whose views are quick reports nothing; a report that fails changes nothing of the round.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log

#: A view that takes longer is reported while it runs.
SLOW_SECONDS = 2.0

_log = Log("ingest")


class ViewWatch:
    """The views of a consumer's rounds, one after the other. For the consumer's thread."""

    def __init__(self, clock: Clock, report: Callable[[str, float], None]) -> None:
        """`report` gets the view and for how long it has run; no view: none of those reported before runs any more."""
        self._clock = clock
        self._report = report
        #: Of the view that runs.
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_reported = False

    def begin(self, view: str) -> None:
        """The round begins with this view; the one before is over."""
        self.end()
        self._over = over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(view, over), name="tilth-view-watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The view is over, or none has begun."""
        self._over.set()
        if self._thread is not None:
            # A report that is under way comes first; the round does not wait for a server that does not answer.
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
