"""Replay of a table's real history by another policy.

Covers: inserts and drops of the part log in the order of time, the merges that a policy chooses meanwhile, the sums of
both histories. Does not cover: mutations, which are the same for any policy.
Always holds: a merge takes no time and loses no byte; parts that were there before the first event are not known; the
work is bounded by the number of questions to the policy.

Tests: tests/unit/maintenance/merge/test_explain_merge.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import TypeAlias

from tilth.maintenance.merge.policy.candidates import CandidatePart, MergeSelection, MergeSpec
from tilth.maintenance.table.partition_counts import PartitionStats
from tilth.model.part import PartEvent, PartName, parse_part_name

#: Events that are replayed, the newest.
EVENTS_MAX = 10_000
#: Calls of the policy; where there are more seconds with events, some of them are skipped.
QUESTIONS_MAX = 1_000
#: Maximum cost of all calls together, spread evenly over the events: one for each part, more if there are many.
COST_MAX = 500_000
COSTLY_PARTS = 1_000
#: Rounds of merges after each call.
ROUNDS_MAX = 8
#: Merges that are listed one by one.
MERGES_MAX = 200
#: Seconds without events after which the policy is called again: parts become worth merging by age, too.
QUIET_SECONDS = (10, 60, 600, 3_600)

#: All visible parts, statistics by partition, and the time in seconds.
SelectMerges: TypeAlias = Callable[[Sequence[CandidatePart], Mapping[str, PartitionStats], float], MergeSelection]
#: The smallest and the largest key of a new part.
KeysOf: TypeAlias = Callable[[PartEvent], tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedMerge:
    #: Milliseconds since 1970.
    at_ms: int
    spec: MergeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySums:
    """Sums of a history."""

    merges: int = 0
    #: Rows and bytes of inserts, and bytes that merges wrote.
    inserted_rows: int = 0
    inserted_bytes: int = 0
    merged_bytes: int = 0
    #: Visible parts in the end, and the most that one partition ever had.
    parts: int = 0
    parts_max: int = 0

    @property
    def write_amplification(self) -> float:
        """Bytes written for each byte inserted; 1 without merges, 0 without inserts."""
        return (self.inserted_bytes + self.merged_bytes) / self.inserted_bytes if self.inserted_bytes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Both histories, the newest merges of the replayed one, and how many events they stand on."""

    merges: tuple[ReplayedMerge, ...]
    replayed: HistorySums
    real: HistorySums
    events: int


def replay(events: Sequence[PartEvent], *, select: SelectMerges, keys_of: KeysOf) -> Replay:
    """Replay the newest events of one table, given in the order of time."""
    newest = list(events[-EVENTS_MAX:])
    history = _History(select)
    seconds = [(second, list(together)) for second, together in groupby(newest, key=lambda event: event.at_ms // 1000)]
    stride = 1 + len(seconds) // QUESTIONS_MAX
    ends = [next_second for (_, _), (next_second, _) in pairwise(seconds)] + [None]
    applied = 0
    for number, ((second, together), end) in enumerate(zip(seconds, ends, strict=True)):
        for event in together:
            history.apply(event, keys_of)
        applied += len(together)
        times = [second] if number % stride == 0 or end is None else []
        times += [second + quiet for quiet in QUIET_SECONDS if end is not None and second + quiet < end]
        for time in times:
            if end is None or history.cost * len(newest) <= COST_MAX * applied:
                history.merge(time)
    return Replay(
        merges=tuple(history.merges[-MERGES_MAX:]), replayed=history.sums(), real=real_sums(newest), events=len(newest)
    )


def real_sums(events: Iterable[PartEvent]) -> HistorySums:
    """Return the sums of what really happened, by the counts that the events carry."""
    sums = HistorySums()
    counts: dict[str, int] = {}
    for event in events:
        partition = parse_part_name(event.part).partition
        before = counts.get(partition, 0)
        match event.event:
            case "new":
                counts[partition] = before + 1
                sums = _with_insert(sums, event)
            case "merge":
                # Parts older than the first event are not known.
                counts[partition] = max(0, before - event.sources) + (event.rows > 0)
                sums = replace(sums, merges=sums.merges + 1, merged_bytes=sums.merged_bytes + event.bytes)
            case "hide":
                counts[partition] = max(0, before - event.sources)
            case _:
                continue
        sums = replace(sums, parts_max=max(sums.parts_max, counts[partition]))
    return replace(sums, parts=sum(counts.values()))


@dataclass(slots=True)
class _Kept:
    name: PartName
    part: CandidatePart
    #: Seconds since 1970.
    since: float


@dataclass(slots=True)
class _History:
    """The parts as they would be now."""

    select: SelectMerges
    merges: list[ReplayedMerge] = field(default_factory=list)
    parts: dict[str, dict[str, _Kept]] = field(default_factory=dict)
    stats: dict[str, PartitionStats] = field(default_factory=dict)
    counted: HistorySums = field(default_factory=HistorySums)
    #: Total cost of all calls.
    cost: int = 0

    def apply(self, event: PartEvent, keys_of: KeysOf) -> None:
        name = parse_part_name(event.part)
        members = self.parts.setdefault(name.partition, {})
        if event.event == "new":
            low, high = keys_of(event)
            now = event.at_ms / 1000
            part = CandidatePart(
                name=event.part,
                partition=name.partition,
                size=event.bytes,
                rows=event.rows,
                age=0.0,
                columns_commit_time=1,
                low=low,
                high=high,
            )
            members[event.part] = _Kept(name, part, now)
            self.counted = _with_insert(self.counted, event)
            self.stats[name.partition] = self._stats(name.partition).with_insert(now=now, parts=1, size=event.bytes)
            self.counted = replace(self.counted, parts_max=max(self.counted.parts_max, len(members)))
        elif event.event == "hide":
            for each in [kept for kept in members.values() if kept.name.max_block <= name.max_block]:
                del members[str(each.name)]

    def merge(self, second: int) -> None:
        """Call the policy, and do at once what it chooses, until it chooses nothing."""
        for _ in range(ROUNDS_MAX):
            there = [
                replace(kept.part, age=max(0.0, second - kept.since))
                for _, members in sorted(self.parts.items())
                if len(members) > 1
                for kept in sorted(members.values(), key=lambda kept: kept.name)
            ]
            self.cost += 1 + len(there) + len(there) * len(there) // COSTLY_PARTS
            specs = [spec for spec in self.select(there, self.stats, float(second)).specs if not spec.is_lone]
            if not specs:
                return
            for spec in specs:
                self._replace(spec, second)

    def sums(self) -> HistorySums:
        return replace(self.counted, parts=sum(len(members) for members in self.parts.values()))

    def _replace(self, spec: MergeSpec, second: int) -> None:
        members = self.parts[spec.partition]
        sources = [members.pop(name) for name in spec.parts]
        number = self.counted.merges + 1
        name = PartName(
            spec.partition,
            min(source.name.min_block for source in sources),
            max(source.name.max_block for source in sources),
            max(source.name.level for source in sources) + 1,
            number,
        )
        part = CandidatePart(
            name=str(name),
            partition=spec.partition,
            size=spec.size,
            rows=spec.rows,
            age=0.0,
            columns_commit_time=1,
            low=min(source.part.low for source in sources),
            high=max(source.part.high for source in sources),
        )
        members[str(name)] = _Kept(name, part, float(second))
        self.stats[spec.partition] = self._stats(spec.partition).with_merge(
            now=float(second), parts=len(sources), size=spec.size
        )
        self.counted = replace(self.counted, merges=number, merged_bytes=self.counted.merged_bytes + spec.size)
        self.merges.append(ReplayedMerge(at_ms=second * 1000, spec=spec))

    def _stats(self, partition: str) -> PartitionStats:
        return self.stats.get(partition, PartitionStats(partition=partition))


def _with_insert(sums: HistorySums, event: PartEvent) -> HistorySums:
    return replace(
        sums,
        inserted_rows=sums.inserted_rows + event.rows,
        inserted_bytes=sums.inserted_bytes + event.bytes,
    )
