"""A store whose changes can be followed: it collects the changes of keys until its follower drains them.

Covers: collecting the changes of commits, in order. Does not cover: what the follower does with them (tilth.recovery),
which keys are followed (records/keys.py).
Always holds: a view from `begin` and all changes that `drain` returns after it are together the state of the store;
after a commit with an unknown outcome, or more changes than are held, `drain` returns None.

Tests: tests/unit/catalog/kv/test_memory.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from tilth.base.errors import TilthError
from tilth.catalog.kv.delegating import DelegatingKV
from tilth.catalog.kv.protocol import (
    Commit,
    Conflict,
    KeyValue,
    KVOutcome,
    Landed,
    Precondition,
    ReadView,
    ViewUse,
    commit_all,
    outcome_of,
)

#: Limit of the changes that are held until the follower drains them; beyond it they are dropped, and it begins anew.
HELD_BYTES_MAX = 64 << 20

#: New values by key; None for a key that was deleted.
KeyChanges = Mapping[bytes, bytes | None]


class FollowedKV(DelegatingKV):
    """A store that collects the changes of another one, for one follower."""

    def __init__(
        self, inner: KeyValue, is_followed: Callable[[bytes], bool], *, held_max: int = HELD_BYTES_MAX
    ) -> None:
        super().__init__(inner)
        self._is_followed = is_followed
        self._held_max = held_max
        #: Held during a commit, so that changes are collected in the order of the commits.
        self._lock = threading.Lock()
        #: Changes since the last `drain`; None while they are not all known.
        self._held: dict[bytes, bytes | None] | None = None
        self._held_bytes = 0

    def commit(
        self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
    ) -> KVOutcome:
        return outcome_of(self.commit_all([Commit(preconditions, puts, deletes)])[0])

    def commit_all(self, commits: Sequence[Commit]) -> list[KVOutcome | Exception]:
        with self._lock:
            try:
                outcomes = commit_all(self._inner, commits)
            # A panic or an interrupt may come after the write.
            except BaseException:
                self._held = None
                raise
            for commit, outcome in zip(commits, outcomes, strict=True):
                if isinstance(outcome, Landed):
                    self._hold(commit.puts, commit.deletes)
                elif not isinstance(outcome, Conflict | TilthError):
                    self._held = None
            return outcomes

    @contextmanager
    def begin(self) -> Iterator[ReadView]:
        """Return a view, and collect the changes after it; changes from before it are dropped."""
        with ExitStack() as stack:
            with self._lock:
                view = stack.enter_context(self._inner.view(use=ViewUse.EXPORT))
                self._held, self._held_bytes = {}, 0
            yield view

    def drain(self) -> KeyChanges | None:
        """Return the changes since the last call or `begin`; None: they are not all known, call `begin` again."""
        with self._lock:
            drained = self._held
            if drained:
                self._held, self._held_bytes = {}, 0
            return drained

    def _hold(self, puts: Mapping[bytes, bytes], deletes: Collection[bytes]) -> None:
        held = self._held
        if held is None:
            return
        # Deletes come first, as in the store: for a key in both, the put counts.
        for key, value in (*((key, None) for key in deletes), *puts.items()):
            if self._is_followed(key):
                held[key] = value
                self._held_bytes += len(key) + len(value or b"")
        if self._held_bytes > self._held_max:
            self._held = None
