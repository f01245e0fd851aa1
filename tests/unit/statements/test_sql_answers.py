"""What statements say: what has expired, until when it comes back, what to write instead."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.sql_world import SqlWorld, refused, table_of
from tilth.maintenance import OptimizeReport
from tilth.model.types import Decimal, Kind, Simple
from tilth.query.language.coerce import is_narrowed
from tilth.query.language.spark_errors import from_spark
from tilth.storage.values.shapes import wanted_of

TABLE = "CREATE TABLE t (a Int64, d Date, v Int32 DEFAULT 7) ENGINE = MergeTree PARTITION BY d ORDER BY a"


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    made = SqlWorld(tmp_path)
    made.run(TABLE)
    return made


def told_moment(world: SqlWorld, seconds: int) -> str:
    moment = datetime.fromtimestamp(world.clock.now_ms() // 1000 + seconds, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def test_a_new_ttl_tells_what_it_takes(world: SqlWorld) -> None:
    world.run("INSERT INTO t (a, d) VALUES (1, '1960-01-01'), (2, '1960-01-01'), (3, '1961-01-01'), (4, '2999-01-01')")
    told = world.run("ALTER TABLE t MODIFY TTL d + INTERVAL 1 DAY").message
    assert "partitions 2, rows 3" in told
    assert f"UNDROP PARTITION, brings them back until {told_moment(world, 10_800)} UTC" in told
    assert world.run("ALTER TABLE t MODIFY TTL d + INTERVAL 5000 YEAR").message == (
        "TTL of default.t: d + INTERVAL 5000 YEAR"
    )
    outcomes = [event.outcome for event in world.catalog.audit.recent(10) if event.verb == "ALTER .. MODIFY TTL"]
    assert f"done: {told}" in outcomes


@pytest.mark.parametrize("ttl", ["d + INTERVAL 10000000 YEAR", "d + INTERVAL 8000 YEAR", "d + INTERVAL 999999999 WEEK"])
def test_a_ttl_stays_within_the_calendar(world: SqlWorld, ttl: str) -> None:
    assert "year 9999" in str(refused(world, f"ALTER TABLE t MODIFY TTL {ttl}"))
    assert "year 9999" in str(refused(world, f"{TABLE.replace(' t ', ' u ')} TTL {ttl}"))
    world.run("ALTER TABLE t MODIFY TTL d")
    assert "a column, or a column plus an interval" in str(
        refused(world, "ALTER TABLE t MODIFY TTL d - INTERVAL 1 DAY")
    )


def test_what_is_dropped_is_listed_until_it_is_gone(world: SqlWorld) -> None:
    world.run("INSERT INTO t (a, d) VALUES (1, '2020-01-01')")
    assert (
        f"back until {told_moment(world, 10_800)} UTC" in world.run("ALTER TABLE t DROP PARTITION '2020-01-01'").message
    )
    uuid = table_of(world).uuid
    answer = world.run("DROP TABLE t").message
    ((database, name, found, until, is_going),) = world.rows(
        "SELECT database, name, uuid, kept_until, is_going FROM system.dropped_tables"
    )
    assert (database, name, found, is_going) == ("default", "t", uuid, False)
    # The dropped partition's file is still on the disk, and EXPLAIN GC counts the same.
    ((files, size, undrop),) = world.rows("SELECT files, bytes, undrop FROM system.dropped_tables")
    assert (files, undrop) == (1, "UNDROP TABLE `default`.t")
    assert size
    assert [row["bytes"] for row in world.run("EXPLAIN GC t").table.to_pylist()] == [size]
    assert answer == f"dropped: default.t; UNDROP TABLE brings it back until {until:%Y-%m-%d %H:%M:%S} UTC"
    error = refused(world, "UNDROP TABLE nope")
    assert (error.code, "system.dropped_tables" in error.hint) == ("TABLE_NOT_FOUND", True)
    world.run("UNDROP TABLE t")
    assert world.rows("SELECT * FROM system.dropped_tables") == []


def test_a_column_is_described_without_its_type(world: SqlWorld) -> None:
    world.run("ALTER TABLE t MODIFY COLUMN v DEFAULT 8 COMMENT 'x', COMMENT COLUMN a 'the key'")
    assert world.run("ALTER TABLE t COMMENT COLUMN d 'the day'").message == "columns changed: default.t"
    now = table_of(world)
    assert [(column.default, column.comment) for column in now.schema.columns] == [
        (None, "the key"),
        (None, "the day"),
        ("CAST(8 AS int)", "x"),
    ]
    assert world.catalog.mutations.all(now.uuid) == []
    world.run("ALTER TABLE t MODIFY COLUMN v REMOVE DEFAULT, MODIFY COLUMN IF EXISTS nope COMMENT 'x'")
    assert table_of(world).schema.columns[2].default is None
    assert "MODIFY COLUMN" in world.catalog.audit.recent(1)[0].verb
    assert refused(world, "ALTER TABLE t COMMENT COLUMN nope 'x'").code == "UNKNOWN_COLUMN"


def test_what_old_rows_stand_for_outlives_the_default(world: SqlWorld) -> None:
    world.run("INSERT INTO t (a, d) VALUES (1, '2020-01-01')")
    world.run("ALTER TABLE t ADD COLUMN n Int64 DEFAULT 5")
    world.run("ALTER TABLE t MODIFY COLUMN n REMOVE DEFAULT")
    table = table_of(world)
    assert table.schema.columns[-1].default is None
    assert wanted_of(table, 1).columns[-1].default == "CAST(5 AS bigint)"


def test_values_are_refused_in_our_words(world: SqlWorld) -> None:
    for text, expected in (
        ("ALTER TABLE t ADD COLUMN n Int32 DEFAULT 'abc'", "expected a whole number"),
        ("ALTER TABLE t MODIFY COLUMN v Int32 DEFAULT 'abc'", "expected a whole number"),
        ("ALTER TABLE t ADD COLUMN n Decimal(5, 2) DEFAULT 'abc'", "expected a number"),
        ("ALTER TABLE t ADD COLUMN n DateTime DEFAULT 'abc'", "expected a time"),
        ("ALTER TABLE t DROP PARTITION 'garbage'", "expected a date, as in '2020-01-31'"),
        ("INSERT INTO t (a, d) VALUES ('x', '2020-01-01')", "expected a whole number"),
        ("INSERT INTO t (a, d) VALUES (1e1000000, '2020-01-01')", "expected a number from"),
        ('INSERT INTO t FORMAT JSONEachRow {"a": 1e1000000, "d": "2020-01-01"}', "expected a number from"),
    ):
        error = refused(world, text)
        assert (error.code, expected in str(error)) == ("BAD_VALUE", True), error
        assert "int()" not in str(error)
        assert "isoformat" not in str(error)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ALTER TABLE t MODIFY SETTING kafka_max_block_size = 3", "of a Kafka table"),
        ("ALTER TABLE t MODIFY SETTING mutations_sync = 1", "of a statement"),
        ("ALTER TABLE t MODIFY SETTING maintenance_manager_num_threads = 1", "of the node"),
        ("ALTER TABLE t DELETE WHERE true SETTINGS parquet_compression_level = 1", "of a MergeTree table"),
        ("ALTER TABLE t ADD COLUMN v Int32", "IF NOT EXISTS"),
        ("SYSTEM STOP MERGES t BECAUSE benchmark", "BECAUSE 'a benchmark runs'"),
    ],
)
def test_hints(world: SqlWorld, text: str, hint: str) -> None:
    assert hint in refused(world, text).hint


def test_a_reason_may_stand_before_the_time(world: SqlWorld) -> None:
    assert world.run("SYSTEM STOP MERGES t BECAUSE 'x' FOR 3 minutes").message == "MERGES stopped for 180 s: default.t"


def test_collecting_is_audited_with_what_it_did(world: SqlWorld) -> None:
    world.run("SYSTEM GC t")
    assert "2 records moved to the trash, 1 files removed" in world.catalog.audit.recent(1)[0].outcome


@pytest.mark.parametrize(
    ("merges", "after", "told"),
    [
        (2, 1, "5 parts became 1 by 2 merges"),
        (0, 1, "by merges of the background"),
        (0, 5, "nothing to merge, 5 parts"),
    ],
)
def test_optimize_says_who_merged(
    world: SqlWorld, monkeypatch: pytest.MonkeyPatch, merges: int, after: int, told: str
) -> None:
    report = OptimizeReport(
        partitions=1, merges=merges, parts_before=5, parts_after=after, rows_merged=0, bytes_read=0, seconds=0.1
    )
    monkeypatch.setattr(world.maintenance, "optimize", lambda *_: report)
    assert told in world.run("OPTIMIZE TABLE t FINAL").message


def test_whole_numbers_get_narrower_only_by_a_cast() -> None:
    small, integer, long = Simple(Kind.INT16), Simple(Kind.INT32), Simple(Kind.INT64)
    assert [is_narrowed(long, integer), is_narrowed(integer, small), is_narrowed(Decimal(10, 0), integer)] == [True] * 3
    assert not any(is_narrowed(*pair) for pair in ((small, long), (integer, integer), (Decimal(9, 0), integer)))
    assert not is_narrowed(long, Decimal(5, 0))


def test_places_in_an_expression_are_not_told_as_the_statements() -> None:
    class AnalysisException(Exception):  # noqa: N818 - Spark's name
        def getCondition(self) -> str:  # noqa: N802 - Spark's name
            return "UNRESOLVED_COLUMN.WITH_SUGGESTION"

    error = AnalysisException("no such column; line 1 pos 0")
    assert "at=1:1" in str(from_spark(error, "x + 1", int, "x + 1"))
    told = str(from_spark(error, "x + 1", int, "x + 1", is_whole=False))
    assert ("at=" in told, "expression=x + 1" in told) == (False, True)


def test_double_quotes_name_columns_of_system_tables_too(world: SqlWorld) -> None:
    for text in ('"name"', "`name`", 'd."name"'):
        assert world.rows(f'SELECT {text} AS a FROM "system"."databases" d WHERE "name" = \'default\'') == [
            ("default",)
        ]
    assert refused(world, 'SELECT name FROM system.databases WHERE name = "default"').code == "UNKNOWN_COLUMN"
    assert world.dispatch.specs == []


def test_a_text_in_double_quotes_is_told_to_be_one() -> None:
    class AnalysisException(Exception):  # noqa: N818 - Spark's name
        def getCondition(self) -> str:  # noqa: N802 - Spark's name
            return "UNRESOLVED_COLUMN.WITH_SUGGESTION"

    error = from_spark(AnalysisException("x"), 'SELECT "a"', int, 'SELECT "a"')
    assert "single quotes" in error.hint


@pytest.mark.parametrize("value", ["false", "False", " off"])
def test_what_double_quotes_mean_cannot_be_changed(world: SqlWorld, value: str) -> None:
    setting = "spark.sql.ansi.doubleQuotedIdentifiers"
    error = refused(world, f"SELECT 1 SETTINGS `{setting}` = '{value}'")
    assert (error.code, "single quotes" in error.hint) == ("BAD_SETTING", True)
    assert refused(world, "SELECT 1", {setting: value}).code == "BAD_SETTING"
