"""Offsets that went into one table twice, by whichever Kafka tables. Pure.

Covers: finding where the ledgers of different Kafka tables overlap. Does not cover: one ledger by itself (ledgers.py).
Always holds: only what is proved is named: the same topic by its id, the same partition, and the same table that both
rounds wrote to. What a user had read again, by moving the offsets back, is a decision and no fault; neither are dead
letters that were replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tilth.ingest import GONE, MOVED
from tilth.model.offset import REPLAYED, LedgerEntry, TopicPartition

#: Topic id and partition.
_TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, order=True)
class Twice:
    """Offsets that two Kafka tables have read into the same table."""

    topic: str
    partition: int
    start: int
    end: int
    #: The Kafka tables.
    readers: tuple[str, str]

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}: {self.start} to {self.end} by {self.readers[0]} and {self.readers[1]}"


@dataclass(frozen=True, slots=True, order=True)
class _Read:
    """Offsets that one Kafka table has read, and not because a user had them read again."""

    start: int
    end: int
    reader: str
    topic: str


def read_twice(ledgers: Mapping[str, Iterable[LedgerEntry]], table: str, *, emptied_ts: int = 0) -> list[Twice]:
    """Return the overlaps of rounds that wrote to the table; `ledgers`: by the Kafka table's name, in any order.

    `emptied_ts`: hybrid time of the last TRUNCATE, before which rounds do not count.
    """
    reads: dict[_TopicPartition, list[_Read]] = {}
    for reader, entries in ledgers.items():
        for partition, read in _undecided(reader, entries, table, emptied_ts):
            reads.setdefault(partition, []).append(read)
    return sorted(twice for (_, partition), found in reads.items() for twice in _overlaps(partition, found))


def _undecided(
    reader: str, entries: Iterable[LedgerEntry], table: str, emptied_ts: int
) -> Iterator[tuple[_TopicPartition, _Read]]:
    rounds = (each for each in entries if each.consumer != REPLAYED)
    ordered = sorted(rounds, key=lambda each: each.commit_ts)
    #: Ends of what was to be read again, and of what was read.
    decided: dict[TopicPartition, int] = {}
    reached: dict[TopicPartition, int] = {}
    for entry in ordered:
        for each in entry.ranges:
            position = TopicPartition(each.topic, each.partition)
            if entry.consumer == MOVED:
                end = max(reached.get(position, each.start), each.start)
                decided[position] = 0 if each.end == GONE else max(decided.get(position, 0), end)
                continue
            reached[position] = each.end
            start = max(each.start, decided.get(position, 0))
            if table in entry.tables and start < each.end and entry.commit_ts > emptied_ts:
                yield (each.topic_id, each.partition), _Read(start, each.end, reader, each.topic)


def _overlaps(partition: int, reads: Iterable[_Read]) -> Iterator[Twice]:
    """Yield the offsets that two readers have read. Reads are visited by their starts, each compared with those that
    reach beyond its start.
    """
    open_reads: list[_Read] = []
    for read in sorted(_joined(reads)):
        open_reads = [other for other in open_reads if other.end > read.start]
        for other in open_reads:
            if other.reader != read.reader:
                end = min(read.end, other.end)
                readers = (other.reader, read.reader) if other.reader < read.reader else (read.reader, other.reader)
                yield Twice(read.topic, partition, read.start, end, readers)
        open_reads.append(read)


def _joined(reads: Iterable[_Read]) -> list[_Read]:
    joined: list[_Read] = []
    for read in sorted(reads, key=lambda each: (each.reader, each.start)):
        last = joined[-1] if joined else None
        if last is not None and last.reader == read.reader and last.end == read.start:
            joined[-1] = replace(last, end=read.end)
        else:
            joined.append(read)
    return joined
