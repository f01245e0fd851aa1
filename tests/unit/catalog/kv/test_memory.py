"""The memory store, and faulty stores over it, pass the suite of all stores."""

from __future__ import annotations

import pytest

from tests.panics import PanicError
from tilth.base.rand import new_rng
from tilth.catalog import FollowedKV, MemoryKV, Unknown
from tilth.catalog.kv import KVOutcome, Landed
from tilth.testing import Fault, FaultyKV, RetryingKV, check_kv


def test_memory_passes_the_suite() -> None:
    check_kv(MemoryKV)


def test_a_followed_store_passes_the_suite_and_its_changes_are_all_of_it() -> None:
    stores: list[tuple[FollowedKV, dict[bytes, bytes]]] = []

    def make() -> FollowedKV:
        stores.append((FollowedKV(MemoryKV(), lambda key: key != b"b"), {}))
        with stores[-1][0].begin():
            return stores[-1][0]

    check_kv(make)
    for kv, known in stores:
        for key, value in (kv.drain() or {}).items():
            if value is not None:
                known[key] = value
        assert known == {key: found.value for key, found in kv.scan(b"\x01", None) if key != b"b"}
        assert not kv.drain()


def test_a_faulty_store_without_faults_passes_the_suite() -> None:
    check_kv(lambda: FaultyKV(MemoryKV(), new_rng(1)))


def test_a_faulty_store_passes_the_suite_when_its_faults_are_retried() -> None:
    made: list[FaultyKV] = []

    def make() -> RetryingKV:
        made.append(FaultyKV(MemoryKV(), new_rng(len(made)), commit_rate=0.3, read_rate=0.2))
        return RetryingKV(made[-1])

    check_kv(make)
    assert sum(store.faults for store in made) > 100


def test_faults_do_what_they_say() -> None:
    kv = FaultyKV(MemoryKV(), new_rng(1))
    kv.plan_commits(Fault.ANSWER_LOST, Fault.REQUEST_LOST)
    assert isinstance(kv.commit([], {b"a": b"1"}, []), Unknown)
    assert isinstance(kv.commit([], {b"a": b"2"}, []), Unknown)
    found = kv.get(b"a")
    assert found is not None
    assert found.value == b"1"


def test_memory_forgets_what_no_view_can_see() -> None:
    kv = MemoryKV()
    for number in range(100):
        assert isinstance(kv.commit([], {b"a": b"%d" % number}, [b"b%d" % (number - 1)]), Landed)
        assert isinstance(kv.commit([], {b"b%d" % number: b""}, []), Landed)
    assert len(kv._history) <= 3
    assert len(kv._history[b"a"]) == 1
    assert len(kv._keys) == len(kv._history)


def test_after_a_panic_the_changes_of_a_followed_store_are_not_all_known() -> None:
    class Panics(MemoryKV):
        def commit(self, *given: object) -> KVOutcome:
            super().commit(*given)  # type: ignore[arg-type]
            raise PanicError

    kv = FollowedKV(Panics(), lambda _: True)
    with kv.begin():
        assert kv.drain() == {}
    with pytest.raises(PanicError):
        kv.commit([], {b"a": b"1"}, [])
    assert kv.drain() is None
