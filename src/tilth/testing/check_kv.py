"""Behaviour suite of every key-value store; the fakes pass the same suite as the real thing.

Tests: tests/unit/catalog/kv/test_memory.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from tilth.base.errors import UnavailableError
from tilth.catalog.kv import (
    Absent,
    AtVersion,
    Conflict,
    KeyValue,
    Landed,
    Pinned,
    ReadView,
    TimeReached,
    Versioned,
    ViewMovedError,
)

_THREADS = 4
_ROUNDS = 25


def check_kv(make: Callable[[], KeyValue]) -> None:
    """Runs every check on a fresh, empty store and closes it; raises AssertionError at the first that fails.

    Uses keys from `a` to `z`.
    """
    for check in (
        _check_get,
        _check_order,
        _check_limits,
        _check_binary,
        _check_preconditions,
        _check_versions,
        _check_atomic,
        _check_view,
        _check_view_of_keys,
        _check_views_interleave,
        _check_scan_is_a_view,
        _check_large,
        _check_one_winner,
        _check_counter,
        _check_pinned,
        _check_pins_end,
        _check_time,
    ):
        kv = make()
        try:
            check(kv)
        finally:
            kv.close()
            kv.close()


def _check_get(kv: KeyValue) -> None:
    assert kv.get(b"a") is None
    _put(kv, b"a", b"1")
    assert _value(kv, b"a") == b"1"
    _put(kv, b"a", b"")
    assert _value(kv, b"a") == b""
    _delete(kv, b"a")
    assert kv.get(b"a") is None
    _delete(kv, b"a")
    _put(kv, b"a", b"2")
    assert _value(kv, b"a") == b"2"


def _check_order(kv: KeyValue) -> None:
    assert _keys(kv, b"a", b"z") == []
    for key in (b"c", b"a", b"b\x00", b"b", b"d", b"b\xff"):
        _put(kv, key, key)
    assert _keys(kv, b"a", b"z") == [b"a", b"b", b"b\x00", b"b\xff", b"c", b"d"]
    assert _keys(kv, b"b", b"c") == [b"b", b"b\x00", b"b\xff"]
    assert _keys(kv, b"b\x00", b"d") == [b"b\x00", b"b\xff", b"c"]
    assert _keys(kv, b"", b"b") == [b"a"]
    assert _keys(kv, b"c", None)[:2] == [b"c", b"d"]
    assert _keys(kv, b"c", b"c") == []
    assert _keys(kv, b"d", b"a") == []
    _delete(kv, b"b\x00")
    assert _keys(kv, b"a", b"z") == [b"a", b"b", b"b\xff", b"c", b"d"]


def _check_limits(kv: KeyValue) -> None:
    everything = [b"k%03d" % number for number in range(600)]
    assert isinstance(kv.commit([], dict.fromkeys(everything, b"v"), []), Landed)
    assert _keys(kv, b"k", b"l") == everything
    assert _keys(kv, b"k", b"l", reverse=True) == everything[::-1]
    assert _keys(kv, b"k", b"l", limit=3) == everything[:3]
    assert _keys(kv, b"k", b"l", limit=3, reverse=True) == everything[:-4:-1]
    assert _keys(kv, b"k", b"l", limit=0) == []
    assert _keys(kv, b"k100", b"k104", reverse=True) == everything[103:99:-1]
    assert _keys(kv, b"k5995", b"l", reverse=True) == []
    assert _keys(kv, b"a", b"k000", reverse=True) == []
    assert _keys(kv, b"k", b"l", limit=500) == everything[:500]


def _check_binary(kv: KeyValue) -> None:
    key, value = b"a\x00\xff\x00", bytes(range(256))
    _put(kv, key, value)
    assert _value(kv, key) == value
    assert _keys(kv, b"a", b"b") == [key]


def _check_preconditions(kv: KeyValue) -> None:
    first = kv.commit([Absent(b"a")], {b"a": b"1"}, [])
    assert isinstance(first, Landed)
    assert kv.commit([Absent(b"a")], {b"a": b"2", b"b": b"2"}, []) == Conflict(b"a")
    assert kv.get(b"b") is None
    second = kv.commit([AtVersion(b"a", first.version), Absent(b"b")], {b"a": b"2"}, [])
    assert isinstance(second, Landed)
    assert kv.commit([AtVersion(b"a", first.version)], {}, [b"a"]) == Conflict(b"a")
    assert kv.commit([AtVersion(b"c", second.version)], {b"c": b"1"}, []) == Conflict(b"c")
    assert _value(kv, b"a") == b"2"
    assert isinstance(kv.commit([AtVersion(b"a", second.version)], {}, [b"a"]), Landed)
    assert isinstance(kv.commit([Absent(b"a")], {}, []), Landed)


def _check_versions(kv: KeyValue) -> None:
    """A version is the commit's, rises, and is never the same for a key deleted and written again."""
    first = kv.commit([], {b"a": b"1", b"b": b"1"}, [])
    assert isinstance(first, Landed)
    assert {found.version for _, found in kv.scan(b"a", b"z")} == {first.version}
    second = kv.commit([], {b"b": b"1"}, [b"a"])
    assert isinstance(second, Landed)
    assert second.version > first.version
    _put(kv, b"a", b"1")
    found = kv.get(b"a")
    assert found is not None
    assert found.version > second.version


def _check_atomic(kv: KeyValue) -> None:
    """A key that is both deleted and put is there afterwards."""
    _put(kv, b"a", b"1")
    assert isinstance(kv.commit([], {b"a": b"2", b"b": b"2"}, [b"a"]), Landed)
    assert _value(kv, b"a") == b"2"
    assert kv.commit([Absent(b"c"), Absent(b"b")], {b"c": b"3"}, [b"a"]) == Conflict(b"b")
    assert _keys(kv, b"a", b"z") == [b"a", b"b"]


def _check_view(kv: KeyValue) -> None:
    _put(kv, b"a", b"1")
    _put(kv, b"b", b"1")
    with kv.view() as view:
        _put(kv, b"a", b"2")
        _delete(kv, b"b")
        _put(kv, b"c", b"2")
        with kv.view() as later:
            assert _keys(later, b"a", b"z") == [b"a", b"c"]
            assert _value(later, b"a") == b"2"
        assert _value(view, b"a") == b"1"
        assert view.get(b"c") is None
        assert _keys(view, b"a", b"z") == [b"a", b"b"]
        assert _keys(view, b"a", b"z", reverse=True, limit=1) == [b"b"]
    assert _keys(kv, b"a", b"z") == [b"a", b"c"]


def _check_view_of_keys(kv: KeyValue) -> None:
    """Whatever a view that has read keys at once finds, it was so at one moment."""
    _put(kv, b"a", b"1")
    with kv.view([b"a", b"b"]) as view:
        _put(kv, b"c", b"1")
        assert _value(view, b"a") == b"1"
        assert view.get(b"b") is None
        assert _keys(view, b"a", b"c") == [b"a"]
        _put(kv, b"d", b"1")
        assert view.get(b"d") is None
    changes = (partial(_put, kv, b"a", b"2"), partial(_put, kv, b"b", b"2"), partial(_delete, kv, b"a"))
    for change in changes:
        with kv.view([b"a", b"b"]) as view:
            before = _found(view, b"a", b"b")
            change()
            assert _found(view, b"a", b"b") == before
            with suppress(ViewMovedError):
                assert list(view.scan(b"a", b"c")) == before


def _check_views_interleave(kv: KeyValue) -> None:
    """Scans and gets of one view do not disturb each other."""
    keys = [b"k%d" % number for number in range(6)]
    assert isinstance(kv.commit([], {key: key for key in keys}, []), Landed)
    with kv.view() as view:
        forward, backward = view.scan(b"k", b"l"), view.scan(b"k", b"l", reverse=True)
        seen = []
        for _ in keys:
            seen.append((next(forward)[0], next(backward)[0]))
            _put(kv, b"k0", b"later")
            assert _value(view, b"k0") == b"k0"
            assert view.get(b"k") is None
        assert seen == list(zip(keys, keys[::-1], strict=True))
        assert list(forward) == list(backward) == []


def _check_scan_is_a_view(kv: KeyValue) -> None:
    """A commit while a scan runs is not in it, wherever the scan is."""
    keys = [b"k%04d" % number for number in range(1000)]
    assert isinstance(kv.commit([], dict.fromkeys(keys, b"1"), []), Landed)
    scan = kv.scan(b"k", b"l")
    seen = [next(scan)[0]]
    assert isinstance(kv.commit([], {b"k9999": b"2", **dict.fromkeys(keys[500:], b"2")}, keys[700:]), Landed)
    rest = list(scan)
    assert {found.value for _, found in rest} == {b"1"}
    assert seen + [key for key, _ in rest] == keys


def _check_large(kv: KeyValue) -> None:
    value = b"x" * 3_000_000
    _put(kv, b"a", value)
    assert _value(kv, b"a") == value


def _check_one_winner(kv: KeyValue) -> None:
    """Several commits want the same absent key, and one gets it."""
    for number in range(_ROUNDS):
        key = b"k%d" % number
        start = threading.Barrier(_THREADS)

        def claim(who: int, key: bytes = key, start: threading.Barrier = start) -> bool:
            start.wait()
            return isinstance(kv.commit([Absent(key)], {key: b"%d" % who}, []), Landed)

        with ThreadPoolExecutor(_THREADS) as pool:
            wins = list(pool.map(claim, range(_THREADS)))
        assert wins.count(True) == 1
        assert _value(kv, key) == b"%d" % wins.index(True)


def _check_counter(kv: KeyValue) -> None:
    """Increments under a precondition are neither lost nor doubled."""

    def count(_: int) -> None:
        done = 0
        while done < _ROUNDS:
            found = kv.get(b"a")
            pinned = Absent(b"a") if found is None else AtVersion(b"a", found.version)
            now = 0 if found is None else int(found.value)
            done += isinstance(kv.commit([pinned], {b"a": b"%d" % (now + 1)}, []), Landed)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(count, range(_THREADS)))
    assert int(_value(kv, b"a")) == _THREADS * _ROUNDS


def _check_pinned(kv: KeyValue) -> None:
    _put(kv, b"i", b"1")
    found = kv.get(b"i")
    assert found is not None
    assert isinstance(kv.commit([Pinned(b"i", found.version)], {b"a": b"1"}, []), Landed)
    _put(kv, b"i", b"2")
    assert kv.commit([Pinned(b"i", found.version)], {b"a": b"2"}, []) == Conflict(b"i")
    _delete(kv, b"i")
    assert kv.commit([Absent(b"x"), Pinned(b"i", found.version)], {b"a": b"2"}, []) == Conflict(b"i")
    assert _value(kv, b"a") == b"1"


def _check_pins_end(kv: KeyValue) -> None:
    """No commit that pins a key is applied after the key was deleted, with several of them at the same time."""
    for number in range(_ROUNDS):
        _put(kv, b"i", b"")
        found = kv.get(b"i")
        assert found is not None
        is_gone = threading.Event()
        start = threading.Barrier(_THREADS)

        def work(
            who: int,
            pin: Pinned = Pinned(b"i", found.version),
            start: threading.Barrier = start,
            is_gone: threading.Event = is_gone,
            key: bytes = b"k%d" % number,
        ) -> int:
            start.wait()
            if not who:
                _delete(kv, b"i")
                is_gone.set()
                return 0
            late = step = 0
            while not is_gone.is_set() or step < 2:
                step += 1
                is_late = is_gone.is_set()
                landed = isinstance(kv.commit([pin], {key + b"/%d" % who: b"%d" % step}, []), Landed)
                late += landed and is_late
            return late

        with ThreadPoolExecutor(_THREADS) as pool:
            assert sum(pool.map(work, range(_THREADS))) == 0


def _check_time(kv: KeyValue) -> None:
    assert isinstance(kv.commit([TimeReached(1)], {b"a": b"1"}, []), Landed)
    # A store without a clock of its own accepts any time; one with a clock raises ClockSkewError.
    with suppress(UnavailableError):
        assert isinstance(kv.commit([TimeReached(1 << 50)], {b"a": b"1"}, []), Landed)


def _put(kv: KeyValue, key: bytes, value: bytes) -> None:
    assert isinstance(kv.commit([], {key: value}, []), Landed)


def _delete(kv: KeyValue, key: bytes) -> None:
    assert isinstance(kv.commit([], {}, [key]), Landed)


def _value(view: ReadView, key: bytes) -> bytes:
    found = view.get(key)
    assert found is not None, key
    return found.value


def _found(view: ReadView, *keys: bytes) -> list[tuple[bytes, Versioned]]:
    return [(key, found) for key in keys if (found := view.get(key)) is not None]


def _keys(
    view: ReadView, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
) -> list[bytes]:
    pairs: Iterable[tuple[bytes, object]] = view.scan(start, end, limit=limit, reverse=reverse)
    return [key for key, _ in pairs]
