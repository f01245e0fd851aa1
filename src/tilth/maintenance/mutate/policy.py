"""Choice of the parts that are rewritten next, and for which mutation (docs/policies/mutations.md). Pure.

Covers: the strict order of entries, batches, back-off of parts that fail, when an entry is through. Does not cover:
doing it (mutate/op.py), what a part needs (tilth.model.mutation.needs).
Always holds: only the oldest pending entry is worked on; a part that fails holds up no other; a part that fails again
and again is tried alone; every part that waits has its reason.

partition: unscheduled -> scheduled   every part that needs the entry is being rewritten
           scheduled   -> unscheduled a task was lost or failed
           scheduled   -> finished    no visible part needs the entry any more
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from tilth.base.hybrid import milliseconds
from tilth.maintenance.state import Failure
from tilth.maintenance.table.settings import MutateSettings
from tilth.model.mutation import Mutation, needs
from tilth.model.part import Part

#: The wait after the first failure; each one in a row doubles it.
FAILURE_BASE_MS = 1000
#: Gain of a new entry, and the age that adds 1 to it; the sum is at most 1.
GAIN_MIN = 0.1
GAIN_AGE_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MutateView:
    """A table at the time of choice. The reserved parts were copied first, then parts were read, then entries."""

    #: All visible parts, by partition and blocks.
    parts: Sequence[Part]
    pending: Sequence[Mutation]
    #: Names of parts that merges or mutations have reserved, and of those that mutations have.
    reserved: Collection[str]
    mutating: Collection[str]
    #: Tasks under way.
    running: int
    #: Workers among which the tasks are spread.
    workers: int = 1
    #: Failures of the oldest entry, by part.
    failures: Mapping[str, Failure]
    #: Parts of tasks that failed without naming the part.
    suspects: Collection[str]
    now_ms: int


class PartitionState(StrEnum):
    """Progress of the oldest entry in a partition."""

    UNSCHEDULED = "unscheduled"
    SCHEDULED = "scheduled"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class MutateSpec:
    """Parts to be rewritten together, by one task."""

    mutation: Mutation
    parts: tuple[str, ...]
    partitions: frozenset[str]
    size: int
    rows: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MutateRefusal:
    """Work of a mutation that is not done now, and why."""

    mutation: int
    #: Empty when it is not about one partition.
    partition: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MutateSelection:
    """The result of one observation."""

    #: The entry that is worked on; none is pending without it.
    head: Mutation | None
    specs: tuple[MutateSpec, ...]
    refusals: tuple[MutateRefusal, ...]
    #: Progress of the head by partition.
    partitions: Mapping[str, PartitionState]
    #: Parts that need the head.
    to_do: frozenset[str]
    #: Time of the first retry of a part that failed; 0: none waits.
    next_try_ms: int

    @property
    def is_finished(self) -> bool:
        return self.head is not None and all(state is PartitionState.FINISHED for state in self.partitions.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """Whose fault the failure of a task is."""

    #: Their count of failures goes up.
    failed: tuple[str, ...]
    #: Each is tried alone, at once, so that the one at fault is found.
    suspects: tuple[str, ...] = ()


def select_mutations(view: MutateView, settings: MutateSettings) -> MutateSelection:
    """Return all batches that may begin, in the order in which they do, and why the rest waits."""
    pending = sorted(view.pending, key=lambda entry: entry.commit_ts)
    if not pending:
        return MutateSelection(head=None, specs=(), refusals=(), partitions={}, to_do=frozenset(), next_try_ms=0)
    head = pending[0]
    todo = [part for part in view.parts if needs(part, head)]
    free = [part for part in todo if str(part.name) not in view.reserved]
    waiting = [part for part in free if _is_postponed(view, part)]
    ready = [part for part in free if not _is_postponed(view, part)]
    batches = list(_batches(view, ready, settings))
    refusals = [*_under_merge(view, head, todo), *_postponed(view, head, waiting)]
    if view.running + len(batches) > settings.running_max:
        reason = f"{len(batches)} rewrites wait, no more than {settings.running_max} run at once"
        refusals.append(MutateRefusal(mutation=head.id, partition="", reason=reason))
    for entry in pending[1:]:
        reason = f"mutation {entry.id} waits for {head.id}"
        refusals.append(MutateRefusal(mutation=entry.id, partition="", reason=reason))
    return MutateSelection(
        head=head,
        specs=tuple(_spec(head, batch) for batch in batches),
        refusals=tuple(refusals),
        partitions=_partition_states(view, todo),
        to_do=frozenset(str(part.name) for part in todo),
        next_try_ms=min((view.failures[str(part.name)].until_ms for part in waiting), default=0),
    )


def delay_ms(failures: int, *, longest_ms: int) -> int:
    """Milliseconds to wait after so many failures in a row (docs/policies/mutations.md#failures)."""
    # Bounded before it is shifted: any count may come.
    return min(FAILURE_BASE_MS << min(max(0, failures - 1), 40), longest_ms)


def failed_once_more(
    before: Failure | None, *, reason: str, now_ms: int, longest_ms: int, is_lasting: bool = False
) -> Failure:
    """Return the failure of a part whose rewrite failed again; `is_lasting`: waiting alone heals nothing."""
    count = 1 if before is None else before.count + 1
    until_ms = now_ms + delay_ms(count, longest_ms=longest_ms)
    return Failure(count=count, reason=reason, at_ms=now_ms, until_ms=until_ms, is_lasting=is_lasting)


def blame(parts: Sequence[str], culprits: Collection[str]) -> Blame:
    """Find the parts at fault for a task that failed with an error that names the culprits, or none."""
    named = tuple(part for part in parts if part in culprits)
    if named:
        return Blame(failed=named)
    if len(parts) == 1:
        return Blame(failed=tuple(parts))
    return Blame(failed=(), suspects=tuple(parts))


def mutation_gain(oldest: Mutation, *, now_ms: int) -> float:
    """Gain of an entry, which grows as it waits (docs/policies/scheduling.md#gains)."""
    age = max(0.0, (now_ms - milliseconds(oldest.commit_ts)) / 1000)
    return min(1.0, GAIN_MIN + age / GAIN_AGE_SECONDS)


def _batches(view: MutateView, ready: Sequence[Part], settings: MutateSettings) -> Iterator[list[Part]]:
    """Yield batches of parts that have never failed, then each suspect alone, then each part that has failed."""
    sound: list[Part] = []
    suspects: list[list[Part]] = []
    failed: list[list[Part]] = []
    for part in ready:
        if str(part.name) in view.failures:
            failed.append([part])
        elif str(part.name) in view.suspects:
            suspects.append([part])
        else:
            sound.append(part)
    # No worker gets a second part before each has one.
    fair = -(-len(sound) // max(1, view.workers))
    yield from _cut(sound, parts_max=min(fair, settings.parts_max), bytes_max=settings.bytes_max)
    yield from suspects
    yield from failed


def _cut(parts: Sequence[Part], *, parts_max: int, bytes_max: int) -> Iterator[list[Part]]:
    batch: list[Part] = []
    size = 0
    for part in parts:
        is_too_much = 0 < bytes_max < size + part.bytes
        if batch and (len(batch) >= parts_max or is_too_much):
            yield batch
            batch, size = [], 0
        batch.append(part)
        size += part.bytes
    if batch:
        yield batch


def _spec(head: Mutation, batch: Sequence[Part]) -> MutateSpec:
    partitions = frozenset(part.name.partition for part in batch)
    where = min(partitions) if len(partitions) == 1 else f"{len(partitions)} partitions"
    return MutateSpec(
        mutation=head,
        parts=tuple(str(part.name) for part in batch),
        partitions=partitions,
        size=sum(part.bytes for part in batch),
        rows=sum(part.rows for part in batch),
        reason=f"{len(batch)} parts of {where} need mutation {head.id}",
    )


def _under_merge(view: MutateView, head: Mutation, todo: Sequence[Part]) -> Iterator[MutateRefusal]:
    """Yield one line a partition, so that a burst of merges does not fill the decision log."""
    merging = [part for part in todo if str(part.name) in view.reserved and str(part.name) not in view.mutating]
    for partition, together in groupby(merging, key=lambda part: part.name.partition):
        first, *others = together
        more = f" and {len(others)} more of the partition" if others else ""
        is_are = "are" if others else "is"
        reason = f"part {first.name}{more} {is_are} under merge"
        yield MutateRefusal(mutation=head.id, partition=partition, reason=reason)


def _postponed(view: MutateView, head: Mutation, waiting: Sequence[Part]) -> Iterator[MutateRefusal]:
    for part in waiting:
        failure = view.failures[str(part.name)]
        seconds = -(-(failure.until_ms - view.now_ms) // 1000)
        times = "once" if failure.count == 1 else f"{failure.count} times"
        reason = f"part {part.name} failed {times}, next try in {seconds} s"
        yield MutateRefusal(mutation=head.id, partition=part.name.partition, reason=reason)


def _is_postponed(view: MutateView, part: Part) -> bool:
    failure = view.failures.get(str(part.name))
    return failure is not None and failure.until_ms > view.now_ms


def _partition_states(view: MutateView, todo: Sequence[Part]) -> dict[str, PartitionState]:
    states = {part.name.partition: PartitionState.FINISHED for part in view.parts}
    states |= {part.name.partition: PartitionState.SCHEDULED for part in todo}
    unscheduled = (part for part in todo if str(part.name) not in view.mutating)
    return states | {part.name.partition: PartitionState.UNSCHEDULED for part in unscheduled}
