"""Workers for tasks that stay, as consumers: by their mode, and which of them move. Pure.

Covers: the three modes, the limit above which tasks move. Does not cover: which workers may get tasks at all
(state.py). See also: docs/policies/tasks.md#consumers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import assert_never

from tilth.model.task import ScheduleMode

#: A task that is placed by hash has been with its worker for so long before it moves.
HASH_ASSIGNED_MS_MIN = 60_000
#: A worker that was gone less than this ago gets consumers only if no other worker can have them.
REPLACED_MS = 10_000
#: Between two moves, so that those that moved are counted where they are.
MOVE_PAUSE_MS = 15_000


def best_worker(mode: ScheduleMode, *, key: str, task_id: str, residents: Mapping[str, int]) -> tuple[str, str]:
    """Return the worker for a task, and why. `residents`: the number of resident tasks of each worker that can run it.

    By hash, as by chance, each worker has a number for the key and the greatest wins: where workers come and go, only
    the tasks of these move.
    """
    match mode:
        case ScheduleMode.LEAST_CONSUMERS:
            worker = min(residents, key=lambda name: (residents[name], name))
            return worker, f"{worker} has {residents[worker]} consumers, no worker has fewer"
        case ScheduleMode.HASH:
            worker = max(residents, key=lambda name: _number(key, name))
            return worker, f"{worker} is the consumer's by hash, of {len(residents)} workers"
        case ScheduleMode.RANDOM:
            worker = max(residents, key=lambda name: _number(task_id, name))
            return worker, f"{worker} by chance, of {len(residents)} workers"
    assert_never(mode)


def load_limit(average: float) -> int:
    """Return the number of tasks above which a worker has too many."""
    return math.ceil(average) + max(1, math.floor(0.2 * average))


def too_many(residents: Mapping[str, int]) -> dict[str, int]:
    """Return the workers that have too many tasks, and how many of them move.

    Where a worker has none, as one that has just joined, whoever has more than its share has too many.
    """
    if len(residents) < 2:
        return {}
    average = sum(residents.values()) / len(residents)
    share = math.ceil(average)
    limit = load_limit(average) if min(residents.values()) else share
    return {worker: count - share for worker, count in residents.items() if count > limit}


def misplaced(key: str, worker: str, workers: Sequence[str], *, assigned_ms: int) -> bool:
    """True if a task placed by hash belongs to another worker, and has been here for long enough."""
    if assigned_ms < HASH_ASSIGNED_MS_MIN or not workers:
        return False
    return max(workers, key=lambda name: _number(key, name)) != worker


def _number(key: str, worker: str) -> bytes:
    return blake2b(f"{key}\0{worker}".encode(), digest_size=8).digest()
