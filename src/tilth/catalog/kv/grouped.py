"""A store whose concurrent commits wait for the disk together.

Covers: which commits are applied together, who applies them. Does not cover: how (`commit_all` of the store).
Always holds: a commit that comes while others are being applied waits for those and no longer; each caller gets the
outcome of its own commit, or an error of its own; commits are applied in the order in which they came.

    idle --commit--> applying --done, others came: the first of them applies all--> applying
     ^                  |
     +------------------+ done, nobody
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence

from tilth.base.errors import TilthError
from tilth.catalog.kv.delegating import DelegatingKV
from tilth.catalog.kv.protocol import Commit, KeyValue, KVOutcome, Precondition, Unknown, commit_all, outcome_of

#: Commits that are applied together at most.
COMMITS_MAX = 256


class _Waiting:
    """A commit and its caller, who sleeps until it is applied or applies the next ones itself."""

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.changed = threading.Event()
        self.outcome: KVOutcome | TilthError | None = None


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
        with self._lock:
            self._waiting.append(own)
            is_first, self._is_applying = not self._is_applying, True
        if not is_first:
            own.changed.wait()
        if own.outcome is None:
            self._apply()
        assert own.outcome is not None
        return outcome_of(own.outcome)

    def _apply(self) -> None:
        """Apply the commits that wait, the caller's first of all, and let the next one that came meanwhile go on."""
        with self._lock:
            batch, self._waiting = self._waiting[:COMMITS_MAX], self._waiting[COMMITS_MAX:]
        try:
            outcomes = commit_all(self._inner, [each.commit for each in batch])
        # A panic of a library, or an interrupt, may come after the write; all who wait get an answer.
        except BaseException as error:
            outcomes = [Unknown(f"the commit was interrupted: {type(error).__name__}: {error}") for _ in batch]
            raise
        finally:
            for each, outcome in zip(batch, outcomes, strict=True):
                each.outcome = outcome
            with self._lock:
                successor = self._waiting[0] if self._waiting else None
                self._is_applying = successor is not None
            for each in batch:
                each.changed.set()
            if successor is not None:
                successor.changed.set()
