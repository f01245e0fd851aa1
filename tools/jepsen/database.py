"""The database of several servers, its standby, and the blows on both.

Covers: kills, pauses, connections used up, failovers with and without the tail of the log. Does not cover: links of
servers to it (servers.py).
Always holds: where a standby without the tail has taken over, the history has the window in which acknowledged commits
may be lost.
"""

from __future__ import annotations

import math
import random
import threading
import time
from contextlib import suppress
from pathlib import Path

import psycopg

from tools.jepsen.harm import SHORT, Blow, Disk, HasPid, moved_to_disk, pauses
from tools.jepsen.history import History, Window
from tools.postgres import Postgres
from tools.postgres_pair import PostgresPair

#: So many connections beside those of the servers leave none.
CONNECTIONS_MAX = 200
DISK_MIB = 512
JOIN_SECONDS_MAX = 120.0


class Database:
    """A primary and its standby, which takes over now and then."""

    def __init__(self, folder: Path, rng: random.Random, history: History, *, is_synchronous: bool) -> None:
        self.pair = PostgresPair(folder, is_synchronous=is_synchronous)
        self._is_synchronous = is_synchronous
        self._rng = rng
        self._history = history
        self._used: list[psycopg.Connection[tuple[object, ...]]] = []
        #: The server that a blow has ended or stopped.
        self._struck: Postgres | None = None
        self._cut_at = 0.0
        self._copying: threading.Thread | None = None
        self._trouble: list[str] = []
        self._disk: Disk | None = None

    def start(self) -> None:
        """Start both; the data of the first primary is on a small disk where this machine allows it."""
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
        """Give the primary a standby again where a failover has taken it; it is copied in the background."""
        found, self._trouble = self._trouble, []
        is_copying = self._copying is not None and self._copying.is_alive()
        if self.pair.standby is None and not is_copying:
            self._copying = threading.Thread(target=self._add_standby, name="standby", daemon=True)
            self._copying.start()
        return found

    def _add_standby(self) -> None:
        try:
            self.pair.add_standby()
        # The primary was struck meanwhile: it is tried again.
        except Exception as error:
            self._trouble.append(f"the standby was not made: {type(error).__name__}: {error}")
            broken, self.pair.standby = self.pair.standby, None
            if broken is not None:
                broken.stop()

    def blows(self) -> list[Blow]:
        place = "database"
        paused = pauses(place, _Primary(self.pair))[0]
        found = [
            Blow(name="database killed", place=place, strike=self._kill, mend=self._start, seconds=SHORT),
            Blow(name=paused.name, place=place, strike=self._pause, mend=self._go_on, may_last=True),
            Blow(name="connections used up", place=place, strike=self._use_up, mend=self._give_back),
            Blow(name="database fails over", place=place, strike=self._fail_over, mend=lambda: None, seconds=SHORT),
        ]
        if self._disk is not None:
            found.append(Blow(name="database full", place=place, strike=self._fill, mend=self._free))
        if self._is_synchronous:
            cut, mend = self.pair.cut_replication, self.pair.mend_replication
            found.append(Blow(name="standby cut off", place=place, strike=cut, mend=mend, may_last=True))
        else:
            found.append(
                Blow(name="database fails over without its tail", place=place, strike=self._cut, mend=self._lose_tail)
            )
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
        """Give room, and start it again where it has ended for want of it, as an operator does."""
        if self._disk is not None and self.pair.primary is self._first:
            self._disk.free()
            if self._first.pid is None:
                self._first.start()

    def _has_standby(self) -> bool:
        return self.pair.standby is not None and not (self._copying is not None and self._copying.is_alive())

    def _fail_over(self) -> None:
        """Let a standby take over that has everything."""
        if not self._has_standby():
            return
        if not self._is_synchronous:
            # Nothing is written from here on, so that the standby has all that was acknowledged.
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
            # Before the first read can see what is missing.
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


class _Primary(HasPid):
    """The primary of now."""

    def __init__(self, pair: PostgresPair) -> None:
        self._pair = pair

    @property
    def pid(self) -> int | None:
        return self._pair.primary.pid
