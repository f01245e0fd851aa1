"""A transaction as a context: what each outcome leaves, also where the answer of a commit is lost, and trying again."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from tests.txn_world import TxnWorld, fail_in, noted
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
    TxnHandle,
    TxnNotFoundError,
    Update,
    rebase,
)
from tilth.catalog.commit.txn_handle import REASON_MAX
from tilth.model.lease import Fence
from tilth.model.txn import TxnState
from tilth.testing import Fault


@pytest.fixture
def world() -> TxnWorld:
    return TxnWorld()


def lost(count: int, fault: Fault) -> list[Fault | None]:
    return [fault] * count


def commit_in(handle: TxnHandle, updates: Sequence[Update], *requirements: Requirement) -> None:
    with handle:
        handle.commit(updates, requirements)


# --- outcomes ---


def test_it_is_live_until_it_lands_and_nothing_is_swept_after_a_first_try(world: TxnWorld) -> None:
    _, updates = world.one_part()
    with world.open() as handle:
        assert world.live() == {handle.id}
        committed = handle.commit(updates)
        assert world.live() == set()
    assert (world.state(handle), world.parts(), world.disk.swept) == (TxnState.FINISHED, 1, [])
    # Asked again, it gives the same answer.
    assert handle.commit(updates) == committed


def test_files_that_a_commit_did_not_name_go_where_tasks_may_have_been_tried_again(world: TxnWorld) -> None:
    written, updates = world.one_part()
    with world.open(has_tasks=True) as handle:
        handle.tasks_ended()
        handle.commit(updates)
    assert world.disk.swept == [(handle.id, frozenset({written.file.name}))]


def test_files_of_tasks_that_may_write_on_are_left_to_the_cleaner_also_where_it_lands(world: TxnWorld) -> None:
    _, updates = world.one_part()
    with world.open(has_tasks=True) as handle:
        handle.tasks_ended()
        handle.tasks_began()
        handle.commit(updates)
    # The cleaner sweeps it, because only its record of found files lets it find later ones.
    assert (world.disk.swept, world.catalog.transactions.swept()) == ([], set())
    assert noted(world) == [handle.id]


def test_a_later_attempt_says_that_an_earlier_one_may_have_left_files(world: TxnWorld) -> None:
    """A round on a cluster that has lost its first executor commits a later attempt."""
    with world.open() as handle:
        written = world.written()
        written = replace(written, file=replace(written.file, name=f"{handle.id}-0.1-0.parquet"))
        handle.commit([InsertPart(table=world.t, written=written)])
    [note] = world.catalog.transactions.leftover_notes()
    assert (note.txn.id, note.keep, note.may_write_on) == (handle.id, (written.file.name,), True)


def test_an_error_aborts_it_with_its_reason_and_removes_its_files(world: TxnWorld) -> None:
    handle = world.open()
    with pytest.raises(RuntimeError, match="the reason"):
        fail_in(handle, RuntimeError("the reason" + "x" * 2 * REASON_MAX))
    [txn] = world.catalog.transactions.unfinished()
    assert (txn.id, txn.state, txn.reason[:24]) == (handle.id, TxnState.ABORTED, "RuntimeError: the reason")
    assert len(txn.reason) == REASON_MAX
    assert (world.disk.swept, world.live()) == ([(handle.id, frozenset())], set())
    _, updates = world.one_part()
    with pytest.raises(TxnAbortedError):
        handle.commit(updates)


def test_files_of_tasks_that_may_write_on_are_left_to_the_cleaner(world: TxnWorld) -> None:
    handle = world.open(has_tasks=True)
    with pytest.raises(KeyboardInterrupt):
        fail_in(handle, KeyboardInterrupt())
    assert (world.state(handle), world.disk.swept) == (TxnState.ABORTED, [])


def test_a_transaction_that_ends_without_a_commit_is_aborted(world: TxnWorld) -> None:
    with world.open() as handle:
        pass
    [txn] = world.catalog.transactions.unfinished()
    assert (txn.id, txn.state, txn.reason) == (handle.id, TxnState.ABORTED, "nothing was committed")


def test_a_refused_commit_aborts_it_and_says_why(world: TxnWorld) -> None:
    _, updates = world.one_part()
    handle = world.open()
    with pytest.raises(SchemaChangedError):
        commit_in(handle, updates, SchemaIs(table=world.t, schema_version=9))
    assert (world.state(handle), world.parts()) == (TxnState.ABORTED, 0)
    assert world.disk.swept == [(handle.id, frozenset())]


def test_a_fenced_actor_begins_nothing(world: TxnWorld) -> None:
    with pytest.raises(FencedError):
        world.open(fences=[Fence("nobody/has/it", 1)])
    assert (world.catalog.transactions.unfinished(), world.live()) == ([], set())


def test_updates_without_files_are_one_call(world: TxnWorld) -> None:
    _, updates = world.one_part()
    txn = world.catalog.transactions.apply("test", updates)
    assert world.catalog.transactions.resolve(txn) is TxnState.FINISHED
    with pytest.raises(TilthError):
        world.catalog.transactions.apply("test", [InsertPart(table="0" * 32, written=world.written())])
    [left] = world.catalog.transactions.unfinished()
    assert left.state is TxnState.ABORTED


# --- the note of files that failed tries may have left ---


def count_commits(world: TxnWorld, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Commits of the store from now on."""
    counts: Counter[str] = Counter()
    landing = world.faulty.commit

    def commit(*given: object) -> object:
        counts["all"] += 1
        return landing(*given)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(world.faulty, "commit", commit)
    return counts


def test_a_commit_that_may_leave_files_says_which_ones_stay(world: TxnWorld) -> None:
    world.disk.error = OSError("away")
    written, updates = world.one_part()
    with world.open(has_tasks=True) as handle:
        handle.commit(updates)
    [note] = world.reopened().transactions.leftover_notes()
    assert (note.txn, note.keep, note.may_write_on) == (handle.txn, (written.file.name,), True)
    assert world.catalog.transactions.swept() == set()
    # It stays for the cleaner.
    world.catalog.transactions.forget_swept(world.catalog.transactions.swept())
    assert noted(world) == [handle.id]


def test_the_note_says_that_no_task_writes_any_more(world: TxnWorld) -> None:
    _, updates = world.one_part()
    with world.open(has_tasks=True) as handle:
        handle.tasks_ended()
        handle.commit(updates)
    assert [each.may_write_on for each in world.catalog.transactions.leftover_notes()] == [False]


def test_the_note_is_in_the_batch_of_the_commit(world: TxnWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def die(name: str) -> None:
        if name == "catalog.after_commit":
            raise Killed

    _, updates = world.one_part()
    handle = world.open(has_tasks=True)
    counts = count_commits(world, monkeypatch)
    monkeypatch.setattr("tilth.catalog.commit.transactions.hit", die)
    with pytest.raises(Killed):
        handle.commit(updates)
    assert (noted(world), counts["all"], world.disk.swept) == ([handle.id], 1, [])


def test_a_transaction_that_wrote_once_leaves_no_note_and_costs_no_other_commit(
    world: TxnWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, updates = world.one_part()
    counts = count_commits(world, monkeypatch)
    with world.open() as handle:
        handle.commit(updates)
    assert (world.catalog.transactions.leftover_notes(), world.catalog.transactions.swept()) == ([], set())
    # Its beginning and its end.
    assert counts["all"] == 2
    world.catalog.transactions.forget_swept(world.catalog.transactions.swept())
    assert counts["all"] == 2


def test_notes_of_what_is_swept_go_together(world: TxnWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    handles = [world.open(has_tasks=True) for _ in range(5)]
    for handle in handles:
        handle.tasks_ended()
        handle.commit(world.one_part()[1])
    ids = [handle.id for handle in handles]
    assert (noted(world), world.catalog.transactions.swept()) == (ids, set(ids))
    counts = count_commits(world, monkeypatch)
    world.catalog.transactions.forget_swept(world.catalog.transactions.swept())
    assert (noted(world), world.catalog.transactions.swept(), counts["all"]) == ([], set(), 1)


def test_notes_that_cannot_be_removed_go_later(world: TxnWorld) -> None:
    with world.open(has_tasks=True) as handle:
        handle.tasks_ended()
        handle.commit(world.one_part()[1])
    world.faulty.read_rate = 1.0
    with pytest.raises(UnavailableError):
        world.catalog.transactions.forget_swept(world.catalog.transactions.swept())
    assert world.catalog.transactions.swept() == {handle.id}
    world.faulty.read_rate = 0.0
    world.catalog.transactions.forget_swept(world.catalog.transactions.swept())
    assert (noted(world), world.catalog.transactions.swept()) == ([], set())


def test_it_is_live_while_it_sweeps(world: TxnWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[int]] = []
    monkeypatch.setattr("tilth.catalog.commit.txn_handle.hit", lambda _: seen.append(world.live()))
    with world.open(has_tasks=True) as handle:
        handle.tasks_ended()
        handle.commit(world.one_part()[1])
    assert (seen, world.live()) == ([{handle.id}], set())


# --- lost answers ---


def test_an_answer_that_was_lost_once_is_found_out(world: TxnWorld) -> None:
    _, updates = world.one_part()
    with world.open() as handle:
        world.faulty.plan_commits(Fault.ANSWER_LOST)
        handle.commit(updates)
    assert (world.state(handle), world.parts(), world.disk.swept) == (TxnState.FINISHED, 1, [])


@pytest.mark.parametrize("has_tasks", [False, True])
def test_an_unknown_outcome_is_neither_aborted_nor_swept(world: TxnWorld, has_tasks: bool) -> None:
    _, updates = world.one_part()
    handle = world.open(has_tasks=has_tasks)
    cut_off(world, Fault.ANSWER_LOST)
    with pytest.raises(UnknownOutcomeError) as caught:
        commit_in(handle, updates)
    heal(world)
    assert caught.value.kind is ErrorKind.UNKNOWN_OUTCOME
    # It had landed; had it been aborted or swept its part would be lost.
    assert (world.state(handle), world.parts(), world.disk.swept) == (TxnState.FINISHED, 1, [])
    # The files of its failed tries are noted for the cleaner.
    assert noted(world) == [handle.id] * has_tasks
    # The cleaner may look at it from now on.
    assert world.live() == set()


def test_an_unknown_outcome_stays_unknown_whatever_is_raised_behind_it(world: TxnWorld) -> None:
    handle, _ = unknown_commit(world, Fault.REQUEST_LOST)
    with pytest.raises(RuntimeError):
        fail_in(handle, RuntimeError("something else"))
    assert (world.state(handle), world.disk.swept) == (TxnState.RUNNING, [])


def test_the_same_commit_is_asked_for_again_until_it_is_known(world: TxnWorld) -> None:
    _, updates = world.one_part()
    handle = world.open()
    cut_off(world, Fault.REQUEST_LOST)
    with pytest.raises(UnknownOutcomeError):
        handle.commit(updates)
    # Its owner has it still.
    assert world.live() == {handle.id}
    heal(world)
    assert isinstance(handle.commit(updates), Committed)
    assert (world.state(handle), world.parts(), world.live()) == (TxnState.FINISHED, 1, set())


def test_an_unknown_commit_that_is_refused_when_asked_again_is_known(world: TxnWorld) -> None:
    handle, updates = unknown_commit(world, Fault.REQUEST_LOST)
    with pytest.raises(SchemaChangedError):
        commit_in(handle, updates, SchemaIs(table=world.t, schema_version=9))
    assert (world.state(handle), world.parts()) == (TxnState.ABORTED, 0)


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
def test_settling_finds_out_what_became_of_it(world: TxnWorld, fault: Fault) -> None:
    """The owner that did not receive the answer bars the commit; it deletes nothing where that comes too late."""
    handle, _ = unknown_commit(world, fault)
    has_landed = fault is Fault.ANSWER_LOST
    handle.give_up("nobody waits for it", is_settled=True)
    assert world.state(handle) is (TxnState.FINISHED if has_landed else TxnState.ABORTED)
    assert world.disk.swept == ([] if has_landed else [(handle.id, frozenset())])
    assert not handle.settle("twice")


# --- a record that is gone ---


def clean_up(world: TxnWorld, handle: TxnHandle) -> None:
    """Another server counts the transaction as lost, and removes its record."""
    world.catalog.transactions.abort(handle.id, "its server is gone")
    world.catalog.transactions.forget(handle.id)


def test_files_go_where_another_server_has_aborted_the_transaction_and_forgotten_it(world: TxnWorld) -> None:
    handle = world.open()
    clean_up(world, handle)
    with pytest.raises(RuntimeError):
        fail_in(handle, RuntimeError("the reason"))
    assert world.disk.swept == [(handle.id, frozenset())]


@pytest.mark.parametrize("has_tasks", [False, True])
def test_a_commit_of_a_forgotten_transaction_is_refused_and_its_files_go(world: TxnWorld, has_tasks: bool) -> None:
    _, updates = world.one_part()
    handle = world.open(has_tasks=has_tasks)
    clean_up(world, handle)
    with pytest.raises(TxnAbortedError):
        commit_in(handle, updates)
    assert world.disk.swept == ([] if has_tasks else [(handle.id, frozenset())])
    # Tasks may go on writing, and the server that removed the record has left no tombstone.
    assert [each.txn for each in world.catalog.transactions.tombstones.all()] == [handle.txn]


@pytest.mark.parametrize("is_asked_again", [False, True])
def test_nothing_goes_where_a_lost_commit_may_have_landed_so_long_ago_that_its_record_was_trimmed(
    world: TxnWorld, is_asked_again: bool
) -> None:
    handle, updates = unknown_commit(world, Fault.ANSWER_LOST)
    world.catalog.transactions.trim_finished(world.catalog.clock.now())
    if is_asked_again:
        for _ in range(2):
            with pytest.raises(TxnNotFoundError):
                handle.commit(updates)
    handle.give_up("nobody waits for it", is_settled=True)
    assert (world.parts(), world.disk.swept, world.catalog.transactions.tombstones.all()) == (1, [], [])


# --- what fails besides ---


def test_settling_says_when_the_catalog_is_away_and_does_it_later(world: TxnWorld) -> None:
    handle = world.open()
    world.faulty.read_rate = 1.0
    with pytest.raises(UnavailableError):
        handle.settle("its owner was replaced")
    world.faulty.read_rate = 0.0
    assert world.live() == {handle.id}
    assert handle.settle("its owner was replaced")
    assert (world.state(handle), world.live()) == (TxnState.ABORTED, set())


def test_an_abort_that_fails_hides_no_error_and_removes_nothing(world: TxnWorld) -> None:
    handle = world.open()
    world.faulty.read_rate = 1.0
    with pytest.raises(RuntimeError, match="the reason"):
        fail_in(handle, RuntimeError("the reason"))
    world.faulty.read_rate = 0.0
    # Left to the cleaner, which aborts it.
    assert (world.state(handle), world.disk.swept, world.live()) == (TxnState.RUNNING, [], set())
    assert world.catalog.transactions.unsettled() == {handle.id}
    world.catalog.transactions.abort(handle.id, "now")
    assert world.catalog.transactions.unsettled() == set()


@pytest.mark.parametrize("error", [OSError("read-only"), UnavailableError("the bucket is away")])
def test_files_that_cannot_be_removed_fail_nothing(world: TxnWorld, error: Exception) -> None:
    world.disk.error = error
    _, updates = world.one_part()
    with world.open(has_tasks=True) as handle:
        handle.tasks_ended()
        handle.commit(updates)
    assert (world.state(handle), len(world.disk.swept)) == (TxnState.FINISHED, 1)


def test_an_error_behind_the_commit_aborts_nothing(world: TxnWorld) -> None:
    _, updates = world.one_part()
    handle = world.open()
    with pytest.raises(RuntimeError):
        fail_in(handle, RuntimeError("too late"), updates)
    assert (world.state(handle), world.disk.swept) == (TxnState.FINISHED, [])


def test_an_error_inside_the_commit_that_says_nothing_of_the_outcome(
    world: TxnWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a failpoint behind the landed batch: its abort comes too late, and its files stay."""
    _, updates = world.one_part()
    transactions = world.catalog.transactions
    commit = transactions.commit

    def broken(*given: object) -> Committed:
        commit(*given)  # type: ignore[arg-type]  # as it was called
        raise RuntimeError("between the commit and its answer")

    monkeypatch.setattr(transactions, "commit", broken)
    handle = world.open()
    with pytest.raises(RuntimeError):
        commit_in(handle, updates)
    assert (world.state(handle), world.disk.swept) == (TxnState.FINISHED, [])
    with pytest.raises(TxnFinishedError):
        transactions.abort(handle.id, "it is there")


def test_a_transaction_without_handle_is_left_to_the_cleaner(world: TxnWorld) -> None:
    handle = world.open()
    assert world.live() == {handle.id}
    del handle
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


def test_files_of_tries_that_were_refused_go_with_the_commit_that_lands(world: TxnWorld) -> None:
    [part] = world.insert()
    lands, _ = world.one_part()

    def attempt(handle: TxnHandle, number: int) -> None:
        updates: list[Update] = [InsertPart(table=world.t, written=lands if number else world.written())]
        if not number:
            # Somebody else replaces what this try is about.
            updates.append(ReplaceParts(table=world.t, sources=(part.name,), written=None))
            world.merge([part])
        handle.commit(updates)

    with world.open() as handle:
        rebase(handle.id, lambda number: attempt(handle, number), tries=2, busy=RetryError("always late"))
    assert world.disk.swept == [(handle.id, frozenset({lands.file.name}))]
    assert [(each.txn.id, each.keep) for each in world.catalog.transactions.leftover_notes()] == [
        (handle.id, (lands.file.name,))
    ]
    assert world.parts() == 2


def unknown_commit(world: TxnWorld, fault: Fault) -> tuple[TxnHandle, list[Update]]:
    """A transaction whose commit has met the fault, and the updates of that commit; everything can be read again."""
    _, updates = world.one_part()
    handle = world.open()
    cut_off(world, fault)
    with pytest.raises(UnknownOutcomeError):
        handle.commit(updates)
    heal(world)
    return handle, updates


def cut_off(world: TxnWorld, fault: Fault) -> None:
    """The next commit meets the fault, then nothing can be read: what became of it cannot be found out."""
    world.faulty.plan_commits(fault)
    landing = world.faulty.commit

    def commit(*given: object) -> object:
        outcome = landing(*given)  # type: ignore[arg-type]  # as it was called
        world.faulty.read_rate = 1.0
        return outcome

    world.faulty.commit = commit  # type: ignore[method-assign,assignment]  # until `heal`


def heal(world: TxnWorld) -> None:
    del world.faulty.commit
    world.faulty.read_rate = 0.0
