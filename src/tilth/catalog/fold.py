"""Updates folded over a state: what a commit writes, or why it must not. Pure.

Covers: the meaning of each update of a Kafka table, and the way to the others (fold_table.py). Does not cover: loading
the state and writing the changes (commit.py). Always holds: the same updates over the same state give the same
changes, so a commit that met a conflict is folded again.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import assert_never

import msgspec

from tilth.base.errors import InvalidInputError
from tilth.catalog.changes import Changes, CommitState, CommitTimes, KafkaChange
from tilth.catalog.errors import OffsetsMovedError
from tilth.catalog.fold_state import raised
from tilth.catalog.fold_table import TableFold
from tilth.catalog.updates import (
    AddGap,
    AddLedger,
    AdvanceOffsets,
    ClearOffsets,
    KafkaUpdate,
    ResolveGaps,
    SetOffsets,
    TableUpdate,
    Update,
)
from tilth.model.offset import TopicPartition
from tilth.model.part import Part, PartEvent
from tilth.model.table import full_name


def fold(state: CommitState, updates: Iterable[Update], times: CommitTimes) -> Changes:
    """What the updates make of the state, one after the other; raises the error that refuses the commit."""
    work = _Fold(state, times)
    for update in updates:
        work.apply(update)
    return work.changes()


class _Fold:
    """A fold half-way. Lives for one call of `fold`."""

    def __init__(self, state: CommitState, times: CommitTimes) -> None:
        self._state = state
        self._times = times
        self._events: list[PartEvent] = []
        self._parts: list[tuple[str, Part]] = []
        blocks = count(times.first_block)
        self._tables = {
            uuid: TableFold(uuid, table, times, blocks=blocks, events=self._events, parts=self._parts)
            for uuid, table in state.tables.items()
        }
        self._kafka = {
            uuid: KafkaChange(version=raised(kafka.version, times.commit_ts), offsets=dict(kafka.offsets))
            for uuid, kafka in state.kafka.items()
        }

    def changes(self) -> Changes:
        return Changes(
            commit_ts=self._times.commit_ts,
            tables={uuid: table.change for uuid, table in self._tables.items()},
            kafka=self._kafka,
            events=self._events,
            parts=self._parts,
        )

    def apply(self, update: Update) -> None:
        if isinstance(update, TableUpdate):
            self._tables[update.table].apply(update)
        else:
            self._apply_to_kafka(update)

    def _apply_to_kafka(self, update: KafkaUpdate) -> None:
        match update:
            case AdvanceOffsets():
                self._advance(update)
            case SetOffsets(kafka_table=kafka_table, offsets=offsets):
                self._kafka[kafka_table].offsets.update(offsets)
            case ClearOffsets(kafka_table=kafka_table):
                self._kafka[kafka_table].offsets.clear()
            case AddLedger(entry=entry):
                stamped = msgspec.structs.replace(entry, txn=self._times.txn, commit_ts=self._times.commit_ts)
                self._kafka[entry.kafka_table].ledger.append(stamped)
            case AddGap(gap=gap):
                self._kafka[gap.kafka_table].gaps.append(gap)
            case ResolveGaps(kafka_table=kafka_table, resolution=resolution):
                self._resolve(kafka_table, resolution)
            case _:
                assert_never(update)

    def _advance(self, update: AdvanceOffsets) -> None:
        change = self._kafka[update.kafka_table]
        for each in update.ranges:
            if not 0 <= each.start <= each.end:
                raise InvalidInputError("not a range of offsets", range=each)
            position = TopicPartition(each.topic, each.partition)
            stored = change.offsets.get(position, each.start)
            if stored != each.start:
                raise OffsetsMovedError(
                    kafka_table=full_name(self._state.kafka[update.kafka_table].definition),
                    topic=each.topic,
                    partition=each.partition,
                    started_from=each.start,
                    stored=stored,
                    hint="drop this round and start from the stored offset",
                )
            change.offsets[position] = each.end

    def _resolve(self, kafka_table: str, resolution: str) -> None:
        change = self._kafka[kafka_table]
        fresh = [gap for gap in change.gaps if not gap.resolution]
        change.gaps = [gap for gap in change.gaps if gap.resolution]
        for gap in (*self._state.kafka[kafka_table].open_gaps, *fresh):
            change.gaps.append(msgspec.structs.replace(gap, resolution=resolution))
