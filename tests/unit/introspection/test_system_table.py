"""Rows of system tables: values by the names of the columns, from records and given ones."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tilth.introspection.system_table import INTEGER, TEXT, TIME, ColumnDoc, Row

COLUMNS = (
    ColumnDoc("name", TEXT, "A."),
    ColumnDoc("started", TIME, "B."),
    ColumnDoc("rows", INTEGER, "C."),
)


@dataclass(frozen=True)
class Record:
    name: str = "a"
    started_ms: int = 7
    #: A TIME is never read from this field.
    started: float = 1.5


@dataclass(frozen=True)
class Counted:
    name: str = "b"
    rows: int = 3


def test_a_value_is_the_attribute_of_the_first_record_that_has_it() -> None:
    row = Row(Record(), Counted())
    assert row.named(COLUMNS) == {"name": "a", "started": 7_000, "rows": 3}


def test_a_given_value_wins_also_when_it_is_null() -> None:
    row = Row(Record(started_ms=0), Counted(), name=None)
    assert row.named(COLUMNS) == {"name": None, "started": None, "rows": 3}


def test_what_only_a_missing_record_would_have_is_null() -> None:
    assert Row(Record(), None).named(COLUMNS) == {"name": "a", "started": 7_000, "rows": None}


def test_a_column_without_a_value_and_a_value_without_a_column_are_defects() -> None:
    with pytest.raises(AssertionError, match="rows"):
        Row(Record()).named(COLUMNS)
    with pytest.raises(AssertionError, match="size"):
        Row(Record(), Counted(), size=3).named(COLUMNS)
