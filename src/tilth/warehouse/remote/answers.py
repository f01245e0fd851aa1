"""Answers to calls that were made already: a call that is sent again because its answer was lost acts once.

Covers: one call at a time under each id, its answer for repeated calls. Does not cover: ids (channel.py).
Always holds: of calls with one id one acts, and all get what it gave, result or error; answers are bounded in number
and in bytes, and the oldest go first.

Tests: tests/unit/warehouse/remote/test_channel.py.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

from tilth.base.units import MIB

ANSWERS_MAX = 4096
BYTES_MAX = 64 * MIB


class Answers:
    """The newest answers, by the ids of their calls. For any thread."""

    def __init__(self, *, answers_max: int = ANSWERS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._answers_max = answers_max
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Future[bytes]] = OrderedDict()
        self._bytes = 0

    def once(self, call_id: str, act: Callable[[], bytes]) -> bytes:
        """Return what `act` returns or raises, called for the first call of this id alone."""
        with self._lock:
            known = self._known.get(call_id)
            if known is None:
                mine: Future[bytes] = Future()
                self._known[call_id] = mine
        if known is not None:
            return known.result()
        try:
            answer = act()
        except BaseException as error:
            mine.set_exception(error)
            self._keep(0)
            raise
        mine.set_result(answer)
        self._keep(len(answer))
        return answer

    def _keep(self, size: int) -> None:
        """Count a new answer, and forget the oldest ones that are too much."""
        with self._lock:
            self._bytes += size
            while len(self._known) > self._answers_max or self._bytes > self._bytes_max:
                oldest = next((each for each, answer in self._known.items() if answer.done()), None)
                if oldest is None or oldest == next(reversed(self._known)):
                    return
                gone = self._known.pop(oldest)
                self._bytes -= 0 if gone.exception() is not None else len(gone.result())
