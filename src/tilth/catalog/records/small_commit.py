"""Small commits of the repositories: read a view, plan a batch, commit it; again when somebody was faster.

Covers: everything that is not a transaction (definitions, leases, switches, trash). Does not cover: transactions
(commit/commit.py). Always holds: a plan is made from one consistent view and pinned by preconditions; after an unknown
outcome the change is searched before it is tried again, so planning the same change twice must be harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar, assert_never

from tilth.base.clock import Clock
from tilth.base.errors import UnavailableError, UnknownOutcomeError
from tilth.base.retry import backoff_ms
from tilth.catalog.errors import TooManyConflictsError
from tilth.catalog.kv import (
    Absent,
    AtVersion,
    Conflict,
    KeyValue,
    Landed,
    Precondition,
    ReadView,
    Unknown,
    Versioned,
    ViewMovedError,
    ViewUse,
)
from tilth.catalog.records.codec import Codec
from tilth.catalog.records.keys import Space, after_prefix, span

T = TypeVar("T")

#: Tries of one change. Each lost try means that somebody else's commit landed.
ATTEMPTS_MAX = 64
#: Retries without a pause.
ATTEMPTS_AT_ONCE = 8
#: Tries after outcomes that are not known, before the caller gets the error.
UNKNOWNS_MAX = 5
_BACKOFF_BASE_MS = 5
#: Keys of one batch when many are removed or rewritten.
REMOVE_BATCH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[T]):
    """A batch and what to answer when it has landed. An empty batch is not committed."""

    result: T
    preconditions: Sequence[Precondition] = ()
    puts: Mapping[bytes, bytes] = field(default_factory=dict)
    deletes: Collection[bytes] = ()


def change(kv: KeyValue, clock: Clock, plan: Callable[[ReadView], Plan[T]], *, keys: Collection[bytes] = ()) -> T:
    """Plan and commit until it lands; what `plan` raises ends it. `keys`: all that `plan` reads and writes, if known,
    which a store behind a network reads at once.

    Raises TooManyConflictsError (nothing applied), UnavailableError (nothing applied) or UnknownOutcomeError.
    """
    lost: Plan[T] | None = None
    failures = 0
    for attempt in range(ATTEMPTS_MAX):
        if attempt > ATTEMPTS_AT_ONCE:
            # Others are faster each time: a short rest breaks the step.
            wait_before_retry(clock, 1)
        try:
            with kv.view(keys, use=ViewUse.BRIEF) as view:
                has_landed = lost is not None and _has_landed(view, lost)
                planned = lost if lost is not None and has_landed else plan(view)
            if has_landed:
                kv.confirm()
                return planned.result
            if not planned.puts and not planned.deletes:
                return planned.result
            outcome = kv.commit(planned.preconditions, planned.puts, planned.deletes)
        except ViewMovedError:
            continue
        except UnavailableError as error:
            if lost is None:
                raise
            planned, outcome = lost, Unknown(str(error))
        match outcome:
            case Landed():
                return planned.result
            case Conflict():
                continue
            case Unknown(reason=reason):
                lost = planned
                failures += 1
                if failures >= UNKNOWNS_MAX:
                    raise UnknownOutcomeError(reason=reason, hint="read the catalog before you act")
                wait_before_retry(clock, failures)
            case _:
                assert_never(outcome)
    raise TooManyConflictsError(attempts=ATTEMPTS_MAX, hint="try again")


def wait_before_retry(clock: Clock, failures: int) -> None:
    clock.sleep(backoff_ms(failures, base_ms=_BACKOFF_BASE_MS, doublings_max=UNKNOWNS_MAX) / 1000)


def _has_landed(view: ReadView, planned: Plan[T]) -> bool:
    """True if everything is as the batch makes it: it landed, or somebody else wrote the very same."""
    for key, value in planned.puts.items():
        found = view.get(key)
        if found is None or found.value != value:
            return False
    return all(view.get(key) is None for key in planned.deletes if key not in planned.puts)


def unchanged(key: bytes, found: Versioned | None) -> Precondition:
    return Absent(key) if found is None else AtVersion(key, found.version)


def read(view: ReadView, key: bytes, codec: Codec[T]) -> T | None:
    found = view.get(key)
    return None if found is None else codec.decode(key, found.value)


def read_all(
    view: ReadView, codec: Codec[T], space: Space, *fields: str | int, limit: int | None = None, reverse: bool = False
) -> Iterator[T]:
    """The decoded values of all keys that begin with the fields, in the order of the keys."""
    start, end = span(space, *fields)
    decode = codec.decode
    for key, found in view.scan(start, end, limit=limit, reverse=reverse):
        yield decode(key, found.value)


def put_new(kv: KeyValue, clock: Clock, key: bytes, value: bytes) -> bool:
    """Store the value under a key that does not exist; return False if it exists."""

    def plan(view: ReadView) -> Plan[bool]:
        found = view.get(key)
        if found is not None:
            # It is ours where the answer to the first attempt was lost.
            return Plan(result=found.value == value)
        return Plan(result=True, preconditions=[Absent(key)], puts={key: value})

    return change(kv, clock, plan)


def remove(kv: KeyValue, clock: Clock, key: bytes) -> None:
    """Remove the key; does nothing where it is not there."""

    def plan(view: ReadView) -> Plan[None]:
        found = view.get(key)
        if found is None:
            return Plan(result=None)
        return Plan(result=None, preconditions=[AtVersion(key, found.version)], deletes=[key])

    change(kv, clock, plan)


def rewrite_range(
    kv: KeyValue, clock: Clock, start: bytes, end: bytes, rewrite: Callable[[bytes, bytes], bytes | None]
) -> int:
    """Replace the values of the keys from `start` to before `end`, in bounded batches; return how many.

    `rewrite` gets a key and its value, and returns the new value; None: it stays.
    """

    def plan(view: ReadView, start: bytes) -> Plan[tuple[bytes | None, int]]:
        preconditions, puts, last = list[Precondition](), dict[bytes, bytes](), None
        for key, found in view.scan(start, end, limit=REMOVE_BATCH):
            last, new = key, rewrite(key, found.value)
            if new is not None:
                preconditions.append(unchanged(key, found))
                puts[key] = new
        return Plan(result=(last, len(puts)), preconditions=preconditions, puts=puts)

    rewritten = 0
    while True:
        last, count = change(kv, clock, partial(plan, start=start))
        rewritten += count
        if last is None:
            return rewritten
        start = last + b"\0"


def remove_range(kv: KeyValue, clock: Clock, space: Space, *fields: str | int, end: bytes | None = None) -> int:
    """Remove all keys that begin with the fields (and lie before `end`), in bounded batches; return how many."""
    start = span(space, *fields)[0]
    stop = after_prefix(start) if end is None else end

    def plan(view: ReadView) -> Plan[int]:
        keys = [key for key, _ in view.scan(start, stop, limit=REMOVE_BATCH)]
        return Plan(result=len(keys), deletes=keys)

    removed = 0
    while batch := change(kv, clock, plan):
        removed += batch
    return removed
