"""Views that fail on some messages, on several together, or on all: which messages are dead letters, and for how long a
round is done again. Over a topic of files (round_world.py), with a real Spark.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark.accumulators
import pytest

from tests.integration.ingest.round_world import RoundWorld
from tests.long import cases
from tilth.ingest import ViewError, check_view
from tilth.ingest.policy import evaluation
from tilth.model.types import Kind
from tilth.warehouse import QUERY_WAREHOUSE, WorkerSession

COLUMNS = {"id": Kind.INT64, "s": Kind.STRING, "x": Kind.STRING, "n": Kind.INT64}
ID, V = {"id": Kind.INT64}, {"v": Kind.INT64}


def message(number: int, **changed: Any) -> bytes:
    return json.dumps({"id": number, "s": f"s{number % 3}", "x": str(number), "n": number} | changed).encode()


def world_of(folder: Path, spark: WorkerSession, **settings: str) -> RoundWorld:
    world = RoundWorld(folder, spark, **settings)
    world.source(COLUMNS)
    return world


def offsets_of(world: RoundWorld, view: str) -> list[int]:
    return sorted(each["offset"] for each in world.dead_letters() if each["view"] == f"default.{view}")


def rounds_of(world: RoundWorld) -> list[int]:
    assert world.kafka is not None
    return [sum(each.messages for each in entry.ranges) for entry in world.catalog.offsets.ledger(world.kafka.uuid)]


@dataclass(frozen=True, slots=True)
class Way:
    """A way to fail."""

    select: str
    good: Mapping[str, Any]
    bad: Mapping[str, Any]
    #: Text that the reason contains.
    reason: str
    kind: Kind = Kind.INT64


WAYS = {
    "cast": Way(
        "CAST(x AS INT) AS v FROM k", {}, {"x": "3000000000"}, "column `v`: The value '3000000000'", Kind.INT32
    ),
    "division": Way("100 DIV n AS v FROM k", {"n": 5}, {"n": 0}, "column `v`: Division by zero."),
    "index": Way(
        "split(x, ',')[1] AS v FROM k",
        {"x": "a,b"},
        {"x": "a"},
        "column `v`: The index 1 is out of bounds.",
        Kind.STRING,
    ),
    "date": Way(
        "n AS v FROM k WHERE to_date(s, 'yyyy') > '2020-01-01'", {"s": "2021"}, {"s": "never"}, "'never' could not"
    ),
    "assert": Way("n AS v FROM k WHERE assert_true(x <> 'bad') IS NULL", {}, {"x": "bad"}, "is not true!"),
    "overflow": Way("n + 9223372036854775807 AS v FROM k", {"n": -1}, {"n": 1}, "column `v`: overflow."),
    "json": Way(
        "j.v FROM (SELECT id, from_json(s, 'v BIGINT', map('mode', 'FAILFAST')) AS j FROM k)",
        {"s": '{"v": 1}'},
        {"s": "{"},
        "Malformed records are detected",
    ),
}


@pytest.mark.parametrize("name", cases(WAYS, and_also=("assert", "json")))
def test_each_way_to_fail_is_the_message_s_own(tmp_path: Path, spark: WorkerSession, name: str) -> None:
    way = WAYS[name]
    world = world_of(tmp_path, spark)
    world.view("v", ID | {"v": way.kind}, f"SELECT id, {way.select}")
    world.view("w", ID, "SELECT id FROM k")
    world.topic.put([[message(number, **(way.bad if number in (3, 8) else way.good)) for number in range(10)]])
    world.drain(1)
    assert offsets_of(world, "v") == [3, 8]
    assert [row["id"] for row in world.rows("to_v")] == [0, 1, 2, 4, 5, 6, 7, 9]
    assert len(world.rows("to_w")) == 10
    reasons = {each["reason"] for each in world.dead_letters()}
    assert all(way.reason in each for each in reasons), reasons
    assert not any("SQLSTATE" in each or "spark.sql" in each for each in reasons), reasons
    world.check()


def test_a_stream_with_bad_values_is_read_once_a_round_after_the_first(tmp_path: Path, spark: WorkerSession) -> None:
    world = world_of(tmp_path, spark, kafka_max_block_size="20")
    world.view("v", ID | V, "SELECT id, CAST(x AS BIGINT) AS v FROM k")
    bad = {number for number in range(100) if number % 50 == 7}
    world.topic.put([[message(number, **({"x": "bad"} if number in bad else {})) for number in range(100)]])
    world.drain(1)
    assert offsets_of(world, "v") == sorted(bad)
    assert sorted(row["id"] for row in world.rows("to_v")) == sorted(set(range(100)) - bad)
    assert rounds_of(world) == [20] * 5
    fetched = world.topic.fetched()
    assert [count for count in range(3) if count in fetched.values()] == [1, 2]
    assert {offset for (_, offset), count in fetched.items() if count == 2} == set(range(20))
    world.check()


def test_a_view_is_trusted_again_after_clean_rounds(
    tmp_path: Path, spark: WorkerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "CLEAN_ROUNDS_MIN", 3)
    world = world_of(tmp_path, spark, kafka_max_block_size="5")
    world.view("v", ID | V, "SELECT id, CAST(x AS BIGINT) AS v FROM k")
    late = 5 * (evaluation.CLEAN_ROUNDS_MIN + 3)
    bad = (2, late)
    world.topic.put([[message(number, **({"x": "bad"} if number in bad else {})) for number in range(late + 5)]])
    world.drain(1)
    twice = {offset for (_, offset), count in world.topic.fetched().items() if count == 2}
    assert twice == {*range(5), *range(late, late + 5)}
    assert offsets_of(world, "v") == list(bad)
    world.check()


def test_values_that_are_aggregated(tmp_path: Path, spark: WorkerSession) -> None:
    world = world_of(tmp_path, spark)
    select = "SELECT s, sum(CAST(x AS BIGINT)) AS v, count(*) FILTER (WHERE 10 DIV n > 0) AS c FROM k GROUP BY s"
    world.view("v", {"s": Kind.STRING, "v": Kind.INT64, "c": Kind.INT64}, select)
    bad: dict[int, dict[str, Any]] = {5: {"x": "bad"}, 11: {"n": 0}}
    world.topic.put([[message(number, **bad.get(number, {})) for number in range(1, 40)]])
    world.drain(1)
    assert offsets_of(world, "v") == [4, 10]
    expected: Counter[str] = Counter()
    for number in set(range(1, 40)) - bad.keys():
        expected[f"s{number % 3}"] += number
    found: Counter[str] = Counter()
    for row in world.rows("to_v"):
        found[row["s"]] += row["v"]
    assert found == expected
    world.check()


@pytest.mark.parametrize(
    ("select", "is_searched"),
    [
        (
            "SELECT id, CAST(concat(x, last) AS BIGINT) AS v FROM "
            "(SELECT *, max('') OVER (PARTITION BY s) AS last FROM k)",
            True,
        ),
        pytest.param(
            "SELECT a.id, CAST(a.x AS BIGINT) + b.n - b.n AS v FROM k a JOIN k b ON a.id = b.id AND a.s >= b.s",
            True,
            marks=pytest.mark.long,
        ),
        ("SELECT id, CAST(x AS BIGINT) AS v FROM k UNION ALL SELECT -id - 1 AS id, n AS v FROM k", False),
        ("SELECT id, CAST(x AS BIGINT) AS v FROM k ORDER BY id", False),
    ],
    ids=["window", "join", "union", "order"],
)
def test_views_that_make_rows_of_several_messages(
    tmp_path: Path, spark: WorkerSession, select: str, is_searched: bool
) -> None:
    world = world_of(tmp_path, spark)
    world.view("v", ID | V, select)
    # Few, because a search takes a Spark job for each half of the messages that has one of these.
    messages, bad = 4, (0, 2)
    world.topic.put([[message(number, **({"x": "bad"} if number in bad else {})) for number in range(messages)]])
    world.drain(1)
    assert offsets_of(world, "v") == list(bad)
    assert all("'bad'" in each["reason"] for each in world.dead_letters())
    assert {row["id"] for row in world.rows("to_v")} >= set(range(messages)) - set(bad)
    assert {row["id"] for row in world.rows("to_v")}.isdisjoint(bad)
    # A search may run out of its time on a busy machine; then it goes on with fewer messages.
    assert is_searched or set(world.topic.fetched().values()) == {2}
    world.check()


def test_what_overflows_only_together_is_done_with_fewer_messages(tmp_path: Path, spark: WorkerSession) -> None:
    """No message is to blame: none is a dead letter, and every one counts once."""
    world = world_of(tmp_path, spark)
    world.view("v", V, "SELECT sum(n) AS v FROM k")
    large = 2**61
    world.topic.put([[message(number, n=large) for number in range(5)]])
    world.drain(1)
    assert world.dead_letters() == []
    assert sum(row["v"] for row in world.rows("to_v")) == 5 * large
    assert max(rounds_of(world)) < 4
    assert sum(rounds_of(world)) == 5
    world.check()


def test_a_view_that_fails_on_nothing_blames_no_message(tmp_path: Path, spark: WorkerSession) -> None:
    world = world_of(tmp_path, spark)
    world.view("v", V, "SELECT 1 DIV (count(*) - count(*)) AS v FROM k")
    world.topic.put([[message(number) for number in range(10)]])
    with pytest.raises(ViewError, match="whatever the messages say") as raised:
        world.drain(1)
    assert "Division by zero" in str(raised.value)
    assert raised.value.hint
    assert world.dead_letters() == []
    assert rounds_of(world) == []
    world.check()


def test_words_that_say_nothing_in_a_computed_view(tmp_path: Path, spark: WorkerSession) -> None:
    """Spark computes them all; that the target does not take one is seen only when rows are written."""
    world = world_of(tmp_path, spark)
    world.view("v", ID | V, "SELECT coalesce(id, 0) AS id, n AS v, upper(s) AS _op FROM k", unique_key=("id",))
    ops = ["u", "perhaps", "d", "u"]
    world.topic.put([[message(id_, s=op) for id_, op in zip((1, 2, 1, 3), ops, strict=True)]])
    world.drain(1)
    assert offsets_of(world, "v") == [1]
    assert world.dead_letters()[0]["reason"] == "column `_op`: PERHAPS does not say what a row does"
    assert world.rows("to_v") == [{"id": 3, "v": 3}]
    world.check()


def test_several_rows_of_a_message_go_together_or_not_at_all(tmp_path: Path, spark: WorkerSession) -> None:
    world = world_of(tmp_path, spark)
    world.view("v", ID | V, "SELECT id, CAST(x AS BIGINT) AS v FROM k WHERE id <> 4")
    world.view("e", ID | V, "SELECT id, CAST(e AS BIGINT) AS v FROM k LATERAL VIEW explode(split(x, ',')) q AS e")
    world.view("g", ID | V, "SELECT id, v FROM k LATERAL VIEW explode(array(n, CAST(x AS BIGINT))) q AS v")
    lines = [message(1) + message(2, x="bad"), message(3), message(4, x="4,y") + message(5), message(6)]
    world.topic.put([lines])
    world.drain(1)
    assert sorted(row["id"] for row in world.rows("to_v")) == [3, 5, 6]
    assert offsets_of(world, "v") == [0]
    assert sorted(row["id"] for row in world.rows("to_e")) == [3, 6]
    assert offsets_of(world, "e") == [0, 2]
    assert sorted(row["id"] for row in world.rows("to_g")) == [3, 3, 6, 6]
    assert offsets_of(world, "g") == [0, 2]
    world.check()


def test_holes_in_the_topic_and_views_that_know_offsets(tmp_path: Path, spark: WorkerSession) -> None:
    world = world_of(tmp_path, spark)
    world.view("v", {"at": Kind.INT64} | V, "SELECT _offset AS at, CAST(x AS BIGINT) AS v FROM k")
    values = [
        b"" if number % 3 == 0 else message(number, **({"x": "bad"} if number == 20 else {})) for number in range(40)
    ]
    world.topic.put([values, values])
    world.drain(2)
    expected = [number for number in range(40) if number % 3 and number != 20]
    assert sorted(row["at"] for row in world.rows("to_v")) == sorted(expected * 2)
    assert [(each["partition"], each["offset"]) for each in world.dead_letters()] == [(0, 20), (1, 20)]
    world.check()


def test_views_that_choose_nothing_move_the_offsets(tmp_path: Path, spark: WorkerSession) -> None:
    world = world_of(tmp_path, spark)
    world.view("never", ID, "SELECT id FROM k WHERE false")
    world.view("count", V, "SELECT count(*) AS v FROM k WHERE 1 = 0")
    world.view("random", V, "SELECT CAST(rand() * 0 AS BIGINT) AS v FROM k WHERE rand() >= 0")
    world.topic.put([[message(number) for number in range(10)]])
    world.drain(1)
    assert world.rows("to_never") == []
    assert world.rows("to_count") == [{"v": 0}]
    assert world.rows("to_random") == [{"v": 0}] * 10
    assert rounds_of(world) == [10]
    assert set(world.topic.fetched().values()) == {1}
    world.check()


@pytest.mark.parametrize(
    "select",
    cases(
        [
            "SELECT id, n AS v FROM k ORDER BY id LIMIT 3",
            "SELECT id, n AS v FROM k OFFSET 5",
            "SELECT id, n AS v FROM k TABLESAMPLE (10 PERCENT)",
            "SELECT a.id, a.n AS v FROM k a JOIN (SELECT id FROM k LIMIT 1) b ON a.id = b.id",
            "SELECT CAST(1 AS BIGINT) AS id, CAST(1 AS BIGINT) AS v",
            "SELECT id, n AS v FROM k LIMIT 3",
            "SELECT id, n AS v FROM k LIMIT 0",
            "SELECT id, n AS v FROM (SELECT * FROM k LIMIT 5)",
            "WITH q AS (SELECT * FROM k) SELECT id, n AS v FROM q LIMIT 5",
            "SELECT id, n AS v FROM k WHERE id IN (SELECT id FROM k LIMIT 5)",
            "SELECT id, id AS v FROM range(10)",
        ],
        first=5,
    ),
)
def test_views_that_would_leave_messages_out_are_refused(tmp_path: Path, spark: WorkerSession, select: str) -> None:
    world = world_of(tmp_path, spark)
    target = world.view("v", ID | V, select)
    assert world.kafka is not None
    with pytest.raises(ViewError, match=r"leave out messages|does not read its Kafka table") as raised:
        check_view(spark.new_session(pool=QUERY_WAREHOUSE), world.kafka, target, select)
    assert raised.value.hint


@pytest.mark.parametrize(
    "select",
    cases(
        [
            "SELECT id, (SELECT max(n) FROM k LIMIT 1) AS v FROM k",
            "SELECT DISTINCT id, n AS v FROM k",
            "SELECT id, n AS v FROM k WHERE EXISTS (SELECT 1 FROM k WHERE n > 5)",
            "SELECT id, n AS v FROM k ORDER BY id",
            "SELECT id, v FROM k, LATERAL (SELECT max(e) AS v FROM explode(array(n, id)) q(e))",
        ],
        first=2,
    ),
)
def test_views_that_only_look_as_if_they_did_are_not(tmp_path: Path, spark: WorkerSession, select: str) -> None:
    world = world_of(tmp_path, spark)
    target = world.view("v", ID | V, select)
    assert world.kafka is not None
    check_view(spark.new_session(pool=QUERY_WAREHOUSE), world.kafka, target, select)


def test_rounds_leave_nothing_behind(tmp_path: Path, spark: WorkerSession) -> None:
    """Neither files nor accumulators, nor cached rows, nor temporary views but one."""
    world = world_of(tmp_path, spark, kafka_max_block_size="5")
    world.view("v", ID | V, "SELECT id, CAST(x AS BIGINT) AS v FROM k")
    world.topic.put([[message(number, **({"x": "bad"} if number == 3 else {})) for number in range(20)]])
    world.drain(1)
    before = len(pyspark.accumulators._accumulatorRegistry)
    temporary = Path(str(spark.context._temp_dir))
    files = sorted(temporary.rglob("*"))
    context: Any = spark.context
    # The shared Spark may still hold some of an earlier test.
    cached = set(context._jsc.getPersistentRDDs())
    world.topic.put([[message(number) for number in range(60)]])
    world.drain(1)
    assert len(rounds_of(world)) == 12
    assert len(pyspark.accumulators._accumulatorRegistry) == before
    assert (temporary.is_dir(), sorted(temporary.rglob("*"))) == (True, files)
    assert set(context._jsc.getPersistentRDDs()) <= cached
