"""The definitions of the storages that a commit's files are in: read with the commit's other keys, and pinned.

Covers: which definition counts for a commit. Does not cover: checking files against it (rules/missing_copies.py).
Always holds: the definition that a commit checked its files against is still the storage's when it is applied. It
costs no round trip of its own: a table never changes its storage, so its key is read with those of the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilth.catalog.commit.load import Batch
from tilth.catalog.kv import Pinned, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, copy_key, lacking_key, pack
from tilth.catalog.rules.changes import CommitState
from tilth.catalog.rules.missing_copies import CheckedCopies, Missing, check_copies
from tilth.catalog.rules.updates import TableUpdate, Update, files_in
from tilth.model.copy_note import CopyNote
from tilth.model.storage import DEFAULT_STORAGE, STORAGE_SETTING, Storage

#: Number of tables whose storage key is cached.
TABLES_MAX = 100_000
_REASON = "it was away, or not a replica yet, when the file was written"


class PinnedStorages:
    """A cache of storage keys by table, and the check of a commit's files. For any thread."""

    def __init__(self) -> None:
        #: Key of each table's storage; None for a table in a storage without replicas, which can get none later.
        self._keys: dict[str, bytes | None] = {}

    def keys(self, updates: Sequence[Update]) -> list[bytes]:
        """Return the keys of the storages that the updates write files in, those of tables in the cache."""
        found = {self._keys.get(table) for table in _tables(updates)}
        return [key for key in found if key is not None]

    def check(self, view: ReadView, batch: Batch, before: CommitState, updates: Sequence[Update]) -> CheckedCopies:
        """Return the updates with the replicas that lack each file. Raises StorageChangedError."""
        storages: dict[str, Storage] = {}
        for table in _tables(updates):
            storage = self._pin(view, batch, table, before.tables[table].definition.settings)
            if storage is not None:
                storages[table] = storage
        return check_copies(updates, storages)

    def _pin(self, view: ReadView, batch: Batch, table: str, settings: Mapping[str, str]) -> Storage | None:
        if table in self._keys and self._keys[table] is None:
            return None
        name = settings.get(STORAGE_SETTING, DEFAULT_STORAGE)
        key = pack(Space.STORAGE, name)
        found = None if name == DEFAULT_STORAGE else view.get(key)
        storage = None if found is None else codec.STORAGES.decode(key, found.value)
        if name != DEFAULT_STORAGE and storage is None:
            # A rebuilt catalog knows no storages until they are made again.
            return None
        if len(self._keys) >= TABLES_MAX:
            self._keys.clear()
        has_replicas = storage is not None and bool(storage.replica_ids)
        self._keys[table] = key if has_replicas else None
        if found is None or not has_replicas:
            return None
        batch.preconditions.append(Pinned(key, found.version))
        return storage


def put_missing(batch: Batch, missing: Iterable[Missing], *, commit_ts: int, now_ms: int) -> None:
    """Add to the batch the notes of the replicas that lack files of this commit."""
    for each in missing:
        note = CopyNote(table=each.table, replica=each.replica, file=each.file, since_ms=now_ms, reason=_REASON)
        batch.puts[copy_key(note)] = codec.COPIES.encode(note)
        batch.puts[lacking_key(each.table, each.replica)] = codec.INTEGERS.encode(commit_ts)


def _tables(updates: Sequence[Update]) -> set[str]:
    return {update.table for update in updates if isinstance(update, TableUpdate) and files_in(update)}
