"""The lines of EXPLAIN GC: what is there beside the visible rows, what keeps it and until when.

Always holds: it says what a round would do now; nothing is changed. Who reads it sees at most so many lines.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilth.base.errors import InvalidInputError
from tilth.base.hybrid import milliseconds
from tilth.base.units import show_time
from tilth.catalog import visibility
from tilth.maintenance.gc.policy import (
    Cutoff,
    GcEntry,
    GcHold,
    TrashRecord,
    Verdict,
    judge_ended,
    judge_entry,
    judge_expiry,
    judge_trash,
    kept_ms,
)
from tilth.maintenance.gc.round import GcTable, promised_ms
from tilth.maintenance.table.ttl import TableTtl, partition_end, ttl_of
from tilth.model.delta import Delta
from tilth.model.lease import ReaderLease
from tilth.model.part import Entry, Mark, Part, TrashItem
from tilth.model.ttl import ends_ms

#: Lines; a last one says how many there are besides.
ROWS_MAX = 10_000
_TRASH_BATCH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class GcRow:
    """One line of EXPLAIN GC."""

    partition: str
    #: The name of the part, mark or range, of the delta's file, or of the dropped table.
    entry: str
    #: `part`, `segment`, `mark`, `range`, `delta`, `trash`, `dropped table`; empty in a last line that says that there
    #: are more.
    kind: str
    #: `visible`, `in force` (a mark or range that still hides something), `hidden`, `in trash`, `removable`.
    state: str
    #: Holder; empty if nothing retains it.
    held_by: str
    #: Until when at least, milliseconds since 1970; 0: not known.
    until_ms: int
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Now:
    """The present state that holds collection back."""

    table: GcTable
    now_ms: int
    limit: Cutoff
    #: Cutoff of what cannot be restored: segments and deltas.
    ancient_limit: Cutoff
    oldest_txn: int | None
    #: Leases by snapshot, the oldest first.
    leases: Sequence[ReaderLease]
    #: Snapshots of the leases, in ascending order.
    snapshots: Sequence[int]
    ttl: TableTtl | None
    #: Names of parts that a merge or a mutation works on.
    reserved: frozenset[str]


def explain_table(table: GcTable) -> list[GcRow]:
    """Return what goes or waits first, partition by partition, then the trash, then what is visible."""
    now = _now(table)
    hidden: list[GcRow] = []
    visible: list[GcRow] = []
    more = 0
    for partition in table.catalog.parts.partitions(table.uuid):
        entries = table.catalog.parts.entries(table.uuid, partition)
        deltas = table.catalog.parts.deltas(table.uuid, partition, is_all=True)
        for row in itertools.chain(_entries(now, entries), _deltas(now, deltas, entries)):
            rows = visible if row.state == "visible" else hidden
            more += len(rows) >= ROWS_MAX
            if len(rows) < ROWS_MAX:
                rows.append(row)
    for row in _trash(now):
        more += len(hidden) >= ROWS_MAX
        if len(hidden) < ROWS_MAX:
            hidden.append(row)
    rows = hidden + visible
    more += max(0, len(rows) - ROWS_MAX)
    return rows[:ROWS_MAX] + ([_more(more)] if more else [])


def _now(table: GcTable) -> _Now:
    now_ms = table.clock.now_ms()
    try:
        ttl = ttl_of(table.watch.definition)
    except InvalidInputError:
        # The service reports it; nothing expires meanwhile.
        ttl = None
    reserved = table.watch.reserved.now()
    leases = sorted(table.leases(now_ms), key=lambda lease: lease.snapshot_ts)
    return _Now(
        table=table,
        now_ms=now_ms,
        limit=table.limit(table.settings),
        ancient_limit=table.ancient_limit(table.settings),
        oldest_txn=table.catalog.transactions.oldest_running(),
        leases=leases,
        snapshots=[lease.snapshot_ts for lease in leases],
        ttl=ttl,
        reserved=reserved,
    )


def _entries(now: _Now, entries: Sequence[Entry]) -> Iterator[GcRow]:
    ends = {entry.name: end_ts for entry, end_ts in visibility.end_times(entries)}
    visible = visibility.visible(entries)
    shown = {part.name for part in visible}
    expiry, expires_ms = _expiry(now, visible)
    for entry in entries:
        end_ts = ends.get(entry.name)
        if end_ts is not None:
            yield _ended(now, entry, end_ts)
        elif entry.name in shown:
            held_by = "a merge or mutation that works on it" if str(entry.name) in now.reserved else "the table"
            yield _row(entry, "visible", held_by, expires_ms, f"readers see it{expiry}")
        elif isinstance(entry, Part):
            yield _row(entry, "hidden", "the table", 0, "an older version of a part with the same blocks")
        else:
            yield _row(entry, "in force", "what it hides", 0, "it goes in a round after that")


def _expiry(now: _Now, visible: Sequence[Part]) -> tuple[str, int]:
    """Return the verdict of the TTL about the partition, as the end of a sentence, and when it goes; 0: not known."""
    if now.ttl is None or not visible:
        return "", 0
    end = partition_end(now.ttl, visible, settings=now.table.settings)
    text = judge_expiry("", end, now.ttl, now_ms=now.now_ms).reason
    at_ms = 0 if end.last is None else ends_ms(now.ttl.ttl, end.last, now.ttl.column.type)
    return f"; of its partition: {text}", at_ms


def _ended(now: _Now, entry: Entry, end_ts: int) -> GcRow:
    named = GcEntry(name=str(entry.name), commit_ts=entry.commit_ts, end_ts=end_ts)
    if isinstance(entry, Part) and entry.is_segment:
        verdict, kept = judge_ended(named, now.ancient_limit, now.snapshots), promised_ms(now.table.settings)
    else:
        verdict, kept = judge_entry(named, now.limit), kept_ms(now.table.settings)
    if verdict.goes:
        return _row(entry, "removable", "", 0, verdict.reason)
    held_by, until_ms, reason = _held(now, verdict, entry.commit_ts, milliseconds(end_ts) + kept + 1)
    return _row(entry, "hidden", held_by, until_ms, reason)


def _held(now: _Now, verdict: Verdict, commit_ts: int, until_ms: int) -> tuple[str, int, str]:
    """Return why an entry that has ended is retained, until when at least, and the details; the settings retain it
    until `until_ms`."""
    if verdict.hold is GcHold.TRANSACTION:
        return f"transaction {now.oldest_txn}", 0, verdict.reason
    if verdict.hold in (GcHold.READER, GcHold.NAMED_READER):
        is_named = verdict.hold is GcHold.NAMED_READER
        lease = next((each for each in now.leases if bool(each.name) is is_named), None)
        if lease is not None:
            return _by_reader(lease, verdict, until_ms)
    if verdict.hold is GcHold.SNAPSHOT:
        return _by_reader(next(each for each in now.leases if each.snapshot_ts >= commit_ts), verdict)
    return str(verdict.hold or ""), until_ms, verdict.reason


def _by_reader(lease: ReaderLease, verdict: Verdict, until_ms: int = 0) -> tuple[str, int, str]:
    """The same, of a reader: who it is, and since when it reads."""
    who = f" by {lease.client}" if lease.client else ""
    who += f" as {lease.name}" if lease.name else ""
    since = show_time(lease.opened_ms)
    opened = f"; the snapshot was opened at {since}{who} on server {lease.holder}, and expires unless it is renewed"
    return f"reader {lease.id}", max(until_ms, lease.expires_ms), f"{verdict.reason}{opened}"


def _deltas(now: _Now, deltas: Sequence[Delta], entries: Sequence[Entry]) -> Iterator[GcRow]:
    shown = {part.file.name for part in visibility.visible(entries)}
    for delta in deltas:
        if not delta.end_ts:
            is_read = any(target.file in shown for target in delta.targets)
            state, reason = ("visible", "readers see it") if is_read else ("hidden", "what it changes is hidden")
            yield _delta_row(delta, state, "its parts", 0, reason)
            continue
        named = GcEntry(name=delta.file.name, commit_ts=delta.commit_ts, end_ts=delta.end_ts)
        verdict = judge_ended(named, now.ancient_limit, now.snapshots)
        until_ms = milliseconds(delta.end_ts) + promised_ms(now.table.settings) + 1
        if verdict.goes:
            yield _delta_row(delta, "removable", "", 0, verdict.reason)
        else:
            yield _delta_row(delta, "hidden", *_held(now, verdict, delta.commit_ts, until_ms))


def _delta_row(delta: Delta, state: str, held_by: str, until_ms: int, reason: str) -> GcRow:
    return GcRow(
        partition=delta.partition,
        entry=delta.file.name,
        kind="delta",
        state=state,
        held_by=held_by,
        until_ms=until_ms,
        bytes=delta.bytes,
        reason=reason,
    )


def _trash(now: _Now) -> Iterator[GcRow]:
    after: bytes | None = None
    while True:
        items, after = now.table.catalog.trash.items(now.table.uuid, after=after, limit=_TRASH_BATCH)
        for each in items:
            yield _trashed(now, each.item)
        if after is None:
            return


def _trashed(now: _Now, item: TrashItem) -> GcRow:
    part, settings = item.part, now.table.settings
    verdict = judge_trash(
        TrashRecord(name=str(part.name), commit_ts=part.commit_ts, end_ts=item.end_ts),
        now_ms=now.now_ms,
        snapshots=now.snapshots,
        settings=settings,
    )
    kept_until_ms = 0
    if verdict.hold is GcHold.TRASH_LIFETIME:
        kept_until_ms = milliseconds(item.end_ts) + round(settings.trash_lifetime * 1000) + 1
    held_by, until_ms, reason = _held(now, verdict, part.commit_ts, kept_until_ms)
    state = "removable" if verdict.goes else "in trash"
    reason = f"{reason}; UNDROP PARTITION can bring it back" if item.is_dropped else reason
    return _row(part, state, held_by, until_ms, reason, kind="trash")


def _row(entry: Entry, state: str, held_by: str, until_ms: int, reason: str, *, kind: str = "") -> GcRow:
    return GcRow(
        partition=entry.name.partition,
        entry=str(entry.name),
        kind=kind or _kind_of(entry),
        state=state,
        held_by=held_by,
        until_ms=until_ms,
        bytes=entry.bytes if isinstance(entry, Part) else 0,
        reason=reason,
    )


def _kind_of(entry: Entry) -> str:
    if isinstance(entry, Part):
        return "segment" if entry.is_segment else "part"
    return "mark" if isinstance(entry, Mark) else "range"


def _more(count: int) -> GcRow:
    reason = f"{count} more are not shown; system.parts and system.trash have all"
    return GcRow(partition="", entry="", kind="", state="", held_by="", until_ms=0, bytes=0, reason=reason)
