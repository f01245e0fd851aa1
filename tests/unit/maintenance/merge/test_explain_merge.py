"""Every candidate with its verdict, and a history replayed under another policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.maintenance_world import MaintenanceWorld
from tilth.base.errors import InvalidInputError
from tilth.base.units import GIB, MIB
from tilth.maintenance import MergeCandidateRow
from tilth.maintenance.merge.policy.candidates import CandidatePart, CandidateState, MergeSelection
from tilth.maintenance.merge.policy.key_bytes import HIGHEST
from tilth.maintenance.merge.policy.key_range import KeyRangePolicy
from tilth.maintenance.merge.policy.replay import (
    EVENTS_MAX,
    MERGES_MAX,
    QUESTIONS_MAX,
    HistorySums,
    Replay,
    real_sums,
    replay,
)
from tilth.maintenance.merge.policy.size_tiered import select_merges
from tilth.maintenance.merge.policy.size_tiered_candidates import explain_merges
from tilth.maintenance.table.partition_counts import PartitionStats
from tilth.maintenance.table.settings import MergeSettings
from tilth.model.part import PartEvent

PLAIN = MergeSettings(expected_parts=-1)


def part(index: int, size: int, *, partition: str = "a", age: float = 0.0, schema: int = 1) -> CandidatePart:
    return CandidatePart(
        name=f"{partition}_{index}_{index}_0_{index}",
        partition=partition,
        size=size,
        rows=10,
        age=age,
        columns_commit_time=schema,
    )


def explained(
    parts: Sequence[CandidatePart], settings: MergeSettings = PLAIN, busy: frozenset[str] = frozenset()
) -> list[tuple[str, CandidateState, int, str]]:
    rows = explain_merges(parts, being_merged=busy, stats={}, workers=2, now=1e9, settings=settings)
    return [(row.partition, row.state, len(row.parts), row.reason) for row in rows]


def test_each_run_has_its_ranges() -> None:
    parts = [
        *(part(index, MIB) for index in range(5)),
        *(part(index, MIB, schema=2) for index in range(5, 9)),
        part(9, MIB, schema=3),
        *(part(index, MIB, partition="b") for index in range(9)),
        part(1, GIB, partition="c"),
        part(2, MIB, partition="c"),
        part(3, MIB, partition="c"),
    ]
    rows = explained(parts)
    lost, refused, lone, chosen, *unbalanced = rows
    assert lost[:3] == ("a", CandidateState.LOST, 5)
    assert "lost the range that small partitions share to b" in lost[3]
    assert refused[:3] == ("a", CandidateState.REFUSED, 4)
    assert "the best range is not balanced: 4.00 times its largest part, 5.00 needed" in refused[3]
    assert "have different schema versions" in refused[3]
    assert lone[:3] == ("a", CandidateState.LONE, 1)
    assert chosen[:3] == ("b", CandidateState.WOULD_RUN, 9)
    assert [(row[0], row[1]) for row in unbalanced] == [("c", CandidateState.REFUSED)] * len(unbalanced)
    assert unbalanced


def test_what_is_held_says_what_it_would_be() -> None:
    parts = [part(index, MIB) for index in range(9)]
    [row] = explained(parts, replace(PLAIN, expected_parts=9))
    assert row == ("a", CandidateState.REFUSED, 9, "9 parts, 9 are expected")
    rows = explained(parts, replace(PLAIN, bytes_max=MIB, bytes_max_name="the_limit"))
    assert {row[:3] for row in rows} == {("a", CandidateState.REFUSED, 1)}
    assert len(rows) == len(parts)
    assert rows[0][3] == "too large to be merged: with the lighter neighbour 2.0 MiB, the_limit = 1.0 MiB"
    rows = explained(parts, replace(PLAIN, rows_max=1))
    assert "rows, cnch_merge_max_total_rows_to_merge = 1" in rows[0][3]


def test_neighbours_that_exceed_different_limits_are_explained_by_the_lighter_one() -> None:
    """Left too many bytes, right too many rows."""
    parts = [part(0, 10 * MIB), part(1, MIB), replace(part(2, MIB), rows=1000)]
    rows = explained(parts, replace(PLAIN, bytes_max=5 * MIB, rows_max=100))
    assert [row[3].partition("neighbour ")[2] for row in rows] == [
        "11.0 MiB, cnch_merge_max_total_bytes_to_merge = 5.0 MiB",
        "1,010 rows, cnch_merge_max_total_rows_to_merge = 100",
        "1,010 rows, cnch_merge_max_total_rows_to_merge = 100",
    ]


def test_one_large_part_among_small_ones_names_the_setting() -> None:
    parts = [part(0, 10 * MIB), *(part(index, MIB) for index in range(1, 4))]
    *_, large = explained(parts, replace(PLAIN, bytes_max=5 * MIB))
    assert large[:3] == ("a", CandidateState.REFUSED, 1)
    assert "11.0 MiB, cnch_merge_max_total_bytes_to_merge = 5.0 MiB" in large[3]


def test_parts_under_merge_are_not_explained() -> None:
    parts = [part(index, MIB) for index in range(9)]
    assert explained(parts, busy=frozenset(each.name for each in parts)) == []


# --- a history ---


def event(kind: str, at: int, block: int, *, size: int = MIB, rows: int = 10, sources: int = 0) -> PartEvent:
    name = f"p_0_{block}_999999999_1" if kind == "hide" else f"p_{block}_{block}_0_{block}"
    return PartEvent(event=kind, at_ms=at * 1000, table="t", part=name, rows=rows, bytes=size, sources=sources)


def by_size(parts: Sequence[CandidatePart], stats: Mapping[str, PartitionStats], now: float) -> MergeSelection:
    return select_merges(parts, being_merged=(), stats=stats, workers=1, now=now, settings=PLAIN)


def replayed(events: list[PartEvent]) -> Replay:
    return replay(events, select=by_size, keys_of=lambda _: (b"", HIGHEST))


def test_a_history_is_merged_as_it_goes() -> None:
    found = replayed([event("new", second, second + 1) for second in range(100)])
    assert found.events == 100
    assert found.replayed.inserted_bytes == 100 * MIB
    assert found.replayed.merges == len(found.merges)
    assert found.replayed.merged_bytes == sum(merge.spec.size for merge in found.merges)
    assert found.replayed.parts < 20
    assert found.replayed.parts_max < 40
    assert found.replayed.write_amplification > 1
    assert found.real == HistorySums(inserted_rows=1000, inserted_bytes=100 * MIB, parts=100, parts_max=100)
    assert found.real.write_amplification == 1.0
    times = [merge.at_ms for merge in found.merges]
    assert times == sorted(times)


def test_a_drop_hides_what_was_merged_before() -> None:
    events = [event("new", second, second + 1) for second in range(10)]
    events.append(event("hide", 20, 10, sources=3))
    found = replayed(events)
    assert found.replayed.parts == 0
    assert found.real.parts == 7


def test_old_parts_are_merged_in_quiet_times() -> None:
    """Four parts are too few while they are young; an hour later they are merged as a whole."""
    events = [event("new", second, second + 1) for second in range(4)]
    found = replayed([*events, event("new", 9_000, 9_000)])
    [merge] = found.merges
    assert len(merge.spec.parts) == 4
    assert 3_600_000 <= merge.at_ms < 9_000_000


def test_what_really_happened_is_counted() -> None:
    events = [event("new", second, second + 1) for second in range(5)]
    events += [event("merge", 9, 1, size=4 * MIB, sources=4), event("trash", 10, 1), event("merge", 11, 9, rows=0)]
    sums = real_sums(events)
    assert (sums.merges, sums.merged_bytes, sums.parts, sums.parts_max) == (2, 5 * MIB, 2, 5)
    assert sums.write_amplification == 2.0
    assert HistorySums().write_amplification == 0.0


def test_a_long_history_costs_a_bounded_number_of_questions() -> None:
    asked = []

    def ask(parts: Sequence[CandidatePart], stats: Mapping[str, PartitionStats], now: float) -> MergeSelection:
        asked.append(now)
        return by_size(parts, stats, now)

    events = [event("new", second, second + 1) for second in range(2 * EVENTS_MAX)]
    found = replay(events, select=ask, keys_of=lambda _: (b"", b""))
    assert found.events == EVENTS_MAX
    assert 100 < len(set(asked)) <= QUESTIONS_MAX + 1
    assert len(found.merges) == MERGES_MAX < found.replayed.merges
    idle = replay(events, select=lambda *_: MergeSelection(), keys_of=lambda _: (b"", b""))
    assert idle.replayed.parts == EVENTS_MAX


def test_key_range_is_replayed_by_the_keys_of_new_parts() -> None:
    def ask(parts: Sequence[CandidatePart], stats: Mapping[str, PartitionStats], now: float) -> MergeSelection:
        return KeyRangePolicy().select(parts, being_merged=(), settings=PLAIN)

    events = [event("new", second, second + 1, size=40 * MIB) for second in range(6)]
    apart = replay(events, select=ask, keys_of=lambda each: (each.part.encode(), each.part.encode() + b"z"))
    assert apart.replayed.merges == 0
    same = replay(events, select=ask, keys_of=lambda _: (b"a", b"z"))
    assert same.replayed.merges > 0


# --- the op ---


@pytest.fixture
def world() -> MaintenanceWorld:
    return MaintenanceWorld()


def rows_of(world: MaintenanceWorld, policy: str | None = None) -> list[MergeCandidateRow]:
    return world.manager.explain_merge(world.t, policy)


def test_explain_has_a_line_for_every_candidate(world: MaintenanceWorld) -> None:
    world.work()
    parts = [world.insert("a")[0] for _ in range(10)]
    world.insert("b")
    wide, lone = rows_of(world)
    assert (wide.partition, wide.state, wide.parts, wide.rows, wide.is_allowed) == ("a", "would run", 10, 100, True)
    assert (wide.first_part, wide.last_part) == (str(parts[0].name), str(parts[-1].name))
    assert wide.next_attempt_ms > world.clock.now_ms()
    assert (lone.partition, lone.state, lone.is_allowed, lone.reason) == ("b", "lone", False, "one part alone")
    world.worker.is_holding = True
    world.clock.advance(1.1)
    world.turn()
    told = {(row.partition, row.state): row for row in rows_of(world)}
    assert ("a", "running") in told
    assert told["b", "lone"].back_off == "nothing was worth merging, others go first for 30 s"
    world.worker.let_go()
    world.settle()


def test_explain_shows_failures(world: MaintenanceWorld) -> None:
    world.worker.errors = [InvalidInputError("no such thing")]
    for _ in range(10):
        world.insert("a")
    world.turn()
    [row] = rows_of(world)
    assert (row.state, row.back_off) == ("failed", "failed 1 times: a: no such thing")
    assert row.next_attempt_ms > world.clock.now_ms()


def test_another_policy_is_replayed_over_the_part_log(world: MaintenanceWorld) -> None:
    for _ in range(30):
        world.insert("a")
    world.work()
    *_, planned, real = rows_of(world, "key_range")
    assert planned.state == real.state == "summary"
    assert planned.reason.startswith("key_range, replayed over the newest 31 events of the part log:")
    assert real.reason.startswith("what really happened")
    assert any(row.state == "replayed" for row in rows_of(world, "KEY_RANGE"))
    with pytest.raises(
        InvalidInputError, match=r"no such merge policy: policy=best \(there are: size_tiered, key_range\)"
    ):
        rows_of(world, "best")
