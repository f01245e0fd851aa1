"""Completions at the cursor, which is `|` here."""

from __future__ import annotations

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from tests.unit.app_transport import AppTransport
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.base.clock import SystemClock
from tilth.client import Connection
from tilth.client.shell.completion import OPTIONS_MAX, SqlCompleter, options
from tilth.client.shell.names import Known, Named, Names
from tilth.client.shell.relations import TablePath
from tilth.server import build_app

KNOWN = Known(
    databases=(Named("default"), Named("shop"), Named("my db")),
    tables={
        "default": (Named("trips", "MergeTree"), Named("Taxis", "Kafka")),
        "shop": (Named("orders", "MergeTree"),),
        "system": (Named("processes", "system table"),),
        "my db": (
            Named(
                "t",
            ),
        ),
    },
    columns={
        ("default", "trips"): (Named("fare", "double"), Named("from_zone", "int"), Named("odd name", "int")),
        ("shop", "orders"): (Named("id", "bigint"), Named("total", "decimal")),
    },
    functions=(Named("abs", "function"), Named("format_number", "function")),
    settings=(
        Named("max_execution_time", "session"),
        Named("merge_with_ttl_timeout", "table"),
        Named("kafka_format", "kafka"),
    ),
)


def fitting(marked: str, *, database: str = "default", missing: list[TablePath] | None = None) -> list[str]:
    text, _, behind = marked.partition("|")
    found = options(text, text + behind, KNOWN, database, missing=(missing if missing is not None else []).append)
    return [one.text for one in found]


@pytest.mark.parametrize(
    ("marked", "first"),
    [
        ("SELECT f| FROM trips", ["fare", "from_zone", "format_number"]),
        ("SELECT 1; SELECT t.| FROM trips t", ["fare", "from_zone", "`odd name`"]),
        ("SELECT trips.fa| FROM trips", ["fare"]),
        ("SELECT * FROM shop.orders o JOIN trips t ON o.|", ["id", "total"]),
        ("SELECT * FROM shop.|", ["orders"]),
        ("SELECT * FROM shop.orders.|", ["id", "total"]),
        ("SELECT * FROM t|", ["trips", "Taxis"]),
        ("SELECT * FROM `tr|", ["`trips`"]),
        ("SELECT * FROM `my d|", ["`my db`"]),
        ("SELECT * FROM system.|", ["processes"]),
        ("USE s|", ["shop"]),
        ("SET max|", ["max_execution_time"]),
        ("SELECT 1 SETTINGS max_execution_time = 5, m|", ["max_execution_time"]),
        ("CREATE TABLE x (a INT) ENGINE = Kafka SETTINGS ka|", ["kafka_format"]),
        ("ALTER TABLE trips MODIFY SETTING merge_w|", ["merge_with_ttl_timeout"]),
        ("sel|", ["select"]),
        ("SEL|", ["SELECT"]),
        ("\\d o|", []),
        ("\\d shop.o|", ["orders"]),
        ("\\c s|", ["shop"]),
        ("\\x a|", ["auto"]),
        ("\\wat|", ["\\watch"]),
        ("\\watch 1|", []),
        ("\\nothing t|", []),
    ],
)
def test_what_fits_comes_first(marked: str, first: list[str]) -> None:
    assert fitting(marked)[: len(first)] == first
    assert first or fitting(marked) == []


@pytest.mark.parametrize(
    "marked", ["SELECT 'f|", "SELECT 1 -- f|", "SELECT /* f|", "INSERT INTO t FORMAT CSV\nSELECT '|"]
)
def test_in_strings_and_comments_nothing_is_offered(marked: str) -> None:
    assert fitting(marked) == []


def test_columns_that_are_not_known_are_read_for_later() -> None:
    missing: list[TablePath] = []
    assert "abs" in fitting("SELECT a| FROM shop.new", missing=missing)
    assert missing == [("shop", "new")]


def test_a_name_of_the_middle_fits_behind_those_of_the_beginning() -> None:
    assert fitting("SELECT zone| FROM trips")[0] == "from_zone"
    assert fitting("SELECT f| FROM trips").count("fare") == 1


def test_the_list_has_a_bound_and_long_texts_have_none() -> None:
    rooms = FakeRooms()
    names = Names(SystemClock(), Connection("http://tilth.test", transport=AppTransport(build_app(context_of(rooms)))))
    names._known = Known(tables={"default": tuple(Named(f"t{number}") for number in range(20_000))})
    completer = SqlCompleter(names, lambda: "default")

    def found(text: str, *, is_wanted: bool) -> int:
        event = CompleteEvent(completion_requested=is_wanted)
        return sum(1 for _ in completer.get_completions(Document(text), event))

    assert found("SELECT * FROM t", is_wanted=False) == OPTIONS_MAX
    assert found("SELECT * FROM ", is_wanted=False) == 0
    assert found("SELECT * FROM ", is_wanted=True) == OPTIONS_MAX
    assert found("SELECT 1," * 10_000 + " t", is_wanted=True) == 0
    assert rooms.calls == []
