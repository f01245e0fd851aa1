"""One replica of a root, and calls of one or several replicas with a bounded wait.

Covers: the marker of a table, calling several replicas at once, waiting for the result of one. Does not cover: the
known state of a replica (health.py), files (replicated.py, new_copies.py).
Always holds: each call of a replica runs on a thread of its own, so that a replica that hangs, as a disk of a network
may for ever, blocks no caller for ever.

Tests: tests/unit/storage/store/replicas/test_replicated.py.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from tilth.base.clock import SystemClock
from tilth.base.errors import TilthError, as_exception
from tilth.storage.errors import StoreAwayError
from tilth.storage.store.backends import marker
from tilth.storage.store.backends.backend import backend_of
from tilth.storage.store.backends.local import LocalStore
from tilth.storage.store.protocol import Store
from tilth.storage.store.replicas.health import health_of, replica_trouble
from tilth.storage.store.root import StoreRoot

#: Time limit for the other replicas once a quorum has answered.
STRAGGLER_SECONDS = 2.0
#: Time limit for the answer of a replica that is not known to be away.
HUNG_SECONDS = 120.0
#: Interval between two checks whether an awaited replica is away.
CHECK_SECONDS = 0.25
#: Time after which a caller that waits for an answer has the replica checked.
SLOW_SECONDS = 1.0
#: Time limit for a call such as reading a whole file, while the replica answers other calls.
WHOLE_SECONDS = 3600.0
#: Time limit for reserving the location of a new replica.
RESERVE_SECONDS = 20.0
_TABLE_MARKER = "files of a table of Tilth, replica {id}, since {ms}\n"
_TABLE_MARKER_FORM = re.compile(r"files of a table of Tilth, replica (.*), since (\d+)\n")

T = TypeVar("T")
_clock = SystemClock()


class Replica:
    """One location of a storage with replicas."""

    def __init__(self, number: int, root: StoreRoot, *, id: str = "", is_away: bool = False) -> None:
        """`id`: id in the definition of the storage; `is_away`: it did not answer the server that sent this root."""
        self.number = number
        self.id = id
        self.root = root
        self.health = health_of(root)
        self._is_away = is_away
        if is_away:
            self.health.note_reported_away()

    @property
    def trouble(self) -> str:
        """Return why the replica cannot be used; empty: no failure is known."""
        return self.health.trouble or (self.health.reported_trouble if self._is_away else "")

    @property
    def store(self) -> Store:
        """Raises StoreSecretError."""
        # Files are not mapped: a page fault that hangs would block more than the thread that reads.
        return LocalStore(self.root.uri, is_mapped=False) if self.root.is_local else backend_of(self.root)

    def has_marker(self, table: str) -> bool:
        """Return whether the replica has the marker; where a check costs a request, an earlier answer is used.

        The marker reveals a disk that is not mounted; a bucket keeps what was written to it.
        """
        if table in self.health.marked_tables:
            return True
        is_there = self.has_marker_now(table)
        if is_there and not self.root.is_local:
            self.health.remember_marker(table)
        return is_there

    def has_marker_now(self, table: str) -> bool:
        """Return whether the replica has the marker now."""
        return self.store.exist([table_marker(table)]) == [True]

    def marker_since_ms(self, table: str) -> int | None:
        """Return the time at which the replica got the marker; None: it has none, or that of another replica that had
        the same address.
        """
        try:
            text = self.store.read(table_marker(table)).to_pybytes().decode(errors="replace")
        except FileNotFoundError:
            return None
        found = _TABLE_MARKER_FORM.fullmatch(text)
        return int(found[2]) if found is not None and found[1] == self.id else None

    def write_marker(self, table: str) -> None:
        """Write the marker of a table: from now on the catalog knows which of the table's files the replica lacks.

        Raises StoreAwayError if the location itself is missing: it may be a disk that is not mounted.
        """
        trouble = replica_trouble(self.root)
        if trouble:
            raise StoreAwayError(trouble, file=str(self.root))
        self.store.prepare(f"{table}/data", fsync=True)
        self.store.put(table_marker(table), _TABLE_MARKER.format(id=self.id, ms=_clock.now_ms()).encode())
        self.store.sync(table)


def table_marker(table: str) -> str:
    """Return the path of the marker file that shows that a replica has a table's files."""
    return f"{table}/{marker.LOCATION_FILE}"


def replicas_of(root: StoreRoot) -> list[Replica]:
    """Return the replicas of a root in the order of their numbers; empty if it has none."""
    return [
        Replica(number, each, id=id, is_away=number in root.away)
        for number, (each, id) in enumerate(zip(root.replicas, root.ids, strict=True))
    ]


def replicas_with_marker(replicas: Sequence[Replica], table: str) -> list[Replica]:
    """Return the replicas that answer and have the marker of the table."""
    usable = [each for each in replicas if not each.trouble]
    answers = call_replicas(usable, lambda each: each.has_marker_now(table), enough=1)
    return [each for each in usable if answers[each.number] is True]


def call_replicas(
    replicas: Sequence[Replica],
    call: Callable[[Replica], T],
    *,
    enough: int,
    seconds: float | None = None,
    hung_seconds: float | None = None,
) -> dict[int, T | TilthError | OSError]:
    """Call all replicas at once; return the result or the error of each, by number.

    Once `enough` calls have succeeded, or the other replicas are away, the remaining ones get `seconds` more. A replica
    that takes longer is not used until it answers again; its call may still take effect later.
    """
    limit = STRAGGLER_SECONDS if seconds is None else seconds
    changed = threading.Condition()
    calls = {each.number: _Call(each, call, changed) for each in replicas}
    with changed:
        for _ in range(round((HUNG_SECONDS if hung_seconds is None else hung_seconds) / CHECK_SECONDS)):
            # A replica that was found to be away meanwhile is not waited for.
            good = sum(each.has_ended and each.error is None for each in calls.values())
            if good >= enough or all(calls[each.number].has_ended or each.trouble for each in replicas):
                break
            changed.wait(CHECK_SECONDS)
        changed.wait_for(lambda: all(each.has_ended for each in calls.values()), timeout=limit)
        found = {number: each.outcome() for number, each in calls.items() if each.has_ended}
    for each in replicas:
        answer = found.get(each.number)
        if each.number not in found:
            error = found[each.number] = StoreAwayError(f"no answer in {limit:g} seconds", file=str(each.root))
            each.health.note_error(error)
        elif isinstance(answer, TilthError | OSError):
            each.health.note_error(answer)
    return {each.number: found[each.number] for each in replicas}


def call_replica(replica: Replica, call: Callable[[], T]) -> T:
    """Return the result of a call. Raises its errors, and StoreAwayError as soon as the replica is found to be away."""
    return _Call(replica, lambda _: call(), threading.Condition()).result()


def reserve_replica(root: StoreRoot, owner: str) -> None:
    """Reserve the location of a new replica. Raises BadStoreError, the store's errors, StoreAwayError if it hangs."""

    def reserve(replica: Replica) -> None:
        marker.write_marker(backend_of(replica.root), replica.root, owner)

    outcomes = call_replicas([Replica(0, root)], reserve, enough=1, hung_seconds=RESERVE_SECONDS)
    if isinstance(error := outcomes[0], Exception):
        raise error


class _Call(Generic[T]):
    """A call of a replica, on a thread of its own."""

    def __init__(self, replica: Replica, call: Callable[[Replica], T], changed: threading.Condition) -> None:
        """`changed` is notified when the call has ended."""
        self.has_ended = False
        self.error: Exception | None = None
        self._result: T | None = None
        self._replica = replica
        self._call = call
        self._changed = changed
        threading.Thread(target=self._run, name="tilth-replica-call", daemon=True).start()

    def outcome(self) -> T | TilthError | OSError:
        """Return the result or the store's error; raises a defect."""
        if isinstance(self.error, TilthError | OSError):
            return self.error
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]  # the call has ended

    def result(self) -> T:
        with self._changed:
            wait_for_replica(self._replica, self._changed, lambda: self.has_ended, WHOLE_SECONDS)
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]  # the call has ended

    def _run(self) -> None:
        try:
            self._result = self._call(self._replica)
        # Defects are caught too: they are raised again on the caller's thread.
        except BaseException as error:
            self.error = as_exception(error)
        with self._changed:
            self.has_ended = True
            self._changed.notify_all()


def wait_for_replica(
    replica: Replica, changed: threading.Condition, is_done: Callable[[], bool], seconds: float
) -> None:
    """Wait until `is_done`, with `changed` held. Raises StoreAwayError as soon as the replica is found to be away, and
    after `seconds` even if it answers other calls.
    """
    if changed.wait_for(is_done, timeout=SLOW_SECONDS):
        return
    for _ in range(round(seconds / CHECK_SECONDS)):
        replica.health.check()
        if changed.wait_for(is_done, timeout=CHECK_SECONDS):
            return
        if replica.health.trouble:
            raise StoreAwayError(replica.health.trouble, file=str(replica.root))
    error = StoreAwayError(f"no answer in {seconds:g} seconds", file=str(replica.root))
    replica.health.note_error(error)
    raise error
