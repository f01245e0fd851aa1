"""CREATE: real definitions of other systems run unchanged; what is not there is refused by name and place."""

from __future__ import annotations

import pytest

from tests.statement_texts import render
from tilth.base.errors import ErrorKind
from tilth.grammar.errors import SqlSyntaxError, UnsupportedSqlError
from tilth.grammar.statements import ColumnSpec, CreateTable, CreateView, Name
from tilth.grammar.text.script import split
from tilth.model.checks import Check, SecondDigits
from tilth.model.table import ColumnKind, Engine, Transform, TransformKind
from tilth.model.types import Kind, Simple
from tilth.statements.definitions.databases import CreateDatabase
from tilth.statements.registry import parse

LONG, INSTANT, TEXT = Simple(Kind.INT64), Simple(Kind.TIMESTAMP), Simple(Kind.STRING)

# After ByConity's guide "Importing from Kafka".
BYCONITY = """
CREATE TABLE kafka_test.cnch_kafka_consume
(
`i` Int64,
`ts` DateTime
)
ENGINE = CnchKafka()
SETTINGS
kafka_broker_list = '10.10.10.10:9092', -- replace with your own broker list
kafka_topic_list = 'my_kafka_test_topic', -- topic name to subscribe
kafka_group_name = 'hansome_boy_consume_group', -- your consumer-group name
kafka_format = 'JSONEachRow', -- always be json
kafka_row_delimiter = '\\n', -- always be \\n
kafka_num_consumers = 1;

CREATE TABLE kafka_test.cnch_store_kafka
(
`i` Int64,
`ts` DateTime
)
ENGINE = CnchMergeTree
PARTITION BY toDate(ts)
ORDER BY ts;

CREATE MATERIALIZED VIEW kafka_test.cnch_kafka_view
TO kafka_test.cnch_store_kafka
(
`i` Int64,
`ts` DateTime
)
AS
SELECT * -- you can add virtual columns here if you need
FROM kafka_test.cnch_kafka_consume
"""


def table(rest: str, columns: str = "a Int64") -> CreateTable:
    statement = parse(f"CREATE TABLE t ({columns}) {rest}")
    assert isinstance(statement, CreateTable)
    return statement


def test_byconity_triplet() -> None:
    kafka, store, view = (parse(text) for text in split(BYCONITY))
    columns = (
        ColumnSpec(name="i", type=LONG, declared="Int64"),
        ColumnSpec(name="ts", type=INSTANT, declared="DateTime", checks=(Check(SecondDigits(0)),)),
    )
    assert kafka == CreateTable(
        name=Name("kafka_test", "cnch_kafka_consume"),
        columns=columns,
        engine=Engine.KAFKA,
        settings=(
            ("kafka_broker_list", "10.10.10.10:9092"),
            ("kafka_topic_list", "my_kafka_test_topic"),
            ("kafka_group_name", "hansome_boy_consume_group"),
            ("kafka_format", "JSONEachRow"),
            ("kafka_row_delimiter", "\n"),
            ("kafka_num_consumers", "1"),
        ),
    )
    assert store == CreateTable(
        name=Name("kafka_test", "cnch_store_kafka"),
        columns=columns,
        engine=Engine.MERGE_TREE,
        partition_by=(Transform(kind=TransformKind.TO_DATE, column="ts"),),
        order_by=("ts",),
    )
    assert view == CreateView(
        name=Name("kafka_test", "cnch_kafka_view"),
        target=Name("kafka_test", "cnch_store_kafka"),
        columns=("i", "ts"),
        select="SELECT * -- you can add virtual columns here if you need\nFROM kafka_test.cnch_kafka_consume",
    )


def test_clickhouse_kafka_by_position_and_by_settings() -> None:
    by_position = table("ENGINE = Kafka('localhost:9092', 'topic', 'group1', 'JSONEachRow');")
    mixed = table("ENGINE = Kafka('localhost:9092', 'topic', 'group1') SETTINGS kafka_format = 'JSONEachRow'")
    assert by_position == mixed
    assert dict(by_position.settings) == {
        "kafka_broker_list": "localhost:9092",
        "kafka_topic_list": "topic",
        "kafka_group_name": "group1",
        "kafka_format": "JSONEachRow",
    }


def test_clickhouse_view_keeps_its_select_exactly() -> None:
    select = "SELECT toDate(toDateTime(timestamp)) AS day, level, count() as total\n   FROM queue  GROUP BY day, level"
    view = parse(f"CREATE MATERIALIZED VIEW IF NOT EXISTS consumer TO daily\n  AS {select} ; ")
    assert view == CreateView(
        name=Name(None, "consumer"), target=Name(None, "daily"), select=select, if_not_exists=True
    )


def test_bytehouse_replicated_table() -> None:
    statement = parse(
        "CREATE TABLE db.t ON CLUSTER c (d Date, k String, v UInt32) "
        "ENGINE = HaUniqueMergeTree('/clickhouse/db/t/{shard}', '{replica}') "
        "PARTITION BY d ORDER BY (k, v) PRIMARY KEY k UNIQUE KEY k SETTINGS index_granularity = 8192"
    )
    assert isinstance(statement, CreateTable)
    assert statement.engine is Engine.MERGE_TREE
    assert (statement.order_by, statement.primary_key, statement.unique_key) == (("k", "v"), ("k",), ("k",))
    assert statement.settings == (("index_granularity", "8192"),)


def test_every_clause_in_any_order() -> None:
    clauses = [
        "ENGINE = MergeTree()",
        "PARTITION BY (toYYYYMM(d), bucket(8, a))",
        "ORDER BY (a, b)",
        "PRIMARY KEY (a)",
        "UNIQUE KEY (a)",
        "TTL d + INTERVAL 3 MONTH DELETE",
        "SETTINGS x = 1, y = 'z'",
        "COMMENT 'it''s'",
    ]
    columns = "a Int64, b String, d DateTime"
    forward, backward = table(" ".join(clauses), columns), table(" ".join(reversed(clauses)), columns)
    assert forward == backward
    assert forward.ttl == "d + INTERVAL 3 MONTH"
    assert forward.comment == "it's"
    assert parse(render(forward)) == forward


def test_every_clause_of_a_column() -> None:
    text = "a Int64 NOT NULL DEFAULT greatest(1, b) + (2) CODEC(Delta, ZSTD(1)) COMMENT 'x, y', `b c` String"
    assert table("ENGINE = MergeTree", text).columns == (
        ColumnSpec(
            name="a",
            type=LONG,
            declared="Int64",
            nullable=False,
            default="greatest(1, b) + (2)",
            codec="Delta, ZSTD(1)",
            comment="x, y",
        ),
        ColumnSpec(name="b c", type=TEXT, declared="String"),
    )


@pytest.mark.parametrize(
    ("written", "default"),
    [
        ("DEFAULT NULL", "NULL"),
        ("DEFAULT 0 NULL", "0"),
        ("DEFAULT b IS NOT NULL", "b IS NOT NULL"),
        ("DEFAULT b IS NULL NOT NULL", "b IS NULL"),
        ("DEFAULT 'a, b)' COMMENT 'c'", "'a, b)'"),
        ("DEFAULT 1 + ttl", "1 + ttl"),
    ],
)
def test_where_a_default_ends(written: str, default: str) -> None:
    assert table("ENGINE = MergeTree", f"a Int64 {written}, b Int64").columns[0].default == default


@pytest.mark.parametrize("name", ["index", "constraint", "projection", "primary", "comment", "format"])
def test_words_of_the_grammar_may_be_columns(name: str) -> None:
    assert table("ENGINE = MergeTree", f"{name} Int64, b Int64").columns[0].name == name


def test_keys_inside_the_columns() -> None:
    inside = table("ENGINE = MergeTree", "a Int64, PRIMARY KEY (a), UNIQUE KEY (a)")
    assert (inside.order_by, inside.primary_key, inside.unique_key) == (("a",), ("a",), ("a",))


@pytest.mark.parametrize(
    ("written", "transforms"),
    [
        ("tuple()", []),
        ("a", [(TransformKind.IDENTITY, "a", None)]),
        ("identity(a)", [(TransformKind.IDENTITY, "a", None)]),
        ("(toDate(a), b)", [(TransformKind.TO_DATE, "a", None), (TransformKind.IDENTITY, "b", None)]),
        ("toYYYYMMDD(a)", [(TransformKind.TO_YYYYMMDD, "a", None)]),
        ("days(a)", [(TransformKind.TO_DATE, "a", None)]),
        ("date(a)", [(TransformKind.TO_DATE, "a", None)]),
        ("months(a)", [(TransformKind.TO_YYYYMM, "a", None)]),
        ("tuple(hours(a), toStartOfHour(b))", [(TransformKind.TO_START_OF_HOUR, c, None) for c in "ab"]),
        ("truncate(10, a)", [(TransformKind.TRUNCATE, "a", 10)]),
        ("truncate(a, 10)", [(TransformKind.TRUNCATE, "a", 10)]),
        ("bucket(16, `a b`)", [(TransformKind.BUCKET, "a b", 16)]),
        ("toMonday(a)", [(TransformKind.TO_MONDAY, "a", None)]),
        ("toStartOfMonth(a)", [(TransformKind.TO_START_OF_MONTH, "a", None)]),
        ("(toYear(a), toHour(b))", [(TransformKind.TO_YEAR, "a", None), (TransformKind.TO_HOUR, "b", None)]),
        ("a % 16", [(TransformKind.MODULO, "a", 16)]),
        ("(b, modulo(a, 3))", [(TransformKind.IDENTITY, "b", None), (TransformKind.MODULO, "a", 3)]),
        ("cityHash64(a) % 8", [(TransformKind.BUCKET, "a", 8)]),
    ],
)
def test_partition_by(written: str, transforms: list[tuple[TransformKind, str, int | None]]) -> None:
    assert table(f"ENGINE = MergeTree PARTITION BY {written}").partition_by == tuple(
        Transform(kind=kind, column=column, argument=argument) for kind, column, argument in transforms
    )


@pytest.mark.parametrize(
    ("rest", "culprit", "hint"),
    [
        ("ENGINE = ReplacingMergeTree(v)", "ReplacingMergeTree", "UNIQUE KEY"),
        ("ENGINE = MergTree", "MergTree", "did you mean MergeTree?"),
        ("ENGINE = Log", "Log", "known: MergeTree, CnchMergeTree"),
        ("ENGINE = MergeTree('/p', '{r}')", "MergeTree", "ORDER BY"),
        ("ENGINE = Kafka('a', 'b', 'c', 'd', 'e')", "Kafka", "SETTINGS"),
        ("ENGINE = Kafka ORDER BY a", "ORDER BY", "behind the view"),
        ("ENGINE = MergeTree AS SELECT 1", "AS SELECT", "INSERT"),
        ("ENGINE = MergeTree ORDER BY f(a)", "ORDER BY", "column of its own"),
        ("ENGINE = MergeTree ORDER BY (a, b % 2)", "ORDER BY", "column of its own"),
        ("ENGINE = MergeTree ORDER BY a % 2", "ORDER BY", "column of its own"),
        ("ENGINE = MergeTree ORDER BY (a DESC)", "DESC", "ascending"),
        ("ENGINE = MergeTree PARTITION BY toStartOfYear(a)", "toStartOfYear", "toYear"),
        ("ENGINE = MergeTree PARTITION BY cityHash64(a)", "cityHash64", "% 8"),
        ("ENGINE = MergeTree PARTITION BY toYYYYMM(toDate(a))", "toYYYYMM", "nest"),
        ("ENGINE = MergeTree TTL d + INTERVAL 1 DAY TO DISK 'x'", "TO", "age of one column"),
        ("ENGINE = MergeTree TTL d, e", "several rules", "age of one column"),
    ],
)
def test_clauses_that_are_not_there_are_refused_by_name(rest: str, culprit: str, hint: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=culprit) as caught:
        table(rest)
    assert hint in caught.value.hint
    assert caught.value.kind is ErrorKind.INVALID


def test_columns_that_are_computed_from_others() -> None:
    columns = (
        "a Int64 MATERIALIZED if(b > 0, length(c), 1) CODEC(NONE) COMMENT 'x', b UInt8 NOT NULL ALIAS c + 1, "
        "c Int8 DEFAULT a + b"
    )
    found = table("ENGINE = MergeTree ORDER BY a", columns).columns
    assert [(each.kind, each.default) for each in found] == [
        (ColumnKind.MATERIALIZED, "if(b > 0, length(c), 1)"),
        (ColumnKind.ALIAS, "c + 1"),
        (ColumnKind.DEFAULT, "a + b"),
    ]
    assert parse(render(table("ENGINE = MergeTree ORDER BY a", columns))) == table(
        "ENGINE = MergeTree ORDER BY a", columns
    )


@pytest.mark.parametrize(
    ("columns", "culprit"),
    [
        ("a Int64, CONSTRAINT c CHECK a > 1", "CONSTRAINT"),
        ("a Int64, PROJECTION p (SELECT a)", "PROJECTION"),
        ("a Int64, b EPHEMERAL 1", "EPHEMERAL"),
        ("a Int64, b Int64 EPHEMERAL", "EPHEMERAL"),
        ("a Int64, b DEFAULT a + 1", "column b without a type"),
        ("a Int64, b MATERIALIZED a + 1", "column b without a type"),
        ("a Int64, b ALIAS a + 1", "column b without a type"),
        ("a Int64 DEFAULT 1 TTL d", "TTL"),
        ("a Int64 PRIMARY KEY", "PRIMARY"),
    ],
)
def test_elements_that_are_not_there_are_refused_by_name(columns: str, culprit: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=culprit):
        table("ENGINE = MergeTree", columns)


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("CREATE OR REPLACE TABLE t (a Int8) ENGINE = MergeTree", "CREATE OR"),
        ("CREATE TEMPORARY TABLE t (a Int8)", "TEMPORARY"),
        ("CREATE VIEW v AS SELECT 1", "VIEW"),
        ("CREATE DICTIONARY d", "DICTIONARY"),
        ("CREATE TABLE t AS u", "AS"),
        ("CREATE MATERIALIZED VIEW v TO t POPULATE AS SELECT 1", "POPULATE"),
        ("CREATE MATERIALIZED VIEW v REFRESH EVERY 1 HOUR TO t AS SELECT 1", "REFRESH"),
        ("CREATE TABLE a.b.c (a Int8) ENGINE = MergeTree", "two parts"),
    ],
)
def test_kinds_that_are_not_there_are_refused_by_name(text: str, culprit: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=culprit):
        parse(text)


@pytest.mark.parametrize(
    ("text", "message", "place", "hint"),
    [
        (
            "CREATE TABEL t (a Int8)",
            "expected DATABASE, MATERIALIZED, PIPE, STORAGE, TABLE or WAREHOUSE",
            (1, 8),
            "did you mean TABLE?",
        ),
        ("CREATE TABLE t\n(a Int8)", "expected ENGINE, found the end", (2, 9), "ENGINE = MergeTree or ENGINE = Kafka"),
        ("CREATE TABLE t (\n  a Int8\n  b Int8\n)", r"expected ',' or '\)'.*found 'b'", (3, 3), ""),
        ("CREATE TABLE t (a Int8, A Int8)", "column A is there twice", (1, 25), ""),
        ("CREATE TABLE t (PRIMARY KEY a) ENGINE = MergeTree", "at least one column", (1, 32), ""),
        ("CREATE TABLE t (a Int8 DEFAULT 'x) ENGINE = MergeTree", "string is not closed", (1, 32), "close it"),
        ("CREATE TABLE t (a Int8 DEFAULT (1) ENGINE = MergeTree", "expected ',' or", (1, 54), ""),
        ("CREATE TABLE t (a Int8) ENGINE = MergeTree\nENGINE = MergeTree", "ENGINE is given twice", (2, 1), ""),
        ("CREATE TABLE t (a Int8) ENGINE = MergeTree\nORDR BY a", "found 'ORDR'", (2, 1), "did you mean ORDER?"),
        ("CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a, b", "found ','", (1, 54), "in brackets"),
        ("CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY (a, a)", "twice in ORDER BY", (1, 57), ""),
        ("CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a PRIMARY KEY b", "not the beginning", (1, 55), "first"),
        (
            "CREATE TABLE t (a Int8) ENGINE = HaUniqueMergeTree ORDER BY a",
            "needs UNIQUE KEY",
            (1, 25),
            "add UNIQUE KEY",
        ),
        ("CREATE TABLE t (a Int8) ENGINE = MergeTree PARTITION BY bucket(0, a)", "at least 1", (1, 64), ""),
        ("CREATE TABLE t (a Int8) ENGINE = Kafka SETTINGS a = b", "expected a number, a string", (1, 53), "quotes"),
        ("CREATE TABLE t (a Int8) ENGINE = Kafka SETTINGS a = 1, a = 2", "setting a is given twice", (1, 56), ""),
        ("CREATE TABLE t (a Int8) ENGINE = MergeTree('a',", "expected a string", (1, 48), ""),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "expected TO", (1, 28), "create a table first"),
        ("CREATE MATERIALIZED VIEW v TO t AS 1", "expected SELECT or WITH", (1, 36), ""),
        ("CREATE DATABASE 'x'", "expected the name of a database", (1, 17), "backticks"),
        ("CREATE DATABASE IF EXISTS x", "expected NOT", (1, 20), ""),
    ],
)
def test_errors_point_at_the_culprit(text: str, message: str, place: tuple[int, int], hint: str) -> None:
    with pytest.raises(SqlSyntaxError, match=message) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == place
    assert hint in caught.value.hint
    assert caught.value.code == "SYNTAX_ERROR"


def test_databases() -> None:
    assert parse("create database if not exists x comment 'y';") == CreateDatabase(
        database="x", if_not_exists=True, comment="y"
    )
    assert parse("CREATE DATABASE x ENGINE = Cnch") == CreateDatabase(database="x")


def test_canonical_text() -> None:
    text = (
        "CREATE TABLE db.t\n(\n    a bigint NOT NULL,\n    `order` string COMMENT 'x'\n)\nENGINE = MergeTree\n"
        "PARTITION BY (toDate(d), bucket(8, a))\nORDER BY (a, `order`)\nUNIQUE KEY a\nTTL d + INTERVAL 1 DAY\n"
        "SETTINGS x = 1, y = 'z'\nCOMMENT 'it\\'s'"
    )
    assert render(parse(text)) == text
