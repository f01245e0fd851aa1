"""The oracles of docs/policies/visibility.md: names are `min_max_level`, numbers behind @ are commit timestamps."""

from __future__ import annotations

import re

import pytest

from tests.oracle import Row, names, oracle
from tilth.catalog.rules.visibility import end_times, visible, visible_chains
from tilth.model.part import LEVEL_MAX, DataFile, DropRange, Entry, Mark, Part, PartName

ENTRIES = {row["case"]: row["entries"] for row in oracle("visibility", "Ends and chains")}
V2 = ENTRIES["V2"]


def entries(text: str, partition: str = "a") -> list[Entry]:
    found: list[Entry] = []
    for kind, low, high, level, ts in re.findall(r"([PRD]) (\d+)_(\d+)_(\d+|MAX) @(\d+)", text):
        number = LEVEL_MAX if level == "MAX" else int(level)
        name = PartName(partition, int(low), int(high), number, int(ts))
        if kind in "PR":
            file = DataFile(name="f", size=1, checksum=0)
            part = Part(name=name, schema_version=1, rows=1, file=file, commit_ts=int(ts), is_rewritten=kind == "R")
            found.append(part)
        elif level == "MAX":
            found.append(DropRange(name=name, commit_ts=int(ts)))
        else:
            found.append(Mark(name=name, commit_ts=int(ts)))
    return found


def shown_as(entry: Entry) -> str:
    level = "MAX" if entry.name.level == LEVEL_MAX else entry.name.level
    return f"{entry.name.min_block}_{entry.name.max_block}_{level}"


def ends(text: str) -> dict[str, int]:
    return {shown_as(entry): end for entry, end in end_times(entries(text))}


def chains(text: str, at: int | None = None) -> list[str]:
    return [" <- ".join(shown_as(each) for each in chain) for chain in visible_chains(entries(text), at)]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["case"]) for row in oracle("visibility", "Ends and chains")])
def test_oracle(row: Row) -> None:
    given, shown = row["entries"], names(row["visible chains"])
    assert ends(given) == {name: int(ts) for name, ts in (each.split() for each in names(row["ended at"]))}
    assert chains(given) == shown
    assert [shown_as(part) for part in visible(entries(given))] == [chain.split(" ")[0] for chain in shown]


def test_partitions_do_not_touch_each_other() -> None:
    """Oracle: partition a: P 5_5_0 @10, D 0_5_MAX @12; partition b: P 5_5_0 @11."""
    both = entries("P 5_5_0 @10, D 0_5_MAX @12", "a") + entries("P 5_5_0 @11", "b")
    assert [(entry.name.partition, shown_as(entry), end) for entry, end in end_times(both)] == [("a", "5_5_0", 12)]
    assert [part.name.partition for part in visible(both)] == ["b"]


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        (999, []),
        (1000, ["1_1_0"]),
        (1002, ["1_1_0", "2_2_0", "3_3_0"]),
        (1003, ["1_3_1", "2_2_0"]),
        (1004, ["1_3_2", "2_2_1"]),
        (1005, []),
    ],
)
def test_the_past_stays_as_it_was(at: int, shown: list[str]) -> None:
    assert [shown_as(part) for part in visible(entries(V2), at)] == shown


def test_collection_takes_data_first_and_what_hides_it_later() -> None:
    """V2 with all lifetimes past: six parts, then two marks, the range not before round 3."""
    left = entries(V2)
    rounds: list[set[str]] = []
    while ended := [entry for entry, _ in end_times(left)]:
        rounds.append({shown_as(entry) for entry in ended})
        left = [entry for entry in left if entry not in ended]
        assert visible(left) == []
    assert rounds == [
        {"1_1_0", "3_3_0", "1_3_2", "1_3_1", "2_2_1", "2_2_0"},
        {"1_1_1", "3_3_1"},
        {"0_3_MAX"},
    ]
    assert left == []


def test_what_is_not_committed_is_not_there() -> None:
    intermediate = entries("P 1_1_0 @0")
    assert visible(intermediate) == []
    assert end_times(intermediate) == []


REWRITTEN = ENTRIES["two rewrites"]


@pytest.mark.parametrize(
    ("given", "ended", "shown"),
    [
        pytest.param("P 1_1_0 @10, P 1_1_1 @20, D 1_1_2 @40", {"1_1_0": 40, "1_1_1": 40}, [], id="no rewrite"),
        pytest.param("R 1_1_1 @20, D 1_1_2 @40", {"1_1_1": 40}, [], id="what was below is gone"),
        pytest.param(
            "P 1_1_0 @10, P 2_2_0 @11, R 1_1_1 @20", {"1_1_0": 20}, ["1_1_1 <- 1_1_0", "2_2_0"], id="one of two"
        ),
    ],
)
def test_a_rewritten_part_ends_what_is_below_it(given: str, ended: dict[str, int], shown: list[str]) -> None:
    """R: made by a mutation from the part below it, which no reader from its commit on needs."""
    assert ends(given) == ended
    assert chains(given) == shown


def test_the_past_before_a_rewrite_stays_as_it_was() -> None:
    assert [shown_as(part) for at in (9, 10, 19, 20, 29, 30) for part in visible(entries(REWRITTEN), at)] == [
        "1_1_0",
        "1_1_0",
        "1_1_1",
        "1_1_1",
        "1_1_2",
    ]
