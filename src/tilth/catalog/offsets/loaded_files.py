"""Ledger of the files that were loaded into a table: each file is stored once.

Covers: records by the file's address, forgetting old ones. Does not cover: listing files, COPY INTO (tilth.statements).
Always holds: a file is recorded in the batch of the commit that stores its rows (LoadFile), so either both are true or
neither. A record that is forgotten leaves a time behind: a file that changed before it may have been loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from tilth.base.clock import Clock
from tilth.base.hybrid import milliseconds
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, loaded_file_key, pack, span, unpack
from tilth.catalog.records.small_commit import REMOVE_BATCH, Plan, change, read, unchanged
from tilth.model.loaded_file import LoadedFile

#: Records that are read at a time.
_FIND_BATCH = 1000
#: State of a table: the time, in milliseconds, before which records of its files were forgotten.
_FORGOTTEN = "loaded-files/"


class LoadedFiles:
    """`catalog.loaded_files`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def find(self, table: str, files: Iterable[str]) -> dict[str, LoadedFile]:
        """Return the records of those of the files that were loaded, by address."""
        keys = [(file, loaded_file_key(table, file)) for file in files]
        loaded: dict[str, LoadedFile] = {}
        for begin in range(0, len(keys), _FIND_BATCH):
            some = keys[begin : begin + _FIND_BATCH]
            with self._kv.view([key for _, key in some]) as view:
                for file, key in some:
                    found = view.get(key)
                    if found is not None:
                        loaded[file] = codec.LOADED_FILES.decode(key, found.value)
        return loaded

    def all(self, table: str) -> Iterator[LoadedFile]:
        """Yield the records of a table, in no order."""
        with self._kv.view() as view:
            for key, found in view.scan(*span(Space.LOADED_FILE, table)):
                yield codec.LOADED_FILES.decode(key, found.value)

    def forgotten_ms(self, table: str) -> int:
        """Return the time before which records of the table were forgotten; 0: none was."""
        known: bytes | None = read(self._kv, pack(Space.STATE, f"{_FORGOTTEN}{table}"), codec.BLOBS)
        return int(known or b"0")

    def trim(self, before_ts: int) -> int:
        """Forget the files of all tables that were loaded before a hybrid time; return how many."""

        def plan(view: ReadView) -> Plan[int]:
            old = (
                (key, found)
                for key, found in view.scan(*span(Space.LOADED_FILE))
                if codec.LOADED_FILES.decode(key, found.value).commit_ts < before_ts
            )
            batch = list(islice(old, REMOVE_BATCH))
            pinned = [unchanged(key, found) for key, found in batch]
            puts: dict[bytes, bytes] = {}
            for table in {str(unpack(key, "ss")[0]) for key, _ in batch}:
                state = pack(Space.STATE, f"{_FORGOTTEN}{table}")
                found = view.get(state)
                known = 0 if found is None else int(codec.BLOBS.decode(state, found.value))
                pinned.append(unchanged(state, found))
                puts[state] = codec.BLOBS.encode(str(max(known, milliseconds(before_ts))).encode())
            return Plan(result=len(batch), preconditions=pinned, puts=puts, deletes=[key for key, _ in batch])

        removed = 0
        while batch := change(self._kv, self._clock, plan):
            removed += batch
        return removed
