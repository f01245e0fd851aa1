"""Tables of Spark SQL and Impala, written anew: each column, key and partition of the statement that goes out."""

from __future__ import annotations

import pytest

from tilth.grammar.statements import CreateTable
from tilth.migration import Difference, StatementVerdict, Translated, translate_script
from tilth.model.table import ColumnKind, TransformKind
from tilth.statements.registry import parse


def one(text: str) -> tuple[Translated, CreateTable]:
    (translated,) = translate_script(text).statements
    assert translated.statement is not None, translated
    statement = parse(translated.statement)
    assert isinstance(statement, CreateTable)
    return translated, statement


def test_columns_keep_names_types_null_and_comments() -> None:
    text = 'CREATE TABLE c.d.t (`a b` BIGINT NOT NULL COMMENT "it\'s; \\"x\\"", s STRUCT<x: INT, `y z`: ARRAY<STRING>>)'
    _, table = one(f"{text} USING delta COMMENT 'all of it'")
    assert str(table.name) == "d.t"
    first, second = table.columns
    assert (first.name, first.nullable, first.comment) == ("a b", False, 'it\'s; "x"')
    assert second.declared == "STRUCT<`x`: INT, `y z`: ARRAY<STRING>>"
    assert table.comment == "all of it"


def test_texts_in_double_quotes_do_not_become_columns() -> None:
    _, table = one("""CREATE TABLE t (a STRING DEFAULT "it's", b STRING DEFAULT concat("a", 'b')) USING delta""")
    assert [column.default for column in table.columns] == ["'it\\'s'", "concat('a', 'b')"]


def test_generated_columns_are_computed() -> None:
    translated, table = one("CREATE TABLE t (a TIMESTAMP, d DATE GENERATED ALWAYS AS (CAST(a AS DATE))) USING delta")
    assert (table.columns[1].kind, table.columns[1].default) == (ColumnKind.MATERIALIZED, "CAST(a AS DATE)")
    assert any("MATERIALIZED" in each.what for each in translated.findings if each.kind is Difference.DIFFERS)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("years(ts)", TransformKind.TO_YEAR),
        ("months(ts)", TransformKind.TO_YYYYMM),
        ("days(ts)", TransformKind.TO_DATE),
        ("hours(ts)", TransformKind.TO_START_OF_HOUR),
        ("bucket(8, id)", TransformKind.BUCKET),
        ("truncate(8, id)", TransformKind.TRUNCATE),
        ("id", TransformKind.IDENTITY),
    ],
)
def test_transforms_of_iceberg(written: str, kind: TransformKind) -> None:
    _, table = one(f"CREATE TABLE t (id BIGINT, ts TIMESTAMP) USING iceberg PARTITIONED BY ({written})")
    assert [each.kind for each in table.partition_by] == [kind]


def test_a_column_among_the_partitions_is_reported_as_any_other() -> None:
    translated, table = one("CREATE TABLE t (a INT) USING delta PARTITIONED BY (\nd VARIANT)")
    assert [column.name for column in table.columns] == ["a", "d"]
    assert [each.line for each in translated.findings if each.what == "d VARIANT is created as STRING"] == [2]


def test_a_property_with_another_unit_keeps_its_length() -> None:
    text = "CREATE TABLE t (a INT) USING iceberg TBLPROPERTIES ('history.expire.max-snapshot-age-ms' = '7200000')"
    assert one(text)[1].settings == (("tablet_history_max_age_sec", "7200"),)


def test_a_key_that_nobody_enforces_does_not_replace_rows() -> None:
    translated, table = one("CREATE TABLE t (id BIGINT NOT NULL, PRIMARY KEY (id)) USING delta")
    assert table.unique_key == ()
    assert any("PRIMARY KEY" in each.what for each in translated.findings if each.kind is Difference.LEFT_OUT)


def test_a_table_of_kudu_has_its_key_and_partitions_of_it() -> None:
    text = "CREATE TABLE t (b INT, a STRING, v DOUBLE, PRIMARY KEY (b, a)) PARTITION BY HASH (a) PARTITIONS 4, HASH (b)"
    _, table = one(f"{text} PARTITIONS 2 STORED AS KUDU")
    assert table.unique_key == table.order_by == ("b", "a")
    assert [(each.column, each.argument) for each in table.partition_by] == [("a", 4), ("b", 2)]


def test_a_key_of_kudu_that_is_not_unique_sorts_only() -> None:
    _, table = one("CREATE TABLE t (k INT, NON UNIQUE PRIMARY KEY (k)) STORED AS KUDU")
    assert (table.order_by, table.unique_key) == (("k",), ())


def test_types_of_impala_that_are_others_by_name() -> None:
    _, table = one("CREATE TABLE t (k INT PRIMARY KEY, r REAL, d DECIMAL, e DECIMAL(5)) STORED AS KUDU")
    assert [column.declared for column in table.columns] == ["INT", "DOUBLE", "DECIMAL(9, 0)", "DECIMAL(5)"]


def test_a_default_that_kudu_computes_once_is_reported() -> None:
    translated, _ = one("CREATE TABLE t (k INT PRIMARY KEY, at TIMESTAMP DEFAULT now()) STORED AS KUDU")
    assert any("computed for each INSERT: at" in each.what for each in translated.findings)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (a INT) USING delta SOMETHING NEW",
        "CREATE TABLE t (a INT USING delta",
        "CREATE TABLE t () USING delta",
        "CREATE TABLE t (a INT,) USING delta",
        "CREATE TABLE t (a INTERVAL DAY 3) USING delta",
        "CREATE TABLE t (a MAP<STRING>) USING delta",
        "CREATE TABLE t (a INT) USING delta TBLPROPERTIES ('a' = )",
        "CREATE TABLE t (a INT) USING delta PARTITIONED BY (PRIMARY KEY (a))",
        "CREATE TABLE t (a INT PRIMARY KEY) PARTITION BY HASH (a) PARTITIONS 0 STORED AS KUDU",
        "CREATE TABLE t (a INT PRIMARY KEY) PARTITION BY LIST (a) STORED AS KUDU",
        "CREATE TABLE t (a INT PRIMARY KEY, b INT) PARTITION BY HASH (nope) PARTITIONS 2 STORED AS KUDU",
    ],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    (translated,) = translate_script(text).statements
    assert translated.verdict is StatementVerdict.REFUSED
    assert translated.findings[-1].what
