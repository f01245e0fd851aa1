"""Notes of files that replicas lack: the queue of copies to make.

Covers: the notes. Does not cover: who makes the copies (tilth.maintenance), what a replica is (tilth.storage).
Always holds: a note is removed only while it is as it was when its copy was made, and while the replica has the id of
that time, so that a newer note stays; a note of a file that nobody needs any more stays until the file is removed from
the replica. Each new note writes one key of its table and replica; commits that need a complete replica compare it.

Tests: tests/unit/maintenance/copies/test_replicate.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

import msgspec

from tilth.base.clock import Clock
from tilth.catalog.kv import Absent, KeyValue, Pinned, Precondition, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, copy_key, lacking_key, pack, span
from tilth.catalog.records.living import pin_life
from tilth.catalog.records.small_commit import REMOVE_BATCH, Plan, change, read, read_all, unchanged
from tilth.model.copy_note import CopyNote

#: Lifetime of a cached answer on missing copies; a reader that misses a file tries another copy.
_FRESH_SECONDS = 1.0


class CopyNotes:
    """`catalog.copies`. For any thread."""

    def __init__(self, clock: Clock, kv: KeyValue, *, server: Callable[[], str]) -> None:
        self._clock = clock
        self._kv = kv
        self._server = server
        self._lock = threading.Lock()
        #: Time of reading, and replicas that lack a file, by table.
        self._known: dict[str, tuple[float, tuple[int, ...]]] = {}

    def of(self, table: str, *, replica: int | None = None, limit: int | None = None) -> list[CopyNote]:
        """Return the notes of a table, or of one of its replicas, by replica and file."""
        fields = () if replica is None else (replica,)
        return list(read_all(self._kv, codec.COPIES, Space.COPY, table, *fields, limit=limit))

    def lacking(self, limit: int) -> list[tuple[str, int]]:
        """Return the tables, by uuid, with their replicas that lack a file, at most so many: a read for each."""
        found: list[tuple[str, int]] = []
        start, end = span(Space.COPY)
        while len(found) < limit and (first := next(iter(self._kv.scan(start, end, limit=1)), None)):
            note = codec.COPIES.decode(first[0], first[1].value)
            found.append((note.table, note.replica))
            start = pack(Space.COPY, note.table, note.replica + 1)
        return found

    def incomplete(self, table: str) -> tuple[int, ...]:
        """Return the replicas that lack a file of the table, as of a second ago at most."""
        now = self._clock.monotonic()
        with self._lock:
            read_at, found = self._known.get(table, (-_FRESH_SECONDS, ()))
            if now - read_at < _FRESH_SECONDS:
                return found
        found = tuple(self._incomplete(table))
        with self._lock:
            self._known[table] = now, found
        return found

    def note(self, notes: Iterable[CopyNote]) -> None:
        """Write the notes. One that exists becomes a newer one, which `settle` of the older one does not remove."""
        for batch in _batches(notes):

            def plan(view: ReadView, batch: Sequence[CopyNote] = batch) -> Plan[None]:
                new = [_newer(each, read(view, copy_key(each), codec.COPIES)) for each in batch]
                puts = {copy_key(each): codec.COPIES.encode(each) for each in new}
                puts |= {lacking_key(each.table, each.replica): codec.INTEGERS.encode(each.since_ms) for each in new}
                keys = {key: view.get(key) for key in puts}
                return Plan(result=None, preconditions=[unchanged(*each) for each in keys.items()], puts=puts)

            change(self._kv, self._clock, plan)
            self._forget(batch)

    def settle(self, made: Iterable[CopyNote], *, storage: str, replica_ids: Sequence[str]) -> None:
        """Remove notes whose copies exist, or whose files nobody needs.

        `replica_ids` are those of the replicas that were written to or checked; a note of a replica that was
        replaced meanwhile stays. Raises RetryError (SERVER_ENDED).
        """
        storage_key = pack(Space.STORAGE, storage)
        for batch in _batches(made):

            def plan(view: ReadView, batch: Sequence[CopyNote] = batch) -> Plan[None]:
                found = view.get(storage_key)
                known = () if found is None else codec.STORAGES.decode(storage_key, found.value).replica_ids
                pinned: list[Precondition] = [
                    Absent(storage_key) if found is None else Pinned(storage_key, found.version),
                    # A server that was ended may have checked long ago.
                    *pin_life(view, self._server()),
                ]
                keys: list[bytes] = []
                for each in batch:
                    if known[each.replica : each.replica + 1] != tuple(replica_ids[each.replica : each.replica + 1]):
                        continue
                    key = copy_key(each)
                    if read(view, key, codec.COPIES) == each:
                        pinned.append(unchanged(key, view.get(key)))
                        keys.append(key)
                return Plan(result=None, preconditions=pinned, deletes=keys)

            change(self._kv, self._clock, plan)
            self._forget(batch)

    def fail(self, errors: Iterable[tuple[CopyNote, str]]) -> None:
        """Write the reasons why copies could not be made; a note that has changed meanwhile stays as it is."""
        now_ms = self._clock.now_ms()
        failed = list(errors)

        def plan(view: ReadView) -> Plan[None]:
            pinned: list[Precondition] = []
            puts: dict[bytes, bytes] = {}
            for each, error in failed:
                key = copy_key(each)
                found = view.get(key)
                if found is None or codec.COPIES.decode(key, found.value) != each:
                    continue
                pinned.append(unchanged(key, found))
                noted = msgspec.structs.replace(each, failures=each.failures + 1, error=error, failed_ms=now_ms)
                puts[key] = codec.COPIES.encode(noted)
            return Plan(result=None, preconditions=pinned, puts=puts)

        change(self._kv, self._clock, plan)

    def _incomplete(self, table: str) -> Iterable[int]:
        start, end = span(Space.COPY, table)
        while found := next(iter(self._kv.scan(start, end, limit=1)), None):
            note = codec.COPIES.decode(found[0], found[1].value)
            yield note.replica
            start = pack(Space.COPY, table, note.replica + 1)

    def _forget(self, notes: Iterable[CopyNote]) -> None:
        with self._lock:
            for each in notes:
                self._known.pop(each.table, None)


def _newer(note: CopyNote, known: CopyNote | None) -> CopyNote:
    """Return the note that replaces an existing one of the file: newer than it, with the same time of its next try."""
    if known is None:
        return note
    since_ms = max(note.since_ms, known.since_ms + 1)
    return msgspec.structs.replace(known, since_ms=since_ms, reason=note.reason)


def _batches(notes: Iterable[CopyNote]) -> Iterable[Sequence[CopyNote]]:
    found = list(notes)
    return (found[start : start + REMOVE_BATCH] for start in range(0, len(found), REMOVE_BATCH))
