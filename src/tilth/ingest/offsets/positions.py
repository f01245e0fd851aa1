"""The stored offsets of one Kafka table, where they are not moved by a round: first ones, gaps, resets.

Covers: subscribing, finding first offsets once and storing them, noticing, recording and closing gaps, moving offsets
for a user. Does not cover: rounds (service/service.py), what is a gap (kafka/gaps.py). Always holds: facts from the
broker are committed before anybody acts on them, so that each is looked up only once; each commit requires the stored
offsets and gaps that it was computed from, and the lease of the Kafka table, which is acquired before they are read.
See also: docs/policies/consumers.md#gaps.
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
from tilth.ingest.kafka.reach import PartitionEnd, Topics
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

#: Between two times that a broker is asked whether a gap's log still is the one that was read.
ASK_AGAIN_MS = 30_000
_SKIPPED = "passed over: kafka_enable_skip_offsets_hole = 1"

_log = Log("ingest")


class Positions:
    """The offsets of one Kafka table."""

    def __init__(self, clock: Clock, catalog: Catalog, uuid: str, *, note: Callable[[str], None]) -> None:
        """`note` takes sentences for the user: where offsets came from, gaps that were found or closed."""
        self._clock = clock
        self._catalog = catalog
        self._uuid = uuid
        self._note = note
        self._subscriptions = Subscriptions(clock, catalog, uuid)
        self._leases = TableLeases(catalog.leases, server=lambda: catalog.server)
        self._is_released = False
        #: Fence of the lease, acquired before this turn read the offsets: commits computed from them use no later one.
        self._fence: Fence | None = None
        #: Finding first offsets and moving offsets take turns: neither may overwrite what the other has just stored.
        self._turn = threading.Lock()
        #: Time of the last check whether the log of a gap holds its offset.
        self._asked_ms: dict[tuple[TopicPartition, StoredOffset], int] = {}

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
        with self._turn:
            self._is_released = True
            self._leases.release(self._uuid)

    def settle(self, kafka: KafkaDef, config: KafkaConfig, broker: BrokerClient, topics: Topics) -> None:
        """Subscribe to the topics; look up and store the offsets that are not stored yet.

        A partition that was added to a topic that is read already starts at its first message. Raises GroupInUseError
        while another Kafka table reads a topic for the group, and LeaseHeldError.
        """
        with self._turn:
            self._acquire()
            self._subscribe(kafka, config, topics)
            stored = self._catalog.offsets.stored(self._uuid)
            missing = [place for place in topics.positions if place not in stored]
            if not missing:
                return
            known_topics = {place.topic for place in stored}
            is_late = config.start is OffsetStart.LATEST
            late = {place for place in missing if is_late and place.topic not in known_topics}
            observed = _observe(broker, topics, missing)
            found = {
                place: stored_at(
                    place, observed.ends[place].stable if place in late else observed.earliest[place], observed
                )
                for place in missing
            }
            # `before` is empty: none of these offsets was stored when the broker was asked.
            self._apply(kafka, [SetOffsets(kafka_table=self._uuid, offsets=found, before={})])

    def check(
        self,
        kafka: KafkaDef,
        config: KafkaConfig,
        broker: BrokerClient,
        topics: Topics,
        *,
        suspects: Collection[TopicPartition] = (),
    ) -> dict[TopicPartition, PartitionEnd]:
        """Compare what is stored with what the topics hold; record new gaps, and close those that were none. Return
        how far the topic partitions reach.

        `suspects`: topic partitions where a consumer did not find its offset. Raises BrokerUnavailableError also for a
        leader that is older than the one that was read from; raises LeaseHeldError.
        """
        with self._turn:
            self._acquire()
            stored = self._catalog.offsets.stored(self._uuid)
            observed = _observe(broker, topics, [place for place in topics.positions if place in stored])
            findings = self._found(stored, observed)
            if findings.gaps:
                # A gap stops a consumer until somebody decides: it must be there for a second look too.
                topics = replace(topics, ids=broker.topic_ids())
                observed = _observe(broker, topics, observed.ends)
                findings = self._found(stored, observed)
            gaps = [*findings.gaps, *self._replaced(broker, stored, suspects, findings)]
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
        with self._turn:
            self._acquire()
            self._subscribe(kafka, config, topics)
            stored, known = self._catalog.offsets.stored(self._uuid), self._open()
            observed = _observe(broker, topics, topics.positions)
            wanted = self._wanted(kafka, config, broker, reset, observed, stored)
            decided = {place.topic for place in wanted}
            # Nobody can decide about a partition that the topic made anew does not have.
            gone = [
                place
                for place, each in stored.items()
                if place.topic in decided
                and is_other_topic(each, topics.ids[place.topic])
                and place not in wanted
                and place not in topics.positions
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
            return {place: each.offset for place, each in wanted.items()}

    def _subscribe(self, kafka: KafkaDef, config: KafkaConfig, topics: Topics) -> None:
        for note in self._subscriptions.settle(kafka, config, topics, apply=self._apply):
            self._note(note)

    def _apply(self, kafka: KafkaDef, updates: Sequence[Update]) -> None:
        """Commit under the lease that the turn began with.

        Raises FencedError when another server has acquired the lease since, also if this server has joined anew, and
        the errors of updates whose required state has changed.
        """
        assert self._fence is not None
        try:
            with self._catalog.transactions.open(f"offsets {full_name(kafka)}", fences=[self._fence]) as work:
                work.commit(updates)
        except FencedError:
            self._leases.lose(self._uuid)
            raise

    def _wanted(
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
                ends = {place: end.stable for place, end in observed.ends.items()}
                offsets = ends if is_end else observed.earliest
            case _:
                assert_never(reset)
        return {place: stored_at(place, offset, observed) for place, offset in offsets.items()}

    def _found(self, stored: Mapping[TopicPartition, StoredOffset], observed: Observed) -> Findings:
        return find_gaps(self._uuid, stored=stored, observed=observed, now_ms=self._clock.now_ms())

    def _replaced(
        self,
        broker: BrokerClient,
        stored: Mapping[TopicPartition, StoredOffset],
        suspects: Collection[TopicPartition],
        findings: Findings,
    ) -> list[IngestGap]:
        """Gaps that cannot be seen from the ends of the log: it was truncated, and has grown again."""
        known = {TopicPartition(gap.topic, gap.partition) for gap in (*findings.gaps, *self._open())}
        gaps = []
        for place in sorted(set(suspects) - known - set(findings.stale)):
            each = stored.get(place)
            verdict, end = (Holds.UNKNOWN, -1) if each is None else broker.holds(place, each)
            if each is not None and verdict is Holds.NO:
                now_ms = self._clock.now_ms()
                gaps.append(gap_at(self._uuid, place, each, end=end, reason=REPLACED, now_ms=now_ms))
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
                updates = self._passed_over(gap, begin)
            try:
                self._apply(kafka, updates)
            except OffsetsMovedError as error:
                # A round has read these messages since the offset was looked at: there is no gap.
                _log.info("no_gap", table=full_name(kafka), reason=error)
                continue
            self._note(f"gap in {gap.topic}/{gap.partition} from {gap.start}: {gap.reason}")

    def _passed_over(self, gap: IngestGap, begin: StoredOffset) -> list[Update]:
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
            # What was missing is missing in the former topic: nobody can decide about it any more.
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
        """True if the log is known to be the one of the stored offset; asked now and then, for it may take seconds."""
        now_ms = self._clock.now_ms()
        if now_ms - self._asked_ms.get((partition, stored), -ASK_AGAIN_MS) < ASK_AGAIN_MS:
            return False
        self._asked_ms = {key: at_ms for key, at_ms in self._asked_ms.items() if now_ms - at_ms < ASK_AGAIN_MS}
        self._asked_ms[partition, stored] = now_ms
        return broker.holds(partition, stored)[0] is Holds.YES

    def _open(self) -> list[IngestGap]:
        return [gap for gap in self._catalog.offsets.gaps(self._uuid) if not gap.resolution]


def _offsets_at(
    partitions: Collection[TopicPartition], stored: Mapping[TopicPartition, StoredOffset]
) -> dict[TopicPartition, StoredOffset]:
    return {each: stored[each] for each in partitions if each in stored}


def _observe(broker: BrokerClient, topics: Topics, places: Collection[TopicPartition]) -> Observed:
    return Observed(ids=topics.ids, earliest=broker.earliest(places), ends=broker.ends(places))


def _stale_leader(config: KafkaConfig, place: TopicPartition) -> BrokerUnavailableError:
    return BrokerUnavailableError(
        "the leader that answers is older than the one that was read from",
        table=config.table,
        brokers=config.brokers,
        topic=place.topic,
        partition=place.partition,
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
