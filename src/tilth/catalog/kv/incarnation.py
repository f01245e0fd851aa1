"""Incarnations of a store: each failover or restore that may have lost the last commits begins a new one. Pure.

A database that fails over to a standby without the tail of the log, or that was restored, would give out versions,
epochs and ids again that processes have seen already. So each such history is an incarnation with a number of its own.

    incarnation 1  a b c d e f            known to processes that go on: d e f are lost
    incarnation 2  a b c g h ..           versions of g and h are greater than all versions of incarnation 1

Covers: what identifies an incarnation; whether the one that a new connection finds is followed, opened or refused. Does
not cover: reading and writing it (postgres_introduction.py), the effects of a change in the process (tilth.membership).
Always holds: a process never goes back to an incarnation with a lower number; no two incarnations that a process
follows have the same number.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique

#: Versions that one incarnation can give out, as bits: more than a century of commits.
VERSION_BITS = 40
#: Epochs of servers and leases that one incarnation can give out.
EPOCHS_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """One history of a store."""

    #: Number of the incarnation, from 1.
    number: int
    #: Random token of its opening: two histories that diverged may have the same number.
    token: str = ""
    #: Identifier of the database system, and its timeline; 0: the store has none.
    system: int = 0
    timeline: int = 0
    #: Time of its opening by the database's clock, in ms since 1970.
    opened_ms: int = 0

    @property
    def version_floor(self) -> int:
        """Lower bound, exclusive, of the versions of this incarnation."""
        return self.number << VERSION_BITS if self.number > 1 else 0

    @property
    def epoch_floor(self) -> int:
        """Lower bound, exclusive, of the epochs of servers and leases in this incarnation."""
        return (self.number - 1) * EPOCHS_MAX

    def __str__(self) -> str:
        return f"{self.number} (system {self.system}, timeline {self.timeline})"


#: The only incarnation of a store that a single process has open.
ONLY = Incarnation(number=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHistory:
    """Facts that a new connection reads from the database."""

    #: The newest incarnation that is recorded; None: there is no record.
    stored: Incarnation | None
    #: Identifier of the database system that answers, and its timeline.
    system: int
    timeline: int
    #: The greatest version of all commits.
    version: int


@unique
class HistoryVerdict(Enum):
    """Decision about the history that a new connection finds."""

    #: The recorded incarnation is followed.
    FOLLOW = "follow"
    #: The history is a new one: the next incarnation is opened in it.
    OPEN = "open"
    #: The database is a former primary, or a copy of an old state: whatever is written there is lost.
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHistory:
    """The history as a process knows it."""

    #: The incarnation that the process follows; None: it has had no connection yet.
    incarnation: Incarnation | None = None
    #: The greatest version of the process's own commits in that incarnation.
    version: int = 0


def judge(memory: KnownHistory, found: FoundHistory) -> HistoryVerdict:
    """Return the decision of a process about `found`; `memory` is its knowledge before it connected."""
    known, stored = memory.incarnation, found.stored
    if stored is None or (stored.system, stored.timeline) != (found.system, found.timeline):
        return HistoryVerdict.OPEN
    if known is None or stored.number > known.number:
        return HistoryVerdict.FOLLOW
    if stored.number < known.number:
        return HistoryVerdict.REFUSE
    # The numbers are equal: either another process has opened it in a history that diverged from the known one, or the
    # database was restored to an earlier state of the known one.
    is_same = stored.token == known.token and found.version >= memory.version
    return HistoryVerdict.FOLLOW if is_same else HistoryVerdict.OPEN


def next_number(memory: KnownHistory, found: FoundHistory) -> int:
    """Return the number of the incarnation that is opened next."""
    return 1 + max(0 if each is None else each.number for each in (memory.incarnation, found.stored))
