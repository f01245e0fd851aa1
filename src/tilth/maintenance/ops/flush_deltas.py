"""FLUSH_DELTAS: which change segments become deltas of their parts. Pure. docs/policies/flush.md.

Covers: the partition, its change segments, what of them stays a change segment. Does not cover: the run (delta_op.py).
Always holds: of a part all changes up to a time are taken, with no hole, so that what is written applies where they
did. Changes of rows that are not flushed, and of parts that something works on, stay changes: they go on as one new
change segment.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilth.base.hybrid import milliseconds
from tilth.base.units import show_bytes
from tilth.maintenance.op import OpKind
from tilth.maintenance.ops.delta_look import PartitionDeltas
from tilth.maintenance.ops.delta_work import DeltaChoice, DeltaWork
from tilth.maintenance.policy.flush_scores import DeltaStore, best_delta_store, flush_gain
from tilth.maintenance.policy.settings import FlushSettings
from tilth.model.delta import Delta
from tilth.model.part import Part

#: Of change segments in one run, and how many: what the worker holds at once.
FLUSH_BYTES_MAX = 64 << 20
FLUSH_FILES_MAX = 2_000
#: A reader opens each of them, so from so many of one partition on their number is a reason too; so many count fully.
FILES_MIN = 32
FILES_FULL = 1_000


def choose_flush(
    partitions: Sequence[PartitionDeltas],
    *,
    busy: Collection[str],
    now_ms: int,
    settings: FlushSettings,
    used_percent: float = 0.0,
) -> DeltaChoice:
    """The work that is worth most, whatever its gain, and why there is none or why it waits.

    `busy`: names of parts that something works on; `used_percent` is that of memory under pressure, else 0.
    """
    found = [(each, _ready(each, busy)) for each in partitions]
    stores = [(each, delta) for each, changes in found for delta in changes]
    if not stores:
        waiting = sum(len(each.changes) for each in partitions)
        return DeltaChoice(about=f"{waiting} change segments wait for their parts" if waiting else "no change segments")
    # Like a log: what is kept for one change is kept for all younger ones too.
    order = sorted(range(len(stores)), key=lambda place: -stores[place][1].change_ts)
    replay = 0
    weighed: list[DeltaStore] = [DeltaStore(bytes=0, replay_bytes=0)] * len(stores)
    for place in order:
        replay += stores[place][1].bytes
        weighed[place] = DeltaStore(bytes=stores[place][1].bytes, replay_bytes=replay)
    best = best_delta_store(weighed, used_percent=used_percent)
    assert best is not None
    chosen = stores[best][0]
    oldest_ms = min(milliseconds(delta.change_ts) for _, delta in stores)
    sources = _taken(_ready(chosen, busy))
    elapsed_ms = max(0, now_ms - oldest_ms)
    ram = sum(delta.bytes for delta in sources)
    gain = max(flush_gain(ram, elapsed_ms, settings), _files_gain(len(sources)))
    parts, kept = _targets(chosen, sources, busy)
    waits = f"{len(stores)} change segments with {show_bytes(sum(delta.bytes for _, delta in stores))}"
    told = f"{waits}, the oldest {elapsed_ms / 1000:.0f} s old"
    if not gain:
        due_ms = oldest_ms + settings.threshold_secs * 1000 + 1
        return DeltaChoice(about=f"{told}; flush_threshold_secs={settings.threshold_secs}", due_ms=due_ms)
    work = DeltaWork(
        kind=OpKind.FLUSH_DELTAS,
        partition=chosen.partition,
        sources=tuple(sources),
        parts=tuple(parts),
        kept=tuple(kept),
        gain=gain,
        ram_bytes=ram,
        log_bytes=weighed[best].replay_bytes,
        reason=f"{len(sources)} of {told}",
    )
    return DeltaChoice(work=work)


def _ready(deltas: PartitionDeltas, busy: Collection[str]) -> list[Delta]:
    """Change segments, oldest first, without those at the beginning that change nothing but rows that stay theirs."""
    changes = deltas.changes
    for place, delta in enumerate(changes):
        if any(_can_take(deltas.parts.get(target.file), busy) for target in delta.targets):
            return changes[place:]
    return []


def _taken(changes: Sequence[Delta]) -> list[Delta]:
    """The oldest within the bounds, all of one commit or none."""
    taken: list[Delta] = []
    size = 0
    for delta in changes:
        is_new_commit = not taken or delta.change_ts > taken[-1].change_ts
        is_full = size + delta.bytes > FLUSH_BYTES_MAX or len(taken) >= FLUSH_FILES_MAX
        if taken and is_new_commit and is_full:
            break
        taken.append(delta)
        size += delta.bytes
    return taken


def _targets(deltas: PartitionDeltas, sources: Sequence[Delta], busy: Collection[str]) -> tuple[list[Part], list[Part]]:
    """What gets deltas of its own, and what stays with a change segment. What is hidden gets neither: readers of later
    times do not see it, those of earlier ones read what they read before, and no UNDROP brings back parts without all
    that was visible together with them.
    """
    files = dict.fromkeys(target.file for delta in sources for target in delta.targets)
    visible = [deltas.parts[file] for file in files if file in deltas.parts]
    parts = [part for part in visible if _can_take(part, busy)]
    return parts, [part for part in visible if not _can_take(part, busy)]


def _can_take(part: Part | None, busy: Collection[str]) -> bool:
    return part is not None and not part.is_segment and str(part.name) not in busy


def _files_gain(files: int) -> float:
    return min(1.0, files / FILES_FULL) if files >= FILES_MIN else 0.0
