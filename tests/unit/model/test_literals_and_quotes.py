"""Typed literals, defaults of older versions, and double quotes in the text of SQL."""

from __future__ import annotations

from decimal import Decimal as Number

import msgspec
import pytest

from tilth.model.table import Column
from tilth.model.text.literals import spark_literal
from tilth.model.text.quotes import double_quoted, with_backticks, with_single_quotes
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct

INT, TEXT = Simple(Kind.INT32), Simple(Kind.STRING)
INSTANT, CLOCK, DAY = Simple(Kind.TIMESTAMP), Simple(Kind.TIMESTAMP_NTZ), Simple(Kind.DATE)


@pytest.mark.parametrize(
    ("value", "data_type", "text"),
    [
        (None, INT, "CAST(NULL AS int)"),
        (True, Simple(Kind.BOOLEAN), "true"),
        (-5, Simple(Kind.INT8), "CAST(-5 AS tinyint)"),
        (-0.0, Simple(Kind.FLOAT64), "CAST('-0.0' AS double)"),
        (float("-inf"), Simple(Kind.FLOAT32), "CAST('-Infinity' AS float)"),
        ("plain é", TEXT, "'plain é'"),
        ("it's", TEXT, "CAST(X'69742773' AS string)"),
        ("${x}", TEXT, "CAST(X'247b787d' AS string)"),
        (b"\x00\xff", Simple(Kind.BINARY), "X'00ff'"),
        (0, DAY, "DATE '1970-01-01'"),
        (2_932_897, DAY, "CAST('+10000-01-01' AS date)"),
        (500_000, INSTANT, "TIMESTAMP '1970-01-01 00:00:00.5Z'"),
        (0, CLOCK, "TIMESTAMP_NTZ '1970-01-01 00:00:00'"),
        (Number("1.50"), Decimal(10, 2), "CAST('1.50' AS decimal(10,2))"),
        ([], Array(TEXT), "CAST(array() AS array<string>)"),
        ([("a", None)], Map(TEXT, INT), "CAST(map('a', CAST(NULL AS int)) AS map<string,int>)"),
        ({"a": 1}, Struct((Field("a", INT),)), "CAST(named_struct('a', CAST(1 AS int)) AS struct<a:int>)"),
    ],
)
def test_a_literal_says_its_type(value: object, data_type: DataType, text: str) -> None:
    assert spark_literal(value, data_type) == text


@pytest.mark.parametrize(
    ("text", "data_type", "read"),
    [
        ("[]", Array(TEXT), "CAST(array() AS array<string>)"),
        ("[1, 2]", Array(INT), "CAST(array(CAST(1 AS int), CAST(2 AS int)) AS array<int>)"),
        ("[NULL, ['a,]']]", Array(Array(TEXT)), None),
        ("{}", Map(TEXT, INT), "CAST(map() AS map<string,int>)"),
        ("{'a': 1}", Map(TEXT, INT), "CAST(map(CAST('a' AS string), CAST(1 AS int)) AS map<string,int>)"),
        ("(1, 'a')", Struct((Field("x", INT), Field("y", TEXT))), None),
        ("0", CLOCK, "TIMESTAMP_NTZ '1970-01-01 00:00:00'"),
        ("1.5", INSTANT, "TIMESTAMP '1970-01-01 00:00:01.5Z'"),
        ("'2026-01-01 00:00:00'", INSTANT, "TIMESTAMP '2026-01-01 00:00:00Z'"),
        ("TIMESTAMP '2026-01-01 00:00:00+01:00'", INSTANT, "TIMESTAMP '2025-12-31 23:00:00Z'"),
        ("'2026-W01-1'", DAY, "DATE '2025-12-29'"),
        ("- inf", Simple(Kind.FLOAT64), "CAST('-Infinity' AS double)"),
        ('"it\'s"', TEXT, "'it\\'s'"),
        # What Spark reads as it is, and what nobody can read, stays.
        ("0", INT, "0"),
        ("'x'", TEXT, "'x'"),
        ("now()", INSTANT, "now()"),
        ("concat('a', 'b')", TEXT, "concat('a', 'b')"),
        ("NULL", Array(INT), "NULL"),
        ("[1", Array(INT), "[1"),
        ("{1}", Map(INT, INT), "{1}"),
        ("'soon'", INSTANT, "'soon'"),
        ("[" * 100, Array(INT), "[" * 100),
    ],
)
def test_a_default_of_an_older_version_is_read(text: str, data_type: DataType, read: str | None) -> None:
    record = {"id": 1, "name": "c", "type": msgspec.to_builtins(data_type), "default": text}
    column = msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=Column)
    assert column.written_default == text
    assert column.is_default_computed is None
    if read is None:
        assert column.default is not None
        assert column.default.startswith("CAST(")
    else:
        assert column.default == read
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(column), type=Column)
    assert again == column


def test_a_record_of_an_older_version_has_no_promises() -> None:
    record = {"id": 1, "name": "c", "type": msgspec.to_builtins(INT)}
    column = msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=Column)
    assert column == Column(id=1, name="c", type=INT)
    assert (column.checks, column.zones, column.declared_type, column.default) == ((), (), "int", None)


SQL = """a "b" 'c"d"' `e"f"` -- "g"
/* "h" */ r"i" x"y" "z""w" ''"q"'"'"""


def test_double_quotes_are_found_where_they_quote() -> None:
    assert list(double_quoted(SQL)) == ['"b"', '"y"', '"z""w"', '"q"']
    assert list(double_quoted(with_backticks(SQL))) == []
    assert with_backticks('"a`b" = "c""d"') == '`a``b` = `c"d`'
    assert with_single_quotes('"it\'s" = "a""b" OR "\\""') == "'it\\'s' = 'a\"b' OR '\"'"
