"""States of a node's components, read within a bounded time even if a component hangs.

Covers: reading the states, free space on the node's disk. Does not cover: which components a node has (node.py).

Tests: tests/unit/base/test_bounded_calls.py, tests/integration/catalog/test_postgres_watch.py.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import assert_never

from tilth.base.bounded_calls import BoundedCalls, CallAnswered, CallFailed, CallSilent
from tilth.base.errors import TilthError
from tilth.base.full import ROOM_BYTES_MIN, free_bytes, full_error, store_full
from tilth.base.logs import Log
from tilth.base.units import KIB, show_time
from tilth.catalog import PostgresWatch
from tilth.model.service import ServiceStats

#: Time limit for reading states, in seconds: health, readiness and failing services are answered within a second.
HEALTH_SECONDS_MAX = 0.7
#: Number of failing services that one answer names.
FAILED_SHOWN_MAX = 20
#: Size of the file that is written to check for free space.
PROBE_BYTES = 64 * KIB

#: State of each component: `ok`, or what is wrong with it.
States = dict[str, str]

_log = Log("node")


def known_states(
    bounded: BoundedCalls[States],
    calls: Mapping[str, Callable[[], States]],
    addresses: Mapping[str, str] | None = None,
) -> States:
    """Return the states that the calls return. For a call that does not return in time: the time since when it has not
    answered, and its address or folder in `addresses`.
    """
    found: States = {}
    for name, reading in bounded.read(calls).items():
        match reading:
            case CallAnswered(value=states):
                found |= states
            case CallFailed(error=error):
                _log.error("health_failed", cause_id=name, error=error)
                found[name] = f"a defect of Tilth: {error!r}"
            case CallSilent(since_ms=since_ms):
                address = (addresses or {}).get(name)
                found[name] = f"it has not answered since {show_time(since_ms)}" + (f": {address}" if address else "")
            case _:
                assert_never(reading)
    return found


def state_of(check: Callable[[], object]) -> str:
    try:
        check()
    except TilthError as error:
        return str(error)
    return "ok"


def failures_of(services: Iterable[ServiceStats]) -> States:
    """Return the failing services with their reasons: FAILED_SHOWN_MAX of them, and the number of the others."""
    failed = [each for each in services if each.state == "failed"]
    shown = {f"{each.service} of {each.database}.{each.table}": each.reason for each in failed[:FAILED_SHOWN_MAX]}
    if len(failed) > FAILED_SHOWN_MAX:
        shown["others"] = f"{len(failed) - FAILED_SHOWN_MAX} more services fail: see system.bg_threads"
    return shown


def check_room(folder: Path) -> None:
    """Raise StoreFullError if there is no space for the next commit. A probe is written, as quotas show only then."""
    if free_bytes(str(folder)) < ROOM_BYTES_MIN:
        raise store_full(str(folder))
    try:
        with tempfile.TemporaryFile(dir=folder / "tables") as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as error:
        full = full_error(error, folder=str(folder))
        if full is not None:
            raise full from error


def notes_of(watch: PostgresWatch | None, lost: int) -> dict[str, str]:
    """Return notes for an operator about components that work; `lost`: transactions that the database has lost."""
    notes = {}
    if watch is not None and watch.notes:
        notes["catalog database"] = "; ".join(watch.notes)
    if lost:
        notes["lost transactions"] = f"{lost} that were answered as committed: see system.lost_transactions"
    return notes
