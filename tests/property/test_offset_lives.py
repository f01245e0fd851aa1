"""Topics grow, are cut, deleted, made anew and given other leaders; tables are dropped and made again; users reset.

Each message has a number of its own, so a log that was cut and has grown again holds others at the same offsets. What a
group reads is noted. At every round: what stands before it in the log was read or decided about, and nothing is read a
second time without a decision. A gap is only ever recorded where the log is not the one that was read.
"""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.catalog_world import World
from tests.long import examples
from tests.unit.ingest.offsets_world import FakeBroker, Log, Reader
from tilth.ingest.consumer.position import ConsumerPosition
from tilth.ingest.errors import BrokerUnavailableError, LeaderChangedError, OffsetGapError, ResetError
from tilth.ingest.kafka.broker import Holds
from tilth.ingest.kafka.gaps import DELETED
from tilth.ingest.kafka.metadata import PartitionEnd
from tilth.ingest.offsets.reset import OffsetMark, ToMark, ToOffsets
from tilth.model.offset import TopicPartition
from tilth.verify.ledgers import follow_ledger

#: True now and then, for what would otherwise begin everything anew all the time.
RARELY = st.integers(0, 4).map(lambda number: number == 0)
PLACES = st.integers(0, 2).map(lambda number: TopicPartition("a", number))


class WritingBroker(FakeBroker):
    """Knows which message stands at each offset, and may answer as an older leader once."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[TopicPartition, list[int]] = {}
        self._count = 0
        #: Ends of topic partitions before their last election; the answers while `is_stale`.
        self._older: dict[TopicPartition, PartitionEnd] = {}
        self.is_stale = False

    def made(self, partitions: int, topic_id: str) -> None:
        self.make("a", *[0] * partitions, topic_id=topic_id)
        self.messages = {partition: [] for partition in self.logs}
        self._older = {}

    def write(self, partition: TopicPartition, count: int) -> None:
        self.messages[partition] += range(self._count, self._count + count)
        self._count += count
        self.logs[partition].high += count

    def cut(self, partition: TopicPartition, at: int) -> None:
        self._older[partition] = super().ends([partition])[partition]
        self.truncate(partition, at)
        del self.messages[partition][at:]

    def grow(self) -> None:
        partition = TopicPartition("a", len(self.logs))
        self.logs[partition], self.messages[partition] = Log(), []

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionEnd]:
        now = super().ends(partitions)
        return now | {partition: old for partition, old in self._older.items() if self.is_stale and partition in now}


class OffsetLives(RuleBasedStateMachine):
    """One topic, one table of rows, and a Kafka table of one name."""

    @initialize()
    def begin(self) -> None:
        self.world, self.broker = World(), WritingBroker()
        self.topics = 0
        #: Number of reads of each message, and the messages that a user or a gap decided about.
        self.read: dict[int, int] = {}
        self.decided: set[int] = set()
        #: Message that was read at each offset, by topic id and partition.
        self.seen: dict[tuple[str, int], dict[int, int]] = {}
        self.recreate(2)
        self.reader = Reader(self.world, self.broker)

    # --- what happens to the topic ---

    @rule(partitions=st.integers(1, 3), is_rare=RARELY)
    def recreate(self, partitions: int, is_rare: bool = True) -> None:
        if not is_rare:
            return
        self.topics += 1
        self.broker.made(partitions, f"id{self.topics}")

    @precondition(lambda self: len(self.broker.logs) < 3)
    @rule()
    def grow(self) -> None:
        self.broker.grow()

    @rule(partition=PLACES, count=st.integers(1, 20))
    def write(self, partition: TopicPartition, count: int) -> None:
        if partition in self.broker.logs:
            self.broker.write(partition, count)

    @rule(partition=PLACES, back=st.integers(0, 15))
    def elect(self, partition: TopicPartition, back: int) -> None:
        """A new leader that lacks some of the last messages, or none."""
        if partition in self.broker.logs:
            log = self.broker.logs[partition]
            self.broker.cut(partition, max(log.low, log.high - back))

    @rule(partition=PLACES, count=st.integers(1, 15))
    def expire(self, partition: TopicPartition, count: int) -> None:
        if partition in self.broker.logs:
            log = self.broker.logs[partition]
            log.low = min(log.high, log.low + count)

    # --- what the service, its consumers and users do ---

    @rule(is_stale=st.booleans())
    def look(self, is_stale: bool) -> None:
        before = self.open()
        self.broker.is_stale = is_stale
        try:
            self.reader.look()
        except BrokerUnavailableError:
            assert is_stale
        finally:
            self.broker.is_stale = False
        self.check_gaps(before)

    @rule(partition=PLACES, budget=st.integers(1, 30))
    def consume(self, partition: TopicPartition, budget: int) -> None:
        """A consumer is started and reads a round, as the task does it."""
        stored = self.world.catalog.offsets.stored(self.reader.uuid)
        if partition not in self.broker.logs or partition not in stored or partition in self.open():
            return
        position = ConsumerPosition("k", {partition: stored[partition]})
        try:
            ends = self.broker.ends([partition])
            position.check_ends(ends)
            ranges = position.plan(ends, messages_max=budget)
            if not ranges:
                return
            # The client library validates the offset, and finds out whether the topic holds it.
            log = self.broker.logs[partition]
            if self.broker.holds(partition, stored[partition])[0] is Holds.NO or ranges[0].start < log.low:
                raise OffsetGapError(topic=partition.topic, partition=partition.partition)
            position.check_same(ranges, ids=self.broker.topic_ids(), ends=self.broker.ends([partition]))
        except (OffsetGapError, BrokerUnavailableError, LeaderChangedError):
            before = self.open()
            self.reader.look(partition)
            self.check_gaps(before)
            return
        self.check_read(partition, ranges[0].start, ranges[0].end)
        self.reader.read(partition, ranges[0].end)

    @rule(partition=PLACES, count=st.integers(1, 20))
    def flow(self, partition: TopicPartition, count: int) -> None:
        """What happens all the time."""
        self.write(partition, count)
        self.look(is_stale=False)
        self.consume(partition, budget=count + 10)

    @rule(partition=PLACES, count=st.integers(1, 10))
    def follow(self, partition: TopicPartition, count: int) -> None:
        """A new leader that has everything; messages are read from it, and then the old one answers."""
        self.flow(partition, count)
        self.elect(partition, back=0)
        self.flow(partition, count)
        self.look(is_stale=True)

    @rule(is_rare=RARELY)
    def make_anew(self, is_rare: bool) -> None:
        if not is_rare:
            return
        self.reader.drop()
        self.reader = Reader(self.world, self.broker)
        self.reader.look()
        self.check_gaps(set())

    @rule(
        mark=st.sampled_from([OffsetMark.BEGIN, OffsetMark.END, OffsetMark.STORED, OffsetMark.INVALID]), is_rare=RARELY
    )
    def reset(self, mark: OffsetMark, is_rare: bool) -> None:
        if not is_rare:
            return
        try:
            self.reader.move(ToMark(mark))
        except ResetError:
            assert mark is OffsetMark.STORED
            return
        self.decide(self.broker.logs)
        assert self.open() == set()

    @rule(partition=PLACES)
    def reset_one(self, partition: TopicPartition) -> None:
        if partition in self.broker.logs:
            others = {each for each in self.open() if each != partition and each in self.broker.logs}
            self.reader.move(ToOffsets({partition: OffsetMark.BEGIN}))
            self.decide([partition])
            assert self.open() == others

    # --- what must hold ---

    def open(self) -> set[TopicPartition]:
        return set(self.reader.positions.open_gaps())

    def decide(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.decided.update(self.broker.messages[partition])

    def check_read(self, partition: TopicPartition, start: int, end: int) -> None:
        """Nothing is passed over in silence, and nothing is read twice."""
        log, messages = self.broker.logs[partition], self.broker.messages[partition]
        passed = [each for each in messages[log.low : start] if each not in self.read and each not in self.decided]
        assert not passed, f"{partition} before {start}: {passed}"
        seen = self.seen.setdefault((self.broker.ids["a"], partition.partition), {})
        for offset in range(start, end):
            message = messages[offset]
            assert message in self.decided or message not in self.read, f"{partition} at {offset}: {message} again"
            self.read[message] = self.read.get(message, 0) + 1
            seen[offset] = message

    def check_gaps(self, before: set[TopicPartition]) -> None:
        """What is a gap now and was none: the log is not what was read."""
        stored = self.world.catalog.offsets.stored(self.reader.uuid)
        for number, gap in self.reader.gaps().items():
            partition = TopicPartition("a", number)
            if partition in before or partition not in self.broker.logs:
                continue
            log, known = self.broker.logs[partition], stored[partition]
            is_other = known.topic_id != self.broker.ids["a"]
            last = self.seen.get((known.topic_id, number), {}).get(known.offset - 1)
            is_cut = log.high < known.offset or (
                last is not None
                and known.offset - 1 >= log.low
                and self.broker.messages[partition][known.offset - 1] != last
            )
            is_truth = is_other or is_cut or log.low > known.offset
            # A log that was cut below what a user or setting had chosen, of which nothing was read.
            ended = (end for epoch, end in log.ended.items() if epoch >= known.epoch)
            is_truth = is_truth or any(end < known.offset for end in ended)
            assert is_truth, (gap, known, log)
            if gap.reason == DELETED:
                assert log.low > known.offset
        for partition in before - self.open():
            # It closed by itself, so the log is the one that was read; or it was in a former topic.
            if partition not in stored:
                assert partition not in self.broker.logs
                continue
            known, messages = stored[partition], self.broker.messages.get(partition, [])
            last = self.seen.get((known.topic_id, partition.partition), {}).get(known.offset - 1)
            assert known.topic_id == self.broker.ids["a"]
            assert known.offset <= len(messages)
            assert last is None or messages[known.offset - 1] == last

    def teardown(self) -> None:
        if not hasattr(self, "reader"):
            return
        entries = sorted(self.world.catalog.offsets.ledger(self.reader.uuid), key=lambda each: each.commit_ts)
        reached, wrong = follow_ledger(entries)
        stored = self.world.catalog.offsets.of(self.reader.uuid)
        assert wrong == []
        assert {partition: stored.get(partition) for partition in reached} == reached


TestOffsetLives = OffsetLives.TestCase
TestOffsetLives.settings = settings(max_examples=examples(100), stateful_step_count=40)
