"""Delivery of news to the rooms that act on them, on a thread of its own.

Covers: collecting changes, delivering them, retrying where a room has failed. Does not cover: the source of news
(member.py), what rooms do with them. Always holds: a slow room, as one that calls workers which do not answer, delays
neither heartbeats nor the watch on the other servers; news that a room has failed to process are kept.

Tests: tests/unit/membership/test_member_threads.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log

#: Time between two attempts of a delivery.
RETRY_SECONDS = 0.25
#: Longest time that `stop` waits for a slow room.
END_SECONDS_MAX = 5.0

_log = Log("membership")


class Delivery:
    """News that are to be delivered. Call `start` first and `stop` at the end."""

    def __init__(
        self, clock: Clock, *, on_change: Callable[[], None], on_news: Callable[[frozenset[str]], None]
    ) -> None:
        """`on_change` is called when hosts may have changed, `on_news` with the uuids of tables that have news."""
        self._clock = clock
        self._on_change = on_change
        self._on_news = on_news
        self._lock = threading.Lock()
        self._tables = frozenset[str]()
        self._has_changed = False
        self._is_due = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tilth-news", daemon=True)

    def add(self, tables: frozenset[str] = frozenset(), *, has_changed: bool = False) -> None:
        """Add news that are to be delivered."""
        if not tables and not has_changed:
            return
        with self._lock:
            self._tables |= tables
            self._has_changed |= has_changed
        self._is_due.set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; the wait for a slow room is bounded."""
        self._stopping.set()
        self._is_due.set()
        if self._thread.ident is not None:
            self._thread.join(END_SECONDS_MAX)

    def deliver(self) -> None:
        """Deliver the collected news; those that a room fails to process are kept. For the thread, and for tests."""
        with self._lock:
            tables, has_changed = self._tables, self._has_changed
            self._tables, self._has_changed = frozenset(), False
        try:
            if has_changed:
                self._on_change()
                has_changed = False
            if tables:
                self._on_news(tables)
        except BaseException:
            with self._lock:
                self._tables |= tables
                self._has_changed |= has_changed
            raise

    def _run(self) -> None:
        while True:
            self._clock.wait(self._is_due, RETRY_SECONDS)
            if self._stopping.is_set():
                return
            self._is_due.clear()
            try:
                self.deliver()
            except TilthError as error:
                _log.debug("news_not_processed", reason=error)
            # The outermost loop of a service: it goes on whatever happened.
            except BaseException as error:
                _log.error("news_failed", error=error)
