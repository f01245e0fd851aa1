"""Readers that follow the changes of a table: a lease by name, positions, the changes from one version to another.

Covers: the server's side of streams. Does not cover: which changes a version made (version_changes.py), reading rows.
Always holds: a position is held before it is answered; changes are answered only while all that has ended since the
position is still there, else they are refused; a reader whose name another one has opened is refused.
"""

from __future__ import annotations

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import FencedError, InvalidInputError
from tilth.base.hybrid import pack
from tilth.catalog import Catalog, TableNotFoundError
from tilth.model.change_feed import NOTHING_READ, VERSIONS_MAX, ChangeSet, FeedStart, PartChange, PartChangeKind
from tilth.model.delta import by_file
from tilth.model.history import SnapshotTooOldError, check_readable
from tilth.model.lease import ReaderLease
from tilth.model.table import TableDef, full_name
from tilth.query.snapshots.as_of import mark_of, unknown_version
from tilth.query.snapshots.held import table_of_rows
from tilth.query.snapshots.version_changes import changes_of
from tilth.storage import Roots

#: Time for which a position is held without a sign of life, in milliseconds.
HOLD_MS_MAX = 7 * 24 * 3_600_000
NAME_CHARACTERS_MAX = 200
#: A hold is written anew when it would be longer by this time, or by a tenth: an idle stream polls many times a second.
RENEW_MS = 1000
_LOST_HINT = "give each stream a name of its own; start it again from its checkpoint, which opens the reader anew"


class ChangeFeeds:
    """The readers of changes."""

    def __init__(self, clock: Clock, catalog: Catalog, *, root: Roots, server: str) -> None:
        self._clock = clock
        self._catalog = catalog
        self._root = root
        self._server = server

    def open(
        self,
        database: str,
        table: str,
        *,
        name: str,
        hold_ms: int,
        version: int | None = None,
        as_of_ms: int | None = None,
        client: str = "",
    ) -> FeedStart:
        """Hold the table's changes after a version, or after a time; neither: after now.

        The reader of this name that was there before has lost its lease. Raises SnapshotTooOldError, InvalidInputError.
        """
        if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
            raise InvalidInputError("a reader has a name of printable characters", allowed=NAME_CHARACTERS_MAX)
        if not 0 < hold_ms <= HOLD_MS_MAX:
            raise InvalidInputError("a reader is held for such a time at most", hold_ms=hold_ms, allowed=HOLD_MS_MAX)
        catalog = self._catalog
        found = table_of_rows(catalog, database, table)
        now = catalog.parts.version(found.uuid)
        position = self._position(found, version, as_of_ms)
        ts = self._time_of(found, position)
        # An earlier lease has held it without a gap, however old it is: that of a stream that was stopped.
        oldest = catalog.readers.oldest(found.uuid, self._clock.now_ms(), is_named=True)
        lease = catalog.readers.open(found.uuid, ts, self._server, hold_ms, client=client, is_outside=True, name=name)
        try:
            self._check_kept(found, position, is_held=oldest is not None and oldest <= ts)
        except BaseException:
            catalog.readers.close(lease)
            raise
        return FeedStart(lease=lease, table=found, position=position, newest=now.counter)

    def newest(self, lease_id: str, hold_ms: int) -> int:
        """Renew the lease and return the table's version now. Raises FencedError, TableNotFoundError."""
        lease, hold_ms = self._find(lease_id), min(hold_ms, HOLD_MS_MAX)
        if abs(self._clock.now_ms() + hold_ms - lease.expires_ms) >= min(RENEW_MS, hold_ms // 10):
            self._catalog.readers.renew(lease, hold_ms)
        self._table(lease)
        return self._catalog.parts.version(lease.table).counter

    def advance(self, lease_id: str, version: int, hold_ms: int) -> None:
        """Hold the changes after a later version only. Raises FencedError."""
        lease = self._find(lease_id)
        ts = self._catalog.history.time_of(lease.table, version)
        moved = lease if ts is None else msgspec.structs.replace(lease, snapshot_ts=max(ts, lease.snapshot_ts))
        self._catalog.readers.renew(moved, min(hold_ms, HOLD_MS_MAX))

    def changes(self, lease_id: str, start: int, end: int) -> ChangeSet:
        """Return the changes after a version up to another one. Raises FencedError, SnapshotTooOldError."""
        lease = self._find(lease_id)
        table = self._table(lease)
        newest = self._catalog.parts.version(table.uuid).counter
        if not NOTHING_READ <= start <= end <= newest:
            raise InvalidInputError(
                "these are no versions of the table in their order", table=full_name(table), start=start, end=end
            )
        if end - max(start, 0) > VERSIONS_MAX and start != NOTHING_READ:
            raise InvalidInputError("too many versions at once", versions=end - start, allowed=VERSIONS_MAX)
        changes = self._first(table, end) if start == NOTHING_READ else self._between(table, start, end)
        return ChangeSet(table=table, root=self._root.of(table.uuid).text, changes=tuple(changes))

    def _position(self, table: TableDef, version: int | None, as_of_ms: int | None) -> int:
        """Raises InvalidInputError."""
        newest = self._catalog.parts.version(table.uuid).counter
        if version is not None and as_of_ms is not None:
            raise InvalidInputError("changes begin after a version or at a time, not both", hint="leave one out")
        if as_of_ms is not None:
            # The last version before the time.
            return self._catalog.history.version_at(table.uuid, pack(as_of_ms) - 1) or 0
        if version is not None and not NOTHING_READ <= version <= newest:
            unknown_version(self._catalog, self._clock, table, version)
        return newest if version is None else version

    def _time_of(self, table: TableDef, position: int) -> int:
        """Return the time of the snapshot that a position needs."""
        now = self._catalog.parts.version(table.uuid)
        if position in (NOTHING_READ, now.counter):
            return now.last_commit_ts
        return self._catalog.history.time_of(table.uuid, position) or 0

    def _check_kept(self, table: TableDef, position: int, *, is_held: bool) -> None:
        """Raises SnapshotTooOldError if something that has ended since the position may be gone, or may go at once."""
        if position in (NOTHING_READ, self._catalog.parts.version(table.uuid).counter):
            return
        ended = self._known_since(table, position)
        if not is_held:
            now = max(pack(self._clock.now_ms()), ended)
            # Nothing has ended since the position before the next version began.
            check_readable(ended - 1, ahm=mark_of(table, self._clock), now=now, table=full_name(table))

    def _known_since(self, table: TableDef, position: int) -> int:
        """Return when the version after the position was committed. Raises SnapshotTooOldError: it is forgotten, as all
        versions are before files go that they have.
        """
        times = [self._catalog.history.time_of(table.uuid, each) for each in (position, position + 1)]
        if times[1] is None or (position > 0 and times[0] is None):
            raise SnapshotTooOldError(
                "changes after this version cannot be read any more: garbage collection has removed some",
                table=full_name(table),
                version=position,
                oldest=self._catalog.history.oldest(table.uuid) or 0,
                hint="start the stream anew, with a new checkpoint; a reader that is held in time, or a longer "
                "tablet_history_max_age_sec, keeps them",
            )
        return times[1]

    def _first(self, table: TableDef, version: int) -> list[PartChange]:
        """Return the whole table as of a version as its first changes."""
        now = self._catalog.parts.version(table.uuid)
        # Without a time, the snapshot may have a version that was committed after `now`.
        at = now.last_commit_ts if version == now.counter else self._known_since(table, version) - 1
        snapshot = self._catalog.parts.snapshot(table.uuid, at=at)
        self._check_not_undone(table, NOTHING_READ, version, since_ts=at, end_ts=at)
        changes = by_file(snapshot.deltas)
        return [
            PartChange(version=version, kind=PartChangeKind.INSERT, part=part, after=changes.get(part.file.name, ()))
            for part in snapshot.parts
        ]

    def _between(self, table: TableDef, start: int, end: int) -> list[PartChange]:
        if start == end:
            return []
        catalog = self._catalog
        start_ts = catalog.history.time_of(table.uuid, start) or 0
        times = {version: catalog.history.time_of(table.uuid, version) for version in range(start + 1, end + 1)}
        commits = {version: ts for version, ts in times.items() if ts is not None}
        found = changes_of(
            catalog.parts.all_entries(table.uuid),
            catalog.parts.deltas(table.uuid, is_all=True),
            start_ts=start_ts,
            commits=commits,
        )
        # Files go after their versions, so that what was known until now is whole.
        self._known_since(table, start)
        self._check_not_undone(table, start, end, since_ts=start_ts, end_ts=commits[end])
        return found

    def _check_not_undone(self, table: TableDef, start: int, end: int, *, since_ts: int, end_ts: int) -> None:
        """Raises SnapshotTooOldError where an UNDROP has removed the record of a drop between these versions."""
        for dropped, undone in self._catalog.parts.version(table.uuid).undone:
            if dropped <= since_ts < undone or dropped <= end_ts < undone:
                raise SnapshotTooOldError(
                    "an UNDROP has restored rows: what came and went between these versions is not known",
                    table=full_name(table),
                    start=start,
                    end=end,
                    hint="start the stream anew, with a new checkpoint",
                )

    def _table(self, lease: ReaderLease) -> TableDef:
        """Raises TableNotFoundError."""
        found = self._catalog.tables.by_id(lease.table)
        if not isinstance(found, TableDef):
            raise TableNotFoundError("the table whose changes are read was dropped", uuid=lease.table)
        return found

    def _find(self, lease_id: str) -> ReaderLease:
        """Raises FencedError (READER_LOST)."""
        found = self._catalog.readers.find(lease_id)
        if found is None or not found.name or found.expires_ms <= self._clock.now_ms():
            raise FencedError.coded(
                "READER_LOST",
                "the reader has lost its hold on the table: it was not renewed in time, or another one has its name",
                reader=lease_id,
                hint=_LOST_HINT,
            )
        return found
