"""Alarms of pipes: each is found from its threshold on, and not where somebody has stopped the table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.alarm_world import AlarmWorld
from tilth.control.pipe_stats import PipeState
from tilth.introspection.alarms.pipes import FAILURES_MIN
from tilth.model.pipe import Pipe
from tilth.model.service import ServiceState


@dataclass
class FakePipes:
    """Pipes in states as a test says."""

    found: tuple[PipeState, ...]

    def states(self) -> list[PipeState]:
        return list(self.found)


@pytest.fixture
def world(tmp_path: Path) -> AlarmWorld:
    return AlarmWorld(tmp_path)


def pipe(state: ServiceState = ServiceState.IDLE, **more: object) -> PipeState:
    made = Pipe(table="u1", name="p", id="1", address="/in", format="JSON", every_ms=1, created_ms=1, query_id="q")
    known = {"database": "shop", "table": "orders", "state": state, "reason": "the reason"}
    return PipeState(pipe=made, **(known | more))  # type: ignore[arg-type]  # fields by name


def sentences(world: AlarmWorld, name: str, *states: PipeState) -> list[str]:
    """Return the sentences of the alarm about these pipes."""
    world.change(pipes=FakePipes(states))
    found = world.found(name)
    assert {(each.database, each.table, each.subject) for each in found} <= {("shop", "orders", "p")}
    return [each.sentence for each in found]


def test_a_pipe_that_fails_again_and_again(world: AlarmWorld) -> None:
    failed = pipe(ServiceState.FAILED, failures=FAILURES_MIN)
    assert sentences(world, "pipe_fails", failed) == [
        "pipe p of shop.orders loads nothing, after 3 failed polls in a row: the reason"
    ]
    well = (
        pipe(ServiceState.FAILED, failures=FAILURES_MIN - 1),
        pipe(ServiceState.STOPPED, failures=FAILURES_MIN),
        pipe(ServiceState.IDLE),
    )
    assert sentences(world, "pipe_fails", *well) == []


def test_files_that_a_pipe_could_not_load(world: AlarmWorld) -> None:
    failed = pipe(files_failed=2, last_error_code="BAD_FILE_ROW", last_error="no number")
    assert sentences(world, "pipe_files_failed", failed) == [
        "pipe p of shop.orders could not load 2 files, the last one because of BAD_FILE_ROW: no number"
    ]
    # Nothing has failed since the restart; files that failed before it are still there.
    assert sentences(world, "pipe_files_failed", pipe(files_failed=1)) == [
        "pipe p of shop.orders could not load 1 files: see system.pipe_errors"
    ]
    assert sentences(world, "pipe_files_failed", pipe(), pipe(ServiceState.STOPPED, files_failed=2)) == []
