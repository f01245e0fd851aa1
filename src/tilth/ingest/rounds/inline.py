"""Small rounds run inline, on the thread of their consumer, without a job of Spark.

Covers: rounds whose views pick columns or have kernels, how many run at once, a round that turns out to be large. Does
not cover: which rounds are small (policy/ranges.py), the Spark jobs (spark.py), the work itself (source.py).
Always holds: a round that runs inline writes the files that a job's only task would write, under the same names; it is
given up before the first one where its messages are larger than expected.

Tests: tests/integration/ingest/test_small_rounds.py.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from tilth.base.clock import Clock
from tilth.base.errors import UnavailableError
from tilth.base.full import full_error
from tilth.ingest.kafka.fetch import Fetched
from tilth.ingest.policy.ranges import SMALL_BYTES_MAX
from tilth.ingest.rounds.round import Fetch, RoundFacts, RoundJob
from tilth.ingest.rounds.source import SourceTask
from tilth.ingest.settings import KafkaConfig
from tilth.model.offset import OffsetRange
from tilth.warehouse import run_inline

#: Bytes of messages beyond which a round is not small after all.
_BYTES_MAX = 4 * SMALL_BYTES_MAX
#: Rounds of this process that run at once: all of them share the interpreter with the server's requests.
_ROUNDS_MAX = max(2, os.cpu_count() or 1)

#: Surrounds work besides Spark, with words for it.
Waiting = Callable[[str], AbstractContextManager[None]]

_running = threading.BoundedSemaphore(_ROUNDS_MAX)


class _LargeError(Exception):
    """The messages are larger than expected."""


def run_small(job: RoundJob, waiting: Waiting) -> RoundFacts | None:
    """Run a round on this thread; None: it is for Spark, and nothing was written. Raises as its tasks do."""
    fetch = job.fetch_inline
    if fetch is None or job.computed or len(job.splits) != 1 or not _running.acquire(blocking=False):
        return None
    try:
        bounded = _bounded(fetch, may_end=lambda: not task.has_written)
        task = SourceTask(replace(job, fetch_inline=bounded), 0, attempt=0)
        with waiting("reading and writing a small round"):
            return run_inline(lambda: _run(task))
    finally:
        _running.release()


def _run(task: SourceTask) -> RoundFacts | None:
    with disk_errors():
        try:
            return task.run()
        except _LargeError:
            return None


def _bounded(fetch: Fetch, *, may_end: Callable[[], bool]) -> Fetch:
    """Return the function with a bound: it raises _LargeError behind so many bytes, if it may end."""

    def bounded(
        clock: Clock, config: KafkaConfig, ranges: Iterable[OffsetRange], *, has_headers: bool
    ) -> Iterator[Fetched]:
        size = 0
        for fetched in fetch(clock, config, ranges, has_headers=has_headers):
            size += fetched.messages.values.size
            if size > _BYTES_MAX and may_end():
                raise _LargeError
            yield fetched

    return bounded


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turn errors of the system into ours, which have a hint."""
    try:
        yield
    except OSError as error:
        full = full_error(error, folder=os.path.dirname(error.filename or "") or os.sep)
        hint = "check the disk's free space and its permissions; the round is tried again by itself"
        why = error.strerror or str(error)
        raise full or UnavailableError.coded(
            "ROUND_NOT_WRITTEN",
            "the files of a round cannot be written",
            why=why,
            path=error.filename or "-",
            hint=hint,
        ) from error
