"""Oracles and rules of docs/policies/part-gc.md."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.oracle import Row, names, number, oracle
from tilth.base.hybrid import pack
from tilth.base.rand import new_rng
from tilth.maintenance.gc.policy import (
    Cutoff,
    GcEntry,
    GcHold,
    TrashRecord,
    TrashState,
    after_trash_round,
    cutoff,
    deleters,
    is_round_due,
    judge_empty_partition,
    judge_entry,
    judge_trash,
    kept_ms,
    move_pause,
    plan_moves,
    trash_limit,
    trash_pause,
)
from tilth.maintenance.table.settings import GcSettings

NOW_MS = 1_700_000_000_000
SETTINGS = GcSettings()
HOUR = 3600.0


def ago(seconds: float) -> int:
    return pack(NOW_MS - int(seconds * 1000))


def limit(*, oldest_txn: int | None = None, oldest_reader: int | None = None, ahm: int | None = None) -> Cutoff:
    return cutoff(now_ms=NOW_MS, oldest_txn=oldest_txn, oldest_reader=oldest_reader, ahm=ahm, settings=SETTINGS)


def time_of(cell: str) -> int | None:
    """Of a cell that says how many seconds ago."""
    return None if cell == "none" else ago(number(cell))


def entry(end_ts: int | None, name: str = "a_1_1_0_1") -> GcEntry:
    return GcEntry(name=name, commit_ts=1, end_ts=end_ts)


@pytest.mark.parametrize("row", oracle("part-gc", "Phase 1"))
def test_what_moves_to_the_trash(row: Row) -> None:
    held = limit(oldest_txn=time_of(row["oldest transaction (s ago)"]), ahm=time_of(row["mark (s ago)"]))
    assert judge_entry(entry(time_of(row["end (s ago)"])), held).goes is (row["moves"] == "yes")


def test_oldest_transaction_holds_back() -> None:
    verdict = judge_entry(entry(ago(1801)), limit(oldest_txn=ago(1801)))
    assert not verdict.goes
    assert "the oldest active transaction" in verdict.reason
    assert judge_entry(entry(ago(1802)), limit(oldest_txn=ago(1801))).goes


def test_history_holds_back() -> None:
    held = limit(ahm=ago(7 * 86_400))
    assert not judge_entry(entry(ago(2 * HOUR)), held).goes
    assert held.hold is GcHold.HISTORY
    assert not judge_entry(entry(ago(5 * HOUR)), limit(ahm=ago(5 * HOUR))).goes
    assert judge_entry(entry(ago(5 * HOUR + 1)), limit(ahm=ago(5 * HOUR))).goes


def test_a_reader_holds_back_two_hours_at_most() -> None:
    assert limit(oldest_reader=ago(HOUR)).hold is GcHold.READER
    assert not judge_entry(entry(ago(HOUR)), limit(oldest_reader=ago(HOUR))).goes
    assert judge_entry(entry(ago(2 * HOUR + 1)), limit(oldest_reader=ago(50 * HOUR))).goes
    assert not judge_entry(entry(ago(2 * HOUR)), limit(oldest_reader=ago(50 * HOUR))).goes


def test_without_end_nothing_moves() -> None:
    assert judge_entry(entry(None), limit()).reason == "nothing hides it for good"


def test_rounds_wait_for_progress() -> None:
    held = limit(oldest_txn=ago(3 * HOUR), ahm=ago(9 * HOUR))
    assert held.gc_ts == ago(3 * HOUR)
    assert is_round_due(held, last_gc_ts=ago(3 * HOUR) - 1)
    assert not is_round_due(held, last_gc_ts=ago(3 * HOUR))


def test_how_long_an_entry_stays_at_least() -> None:
    """Lifetime and history both hold: docs/policies/part-gc.md#cutoff."""
    assert kept_ms(SETTINGS) == 3_600_000
    assert kept_ms(replace(SETTINGS, history=-1.0)) == 1_800_000
    assert kept_ms(replace(SETTINGS, history=0.0, old_parts_lifetime=7200.0)) == 7_200_000


def test_data_goes_before_the_marks_that_hide_it() -> None:
    """V2 of docs/policies/visibility.md#ends-and-chains with the end times of each round, all lifetimes past."""
    parts: dict[str, int | None] = {
        "1_1_0": 1003,
        "3_3_0": 1003,
        "1_3_2": 1005,
        "1_3_1": 1005,
        "2_2_1": 1005,
        "2_2_0": 1005,
    }
    marks: dict[str, int | None] = {"D 1_1_1": None, "D 3_3_1": None, "D 0_3_MAX": None}
    rounds: list[dict[str, int | None]] = [
        parts | marks,
        {"D 1_1_1": 1003, "D 3_3_1": 1003, "D 0_3_MAX": None},
        {"D 0_3_MAX": 1005},
    ]
    gone = [
        {
            verdict.name
            for verdict in plan_moves((entry(end, name) for name, end in one.items()), limit(), settings=SETTINGS)
            if verdict.goes
        }
        for one in rounds
    ]
    assert gone == [set(parts), {"D 1_1_1", "D 3_3_1"}, {"D 0_3_MAX"}]


def test_moves_are_limited() -> None:
    entries = [entry(ago(HOUR), f"p{index}") for index in range(7)] + [entry(None, "q")]
    verdicts = plan_moves(entries, limit(), settings=replace(SETTINGS, move_max=5))
    assert [verdict.goes for verdict in verdicts] == [True] * 5 + [False] * 3
    assert "gc_trash_part_limit=5" in verdicts[5].reason
    assert all(verdict.goes for verdict in plan_moves(entries[:7], limit(), settings=SETTINGS))


def trash(*, end: int, commit: int, snapshots: tuple[int, ...] = ()) -> bool:
    item = TrashRecord(name="x", commit_ts=commit, end_ts=end)
    return judge_trash(item, now_ms=NOW_MS, snapshots=snapshots, settings=SETTINGS).goes


@pytest.mark.parametrize("row", oracle("part-gc", "Phase 2"))
def test_what_leaves_the_trash(row: Row) -> None:
    """A snapshot needs an item from its commit on, up to before its end."""
    end, commit = (ago(number(row[column])) for column in ("end (s ago)", "commit (s ago)"))
    snapshots = tuple(ago(number(each)) for each in names(row["snapshots (s ago)"]))
    assert trash(end=end, commit=commit, snapshots=snapshots) is (row["goes"] == "yes")


def test_what_nobody_could_ever_see_goes_at_once() -> None:
    assert trash(end=0, commit=ago(1))
    assert trash(end=ago(2), commit=ago(1))


def test_deleters_grow_with_rounds_that_had_work() -> None:
    for row in oracle("part-gc", "Deleters"):
        assert deleters(int(row["hits"]), deleters_max=20) == int(row["deleters"])
    assert deleters(1000, deleters_max=20) == 20
    assert trash_limit(1, settings=SETTINGS) == 800
    assert trash_limit(0, settings=replace(SETTINGS, remove_batch=1)) == 4


def test_trash_state() -> None:
    state = after_trash_round(TrashState(), last_seen="k", is_at_end=False, had_work=True)
    assert state == TrashState(cursor="k", hits=1)
    state = after_trash_round(state, last_seen="z", is_at_end=True, had_work=True)
    assert state == TrashState(cursor=None, hits=2)
    assert after_trash_round(state, last_seen=None, is_at_end=True, had_work=False) == TrashState()


def test_pauses() -> None:
    rng = new_rng(1)
    for _ in range(50):
        assert 0 <= move_pause(has_moved=True, settings=SETTINGS, rng=rng) < 10
        assert 30 <= move_pause(has_moved=False, settings=SETTINGS, rng=rng) < 40
        assert 0 <= trash_pause(TrashState(cursor="k"), has_removed=False, settings=SETTINGS, rng=rng) < 10
        assert 0 <= trash_pause(TrashState(), has_removed=True, settings=SETTINGS, rng=rng) < 10
    assert trash_pause(TrashState(), has_removed=False, settings=SETTINGS, rng=rng) == 900


def test_empty_partitions() -> None:
    def judge(empty_since: float, *, has_trash: bool = False, settings: GcSettings = SETTINGS) -> bool:
        return judge_empty_partition(
            "p", empty_since=empty_since, has_trash=has_trash, now=50_000.0, settings=settings
        ).goes

    assert not judge(50_000.0 - 21_600)
    assert judge(50_000.0 - 21_601)
    assert not judge(0.0, has_trash=True)
    assert not judge(50_000.0 - 1800, settings=replace(SETTINGS, trash_lifetime=1.0))
