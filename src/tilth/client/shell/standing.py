"""The standing of a statement under way: rows, bytes, the part that is done, seconds left. Pure.

Covers: what rows of `system.processes`, `system.merges` and `system.mutations` say of it. Does not cover: reading and
showing them (progress.py).
Always holds: the part that is done never goes back; seconds left are said only when enough is done to say so.

Formulas: a query has done the mean of its share of rows and of its share of Spark tasks; merges and mutations have done
their share of bytes and of parts. What is left takes as long as before, for each of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

#: A share above this is not believed while the statement runs: more stages may follow.
_SHARE_MAX = 0.99
#: Below these nothing is said of the seconds left.
_SHARE_MIN = 0.03
_SECONDS_MIN = 1.0

#: A line of a system table, by the names of its columns.
Line = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Standing of one statement."""

    #: State, in the server's words.
    state: str = ""
    rows: int | None = None
    total_rows: int | None = None
    bytes: int | None = None
    #: 0 to 1; None: not known.
    done: float | None = None
    seconds_left: float | None = None


@dataclass(slots=True)
class Work:
    """Follows one statement from sample to sample."""

    #: Merges by their task: bytes, and the part that is done.
    _merges: dict[str, tuple[int, float]] = field(default_factory=dict)
    _done: float = 0.0

    def of_process(self, line: Line) -> Standing:
        """Standing by a line of `system.processes`."""
        rows, total = _count(line, "read_rows"), _count(line, "total_rows_approx")
        tasks_done, tasks = _count(line, "tasks_done"), _count(line, "tasks_total")
        shares = []
        if rows is not None and total:
            shares.append(min(1.0, rows / total))
        if tasks_done is not None and tasks:
            shares.append(tasks_done / tasks)
        standing = Standing(
            state=str(line.get("state") or ""), rows=rows, total_rows=total, bytes=_count(line, "read_bytes")
        )
        return self._timed(standing, sum(shares) / len(shares) if shares else None, _number(line, "elapsed"))

    def of_merges(self, lines: Sequence[Line], elapsed: float) -> Standing:
        """Standing of an OPTIMIZE by the lines of its table; a merge that is no longer there is done."""
        running = {str(line.get("task")): line for line in lines if not line.get("is_mutation")}
        for task, line in running.items():
            self._merges[task] = (_count(line, "input_bytes") or 0, _number(line, "progress"))
        for task in self._merges.keys() - running.keys():
            self._merges[task] = (self._merges[task][0], 1.0)
        total = sum(size for size, _ in self._merges.values())
        finished = sum(size * share for size, share in self._merges.values())
        ended = len(self._merges) - len(running)
        state = f"{len(running)} of {len(self._merges)} merges under way" if self._merges else "waiting for merges"
        if self._merges and not running:
            state = f"{ended} merges done"
        standing = Standing(state=state, bytes=int(finished) if total else None)
        return self._timed(standing, finished / total if total else None, elapsed)

    def of_mutations(self, lines: Sequence[Line], elapsed: float) -> Standing:
        """Standing of an ALTER by the unfinished mutations of its table: all before it must end, too."""
        to_do = sum(_count(line, "parts_to_do") or 0 for line in lines)
        done = sum(_count(line, "parts_done") or 0 for line in lines)
        reason = next((str(line["state_reason"]) for line in lines if line.get("state_reason")), "")
        state = (
            f"{done:,} of {done + to_do:,} parts rewritten" if done + to_do else reason or "waiting for the mutation"
        )
        return self._timed(Standing(state=state), done / (done + to_do) if done + to_do else None, elapsed)

    def _timed(self, standing: Standing, share: float | None, elapsed: float) -> Standing:
        if share is None and not self._done:
            return standing
        self._done = max(self._done, min(share or 0.0, _SHARE_MAX))
        left = None
        if self._done >= _SHARE_MIN and elapsed >= _SECONDS_MIN:
            left = elapsed * (1 - self._done) / self._done
        return replace(standing, done=self._done, seconds_left=left)


def _count(line: Line, name: str) -> int | None:
    found = line.get(name)
    return int(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def _number(line: Line, name: str) -> float:
    found = line.get(name)
    return float(found) if isinstance(found, int | float) else 0.0
