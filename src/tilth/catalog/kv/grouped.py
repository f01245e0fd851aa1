"""A store whose concurrent commits wait for the disk together: group commit.

Covers: which commits are applied together, who applies them. Does not cover: how (`commit_all` of the store).
Always holds: a commit that comes while others are being applied waits for those and no longer; each caller gets the
outcome of its own commit, or an error of its own; commits are applied in the order in which they came. A caller that is
interrupted leaves the queue; if it leads, it answers those whose commits it was applying, and the next one leads.

    idle --commit, its caller leads--> applying --done, others came: the first of them leads--> applying
     ^                                    |
     +------------------------------------+ done, nobody
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence

from tilth.catalog.kv.delegating import DelegatingKV
from tilth.catalog.kv.protocol import Commit, KeyValue, KVOutcome, Precondition, Unknown, commit_all, outcome_of

#: Commits that are applied together at most.
COMMITS_MAX = 256


class _PendingCommit:
    """A commit and its caller, which waits until it is applied, or until it leads."""

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.changed = threading.Event()
        self.outcome: KVOutcome | Exception | None = None
        #: True while its caller applies commits, or is about to.
        self.is_leading = False
        #: The commits that its caller applies.
        self.batch: list[_PendingCommit] = []


class GroupedKV(DelegatingKV):
    """A store that applies commits which come at about the same time by one call of another one."""

    def __init__(self, inner: KeyValue) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self._pending: list[_PendingCommit] = []
        #: True while there is a leader.
        self._is_applying = False

    def commit(
        self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
    ) -> KVOutcome:
        own = _PendingCommit(Commit(preconditions, puts, deletes))
        try:
            with self._lock:
                self._pending.append(own)
                own.is_leading, self._is_applying = not self._is_applying, True
            if not own.is_leading:
                own.changed.wait()
            if own.outcome is None:
                self._apply(own)
        except BaseException as error:
            self._leave(own, error)
            raise
        assert own.outcome is not None
        return outcome_of(own.outcome)

    def _apply(self, own: _PendingCommit) -> None:
        """Apply the pending commits, of which the caller's is the first, and let the first that came meanwhile lead."""
        with self._lock:
            own.batch, self._pending = self._pending[:COMMITS_MAX], self._pending[COMMITS_MAX:]
        outcomes = commit_all(self._inner, [each.commit for each in own.batch])
        for each, outcome in zip(own.batch, outcomes, strict=True):
            each.outcome = outcome
            each.changed.set()
        with self._lock:
            self._end_lead(own)

    def _leave(self, own: _PendingCommit, error: BaseException) -> None:
        """Clean up after a caller that was interrupted at any point, by a panic of a library too."""
        # The interrupt may have come after the write.
        unknown = Unknown(f"the commit was interrupted: {type(error).__name__}: {error}")
        for each in own.batch:
            if each.outcome is None:
                each.outcome = unknown
            each.changed.set()
        with self._lock:
            if own in self._pending:
                self._pending.remove(own)
            if own.is_leading:
                self._end_lead(own)

    def _end_lead(self, own: _PendingCommit) -> None:
        """Let the first pending commit lead. The caller holds the lock."""
        own.is_leading, own.batch = False, []
        successor = self._pending[0] if self._pending else None
        self._is_applying = successor is not None
        if successor is not None:
            successor.is_leading = True
            successor.changed.set()
