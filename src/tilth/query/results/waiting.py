"""Large results on their way to clients: what waits on the disk, and since when a client reads nothing.

Covers: measuring, the limits, which result gives way. Does not cover: the files (files.py), how a statement ends
(control/running.py). Always holds: results that together have more bytes on the disk than allowed lose the largest one
within a second; a result that its client does not read ends, and with it its lease.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tilth.base.cancel import Cancellation
from tilth.base.clock import Clock
from tilth.base.errors import ConflictError
from tilth.base.units import GIB, show_bytes

BYTES_MAX = 16 * GIB
READ_SECONDS_MAX = 600.0


class ResultNotReadError(ConflictError):
    """the client did not read the result in time"""

    code = "RESULT_NOT_READ"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultLimits:
    """Limits of what results may use. 0: no limit."""

    #: Size of all results together on disk.
    bytes_max: int = BYTES_MAX
    #: Time for which a client may read nothing.
    read_seconds_max: float = READ_SECONDS_MAX


@dataclass(slots=True, kw_only=True)
class OpenResult:
    """A result that is not read to its end."""

    query_id: str
    #: Measures the bytes that wait for the client.
    measure: Callable[[], int]
    cancellation: Cancellation
    #: Time since which rows wait for the client (monotonic clock); None: the client waits for rows.
    waiting_since: float | None = None
    #: Size on disk when it was last measured.
    bytes: int = 0


class OpenResults:
    """All large results of this server; from any thread."""

    def __init__(self, clock: Clock, limits: ResultLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._results: dict[str, OpenResult] = {}
        self._lock = threading.Lock()

    @property
    def bytes_max(self) -> int:
        """Size of all results together; 0: no limit."""
        return self._limits.bytes_max

    def open(self, query_id: str, measure: Callable[[], int], cancellation: Cancellation) -> OpenResult:
        result = OpenResult(query_id=query_id, measure=measure, cancellation=cancellation)
        with self._lock:
            self._results[query_id] = result
        return result

    def close(self, query_id: str) -> None:
        with self._lock:
            self._results.pop(query_id, None)

    def followed(self, result: OpenResult, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches; a client that got one and requests no other counts as one that does not read."""
        for batch in batches:
            result.waiting_since = self._clock.monotonic()
            yield batch
            result.waiting_since = None

    def state(self, query_id: str) -> str:
        """State of a query's large result; empty: it has none."""
        with self._lock:
            result = self._results.get(query_id)
        if result is None:
            return ""
        since, on_disk = result.waiting_since, f"{show_bytes(result.bytes)} of its rows on disk"
        if since is None:
            return f"its client waits for rows, {on_disk}"
        return f"its client has not read for {self._clock.monotonic() - since:.0f} s, {on_disk}"

    def check(self) -> None:
        """Measure, and cancel what is over a limit."""
        with self._lock:
            results = [each for each in self._results.values() if each.cancellation.error is None]
        now, limits = self._clock.monotonic(), self._limits
        for result in results:
            result.bytes = result.measure()
            waited = 0.0 if result.waiting_since is None else now - result.waiting_since
            if limits.read_seconds_max and waited > limits.read_seconds_max:
                hint = "read the rows as they come; the node's setting server.result-read-timeout is the limit"
                reason = f"its client has not read for {waited:.0f} s"
                result.cancellation.cancel(ResultNotReadError(query_id=result.query_id, reason=reason, hint=hint))
        self._make_room(results)

    def _make_room(self, results: list[OpenResult]) -> None:
        total = sum(each.bytes for each in results)
        for result in sorted(results, key=lambda each: each.bytes, reverse=True):
            if not self._limits.bytes_max or total <= self._limits.bytes_max:
                return
            reason = (
                f"results that wait for their clients have {show_bytes(total)} on disk, {show_bytes(result.bytes)} of "
                f"them this one, {show_bytes(self._limits.bytes_max)} are allowed"
            )
            hint = "read faster, or select fewer rows; the node's setting server.results-disk-max is the limit"
            result.cancellation.cancel(ResultNotReadError(query_id=result.query_id, reason=reason, hint=hint))
            total -= result.bytes


def bytes_in(folder: Path) -> int:
    """Return the bytes of the files in a folder; 0 where it is gone."""
    size = 0
    # Files go as they are read, and the folder with the last one.
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                size += entry.stat().st_size
    return size
