"""A store whose changes can be followed: what has become of which keys since somebody last asked.

Covers: collecting changes as they land, in order. Does not cover: where they go (tilth.recovery), which keys are worth
it (records/keys.py).
Always holds: a view from `begin` and all changes that `take` gives after it are together the store as it is; where that
is not sure (an outcome that is not known, too much to hold), `take` says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from tilth.catalog.kv.incarnation import Incarnation
from tilth.catalog.kv.protocol import KeyValue, KVOutcome, Landed, Precondition, ReadView, Unknown, Versioned, ViewUse

#: Of changes that nobody has taken; with more, nothing is held, and a follower begins anew.
HELD_BYTES_MAX = 64 << 20

#: Keys with their new values; None: the key is gone.
KeyChanges = Mapping[bytes, bytes | None]


class FollowedKV:
    """Another store, and what changes in it. One follower."""

    def __init__(
        self, inner: KeyValue, is_followed: Callable[[bytes], bool], *, held_max: int = HELD_BYTES_MAX
    ) -> None:
        self._inner = inner
        self._is_followed = is_followed
        self._held_max = held_max
        #: Commits take turns below anyway; here so that their changes stay in their order.
        self._lock = threading.Lock()
        #: None: not all changes are known.
        self._held: dict[bytes, bytes | None] | None = None
        self._held_bytes = 0

    @property
    def incarnation(self) -> Incarnation:
        return self._inner.incarnation

    def get(self, key: bytes) -> Versioned | None:
        return self._inner.get(key)

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        return self._inner.scan(start, end, limit=limit, reverse=reverse)

    def view(self, keys: Collection[bytes] = (), use: ViewUse = ViewUse.LISTING) -> AbstractContextManager[ReadView]:
        return self._inner.view(keys, use)

    def commit(
        self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
    ) -> KVOutcome:
        with self._lock:
            outcome = self._inner.commit(preconditions, puts, deletes)
            if isinstance(outcome, Landed):
                self._hold(puts, deletes)
            elif isinstance(outcome, Unknown):
                self._held = None
            return outcome

    def confirm(self) -> None:
        self._inner.confirm()

    def close(self) -> None:
        self._inner.close()

    @contextmanager
    def begin(self) -> Iterator[ReadView]:
        """Return a view; the changes since then are collected, those before are forgotten."""
        with ExitStack() as stack:
            with self._lock:
                view = stack.enter_context(self._inner.view(use=ViewUse.EXPORT))
                self._held, self._held_bytes = {}, 0
            yield view

    def take(self) -> KeyChanges | None:
        """Return what has changed since the last call or `begin`; None: that is not known, begin anew."""
        with self._lock:
            taken = self._held
            if taken:
                self._held, self._held_bytes = {}, 0
            return taken

    def _hold(self, puts: Mapping[bytes, bytes], deletes: Collection[bytes]) -> None:
        held = self._held
        if held is None:
            return
        # In the order of the store: of a key in both the put counts.
        for key, value in (*((key, None) for key in deletes), *puts.items()):
            if self._is_followed(key):
                held[key] = value
                self._held_bytes += len(key) + len(value or b"")
        if self._held_bytes > self._held_max:
            self._held = None
