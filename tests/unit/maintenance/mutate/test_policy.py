"""Which parts are rewritten next, with the oracle of docs/policies/mutations.md. Parts and entries are made by hand,
times are hybrid times of a few units."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.oracle import Row, oracle
from tilth.base.hybrid import pack
from tilth.maintenance.merge.policy.candidates import CandidatePart, why_apart
from tilth.maintenance.mutate.policy import (
    Blame,
    MutateView,
    PartitionState,
    blame,
    delay_ms,
    failed_once_more,
    mutation_gain,
    select_mutations,
)
from tilth.maintenance.state import Failure
from tilth.maintenance.table.settings import MutateSettings, table_settings
from tilth.model.mutation import Mutation, MutationKind, first_needed, needs
from tilth.model.part import DataFile, Part, PartName
from tilth.model.table import Column, Schema, SchemaVersion
from tilth.model.types import Kind, Simple

SHAPE = SchemaVersion(version=1, schema=Schema(columns=(Column(id=1, name="a", type=Simple(Kind.INT64)),)))
VIEW = MutateView(parts=(), pending=(), reserved=(), mutating=(), running=0, failures={}, suspects=(), now_ms=1_000_000)
SETTINGS = MutateSettings()


def part(block: int, *, partition: str = "a", columns: int = 0, mutated: int = 0, size: int = 1000) -> Part:
    return Part(
        name=PartName(partition, block, block, 0, block),
        schema_version=1,
        rows=10,
        file=DataFile(name=f"{block}-0.0-0.parquet", size=size, checksum=0),
        columns_commit_ts=columns,
        mutation_ts=mutated,
    )


def entry(commit_ts: int, kind: MutationKind = MutationKind.DELETE) -> Mutation:
    return Mutation(table="t", id=commit_ts, commit_ts=commit_ts, kind=kind, command="DELETE WHERE a", schema=SHAPE)


def names(*parts: Part) -> tuple[str, ...]:
    return tuple(str(each.name) for each in parts)


# --- the oracle ---


def test_oracle_which_part_needs_which_entry() -> None:
    schema, data, later = entry(200, MutationKind.COLUMNS), entry(200), entry(300)
    old = part(50, columns=100)
    assert (needs(old, schema), needs(old, data)) == (True, True)
    young = part(250, columns=200)
    assert (needs(young, schema), needs(young, data)) == (False, False)
    mutated = part(50, columns=200, mutated=200)
    assert (needs(mutated, data), needs(mutated, later)) == (False, True)


def test_oracle_first_needed_keeps_neighbours_apart_until_the_older_is_mutated() -> None:
    data = entry(200)
    # The younger one carries the entry that was there when it was committed.
    old, young = part(50), part(250, mutated=200)
    assert (first_needed(old, [data]), first_needed(young, [data])) == (data, None)
    assert first_needed(part(50, mutated=200), [data]) is None

    def candidate(block: int, *, effective: int, needed: int | None) -> CandidatePart:
        return CandidatePart(
            name=f"a_{block}_{block}_0_1",
            partition="a",
            size=1,
            rows=1,
            age=0.0,
            columns_commit_time=100,
            mutation_effective_time=effective,
            first_needed_mutation=needed,
        )

    younger = candidate(250, effective=200, needed=None)
    assert "pending mutation" in (why_apart(candidate(50, effective=0, needed=200), younger) or "")
    assert why_apart(candidate(50, effective=200, needed=None), younger) is None


def test_oracle_nothing_of_the_second_entry_is_scheduled_before_the_first_is_done() -> None:
    first, second = entry(200), entry(300)
    done_first, done_none = part(50, mutated=200), part(60)
    view = replace(VIEW, pending=(second, first), parts=(done_first, done_none))
    found = select_mutations(view, SETTINGS)
    assert found.head == first
    assert [spec.parts for spec in found.specs] == [names(done_none)]
    assert [refusal.reason for refusal in found.refusals if refusal.mutation == 300] == ["mutation 300 waits for 200"]
    # Also while the last part of the first is under way.
    running = replace(view, reserved=names(done_none), mutating=names(done_none), running=1)
    found = select_mutations(running, SETTINGS)
    assert found.specs == ()
    assert not found.is_finished
    found = select_mutations(replace(view, pending=(second,)), SETTINGS)
    assert [spec.parts for spec in found.specs] == [names(done_first, done_none)]


@pytest.mark.parametrize("row", oracle("mutations", "Wait after failures"))
def test_oracle_delay_after_failures(row: Row) -> None:
    assert delay_ms(int(row["failures in a row"]), longest_ms=300_000) == int(row["wait (ms)"])
    assert delay_ms(10**6, longest_ms=300_000) == 300_000


# --- states and batches ---


def test_a_partition_is_unscheduled_then_scheduled_then_finished() -> None:
    a, b, c = part(1), part(2), part(3, partition="b")
    view = replace(VIEW, pending=(entry(200),), parts=(a, b, c))
    states = [
        select_mutations(each, SETTINGS).partitions
        for each in (
            view,
            replace(view, mutating=names(a), reserved=names(a)),
            replace(view, mutating=names(a, b), reserved=names(a, b)),
            replace(view, parts=(part(1, mutated=200), part(2, mutated=200), c)),
        )
    ]
    assert [state["a"] for state in states] == [
        PartitionState.UNSCHEDULED,
        PartitionState.UNSCHEDULED,
        PartitionState.SCHEDULED,
        PartitionState.FINISHED,
    ]
    assert not select_mutations(replace(view, parts=(part(1, mutated=200), c)), SETTINGS).is_finished
    assert select_mutations(replace(view, parts=(part(1, mutated=200), part(300))), SETTINGS).is_finished
    # An entry of a table without parts.
    assert select_mutations(replace(view, parts=()), SETTINGS).is_finished


def test_no_entry_nothing_to_do() -> None:
    found = select_mutations(replace(VIEW, parts=(part(1),)), SETTINGS)
    assert (found.head, found.specs, found.refusals, found.is_finished) == (None, (), (), False)


def test_batches_are_bounded_by_parts_and_by_bytes() -> None:
    parts = tuple(part(block) for block in range(1, 251))
    view = replace(VIEW, pending=(entry(1000),), parts=parts)
    assert [len(spec.parts) for spec in select_mutations(view, SETTINGS).specs] == [100, 100, 50]
    # One that is larger than the limit goes alone.
    large = (part(1, size=10), part(2, size=500), part(3, size=40), part(4, size=60), part(5))
    found = select_mutations(replace(view, parts=large), MutateSettings(bytes_max=100))
    assert [spec.parts for spec in found.specs] == [
        names(large[0]),
        names(large[1]),
        names(large[2], large[3]),
        names(large[4]),
    ]
    assert len(select_mutations(replace(view, parts=large), MutateSettings(bytes_max=0)).specs) == 1


def test_batches_are_spread_among_the_workers() -> None:
    parts = tuple(part(block) for block in range(1, 11))
    view = replace(VIEW, pending=(entry(1000),), parts=parts, workers=4)
    assert [len(spec.parts) for spec in select_mutations(view, SETTINGS).specs] == [3, 3, 3, 1]


def test_more_than_the_budget_wait_and_it_is_reported() -> None:
    view = replace(VIEW, pending=(entry(1000),), parts=tuple(part(n) for n in range(1, 4)), running=1)
    found = select_mutations(view, MutateSettings(parts_max=1, running_max=2))
    assert len(found.specs) == 3
    assert [refusal.reason for refusal in found.refusals] == ["3 rewrites wait, no more than 2 run at once"]


def test_parts_under_merge_wait_and_are_named() -> None:
    a, b, c = part(1), part(2), part(3, partition="b")
    view = replace(VIEW, pending=(entry(200),), parts=(a, b, c), reserved=names(a, b))
    found = select_mutations(view, SETTINGS)
    assert [spec.parts for spec in found.specs] == [names(c)]
    [refusal] = found.refusals
    assert (refusal.partition, refusal.reason) == ("a", "part a_1_1_0_1 and 1 more of the partition are under merge")
    one = select_mutations(replace(view, reserved=names(a)), SETTINGS)
    assert one.refusals[0].reason == "part a_1_1_0_1 is under merge"


# --- failures ---


def test_a_part_that_failed_waits_alone_and_holds_up_no_other() -> None:
    a, b, c = part(1), part(2), part(3)
    failure = Failure(count=3, reason="bad page", at_ms=999_000, until_ms=1_003_001)
    view = replace(VIEW, pending=(entry(200),), parts=(a, b, c), failures={str(b.name): failure})
    found = select_mutations(view, SETTINGS)
    assert [spec.parts for spec in found.specs] == [names(a, c)]
    assert [refusal.reason for refusal in found.refusals] == ["part a_2_2_0_2 failed 3 times, next try in 4 s"]
    assert found.next_try_ms == 1_003_001
    found = select_mutations(replace(view, now_ms=1_003_001), SETTINGS)
    assert [spec.parts for spec in found.specs] == [names(a, c), names(b)]
    assert (found.refusals, found.next_try_ms) == ((), 0)


def test_suspects_are_tried_one_by_one_after_the_others() -> None:
    a, b, c, d = part(1), part(2), part(3), part(4)
    view = replace(VIEW, pending=(entry(200),), parts=(a, b, c, d), suspects=names(a, b))
    assert [spec.parts for spec in select_mutations(view, SETTINGS).specs] == [names(c, d), names(a), names(b)]


def test_blame() -> None:
    assert blame(("a", "b"), {"b", "z"}) == Blame(failed=("b",))
    assert blame(("a", "b"), ()) == Blame(failed=(), suspects=("a", "b"))
    assert blame(("a",), ()) == Blame(failed=("a",))


def test_failures_add_up() -> None:
    once = failed_once_more(None, reason="r", now_ms=10, longest_ms=1500)
    assert once == Failure(count=1, reason="r", at_ms=10, until_ms=1010)
    assert failed_once_more(once, reason="s", now_ms=20, longest_ms=1500).until_ms == 1520


def test_the_gain_rises_with_the_age_up_to_one() -> None:
    old = entry(pack(1_000_000))
    assert mutation_gain(old, now_ms=1_000_000) == pytest.approx(0.1)
    assert mutation_gain(old, now_ms=1_300_000) == pytest.approx(0.6)
    assert mutation_gain(old, now_ms=9_000_000) == 1.0
    assert mutation_gain(old, now_ms=0) == pytest.approx(0.1)


def test_defaults_agree() -> None:
    assert table_settings({}).mutate == MutateSettings()
