"""A transaction as a context: what each outcome leaves, also where the answer of a commit is lost, and trying again."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from tests.work_world import WorkWorld, fail_in, noted
from tilth.base.errors import ErrorKind, FencedError, RetryError, TilthError, UnavailableError, UnknownOutcomeError
from tilth.catalog import (
    Committed,
    InsertPart,
    PartsChangedError,
    PartsGoneError,
    ReplaceParts,
    Requirement,
    SchemaChangedError,
    SchemaIs,
    TxnAbortedError,
    TxnFinishedError,
    TxnNotFoundError,
    Update,
    Work,
    rebase,
)
from tilth.catalog.commit.work import REASON_MAX
from tilth.model.lease import Fence
from tilth.model.txn import TxnState
from tilth.testing import Fault


@pytest.fixture
def world() -> WorkWorld:
    return WorkWorld()


def lost(count: int, fault: Fault) -> list[Fault | None]:
    return [fault] * count


def commit_in(work: Work, updates: Sequence[Update], *requirements: Requirement) -> None:
    with work:
        work.commit(updates, requirements)


# --- outcomes ---


def test_it_is_live_until_it_lands_and_nothing_is_swept_after_a_first_try(world: WorkWorld) -> None:
    _, updates = world.one_part()
    with world.work() as work:
        assert world.live() == {work.id}
        committed = work.commit(updates)
        assert world.live() == set()
    assert (world.state(work), world.parts(), world.disk.swept) == (TxnState.FINISHED, 1, [])
    # Asked again, it gives the same answer.
    assert work.commit(updates) == committed


def test_files_that_a_commit_did_not_name_go_where_tasks_may_have_been_tried_again(world: WorkWorld) -> None:
    written, updates = world.one_part()
    with world.work(has_tasks=True) as work:
        work.tasks_ended()
        work.commit(updates)
    assert world.disk.swept == [(work.id, frozenset({written.file.name}))]


def test_files_of_tasks_that_may_write_on_are_left_to_the_cleaner_also_where_it_lands(world: WorkWorld) -> None:
    _, updates = world.one_part()
    with world.work(has_tasks=True) as work:
        work.tasks_ended()
        work.tasks_began()
        work.commit(updates)
    # The cleaner sweeps it, because only its record of found files lets it find later ones.
    assert (world.disk.swept, world.catalog.transactions.swept()) == ([], set())
    assert noted(world) == [work.id]


def test_a_later_attempt_says_that_an_earlier_one_may_have_left_files(world: WorkWorld) -> None:
    """A round on a cluster that has lost its first executor commits a later attempt."""
    with world.work() as work:
        written = world.written()
        written = replace(written, file=replace(written.file, name=f"{work.id}-0.1-0.parquet"))
        work.commit([InsertPart(table=world.t, written=written)])
    [note] = world.catalog.transactions.unswept()
    assert (note.txn.id, note.keep, note.may_write_on) == (work.id, (written.file.name,), True)


def test_an_error_aborts_it_with_its_reason_and_removes_its_files(world: WorkWorld) -> None:
    work = world.work()
    with pytest.raises(RuntimeError, match="the reason"):
        fail_in(work, RuntimeError("the reason" + "x" * 2 * REASON_MAX))
    [txn] = world.catalog.transactions.unfinished()
    assert (txn.id, txn.state, txn.reason[:24]) == (work.id, TxnState.ABORTED, "RuntimeError: the reason")
    assert len(txn.reason) == REASON_MAX
    assert (world.disk.swept, world.live()) == ([(work.id, frozenset())], set())
    _, updates = world.one_part()
    with pytest.raises(TxnAbortedError):
        work.commit(updates)


def test_files_of_tasks_that_may_write_on_are_left_to_the_cleaner(world: WorkWorld) -> None:
    work = world.work(has_tasks=True)
    with pytest.raises(KeyboardInterrupt):
        fail_in(work, KeyboardInterrupt())
    assert (world.state(work), world.disk.swept) == (TxnState.ABORTED, [])


def test_work_that_ends_without_a_commit_is_aborted(world: WorkWorld) -> None:
    with world.work() as work:
        pass
    [txn] = world.catalog.transactions.unfinished()
    assert (txn.id, txn.state, txn.reason) == (work.id, TxnState.ABORTED, "nothing was committed")


def test_a_refused_commit_aborts_it_and_says_why(world: WorkWorld) -> None:
    _, updates = world.one_part()
    work = world.work()
    with pytest.raises(SchemaChangedError):
        commit_in(work, updates, SchemaIs(table=world.t, schema_version=9))
    assert (world.state(work), world.parts()) == (TxnState.ABORTED, 0)
    assert world.disk.swept == [(work.id, frozenset())]


def test_a_fenced_actor_begins_nothing(world: WorkWorld) -> None:
    with pytest.raises(FencedError):
        world.work(fences=[Fence("nobody/has/it", 1)])
    assert (world.catalog.transactions.unfinished(), world.live()) == ([], set())


def test_updates_without_files_are_one_call(world: WorkWorld) -> None:
    _, updates = world.one_part()
    txn = world.catalog.transactions.apply("test", updates)
    assert world.catalog.transactions.resolve(txn) is TxnState.FINISHED
    with pytest.raises(TilthError):
        world.catalog.transactions.apply("test", [InsertPart(table="0" * 32, written=world.written())])
    [left] = world.catalog.transactions.unfinished()
    assert left.state is TxnState.ABORTED


# --- the note of files that failed tries may have left ---


def count_commits(world: WorkWorld, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Commits of the store from now on."""
    counts: Counter[str] = Counter()
    landing = world.faulty.commit

    def commit(*given: object) -> object:
        counts["all"] += 1
        return landing(*given)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(world.faulty, "commit", commit)
    return counts


def test_a_commit_that_may_leave_files_says_which_ones_stay(world: WorkWorld) -> None:
    world.disk.error = OSError("away")
    written, updates = world.one_part()
    with world.work(has_tasks=True) as work:
        work.commit(updates)
    [note] = world.reopened().transactions.unswept()
    assert (note.txn, note.keep, note.may_write_on) == (work.txn, (written.file.name,), True)
    assert world.catalog.transactions.swept() == set()
    # It stays for the cleaner.
    world.catalog.transactions.forget_swept(world.catalog.transactions.swept())
    assert noted(world) == [work.id]


def test_the_note_says_that_no_task_writes_any_more(world: WorkWorld) -> None:
    _, updates = world.one_part()
    with world.work(has_tasks=True) as work:
        work.tasks_ended()
        work.commit(updates)
    assert [each.may_write_on for each in world.catalog.transactions.unswept()] == [False]


def test_the_note_is_in_the_batch_of_the_commit(world: WorkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def die(name: str) -> None:
        if name == "catalog.after_commit":
            raise Killed

    _, updates = world.one_part()
    work = world.work(has_tasks=True)
    counts = count_commits(world, monkeypatch)
    monkeypatch.setattr("tilth.catalog.commit.transactions.hit", die)
    with pytest.raises(Killed):
        work.commit(updates)
    assert (noted(world), counts["all"], world.disk.swept) == ([work.id], 1, [])


def test_work_that_wrote_once_leaves_no_note_and_costs_no_commit_more(
    world: WorkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, updates = world.one_part()
    counts = count_commits(world, monkeypatch)
    with world.work() as work:
        work.commit(updates)
    assert (world.catalog.transactions.unswept(), world.catalog.transactions.swept()) == ([], set())
    # Its beginning and its end.
    assert counts["all"] == 2
    world.catalog.transactions.forget_swept(world.catalog.transactions.swept())
    assert counts["all"] == 2


def test_notes_of_what_is_swept_go_together(world: WorkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    works = [world.work(has_tasks=True) for _ in range(5)]
    for work in works:
        work.tasks_ended()
        work.commit(world.one_part()[1])
    ids = [work.id for work in works]
    assert (noted(world), world.catalog.transactions.swept()) == (ids, set(ids))
    counts = count_commits(world, monkeypatch)
    world.catalog.transactions.forget_swept(world.catalog.transactions.swept())
    assert (noted(world), world.catalog.transactions.swept(), counts["all"]) == ([], set(), 1)


def test_notes_that_cannot_be_removed_go_later(world: WorkWorld) -> None:
    with world.work(has_tasks=True) as work:
        work.tasks_ended()
        work.commit(world.one_part()[1])
    world.faulty.read_rate = 1.0
    with pytest.raises(UnavailableError):
        world.catalog.transactions.forget_swept(world.catalog.transactions.swept())
    assert world.catalog.transactions.swept() == {work.id}
    world.faulty.read_rate = 0.0
    world.catalog.transactions.forget_swept(world.catalog.transactions.swept())
    assert (noted(world), world.catalog.transactions.swept()) == ([], set())


def test_it_is_live_while_it_sweeps(world: WorkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[int]] = []
    monkeypatch.setattr("tilth.catalog.commit.work.hit", lambda _: seen.append(world.live()))
    with world.work(has_tasks=True) as work:
        work.tasks_ended()
        work.commit(world.one_part()[1])
    assert (seen, world.live()) == ([{work.id}], set())


# --- lost answers ---


def test_an_answer_that_was_lost_once_is_found_out(world: WorkWorld) -> None:
    _, updates = world.one_part()
    with world.work() as work:
        world.faulty.plan_commits(Fault.ANSWER_LOST)
        work.commit(updates)
    assert (world.state(work), world.parts(), world.disk.swept) == (TxnState.FINISHED, 1, [])


@pytest.mark.parametrize("has_tasks", [False, True])
def test_an_unknown_outcome_is_neither_aborted_nor_swept(world: WorkWorld, has_tasks: bool) -> None:
    _, updates = world.one_part()
    work = world.work(has_tasks=has_tasks)
    cut_off(world, Fault.ANSWER_LOST)
    with pytest.raises(UnknownOutcomeError) as caught:
        commit_in(work, updates)
    heal(world)
    assert caught.value.kind is ErrorKind.UNKNOWN_OUTCOME
    # It had landed; had it been aborted or swept its part would be lost.
    assert (world.state(work), world.parts(), world.disk.swept) == (TxnState.FINISHED, 1, [])
    # What its failed tries have left is the cleaner's.
    assert noted(world) == [work.id] * has_tasks
    # The cleaner may look at it from now on.
    assert world.live() == set()


def test_an_unknown_outcome_stays_unknown_whatever_is_raised_behind_it(world: WorkWorld) -> None:
    work, _ = unknown_commit(world, Fault.REQUEST_LOST)
    with pytest.raises(RuntimeError):
        fail_in(work, RuntimeError("something else"))
    assert (world.state(work), world.disk.swept) == (TxnState.RUNNING, [])


def test_the_same_commit_is_asked_for_again_until_it_is_known(world: WorkWorld) -> None:
    _, updates = world.one_part()
    work = world.work()
    cut_off(world, Fault.REQUEST_LOST)
    with pytest.raises(UnknownOutcomeError):
        work.commit(updates)
    # Its owner has it still.
    assert world.live() == {work.id}
    heal(world)
    assert isinstance(work.commit(updates), Committed)
    assert (world.state(work), world.parts(), world.live()) == (TxnState.FINISHED, 1, set())


def test_an_unknown_commit_that_is_refused_when_asked_again_is_known(world: WorkWorld) -> None:
    work, updates = unknown_commit(world, Fault.REQUEST_LOST)
    with pytest.raises(SchemaChangedError):
        commit_in(work, updates, SchemaIs(table=world.t, schema_version=9))
    assert (world.state(work), world.parts()) == (TxnState.ABORTED, 0)


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
def test_settling_finds_out_what_became_of_it(world: WorkWorld, fault: Fault) -> None:
    """The owner that did not hear the answer bars the commit; it deletes nothing where that comes too late."""
    work, _ = unknown_commit(world, fault)
    has_landed = fault is Fault.ANSWER_LOST
    work.give_up("nobody waits for it", is_settled=True)
    assert world.state(work) is (TxnState.FINISHED if has_landed else TxnState.ABORTED)
    assert world.disk.swept == ([] if has_landed else [(work.id, frozenset())])
    assert not work.settle("twice")


# --- a record that is gone ---


def clean_up(world: WorkWorld, work: Work) -> None:
    """Another server takes the work for lost, and removes its record."""
    world.catalog.transactions.abort(work.id, "its server is gone")
    world.catalog.transactions.forget(work.id)


def test_files_go_where_another_server_has_aborted_the_work_and_forgotten_it(world: WorkWorld) -> None:
    work = world.work()
    clean_up(world, work)
    with pytest.raises(RuntimeError):
        fail_in(work, RuntimeError("the reason"))
    assert world.disk.swept == [(work.id, frozenset())]


@pytest.mark.parametrize("has_tasks", [False, True])
def test_a_commit_of_work_that_is_forgotten_is_refused_and_its_files_go(world: WorkWorld, has_tasks: bool) -> None:
    _, updates = world.one_part()
    work = world.work(has_tasks=has_tasks)
    clean_up(world, work)
    with pytest.raises(TxnAbortedError):
        commit_in(work, updates)
    assert world.disk.swept == ([] if has_tasks else [(work.id, frozenset())])
    # Tasks may go on writing, and the server that removed the record has left no tombstone.
    assert [each.txn for each in world.catalog.transactions.tombstones.all()] == [work.txn]


@pytest.mark.parametrize("is_asked_again", [False, True])
def test_nothing_goes_where_a_lost_commit_may_have_landed_so_long_ago_that_its_record_was_trimmed(
    world: WorkWorld, is_asked_again: bool
) -> None:
    work, updates = unknown_commit(world, Fault.ANSWER_LOST)
    world.catalog.transactions.trim_finished(world.catalog.clock.now())
    if is_asked_again:
        for _ in range(2):
            with pytest.raises(TxnNotFoundError):
                work.commit(updates)
    work.give_up("nobody waits for it", is_settled=True)
    assert (world.parts(), world.disk.swept, world.catalog.transactions.tombstones.all()) == (1, [], [])


# --- what fails besides ---


def test_settling_says_when_the_catalog_is_away_and_does_it_later(world: WorkWorld) -> None:
    work = world.work()
    world.faulty.read_rate = 1.0
    with pytest.raises(UnavailableError):
        work.settle("its owner was replaced")
    world.faulty.read_rate = 0.0
    assert world.live() == {work.id}
    assert work.settle("its owner was replaced")
    assert (world.state(work), world.live()) == (TxnState.ABORTED, set())


def test_an_abort_that_fails_hides_no_error_and_removes_nothing(world: WorkWorld) -> None:
    work = world.work()
    world.faulty.read_rate = 1.0
    with pytest.raises(RuntimeError, match="the reason"):
        fail_in(work, RuntimeError("the reason"))
    world.faulty.read_rate = 0.0
    # Left to the cleaner, which aborts it.
    assert (world.state(work), world.disk.swept, world.live()) == (TxnState.RUNNING, [], set())
    assert world.catalog.transactions.unsettled() == {work.id}
    world.catalog.transactions.abort(work.id, "now")
    assert world.catalog.transactions.unsettled() == set()


@pytest.mark.parametrize("error", [OSError("read-only"), UnavailableError("the bucket is away")])
def test_files_that_cannot_be_removed_fail_nothing(world: WorkWorld, error: Exception) -> None:
    world.disk.error = error
    _, updates = world.one_part()
    with world.work(has_tasks=True) as work:
        work.tasks_ended()
        work.commit(updates)
    assert (world.state(work), len(world.disk.swept)) == (TxnState.FINISHED, 1)


def test_an_error_behind_the_commit_aborts_nothing(world: WorkWorld) -> None:
    _, updates = world.one_part()
    work = world.work()
    with pytest.raises(RuntimeError):
        fail_in(work, RuntimeError("too late"), updates)
    assert (world.state(work), world.disk.swept) == (TxnState.FINISHED, [])


def test_an_error_inside_the_commit_that_says_nothing_of_the_outcome(
    world: WorkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a failpoint behind the landed batch: its abort comes too late, and its files stay."""
    _, updates = world.one_part()
    transactions = world.catalog.transactions
    commit = transactions.commit

    def broken(*given: object) -> Committed:
        commit(*given)  # type: ignore[arg-type]  # as it was called
        raise RuntimeError("between the commit and its answer")

    monkeypatch.setattr(transactions, "commit", broken)
    work = world.work()
    with pytest.raises(RuntimeError):
        commit_in(work, updates)
    assert (world.state(work), world.disk.swept) == (TxnState.FINISHED, [])
    with pytest.raises(TxnFinishedError):
        transactions.abort(work.id, "it is there")


def test_work_that_is_forgotten_is_left_to_the_cleaner(world: WorkWorld) -> None:
    work = world.work()
    assert world.live() == {work.id}
    del work
    gc.collect()
    assert world.live() == set()


# --- rebase ---


def refusing(times: int, error: TilthError) -> Callable[[int], str]:
    def attempt(number: int) -> str:
        if number < times:
            raise error
        return f"try {number}"

    return attempt


@pytest.mark.parametrize("error", [PartsChangedError(), PartsGoneError()])
def test_what_others_changed_is_tried_again(error: TilthError) -> None:
    busy = RetryError("always late")
    assert rebase(7, refusing(2, error), tries=3, busy=busy) == "try 2"
    with pytest.raises(RetryError, match="always late") as caught:
        rebase(7, refusing(3, error), tries=3, busy=busy)
    assert caught.value.__cause__ is error


def test_who_cannot_go_on_without_its_parts_says_so() -> None:
    attempt = refusing(1, PartsGoneError())
    with pytest.raises(PartsGoneError):
        rebase(7, attempt, tries=3, busy=RetryError("always late"), moved=(PartsChangedError,))


@pytest.mark.parametrize("error", [UnknownOutcomeError(), FencedError(), SchemaChangedError()])
def test_nothing_else_is_tried_again(error: TilthError) -> None:
    with pytest.raises(type(error)):
        rebase(7, refusing(1, error), tries=3, busy=RetryError("always late"))


def test_files_of_tries_that_were_refused_go_with_the_commit_that_lands(world: WorkWorld) -> None:
    [part] = world.insert()
    lands, _ = world.one_part()

    def attempt(work: Work, number: int) -> None:
        updates: list[Update] = [InsertPart(table=world.t, written=lands if number else world.written())]
        if not number:
            # Somebody else replaces what this try is about.
            updates.append(ReplaceParts(table=world.t, sources=(part.name,), written=None))
            world.merge([part])
        work.commit(updates)

    with world.work() as work:
        rebase(work.id, lambda number: attempt(work, number), tries=2, busy=RetryError("always late"))
    assert world.disk.swept == [(work.id, frozenset({lands.file.name}))]
    assert [(each.txn.id, each.keep) for each in world.catalog.transactions.unswept()] == [
        (work.id, (lands.file.name,))
    ]
    assert world.parts() == 2


def unknown_commit(world: WorkWorld, fault: Fault) -> tuple[Work, list[Update]]:
    """A transaction whose commit has met the fault, and the updates of that commit; everything can be read again."""
    _, updates = world.one_part()
    work = world.work()
    cut_off(world, fault)
    with pytest.raises(UnknownOutcomeError):
        work.commit(updates)
    heal(world)
    return work, updates


def cut_off(world: WorkWorld, fault: Fault) -> None:
    """The next commit meets the fault, then nothing can be read: what became of it cannot be found out."""
    world.faulty.plan_commits(fault)
    landing = world.faulty.commit

    def commit(*given: object) -> object:
        outcome = landing(*given)  # type: ignore[arg-type]  # as it was called
        world.faulty.read_rate = 1.0
        return outcome

    world.faulty.commit = commit  # type: ignore[method-assign,assignment]  # until `heal`


def heal(world: WorkWorld) -> None:
    del world.faulty.commit
    world.faulty.read_rate = 0.0
