"""Read times of AS OF, and checks that they can still be read, and read again with the same answer.

Covers: versions and times as hybrid times, the ancient history mark, times that are not over yet. Does not cover:
leases (held.py), what is kept for how long (maintenance).
Always holds: no later commit has a timestamp at or before a returned read time; the present state is never
refused. See also: docs/policies/history.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, assert_never

from tilth.base.clock import Clock
from tilth.base.errors import InvalidInputError
from tilth.base.hybrid import COUNTER_MAX, milliseconds, pack
from tilth.base.settings import setting_of
from tilth.catalog import Catalog
from tilth.maintenance import GcSettings, gc_settings
from tilth.model.history import SnapshotTooOldError, ancient_mark, check_readable
from tilth.model.table import TableDef, full_name
from tilth.query.snapshots.protocol import AsOf, AsOfTime, AsOfVersion

#: Maximum clock skew: a time within it in the future is waited for.
SKEW_MS = 500
#: A commit that drew its time so long ago has landed: what is older is read again with the same answer.
SETTLE_MS = 50
#: Versions that are searched for the oldest that can be read.
VERSIONS_MAX = 1_000_000

HISTORY_SETTING = setting_of(GcSettings, "history").name


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTime:
    """Time as of which a table is read."""

    #: Hybrid time.
    ts: int
    #: `True` if it was the current state when requested by its version: that needs no history.
    is_newest: bool = False


def read_time_of(catalog: Catalog, clock: Clock, table: TableDef, as_of: AsOf) -> ReadTime:
    """Return the read time, which can be read now; wait for a time that is nearly over.

    Raises SnapshotTooOldError, InvalidInputError (SNAPSHOT_IN_FUTURE, or a version that is unknown).
    """
    match as_of:
        case AsOfVersion(version=version):
            read_time = _at_version(catalog, clock, table, version)
        case AsOfTime(micros=micros):
            read_time = ReadTime(ts=pack(micros // 1000, COUNTER_MAX))
            _wait_over(catalog, clock, table, read_time.ts)
        case _:
            assert_never(as_of)
    check_kept(catalog, clock, table, read_time)
    return read_time


def check_kept(catalog: Catalog, clock: Clock, table: TableDef, read_time: ReadTime) -> None:
    """Raises SnapshotTooOldError for a time before the ancient history mark, before the table, or before what an
    earlier, shorter history has left."""
    last = catalog.parts.version(table.uuid).last_commit_ts
    if read_time.is_newest and read_time.ts >= last:
        return
    now = max(pack(clock.now_ms()), last, read_time.ts)
    check_readable(read_time.ts, ahm=mark_of(table, clock), now=now, table=full_name(table))
    if milliseconds(read_time.ts) < table.created_ms:
        raise SnapshotTooOldError("the table did not exist yet", table=full_name(table), hint="read a later time")
    for dropped, undone in catalog.parts.version(table.uuid).undone:
        if dropped <= read_time.ts < undone:
            raise SnapshotTooOldError(
                "rows that a drop hid at that time were restored: what the table contained is not known any more",
                table=full_name(table),
                hint="read a time before the drop or after the UNDROP",
            )
    oldest = _forgotten_before(catalog, table, read_time.ts)
    if oldest is not None:
        raise SnapshotTooOldError(
            "garbage collection has removed what the table contained at that time",
            table=full_name(table),
            oldest_version=oldest,
            hint="tablet_history_max_age_sec was shorter then than it is now",
        )


def _forgotten_before(catalog: Catalog, table: TableDef, ts: int) -> int | None:
    """Oldest version that is known, if the table's versions up to a time are forgotten, as HISTORY_GC does it."""
    version = catalog.parts.version(table.uuid)
    if version.last_commit_ts <= ts or catalog.history.version_at(table.uuid, ts) is not None:
        return None
    oldest = catalog.history.oldest(table.uuid)
    first = version.counter + 1 if oldest is None else oldest
    # All that are known came later. The first of all is known: the table was empty then.
    return first if first > 1 else None


def mark_of(table: TableDef, clock: Clock) -> int | None:
    """The table's ancient history mark; None: it keeps no history."""
    return ancient_mark(pack(clock.now_ms()), history_seconds(table))


def history_seconds(table: TableDef) -> float:
    """Seconds of the past that the table promises to readers; negative: none."""
    return gc_settings(table.settings).history


def readable_from(listed: Sequence[tuple[int, int]], mark: int | None) -> int | None:
    """The oldest version that can be read, of versions with the times of their commits, the newest first; None: there
    are none.

    A version can be read that was the present one at or after the mark; the present one always can. Pure.
    """
    oldest: int | None = None
    ended: int | None = None
    for version, committed in listed:
        if ended is not None and (mark is None or ended - 1 < mark):
            break
        oldest, ended = version, committed
    return oldest


def _at_version(catalog: Catalog, clock: Clock, table: TableDef, version: int) -> ReadTime:
    now = catalog.parts.version(table.uuid)
    if 0 < version == now.counter:
        return ReadTime(ts=now.last_commit_ts, is_newest=True)
    times = [catalog.history.time_of(table.uuid, each) for each in (version, version + 1)]
    if version < 1 or times[0] is None or times[1] is None:
        unknown_version(catalog, clock, table, version)
    # Its last hybrid time: history is kept from a mark on, and a version that was the current one there can be read.
    return ReadTime(ts=times[1] - 1)


def unknown_version(catalog: Catalog, clock: Clock, table: TableDef, version: int) -> NoReturn:
    """Raise InvalidInputError (UNKNOWN_VERSION), which says what can be read."""
    newest = catalog.parts.version(table.uuid).counter
    listed = catalog.history.listing(table.uuid, VERSIONS_MAX)
    raise InvalidInputError.coded(
        "UNKNOWN_VERSION",
        "the table has no such version, or not any more",
        table=full_name(table),
        version=version,
        oldest=readable_from(listed, mark_of(table, clock)) or newest,
        newest=newest,
        hint="system.table_versions lists them" if newest else "the table has no version yet: nothing was committed",
    )


def _wait_over(catalog: Catalog, clock: Clock, table: TableDef, ts: int) -> None:
    """Wait until no commit at or before this time can come any more; raises InvalidInputError (SNAPSHOT_IN_FUTURE) if
    it is later than now by more than the clocks of servers may differ.
    """
    last = catalog.parts.version(table.uuid).last_commit_ts
    if ts <= last:
        return
    ahead_ms = milliseconds(ts) - clock.now_ms()
    if ahead_ms > SKEW_MS:
        check_readable(ts, ahm=None, now=max(pack(clock.now_ms()), last), table=full_name(table))
    wait_settled(catalog, clock, [table.uuid], ts)


def wait_settled(catalog: Catalog, clock: Clock, tables: Sequence[str], ts: int) -> None:
    """Wait until no commit to these tables, by uuid, at or before this time can come any more."""
    ahead_ms = milliseconds(ts) - clock.now_ms()
    if ahead_ms + SETTLE_MS >= 0:
        clock.sleep((ahead_ms + SETTLE_MS + 1) / 1000)
    # Commits that drew an earlier time and are still being written have landed then.
    for table in tables:
        catalog.transactions.drain(table)
