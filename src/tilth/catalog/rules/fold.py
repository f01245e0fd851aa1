"""Updates folded over a state: what a commit writes, or why it must not. Pure.

Covers: the meaning of each update of a Kafka table and of its subscriptions, and the way to the others (fold_table.py).
Does not cover: loading the state and writing the changes (commit/commit.py). Always holds: the same updates over the
same state give the same changes, so a commit that met a conflict is folded again.

Tests: tests/unit/catalog/commit/test_transactions.py, tests/property/test_catalog_lives.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import assert_never

import msgspec

from tilth.base.errors import InvalidInputError
from tilth.catalog.errors import OffsetsMovedError, SubscriptionMovedError
from tilth.catalog.rules.changes import Changes, CommitState, CommitTimes, KafkaChange
from tilth.catalog.rules.fold_state import raised
from tilth.catalog.rules.fold_table import TableFold
from tilth.catalog.rules.updates import (
    AddGap,
    AddLedger,
    AdvanceOffsets,
    KafkaUpdate,
    Release,
    ResolveGaps,
    SetOffsets,
    Subscribe,
    TableUpdate,
    Unsubscribe,
    Update,
)
from tilth.model.offset import REPLAYED, IngestGap, LedgerEntry, StoredOffset, Subscription, TopicPartition
from tilth.model.part import Part, PartEvent
from tilth.model.table import full_name


def fold(state: CommitState, updates: Iterable[Update], times: CommitTimes) -> Changes:
    """Apply the updates to the state, one after the other, and return the changes; raises the error that refuses the
    commit.
    """
    folding = _Fold(state, times)
    for update in updates:
        folding.apply(update)
    return folding.changes()


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
        self._subscriptions = dict(state.subscriptions)

    def changes(self) -> Changes:
        return Changes(
            commit_ts=self._times.commit_ts,
            tables={uuid: table.change for uuid, table in self._tables.items()},
            kafka=self._kafka,
            subscriptions=self._subscriptions,
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
            case SetOffsets():
                self._set(update)
            case Subscribe():
                self._subscribe(update)
            case Release(subscription=subscription, targets=targets):
                self._check_subscription(subscription, subscription)
                offsets = self._kafka[subscription.kafka_table].offsets
                self._subscriptions[subscription.key] = released(subscription, offsets, targets)
            case Unsubscribe(subscription=subscription):
                self._check_subscription(subscription, subscription)
                self._subscriptions[subscription.key] = None
            case AddLedger(entry=entry):
                assert not self._kafka[entry.kafka_table].ledger, "a commit is one line of the ledger"
                self._kafka[entry.kafka_table].ledger.append(self._stamp(entry))
            case AddGap(gap=gap, stored=stored):
                self._check_stored(gap.kafka_table, {TopicPartition(gap.topic, gap.partition): stored})
                self._kafka[gap.kafka_table].gaps.append(gap)
            case ResolveGaps():
                self._resolve(update)
            case _:
                assert_never(update)

    def _advance(self, update: AdvanceOffsets) -> None:
        change = self._kafka[update.kafka_table]
        for each in update.ranges:
            if not 0 <= each.start <= each.end:
                raise InvalidInputError("not a range of offsets", range=each)
            self._check_stored(update.kafka_table, {each.topic_partition: each.stored})
            change.offsets[each.topic_partition] = StoredOffset(each.end, each.topic_id, each.end_epoch)

    def _check_stored(self, kafka_table: str, wanted: Mapping[TopicPartition, StoredOffset | None]) -> None:
        """Raises OffsetsMovedError where the stored offset differs from the one that was read; None: there is none."""
        offsets = self._kafka[kafka_table].offsets
        for topic_partition, seen in wanted.items():
            stored = offsets.get(topic_partition)
            if stored != seen:
                raise OffsetsMovedError(
                    kafka_table=full_name(self._state.kafka[kafka_table].definition),
                    topic=topic_partition.topic,
                    partition=topic_partition.partition,
                    started_from=_shown(seen),
                    stored=_shown(stored),
                    hint="drop what was computed and start from the stored offset",
                )

    def _set(self, update: SetOffsets) -> None:
        offsets = self._kafka[update.kafka_table].offsets
        moved = {*update.offsets, *update.forgotten, *update.before}
        self._check_stored(
            update.kafka_table, {topic_partition: update.before.get(topic_partition) for topic_partition in moved}
        )
        for topic_partition, stored in update.offsets.items():
            if stored.offset < 0:
                raise InvalidInputError("not an offset", topic_partition=topic_partition, offset=stored.offset)
            offsets[topic_partition] = stored
        for topic_partition in update.forgotten:
            offsets.pop(topic_partition, None)

    def _subscribe(self, update: Subscribe) -> None:
        new, before = update.subscription, update.before
        self._check_subscription(new, before)
        if before is not None and before.released is None and before.kafka_table != new.kafka_table:
            raise SubscriptionMovedError(
                "another Kafka table has subscribed", topic=new.topic, group=new.group, kafka_table=before.name
            )
        self._subscriptions[new.key] = msgspec.structs.replace(new, released=None)
        if before is not None and before.released is not None:
            offsets = self._kafka[new.kafka_table].offsets
            kept = {TopicPartition(new.topic, partition): stored for partition, stored in before.released}
            own = [each for each, stored in offsets.items() if is_on(new, each, stored)]
            self._check_stored(new.kafka_table, {each: update.offsets.get(each) for each in {*own, *kept}})
            for topic_partition in own:
                del offsets[topic_partition]
            offsets.update(kept)

    def _check_subscription(self, wanted: Subscription, before: Subscription | None) -> None:
        if self._subscriptions[wanted.key] != before:
            raise SubscriptionMovedError(topic=wanted.topic, group=wanted.group, hint="read the subscription again")

    def _stamp(self, entry: LedgerEntry) -> LedgerEntry:
        # Dead letters do not know which topic of that name they came from.
        is_read = entry.consumer != REPLAYED
        offsets = self._kafka[entry.kafka_table].offsets if is_read else {}
        ranges = []
        for each in entry.ranges:
            stored = offsets.get(TopicPartition(each.topic, each.partition))
            topic_id = each.topic_id or ("" if stored is None else stored.topic_id)
            ranges.append(msgspec.structs.replace(each, topic_id=topic_id))
        return msgspec.structs.replace(
            entry, txn=self._times.txn, commit_ts=self._times.commit_ts, ranges=tuple(ranges)
        )

    def _resolve(self, update: ResolveGaps) -> None:
        def is_meant(gap: IngestGap) -> bool:
            return not gap.resolution and TopicPartition(gap.topic, gap.partition) in update.partitions

        self._check_stored(update.kafka_table, update.before)
        change = self._kafka[update.kafka_table]
        meant = [gap for gap in (*self._state.kafka[update.kafka_table].open_gaps, *change.gaps) if is_meant(gap)]
        if set(meant) != set(filter(is_meant, update.known)):
            raise OffsetsMovedError(
                "the gaps of the Kafka table have changed meanwhile",
                kafka_table=full_name(self._state.kafka[update.kafka_table].definition),
                open=", ".join(f"{gap.topic}/{gap.partition} from {gap.start}" for gap in meant) or "none",
                hint="read the gaps again, and decide about those that are open",
            )
        change.gaps = [gap for gap in change.gaps if not is_meant(gap)]
        change.gaps += [msgspec.structs.replace(gap, resolution=update.resolution) for gap in meant]


def _shown(stored: StoredOffset | None) -> str:
    """Describe all compared fields of a stored offset."""
    if stored is None:
        return "none"
    return f"{stored.offset} (topic {stored.topic_id}, leader epoch {stored.epoch})"


def released(
    subscription: Subscription, offsets: Mapping[TopicPartition, StoredOffset], targets: Iterable[str]
) -> Subscription:
    """Return the subscription with the offsets of its topic among those of its Kafka table: where the group stands.

    `targets`: uuids of the tables that the Kafka table has written to.
    """
    kept = tuple(
        (topic_partition.partition, stored)
        for topic_partition, stored in sorted(offsets.items())
        if is_on(subscription, topic_partition, stored)
    )
    everything = tuple(sorted({*subscription.targets, *targets}))
    return msgspec.structs.replace(subscription, released=kept, targets=everything)


def is_on(subscription: Subscription, topic_partition: TopicPartition, stored: StoredOffset) -> bool:
    """True if the offset is one of the subscription's topic, and not of another one that had its name."""
    return topic_partition.topic == subscription.topic and stored.topic_id == subscription.topic_id
