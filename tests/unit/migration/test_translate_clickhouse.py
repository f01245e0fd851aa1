"""Statements of ClickHouse and ByConity, and hostile scripts of any system."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.long import examples
from tilth.grammar.errors import UnsupportedSqlError
from tilth.grammar.text.cursor import Cursor
from tilth.grammar.types import parse_type
from tilth.migration import Difference, ForeignSystem, StatementVerdict, Translated, translate_script
from tilth.migration.clickhouse_types import REPLACED
from tilth.statements.registry import parse

COLUMNS = 10_000


def one(text: str, source: ForeignSystem | None = None) -> Translated:
    (translated,) = translate_script(text, source).statements
    return translated


def found(translated: Translated, kind: Difference) -> list[str]:
    return [each.what for each in translated.findings if each.kind is kind]


def test_a_column_that_is_left_out_leaves_no_comma() -> None:
    for columns in (
        "e Int8 EPHEMERAL, a Int8, b Int8",
        "a Int8, e Int8 EPHEMERAL, b Int8",
        "a Int8, b Int8, e Int8 EPHEMERAL",
        "PROJECTION p (SELECT 1), e Int8 EPHEMERAL, a Int8, b Int8",
        "a Int8, PROJECTION p (SELECT 1), e Int8 EPHEMERAL, b Int8",
        "a Int8, b Int8, PROJECTION p (SELECT 1), e Int8 EPHEMERAL",
    ):
        translated = one(f"CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY a")
        assert translated.statement is not None, translated
        assert " ".join(translated.statement.split()).startswith("CREATE TABLE t ( a Int8, b Int8") or (
            "".join(translated.statement.split()).startswith("CREATETABLEt(aInt8,bInt8)")
        )


def test_a_table_of_columns_that_are_all_left_out_is_refused() -> None:
    assert (
        one("CREATE TABLE t (e Int8 EPHEMERAL) ENGINE = MergeTree ORDER BY tuple()").verdict is StatementVerdict.REFUSED
    )


def test_names_that_are_words_of_clauses_are_columns() -> None:
    text = "CREATE TABLE t (ttl DateTime, settings Int8, comment String, time Int32, engine JSON) ENGINE = MergeTree"
    text += " ORDER BY (settings, ttl) TTL ttl + INTERVAL 1 DAY SETTINGS bogus = 1"
    translated = one(text)
    assert translated.statement == (
        "CREATE TABLE t (ttl DateTime, settings Int8, comment String, time Int32, engine String) ENGINE = MergeTree"
        " ORDER BY (settings, ttl) TTL ttl + INTERVAL 1 DAY"
    )
    assert found(translated, Difference.LEFT_OUT) == ["setting bogus = 1"]


def test_fields_named_like_types_stay() -> None:
    text = "CREATE TABLE t (a Tuple(time Int32, json String, ipv4 IPv4)) ENGINE = MergeTree ORDER BY tuple()"
    translated = one(text)
    assert translated.statement == text.replace("ipv4 IPv4", "ipv4 String")


@pytest.mark.parametrize("name", REPLACED)
def test_a_type_that_is_replaced_is_none_of_the_grammar_and_its_replacement_is(name: str) -> None:
    with pytest.raises(UnsupportedSqlError):
        parse_type(Cursor(name))
    replacement = Cursor(REPLACED[name].type)
    parse_type(replacement)
    assert replacement.at_end


def test_columns_without_nullable_stay_not_null() -> None:
    translated = one("CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a")
    assert ("data_type_default_nullable", "0") in translated.settings
    assert one("CREATE TABLE t (a INT) USING delta").settings == ()


def test_names_of_types_that_are_others_in_clickhouse_are_reported() -> None:
    translated = one("CREATE TABLE t (a TIMESTAMP, b VARCHAR(3)) ENGINE = MergeTree ORDER BY a")
    differs = found(translated, Difference.DIFFERS)
    assert "TIMESTAMP has microseconds: a" in differs
    assert "VARCHAR(n) and CHAR(n) hold at most n characters, and longer values are refused: b" in differs


def test_columns_that_an_alter_adds_are_reported_like_those_of_a_table() -> None:
    translated = one("ALTER TABLE t ADD COLUMN a UInt64, ADD COLUMN b LowCardinality(String)", ForeignSystem.CLICKHOUSE)
    assert translated.verdict is StatementVerdict.UNCHANGED
    assert "UInt64 is stored as decimal(20,0): a" in found(translated, Difference.DIFFERS)


def test_a_secret_of_a_setting_is_in_no_finding() -> None:
    text = "CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a SETTINGS my_password = 'hunter2'"
    translated = one(text)
    assert found(translated, Difference.LEFT_OUT) == ["setting my_password = .."]


def test_several_rules_of_a_ttl_keep_the_one_that_deletes() -> None:
    text = "CREATE TABLE t (d Date, k Int8) ENGINE = MergeTree ORDER BY k TTL d + INTERVAL 1 DAY TO VOLUME 'c', "
    translated = one(text + "d + INTERVAL 9 DAY DELETE")
    assert translated.statement is not None
    assert translated.statement.endswith("TTL d + INTERVAL 9 DAY DELETE")


def test_two_rules_that_delete_are_left_out_rather_than_chosen_from() -> None:
    text = "CREATE TABLE t (d Date, k Int8) ENGINE = MergeTree ORDER BY k TTL d + INTERVAL 1 DAY, d + INTERVAL 9 DAY"
    assert found(one(text), Difference.LEFT_OUT) == ["TTL d + INTERVAL 1 DAY, d + INTERVAL 9 DAY"]


def test_what_is_not_closed_refuses_the_rest_and_names_its_line() -> None:
    for broken in ("CREATE TABLE t (a String DEFAULT 'x", "CREATE TABLE `t (a Int8)", "/* open"):
        report = translate_script(f"CREATE DATABASE d;\nUSE d;\n\n{broken}\n; CREATE TABLE u (a Int8);")
        assert [each.verdict for each in report.statements] == [
            StatementVerdict.UNCHANGED,
            StatementVerdict.UNCHANGED,
            StatementVerdict.REFUSED,
        ]
        assert report.statements[2].line == 4
        assert "nothing behind it is read" in report.statements[2].findings[0].why


def test_nothing_is_in_an_empty_script() -> None:
    for text in ("", " ;;\n; ", "-- only a comment", "/* and */ -- another"):
        assert translate_script(text).statements == ()
        assert translate_script(text).is_same


def test_a_script_of_another_system_than_was_said_is_refused() -> None:
    translated = one("CREATE TABLE t (a INT) USING delta", ForeignSystem.CLICKHOUSE)
    assert translated.verdict is StatementVerdict.REFUSED
    assert translated.findings[0].instead == "--from delta, or leave --from out"
    assert one("CREATE TABLE t (a INT) USING iceberg", ForeignSystem.DELTA).verdict is StatementVerdict.CHANGED


def test_without_a_mark_the_statement_is_of_the_system_that_was_said() -> None:
    assert one("CREATE TABLE t (a INT) PARTITIONED BY (a)", ForeignSystem.DELTA).verdict is StatementVerdict.CHANGED
    assert one("CREATE TABLE t (a INT) PARTITIONED BY (a)").verdict is StatementVerdict.REFUSED


def test_replacing_in_a_script_of_byconity_is_reported_as_well() -> None:
    translated = one("CREATE TABLE t (a Int8) ENGINE = ReplacingMergeTree ORDER BY a", ForeignSystem.BYCONITY)
    assert [each[:14] for each in found(translated, Difference.DIFFERS)] == ["UNIQUE KEY (a)"]


def test_a_key_that_is_unique_in_the_table_is_not_said_to_be_one_of_its_partition() -> None:
    text = "CREATE TABLE t (a Int8, d Date) ENGINE = CnchMergeTree PARTITION BY d ORDER BY a UNIQUE KEY a SETTINGS "
    said = "a key is unique within its partition"
    assert said in found(one(f"{text}partition_level_unique_keys = 1"), Difference.NOTE)
    assert said not in found(one(f"{text}partition_level_unique_keys = 0"), Difference.NOTE)


def test_a_script_whose_settings_change_definitions_is_not_the_same() -> None:
    table = "CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY tuple()"
    for setting in ("data_type_default_nullable = 1", "`dialect_type` = 'MYSQL'", "TIME ZONE 'Asia/Tokyo'"):
        assert not translate_script(f"SET {setting}; {table}").is_same, setting
    assert translate_script(f"SET max_threads = 1; {table}").is_same


def test_a_table_of_very_many_columns() -> None:
    columns = ",\n".join(f"c{number} IPv4 CODEC(ZSTD(1)) TTL at + INTERVAL 1 DAY" for number in range(COLUMNS))
    translated = one(f"CREATE TABLE wide (at DateTime,\n{columns}) ENGINE = MergeTree ORDER BY at")
    assert translated.verdict is StatementVerdict.CHANGED
    assert len(found(translated, Difference.DIFFERS)) >= COLUMNS
    assert max(each.line for each in translated.findings) == COLUMNS + 1


def test_a_statement_that_ends_early_is_refused() -> None:
    for text in ("CREATE OR", "CREATE", "ATTACH TABLE", "CREATE TABLE t (", "CREATE TABLE t (a DateTime64("):
        assert one(text).verdict is StatementVerdict.REFUSED, text


def test_a_nest_of_brackets_is_refused_and_no_crash() -> None:
    deep = 5000
    for text in (
        f"CREATE TABLE t (a {'Array(' * deep}Int8{')' * deep}) ENGINE = MergeTree ORDER BY tuple()",
        f"CREATE TABLE t (a {'ARRAY<' * deep}INT{'>' * deep}) USING delta",
        f"CREATE TABLE t (a Int8 DEFAULT {'(' * deep}1{')' * deep}) ENGINE = MergeTree ORDER BY (a + 1)",
        f"CREATE MATERIALIZED VIEW v TO t AS SELECT {'(' * deep}1{')' * deep} FROM k",
    ):
        assert one(text).verdict is StatementVerdict.REFUSED


PIECES = st.sampled_from(
    [
        *("CREATE TABLE", "OR REPLACE", "t", "d.t", "`a.b;c`", '"q"', "(", ")", ",", ";", "'", "''", "'x;'", "\\"),
        *("CREATE", "OR"),
        *("ENGINE =", "MergeTree", "ReplacingMergeTree(v)", "Kafka", "ORDER BY", "PARTITION BY", "TTL", "SETTINGS"),
        *("USING delta", "USING iceberg", "STORED AS KUDU", "PARTITIONED BY", "PRIMARY KEY", "HASH", "PARTITIONS"),
        *("a Int8", "b IPv4", "c Nested(x Int8)", "s STRUCT<a: INT>", "DEFAULT", "GENERATED ALWAYS AS", "COMMENT"),
        *("PROJECTION p", "INDEX i", "CONSTRAINT c CHECK", "CODEC(", "EPHEMERAL", "1", "= 1", "--", "/*", "*/", "\n"),
        *("CREATE MATERIALIZED VIEW", "TO", "AS SELECT", "FROM", "ALTER TABLE", "ADD COLUMN", "\x00", "\ud800", "é"),
    ]
)


@given(st.lists(PIECES, max_size=40), st.sampled_from([None, *ForeignSystem]))
@settings(max_examples=examples(400))
def test_any_text_has_a_report_and_only_read_statements_go_out(pieces: list[str], source: ForeignSystem | None) -> None:
    for translated in translate_script(" ".join(pieces), source).statements:
        if translated.statement is not None:
            parse(translated.statement)
        assert (translated.verdict is StatementVerdict.REFUSED) == any(
            each.kind is Difference.REFUSED for each in translated.findings
        )
