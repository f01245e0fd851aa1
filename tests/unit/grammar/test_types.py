"""Type names of ClickHouse and Spark, to the types that are stored."""

from __future__ import annotations

import pytest

from tilth.grammar.errors import SqlSyntaxError, UnsupportedSqlError
from tilth.grammar.statements import ColumnSpec, CreateTable
from tilth.model.types import DataType, spark_name
from tilth.statements.registry import parse


def column(text: str) -> ColumnSpec:
    table = parse(f"CREATE TABLE t (c {text}) ENGINE = MergeTree")
    assert isinstance(table, CreateTable)
    return table.columns[0]


def stored(text: str) -> DataType:
    return column(text).type


@pytest.mark.parametrize(
    ("written", "spark"),
    [
        ("Int8", "tinyint"),
        ("Int16", "smallint"),
        ("Int32", "int"),
        ("Int64", "bigint"),
        ("UInt8", "smallint"),
        ("UInt16", "int"),
        ("UInt32", "bigint"),
        ("UInt64", "decimal(20,0)"),
        ("Float32", "float"),
        ("Float64", "double"),
        ("String", "string"),
        ("FixedString(16)", "string"),
        ("UUID", "string"),
        ("Bool", "boolean"),
        ("Date", "date"),
        ("Date32", "date"),
        ("DateTime", "timestamp"),
        ("DateTime('Europe/Berlin')", "timestamp"),
        ("DateTime64(3)", "timestamp"),
        ("DateTime64(6, 'UTC')", "timestamp"),
        ("Decimal(18, 4)", "decimal(18,4)"),
        ("Decimal(9)", "decimal(9,0)"),
        ("Decimal32(2)", "decimal(9,2)"),
        ("Decimal64(2)", "decimal(18,2)"),
        ("Decimal128(2)", "decimal(38,2)"),
        ("Nullable(String)", "string"),
        ("LowCardinality(Nullable(String))", "string"),
        ("Array(Nullable(UInt8))", "array<smallint>"),
        ("Map(String, Array(Int32))", "map<string,array<int>>"),
        ("Tuple(a Int8, b Tuple(c String))", "struct<a:tinyint,b:struct<c:string>>"),
        ("Tuple(Int8, String)", "struct<_1:tinyint,_2:string>"),
        ("Enum8('a' = 1, 'b' = -2)", "string"),
        ("Enum('a', 'b')", "string"),
        ("tinyint", "tinyint"),
        ("BIGINT", "bigint"),
        ("binary", "binary"),
        ("varchar(10)", "string"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("decimal(10,2)", "decimal(10,2)"),
        ("array<map<string,array<int>>>", "array<map<string,array<int>>>"),
        ("struct<a:int, `b c`: array<int>>", "struct<a:int,`b c`:array<int>>"),
    ],
)
def test_both_systems_names_are_known(written: str, spark: str) -> None:
    assert spark_name(stored(written)) == spark
    assert stored(spark) == stored(written), "the stored type's own name reads back"


@pytest.mark.parametrize(
    ("written", "nullable"),
    [
        ("Int8", True),
        ("Nullable(Int8)", True),
        ("Int8 NULL", True),
        ("Int8 NOT NULL", False),
        ("Array(Nullable(Int8)) NOT NULL", False),
        ("Int8 DEFAULT 1 NOT NULL", False),
    ],
)
def test_columns_are_nullable_unless_said(written: str, nullable: bool) -> None:
    assert column(written).nullable is nullable


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Nested(a Int8)", "Nested"),
        ("IPv4", "IPv4"),
        ("IPv6", "IPv6"),
        ("JSON", "JSON"),
        ("Int128", "Int128"),
        ("UInt256", "UInt256"),
        ("Array(AggregateFunction(sum, UInt8))", "AggregateFunction"),
        ("IntervalDay", "IntervalDay"),
        ("DateTime64(9)", r"DateTime64\(9\)"),
        ("Decimal(39, 2)", r"decimal\(39,2\)"),
        ("Decimal(5, 6)", r"decimal\(5,6\)"),
        ("Decimal32(10)", "10 behind the point"),
        ("Map(Nullable(String), Int8)", "keys of a map"),
        ("Map(Map(Int8, Int8), Int8)", "key of a map"),
        ("Array(" * 40 + "Int8" + ")" * 40, "nested more than"),
    ],
)
def test_what_cannot_be_mapped_is_refused_by_name(written: str, name: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=name) as caught:
        column(written)
    assert caught.value.code == "UNSUPPORTED_SYNTAX"


@pytest.mark.parametrize(
    ("written", "message", "column_number", "hint"),
    [
        ("Strng", "unknown type Strng", 19, "did you mean String?"),
        ("Array(Int8, b", r"expected '\)'", 29, ""),
        ("Map(String)", "expected ','", 29, ""),
        ("Array Int8", r"expected '\(' or '<'", 25, ""),
        ("Tuple(a Int8, a Int8)", "field a is there twice", 33, ""),
        ("Nullable(Int8) NOT NULL", "column c is Nullable and NOT NULL", 34, "leave one of them out"),
        ("Enum8(1)", "expected a name of the enum", 25, ""),
        ("123", "expected a type", 19, ""),
    ],
)
def test_errors_point_at_the_culprit(written: str, message: str, column_number: int, hint: str) -> None:
    with pytest.raises(SqlSyntaxError, match=message) as caught:
        column(written)
    assert (caught.value.line, caught.value.column, caught.value.hint) == (1, column_number, hint)
