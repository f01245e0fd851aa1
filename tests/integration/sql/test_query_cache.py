"""Queries of a text that ran before: its cached plan is used where all of its basis still holds, and nowhere else.

Each answer is compared with a model, or with the answer of a text that differs in a comment alone, so nothing of it is
cached. Counters say whether a plan was used again.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from tests.spark_world import SparkWorld
from tilth.query.worker.query_cache import PLANS_MAX

pytestmark = pytest.mark.integration

JOIN = (
    "SELECT c.name, sum(o.amount) FROM orders o JOIN customers c ON o.customer = c.id WHERE o.id < 1000 "
    "GROUP BY c.name ORDER BY c.name"
)
_fresh = count()


@pytest.fixture(scope="module")
def world(world: SparkWorld) -> SparkWorld:
    world.run("CREATE DATABASE other", database="default")
    for database in ("shop", "other"):
        world.run(
            "CREATE TABLE orders (id Int64, customer Int64, amount Int64) ENGINE = MergeTree ORDER BY id",
            database=database,
        )
    world.run("CREATE TABLE customers (id Int64, name String) ENGINE = MergeTree ORDER BY id")
    world.run("INSERT INTO orders VALUES (1, 1, 10), (2, 2, 20), (3, 1, 30)")
    world.run("INSERT INTO orders VALUES (7, 1, 700)", database="other")
    world.run("INSERT INTO customers VALUES (1, 'Ann'), (2, 'Bob')")
    return world


@pytest.fixture(scope="module")
def second(world: SparkWorld) -> Iterator[SparkWorld]:
    """Another server over the same catalog."""
    made = SparkWorld(world.folder, world.session, beside=world)
    yield made
    made.stop()


def anew(world: SparkWorld, text: str, **settings: str) -> list[tuple[object, ...]]:
    """Return the answer to a text that is not cached."""
    return world.rows(f"{text} -- {next(_fresh)}", **settings)


def is_reused(world: SparkWorld, text: str, **settings: str) -> bool:
    """Return whether the query ran by a cached plan; its answer is checked."""
    before = world.cache.stats().plans_reused
    found = world.rows(text, **settings)
    after = world.cache.stats().plans_reused
    assert found == anew(world, text, **settings)
    return after > before


def test_a_plan_is_used_again_while_its_tables_stand(world: SparkWorld) -> None:
    expected = world.rows(JOIN)
    stats = world.cache.stats()
    assert [world.rows(JOIN) for _ in range(3)] == [expected] * 3
    now = world.cache.stats()
    assert now.plans_reused == stats.plans_reused + 3
    assert now.texts_reused == stats.texts_reused + 3
    assert now.plans_made == stats.plans_made
    answer = world.run(JOIN)
    assert answer.parts_read == 2
    assert [(column.name, column.type) for column in answer.columns] == [
        ("name", "string"),
        ("sum(amount)", "bigint"),
    ]


def test_each_change_of_a_table_is_seen(world: SparkWorld, second: SparkWorld) -> None:
    world.run("CREATE TABLE t (k Int64, v Int64) ENGINE = MergeTree ORDER BY k")
    texts = (
        "SELECT sum(v), count(*) FROM t",
        "SELECT sum(v), count(*) FROM t WHERE k > 0",
        "SELECT * FROM t ORDER BY k",
    )
    changes = (
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "INSERT INTO t VALUES (3, 3)",
        "DELETE FROM t WHERE k = 2",
        "ALTER TABLE t UPDATE v = 30 WHERE k = 3",
        "ALTER TABLE t ADD COLUMN w Int64 DEFAULT 5",
        "INSERT INTO t VALUES (4, 4, 4)",
        "ALTER TABLE t DROP COLUMN w",
        "TRUNCATE TABLE t",
        "INSERT INTO t VALUES (9, 9)",
        "DROP TABLE t",
        "CREATE TABLE t (k Int64, v Int64) ENGINE = MergeTree ORDER BY k",
        "INSERT INTO t VALUES (-1, 7), (5, 8)",
    )
    for number, change in enumerate(changes):
        # This server and another one change it in turns.
        (second if number % 2 else world).run(change)
        if change.startswith("DROP TABLE"):
            assert {world.refused(text).code for text in texts} == {"TABLE_NOT_FOUND"}
            continue
        for text in texts:
            assert world.rows(text) == world.rows(text) == anew(world, text), (change, text)


def test_another_database_is_another_table(world: SparkWorld) -> None:
    text = "SELECT id, amount FROM orders WHERE id > 0 ORDER BY id"
    for _ in range(2):
        assert world.rows(text) == [(1, 10), (2, 20), (3, 30)]
        assert world.rows(text, database="other") == [(7, 700)]


def test_settings_are_a_part_of_the_key(world: SparkWorld) -> None:
    text = "SELECT hour(timestamp_seconds(id * 3600)) FROM orders WHERE id = 1"
    for _ in range(2):
        assert world.rows(text) == [(1,)]
        assert world.rows(text, spark__sql__session__timeZone="+03:00") == [(4,)]
    assert is_reused(world, text, spark__sql__session__timeZone="+03:00")


def test_a_past_version_stays_what_it_was(world: SparkWorld) -> None:
    world.run("CREATE TABLE past (k Int64) ENGINE = MergeTree ORDER BY k")
    world.run("INSERT INTO past VALUES (1)")
    text = "SELECT k FROM past VERSION AS OF 1 WHERE k > 0"
    assert world.rows(text) == [(1,)]
    world.run("INSERT INTO past VALUES (2)")
    assert world.rows(text) == world.rows(text) == [(1,)]
    assert world.rows("SELECT count(*) FROM past WHERE k > 0") == [(2,)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT rand() FROM orders",
        "SELECT uuid() FROM orders WHERE id = 1",
        "SELECT id FROM orders WHERE rand() < 2",
        "SELECT id FROM orders WHERE id IN (SELECT CAST(rand() AS BIGINT) + 1 FROM customers)",
        "SELECT now(), id FROM orders",
        "SELECT id FROM orders WHERE timestamp_seconds(id) < now()",
        "SELECT id FROM orders WHERE timestamp_seconds(id) < CAST(concat('n', 'ow') AS TIMESTAMP)",
        "SELECT id FROM orders WHERE timestamp_seconds(id) < to_timestamp(concat('to', 'day'))",
        "SELECT TIMESTAMP '\\u006eow', id FROM orders",
        "SELECT DATE 'tomorrow', id FROM orders",
        "SELECT id FROM orders TABLESAMPLE (50 PERCENT)",
        "EXPLAIN SELECT id FROM orders WHERE id = 1",
    ],
)
def test_what_differs_from_time_to_time_has_no_plan(world: SparkWorld, text: str) -> None:
    before = world.cache.stats()
    for _ in range(3):
        world.rows(text)
    after = world.cache.stats()
    assert (after.plans_reused, after.plans) == (before.plans_reused, before.plans)


def test_an_error_is_the_same_each_time(world: SparkWorld) -> None:
    for text in ("SELECT 1 / (id - 2) FROM orders WHERE id = 2", "SELECT nothing FROM orders WHERE id = 1"):
        first, *others = (world.refused(text) for _ in range(3))
        for other in others:
            assert (other.code, other.message, other.facts) == (first.code, first.message, first.facts)


def test_a_query_with_its_own_words_for_columns_is_called_alike(world: SparkWorld) -> None:
    text = "SELECT toInt64(id), dateDiff('day', DATE '2020-01-01', DATE '2020-01-03') FROM orders WHERE id = 1"
    names = [world.run(text).table.column_names for _ in range(3)]
    assert names == [["toInt64(id)", "dateDiff('day', DATE '2020-01-01', DATE '2020-01-03')"]] * 3
    assert is_reused(world, text)


def test_many_clients_share_a_plan(world: SparkWorld) -> None:
    expected = world.rows(JOIN)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: world.rows(JOIN), range(12)))
    assert answers == [expected] * 12


def test_an_insert_has_the_rows_of_now(world: SparkWorld) -> None:
    world.run("CREATE TABLE copied (id Int64) ENGINE = MergeTree ORDER BY id")
    text = "INSERT INTO copied SELECT max(id) FROM orders WHERE id < 100"
    world.run(text)
    world.run("INSERT INTO orders VALUES (50, 1, 1)")
    world.run(text)
    assert world.rows("SELECT id FROM copied ORDER BY id") == [(3,), (50,)]


def test_plans_are_bounded(world: SparkWorld) -> None:
    for number in range(3):
        world.rows(f"SELECT id + {number} FROM orders WHERE id = 1")
    assert 0 < world.cache.stats().plans <= PLANS_MAX
