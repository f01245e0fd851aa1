"""Commits of several threads that are applied by one call: each gets its own outcome, whatever its neighbours get."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.panics import PanicError
from tests.waiting import MOMENT, wait_until
from tilth.base.errors import TilthError, UnavailableError
from tilth.catalog import GroupedKV, MemoryKV
from tilth.catalog.kv import Absent, AtVersion, Conflict, KVOutcome, Landed, Unknown, grouped
from tilth.catalog.kv.protocol import Commit, commit_all
from tilth.testing import check_kv

SECONDS_MAX = 30.0


class Slow(MemoryKV):
    """Applies the first commit only when it is let go, and notes what came together."""

    def __init__(self, *, fails: Callable[[Commit], None] = lambda _: None) -> None:
        super().__init__()
        self.groups: list[int] = []
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()
        self._fails = fails

    def commit_all(self, commits: Sequence[Commit]) -> list[KVOutcome | Exception]:
        self.groups.append(len(commits))
        if not self.has_begun.is_set():
            self.has_begun.set()
            assert self.may_go_on.wait(SECONDS_MAX)
        outcomes: list[KVOutcome | Exception] = []
        for each in commits:
            try:
                self._fails(each)
                outcomes.append(self.commit(each.preconditions, each.puts, each.deletes))
            except TilthError as error:
                outcomes.append(error)
        return outcomes


def run_together(store: Slow, first: Commit, others: Sequence[Commit]) -> list[KVOutcome | BaseException]:
    """Commits all others while the first is being applied, in their order; the outcomes of all, the first one first."""
    grouped = GroupedKV(store)
    found: dict[int, KVOutcome | BaseException] = {}

    def run(number: int, commit: Commit) -> None:
        try:
            found[number] = grouped.commit(commit.preconditions, commit.puts, commit.deletes)
        except BaseException as error:
            found[number] = error

    threads = []
    for number, commit in enumerate([first, *others]):
        threads.append(threading.Thread(target=run, args=(number, commit)))
        threads[-1].start()
        if number == 0:
            assert store.has_begun.wait(SECONDS_MAX)
        else:
            wait_until(lambda expected=number: len(grouped._pending) == expected, first_pause=MOMENT)  # type: ignore[misc]
    store.may_go_on.set()
    for thread in threads:
        thread.join(SECONDS_MAX)
    return [found[number] for number in range(len(threads))]


def test_it_passes_the_suite_of_stores() -> None:
    check_kv(lambda: GroupedKV(MemoryKV()))


def test_what_comes_meanwhile_is_applied_together_and_in_order() -> None:
    store = Slow()
    first, *others = run_together(
        store,
        Commit([Absent(b"a")], {b"a": b"1"}, []),
        [
            Commit([], {b"b": b"1"}, []),
            Commit([Absent(b"b")], {b"c": b"1"}, []),
            Commit([Absent(b"c")], {b"c": b"2"}, [b"b"]),
            Commit([Absent(b"b")], {b"b": b"2"}, []),
        ],
    )
    assert store.groups == [1, 4]
    assert isinstance(first, Landed)
    assert [type(each) for each in others] == [Landed, Conflict, Landed, Landed]
    assert others[1] == Conflict(b"b")
    assert {key: found.value for key, found in store.scan(b"\x01", None)} == {b"a": b"1", b"b": b"2", b"c": b"2"}


def test_one_that_is_refused_costs_its_neighbours_nothing() -> None:
    def fails(commit: Commit) -> None:
        if b"bad" in commit.puts:
            raise UnavailableError("no room for this one")

    store = Slow(fails=fails)
    outcomes = run_together(
        store,
        Commit([], {b"a": b"1"}, []),
        [Commit([], {b"b": b"1"}, []), Commit([], {b"bad": b"1"}, []), Commit([AtVersion(b"a", 7)], {}, [b"a"])],
    )
    assert [type(each) for each in outcomes] == [Landed, Landed, UnavailableError, Conflict]
    assert sorted(key for key, _ in store.scan(b"\x01", None)) == [b"a", b"b"]


def test_after_a_panic_the_outcome_of_all_is_unknown_and_the_next_one_is_applied() -> None:
    def fails(commit: Commit) -> None:
        if b"bad" in commit.puts:
            raise PanicError("index out of bounds")

    store = Slow(fails=fails)
    outcomes = run_together(
        store, Commit([], {b"a": b"1"}, []), [Commit([], {b"bad": b"1"}, []), Commit([], {b"b": b"1"}, [])]
    )
    assert [type(each) for each in outcomes] == [Landed, PanicError, Unknown]
    assert isinstance(GroupedKV(store).commit([], {b"c": b"1"}, []), Landed)


class InterruptedCommit(grouped._PendingCommit):
    """A commit whose caller is interrupted: at once if it commits the key `queued`, when it is woken if it
    commits `woken`.
    """

    def __init__(self, commit: Commit) -> None:
        super().__init__(commit)
        if b"queued" in commit.puts or b"woken" in commit.puts:
            self.changed = InterruptedEvent(is_woken=b"woken" in commit.puts)


class InterruptedEvent(threading.Event):
    def __init__(self, *, is_woken: bool) -> None:
        super().__init__()
        self._is_woken = is_woken

    def wait(self, timeout: float | None = None) -> bool:
        if self._is_woken:
            super().wait(SECONDS_MAX)
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("keys", "stored"),
    [
        # It is to lead; between others; alone.
        ([b"woken", b"b", b"c"], [b"a", b"b", b"c"]),
        ([b"woken", b"woken2", b"b"], [b"a", b"b"]),
        ([b"b", b"woken", b"c"], [b"a", b"b", b"c", b"woken"]),
        ([b"woken"], [b"a"]),
    ],
)
def test_who_is_interrupted_when_it_is_woken_lets_the_next_one_apply(
    monkeypatch: pytest.MonkeyPatch, keys: list[bytes], stored: list[bytes]
) -> None:
    monkeypatch.setattr(grouped, "_PendingCommit", InterruptedCommit)
    store = Slow()
    puts = [{b"woken": b"2"} if key == b"woken2" else {key: b"1"} for key in keys]
    outcomes = run_together(store, Commit([], {b"a": b"1"}, []), [Commit([], each, []) for each in puts])
    kinds = [KeyboardInterrupt if key.startswith(b"woken") else Landed for key in keys]
    assert [type(each) for each in outcomes] == [Landed, *kinds]
    assert sorted(key for key, _ in store.scan(b"\x01", None)) == stored


def test_who_is_interrupted_in_the_queue_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped, "_PendingCommit", InterruptedCommit)
    store = Slow()
    kv = GroupedKV(store)
    found: list[KVOutcome] = []
    threads = [threading.Thread(target=lambda: found.append(kv.commit([], {b"a": b"1"}, [])))]
    threads[0].start()
    assert store.has_begun.wait(SECONDS_MAX)
    with pytest.raises(KeyboardInterrupt):
        kv.commit([], {b"queued": b"1"}, [])
    threads.append(threading.Thread(target=lambda: found.append(kv.commit([], {b"b": b"1"}, []))))
    threads[1].start()
    wait_until(lambda: len(kv._pending) == 1, first_pause=MOMENT)
    store.may_go_on.set()
    for thread in threads:
        thread.join(SECONDS_MAX)
    found.append(kv.commit([], {b"c": b"1"}, []))
    assert [type(each) for each in found] == [Landed] * 3
    assert sorted(key for key, _ in store.scan(b"\x01", None)) == [b"a", b"b", b"c"]


def test_after_a_panic_those_who_came_meanwhile_are_applied_in_the_same_store() -> None:
    def fails(commit: Commit) -> None:
        if b"bad" in commit.puts:
            raise PanicError

    outcomes = run_together(
        Slow(fails=fails), Commit([], {b"bad": b"1"}, []), [Commit([], {b"b": b"1"}, []), Commit([], {b"c": b"1"}, [])]
    )
    assert [type(each) for each in outcomes] == [PanicError, Landed, Landed]


def test_a_bug_in_the_check_of_one_commit_is_its_own() -> None:
    class Buggy(MemoryKV):
        def commit(self, preconditions: object, puts: Mapping[bytes, bytes], deletes: object) -> KVOutcome:
            assert b"bad" not in puts
            return Landed(1)

    found = commit_all(Buggy(), [Commit([], {key: b""}, []) for key in (b"a", b"bad", b"b")])
    assert [type(each) for each in found] == [Landed, AssertionError, Landed]


def test_each_caller_has_an_error_of_its_own() -> None:
    class Full(MemoryKV):
        def commit(self, *_: object) -> KVOutcome:
            raise UnavailableError("full")

    found = commit_all(Full(), [Commit([], {b"a": b""}, []), Commit([], {b"b": b""}, [])])
    assert isinstance(found[0], UnavailableError)
    assert found[0] is not found[1]
    with pytest.raises(UnavailableError, match="full"):
        GroupedKV(Full()).commit([], {b"a": b""}, [])
