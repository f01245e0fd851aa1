"""Typed literals, and double quotes in the text of SQL."""

from __future__ import annotations

from decimal import Decimal as Number

import pytest

from tilth.model.text.literals import spark_literal
from tilth.model.text.quotes import double_quoted, with_backticks, with_standard_strings
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


SQL = """a "b" 'c"d"' `e"f"` -- "g"
/* "h" */ r"i" x"y" "z""w" ''"q"'"'"""


def test_double_quotes_are_found_where_they_quote() -> None:
    assert list(double_quoted(SQL)) == ['"b"', '"y"', '"z""w"', '"q"']
    assert list(double_quoted(with_backticks(SQL))) == []
    assert with_backticks('"a`b" = "c""d"') == '`a``b` = `c"d`'
    assert with_backticks("""/* a /* b */ it's "c" */ "d" = 'e'""") == """/* a /* b */ it's "c" */ `d` = 'e'"""


@pytest.mark.parametrize(
    ("text", "standard"),
    [
        (r"'it\'s' = 'it''s'", "'it''s' = 'it''s'"),
        (r"'a\\b' LIKE 'a\_\%'", r"'a\b' LIKE 'a\_\%'"),
        (r"'\n\t\q\u0041\101'", "'\n\tqAA'"),
        (r"r'\d+' -- 'it\'s", r"'\d+' -- 'it\'s"),
        (r"`a\'b` = 'c' /* '\' */", r"`a\'b` = 'c' /* '\' */"),
        (r"'\ud83d\ude00 \ud83d \UFFFFFFFF'", "'\U0001f600 \ufffd \ufffd'"),
        (r"""name = 'x\'; DROP TABLE t; --'""", "name = 'x''; DROP TABLE t; --'"),
    ],
)
def test_strings_lose_their_escapes_and_keep_their_values(text: str, standard: str) -> None:
    assert with_standard_strings(text) == standard
