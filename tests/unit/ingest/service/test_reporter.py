"""Lines of system.kafka_log about a round that was committed."""

from __future__ import annotations

import msgspec

from tests.unit.ingest.consume_world import Server, begin, done
from tilth.ingest.rounds.round import NewestRead, RoundFacts, total_of
from tilth.ingest.service.reporter import Reporter
from tilth.ingest.service.stats import ConsumeEventKind, EventLog, RoundPhases


def test_a_commit_says_what_the_round_spent_its_time_on() -> None:
    server, events = Server(), EventLog(events_max=10)
    try:
        call = done(server, server.fence, begin(server, server.fence))
        seconds = {"fetch_seconds": 0.5, "decode_seconds": 0.25, "write_seconds": 0.125}
        call = msgspec.structs.replace(call, facts=msgspec.structs.replace(call.facts, **seconds))
        Reporter(server.world.clock, events, server.kafka).record_commit(call, commit_seconds=0.0625)
    finally:
        server.close()
    written, committed = events.events()
    assert (written.kind, written.phases) == (ConsumeEventKind.WRITE, None)
    assert committed.kind is ConsumeEventKind.COMMIT
    assert committed.duration_ms == 100
    assert committed.phases == RoundPhases(fetch_ms=500, decode_ms=250, write_ms=125, commit_ms=62)


def test_of_several_tasks_the_slowest_counts_for_each_phase() -> None:
    tasks = [
        RoundFacts(fetch_seconds=3.0, decode_seconds=1.0, write_seconds=0.0),
        RoundFacts(fetch_seconds=1.0, decode_seconds=2.0, write_seconds=0.5),
    ]
    facts = total_of(tasks)
    assert (facts.fetch_seconds, facts.decode_seconds, facts.write_seconds) == (3.0, 2.0, 0.5)
    assert total_of([]).fetch_seconds == 0.0


def test_of_several_tasks_the_newest_message_of_a_topic_partition_counts() -> None:
    def read(partition: int, sent_ms: int) -> RoundFacts:
        return RoundFacts(newest=(NewestRead(topic="a", partition=partition, sent_ms=sent_ms),))

    found = total_of([read(0, 5), read(1, 7), read(0, 9), RoundFacts()]).newest
    assert {each.partition: each.sent_ms for each in found} == {0: 9, 1: 7}
