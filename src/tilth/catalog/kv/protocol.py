"""Protocol of the catalog's key-value stores. Pure: nouns and protocols.

Keys that start with a zero byte belong to the store itself; nobody else may write them and no scan shows them.

Tests: tests/unit/catalog/kv/test_grouped.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

from tilth.base.errors import RetryError
from tilth.catalog.kv.incarnation import Incarnation

#: Keys below this one are the store's own.
FIRST_KEY = b"\x01"
#: First bytes of the keys that commits may pin (records/keys.py); a commit that writes one waits for those that pin it.
PINNED_BYTES = frozenset((b"i", b"o"))
#: A commit notifies others with a set of texts, the tables' uuids; this one stands for any.
ALL_NEWS = "*"


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value and the sequence number of the commit that wrote it."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Absent:
    """Precondition: there is no such key."""

    key: bytes


@dataclass(frozen=True, slots=True)
class AtVersion:
    """Precondition: the key exists and was last written by that commit."""

    key: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Pinned:
    """Precondition as AtVersion, for a key that many concurrent commits need unchanged.

    In a store with locks, commits that pin a key run concurrently, and a commit that writes it excludes them. Only keys
    that begin with one of PINNED_BYTES can be pinned.
    """

    key: bytes
    version: int


@dataclass(frozen=True, slots=True)
class TimeReached:
    """Precondition: the store's own clock shows this time or a later one. It always holds in a store without a clock.

    A commit that does not meet it raises ClockSkewError, and nothing is applied.
    """

    #: Time in milliseconds since 1970.
    time_ms: int


Precondition = Absent | AtVersion | Pinned | TimeReached


@dataclass(frozen=True, slots=True)
class Landed:
    """The batch is applied and durable."""

    #: The sequence number of the commit, which is the version of every key it wrote.
    version: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """The batch is not applied: this key does not meet its precondition."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Unknown:
    """The batch may or may not be applied, now or a little later: read before you act, delete nothing."""

    reason: str


KVOutcome = Landed | Conflict | Unknown


@dataclass(frozen=True, slots=True)
class Commit:
    """Arguments of `KeyValue.commit`."""

    preconditions: Sequence[Precondition]
    puts: Mapping[bytes, bytes]
    deletes: Collection[bytes]


class ViewMovedError(RetryError):
    """keys of the catalog changed while they were read"""

    code = "VIEW_MOVED"


class ViewUse(Enum):
    """Kinds of views by duration."""

    #: Reads a few keys, as before a small commit.
    BRIEF = "brief"
    #: Reads any number of keys, as for a list of parts or a system table.
    LISTING = "listing"
    #: Copies all keys to a file or another store.
    EXPORT = "export"


class ReadView(Protocol):
    """Keys and values of one snapshot."""

    def get(self, key: bytes) -> Versioned | None:
        """The value; raises UnavailableError when the store does not answer."""

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        """The keys from `start` (included) to `end` (excluded; None: to the last),
        in order or from the end backwards.
        """


class KeyValue(ReadView, Protocol):
    """A store. Safe to use from several threads."""

    @property
    def incarnation(self) -> Incarnation:
        """The incarnation of the store; it changes with a failover that may have lost the last commits."""

    def view(self, keys: Collection[bytes] = (), use: ViewUse = ViewUse.LISTING) -> AbstractContextManager[ReadView]:
        """A consistent view; what is committed after this call is not in it.

        `keys`: those that will be read, if known. A store behind a network reads them at once; a further
        read sees a later time then, and raises ViewMovedError if one of the keys has changed.
        In a store with a bounded number of connections, brief views and commits never wait for listings; a listing
        raises CatalogBusyError when there are too many, and a view that lasts too long raises RetryError
        (VIEW_TOO_LONG).
        """

    def commit(
        self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
    ) -> KVOutcome:
        """Apply all puts and deletes at once if every precondition holds. Durable when it returns Landed.

        Raises UnavailableError when nothing was applied because the store does not answer, and ClockSkewError by
        TimeReached.
        """

    def confirm(self) -> None:
        """Return once every commit that a view has shown is durable, on the synchronous standby where there is one.

        Callers that conclude from a view that a commit is applied call it first: after an unknown outcome, a view may
        show a commit that no standby has yet. Raises UnavailableError if durability cannot be confirmed.
        """

    def close(self) -> None:
        """End the use of the store; calling it again does nothing."""


@runtime_checkable
class GroupCommits(Protocol):
    """A store with group commit: several commits cost it about as much as one."""

    def commit_all(self, commits: Sequence[Commit]) -> list[KVOutcome | Exception]:
        """Apply commits as `commit` does, one after the other; return the outcome of each, or what it raises."""


def commit_all(store: KeyValue, commits: Sequence[Commit]) -> list[KVOutcome | Exception]:
    """Apply commits to any store, one after the other; return the outcome of each, or what it raises."""
    if isinstance(store, GroupCommits):
        return store.commit_all(commits)
    outcomes: list[KVOutcome | Exception] = []
    for each in commits:
        try:
            outcomes.append(store.commit(each.preconditions, each.puts, each.deletes))
        except Exception as error:
            outcomes.append(error)
    return outcomes


def outcome_of(found: KVOutcome | Exception) -> KVOutcome:
    """Return the outcome if it is one, and raise it if it is an error."""
    if isinstance(found, Exception):
        raise found
    return found
