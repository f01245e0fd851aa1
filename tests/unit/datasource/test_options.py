"""Options of a read: names with back-quotes, times, columns; what is refused."""

from __future__ import annotations

import pytest

from tilth.datasource.errors import SparkOptionError
from tilth.datasource.options import HOLD_SECONDS, BatchOptions, batch_options, flag, table_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("t", ("", "t")),
        ("db.t", ("db", "t")),
        ("`a.b`.`c``d`", ("a.b", "c`d")),
        ("`a.b`", ("", "a.b")),
        (" db.t ", ("db", "t")),
        ("db.`ü\x00'\"`", ("db", "ü\x00'\"")),
    ],
)
def test_a_table_is_named_as_in_spark(text: str, name: tuple[str, str]) -> None:
    assert table_name(text) == name


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a.b.c", "`a", "`a`b", "``", "a..b", "`a`.`b"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(SparkOptionError):
        table_name(text)


def test_options_are_compared_without_regard_to_case() -> None:
    given = {"path": "db.t", "Timestamp": "2026-01-31 12:00:00", "COLUMNS": "a, b", "url": "http://h:1"}
    assert batch_options(given) == BatchOptions(
        database="db",
        table="t",
        url="http://h:1",
        as_of_ms=1_769_860_800_000,
        columns=("a", "b"),
        hold_seconds=HOLD_SECONDS,
    )
    assert batch_options({"path": "t", "database": "d", "columns": '["a,b", "c\\"d"]', "version": "007"}) == (
        BatchOptions(database="d", table="t", version=7, columns=("a,b", 'c"d'))
    )
    assert batch_options({"path": "t"}).database == "default"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "not named"),
        ({"path": "t", "verson": "1"}, "option=verson"),
        ({"path": "t", "version": "1", "timestamp": "2026-01-01"}, "not both"),
        ({"path": "t", "version": "-1"}, "whole number"),
        ({"path": "t", "version": "9" * 19}, "whole number"),
        ({"path": "t", "version": "٣"}, "whole number"),
        ({"path": "t", "timestamp": "soon"}, "not a time"),
        ({"path": "t", "columns": " , "}, "no column"),
        ({"path": "t", "columns": "[1]"}, "JSON"),
        ({"path": "t", "hold_seconds": "nan"}, "seconds"),
        ({"path": "t", "hold_seconds": "-1"}, "seconds"),
        ({"path": "a.t", "database": "b"}, "two databases"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(SparkOptionError, match=said):
        batch_options(given)


def test_a_flag_is_true_or_false() -> None:
    assert [flag(given, "f") for given in ({}, {"f": "TRUE"}, {"f": "false"})] == [False, True, False]
    with pytest.raises(SparkOptionError):
        flag({"f": "1"}, "f")
