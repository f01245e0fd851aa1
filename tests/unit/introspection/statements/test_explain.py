"""EXPLAIN MERGE: which policy is asked, and what its rows look like."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from tests.sql_world import SqlWorld
from tilth.base.errors import InvalidInputError, TilthError
from tilth.maintenance import MergeCandidateRow


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    world = SqlWorld(tmp_path)
    world.run("CREATE TABLE t (a BIGINT) ENGINE = MergeTree ORDER BY a")
    return world


def test_one_row_for_each_range_that_was_looked_at(world: SqlWorld) -> None:
    table = world.run("EXPLAIN MERGE t").table
    assert table.column_names[:5] == ["partition", "state", "allowed", "reason", "score"]
    assert table.column_names[5:] == ["parts", "rows", "bytes", "first_part", "last_part", "back_off", "next_attempt"]
    [told] = table.to_pylist()
    assert (told["partition"], told["state"], told["reason"]) == ("all", "waiting", "too few parts")
    assert (told["parts"], told["rows"], told["bytes"], told["score"]) == (3, 9, 100, 0.5)
    assert told["next_attempt"] == datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("clause", "policy"), [("", None), (" POLICY key_range", "key_range"), (" policy `size_tiered`", "size_tiered")]
)
def test_the_policy_that_is_named_is_asked(world: SqlWorld, clause: str, policy: str | None) -> None:
    uuid = world.catalog.tables.get("default", "t").uuid
    world.run(f"EXPLAIN MERGE default.t{clause}")
    assert world.maintenance.calls[-1] == ("explain", uuid, policy)


def test_a_merge_that_waits_for_nothing_has_no_next_attempt(world: SqlWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def explain(table_uuid: str, policy: str | None = None) -> list[MergeCandidateRow]:
        row = MergeCandidateRow(
            partition="all", parts=2, rows=9, bytes=100, score=0.5, state="chosen", reason="", next_attempt_ms=0
        )
        return [row]

    monkeypatch.setattr(world.maintenance, "explain_merge", explain)
    [told] = world.run("EXPLAIN MERGE t POLICY key_range").table.to_pylist()
    assert told["next_attempt"] is None


def test_what_is_unknown_is_told(world: SqlWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def explain(table_uuid: str, policy: str | None = None) -> list[MergeCandidateRow]:
        raise InvalidInputError("no such policy", policy=policy)

    monkeypatch.setattr(world.maintenance, "explain_merge", explain)
    with pytest.raises(InvalidInputError, match="policy=best"):
        world.run("EXPLAIN MERGE t POLICY best")
    with pytest.raises(TilthError, match="u"):
        world.run("EXPLAIN MERGE u POLICY key_range")
