"""Notifications of commits to other servers, sent apart from the commits.

Covers: collecting news, sending all that are pending in one notification. Does not cover: listening
(postgres_liveness.py), which commits are news (records/keys.py).
Always holds: a commit never waits for its notification. PostgreSQL sends one under a lock of the whole cluster, which a
transaction holds until its WAL is on the disk: NOTIFY within commits would let only one of them flush at a time; here
it is a transaction that flushes nothing. News are hints: other servers find those of a process that has died by
reading again (tilth.membership).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.catalog.kv.protocol import ALL_NEWS

SEPARATOR = ","
#: Longest payload; PostgreSQL allows 8,000 bytes.
CHARACTERS_MAX = 7000
#: Time between two tries of a notification that failed.
AGAIN_SECONDS = 0.25
#: Longest wait of `close` for news that are still pending.
END_SECONDS_MAX = 2.0

_log = Log("catalog")


class NewsSender:
    """Sends news on a thread of its own, which starts with the first ones. Safe to use from several threads."""

    def __init__(self, clock: Clock, send: Callable[[str], None]) -> None:
        self._clock = clock
        self._send = send
        self._lock = threading.Lock()
        self._pending: set[str] = set()
        self._is_due = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, texts: Collection[str]) -> None:
        """Add news that other servers are to receive."""
        if not texts:
            return
        with self._lock:
            self._pending.update(texts)
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="tilth-news-sender", daemon=True)
                self._thread.start()
        self._is_due.set()

    def close(self) -> None:
        """Send the pending news if possible, and end the thread."""
        self._stopping.set()
        self._is_due.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(END_SECONDS_MAX)

    def _run(self) -> None:
        while True:
            # News that are added while a notification is sent go with the next one.
            self._is_due.wait()
            self._is_due.clear()
            is_sent = self._send_pending()
            if self._stopping.is_set():
                return
            if not is_sent:
                self._clock.wait(self._stopping, AGAIN_SECONDS)
                self._is_due.set()

    def _send_pending(self) -> bool:
        with self._lock:
            pending, self._pending = self._pending, set()
        if not pending:
            return True
        try:
            self._send(_joined(pending))
        except TilthError as error:
            _log.debug("news_not_sent", reason=error)
        # The outermost loop of a service: it goes on whatever happened.
        except Exception as error:
            _log.error("news_failed", error=error)
        else:
            return True
        with self._lock:
            self._pending |= pending
        return False


def _joined(texts: set[str]) -> str:
    text = SEPARATOR.join(sorted(texts))
    return text if len(text) <= CHARACTERS_MAX else ALL_NEWS
