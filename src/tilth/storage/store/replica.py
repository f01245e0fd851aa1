"""One replica of a root, and questions to several of them that nobody waits for too long.

Covers: the sign of a table, asking all replicas at once, waiting for the answer of one. Does not cover: what is known
of a replica's state (replica_health.py), files (replicated.py, new_copies.py).
Always holds: what a replica is asked runs on a thread of its own, so that one that hangs, as a disk of a network may
for ever, holds up nobody.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from tilth.base.clock import SystemClock
from tilth.base.errors import TilthError, as_exception
from tilth.storage.errors import StoreAwayError
from tilth.storage.store.local import LocalStore
from tilth.storage.store.place import PLACE_FILE, claim_place, place_trouble
from tilth.storage.store.replica_health import health_of
from tilth.storage.store.root import StoreRoot
from tilth.storage.store.store import Store
from tilth.storage.store.stores import store_of

#: When a quorum has a file, the others have so long to end theirs.
STRAGGLER_SECONDS = 2.0
#: Whoever does not answer at all for so long, and may not be known to be away, is not waited for.
HUNG_SECONDS = 120.0
#: Between two looks whether those that are waited for are away.
LOOK_SECONDS = 0.25
#: An answer that takes longer is reason to look whether the replica is away.
SLOW_SECONDS = 1.0
#: A replica that answers other questions may read a whole file for so long.
WHOLE_SECONDS = 3600.0
#: A new replica shows in this time that it can be used.
CLAIM_SECONDS = 20.0
_SIGN = "files of a table of Tilth, replica {id}, since {ms}\n"
_READ_SIGN = re.compile(r"files of a table of Tilth, replica (.*), since (\d+)\n")

T = TypeVar("T")
_clock = SystemClock()


class Replica:
    """One place of a storage that has several."""

    def __init__(self, number: int, root: StoreRoot, *, id: str = "", is_away: bool = False) -> None:
        """`id`: in the definition of its storage; `is_away`: it did not answer the server that has sent this root."""
        self.number = number
        self.id = id
        self.root = root
        self.health = health_of(root)
        self._is_away = is_away
        if is_away:
            self.health.reported_away()

    @property
    def trouble(self) -> str:
        """Return why it cannot be used; empty: it can, as far as is known."""
        return self.health.trouble or (self.health.reported_trouble if self._is_away else "")

    @property
    def store(self) -> Store:
        """Raises StoreSecretError."""
        # Nothing is mapped: a page that does not come would hold up more than the thread that asks for it.
        return LocalStore(self.root.uri, is_mapped=False) if self.root.is_local else store_of(self.root)

    def has_sign(self, table: str) -> bool:
        """Return whether the replica has the sign; where asking costs a request, an answer from before will do.

        It is for disks that are not mounted: what is written to a bucket is there.
        """
        if table in self.health.signs:
            return True
        is_there = self.looks_for_sign(table)
        if is_there and not self.root.is_local:
            self.health.remember_sign(table)
        return is_there

    def looks_for_sign(self, table: str) -> bool:
        """Return whether the replica has the sign now."""
        return self.store.exist([sign_of(table)]) == [True]

    def sign_since_ms(self, table: str) -> int | None:
        """Return when the replica got the sign; None: it has none, or one of another replica at the same address."""
        try:
            text = self.store.read(sign_of(table)).to_pybytes().decode(errors="replace")
        except FileNotFoundError:
            return None
        found = _READ_SIGN.fullmatch(text)
        return int(found[2]) if found is not None and found[1] == self.id else None

    def give_sign(self, table: str) -> None:
        """Say that from now on it is known which files of the table it lacks.

        Raises StoreAwayError where the place itself is not there: it may be a disk that is not mounted.
        """
        trouble = place_trouble(self.root)
        if trouble:
            raise StoreAwayError(trouble, file=str(self.root))
        self.store.prepare(f"{table}/data", fsync=True)
        self.store.put(sign_of(table), _SIGN.format(id=self.id, ms=_clock.now_ms()).encode())
        self.store.sync(table)


def sign_of(table: str) -> str:
    """Return the path of the file by which a replica is known to have a table's files."""
    return f"{table}/{PLACE_FILE}"


def replicas_of(root: StoreRoot) -> list[Replica]:
    """Return the replicas of a root, by number; none where it has none."""
    return [
        Replica(number, each, id=id, is_away=number in root.away)
        for number, (each, id) in enumerate(zip(root.replicas, root.ids, strict=True))
    ]


def with_sign(replicas: Sequence[Replica], table: str) -> list[Replica]:
    """Return those that answer and have the sign of the table."""
    usable = [each for each in replicas if not each.trouble]
    answers = asked(usable, lambda each: each.looks_for_sign(table), enough=1)
    return [each for each in usable if answers[each.number] is True]


def asked(
    replicas: Sequence[Replica],
    ask: Callable[[Replica], T],
    *,
    enough: int,
    seconds: float | None = None,
    hung_seconds: float | None = None,
) -> dict[int, T | TilthError | OSError]:
    """Ask all at once; return the answer of each, or why there is none, by number.

    When so many have answered well, or the others are away, these have so many seconds; one that takes longer is not
    waited for, and is not used until it answers again. What it was asked to do may happen later.
    """
    limit = STRAGGLER_SECONDS if seconds is None else seconds
    changed = threading.Condition()
    questions = {each.number: _Question(each, ask, changed) for each in replicas}
    with changed:
        for _ in range(round((HUNG_SECONDS if hung_seconds is None else hung_seconds) / LOOK_SECONDS)):
            # One that was found to be away meanwhile is not waited for.
            good = sum(each.is_answered and each.error is None for each in questions.values())
            if good >= enough or all(questions[each.number].is_answered or each.trouble for each in replicas):
                break
            changed.wait(LOOK_SECONDS)
        changed.wait_for(lambda: all(each.is_answered for each in questions.values()), timeout=limit)
        found = {number: each.answer() for number, each in questions.items() if each.is_answered}
    for each in replicas:
        answer = found.get(each.number)
        if each.number not in found:
            error = found[each.number] = StoreAwayError(f"no answer in {limit:g} seconds", file=str(each.root))
            each.health.failed(error)
        elif isinstance(answer, TilthError | OSError):
            each.health.failed(answer)
    return {each.number: found[each.number] for each in replicas}


def waited(replica: Replica, ask: Callable[[], T]) -> T:
    """Return the answer of one replica; raises what it raises, and StoreAwayError as soon as the replica is found to be
    away.
    """
    return _Question(replica, lambda _: ask(), threading.Condition()).waited()


def claimed(root: StoreRoot, owner: str) -> None:
    """Claim what becomes a replica; raises BadStoreError, what the store says, and StoreAwayError where it hangs."""
    claims = asked([Replica(0, root)], lambda each: claim_place(each.root, owner), enough=1, hung_seconds=CLAIM_SECONDS)
    if isinstance(error := claims[0], Exception):
        raise error


class _Question(Generic[T]):
    """Something that a replica is asked, on a thread of its own."""

    def __init__(self, replica: Replica, ask: Callable[[Replica], T], changed: threading.Condition) -> None:
        """`changed`: is notified when there is an answer."""
        self.is_answered = False
        self.error: Exception | None = None
        self._answer: T | None = None
        self._replica = replica
        self._ask = ask
        self._changed = changed
        threading.Thread(target=self._run, name="tilth-replica-asked", daemon=True).start()

    def answer(self) -> T | TilthError | OSError:
        """Return the answer, or why there is none; raises a defect."""
        if isinstance(self.error, TilthError | OSError):
            return self.error
        if self.error is not None:
            raise self.error
        return self._answer  # type: ignore[return-value]  # it was answered

    def waited(self) -> T:
        with self._changed:
            wait_for_replica(self._replica, self._changed, lambda: self.is_answered, WHOLE_SECONDS)
        if self.error is not None:
            raise self.error
        return self._answer  # type: ignore[return-value]

    def _run(self) -> None:
        try:
            self._answer = self._ask(self._replica)
        # A defect too: it is raised where somebody sees it.
        except BaseException as error:
            self.error = as_exception(error)
        with self._changed:
            self.is_answered = True
            self._changed.notify_all()


def wait_for_replica(
    replica: Replica, changed: threading.Condition, is_done: Callable[[], bool], seconds: float
) -> None:
    """Wait, `changed` held, until something is done; raises StoreAwayError as soon as the replica is found to be away,
    and where it takes too long though the replica answers other questions.
    """
    if changed.wait_for(is_done, timeout=SLOW_SECONDS):
        return
    for _ in range(round(seconds / LOOK_SECONDS)):
        replica.health.check()
        if changed.wait_for(is_done, timeout=LOOK_SECONDS):
            return
        if replica.health.trouble:
            raise StoreAwayError(replica.health.trouble, file=str(replica.root))
    error = StoreAwayError(f"no answer in {seconds:g} seconds", file=str(replica.root))
    replica.health.failed(error)
    raise error
