"""Progress of a statement that runs: rows, bytes, the share that is done, seconds left. Pure.

Covers: computing it from rows of `system.processes`, `system.merges` and `system.mutations`. Does not cover: reading
and showing them (progress_bar.py).
Always holds: the share that is done never decreases; seconds left are estimated only once enough is done.

Formulas: for a query the mean of its share of rows and its share of Spark tasks, for merges their share of bytes, for
mutations their share of parts. The rest is expected to run at the speed of what is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

#: Greatest share that is shown while the statement runs: more stages may follow.
_SHARE_MAX = 0.99
#: Below these there is no estimate of the seconds left.
_SHARE_MIN = 0.03
_SECONDS_MIN = 1.0

#: A line of a system table, by the names of its columns.
Line = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementProgress:
    """Progress of one statement."""

    #: State, in the server's words.
    state: str = ""
    rows: int | None = None
    total_rows: int | None = None
    bytes: int | None = None
    #: Share that is done, from 0 to 1; None: not known.
    done: float | None = None
    seconds_left: float | None = None


@dataclass(slots=True)
class ProgressEstimator:
    """Estimates the progress of one statement from sample to sample."""

    #: Merges by their task: bytes, and the share that is done.
    _merges: dict[str, tuple[int, float]] = field(default_factory=dict)
    _done: float = 0.0

    def of_process(self, line: Line) -> StatementProgress:
        """Return the progress of a query by its line of `system.processes`."""
        rows, total = _count(line, "read_rows"), _count(line, "total_rows_approx")
        tasks_done, tasks = _count(line, "tasks_done"), _count(line, "tasks_total")
        shares = []
        if rows is not None and total:
            shares.append(min(1.0, rows / total))
        if tasks_done is not None and tasks:
            shares.append(tasks_done / tasks)
        progress = StatementProgress(
            state=str(line.get("state") or ""), rows=rows, total_rows=total, bytes=_count(line, "read_bytes")
        )
        return self._timed(progress, sum(shares) / len(shares) if shares else None, _number(line, "elapsed"))

    def of_merges(self, lines: Sequence[Line], elapsed: float) -> StatementProgress:
        """Return the progress of an OPTIMIZE by the merges of its table; a merge that is no longer listed is done."""
        merges = [line for line in lines if not line.get("is_mutation")]
        running = {str(line.get("task")): line for line in merges if not line.get("is_rebase")}
        for task, line in running.items():
            self._merges[task] = (_count(line, "input_bytes") or 0, _number(line, "progress"))
        for task in self._merges.keys() - running.keys():
            self._merges[task] = (self._merges[task][0], 1.0)
        total = sum(size for size, _ in self._merges.values())
        finished = sum(size * share for size, share in self._merges.values())
        count = len(self._merges)
        state = f"{len(running)} of {count} merges under way" if running else f"{count} merges done"
        if len(merges) > len(running):
            state += ", changes are brought over"
        if not count:
            state = "waiting for merges"
        progress = StatementProgress(state=state, bytes=int(finished) if total else None)
        return self._timed(progress, finished / total if total else None, elapsed)

    def of_mutations(self, lines: Sequence[Line], elapsed: float) -> StatementProgress:
        """Return the progress of an ALTER by the unfinished mutations of its table: all before it must end, too."""
        to_do = sum(_count(line, "parts_to_do") or 0 for line in lines)
        done = sum(_count(line, "parts_done") or 0 for line in lines)
        reason = next((str(line["state_reason"]) for line in lines if line.get("state_reason")), "")
        state = (
            f"{done:,} of {done + to_do:,} parts rewritten" if done + to_do else reason or "waiting for the mutation"
        )
        return self._timed(StatementProgress(state=state), done / (done + to_do) if done + to_do else None, elapsed)

    def _timed(self, progress: StatementProgress, share: float | None, elapsed: float) -> StatementProgress:
        if share is None and not self._done:
            return progress
        self._done = max(self._done, min(share or 0.0, _SHARE_MAX))
        left = None
        if self._done >= _SHARE_MIN and elapsed >= _SECONDS_MIN:
            left = elapsed * (1 - self._done) / self._done
        return replace(progress, done=self._done, seconds_left=left)


def _count(line: Line, name: str) -> int | None:
    found = line.get(name)
    return int(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def _number(line: Line, name: str) -> float:
    found = line.get(name)
    return float(found) if isinstance(found, int | float) else 0.0
