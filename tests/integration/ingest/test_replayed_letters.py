"""Dead letters that are replayed: from a broker, through views that were mended, each exactly once."""

from __future__ import annotations

import threading

import pytest

from tests.codes import WithCode
from tests.integration.ingest.ingest_world import EVENTS, IngestWorld, event
from tilth.base.errors import ConflictError, TilthError
from tilth.ingest import NoDeadLettersError
from tilth.model.offset import REPLAYED
from tilth.model.table import KafkaDef, TableDef
from tilth.model.types import Kind
from tools.broker import Broker

HALVES = {"id": Kind.INT64, "half": Kind.INT32, "at": Kind.INT64, "part": Kind.INT32, "who": Kind.STRING}
REPLAY = "SYSTEM REPLAY DEAD LETTERS default.k"


def halves(text: str) -> str:
    return f"SELECT id, CAST({text} AS INT) AS half, _offset AS at, _partition AS part, _key AS who FROM k"


class Story:
    """Messages that a view cannot take, some of them only until it is mended."""

    messages = 200
    #: Mended later, and never.
    bad = frozenset(number for number in range(messages) if number % 10 == 3)
    worse = frozenset(number for number in range(messages) if number % 50 == 7)

    def __init__(self, world: IngestWorld, broker: Broker, topic: str) -> None:
        broker.create_topic(topic, 2)
        self.world = world
        self.kafka: KafkaDef = world.kafka("k", topic)
        self.copy: TableDef = world.table("copy", EVENTS, "id")
        self.halves: TableDef = world.table("halves", HALVES, "id")
        world.view("v1", self.kafka, self.copy, "SELECT * FROM k")
        world.view("v2", self.kafka, self.halves, halves("name"))
        names = dict.fromkeys(self.bad, "x") | dict.fromkeys(self.worse, "y")
        values = [event(number, name=names.get(number, str(number // 2))) for number in range(self.messages)]
        world.send(topic, [*values, b"{", b'{"id": "q"}'], partitions=2)
        world.wait(lambda: world.ids(self.copy) == list(range(self.messages)), "all messages")

    @property
    def dead(self) -> TableDef:
        found = self.world.catalog.tables.get("default", "k_dead_letters")
        assert isinstance(found, TableDef)
        return found

    def mend(self) -> None:
        self.world.sql("DROP VIEW default.v2")
        self.world.view("v2", self.kafka, self.halves, halves("if(name = 'x', '7', name)"))

    def letters(self) -> list[tuple[str | None, int]]:
        """View and number of the message."""
        rows = self.world.rows("k_dead_letters").to_pylist()
        return sorted((row["view"] or "", int(row["key"][1:])) for row in rows)

    def check(self) -> None:
        """What was mended is there once, and the rest is a dead letter once."""
        self.world.verify(self.copy, self.halves, self.dead)
        assert self.world.ids(self.copy) == list(range(self.messages))
        assert self.world.ids(self.halves) == sorted(set(range(self.messages)) - self.worse)
        for row in self.world.rows(self.halves).to_pylist():
            number = row["id"]
            assert row["half"] == (7 if number in self.bad else number // 2)
            assert (row["at"], row["part"], row["who"]) == (number // 2, number % 2, f"k{number}")
        left = [("", self.messages), ("", self.messages + 1)]
        assert self.letters() == sorted([*left, *(("default.v2", number) for number in self.worse)])


def test_letters_of_a_mended_view_are_there_once(world: IngestWorld, broker: Broker) -> None:
    story = Story(world, broker, "replay-mended")
    assert len(story.letters()) == len(story.bad) + len(story.worse) + 2
    story.mend()
    answer = world.sql(REPLAY)
    assert f"{len(story.bad) + len(story.worse) + 2} letters in 2 transactions" in answer
    assert f"{len(story.worse) + 2} of their messages are dead letters again" in answer
    story.check()
    reasons = {row["reason"] for row in world.rows("k_dead_letters").to_pylist() if row["view"]}
    assert all("'y'" in reason for reason in reasons)
    entries = [each for each in world.catalog.offsets.ledger(story.kafka.uuid) if each.consumer == REPLAYED]
    assert sum(each.messages for entry in entries for each in entry.ranges) == len(story.bad | story.worse) + 2
    [stats] = world.manager.replays()
    assert stats.letters == len(story.bad | story.worse) + 2
    # The remaining letters fail again, and do not multiply.
    world.sql(REPLAY)
    story.check()


def test_replays_in_batches_and_two_at_once(world: IngestWorld, broker: Broker) -> None:
    story = Story(world, broker, "replay-twice")
    story.mend()
    world.sql("ALTER TABLE default.k MODIFY SETTING kafka_max_block_size = 16")
    answers: list[str | TilthError] = []
    barrier = threading.Barrier(2)

    def replay() -> None:
        barrier.wait()
        try:
            answers.append(world.sql(REPLAY))
        except TilthError as error:
            answers.append(error)

    threads = [threading.Thread(target=replay) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each for each in answers if isinstance(each, TilthError)] == []
    story.check()


def test_letters_that_are_chosen(world: IngestWorld, broker: Broker) -> None:
    story = Story(world, broker, "replay-where")
    story.mend()
    before = story.letters()
    assert world.sql(f"{REPLAY} WHERE offset < 0").endswith(": 0 letters")
    assert story.letters() == before
    first, second, *others = sorted(story.bad)
    world.sql(f"{REPLAY} WHERE view = 'default.v2' AND CAST(key AS STRING) IN ('k{first}', 'k{second}')")
    assert {number for _, number in before} - {number for _, number in story.letters()} == {first, second}
    assert {first, second} <= set(world.ids(story.halves))
    assert not set(others) & set(world.ids(story.halves))
    # Without its view a letter stays.
    world.sql("DROP VIEW default.v2")
    answer = world.sql(REPLAY)
    assert f"{len(others) + len(story.worse)} left: no view default.v2 reads the Kafka table" in answer


def test_two_letters_of_one_message_bring_two_rows_and_one_by_its_key(world: IngestWorld, broker: Broker) -> None:
    """The topic was read twice, so a table without a key has everything twice."""
    broker.create_topic("replay-again")
    kafka = world.kafka("k", "replay-again")
    columns = {"id": Kind.INT64, "half": Kind.INT32}
    log, once = world.table("log", columns, "id"), world.table("once", columns, unique_key=("id",))
    sums = world.table("sums", {"n": Kind.INT64})
    for name, target in (("v1", log), ("v2", once)):
        world.view(name, kafka, target, "SELECT id, CAST(name AS INT) AS half FROM k")
    world.view("v3", kafka, sums, "SELECT sum(CAST(name AS INT)) AS n FROM k")
    bad = set(range(3, 30, 5))
    world.send("replay-again", [event(number, name="x" if number in bad else "1") for number in range(30)])
    world.wait_rows(log, 30 - len(bad))
    world.sql("SYSTEM RESET CONSUME OFFSET default.k TO BEGIN")
    world.wait_rows(log, 2 * (30 - len(bad)))
    assert world.rows("k_dead_letters").num_rows == 6 * len(bad)
    for name, target in (("v1", log), ("v2", once)):
        world.sql(f"DROP VIEW default.{name}")
        world.view(name, kafka, target, "SELECT id, CAST(if(name = 'x', '1', name) AS INT) AS half FROM k")
    world.sql("DROP VIEW default.v3")
    world.view("v3", kafka, sums, "SELECT sum(if(name = 'x', 1, CAST(name AS INT))) AS n FROM k")
    answer = world.sql(REPLAY)
    assert f"{6 * len(bad)} letters in 3 transactions, " in answer
    assert world.ids(log) == sorted([*range(30)] * 2)
    assert world.ids(once) == list(range(30))
    assert sum(world.rows(sums)["n"].to_pylist()) == 60
    dead = world.catalog.tables.get("default", "k_dead_letters")
    assert isinstance(dead, TableDef)
    assert world.count(dead) == 0
    world.verify(log, once, sums, dead)
    assert world.sql(REPLAY).endswith(": 0 letters")


def test_what_cannot_be_replayed(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("replay-errors")
    kafka = world.kafka("k", "replay-errors")
    with pytest.raises(NoDeadLettersError, match="is not there"):
        world.sql(REPLAY)
    target = world.table("t", EVENTS, "id")
    world.view("v", kafka, target, "SELECT * FROM k")
    world.send("replay-errors", [event(1)])
    world.wait_rows(target, 1)
    assert world.sql(REPLAY).endswith(": 0 letters")
    world.sql("SYSTEM STOP CONSUME default.k BECAUSE 'the view is mended'")
    with pytest.raises(ConflictError, check=WithCode("CONSUME_STOPPED"), match="the view is mended"):
        world.sql(REPLAY)
    for name in ("default.t", "default.nothing"):
        with pytest.raises(TilthError):
            world.sql(f"SYSTEM REPLAY DEAD LETTERS {name}")


def test_rows_that_are_no_messages_stay_and_stop_nothing(world: IngestWorld, broker: Broker) -> None:
    """Whatever somebody has inserted into the dead-letter table: what can be a message is one, the rest stays."""
    broker.create_topic("replay-odd")
    world.kafka("k", "replay-odd")
    kafka = world.catalog.tables.get("default", "k")
    assert isinstance(kafka, KafkaDef)
    target = world.table("t", EVENTS, "id")
    world.view("v", kafka, target, "SELECT id, concat(name, 'é') AS name, price FROM k")
    world.send("replay-odd", [event(1), b"{"])
    world.wait_rows(target, 1)
    raw, far = event(5).decode().replace("'", "''"), (1 << 48) - 1
    odd = [
        f"(NULL, 0, 3, 'why', '{raw}', NULL)",
        f"('replay-odd', NULL, 3, 'why', '{raw}', NULL)",
        f"('replay-odd', 0, NULL, 'why', '{raw}', NULL)",
        f"('replay-odd', 0, -1, 'why', '{raw}', NULL)",
        f"('replay-odd', 0, {1 << 62}, 'why', '{raw}', NULL)",
        "('replay-odd', 0, 3, 'why', NULL, NULL)",
        f"('replay-odd', 0, 3, 'why', '{raw}', 'it''s `no` \"view\"')",
    ]
    fine = [
        f"('replay-odd', 0, {far}, 'why', '{event(6).decode()}', NULL)",
        f"('a topic; é', {(1 << 31) - 1}, 0, '', '{event(7).decode()}', 'default.v')",
        f"('replay-odd', 0, 4, 'why', '{event(8).decode()}', 'default.v')",
        f"('replay-odd', 0, 4, 'why', '{event(9).decode()}', 'default.gone')",
    ]
    rows = ", ".join([*odd, *fine])
    world.sql(f"INSERT INTO k_dead_letters (topic, partition, offset, reason, raw, view) VALUES {rows}")
    answer = world.sql(REPLAY)
    assert "4 letters in 2 transactions, 3 rows stored, 1 of their messages are dead letters again" in answer
    assert "1 left: no view default.gone reads the Kafka table" in answer
    assert '1 left: no view it\'s `no` "view" reads the Kafka table' in answer
    assert world.ids(target) == [1, 6, 7, 8]
    dead = world.catalog.tables.get("default", "k_dead_letters")
    assert isinstance(dead, TableDef)
    assert world.count(dead) == 1 + len(odd) + 1
    world.verify(target, dead)
