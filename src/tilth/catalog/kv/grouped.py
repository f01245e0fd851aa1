"""A store whose concurrent commits wait for the disk together.

Covers: which commits are applied together, who applies them. Does not cover: how (`commit_all` of the store).
Always holds: a commit that comes while others are being applied waits for those and no longer; each caller gets the
outcome of its own commit, or an error of its own; commits are applied in the order in which they came. Whoever is
interrupted leaves the queue, answers those whom it was applying for, and lets the next one apply.

    idle --commit--> applying --done, others came: the first of them applies all--> applying
     ^                  |
     +------------------+ done, nobody
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence

from tilth.catalog.kv.delegating import DelegatingKV
from tilth.catalog.kv.protocol import Commit, KeyValue, KVOutcome, Precondition, Unknown, commit_all, outcome_of

#: Commits that are applied together at most.
COMMITS_MAX = 256


class _Waiting:
    """A commit and its caller, who sleeps until it is applied or applies the next ones itself."""

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.changed = threading.Event()
        self.outcome: KVOutcome | Exception | None = None
        #: True while its caller is the one that applies, or is about to.
        self.is_applying = False
        #: The commits that its caller applies.
        self.batch: list[_Waiting] = []


class GroupedKV(DelegatingKV):
    """A store that applies commits which come at about the same time by one call of another one."""

    def __init__(self, inner: KeyValue) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._is_applying = False

    def commit(
        self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
    ) -> KVOutcome:
        own = _Waiting(Commit(preconditions, puts, deletes))
        try:
            with self._lock:
                self._waiting.append(own)
                own.is_applying, self._is_applying = not self._is_applying, True
            if not own.is_applying:
                own.changed.wait()
            if own.outcome is None:
                self._apply(own)
        except BaseException as error:
            self._leave(own, error)
            raise
        assert own.outcome is not None
        return outcome_of(own.outcome)

    def _apply(self, own: _Waiting) -> None:
        """Apply the commits that wait, the caller's first of all, and let the next one that came meanwhile go on."""
        with self._lock:
            own.batch, self._waiting = self._waiting[:COMMITS_MAX], self._waiting[COMMITS_MAX:]
        outcomes = commit_all(self._inner, [each.commit for each in own.batch])
        for each, outcome in zip(own.batch, outcomes, strict=True):
            each.outcome = outcome
            each.changed.set()
        with self._lock:
            self._hand_on(own)

    def _leave(self, own: _Waiting, error: BaseException) -> None:
        """End the part of a caller that was interrupted, by a panic of a library too, wherever it was."""
        # It may have come after the write.
        unknown = Unknown(f"the commit was interrupted: {type(error).__name__}: {error}")
        for each in own.batch:
            if each.outcome is None:
                each.outcome = unknown
            each.changed.set()
        with self._lock:
            if own in self._waiting:
                self._waiting.remove(own)
            if own.is_applying:
                self._hand_on(own)

    def _hand_on(self, own: _Waiting) -> None:
        """Hold the lock. Let the first of those who wait apply."""
        own.is_applying, own.batch = False, []
        successor = self._waiting[0] if self._waiting else None
        self._is_applying = successor is not None
        if successor is not None:
            successor.is_applying = True
            successor.changed.set()
