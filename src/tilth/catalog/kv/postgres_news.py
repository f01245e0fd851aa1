"""News of commits to other servers, sent beside the commits.

Covers: collecting them, sending what has come together in one notification. Does not cover: who listens
(postgres_presence.py), which commit is news (records/keys.py).
Always holds: a commit never waits for its news. PostgreSQL sends a notification under a lock of all its databases,
which a transaction holds until its WAL is on the disk: in the commit it lets one commit after the other flush, here it
is a transaction that flushes nothing. News are hints: those of a process that dies here are found by reading again
(tilth.membership).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.catalog.kv.protocol import ALL_NEWS

SEPARATOR = ","
#: PostgreSQL allows 8,000 bytes.
CHARACTERS_MAX = 7000
#: Between two tries of a notification that failed.
AGAIN_SECONDS = 0.25
#: Longest wait at the end for what was not sent yet.
END_SECONDS_MAX = 2.0

_log = Log("catalog")


class NewsSender:
    """Sends on a thread of its own, which begins with the first news. Safe to use from several threads."""

    def __init__(self, clock: Clock, send: Callable[[str], None]) -> None:
        self._clock = clock
        self._send = send
        self._lock = threading.Lock()
        self._pending: set[str] = set()
        self._is_due = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, texts: Collection[str]) -> None:
        """Note what others are to hear."""
        if not texts:
            return
        with self._lock:
            self._pending.update(texts)
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="tilth-news-sender", daemon=True)
                self._thread.start()
        self._is_due.set()

    def close(self) -> None:
        """Send what is pending, if that is possible, and end."""
        self._stopping.set()
        self._is_due.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(END_SECONDS_MAX)

    def _run(self) -> None:
        while True:
            # What comes while one notification is sent goes with the next one.
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
