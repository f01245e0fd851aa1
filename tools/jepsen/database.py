"""The database of several servers, its standby, and the blows on both.

Covers: kills, pauses, connections used up, failovers with and without the end of the log. Does not cover: links of
servers to it (servers.py).
Always holds: where a standby without the end of the log has taken over, the history has the window in which
acknowledged commits may be lost.
"""

from __future__ import annotations

import math
import random
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import psycopg

from tools.jepsen.harm import SHORT, Blow, Disk, moved_to_disk
from tools.jepsen.history import History, Window
from tools.postgres import Postgres
from tools.postgres_pair import PostgresPair

#: Connections that are opened to leave none for the servers: more than the database allows.
CONNECTIONS_MAX = 200
DISK_MIB = 512
JOIN_SECONDS_MAX = 120.0


class Database:
    """A primary and a standby that takes over now and then."""

    def __init__(self, folder: Path, rng: random.Random, history: History, *, is_synchronous: bool) -> None:
        self.pair = PostgresPair(folder, is_synchronous=is_synchronous)
        self._is_synchronous = is_synchronous
        self._rng = rng
        self._history = history
        self._used: list[psycopg.Connection[tuple[object, ...]]] = []
        #: Server that a blow has killed or paused.
        self._struck: Postgres | None = None
        self._cut_at = 0.0
        self._copying: threading.Thread | None = None
        self._trouble: list[str] = []
        self._disk: Disk | None = None

    def start(self) -> None:
        """Start both, the first primary with its data on a small disk where this process may mount one."""
        self.pair.start(with_standby=False)
        self._first = self.pair.primary
        self._first.kill()
        self._disk = moved_to_disk(self._first.data, mib=DISK_MIB)
        self._first.start()
        self.pair.add_standby()

    def stop(self) -> None:
        self._give_back()
        if self._copying is not None:
            self._copying.join(JOIN_SECONDS_MAX)
        if self._disk is not None:
            self._disk.free()
        self.pair.stop()
        if self._disk is not None:
            self._disk.close()

    def recover(self) -> list[str]:
        """Begin to make a new standby in the background where a failover has used up the former one."""
        found, self._trouble = self._trouble, []
        is_copying = self._copying is not None and self._copying.is_alive()
        if self.pair.standby is None and not is_copying:
            self._copying = threading.Thread(target=self._add_standby, name="standby", daemon=True)
            self._copying.start()
        return found

    def _add_standby(self) -> None:
        try:
            self.pair.add_standby()
        # A blow has struck the primary meanwhile; the next `recover` tries again.
        except Exception as error:
            self._trouble.append(f"the standby was not made: {type(error).__name__}: {error}")
            broken, self.pair.standby = self.pair.standby, None
            if broken is not None:
                broken.stop()

    def blows(self) -> list[Blow]:
        blow = partial(Blow, target="database")
        found = [
            blow(name="database killed", strike=self._kill, mend=self._start, seconds=SHORT),
            blow(name="database paused", strike=self._pause, mend=self._go_on, may_last=True),
            blow(name="connections used up", strike=self._use_up, mend=self._give_back),
            blow(name="database fails over", strike=self._fail_over, mend=lambda: None, seconds=SHORT),
        ]
        if self._disk is not None:
            found.append(blow(name="database full", strike=self._fill, mend=self._free))
        if self._is_synchronous:
            cut, mend = self.pair.cut_replication, self.pair.mend_replication
            found.append(blow(name="standby cut off", strike=cut, mend=mend, may_last=True))
        else:
            found.append(blow(name="database fails over without its tail", strike=self._cut, mend=self._lose_tail))
        return found

    def _kill(self) -> None:
        self._struck = self.pair.primary
        self._struck.kill()

    def _start(self) -> None:
        if self._struck is not None:
            self._struck.start()

    def _pause(self) -> None:
        self._struck = self.pair.primary
        self._struck.pause()

    def _go_on(self) -> None:
        if self._struck is not None:
            self._struck.go_on()

    def _fill(self) -> None:
        if self._disk is not None and self.pair.primary is self._first:
            self._disk.fill()

    def _free(self) -> None:
        """Free the disk and restart the server if the full disk has ended it, as an operator does."""
        if self._disk is not None and self.pair.primary is self._first:
            self._disk.free()
            if self._first.pid is None:
                self._first.start()

    def _has_standby(self) -> bool:
        return self.pair.standby is not None and not (self._copying is not None and self._copying.is_alive())

    def _fail_over(self) -> None:
        """Promote a standby that has the whole log."""
        if not self._has_standby():
            return
        if not self._is_synchronous:
            # With the link cut nothing is written any more, so the standby gets all that was acknowledged.
            self.pair.front.cut()
            with suppress(RuntimeError, psycopg.Error):
                self.pair.wait_for_standby()
        self.pair.fail_over()

    def _cut(self) -> None:
        self._cut_at = time.monotonic() if self._has_standby() else 0.0
        if self._cut_at:
            self.pair.cut_replication()

    def _lose_tail(self) -> None:
        if self._cut_at:
            # The window is there before the first read can miss a commit.
            self._history.windows.append(Window(self._cut_at, math.inf))
            self.pair.fail_over()
            self._history.windows[-1] = Window(self._cut_at, time.monotonic())
            self._cut_at = 0.0

    def _use_up(self) -> None:
        with suppress(psycopg.OperationalError):
            for _ in range(CONNECTIONS_MAX):
                self._used.append(self.pair.connect())

    def _give_back(self) -> None:
        for connection in self._used:
            with suppress(psycopg.Error):
                connection.close()
        self._used.clear()
