"""The client of the crash suite: writes all the time, says again what was not answered, looks after each restart."""

from __future__ import annotations

import json
import threading

import httpx
import msgspec

import tilth
from tests.simulation.crash_model import FIRST_WRITE_KEY, Writes
from tilth.base.errors import ErrorKind, TilthError
from tilth.client.errors import ServerError
from tilth.client.http import Connection
from tilth.model.wire import ErrorAnswer

#: After a restart, so that something happens while Spark is cold.
WRITES_BEFORE_LOOK = 5
PAUSE_SECONDS = 0.15
AWAY_SECONDS = 0.1
STOP_SECONDS_MAX = 60.0
#: Kinds of errors after which the client sends the same statement again.
_AGAIN = (ErrorKind.RETRY, ErrorKind.UNAVAILABLE, ErrorKind.UNKNOWN_OUTCOME)

Shown = tuple[list[tuple[int, int]], list[tuple[int, int]]]


class WritingClient:
    """One thread that says one statement after the other, whether a node is there or not."""

    def __init__(self, url: str) -> None:
        self.writes = Writes()
        #: Restarts after which it has found its rows as they should be.
        self.looks = 0
        #: INSERTs that were in already when they were said again.
        self.repeated = 0
        self._connection = tilth.connect(url, timeout_seconds=120)
        self._http = httpx.Client(base_url=url, timeout=120, trust_env=False)
        self._failure: Exception | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crash-client", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the last statement was answered."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS_MAX)
        assert not self._thread.is_alive(), "the client waits for an answer"
        self._http.close()
        self._connection.close()

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    def raise_if_failed(self) -> None:
        """Raises what it was refused with, or what was not as it should be."""
        if self._failure is not None:
            raise AssertionError(f"at write {self.writes.next.number}") from self._failure

    def _run(self) -> None:
        try:
            self._write_on()
        except Exception as error:  # raised by who asks
            self._failure = error

    def _write_on(self) -> None:
        left = WRITES_BEFORE_LOOK
        while not self._is_over.is_set():
            try:
                if not left:
                    self._look()
                self._say()
            except ServerError as error:
                if error.kind not in _AGAIN:
                    raise
                self._is_over.wait(AWAY_SECONDS)
            except (TilthError, httpx.TransportError):
                # The node is dead: what comes next is another one.
                left = WRITES_BEFORE_LOOK
                self._is_over.wait(AWAY_SECONDS)
            else:
                self.writes.answered()
                left -= 1
                self._is_over.wait(PAUSE_SECONDS)

    def _say(self) -> None:
        write = self.writes.next
        if write.statement:
            self._connection.sql(write.statement)
            return
        answer = self._http.post(
            f"/v1/insert/crash/{write.table}",
            content="\n".join(map(json.dumps, write.body)),
            params={"insertion_label": write.label},
            headers={"content-type": "application/x-ndjson"},
        )
        if not answer.is_success:
            raise ServerError(msgspec.json.decode(answer.content, type=ErrorAnswer))
        self.repeated += "already inserted" in answer.headers["X-Tilth-Summary"]

    def _look(self) -> None:
        shown, expected = shown_writes(self._connection), self.writes.shown()
        assert shown == expected, f"shown {shown}, should be {expected}"
        self.looks += 1


def shown_writes(connection: Connection) -> Shown:
    """What the client's tables show."""
    rows = connection.sql("SELECT id, n FROM crash.b ORDER BY id").rows
    keys = connection.sql(f"SELECT key, last FROM crash.m WHERE key >= {FIRST_WRITE_KEY} ORDER BY key").rows
    return [(id, n) for id, n in rows], [(key, last) for key, last in keys]
