"""Check of the copies of a commit's files against the replicas that their storage has at the commit. Pure.

Covers: counting copies, listing the replicas that lack one. Does not cover: making copies (tilth.storage), notes of
missing copies (services/copy_notes.py).
Always holds: a copy counts only in a replica that still has the id that it was written to; a file with fewer copies
than its quorum is not committed.

Tests: tests/unit/catalog/rules/test_fold_deltas.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from tilth.catalog.errors import InvariantError, StorageChangedError
from tilth.catalog.rules.updates import TableUpdate, Update, files_in, with_files
from tilth.model.part import DataFile
from tilth.model.storage import Storage

_HINT = "background jobs repeat it with the current replicas; send a statement that failed with this again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A file of which a replica has no copy."""

    table: str
    file: DataFile
    #: Index of the replica in the storage's current definition.
    replica: int


@dataclass(slots=True)
class CheckedCopies:
    """The updates of a commit whose files have enough copies."""

    #: Updates with their files as the catalog keeps them.
    updates: list[Update] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)


def check_copies(updates: Iterable[Update], storages: Mapping[str, Storage]) -> CheckedCopies:
    """Return the updates, and the missing copies of their files. `storages` has the storages with replicas, by table.

    Raises StorageChangedError where a file has fewer copies than its quorum.
    """
    checked = CheckedCopies()
    for update in updates:
        files = files_in(update)
        storage = storages.get(update.table) if isinstance(update, TableUpdate) else None
        if storage is not None and isinstance(update, TableUpdate):
            checked.missing += [
                Missing(table=update.table, file=_as_kept(file), replica=replica)
                for file in files
                for replica in _missing(file, storage)
            ]
        is_kept = all(file.copies is None for file in files)
        checked.updates.append(update if is_kept else with_files(update, _as_kept))
    return checked


def _as_kept(file: DataFile) -> DataFile:
    """Return the file as the catalog keeps it."""
    return msgspec.structs.replace(file, copies=None)


def _missing(file: DataFile, storage: Storage) -> list[int]:
    """Return the indexes of the replicas without a copy."""
    copies = file.copies
    if copies is None:
        raise InvariantError("a file has no list of the replicas that have it", storage=storage.name, file=file.name)
    missing = [number for number, replica in enumerate(storage.replica_ids) if replica not in copies.replicas]
    found = len(storage.replica_ids) - len(missing)
    if found < copies.quorum:
        raise StorageChangedError(storage=storage.name, file=file.name, copies=found, quorum=copies.quorum, hint=_HINT)
    return missing
