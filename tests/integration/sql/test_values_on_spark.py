"""A value is kept as its type promises, or refused, whichever way it comes in; over a real Spark, one for all tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count

import pyarrow as pa
import pytest

from tests.spark_world import SparkWorld
from tilth.base.errors import TilthError
from tilth.formats.kinds.csv import CSV, CSV_WITH_NAMES
from tilth.formats.kinds.json import JSON_ROWS
from tilth.ingest import ViewError, check_view
from tilth.model.table import KafkaDef, TableDef
from tilth.model.text.literals import spark_literal
from tilth.model.wire import Summary

pytestmark = pytest.mark.integration

#: On a clock without a zone.
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001
_numbers = count(1)


def new_table(world: SparkWorld, columns: str, clauses: str = "ORDER BY tuple()") -> str:
    name = f"t{next(_numbers)}"
    world.run(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree {clauses}")
    return name


def code_of(world: SparkWorld, text: str, **settings: str) -> str:
    return world.refused(text, **settings).code


# Promises of a declared type


#: Declared types: values that fit, values that do not, and the message about those.
PROMISES = {
    "UInt8": (["0", "255"], ["256", "-1"], "from 0 to 255"),
    "UInt16": (["0", "65535"], ["65536", "-1"], "from 0 to 65535"),
    "UInt32": (["0", "4294967295"], ["4294967296", "-1"], "from 0 to 4294967295"),
    "UInt64": (["0", "18446744073709551615"], ["18446744073709551616", "-5"], "18446744073709551615"),
    "Enum8('a' = 1, 'b' = 2)": (["'a'", "'b'"], ["'c'", "''"], "one of 'a', 'b'"),
    "FixedString(2)": (["'é'", "''"], ["'éa'"], "2 bytes"),
    "VARCHAR(2)": (["'éé'", "''"], ["'abc'"], "2 characters"),
    "CHAR(2)": (["'a'", "NULL"], ["'abc'"], "2 characters"),
    "UUID": (["'61f0c404-5cb3-11e7-907b-a6006ad3dba0'", "NULL"], ["'junk'", "''"], "a UUID"),
    "Array(UInt8)": (["array(1, 2)", "array(NULL)"], ["array(1, 300)"], "from 0 to 255"),
    "Map(String, VARCHAR(1))": (["map('a', 'b')", "map()"], ["map('a', 'bc')"], "1 characters"),
}


@pytest.fixture(scope="module")
def promising(world: SparkWorld) -> str:
    """A table with a column of each such type, and rows of values that they have."""
    table = new_table(world, ", ".join(f"c{n} {declared}" for n, declared in enumerate(PROMISES)))
    for row in zip(*(good for good, _, _ in PROMISES.values()), strict=True):
        world.run(f"INSERT INTO {table} VALUES ({', '.join(row)})")
        world.run(f"INSERT INTO {table} SELECT {', '.join(row)}")
    assert world.rows(f"SELECT count(*) FROM {table}") == [(4,)]
    return table


@pytest.mark.parametrize(("place", "declared"), list(enumerate(PROMISES)))
def test_a_promise_holds_for_values_and_for_queries(
    world: SparkWorld, promising: str, place: int, declared: str
) -> None:
    good, bad, why = PROMISES[declared]
    into = f"INSERT INTO {promising} (c{place})"
    for text in bad:
        error = world.refused(f"{into} VALUES ({good[0]}), ({text})")
        assert (error.code, error.facts["row"], error.facts["column"]) == ("BAD_VALUE", "2", f"c{place}")
        assert why in str(error)
    error = world.refused(f"{into} SELECT {bad[-1]}")
    assert (error.code, error.facts["column"], why in str(error)) == ("BAD_COLUMN", f"c{place}", True)


def test_a_promise_holds_for_updates(world: SparkWorld, promising: str) -> None:
    for assignment, code in (
        ("c0 = 300", "BAD_MUTATION"),
        ("c0 = CAST(c0 + 1 AS SMALLINT)", "BAD_COLUMN"),
        ("c4 = 'c'", "BAD_MUTATION"),
        ("c8 = concat(c8, 'x')", "BAD_COLUMN"),
        ("c9 = array(CAST(-1 AS SMALLINT))", "BAD_MUTATION"),
        ("c9 = array(CAST(c0 - 1 AS SMALLINT))", "BAD_COLUMN"),
    ):
        assert code_of(world, f"UPDATE {promising} SET {assignment} WHERE true") == code, assignment
    assert world.rows(f"SELECT c0, c4 FROM {promising} ORDER BY c0") == [(0, "a"), (0, "a"), (255, "b"), (255, "b")]


def test_a_promise_holds_for_arrow_and_texts_and_the_row_is_named(world: SparkWorld) -> None:
    table = new_table(world, "k Int32, u UInt8, e Enum('x', 'y')")
    rows = pa.table({"k": [1, 2], "u": [255, 300], "e": ["x", "y"]})
    with pytest.raises(TilthError, match="row=2 column=u type=UInt8 value=300 why=expected a number from 0 to 255"):
        world.engine.insert_arrow("shop", table, rows)
    for form, body in (("CSV", b"1,1,x\n2,2,z\n"), ("JSONEachRow", b'{"u": 1, "e": "x"}\n{"u": 2, "e": "z"}')):
        with pytest.raises(TilthError, match="row=2 value=3 column=e") as caught:
            world.engine.insert_text("shop", table, input_format=form, data=body)
        assert caught.value.code == "BAD_VALUE"
    assert world.rows(f"SELECT * FROM {table}") == []


def test_a_uuid_has_one_form(world: SparkWorld) -> None:
    table = new_table(world, "id UUID, ids Array(UUID)", "UNIQUE KEY id")
    capital, small = "61F0C404-5CB3-11E7-907B-A6006AD3DBA0", "61f0c404-5cb3-11e7-907b-a6006ad3dba0"
    world.run(f"INSERT INTO {table} VALUES ('{capital}', ['{capital}', NULL])")
    world.run(f"INSERT INTO {table} SELECT '{small}', array('{capital}')")
    assert world.rows(f"SELECT * FROM {table}") == [(small, [small])]


@pytest.mark.parametrize(
    ("declared", "good", "bad"),
    [
        ("DateTime", "2026-01-01 00:00:01", "2026-01-01 00:00:01.5"),
        ("DateTime64(3)", "2026-01-01 00:00:01.123", "2026-01-01 00:00:01.1234"),
        ("DateTime64", "2026-01-01 00:00:01.123", "2026-01-01 00:00:01.1234"),
        ("TIMESTAMP", "2026-01-01 00:00:01.123456000", "2026-01-01 00:00:01.123456001"),
        ("TIMESTAMP_NTZ", "2026-01-01 00:00:01.1234560", "2026-01-01 00:00:01.1234567"),
    ],
)
def test_digits_of_a_second_are_kept_or_refused(world: SparkWorld, declared: str, good: str, bad: str) -> None:
    table = new_table(world, f"at {declared}")
    world.run(f"INSERT INTO {table} VALUES ('{good}')")
    kind = "TIMESTAMP_NTZ" if "NTZ" in declared else "TIMESTAMP"
    for statement in (
        f"INSERT INTO {table} VALUES ('{bad}')",
        f"INSERT INTO {table} VALUES ({kind} '{bad}')",
        f'INSERT INTO {table} FORMAT JSONEachRow {{"at": "{bad}"}}',
        f"INSERT INTO {table} FORMAT CSV {bad}",
        f"INSERT INTO {table} SELECT {kind} '{bad}'",
        f"UPDATE {table} SET at = {kind} '{bad}' WHERE true",
    ):
        assert world.refused(statement).kind.value == "invalid", statement
    assert world.rows(f"SELECT count(*) FROM {table}") == [(1,)]


def test_nanoseconds_of_arrow_are_not_cut(world: SparkWorld) -> None:
    table = new_table(world, "at TIMESTAMP, l ARRAY<TIMESTAMP_NTZ>")
    fine = pa.array([1_000_001], pa.timestamp("ns", "UTC"))
    whole = pa.table(
        {"at": pa.array([1_000_000], pa.timestamp("ns", "UTC")), "l": pa.array([[2_000]], pa.list_(pa.timestamp("ns")))}
    )
    with pytest.raises(TilthError, match="column=at"):
        world.engine.insert_arrow("shop", table, pa.table({"at": fine}))
    world.engine.insert_arrow("shop", table, whole)
    assert world.rows(f"SELECT unix_micros(at), l FROM {table}") == [(1000, [_EPOCH + timedelta(microseconds=2)])]


def test_arrow_does_not_round_or_cut_on_the_way_into_a_column(world: SparkWorld) -> None:
    table = new_table(world, "f FLOAT, d DECIMAL(9, 2), day DATE, b BOOLEAN")
    for name, values in (
        ("f", pa.array([1e39])),
        ("d", pa.array([1.005])),
        ("day", pa.array([_EPOCH + timedelta(hours=1)])),
        ("b", pa.array([2])),
    ):
        with pytest.raises(TilthError, match=f"column={name}"):
            world.engine.insert_arrow("shop", table, pa.table({name: values}))
    good = {"f": [float("inf")], "d": [0.1], "day": [_EPOCH], "b": [1]}
    world.engine.insert_arrow("shop", table, pa.table(good))
    assert world.rows(f"SELECT * FROM {table}") == [(float("inf"), Decimal("0.10"), _EPOCH.date(), True)]


def test_numbers_that_no_float_holds(world: SparkWorld) -> None:
    table = new_table(world, "f FLOAT, d DOUBLE")
    for statement in (
        f"INSERT INTO {table} VALUES (1e39, 1)",
        f"INSERT INTO {table} VALUES (1, 1e400)",
        f'INSERT INTO {table} FORMAT JSONEachRow {{"d": 1e400}}',
        f'INSERT INTO {table} FORMAT JSONEachRow {{"f": "1e39"}}',
        f"INSERT INTO {table} FORMAT CSV 1e39,1",
        f"INSERT INTO {table} FORMAT CSV 1,1e400",
    ):
        assert code_of(world, statement) == "BAD_VALUE", statement
    # More digits than a float has: seen by value, not by type.
    assert code_of(world, f"INSERT INTO {table} SELECT 16777217, 1") == "BAD_COLUMN"
    assert code_of(world, f"INSERT INTO {table} SELECT 1, 9007199254740993") == "BAD_COLUMN"
    world.run(f"INSERT INTO {table} SELECT 16777216, 9007199254740992")
    world.run(f"INSERT INTO {table} VALUES ('Infinity', '-inf')")
    found = world.rows(f"SELECT * FROM {table} ORDER BY f")
    assert found == [(16777216.0, 9007199254740992.0), (float("inf"), float("-inf"))]


def test_a_zone_is_that_of_times_without_one(world: SparkWorld) -> None:
    table = new_table(world, "k Int32, at DateTime('Asia/Shanghai'), l Array(DateTime64(3, 'America/New_York'))")
    at, elsewhere = "2026-01-01 08:00:00", "2025-12-31 19:00:00"
    world.run(f"INSERT INTO {table} VALUES (1, '{at}', ['{elsewhere}']), (2, '2026-01-01T00:00:00Z', [])")
    world.run(f'INSERT INTO {table} FORMAT JSONEachRow {{"k": 3, "at": "{at}", "l": ["{elsewhere}"]}}')
    world.run(f"INSERT INTO {table} FORMAT CSV 4,{at},\\N")
    instant = datetime(2026, 1, 1, tzinfo=UTC)
    found = world.rows(f"SELECT at, l FROM {table} ORDER BY k", spark__sql__session__timeZone="Europe/Berlin")
    assert [row[0] for row in found] == [instant] * 4
    assert [row[1] for row in found] == [[instant], [], [instant], None]
    ((shown,),) = world.rows(f"SHOW CREATE TABLE {table}")
    assert "DateTime('Asia/Shanghai')" in str(shown)
    assert code_of(world, "CREATE TABLE z (at DateTime('Nowhere/City')) ENGINE = MergeTree") == "BAD_DEFINITION"


def test_promises_are_widened_without_a_mutation_and_never_narrowed(world: SparkWorld) -> None:
    table = new_table(world, "k Int32, s VARCHAR(2), e Enum('a'), u UInt8, at DateTime")
    world.run(f"INSERT INTO {table} VALUES (1, 'ab', 'a', 255, '2026-01-01 00:00:00')")
    for change in ("s VARCHAR(3)", "s String", "e Enum('a', 'b')", "at DateTime64(3)", "at TIMESTAMP"):
        assert "columns changed" in world.run(f"ALTER TABLE {table} MODIFY COLUMN {change}").message
    for change in ("s VARCHAR(3)", "e Enum('b')", "at DateTime", "k UInt32", "s UUID"):
        error = world.refused(f"ALTER TABLE {table} MODIFY COLUMN {change}")
        assert (error.code, "ADD a column" in error.hint) == ("BAD_ALTER", True), error
    world.run(f"INSERT INTO {table} VALUES (2, 'abcd', 'b', 0, '2026-01-01 00:00:00.000001')")
    assert world.run(f"ALTER TABLE {table} MODIFY COLUMN u UInt16").message.startswith("mutation")
    world.run(f"INSERT INTO {table} (k, u) VALUES (3, 65535)")
    assert code_of(world, f"INSERT INTO {table} (u) VALUES (65536)") == "BAD_VALUE"
    assert world.rows(f"SELECT u FROM {table} ORDER BY k") == [(255,), (0,), (65535,)]


def test_described_are_the_declared_and_the_stored_type(world: SparkWorld) -> None:
    table = new_table(world, "u UInt8 DEFAULT 7 COMMENT 'x', l Array( LowCardinality(String) )")
    assert world.rows(f"DESCRIBE {table}") == [
        ("u", "smallint", "UInt8", True, "DEFAULT", "7", "x"),
        ("l", "array<string>", "Array( LowCardinality(String) )", True, "", None, ""),
    ]
    found = world.rows(f"SELECT type, declared_type, default_expression FROM system.columns WHERE table = '{table}'")
    assert found[0] == ("smallint", "UInt8", "CAST(7 AS smallint)")


def test_texts_of_bytes_are_shown_and_not_stored(world: SparkWorld) -> None:
    table = new_table(world, "s String")
    assert code_of(world, f"INSERT INTO {table} SELECT CAST(X'ff' AS STRING)") == "BAD_COLUMN"
    answer = world.run("SELECT CAST(X'61ff' AS STRING), array(CAST(X'ff' AS STRING))")
    assert [column[0].as_py() for column in answer.table.columns] == ["a\ufffd", ["\ufffd"]]


# Round trips

_COLUMNS = (
    "k Int32, b BOOLEAN, i TINYINT, l BIGINT, f FLOAT, d DOUBLE, s STRING, x BINARY, day DATE, at TIMESTAMP, "
    "w TIMESTAMP_NTZ, n DECIMAL(38, 18), a ARRAY<BINARY>, m MAP<STRING, ARRAY<DOUBLE>>, "
    "t STRUCT<p: TIMESTAMP, q: STRUCT<r: BINARY>>, e MAP<DATE, BOOLEAN>, u UInt64, id UUID"
)
#: Hostile values by type; the longest list is as long as the table.
_HOSTILE: list[tuple[object, ...]] = [
    (
        True,
        -128,
        -(2**63),
        1e-45,
        5e-324,
        "",
        b"",
        -(2**31),
        -(2**63),
        -(2**63),
        "-99999999999999999999.999999999999999999",
    ),
    (
        False,
        127,
        2**63 - 1,
        float("nan"),
        float("nan"),
        "\\N",
        b"\xff\x00",
        2**31 - 1,
        2**63 - 1,
        2**63 - 1,
        "0.000000000000000001",
    ),
    (True, 0, 2**53 + 1, -0.0, -0.0, "\u2028\x85\x0b\x0c,\"'\r\n", b"AAE=", -141_428, -12_219_292_800_000_001, 1, "1"),
    (False, 1, 0, float("inf"), float("-inf"), "\U0001f600${x}\\", b"\\N", 2_932_897, 253_402_300_800_000_000, -1, "0"),
    (None,) * 11,
]


def hostile_table(world: SparkWorld) -> str:
    name = new_table(world, _COLUMNS)
    table = world.catalog.tables.get("shop", name)
    assert isinstance(table, TableDef)
    rows = []
    for number, given in enumerate(_HOSTILE):
        b, _, _, _, d, s, x, day, at, _, n = given
        values = [number, *given[:-1], None if n is None else Decimal(str(n))]
        if b is None:
            values += [None, None, None, None, None, None]
        else:
            inner = {"p": at, "q": None if number == 1 else {"r": x}}
            last = [[x, None], [(s, [d, None]), ("other", None)], inner, [(day, b)], Decimal(2**64 - 1)]
            values += [*last, "61f0c404-5cb3-11e7-907b-a6006ad3dba0"]
        texts = (spark_literal(value, c.type) for value, c in zip(values, table.schema.columns, strict=True))
        rows.append(f"({', '.join(texts)})")
    world.run(f"INSERT INTO {name} VALUES {', '.join(rows)}")
    # The same by Spark's own understanding of the literals.
    world.run(f"INSERT INTO {name} SELECT * FROM VALUES {', '.join(rows)}")
    return name


def test_what_every_format_gives_every_format_takes(world: SparkWorld) -> None:
    source = hostile_table(world)
    expected = told(world, source)
    assert expected[0::2] == expected[1::2], "Spark reads the literals as we do"
    answer = world.run(f"SELECT * FROM {source}")
    summary = Summary(query_id="q", elapsed_ms=0, rows=0, message="")
    for form, name in (
        (JSON_ROWS, "JSONEachRow"),
        (CSV_WITH_NAMES, "CSVWithNames"),
        (CSV, "CSV"),
    ):
        copy = new_table(world, _COLUMNS)
        body = b"".join(form.encode(answer.table, answer.columns, summary))
        world.engine.insert_text("shop", copy, input_format=name, data=body)
        assert told(world, copy) == expected, form
    copy = new_table(world, _COLUMNS)
    world.engine.insert_arrow("shop", copy, answer.table)
    assert told(world, copy) == expected


def told(world: SparkWorld, name: str) -> list[str]:
    """Each row in Spark's words: NaN is NaN there, -0.0 is not 0.0, and all years have names."""
    columns = "b, i, l, f, d, s, x, day, at, w, n, a, m, t, e, u, id".split(", ")
    texts = ", ".join(f"CASE WHEN {c} IS NULL THEN 'null' ELSE CAST({c} AS STRING) END" for c in columns)
    return [str(row) for row in world.rows(f"SELECT k, {texts} FROM {name} ORDER BY k")]


def test_csv_of_insert_is_what_the_standard_says(world: SparkWorld) -> None:
    table = new_table(world, "k Int32, s STRING, x BINARY")
    long = "z" * 200_000
    body = f'1,"{long}",\n2,a\u2028b\x0b\x85,AAE=\n3,"x\r\n""y""",\\N\n\n4,\\N,""\n5,"\\N",\n'
    world.engine.insert_text("shop", table, input_format="CSV", data=body.encode())
    assert world.rows(f"SELECT s, x FROM {table} ORDER BY k") == [
        (long, b""),
        ("a\u2028b\x0b\x85", b"\x00\x01"),
        ('x\r\n"y"', None),
        (None, b""),
        ("\\N", b""),
    ]
    for body, told_of in (("1,a,\n2,b\n", "row=2"), ('1,"a,\n', "quote"), ("1,a,%\n", "row=1"), ("x,a,\n", "column=k")):
        error = world.refused(f"INSERT INTO {table} FORMAT CSV {body}")
        assert (error.code, told_of in str(error)) == ("BAD_VALUE", True), error


# Quotes


def test_double_quotes_name_columns_in_every_statement(world: SparkWorld) -> None:
    table = new_table(world, 's STRING, "a b" Int32 DEFAULT 1')
    world.run(f"INSERT INTO {table} VALUES ('s', 1), ('t', 2), ('u', 3)")
    assert world.run(f'DELETE FROM "{table}" WHERE "s" = \'s\'').rows_written == 1
    assert world.rows(f'SELECT "a b" FROM "shop"."{table}" ORDER BY "s"') == [(2,), (3,)]
    world.run(f'UPDATE {table} SET "a b" = "a b" + 10 WHERE "s" = \'u\'')
    assert world.rows(f"SELECT `a b` FROM {table} ORDER BY s") == [(2,), (13,)]
    for statement in (
        f'DELETE FROM {table} WHERE s = "t"',
        f'SELECT * FROM {table} WHERE s = "t"',
        f'INSERT INTO {table} SELECT "t", 1',
        f'UPDATE {table} SET s = "x" WHERE true',
        f'ALTER TABLE {table} ADD COLUMN n STRING DEFAULT upper("x")',
    ):
        error = world.refused(statement)
        assert (error.code, "single quotes" in error.hint) == ("UNKNOWN_COLUMN", True), (statement, error)
    assert "single quotes" in world.refused(f'INSERT INTO {table} VALUES ("x", 1)').hint
    assert world.rows(f"SELECT count(*) FROM {table}") == [(2,)]


def test_strings_of_queries_over_system_tables_have_the_values_that_they_have_for_spark(world: SparkWorld) -> None:
    texts = [
        r"it\'s",
        "it''s",
        r"a\\b",
        r"\0\b\n\r\t\Z",
        r"\%\_",
        r"\q\101\377",
        r"\u00e9\U0001F600\u12",
        r"\ud83d\ude00",
        "a\nb",
    ]
    columns = ", ".join(f"'{text}' AS c{number}" for number, text in enumerate([*texts, "x"]))
    (of_spark,) = world.rows(f"SELECT {columns}")
    (of_system,) = world.rows(f"SELECT {columns} FROM system.databases LIMIT 1")
    assert of_system == of_spark


def test_without_ansi_mode_double_quotes_are_refused(world: SparkWorld) -> None:
    off = {"spark__sql__ansi__enabled": "false"}
    assert world.rows("SELECT CAST('x' AS INT), '\"', `a` FROM (SELECT 1 AS `a`) -- \"b\"", **off) == [(None, '"', 1)]
    error = world.refused('SELECT "a" FROM (SELECT 1 AS `a`)', **off)
    assert (error.code, "single quotes" in error.hint) == ("BAD_QUERY", True)
    assert code_of(world, "SELECT 1", spark__sql__ansi__doubleQuotedIdentifiers="false") == "BAD_SETTING"


def test_without_ansi_mode_double_quotes_in_a_view_are_refused(world: SparkWorld) -> None:
    target = world.catalog.tables.get("shop", new_table(world, "s STRING"))
    assert isinstance(target, TableDef)
    world.run(
        "CREATE TABLE k (s STRING) ENGINE = Kafka SETTINGS kafka_broker_list = '127.0.0.1:1', kafka_topic_list = 't', "
        "kafka_group_name = 'g', kafka_format = 'JSONEachRow'"
    )
    kafka = world.catalog.tables.get("shop", "k")
    assert isinstance(kafka, KafkaDef)
    select = "SELECT s FROM shop.k WHERE \"s\" = 's'"
    session = world.session.new_session(pool="default")
    check_view(session, kafka, target, select)
    session.conf.set("spark.sql.ansi.enabled", "false")
    check_view(session, kafka, target, select.replace('"', "`"))
    with pytest.raises(ViewError, match="without ANSI mode"):
        check_view(session, kafka, target, select)
