"""Views x formats x broken messages x error modes: every good message is in each target exactly once, every bad one in
the dead letters once for each view that cannot take it, offsets and ledger agree, and the topic was read once.

Over a topic of files and a catalog in memory (round_world.py), with a real Spark. What must come of it follows from how
the messages were planned (message_kinds.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.codes import WithCode
from tests.integration.ingest.message_kinds import (
    BROKEN,
    COLUMNS,
    FORMATS,
    VIEWS,
    Planned,
    counted,
    good,
    no_number,
    without_key,
)
from tests.integration.ingest.round_world import RoundWorld
from tests.long import cases
from tilth.base.errors import InvalidInputError
from tilth.warehouse import WorkerSession

PARTITIONS = 2
MESSAGES = 120


def planned(kind: str, *, has_many: bool) -> list[Planned]:
    """The messages of one partition. With `has_many` some hold several rows, and a few hold none."""
    plans = [good(number, rows=3 if has_many and number % 11 == 5 else 1) for number in range(MESSAGES)]
    match kind:
        case "none":
            return plans
        case "undecodable":
            # The first and the last, several in a row, one between good ones.
            for number in (0, 1, 40, 41, 42, 77, MESSAGES - 1):
                plans[number] = BROKEN
        case "all undecodable":
            return [BROKEN] * MESSAGES
        case "refused":
            for number in (0, 2, 50, 51, 52, MESSAGES - 1):
                plans[number] = no_number(number, rows=2 if has_many else 1)
            plans[60] = BROKEN
            if has_many:
                plans[61] = without_key(61)
                plans[62] = Planned(())
        case "all refused":
            return [no_number(number) for number in range(MESSAGES)]
    return plans


def run_cell(
    folder: Path, spark: WorkerSession, names: Sequence[str], form: str, kind: str, mode: str, **settings: str
) -> tuple[RoundWorld, list[list[Planned]]]:
    """A world in which the topic of a cell was read."""
    format_ = FORMATS[form]
    world = RoundWorld(folder, spark, kafka_handle_error_mode=mode, **format_.settings, **settings)
    world.source(COLUMNS)
    for name in names:
        world.view(name, VIEWS[name].columns, VIEWS[name].select, **VIEWS[name].table)
    plans = [planned(kind, has_many=format_.has_many) for _ in range(PARTITIONS)]
    world.topic.put([list(map(format_.encode, messages)) for messages in plans])
    world.drain(PARTITIONS)
    return world, plans


def check_cell(world: RoundWorld, names: Sequence[str], plans: list[list[Planned]], *, is_stream: bool = False) -> int:
    """Asserts what must hold; returns how many refusals there are."""
    messages = [(partition, offset, plan) for partition, each in enumerate(plans) for offset, plan in enumerate(each)]
    dead: Counter[tuple[Any, ...]] = Counter()
    for partition, offset, plan in messages:
        if plan.rows is None and not is_stream:
            dead[partition, offset, None] += 1
    for name in names:
        made = [(partition, offset, VIEWS[name].makes(plan)) for partition, offset, plan in messages]
        expected: Counter[tuple[Any, ...]] = Counter()
        for partition, offset, rows in made:
            if rows is None:
                dead[partition, offset, f"default.{name}"] += 1
            else:
                expected.update(rows)
        if VIEWS[name].table.get("unique_key"):
            # The same keys come in each partition, and the last one wins: equal rows, once.
            expected = Counter(expected.keys())
        assert counted(world.rows(f"to_{name}")) == expected, name
    letters = world.dead_letters()
    assert Counter((each["partition"], each["offset"], each["view"]) for each in letters) == dead
    for each in letters:
        assert each["raw"] == world.topic.messages(each["partition"])[each["offset"]].content
        assert each["key"] == f"k{each['offset']}".encode()
        assert each["reason"]
        assert "tilth" not in each["reason"]
    undecodable = sum(plan.rows is None for _, _, plan in messages)
    ledger = world.ledger()
    assert sum(each.messages for each in ledger) == len(messages)
    assert sum(each.dead for each in ledger) == (0 if is_stream else undecodable)
    assert sum(each.refused for each in ledger) == len(letters) - (0 if is_stream else undecodable)
    decoded = sum(len(plan.rows or ()) for _, _, plan in messages)
    assert sum(each.rows for each in ledger) == decoded + (undecodable if is_stream else 0)
    assert world.kafka is not None
    assert sorted(world.catalog.offsets.of(world.kafka.uuid).values()) == [MESSAGES] * PARTITIONS
    world.check()
    return sum(each.refused for each in ledger)


#: Views that never refuse by computing, and so need one reading, with those that do.
TAKING, ALL = ("picks", "keys", "filters", "computes"), tuple(VIEWS)
KINDS = ("none", "undecodable", "all undecodable", "refused", "all refused")
CELLS = [(form, kind) for form in FORMATS for kind in KINDS]
#: Cells of every run: each format, and the kinds that contain the others.
QUICK_CELLS = (("json", "refused"), ("csv", "all undecodable"), ("debezium", "all refused"))
SETS: list[tuple[str, ...]] = [*((name,) for name in VIEWS), TAKING]
ALONE = [(names, kind) for names in SETS for kind in KINDS if not kind.startswith("all")]
QUICK_ALONE = ((("casts",), "refused"), (("explodes",), "refused"), (("never",), "none"), (TAKING, "undecodable"))


@pytest.mark.parametrize("cell", cases(CELLS, first=0, and_also=QUICK_CELLS), ids="-".join)
def test_all_views_at_once(tmp_path: Path, spark: WorkerSession, cell: tuple[str, str]) -> None:
    form, kind = cell
    world, plans = run_cell(tmp_path, spark, ALL, form, kind, "dead_letter")
    refused = check_cell(world, ALL, plans)
    assert (refused > 0) is (kind != "all undecodable")
    # Read again once, because views failed; never more, however many views did.
    is_failing = kind != "all undecodable"
    assert set(world.topic.fetched().values()) == {2 if is_failing else 1}


@pytest.mark.parametrize(
    "views",
    cases(ALONE, first=0, and_also=QUICK_ALONE),
    ids=lambda views: f"{'+'.join(views[0])}-{views[1]}",
)
def test_each_view_alone(tmp_path: Path, spark: WorkerSession, views: tuple[tuple[str, ...], str]) -> None:
    names, kind = views
    world, plans = run_cell(tmp_path, spark, names, "json", kind, "dead_letter")
    check_cell(world, names, plans)
    fails = names == ("never",) or (kind == "refused" and names[0] in ("casts", "explodes"))
    assert set(world.topic.fetched().values()) == {2 if fails else 1}


@pytest.mark.parametrize("kind", cases(["refused", "undecodable", "all refused"]))
def test_in_stream_mode_only_what_views_refuse_is_a_dead_letter(
    tmp_path: Path, spark: WorkerSession, kind: str
) -> None:
    """A message that cannot be decoded is a row with NULLs, which a view may filter, and no view can refuse."""
    names = ("picks", "filters", "casts")
    world, plans = run_cell(tmp_path, spark, names, "json", kind, "stream")
    undecodable = sum(plan.rows is None for messages in plans for plan in messages)
    errors = Counter({(None, None): undecodable})
    found = counted(world.rows("to_picks"))
    assert found[None, None] == undecodable
    assert found - errors == sum(
        (VIEWS["picks"].makes(plan) or Counter() for each in plans for plan in each), Counter()
    )
    dead = {(each["partition"], each["offset"], each["view"]) for each in world.dead_letters()}
    refused = {
        (partition, offset, "default.casts")
        for partition, messages in enumerate(plans)
        for offset, plan in enumerate(messages)
        if VIEWS["casts"].makes(plan) is None
    }
    assert dead == refused
    assert sum(each.dead for each in world.ledger()) == 0
    assert sum(each.refused for each in world.ledger()) == len(refused)
    world.check()


@pytest.mark.parametrize("name", cases(["casts", "keys", "explodes"], first=2))
def test_in_throw_mode_the_round_fails_and_names_the_message(tmp_path: Path, spark: WorkerSession, name: str) -> None:
    world = RoundWorld(tmp_path, spark, kafka_handle_error_mode="throw")
    world.source(COLUMNS)
    world.view(name, VIEWS[name].columns, VIEWS[name].select, **VIEWS[name].table)
    bad = without_key(7) if name == "keys" else no_number(7)
    messages = [good(number) for number in range(7)] + [bad, good(8)]
    world.topic.put([[FORMATS["json"].encode(each) for each in messages]])
    with pytest.raises(InvalidInputError, check=WithCode("BROKEN_MESSAGE")) as raised:
        world.drain(1)
    assert "topic/0@7: view default." in str(raised.value)
    assert world.rows(f"to_{name}") == []
    assert world.ledger() == []
    assert world.kafka is not None
    world.catalog.tables.modify_settings(world.kafka.uuid, {"kafka_skip_broken_messages": "1"})
    world.drain(1)
    expected = sum((VIEWS[name].makes(each) or Counter() for each in messages), Counter())
    assert counted(world.rows(f"to_{name}")) == expected
    assert world.catalog.tables.find("default", "k_dead_letters") is None
    assert [(each.messages, each.dead, each.refused) for each in world.ledger()] == [(9, 0, 1)]
    world.check()
