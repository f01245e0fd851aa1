"""Two servers that both host a Kafka table: commits require the offsets, gaps and subscriptions that were read.

Two catalogs over one store. A broker of the test's making lets the other server act while a question is under way: at
that moment the first one has read what is stored and has not committed what follows from it. The lease of the Kafka
table and the state that a commit requires are tested one without the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from tests.catalog_world import World
from tests.codes import WithCode
from tests.unit.ingest.consume_context import consume_context
from tests.unit.ingest.offsets_world import A0, A1, FakeBroker, Reader
from tilth.base.errors import FencedError, TilthError
from tilth.catalog import (
    AddGap,
    Catalog,
    Joining,
    LeaseHeldError,
    OffsetsMovedError,
    ResolveGaps,
    SetOffsets,
    SubscriptionMovedError,
)
from tilth.ingest.kafka.gaps import DELETED, gap_at
from tilth.ingest.kafka.metadata import PartitionEnd
from tilth.ingest.offsets.positions import Positions
from tilth.ingest.offsets.reset import OffsetMark, ToMark
from tilth.ingest.service.service import KafkaService
from tilth.ingest.service.state import HELD_RETRY_MS
from tilth.ingest.service.stats import EventLog
from tilth.model.offset import StoredOffset, TopicPartition
from tilth.model.server import ServerRecord

Step = Callable[[], object]


class PausingBroker(FakeBroker):
    """Broker that runs a step once, after it has computed its answer with the ends of the partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Step | None = None

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionEnd]:
        found = super().ends(partitions)
        step, self.meanwhile = self.meanwhile, None
        if step is not None:
            step()
        return found


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def broker() -> PausingBroker:
    made = PausingBroker()
    made.make("a", 100, 100, topic_id="x")
    return made


def join(catalog: Catalog, name: str) -> ServerRecord:
    record = catalog.servers.join(Joining(name=name, run=name, version="1"))
    catalog.serve_as(record)
    return record


def second(world: World, reader: Reader) -> tuple[Catalog, Positions]:
    """Return the catalog and the positions of the other server."""
    catalog = world.reopened()
    return catalog, Positions(world.clock, catalog, reader.uuid, note=lambda text: None)


# --- the lease of the Kafka table ---


@pytest.mark.parametrize("is_back", [False, True])
def test_first_offsets_of_a_server_that_was_ended_meanwhile_are_refused(
    world: World, broker: PausingBroker, is_back: bool
) -> None:
    """The new host has stored first offsets, and its consumer has read everything: nothing is read again, whether the
    old host has joined anew by then or not.
    """
    broker.make("a", 100, topic_id="x")
    reader = Reader(world, broker)
    record = join(world.catalog, "old")
    reader.look()
    catalog, positions = second(world, reader)
    join(catalog, "new")
    broker.make("a", 100, 100, topic_id="x")

    def taken_over() -> None:
        catalog.servers.end(record)
        positions.settle(reader.kafka, reader.config, broker, broker.topics())  # type: ignore[arg-type]
        # A round of the new host's consumer.
        old, world.catalog = world.catalog, catalog
        reader.read(A1, 100)
        world.catalog = old
        if is_back:
            join(world.catalog, "old")

    broker.meanwhile = taken_over
    with pytest.raises(TilthError, check=WithCode("FENCED" if is_back else "SERVER_ENDED")):
        reader.look()
    assert reader.stored() == {0: 0, 1: 100}
    if not is_back:
        join(world.catalog, "old")
    with pytest.raises(LeaseHeldError):
        reader.move(ToMark(OffsetMark.BEGIN))
    assert reader.stored() == {0: 0, 1: 100}


def test_the_lease_passes_when_its_server_lets_go(world: World, broker: PausingBroker) -> None:
    reader = Reader(world, broker)
    join(world.catalog, "old")
    reader.look()
    catalog, positions = second(world, reader)
    join(catalog, "new")
    with pytest.raises(LeaseHeldError):
        positions.settle(reader.kafka, reader.config, broker, broker.topics())  # type: ignore[arg-type]
    reader.positions.release()
    positions.settle(reader.kafka, reader.config, broker, broker.topics())  # type: ignore[arg-type]
    # A late statement does not acquire the lease again: nobody would release it.
    with pytest.raises(FencedError):
        reader.move(ToMark(OffsetMark.BEGIN))
    positions.release()
    reader.positions = Positions(world.clock, world.catalog, reader.uuid, note=lambda text: None)
    assert reader.look() == {0: 0, 1: 0}


# --- the state that was read: the writer is not fenced, and another commit comes first ---


def test_first_offsets_are_written_where_there_are_none(world: World, broker: PausingBroker) -> None:
    reader = Reader(world, broker)
    first = {A1: StoredOffset(70, "x", 0)}
    broker.meanwhile = lambda: world.commit(SetOffsets(kafka_table=reader.uuid, offsets=first, before={}))
    with pytest.raises(OffsetsMovedError):
        reader.look()
    assert reader.stored() == {1: 70}
    assert reader.look() == {0: 0, 1: 70}


def test_a_reset_moves_from_where_it_saw_the_table(world: World, broker: PausingBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    broker.meanwhile = lambda: reader.read(A0, 50)
    with pytest.raises(OffsetsMovedError):
        reader.move(ToMark(OffsetMark.END))
    assert reader.stored() == {0: 50, 1: 0}
    assert reader.move(ToMark(OffsetMark.END)) == {A0: 100, A1: 100}


def test_deleted_messages_are_passed_over_from_the_offset_that_was_seen(world: World, broker: PausingBroker) -> None:
    reader = Reader(world, broker, kafka_enable_skip_offsets_hole="1")
    reader.look()
    broker.logs[A0].low = 40
    broker.meanwhile = lambda: reader.read(A0, 30)
    # The gap from offset 0 is void; the next look finds the gap from offset 30.
    assert reader.look() == {0: 30, 1: 0}
    reader.look()
    assert reader.stored() == {0: 40, 1: 0}
    assert [(gap.start, gap.end) for gap in world.catalog.offsets.gaps(reader.uuid)] == [(30, 40)]


def test_a_topic_made_anew_takes_the_place_of_the_offsets_that_were_seen(world: World, broker: PausingBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    old = world.catalog.offsets.stored(reader.uuid)
    broker.make("a", 5, 5, topic_id="y")
    newest = {partition: StoredOffset(3, "z", 0) for partition in old}
    broker.meanwhile = lambda: world.commit(SetOffsets(kafka_table=reader.uuid, offsets=newest, before=old))
    with pytest.raises(OffsetsMovedError):
        reader.look()
    assert world.catalog.offsets.stored(reader.uuid) == newest


def test_a_round_of_the_former_topic_does_not_move_offsets_of_the_new_one(world: World, broker: PausingBroker) -> None:
    """The offsets in both topics are the same number."""
    reader = Reader(world, broker)
    reader.look()
    stored = world.catalog.offsets.stored(reader.uuid)[A0]
    broker.make("a", 100, 100, topic_id="y")
    reader.look()
    with pytest.raises(OffsetsMovedError):
        reader.read(A0, 50, since=stored)
    assert world.catalog.offsets.stored(reader.uuid)[A0] == StoredOffset(0, "y", 0)


def test_a_gap_that_nobody_has_judged_is_not_closed(world: World, broker: PausingBroker) -> None:
    """The topic holds the offset again; meanwhile a user moves to an offset that it has lost."""
    reader = Reader(world, broker)
    reader.look()
    reader.read(A0, 50)
    broker.logs[A0].high = 30
    reader.look()
    assert list(reader.gaps()) == [0]
    world.clock.advance(60)
    broker.logs[A0].high, broker.logs[A0].low = 100, 10
    holds, before, seen = broker.holds, world.catalog.offsets.stored(reader.uuid), reader.gaps()[0]
    moved = {A0: StoredOffset(5, "x", 0)}

    def moved_meanwhile(partition: TopicPartition, stored: StoredOffset) -> object:
        gap = gap_at(reader.uuid, A0, moved[A0], end=10, reason=DELETED, now_ms=1)
        world.commit(
            ResolveGaps(kafka_table=reader.uuid, resolution="reset", partitions=frozenset({A0}), known=(seen,)),
            SetOffsets(kafka_table=reader.uuid, offsets=moved, before=before),
            AddGap(gap=gap, stored=moved[A0]),
        )
        return holds(partition, stored)

    broker.holds = moved_meanwhile  # type: ignore[method-assign, assignment]
    with pytest.raises(OffsetsMovedError):
        reader.look()
    assert (reader.gaps()[0].start, reader.gaps()[0].reason, reader.stored()[0]) == (5, DELETED, 5)


def test_a_group_is_taken_over_over_the_offsets_that_were_seen(world: World, broker: PausingBroker) -> None:
    former = Reader(world, broker, "k")
    former.look()
    former.read(A0, 60)
    former.drop()
    heir = Reader(world, broker, "heir", kafka_group_name="tilth.default.k")
    own = {A0: StoredOffset(90, "x", 0)}
    world.commit(SetOffsets(kafka_table=heir.uuid, offsets=own, before={}))
    apply = heir.positions._apply

    def late(kafka: object, updates: object) -> None:
        """Move the table's own offset before it takes the group over."""
        world.commit(SetOffsets(kafka_table=heir.uuid, offsets={A0: StoredOffset(95, "x", 0)}, before=own))
        apply(kafka, updates)  # type: ignore[arg-type]

    heir.positions._apply = late  # type: ignore[method-assign]
    with pytest.raises((OffsetsMovedError, SubscriptionMovedError)):
        heir.look()
    assert heir.stored() == {0: 95}
    heir.positions._apply = apply  # type: ignore[method-assign]
    assert heir.look()[0] == 60
    [line] = [entry for entry in world.catalog.offsets.ledger(heir.uuid) if entry.consumer < 0]
    assert [(each.start, each.end) for each in line.ranges if each.partition == 0] == [(95, 60)]


def test_groups_of_two_topics_that_are_taken_over_at_once_are_one_line_of_the_ledger(
    world: World, broker: PausingBroker
) -> None:
    broker.make("b", 100, topic_id="w")
    both = {"kafka_topic_list": "a,b"}
    former = Reader(world, broker, "k", **both)
    former.look()
    for partition in (A0, TopicPartition("b", 0)):
        former.read(partition, 60)
    former.drop()
    heir = Reader(world, broker, "heir", kafka_group_name="tilth.default.k", **both)
    own = {A0: StoredOffset(90, "x", 0), TopicPartition("b", 0): StoredOffset(90, "w", 0)}
    world.commit(SetOffsets(kafka_table=heir.uuid, offsets=own, before={}))
    heir.look()
    [line] = world.catalog.offsets.ledger(heir.uuid)
    moved = {(each.topic, each.partition): (each.start, each.end) for each in line.ranges}
    assert moved == {("a", 0): (90, 60), ("b", 0): (90, 60)}


# --- the service ---


@pytest.fixture
def service(world: World, broker: PausingBroker, monkeypatch: pytest.MonkeyPatch) -> KafkaService:
    """A service of a table with a view; its thread does not run."""
    reader = Reader(world, broker, kafka_handle_error_mode="throw")
    world.view("v", reader.uuid, world.t)
    broker.close = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr("tilth.ingest.service.service.BrokerClient", lambda config: broker)
    return KafkaService(consume_context(world), EventLog(events_max=10), reader.kafka)


def test_a_service_waits_for_the_server_that_has_not_let_go(world: World, service: KafkaService) -> None:
    join(world.catalog, "new")
    other = world.reopened()
    join(other, "old")
    uuid = world.catalog.tables.get("default", "k").uuid
    lease = other.leases.acquire(f"table/{uuid}", other.server)
    now_ms = world.clock.now_ms()
    service._reported_gaps = {A0}
    service._apply(service._poll(), 1)
    assert service._reported_gaps == {A0}
    assert (service.stats().state, service.stats().failures) == ("waiting", 0)
    assert "holder=old" in service.stats().reason
    # The next look is due soon, not after the interval.
    assert service._poll_again_ms == now_ms + HELD_RETRY_MS
    other.leases.release(lease.fence)
    assert service._poll().partitions == {"a": 2}
    assert service._poll_again_ms > now_ms + HELD_RETRY_MS


def test_a_look_that_was_overtaken_is_no_failure(world: World, broker: PausingBroker, service: KafkaService) -> None:
    uuid = world.catalog.tables.get("default", "k").uuid
    first = {A1: StoredOffset(70, "x", 0)}
    service._reported_gaps = {A0}
    broker.meanwhile = lambda: world.commit(SetOffsets(kafka_table=uuid, offsets=first, before={}))
    with pytest.raises(OffsetsMovedError) as caught:
        service._poll()
    service._handle_poll_error(caught.value)
    assert (service.stats().failures, service._reported_gaps) == (0, {A0})
    assert service._poll_again_ms == world.clock.now_ms() + HELD_RETRY_MS
    assert service._poll().partitions == {"a": 2}
