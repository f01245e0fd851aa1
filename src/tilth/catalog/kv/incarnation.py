"""Incarnations of a store: histories that may lack the end of the one before. Pure.

A database that fails over to a standby without the tail of the log, or that was restored, gives out versions, epochs
and ids again that somebody has seen already. Each such history is an incarnation with a number of its own.

    incarnation 1  a b c d e f            known to processes that go on: d e f are lost
    incarnation 2  a b c g h ..           versions of g and h lie far above all of incarnation 1

Covers: what identifies an incarnation, what a new connection finds, whether it is followed, opened or refused. Does not
cover: reading and writing it (postgres_introduction.py), what follows from a change in
the process (tilth.membership).
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

    #: From 1; rises with each incarnation.
    number: int
    #: Drawn when it was opened: two histories that diverged may have the same number.
    token: str = ""
    #: Identifier of the database system, and its timeline; 0: the store has none.
    system: int = 0
    timeline: int = 0
    #: When it was opened, by the database's clock, in ms since 1970.
    opened_ms: int = 0

    @property
    def version_floor(self) -> int:
        """All versions that are given out in it are greater."""
        return self.number << VERSION_BITS if self.number > 1 else 0

    @property
    def epoch_floor(self) -> int:
        """All epochs of servers and leases that are given out in it are greater."""
        return (self.number - 1) * EPOCHS_MAX

    def __str__(self) -> str:
        return f"{self.number} (system {self.system}, timeline {self.timeline})"


#: The only one of a store that is opened by one process and kept by itself.
ONLY = Incarnation(number=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHistory:
    """Facts that a new connection reads from the database."""

    #: The incarnation that was opened last; None: none was.
    stored: Incarnation | None
    #: Identifier of the system that answers, and its timeline.
    system: int
    timeline: int
    #: The greatest version that a commit had.
    version: int


@unique
class HistoryVerdict(Enum):
    """Conclusion from what a new connection finds."""

    FOLLOW = "follow"
    #: It is a history of its own: the next incarnation is opened in it.
    OPEN = "open"
    #: It is a former primary, or a copy of an old state: whatever is done there is lost.
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHistory:
    """Memory of a process at one moment."""

    #: The incarnation that it follows; None: it has had no connection yet.
    incarnation: Incarnation | None = None
    #: The greatest version that it has seen land there.
    version: int = 0


def judge(memory: KnownHistory, found: FoundHistory) -> HistoryVerdict:
    """Return what a process does that knew this before it asked."""
    known, stored = memory.incarnation, found.stored
    if stored is None or (stored.system, stored.timeline) != (found.system, found.timeline):
        return HistoryVerdict.OPEN
    if known is None or stored.number > known.number:
        return HistoryVerdict.FOLLOW
    if stored.number < known.number:
        return HistoryVerdict.REFUSE
    # With the same number: either another process has opened it in a history that diverged from the known one, or the
    # database was set back to an earlier state of this very one.
    is_same = stored.token == known.token and found.version >= memory.version
    return HistoryVerdict.FOLLOW if is_same else HistoryVerdict.OPEN


def next_number(memory: KnownHistory, found: FoundHistory) -> int:
    """Return the number of an incarnation that is opened now."""
    return 1 + max(0 if each is None else each.number for each in (memory.incarnation, found.stored))
