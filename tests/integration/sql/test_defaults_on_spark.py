"""Defaults: what Spark makes of them when they are given, what rows get, and what rows get that were there before."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count

import pyarrow as pa
import pytest

from tests.spark_world import SparkWorld
from tilth.ingest.views.views import constant_defaults
from tilth.model.table import Column, KafkaDef

pytestmark = pytest.mark.integration

_numbers = count(1)


def new_table(world: SparkWorld, columns: str, **settings: str) -> str:
    name = f"t{next(_numbers)}"
    world.run(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree ORDER BY k", **settings)
    return name


def column(world: SparkWorld, table: str, name: str) -> Column:
    made = world.table(table).schema.find(name)
    assert made is not None
    return made


#: Default by column as it is written, as it is kept, and its value.
CONSTANTS: dict[str, tuple[str, str, object]] = {
    "a Array(String)": ("[]", "CAST(array() AS array<string>)", []),
    "b ARRAY<TINYINT>": (
        "[1, NULL]",
        "CAST(array(CAST(1 AS tinyint), CAST(NULL AS tinyint)) AS array<tinyint>)",
        [1, None],
    ),
    "c Map(String, Int32)": ("{'a': 1}", "CAST(map('a', CAST(1 AS int)) AS map<string,int>)", [("a", 1)]),
    "d Map(String, Int32)": ("{}", "CAST(map() AS map<string,int>)", []),
    "e Tuple(x Int8, y String)": (
        "(1, 'a')",
        "CAST(named_struct('x', CAST(1 AS tinyint), 'y', 'a') AS struct<x:tinyint,y:string>)",
        {"x": 1, "y": "a"},
    ),
    "f TIMESTAMP_NTZ": ("0", "TIMESTAMP_NTZ '1970-01-01 00:00:00'", datetime(1970, 1, 1)),  # noqa: DTZ001
    # The session's zone is Berlin's; a column may have one of its own.
    "g TIMESTAMP": (
        "'2026-01-01 00:00:00'",
        "TIMESTAMP '2025-12-31 23:00:00Z'",
        datetime(2025, 12, 31, 23, tzinfo=UTC),
    ),
    "h DateTime('Asia/Shanghai')": (
        "'2026-01-01 00:00:00'",
        "TIMESTAMP '2025-12-31 16:00:00Z'",
        datetime(2025, 12, 31, 16, tzinfo=UTC),
    ),
    "i TIMESTAMP": (
        "to_timestamp('2026-01-01')",
        "TIMESTAMP '2025-12-31 23:00:00Z'",
        datetime(2025, 12, 31, 23, tzinfo=UTC),
    ),
    "j Int64": ("1 + 1", "CAST(2 AS bigint)", 2),
    "l String": ("concat('it''s', ' ${x}')", "CAST(X'69742773207b787d' AS string)", None),
    "m Array(Int32)": ("array()", "CAST(array() AS array<int>)", []),
    "n UInt8": ("255", "CAST(255 AS smallint)", 255),
    "o Binary": ("X'00ff'", "X'00ff'", b"\x00\xff"),
    "p Decimal(10, 2)": ("1.5", "CAST('1.5' AS decimal(10,2))", None),
    "q Bool": ("true", "true", True),
}


def test_a_constant_is_kept_as_a_literal_that_says_its_type(world: SparkWorld) -> None:
    columns = ", ".join(f"{name} DEFAULT {written}" for name, (written, _, _) in CONSTANTS.items())
    berlin = {"spark__sql__session__timeZone": "Europe/Berlin"}
    created = new_table(world, f"k Int32, {columns}", **berlin)
    altered = new_table(world, "k Int32")
    world.run(f"INSERT INTO {altered} VALUES (0)")
    world.run(f"ALTER TABLE {altered} {', '.join(f'ADD COLUMN {each}' for each in columns_of(columns))}", **berlin)
    for table in (created, altered):
        for name, (written, kept, _) in CONSTANTS.items():
            found = column(world, table, name.split()[0])
            assert (found.written_default, found.is_default_computed) == (written, False)
            if name[0] not in "l":
                assert found.default == kept
    world.run(f"INSERT INTO {created} (k) VALUES (1)")
    world.run(f"INSERT INTO {created} (k) SELECT 2", spark__sql__session__timeZone="Asia/Tokyo")
    world.run(f'INSERT INTO {created} FORMAT JSONEachRow {{"k": 3}}')
    world.run(f"INSERT INTO {created} (k) FORMAT CSV 4")
    world.engine.insert_arrow("shop", created, pa.table({"k": [5]}))
    rows = world.rows(f"SELECT * EXCEPT (k) FROM {created} ORDER BY k")
    assert len(rows) == 5
    for row in rows:
        assert repr(row) == repr(rows[0])
    assert [repr(row) for row in world.rows(f"SELECT * EXCEPT (k) FROM {altered}")] == [repr(rows[0])]
    for value, (name, (_, _, expected)) in zip(rows[0], CONSTANTS.items(), strict=True):
        assert expected is None or value == expected, name
    world.run(f"INSERT INTO {altered} (k) VALUES (1)")
    assert len({repr(row) for row in world.rows(f"SELECT * EXCEPT (k) FROM {altered}")}) == 1


def columns_of(text: str) -> list[str]:
    """The columns of a list, in which brackets hold commas too."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "([{<") - (letter in ")]}>")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return found


COMPUTED = (
    "now_ TIMESTAMP DEFAULT now(), second_ DateTime DEFAULT current_timestamp(), day_ Date DEFAULT current_date(), "
    "id UUID DEFAULT uuid(), ago TIMESTAMP DEFAULT now() - INTERVAL 1 HOUR, r Float64 NOT NULL DEFAULT rand()"
)


def test_what_depends_on_the_moment_is_computed_for_each_insert(world: SparkWorld) -> None:
    table = new_table(world, f"k Int32, {COMPUTED}")
    assert column(world, table, "id").is_default_computed
    world.run(f"INSERT INTO {table} (k) VALUES (1), (1)")
    world.run(
        f"INSERT INTO {table} (k) SELECT CAST(2 AS INT) FROM range(2) WHERE now() > TIMESTAMP '2020-01-01 00:00:00'"
    )
    world.run(f'INSERT INTO {table} FORMAT JSONEachRow {{"k": 3}}\n{{"k": 3, "id": null}}\n{{"k": 3}}')
    world.run(f"INSERT INTO {table} (k) FORMAT CSV 4\n4\n")
    world.engine.insert_arrow("shop", table, pa.table({"k": [5, 5]}))
    statements = world.rows(
        "SELECT k, count(DISTINCT now_), count(DISTINCT second_), count(DISTINCT day_), "
        "count(DISTINCT now_ - ago), count(DISTINCT id), count(DISTINCT r), count(*) "
        f"FROM {table} GROUP BY k ORDER BY k"
    )
    # One instant for a statement, other values for each row.
    assert [row[1:5] for row in statements] == [(1, 1, 1, 1)] * 5
    assert [row[5:] for row in statements] == [(2, 2, 2), (2, 2, 2), (2, 3, 3), (2, 2, 2), (2, 2, 2)]
    ((seconds, hours),) = world.rows(
        f"SELECT max(unix_micros(second_) % 1000000), max(now_ - ago) = INTERVAL 1 HOUR FROM {table}"
    )
    assert (seconds, hours) == (0, True)
    ((least, greatest),) = world.rows(f"SELECT min(now_), max(now_) FROM {table}")
    assert least != greatest


def test_one_statement_has_one_instant_also_beside_its_select(world: SparkWorld) -> None:
    table = new_table(world, "k Int32, given TIMESTAMP, own TIMESTAMP DEFAULT now()")
    world.run(f"INSERT INTO {table} VALUES (1, NULL, NULL)")
    world.run(
        f"INSERT INTO {table} (k, given) SELECT 2, now() FROM {table} WHERE k = 1 AND now() > TIMESTAMP '2020-01-01'"
    )
    assert world.rows(f"SELECT given = own FROM {table} WHERE k = 2") == [(True,)]


def test_rows_that_are_there_get_one_value_for_good(world: SparkWorld) -> None:
    table = new_table(world, "k Int32")
    world.run(f"INSERT INTO {table} VALUES (1), (2)")
    world.run(
        f"ALTER TABLE {table} ADD COLUMN at TIMESTAMP DEFAULT now(), ADD COLUMN id String NOT NULL DEFAULT uuid()"
    )
    before = world.rows(f"SELECT at, id FROM {table}")
    world.run(f"INSERT INTO {table} (k) VALUES (3)")
    world.run(f"ALTER TABLE {table} MODIFY COLUMN at REMOVE DEFAULT, MODIFY COLUMN id DEFAULT 'later'")
    world.run(f"INSERT INTO {table} (k) VALUES (4)")
    rows = world.rows(f"SELECT at, id FROM {table} ORDER BY k")
    assert rows[:2] == before
    assert len(set(before)) == 1
    assert rows[2][0] > before[0][0]  # type: ignore[operator]
    assert rows[3] == (None, "later")


@pytest.mark.parametrize(
    ("default", "code"),
    [
        ("Int32 DEFAULT nope(1)", "UNKNOWN_FUNCTION"),
        ("Int32 DEFAULT nope", "UNKNOWN_COLUMN"),
        ("Int32 DEFAULT 'x'", "BAD_VALUE"),
        ("Int32 DEFAULT 'x' || 'y'", "BAD_MUTATION"),
        ("Int32 DEFAULT k + rand()", "BAD_MUTATION"),
        ("Int32 DEFAULT (SELECT 1)", "BAD_MUTATION"),
        ("Int32 DEFAULT max(1)", "BAD_MUTATION"),
        ("Int8 DEFAULT 100 + 100", "BAD_QUERY"),
        ("UInt8 DEFAULT 256", "BAD_VALUE"),
        ("UInt8 DEFAULT 200 + 56", "BAD_VALUE"),
        ("Enum('a') DEFAULT 'b'", "BAD_VALUE"),
        ("UUID DEFAULT concat(uuid(), 'x')", "BAD_VALUE"),
        ("Array(Int32) DEFAULT [1, 1 + 1]", "SYNTAX_ERROR"),
        ("Array(Int32) DEFAULT {}", "BAD_VALUE"),
        ("DateTime DEFAULT '2026-01-01 00:00:00.5'", "BAD_VALUE"),
        ("TIMESTAMP DEFAULT TIMESTAMP '2026-01-01 00:00:00.1234567'", "BAD_MUTATION"),
        ("Int32 NOT NULL DEFAULT nullif(1, 1)", "BAD_MUTATION"),
        ("Int32 NOT NULL DEFAULT CAST(NULL AS INT)", "BAD_VALUE"),
        ("Int32 DEFAULT 1) OR (1", "SYNTAX_ERROR"),
        ('Int8 DEFAULT concat("k", 1)', "BAD_MUTATION"),
    ],
)
def test_a_default_is_refused_before_anything_is_made(world: SparkWorld, default: str, code: str) -> None:
    error = world.refused(f"CREATE TABLE never (k Int32, c {default}) ENGINE = MergeTree ORDER BY k")
    assert error.code == code, error
    assert world.rows("EXISTS TABLE never") == [(False,)]


def test_a_default_follows_its_column_into_a_wider_type(world: SparkWorld) -> None:
    table = new_table(world, "k Int32, c Int8 DEFAULT 7, at DateTime DEFAULT now()")
    world.run(f"ALTER TABLE {table} MODIFY COLUMN c Int64, MODIFY COLUMN at DateTime64(6)")
    assert column(world, table, "c").default == "CAST(7 AS bigint)"
    assert column(world, table, "at").default == "now()"
    world.run(f"INSERT INTO {table} (k) VALUES (1)")
    assert world.rows(f"SELECT c, at IS NOT NULL FROM {table}") == [(7, True)]


def test_a_kafka_table_has_constants_only(world: SparkWorld) -> None:
    text = (
        "CREATE TABLE {} (k Int32 DEFAULT 1 + 1, l Array(String) DEFAULT ['a'], c TIMESTAMP DEFAULT {}) ENGINE = Kafka "
        "SETTINGS kafka_broker_list = '127.0.0.1:1', kafka_topic_list = 't', kafka_group_name = 'g', "
        "kafka_format = 'JSONEachRow'"
    )
    assert world.refused(text.format("k1", "now()")).code == "BAD_DEFAULT"
    world.run(text.format("k1", "'2026-01-01 00:00:00'"))
    kafka = world.catalog.tables.get("shop", "k1")
    assert isinstance(kafka, KafkaDef)
    values = constant_defaults(world.session.new_session(pool="default"), kafka)
    assert values == {"k": 2, "l": ["a"], "c": datetime(2026, 1, 1, tzinfo=UTC)}
