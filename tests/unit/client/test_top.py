"""Frames of `tilth top` for terminals of several sizes; its statements run in a real engine. No Spark."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from tests.alarm_world import AlarmWorld
from tilth.client.top import ROWS_MAX, SECTIONS, Row, TopAnswers, TopView, bounded, frame, sorted_rows

ALARM: Row = ("critical", "the disk is full", 90.0, "make room", "a")
CONSUMERS: list[Row] = [
    ("shop.orders", 0, "reading", 1_200_000, 250.5, 4800, "kafka_max_block_size"),
    ("shop.clicks", 0, "idle", None, None, None, None),
]
ANSWERS = TopAnswers(
    url="http://a:7411",
    state="server a 1: all components work",
    is_well=True,
    rows={0: [ALARM], 1: [], 2: "no such column", 3: CONSUMERS},
    at="12:00:00 UTC",
)


def drawn(answers: TopAnswers, view: TopView | None = None, *, width: int = 160, height: int | None = None) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(frame(answers, view or TopView(section=-1), width=width, height=height))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_what_a_wide_terminal_shows() -> None:
    out = drawn(ANSWERS)
    assert out.splitlines()[0] == "tilth top  http://a:7411  server a 1: all components work"
    for text in (
        "severity  what is wrong      for  what to do  server",
        "critical  the disk is full  90 s  make room   a",
        "queries  no query runs",
        "tasks  no such column",
        "shop.orders  0  reading   1.2 million         250  80 min  kafka_max_block_size",
    ):
        assert text in out, out


@pytest.mark.parametrize(("width", "height"), [(20, 24), (40, 10), (79, 16), (200, 60)])
def test_a_frame_fits_the_terminal(width: int, height: int) -> None:
    many = TopAnswers(
        url=ANSWERS.url, state="x" * 300, rows={0: [ALARM] * 50, 1: [(1.0, "Query", "s", 0.5, 9, 9, "q" * 999)] * 50}
    )
    for section in range(len(SECTIONS)):
        lines = drawn(many, TopView(section=section), width=width, height=height).splitlines()
        assert len(lines) < max(height, 2 + 2 * len(SECTIONS))
        assert max(map(len, lines)) <= width


def test_the_chosen_section_has_the_room() -> None:
    rows = {0: [ALARM] * 50, 3: [CONSUMERS[0]] * 50}
    answers = TopAnswers(url="u", rows=rows)
    assert drawn(answers, TopView(section=3), height=40).count("shop.orders") > 20
    assert drawn(answers, TopView(section=0), height=40).count("shop.orders") == 3
    assert "11 to 20 of 50" in drawn(TopAnswers(url="u", rows={0: [ALARM] * 50}), TopView(first=10), height=25)
    full = TopAnswers(url="u", rows={0: [ALARM] * ROWS_MAX})
    assert f"of {ROWS_MAX} or more" in drawn(full, TopView(), height=25)


def test_nobody_scrolls_beyond_the_last_rows() -> None:
    many = TopAnswers(url="u", rows={0: [ALARM] * 50, 1: "no such column"})
    assert bounded(TopView(first=5), many, height=25) == TopView(first=5)
    assert bounded(TopView(first=60), many, height=25) == TopView(first=40)
    assert bounded(TopView(first=60), many, height=100) == TopView()
    assert bounded(TopView(section=1, first=1), many, height=25) == TopView(section=1)
    assert bounded(TopView(section=2, first=1), many, height=25) == TopView(section=2)


def test_rows_are_sorted_greatest_first_and_empty_cells_are_last() -> None:
    assert sorted_rows([(1, "b"), (None, "a"), (3, "c")], 0) == [(3, "c"), (1, "b"), (None, "a")]
    assert sorted_rows([(1,), (3,)], None) == [(1,), (3,)]
    assert "consumers  by Kafka table" in drawn(ANSWERS, TopView(section=3, sorted_by={3: 0}))


def test_a_server_that_is_away_is_named_and_the_last_rows_stay() -> None:
    away = TopAnswers(url="u", state="server a", rows={0: [ALARM]}, trouble="no answer\x1b[2J", at="12:00:00 UTC")
    out = drawn(away)
    assert "the server does not answer, since 12:00:00 UTC; it is tried again: no answer\\x1b[2J" in out
    assert "the disk is full" in out
    assert "waiting for the first answer" in drawn(TopAnswers(url="u"))


def test_what_others_have_named_cannot_move_the_terminal() -> None:
    row: Row = ("warning", "a\x1b[31m\nb[bold]\udcff" + "x" * 1_000_000, None, "", "")
    out = drawn(TopAnswers(url="u", rows={0: [row]}), width=100)
    assert "a\\x1b[31m\\nb[bold]\\udcff" in out
    assert len(out) < 5_000


@pytest.mark.parametrize("number", range(len(SECTIONS)), ids=[each.title for each in SECTIONS])
def test_every_statement_runs(tmp_path: Path, number: int) -> None:
    section = SECTIONS[number]
    table = AlarmWorld(tmp_path).run(section.statement, settings={"readonly": "1", "log_queries": "0"}).table
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        assert len(section.convert(row)) == len(section.columns)
    assert table.num_columns - len(section.columns) == (1 if table.column_names[-1] == "now" else 0)


def test_times_become_ages_and_estimates_shares() -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    before = now - timedelta(seconds=90)
    assert SECTIONS[0].convert(("critical", "x", before, "y", "a", now)) == ("critical", "x", 90.0, "y", "a")
    assert SECTIONS[0].convert(("critical", "x", None, "y", "a", now)) == ("critical", "x", None, "y", "a")
    assert SECTIONS[2].convert(("merge", "running", "t", before, 180.0, "w", now)) == (
        *("merge", "running", "t", 90.0, 0.5, "w"),
    )
    assert SECTIONS[2].convert(("merge", "pending", "t", before, None, None, now))[4] is None
    assert SECTIONS[3].convert(CONSUMERS[0]) == CONSUMERS[0]
