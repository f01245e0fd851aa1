"""INSERT: literals are exact, queries are text, data is not looked at."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from tilth.grammar.errors import SqlSyntaxError, UnsupportedSqlError
from tilth.grammar.statements import InsertData, InsertQuery, InsertValues, Name
from tilth.model.literal import ArrayValue, MapValue, TupleValue, Value
from tilth.statements.registry import parse

T = Name(None, "t")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("+1", 1),
        ("0x1F", 31),
        ("1.50", Decimal("1.50")),
        ("-1.5", Decimal("-1.5")),
        ("1e3", 1000.0),
        ("-inf", float("-inf")),
        ("'it''s'", "it's"),
        ("NULL", None),
        ("true", True),
        ("FALSE", False),
        ("[]", ArrayValue(())),
        ("[1, [NULL]]", ArrayValue((1, ArrayValue((None,))))),
        ("{}", MapValue(())),
        ("{'a': 1, 'b': [2]}", MapValue((("a", 1), ("b", ArrayValue((2,)))))),
        ("(1, 'a')", TupleValue((1, "a"))),
        ("DATE '2024-01-31'", date(2024, 1, 31)),
        ("TIMESTAMP '2024-01-31 12:30:00.25'", datetime.fromisoformat("2024-01-31 12:30:00.25")),
        ("TIMESTAMP '2024-01-31 12:30:00Z'", datetime(2024, 1, 31, 12, 30, tzinfo=UTC)),
    ],
)
def test_literals(text: str, value: Value) -> None:
    statement = parse(f"INSERT INTO t VALUES ({text})")
    assert isinstance(statement, InsertValues)
    [[read]] = statement.rows
    assert read == value
    assert type(read) is type(value)


def test_rows_columns_and_settings() -> None:
    assert parse("insert into table db.t (a, `b c`) settings x = 1 values (1, 'a'), (2, null);") == InsertValues(
        name=Name("db", "t"), columns=("a", "b c"), settings=(("x", "1"),), rows=((1, "a"), (2, None))
    )
    assert parse("INSERT INTO t FORMAT Values (1), (2)") == InsertValues(name=T, rows=((1,), (2,)))


@pytest.mark.parametrize(
    ("text", "columns", "query"),
    [
        ("INSERT INTO t SELECT a, ';' FROM u ;", (), "SELECT a, ';' FROM u"),
        ("INSERT INTO t (a) WITH x AS (SELECT 1) SELECT * FROM x", ("a",), "WITH x AS (SELECT 1) SELECT * FROM x"),
        ("INSERT INTO t (SELECT 1)", (), "(SELECT 1)"),
        ("INSERT INTO t (`select`, from) FROM u SELECT a, b", ("select", "from"), "FROM u SELECT a, b"),
        ("INSERT INTO t TABLE u", (), "TABLE u"),
    ],
)
def test_queries_are_text(text: str, columns: tuple[str, ...], query: str) -> None:
    assert parse(text) == InsertQuery(name=T, columns=columns, query=query)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('FORMAT JSONEachRow {"a": "it\'s; -- `"}', '{"a": "it\'s; -- `"}'),
        ('FORMAT JSONEachRow\n{"a": 1}\n{"a": 2}\n', '{"a": 1}\n{"a": 2}\n'),
        ("FORMAT CSV\r\n  1,'x\n", "  1,'x\n"),
        ("FORMAT CSV;", ""),
        ("FORMAT CSV", ""),
    ],
)
def test_data_is_not_looked_at(text: str, data: str) -> None:
    statement = parse(f"INSERT INTO t (a) {text}")
    assert statement == InsertData(name=T, columns=("a",), format=text.split()[1].rstrip(";"), data=data)


@pytest.mark.parametrize(
    ("text", "message", "place", "hint"),
    [
        ("INSERT t VALUES (1)", "expected INTO", (1, 8), ""),
        ("INSERT INTO t VALUE (1)", "expected VALUES, SELECT or FORMAT", (1, 15), "did you mean VALUES?"),
        ("INSERT INTO t VALUES", r"expected '\('", (1, 21), ""),
        ("INSERT INTO t VALUES\n  (1, now())", "found 'now'", (2, 7), "use INSERT .. SELECT"),
        ("INSERT INTO t VALUES (1 + 1)", r"found '\+'", (1, 25), "use INSERT .. SELECT"),
        ("INSERT INTO t VALUES ([1 + 1])", r"found '\+'", (1, 26), "use INSERT .. SELECT"),
        ('INSERT INTO t VALUES ("a")', 'found "a"', (1, 23), "put texts in single quotes"),
        ("INSERT INTO t VALUES (1, 2), (3)", "row 2 has 1 values, expected 2", (1, 30), ""),
        ("INSERT INTO t (a, b) VALUES (1)", "row 1 has 1 values, expected 2", (1, 29), ""),
        ("INSERT INTO t (a, A) VALUES (1, 2)", "column A is there twice", (1, 19), ""),
        ("INSERT INTO t VALUES (DATE '2024-13-01')", "not a date: '2024-13-01'", (1, 28), "2024-01-31"),
        ("INSERT INTO t VALUES (TIMESTAMP 'noon')", "not a timestamp: 'noon'", (1, 33), "12:00:00"),
        ("INSERT INTO t VALUES (1) (2)", "the next row", (1, 26), ""),
        ("INSERT INTO t VALUES ({'a' 1})", "expected ':'", (1, 28), ""),
        ("INSERT INTO t VALUES (-'a')", "expected a number", (1, 24), ""),
        ("INSERT INTO t FORMAT", "expected the name of a format", (1, 21), ""),
        (f"INSERT INTO t VALUES ({'9' * 500})", "more than 400 digits", (1, 23), ""),
        (f"INSERT INTO t VALUES (1e{2**64})", "exponent of this number has more than 9 digits", (1, 23), ""),
    ],
)
def test_errors_point_at_the_culprit(text: str, message: str, place: tuple[int, int], hint: str) -> None:
    with pytest.raises(SqlSyntaxError, match=message) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == place
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("INSERT OVERWRITE t SELECT 1", "INSERT OVERWRITE"),
        ("INSERT INTO FUNCTION f() VALUES (1)", "INSERT INTO FUNCTION"),
        ("INSERT INTO t PARTITION (a = 1) SELECT 1", "PARTITION"),
        ("INSERT INTO t FROM INFILE 'x' FORMAT CSV", "FROM INFILE"),
        (f"INSERT INTO t VALUES ({'[' * 100}1{']' * 100})", "nested more than 64"),
    ],
)
def test_what_is_not_there_is_refused_by_name(text: str, culprit: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=culprit):
        parse(text)
