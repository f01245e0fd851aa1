"""Calls of a driver over a server that is away, answers late, or has forgotten."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.outside_world import OutsideWorld
from tilth.base.errors import TilthError, UnknownOutcomeError
from tilth.client.errors import AnswerLostError, ServerUnreachableError
from tilth.datasource.commits import COMMIT_SECONDS_MAX, abort, begin, commit, files_of
from tilth.datasource.task_files import TaskFacts
from tilth.datasource.write_options import WriteOptions
from tilth.model.outside_write import OpenWrite, WriteOutcome, WriteRequest, WrittenFiles
from tilth.testing import ManualClock

OPTIONS = WriteOptions(database="default", table="t", tasks=8)


class Calls:
    """A server of the test's process behind a network that loses answers."""

    def __init__(self, world: OutsideWorld) -> None:
        self.world = world
        #: Errors of the next commits; those before `None` come after the commit has landed.
        self.errors: list[TilthError] = []
        self.reaches = True
        self.aborted: list[str] = []

    def begin_write(self, database: str, table: str, request: WriteRequest) -> OpenWrite:
        return self.world.engine.begin_write(database, table, request)

    def renew_write(self, write_id: str) -> None:
        self.world.engine.renew_write(write_id)

    def commit_write(self, write_id: str, files: WrittenFiles) -> WriteOutcome:
        outcome = self.world.engine.commit_write(write_id, files) if self.reaches else WriteOutcome(rows=0)
        if self.errors:
            raise self.errors.pop(0)
        return outcome

    def abort_write(self, write_id: str, reason: str) -> None:
        self.aborted.append(reason)
        self.world.engine.abort_write(write_id, reason)


@pytest.fixture
def world(tmp_path: Path) -> OutsideWorld:
    return OutsideWorld(tmp_path, table="(a BIGINT NOT NULL, b STRING) ENGINE = MergeTree ORDER BY a")


def test_a_commit_is_sent_again_until_its_outcome_is_known(world: OutsideWorld) -> None:
    calls, clock = Calls(world), ManualClock()
    opened = begin(calls, OPTIONS, ["a"], pa.schema([("a", pa.int64())]))
    files = files_of(opened.txn, [world.write(opened, [{"a": 1}])])
    calls.errors = [AnswerLostError("lost"), ServerUnreachableError("away"), UnknownOutcomeError("unknown")]
    assert commit(clock, calls, opened.id, files) == WriteOutcome(rows=1)
    assert (calls.errors, world.values()) == ([], [1])


def test_a_commit_is_not_sent_for_ever(world: OutsideWorld) -> None:
    calls, clock = Calls(world), ManualClock()
    opened = begin(calls, OPTIONS, ["a"], pa.schema([("a", pa.int64())]))
    calls.reaches = False
    calls.errors = [ServerUnreachableError("away") for _ in range(1000)]
    start = clock.monotonic()
    with pytest.raises(ServerUnreachableError):
        commit(clock, calls, opened.id, files_of(opened.txn, []))
    assert COMMIT_SECONDS_MAX <= clock.monotonic() - start <= COMMIT_SECONDS_MAX + 2
    # Nothing is aborted: it may have landed.
    assert calls.aborted == []


def test_columns_that_do_not_fit_are_refused_before_a_row_is_computed(world: OutsideWorld) -> None:
    calls = Calls(world)
    for kind in (pa.timestamp("us"), pa.list_(pa.int64()), pa.duration("us"), pa.bool_()):
        with pytest.raises(TilthError, match=r"column=a|type="):
            begin(calls, OPTIONS, ["a"], pa.schema([("a", kind)]))
    assert len(calls.aborted) == 4
    assert world.engine.outside_writes._all_open() == []


def test_an_abort_never_raises(world: OutsideWorld) -> None:
    calls = Calls(world)
    opened = begin(calls, OPTIONS, ["a"], pa.schema([("a", pa.int64())]))
    files = files_of(opened.txn, [world.write(opened, [{"a": 1}])])
    commit(ManualClock(), calls, opened.id, files)
    abort(calls, opened.id, "too late")
    assert world.values() == [1]


def test_facts_of_tasks_as_a_commit_has_them(world: OutsideWorld) -> None:
    opened = world.begin("a")
    facts = [
        world.write(opened, [{"a": 1}], task=2, attempt=1),
        None,
        TaskFacts(txn=opened.txn, task=5, attempt=0, parts=()),
    ]
    files = files_of(opened.txn, facts)
    assert (files.tasks, files.has_retried, files.may_write_on, len(files.parts)) == (6, True, False, 1)
    speculative = files_of(opened.txn, [], is_speculative=True)
    assert (speculative.tasks, speculative.has_retried, speculative.may_write_on) == (0, True, True)
    assert world.commit_parts(opened, files.parts, tasks=files.tasks).rows == 1
