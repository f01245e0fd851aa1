"""ClickHouse's SELECTs as they are written for Spark, and what is refused instead of being left out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tilth.base.errors import TilthError
from tilth.clickhouse.dialect import reading, refusal_of, to_spark
from tilth.clickhouse.dialect_calls import CHANGED_CALLS
from tilth.clickhouse.dialect_words import CALLS, PARAMETERS
from tilth.grammar.errors import SqlSyntaxError, UnsupportedSqlError
from tilth.grammar.statements import CreateView, Name, Query
from tilth.model.text.zones import ZONE
from tools.dialect_cases import OVER_COLUMNS, QUERIES
from tools.dialect_constants import CONSTANTS, JSON


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (
            "SELECT * FROM t PREWHERE x > 1 WHERE y = 'c'",
            "SELECT * FROM t WHERE y = 'c' AND (x > 1 AND clickhouse_is_ordered(x))",
        ),
        ("SELECT * FROM (SELECT * FROM t PREWHERE x = 1)", "SELECT * FROM (SELECT * FROM t WHERE x = 1)"),
        ("SELECT * FROM t AS q FINAL", "SELECT * FROM t AS q"),
        ("SELECT * FROM t SAMPLE 0.1", "SELECT * FROM t TABLESAMPLE (10 PERCENT)"),
        ("SELECT * FROM t LIMIT 5, 3", "SELECT * FROM t LIMIT 3 OFFSET 5"),
        (
            "SELECT * FROM t ORDER BY x LIMIT 2 BY y",
            "SELECT * FROM t QUALIFY row_number() OVER (PARTITION BY y ORDER BY clickhouse_has_order(x), x NULLS LAST) "
            "<= 2 ORDER BY clickhouse_has_order(x), x NULLS LAST",
        ),
        # The nullability of a query's column, and of the values of most functions, is not known.
        (
            "SELECT max(x), sum(x + 1), sumIf(x, y > 2) FROM t",
            "SELECT clickhouse_max(x), clickhouse_sum(clickhouse_fits(x + 1)), "
            "sumIf(x, (y > 2 AND clickhouse_is_ordered(y))) FROM t",
        ),
        ("SELECT max(toDate(x)) FROM t", "SELECT clickhouse_max_of_computed(clickhouse_to_date(x)) FROM t"),
        ("SELECT sumIf(x, empty(y)) FROM t", "SELECT sumIf(x, empty(y)) FROM t"),
        (
            "SELECT max(x) FROM (SELECT toDate(y) AS x FROM t)",
            "SELECT clickhouse_max_of_computed(x) FROM (SELECT clickhouse_to_date(y) AS x FROM t)",
        ),
        (
            "WITH c AS (SELECT 1 AS x) SELECT max(x) FROM c",
            "WITH c AS (SELECT 1 AS x) SELECT clickhouse_max_of_computed(x) FROM c",
        ),
        (
            "SELECT max(x) OVER (), max(toDate(x)) OVER () FROM t",
            "SELECT clickhouse_window_max(x) OVER (), clickhouse_window_max(clickhouse_to_date(x)) OVER () FROM t",
        ),
        ("SELECT x::String, CAST(x, 'UInt64')", "SELECT clickhouse_to_string(x), toUInt64(x)"),
        ("SELECT x::DateTime, x::Nullable(UInt8)", "SELECT clickhouse_to_datetime(x), toUInt8(x)"),
        ("SELECT quantile(0.9)(x) FROM t", "SELECT clickhouse_quantile(x, 0.9D) FROM t"),
        (
            "SELECT quantiles(0.5, 0.9)(x) FROM t",
            "SELECT ARRAY(clickhouse_quantile(x, 0.5D), clickhouse_quantile(x, 0.9D)) FROM t",
        ),
        (
            "SELECT argMax(x, y), arrayJoin([1, 2]) FROM t",
            "SELECT argMax(x, y), explode(ARRAY(1, 2)) FROM t",
        ),
        ("SELECT minIf(x, empty(y)) FROM t", "SELECT minIf(x, empty(y)) FROM t"),
        (
            "SELECT quantilesExact(0.5, 1)(x) FROM t",
            "SELECT ARRAY(clickhouse_quantile_exact(x, 0.5D), clickhouse_quantile_exact(x, 1)) FROM t",
        ),
        ("SELECT hex(SHA256(x)), hex(x)", "SELECT clickhouse_digest_sha256(x), clickhouse_hex(x)"),
        (
            "SELECT format('{1}{{}}{0}', 'a', x)",
            "SELECT concat(clickhouse_to_string(x), '{}', 'a', left('a', 0), left(clickhouse_to_string(x), 0))",
        ),
        ("SELECT concat_ws('-', 'a', 'b')", "SELECT concatWithSeparator('-', 'a', 'b')"),
        ("SELECT JSONExtractInt(j, 'a', 'b c')", """SELECT clickhouse_json_int(j, '$[0]["a"]["b c"]')"""),
        (
            "SELECT JSONHas(j, 'a', 2)",
            """SELECT clickhouse_json_has(clickhouse_json_array_at(j, '$[0]["a"]'), '$[0]["a"][1]')""",
        ),
        ("WITH 1 AS one SELECT one + x FROM t", "SELECT clickhouse_fits_signed((1) + x) FROM t"),
        ("WITH c AS (SELECT 1 AS a) SELECT a FROM c", "WITH c AS (SELECT 1 AS a) SELECT a FROM c"),
        (
            "SELECT t + INTERVAL 24 HOUR, t - toIntervalMinute(n), t + INTERVAL 1 DAY",
            "SELECT clickhouse_fits(addHours(t, 24)), clickhouse_fits(subtractMinutes(t, n)), "
            "clickhouse_fits_signed(t + INTERVAL '1' DAY)",
        ),
        ("SELECT tuple(1, 'a').1", "SELECT named_struct('col1', 1, 'col2', 'a').col1"),
        ("SELECT x ? 1 : 2 FROM t", "SELECT IF(x, 1, 2) FROM t"),
        (
            "SELECT x FROM t WHERE x GLOBAL IN (SELECT 1)",
            "SELECT x FROM t WHERE clickhouse_member(x) IN "
            "(SELECT clickhouse_member(element) FROM (SELECT 1) AS found(element) WHERE NOT element IS NULL)",
        ),
        (
            "SELECT a FROM t GLOBAL JOIN u USING k",
            "SELECT a FROM t JOIN u USING (k) WHERE clickhouse_is_join_key(k)",
        ),
        ("SELECT i FROM t ARRAY JOIN a AS i", "SELECT i FROM t LATERAL VIEW EXPLODE(a) each_i AS i"),
        ("SELECT toStartOfMonth(d), toMonday(d)", "SELECT toStartOfMonth(d), clickhouse_fits(toMonday(d))"),
        ("SELECT position('abc', 'c')", "SELECT clickhouse_position('abc', 'c')"),
        (
            "SELECT dateAdd(HOUR, 1, t), dateSub(MINUTE, 30, t)",
            "SELECT clickhouse_fits(addHours(t, 1)), clickhouse_fits(subtractMinutes(t, 30))",
        ),
        (
            "SELECT date_trunc('hour', t), dateTrunc('week', t)",
            "SELECT clickhouse_fits(toStartOfHour(t)), clickhouse_fits(toMonday(t))",
        ),
        ("SELECT toDayOfWeek(d), arrayReverse(a)", "SELECT toDayOfWeek(d), arrayReverse(a)"),
        ("SELECT toStartOfInterval(t, INTERVAL 1 WEEK)", "SELECT clickhouse_fits(toMonday(t))"),
        ("SELECT CAST(300 AS UInt8), length(s)", "SELECT toUInt8(300), clickhouse_length(s)"),
        (
            "SELECT toDate(a) - toDate(b)",
            "SELECT clickhouse_fits_signed(minus(clickhouse_to_date(a), clickhouse_to_date(b)))",
        ),
        ("SELECT formatDateTime(t, '%F %H:%i:%S')", "SELECT formatDateTime(t, '%F %H:%i:%S')"),
        (
            "SELECT dateDiff('day', a, toDate(dateDiff('hour', b, c)))",
            "SELECT unitDiff('day', a, "
            "clickhouse_to_date(unitDiff('hour', clickhouse_as_time(b), clickhouse_as_time(c))))",
        ),
        (
            "SELECT toStartOfHour(ts), count() FROM t GROUP BY 1",
            "SELECT toStartOfHour(ts), count() FROM t GROUP BY 1",
        ),
        (
            "SELECT n AS k FROM h ORDER BY n LIMIT 1 BY k LIMIT 3",
            "SELECT n AS k FROM h QUALIFY row_number() OVER (PARTITION BY (n) ORDER BY clickhouse_has_order(n), "
            "n NULLS LAST) <= 1 ORDER BY clickhouse_has_order(n), n NULLS LAST LIMIT 3",
        ),
        (
            "SELECT arrayJoin(a) AS tag, count() FROM t GROUP BY tag",
            "SELECT each_tag.tag AS tag, count() FROM t LATERAL VIEW EXPLODE(a) each_tag AS tag "
            "GROUP BY (each_tag.tag)",
        ),
        ("WITH (SELECT max(n) FROM h) AS last SELECT last", "SELECT (SELECT clickhouse_max(n) FROM h)"),
        ("SELECT a.1 FROM t", "SELECT a.col1 FROM t"),
        ("SELECT 5 MOD 2, 7 DIV 2", "SELECT modulo(5, 2), intDiv(7, 2)"),
        (
            "SELECT toStartOfHour(ts) AS ts FROM t WHERE ts = 3 GROUP BY ts",
            "SELECT toStartOfHour(ts) AS ts FROM t WHERE (toStartOfHour(ts)) = 3 GROUP BY (toStartOfHour(ts))",
        ),
        (
            "SELECT -x AS y, -y AS z FROM t",
            "SELECT clickhouse_fits_signed(-x) AS y, clickhouse_fits_signed(-(clickhouse_fits_signed(-x))) AS z FROM t",
        ),
        # Doubles from here on stand for several whole numbers, of which each system means another.
        (
            "SELECT x < 9007199254740992.0, x < 5.5",
            "SELECT less(x, 9007199254740992.0D), x < 5.5D",
        ),
        ("SELECT x IN (0, 7)", "SELECT (x IN (0, 7) AND clickhouse_is_no_minus_zero(x))"),
        ("SELECT x IN (9007199254740993)", "SELECT (x IN (9007199254740993) AND clickhouse_is_exact_float(x))"),
        ("SELECT x NOT BETWEEN 0 AND 1", "SELECT NOT clickhouse_no_nan(x) BETWEEN 0 AND 1"),
        (
            "SELECT x BETWEEN y AND 3",
            "SELECT (greaterOrEquals(x, y) AND x <= 3)",
        ),
        ("SELECT (a, b) = (1, c)", "SELECT (a = 1 AND equals(b, c))"),
        ("SELECT nullIf(x, y)", "SELECT IF(equals(x, y), NULL, x)"),
        ("SELECT if(x, a, b)", "SELECT if(x, clickhouse_beside(a, b), b)"),
        ("SELECT CASE x WHEN 'a' THEN 1 END", "SELECT CASE clickhouse_case_of_text(x) WHEN 'a' THEN 1 END"),
        ("SELECT x::Decimal(10, 2)", "SELECT CAST(clickhouse_with_digits(x, 2) AS DECIMAL(10, 2))"),
        (
            "SELECT arrayAll(x -> x > 1, a)",
            "SELECT arrayAll(x -> coalesce((x > 1 AND clickhouse_is_ordered(x)), FALSE), a)",
        ),
        (
            "SELECT a FROM t ORDER BY (a, b) DESC, c NULLS FIRST",
            "SELECT a FROM t ORDER BY clickhouse_is_unordered(a), a DESC, clickhouse_is_unordered(b), b DESC, "
            "clickhouse_is_unordered(c) DESC, c",
        ),
        ("SELECT f FROM t ORDER BY f DESC", "SELECT f FROM t ORDER BY clickhouse_is_unordered(f), f DESC"),
        ("SELECT a = b, a <> 1 FROM t", "SELECT equals(a, b), a <> 1 FROM t"),
        ("SELECT x NOT IN (1, NULL) FROM t", "SELECT NOT x IN (1) FROM t"),
        ("SELECT 'it\\'s' AS `a b`, \"c d\"", "SELECT 'it\\'s' AS `a b`, `c d`"),
    ],
)
def test_what_is_carried_over(text: str, written: str) -> None:
    assert to_spark(text) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (
            "SELECT max(x), x + 1, count(*) FROM t",
            "SELECT clickhouse_max(x) AS `max(x)`, clickhouse_fits(x + 1) AS `x + 1`, count(*) AS `count(*)` FROM t",
        ),
        ("SELECT *, t.y, 1, 'a', toDate(d) AS z FROM t", "SELECT *, t.y, 1, 'a', clickhouse_to_date(d) AS z FROM t"),
        (
            "SELECT max(x) FROM a UNION ALL SELECT min(x) FROM b",
            "SELECT clickhouse_max(x) AS `max(x)` FROM a UNION ALL SELECT clickhouse_min(x) FROM b",
        ),
        ("SELECT length('a`b')", "SELECT clickhouse_length('a`b') AS `length('a``b')`"),
    ],
)
def test_columns_of_an_answer_are_called_what_the_user_has_written(text: str, written: str) -> None:
    assert to_spark(text, is_headed=True) == written


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("SELECT count() FROM t GROUP BY y WITH TOTALS", "WITH TOTALS"),
        ("SELECT * FROM t ORDER BY a WITH FILL", "WITH FILL"),
        ("SELECT * FROM t ASOF JOIN u ON t.a = u.a AND t.b >= u.b", "ASOF JOIN"),
        ("SELECT a FROM t ANY LEFT JOIN u USING k", "ANY JOIN"),
        ("SELECT windowFunnel(10)(x, x = 1) FROM t", "windowFunnel"),
        ("SELECT topK(3)(x) FROM t", "topK"),
        ("SELECT * FROM (SELECT 1 SETTINGS max_threads = 1)", "SETTINGS"),
        ("SELECT a FROM t LIMIT 1, 2 BY a", "LIMIT m, n BY"),
        ("SELECT a FROM t ARRAY JOIN b, c", "ARRAY JOIN"),
        ("SELECT i FROM t LEFT ARRAY JOIN a AS i", "LEFT ARRAY JOIN"),
        ("SELECT a, count() FROM t GROUP BY a WITH ROLLUP", "WITH ROLLUP"),
        ("SELECT a, count() FROM t GROUP BY CUBE(a)", "WITH CUBE"),
        ("SELECT if(x, 0.0, -0.0)", "the number -0.0"),
        ("SELECT hasAny(a, [NULL])", "an array of NULL alone"),
        ("SELECT CASE x WHEN NULL THEN 1 END", "CASE x WHEN"),
        ("SELECT (a, b) < (1, 2)", "comparison of tuples"),
        ("SELECT formatDateTime(t, '%V')", "formatDateTime"),
        ("SELECT * FROM t SAMPLE 1/10 OFFSET 1/2", "SAMPLE"),
        ("INSERT INTO t SELECT 1", "this statement"),
        ("SELECT dateAdd(t, INTERVAL 1 HOUR)", "dateAdd"),
        ("SELECT toStartOfInterval(t, INTERVAL 7 HOUR)", "toStartOfInterval"),
        ("SELECT toStartOfInterval(t, INTERVAL 2 WEEK)", "toStartOfInterval"),
        ("SELECT simpleJSONExtractString(j, 'b')", "simpleJSONExtractString"),
        ("SELECT CAST([300] AS Array(UInt8))", "CAST to Array"),
        ("SELECT toHour(toDateTime('2026-01-01 05:00:00', 'Asia/Shanghai'))", "time zone in toDateTime"),
        ("SELECT CAST(x AS DateTime('Asia/Shanghai'))", "time zone or a name in CAST"),
        ("SELECT splitByString('', 'abc')", "separator in splitByString"),
        ("SELECT splitByChar('ab', x)", "separator in splitByChar"),
        ("SELECT splitByChar(x, 'a')", "this splitByChar"),
        ("SELECT JSONExtractString(j, k)", "path in JSONExtractString"),
        ("SELECT JSONExtractString(j, 'it\\'s')", "key in JSONExtractString"),
        ("SELECT JSONExtractInt(j, 'a', -1)", "path in JSONExtractInt"),
        ("SELECT JSONExtractKeys(j)", "JSONExtractKeys"),
        ("SELECT format(x, 'a')", "format"),
        ("SELECT format('{} {0}', 'a')", "format"),
        ("SELECT format('{', 'a')", "format"),
        ("SELECT SHA256('a')", "SHA256 outside of hex"),
        ("SELECT dictGet('d', 'a', 1)", "dictGet"),
        ("SELECT arraySum(x -> x * 2, a)", "arraySum with 2 arguments"),
        ("SELECT quantileTDigest(0.5)(x) FROM t", "quantileTDigest"),
        ("SELECT quantileExact(0.5, 0.9)(x) FROM t", "quantileExact with 2 levels"),
        ("SELECT uniq(x) FROM t", "uniq"),
        ("SELECT if(x, toIntervalHour(1), toIntervalHour(2))", "an interval by itself"),
        ("SELECT INTERVAL 1 DAY", "an interval by itself"),
        ("SELECT formatDateTime(t, '%e')", "formatDateTime"),
        ("SELECT formatDateTime(t, '%M')", "formatDateTime"),
        ("SELECT nobodyKnows(x)", "nobodyKnows"),
        ("SELECT xxhash64(x)", "xxhash64"),
        ("SELECT x ILIKE 'a'", "ILIKE"),
        ("SELECT length(x, y)", "length with 2 arguments"),
        ("SELECT a FROM t EXCEPT SELECT b FROM u", "EXCEPT"),
        ("SELECT a FROM t LIMIT 3 WITH TIES", "LIMIT_OPTIONS"),
        ("SELECT * REPLACE (a + 1 AS a) FROM t", "REPLACE"),
        ("SELECT a AS b, b AS a FROM t", "names that mean each other"),
        ("SELECT x IN (y, 1) FROM t", "IN with anything but constants"),
        ("SELECT x::DateTime64(3)", "CAST to DateTime64"),
        ("SELECT a AT TIME ZONE 'UTC' FROM t", "AtTimeZone"),
        ("SELECT sum(x) FILTER (WHERE y) FROM t", "Filter"),
        ("SELECT unitDiff('day', a, b) FROM t", "unitDiff"),
        ("SELECT clickhouse_round(a) FROM t", "clickhouse_round"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=named) as caught:
        to_spark(text)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["SELECT FROM WHERE", "SELECT (1", "SELECT 'open", "", ";", "(" * 3000])
def test_what_cannot_be_read_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(TilthError) as caught:
        to_spark(text)
    assert caught.value.hint
    assert refusal_of(text) == ("", "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT * FROM t PREWHERE x > 1", "ClickHouse's dialect"),
        ("SELECT x::String, CAST(x AS Int64)", "ClickHouse's dialect"),
        ("SELECT windowFunnel(10)(x, x = 1) FROM t", "windowFunnel"),
        ("SELECT * FORM t", ""),
        ("SELECT from_json(a, '{\"prewhere\": [1]}') FROM t", ""),
        ("SELECT a b c FROM t", ""),
        ("SELECT * FROM t PREWHERE WHERE", ""),
    ],
)
def test_spark_is_told_from_clickhouse(text: str, told: str) -> None:
    message, hint = refusal_of(text)
    assert told in message
    assert bool(told) == bool(message) == bool(hint)


@pytest.mark.parametrize("index", ["n", "-1", "2", "'a'", "indexOf(a, 20)"])
def test_indexes_and_keys_are_kept_as_they_are_written(index: str) -> None:
    assert f"arrayElement(a, {index})" in to_spark(f"SELECT a[{index}] FROM t")


def test_an_outer_join_says_which_setting_it_is_read_with() -> None:
    text = "SELECT 1 FROM t LEFT JOIN u USING k"
    with reading(Query(text=text), "clickhouse") as (_, notices):
        assert any("join_use_nulls" in each for each in notices)


def test_an_error_says_where() -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        to_spark("SELECT a\nFROM t WHERE WHERE")
    assert caught.value.line == 2


def test_each_function_is_compared_with_clickhouse() -> None:
    """A name that is in no case was never compared."""
    cases = "\n".join((CONSTANTS, JSON, OVER_COLUMNS, QUERIES))
    compared = set(re.findall(r"(\w+)\(", cases))
    assert [name for name in (*CALLS, *CHANGED_CALLS, *PARAMETERS) if name not in compared] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("ansi.enabled", "false"), ("mapKeyDedupPolicy", "LAST_WIN"), ("legacy.timeParserPolicy", "LEGACY")],
)
def test_settings_with_which_answers_differ_are_refused(name: str, value: str) -> None:
    query = Query(text="SELECT toInt8('x')")
    with (
        pytest.raises(UnsupportedSqlError, match=name),
        reading(query, "clickhouse", {f"spark.sql.{name}": value}),
    ):
        pass
    with reading(query, "spark", {f"spark.sql.{name}": value}), reading(query, "clickhouse", {ZONE: "Asia/Tokyo"}):
        pass


def test_a_time_that_the_clock_skips_is_refused() -> None:
    zone = {ZONE: "Europe/Berlin"}
    query = Query(text="SELECT 1 FROM t WHERE ts > '2026-03-29 02:30:00'")
    with pytest.raises(UnsupportedSqlError, match="clock of Europe/Berlin skips"), reading(query, "clickhouse", zone):
        pass
    with (
        reading(query, "clickhouse"),
        reading(replace(query, text=query.text.replace("03-29", "10-25")), "clickhouse", zone),
    ):
        pass


def test_a_view_computes_in_utc() -> None:
    view = CreateView(name=Name("", "v"), target=Name("", "t"), select="SELECT toHour(ts) AS h FROM k")
    with (
        pytest.raises(UnsupportedSqlError, match="a view in the time zone"),
        reading(view, "clickhouse", {ZONE: "CET"}),
    ):
        pass
    with reading(view, "clickhouse", {ZONE: "Etc/UTC"}):
        pass
