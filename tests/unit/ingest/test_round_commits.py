"""Commits of rounds: their requirements, changes of older rows, leader epochs; the release of consumers.

Modules: ingest/rounds/round.py, ingest/service/consumers.py.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.unit.ingest.consume_world import PARTITION, Server, begin, done
from tilth.catalog import PartsChangedError, SetOffsets
from tilth.ingest.rounds.round import Scope, TableChanges
from tilth.ingest.service.consumers import ConsumerEnded
from tilth.model.offset import OffsetRange, StoredOffset


def test_rows_that_came_since_a_round_looked_for_older_ones_refuse_its_commit(server: Server) -> None:
    """One of these rows may have a key of the round, which would then exist twice."""
    txn = begin(server, server.fence)
    seen = server.world.catalog.parts.snapshot(server.world.t).ts
    changes = TableChanges(scope=Scope(table=server.world.t, partitions=("a",)), ts=seen, deltas=(), seen=())
    server.world.insert("a")
    with pytest.raises(PartsChangedError):
        server.consumers.commit(replace(done(server, server.fence, txn), changes=(changes,)))
    assert (server.stored(), len(server.world.names())) == (0, 1)


def test_rows_of_a_part_that_changed_before_a_round_looked_can_be_replaced(server: Server) -> None:
    world = server.world
    [part] = world.insert("a")
    change = world.delete((part, 1))
    txn = begin(server, server.fence)
    changes = TableChanges(
        scope=Scope(table=world.t, partitions=("a",)),
        ts=world.catalog.parts.snapshot(world.t).ts,
        deltas=(world.delta((part, 2)),),
        seen=((part.file.name, change.change_ts),),
    )
    server.consumers.commit(replace(done(server, server.fence, txn), changes=(changes,)))
    assert (server.stored(), len(world.catalog.parts.deltas(world.t))) == (1, 2)


def test_the_stored_offset_has_the_topic_and_the_leader_epoch_that_the_round_ended_in(server: Server) -> None:
    """They show later whether the log was truncated, or the topic made anew."""
    before, known = {PARTITION: StoredOffset(0, "")}, {PARTITION: StoredOffset(0, "id", 4)}
    server.world.commit(SetOffsets(kafka_table=server.kafka.uuid, offsets=known, before=before))
    read = OffsetRange(topic="topic", partition=0, start=0, end=1, topic_id="id", epoch=4, end_epoch=5)
    txn = server.begin(read).txn
    server.consumers.commit(done(server, server.fence, txn))
    stored = server.world.catalog.offsets.stored(server.kafka.uuid)[PARTITION]
    assert stored == StoredOffset(1, "id", 5)


def test_a_consumer_that_runs_is_not_released(server: Server) -> None:
    """Its round would be refused, and another server would begin before this consumer has ended."""
    server.consumers.release()
    server.consumers.commit(done(server, server.fence, begin(server, server.fence)))
    assert server.stored() == 1
    server.consumers.record_end(ConsumerEnded(0, None), is_failure=False)
    server.consumers.release()
    lease = server.world.catalog.leases.get(server.fence.name)
    assert lease is not None
    assert lease.holder == ""
