"""The stored offsets of one Kafka table, where they are not moved by a round: first ones, gaps, resets.

Covers: subscribing, finding first offsets once and storing them, noticing, recording and closing gaps, moving offsets
for a user. Does not cover: rounds (service/service.py), what is a gap (kafka/gaps.py). Always holds: facts from the
broker are committed before anybody acts on them, so that each is looked up only once; each commit requires the stored
offsets and gaps that it was computed from, and the lease of the Kafka table, which is acquired before they are read.
See also: docs/policies/consumers.md#gaps.

Tests: tests/unit/ingest/test_rival_hosts.py, tests/unit/ingest/offsets/test_reset.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import FencedError
from tilth.base.logs import Log
from tilth.catalog import AddGap, AddLedger, Catalog, OffsetsMovedError, ResolveGaps, SetOffsets, TableLeases, Update
from tilth.ingest.errors import BrokerUnavailableError
from tilth.ingest.kafka.broker import BrokerClient, Holds
from tilth.ingest.kafka.gaps import (
    CLOSED,
    DELETED,
    RECREATED,
    REPLACED,
    Closing,
    Findings,
    Observed,
    closing,
    find_gaps,
    gap_at,
    is_other_topic,
)
from tilth.ingest.kafka.metadata import PartitionEnd, Topics
from tilth.ingest.offsets.reset import (
    OffsetMark,
    OffsetReset,
    ToMark,
    ToOffsets,
    ToTime,
    check_offsets,
    kept,
    moved,
    stored_at,
)
from tilth.ingest.offsets.subscriptions import Subscriptions
from tilth.ingest.settings import KafkaConfig, OffsetStart
from tilth.model.lease import Fence
from tilth.model.offset import IngestGap, StoredOffset, TopicPartition
from tilth.model.table import KafkaDef, full_name

#: Interval between two checks with the broker whether a gap's log still is the one that was read.
RECHECK_MS = 30_000
_SKIPPED = "passed over: kafka_enable_skip_offsets_hole = 1"

_log = Log("ingest")


class Positions:
    """The offsets of one Kafka table."""

    def __init__(self, clock: Clock, catalog: Catalog, uuid: str, *, note: Callable[[str], None]) -> None:
        """`note` gets sentences for the user: where offsets came from, gaps that were found or closed."""
        self._clock = clock
        self._catalog = catalog
        self._uuid = uuid
        self._note = note
        self._subscriptions = Subscriptions(clock, catalog, uuid)
        self._leases = TableLeases(catalog.leases, server=lambda: catalog.server)
        self._is_released = False
        #: Fence of the lease, acquired before the offsets were read: commits computed from them use no later one.
        self._fence: Fence | None = None
        #: Held while offsets are found or moved: neither may overwrite what the other has just stored.
        self._lock = threading.Lock()
        #: Time of the last check whether the log of a gap holds its offset.
        self._checked_ms: dict[tuple[TopicPartition, StoredOffset], int] = {}

    def of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        return _offsets_at(partitions, self._catalog.offsets.stored(self._uuid))

    def _acquire(self) -> None:
        """Acquire the lease of the Kafka table, unless this server has it: from then on no other server moves the
        offsets. Raises LeaseHeldError while another live server has it, FencedError after `release`.
        """
        if self._is_released:
            raise FencedError("this server does not host the Kafka table any more", uuid=self._uuid)
        self._fence = self._leases.fence(self._uuid)

    def release(self) -> None:
        """Release the lease, so that another server can move the offsets; every later call raises FencedError."""
        with self._lock:
            self._is_released = True
            self._leases.release(self._uuid)

    def settle(self, kafka: KafkaDef, config: KafkaConfig, broker: BrokerClient, topics: Topics) -> None:
        """Subscribe to the topics; look up and store the offsets that are not stored yet.

        A partition that was added to a topic that is read already starts at its first message. Raises GroupInUseError
        while another Kafka table reads a topic for the group, and LeaseHeldError.
        """
        with self._lock:
            self._acquire()
            self._subscribe(kafka, config, topics)
            stored = self._catalog.offsets.stored(self._uuid)
            missing = [partition for partition in topics.positions if partition not in stored]
            if not missing:
                return
            known_topics = {partition.topic for partition in stored}
            is_late = config.start is OffsetStart.LATEST
            late = {partition for partition in missing if is_late and partition.topic not in known_topics}
            observed = _observe(broker, topics, missing)
            found = {
                partition: stored_at(
                    partition,
                    observed.ends[partition].stable if partition in late else observed.earliest[partition],
                    observed,
                )
                for partition in missing
            }
            # `before` is empty: none of these offsets was stored when the broker answered.
            self._apply(kafka, [SetOffsets(kafka_table=self._uuid, offsets=found, before={})])

    def check(
        self,
        kafka: KafkaDef,
        config: KafkaConfig,
        broker: BrokerClient,
        topics: Topics,
        *,
        reported_gaps: Collection[TopicPartition] = (),
    ) -> dict[TopicPartition, PartitionEnd]:
        """Compare what is stored with what the topics hold; record new gaps, and close those that were none. Return
        how far the topic partitions reach.

        `reported_gaps`: topic partitions where a consumer did not find its offset. Raises BrokerUnavailableError also
        for a leader that is older than the one that was read from; raises LeaseHeldError.
        """
        with self._lock:
            self._acquire()
            stored = self._catalog.offsets.stored(self._uuid)
            observed = _observe(broker, topics, [partition for partition in topics.positions if partition in stored])
            findings = self._find_gaps(stored, observed)
            if findings.gaps:
                # A gap stops a consumer until a user decides: a second observation must show it too.
                topics = replace(topics, ids=broker.topic_ids())
                observed = _observe(broker, topics, observed.ends)
                findings = self._find_gaps(stored, observed)
            gaps = [*findings.gaps, *self._find_replaced(broker, stored, reported_gaps, findings)]
            self._record(kafka, config, stored, gaps)
            if findings.anew or findings.vanished:
                self._begin_anew(kafka, stored, findings)
            self._close(kafka, broker, stored, observed)
            if findings.stale:
                raise _stale_leader(config, findings.stale[0])
            return dict(observed.ends)

    def open_gaps(self) -> frozenset[TopicPartition]:
        """The topic partitions that wait for a decision."""
        return frozenset(TopicPartition(gap.topic, gap.partition) for gap in self._open())

    def move(
        self, kafka: KafkaDef, config: KafkaConfig, broker: BrokerClient, reset: OffsetReset, topics: Topics
    ) -> dict[TopicPartition, int]:
        """Move the stored offsets and mark the gaps of these topic partitions as decided; return the offsets at
        which they go on. Raises ResetError, GroupInUseError, LeaseHeldError.
        """
        with self._lock:
            self._acquire()
            self._subscribe(kafka, config, topics)
            stored, known = self._catalog.offsets.stored(self._uuid), self._open()
            observed = _observe(broker, topics, topics.positions)
            wanted = self._new_offsets(kafka, config, broker, reset, observed, stored)
            decided = {partition.topic for partition in wanted}
            # Nobody can decide about a partition that the topic made anew does not have.
            gone = [
                partition
                for partition, each in stored.items()
                if partition.topic in decided
                and is_other_topic(each, topics.ids[partition.topic])
                and partition not in wanted
                and partition not in topics.positions
            ]
            line = moved(self._uuid, stored=stored, wanted=wanted, gone=gone)
            resolved = frozenset([*wanted, *gone])
            updates: list[Update] = [
                ResolveGaps(
                    kafka_table=self._uuid, resolution=_reset_text(reset), partitions=resolved, known=tuple(known)
                ),
                SetOffsets(
                    kafka_table=self._uuid, offsets=wanted, before=_offsets_at(resolved, stored), forgotten=tuple(gone)
                ),
                *([] if line is None else [AddLedger(entry=line)]),
            ]
            self._apply(kafka, updates)
            _log.info("offsets_moved", table=full_name(kafka), to=_reset_text(reset), partitions=len(wanted))
            return {partition: each.offset for partition, each in wanted.items()}

    def _subscribe(self, kafka: KafkaDef, config: KafkaConfig, topics: Topics) -> None:
        for note in self._subscriptions.settle(kafka, config, topics, apply=self._apply):
            self._note(note)

    def _apply(self, kafka: KafkaDef, updates: Sequence[Update]) -> None:
        """Commit under the lease that was acquired before the offsets were read.

        Raises FencedError when another server has acquired the lease since, also if this server has joined anew, and
        the errors of updates whose required state has changed.
        """
        assert self._fence is not None
        try:
            with self._catalog.transactions.open(f"offsets {full_name(kafka)}", fences=[self._fence]) as txn:
                txn.commit(updates)
        except FencedError:
            self._leases.lose(self._uuid)
            raise

    def _new_offsets(
        self,
        kafka: KafkaDef,
        config: KafkaConfig,
        broker: BrokerClient,
        reset: OffsetReset,
        observed: Observed,
        stored: Mapping[TopicPartition, StoredOffset],
    ) -> dict[TopicPartition, StoredOffset]:
        table = full_name(kafka)
        match reset:
            case ToTime(timestamp_ms=timestamp_ms):
                offsets: Mapping[TopicPartition, int] = broker.at_time(list(observed.ends), timestamp_ms)
            case ToOffsets(offsets=wanted):
                offsets = check_offsets(wanted, earliest=observed.earliest, ends=observed.ends, table=table)
            case ToMark(mark=OffsetMark.STORED):
                return kept(stored, gaps=self.open_gaps(), observed=observed, table=table)
            case ToMark(mark=mark):
                is_end = mark is OffsetMark.END
                if mark is OffsetMark.INVALID:
                    is_end = config.start is OffsetStart.LATEST
                ends = {partition: end.stable for partition, end in observed.ends.items()}
                offsets = ends if is_end else observed.earliest
            case _:
                assert_never(reset)
        return {partition: stored_at(partition, offset, observed) for partition, offset in offsets.items()}

    def _find_gaps(self, stored: Mapping[TopicPartition, StoredOffset], observed: Observed) -> Findings:
        return find_gaps(self._uuid, stored=stored, observed=observed, now_ms=self._clock.now_ms())

    def _find_replaced(
        self,
        broker: BrokerClient,
        stored: Mapping[TopicPartition, StoredOffset],
        reported_gaps: Collection[TopicPartition],
        findings: Findings,
    ) -> list[IngestGap]:
        """Gaps that cannot be seen from the ends of the log: it was truncated, and has grown again."""
        known = {TopicPartition(gap.topic, gap.partition) for gap in (*findings.gaps, *self._open())}
        gaps = []
        for partition in sorted(set(reported_gaps) - known - set(findings.stale)):
            each = stored.get(partition)
            verdict, end = (Holds.UNKNOWN, -1) if each is None else broker.holds(partition, each)
            if each is not None and verdict is Holds.NO:
                now_ms = self._clock.now_ms()
                gaps.append(gap_at(self._uuid, partition, each, end=end, reason=REPLACED, now_ms=now_ms))
        return gaps

    def _record(
        self,
        kafka: KafkaDef,
        config: KafkaConfig,
        stored: Mapping[TopicPartition, StoredOffset],
        found: Sequence[IngestGap],
    ) -> None:
        """Commit the gaps that are not recorded yet. `stored`: the offsets that they were computed from."""
        known = {(gap.topic, gap.partition, gap.start) for gap in self._open()}
        for gap in found:
            if (gap.topic, gap.partition, gap.start) in known:
                continue
            _log.warning("gap", table=full_name(kafka), topic=gap.topic, partition=gap.partition, start=gap.start)
            begin = stored[TopicPartition(gap.topic, gap.partition)]
            updates: list[Update] = [AddGap(gap=gap, stored=begin)]
            if config.skip_holes and gap.reason == DELETED:
                updates = self._skip_updates(gap, begin)
            try:
                self._apply(kafka, updates)
            except OffsetsMovedError as error:
                # A round has read these messages since the offset was read: there is no gap.
                _log.info("no_gap", table=full_name(kafka), reason=error)
                continue
            self._note(f"gap in {gap.topic}/{gap.partition} from {gap.start}: {gap.reason}")

    def _skip_updates(self, gap: IngestGap, begin: StoredOffset) -> list[Update]:
        """Return the updates that pass over a gap. `begin`: the stored offset, where the gap begins."""
        partition = TopicPartition(gap.topic, gap.partition)
        before, wanted = {partition: begin}, {partition: msgspec.structs.replace(begin, offset=gap.end)}
        line = moved(self._uuid, stored=before, wanted=wanted)
        assert line is not None, "a gap is not empty"
        return [
            # It comes first: the offset must be where the gap begins.
            AddGap(gap=msgspec.structs.replace(gap, resolution=_SKIPPED), stored=begin),
            SetOffsets(kafka_table=self._uuid, offsets=wanted, before=before),
            AddLedger(entry=line),
        ]

    def _begin_anew(self, kafka: KafkaDef, stored: Mapping[TopicPartition, StoredOffset], findings: Findings) -> None:
        """A topic made anew of which nothing had been read is the topic from now on."""
        line = moved(self._uuid, stored=stored, wanted=findings.anew, gone=findings.vanished)
        partitions = frozenset((*findings.anew, *findings.vanished))
        updates: list[Update] = [
            # A gap of the former topic ends with it: there is nothing left to decide.
            ResolveGaps(kafka_table=self._uuid, resolution=RECREATED, partitions=partitions, known=tuple(self._open())),
            SetOffsets(
                kafka_table=self._uuid,
                offsets=findings.anew,
                forgotten=tuple(findings.vanished),
                before=_offsets_at(partitions, stored),
            ),
            *([] if line is None else [AddLedger(entry=line)]),
        ]
        self._apply(kafka, updates)

    def _close(
        self,
        kafka: KafkaDef,
        broker: BrokerClient,
        stored: Mapping[TopicPartition, StoredOffset],
        observed: Observed,
    ) -> None:
        """Close gaps that turned out to be none."""
        known = self._open()
        for gap in known:
            partition = TopicPartition(gap.topic, gap.partition)
            verdict = closing(gap, stored.get(partition), observed)
            if verdict is Closing.IF_LOG_HOLDS and self._holds(broker, partition, stored[partition]):
                verdict = Closing.CLOSES
            if verdict is Closing.CLOSES:
                partitions = frozenset({partition})
                update = ResolveGaps(
                    kafka_table=self._uuid,
                    resolution=CLOSED,
                    partitions=partitions,
                    known=tuple(known),
                    before=_offsets_at(partitions, stored),
                )
                self._apply(kafka, [update])
                self._note(f"gap in {gap.topic}/{gap.partition} from {gap.start} {CLOSED}")
                _log.info("gap_closed", table=full_name(kafka), topic=gap.topic, partition=gap.partition)

    def _holds(self, broker: BrokerClient, partition: TopicPartition, stored: StoredOffset) -> bool:
        """Return whether the log is known to be the one of the stored offset. Checked rarely: it may take seconds."""
        now_ms = self._clock.now_ms()
        if now_ms - self._checked_ms.get((partition, stored), -RECHECK_MS) < RECHECK_MS:
            return False
        self._checked_ms = {key: at_ms for key, at_ms in self._checked_ms.items() if now_ms - at_ms < RECHECK_MS}
        self._checked_ms[partition, stored] = now_ms
        return broker.holds(partition, stored)[0] is Holds.YES

    def _open(self) -> list[IngestGap]:
        return [gap for gap in self._catalog.offsets.gaps(self._uuid) if not gap.resolution]


def _offsets_at(
    partitions: Collection[TopicPartition], stored: Mapping[TopicPartition, StoredOffset]
) -> dict[TopicPartition, StoredOffset]:
    return {each: stored[each] for each in partitions if each in stored}


def _observe(broker: BrokerClient, topics: Topics, partitions: Collection[TopicPartition]) -> Observed:
    return Observed(ids=topics.ids, earliest=broker.earliest(partitions), ends=broker.ends(partitions))


def _stale_leader(config: KafkaConfig, partition: TopicPartition) -> BrokerUnavailableError:
    return BrokerUnavailableError(
        "the leader that answers is older than the one that was read from",
        table=config.table,
        brokers=config.brokers,
        topic=partition.topic,
        partition=partition.partition,
        hint="it passes when the brokers agree on the leader; if they were restored from a backup, "
        "SYSTEM RESET CONSUME OFFSET decides where to go on",
    )


def _reset_text(reset: OffsetReset) -> str:
    """The user's decision in words."""
    match reset:
        case ToMark(mark=mark):
            return f"reset to {mark.name.lower()}"
        case ToTime(timestamp_ms=timestamp_ms):
            return f"reset to timestamp {timestamp_ms}"
        case ToOffsets(offsets=offsets):
            named: Mapping[TopicPartition, int] = offsets
            return "reset to " + ", ".join(f"{p.topic}/{p.partition}@{offset}" for p, offset in sorted(named.items()))
    assert_never(reset)
