"""Each removal of files in a world is checked against its catalog: no file that the catalog names is removed.

A world says `watch_removals` once; from then on every store of that folder, in this process, looks up what the catalog
names before it removes anything. What a commit has hidden and garbage collection has moved to the trash is not named.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from tilth.catalog import KeyValue
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space
from tilth.catalog.records.small_commit import read_all
from tilth.model.part import Part
from tilth.storage.store.backends.local import LocalStore
from tilth.storage.store.paths import table_of
from tilth.storage.store.protocol import Removal

_remove = LocalStore.remove
#: Stores of the present catalogs, by folder; if several worlds use one folder, that of the last.
_watched: dict[str, Callable[[], KeyValue]] = {}


def watch_removals(folder: str, kv: Callable[[], KeyValue]) -> None:
    """Let a removal below the folder fail the test where the catalog in this store names a file of it."""
    _watched[folder] = kv


def named_files(kv: KeyValue, table: str) -> set[str]:
    """Return the names of the files of parts, and of deltas that change one of these."""
    entries = read_all(kv, codec.ENTRIES, Space.ENTRY, table)
    parts = {entry.file.name for entry in entries if isinstance(entry, Part)}
    deltas = read_all(kv, codec.DELTAS, Space.DELTA, table)
    return parts | {each.file.name for each in deltas if any(target.file in parts for target in each.targets)}


def _checked_remove(self: LocalStore, paths: Sequence[str]) -> Removal:
    kv = _watched.get(self._folder)
    if kv is not None:
        # Whole folders are removed by absolute paths.
        below = [os.path.relpath(path, self._folder) if os.path.isabs(path) else path for path in paths]
        for table in sorted(set(map(table_of, below))):
            names = named_files(kv(), table)
            wrong = [path for path in below if table_of(path) == table and os.path.basename(path) in names]
            assert not wrong, f"the catalog names what is to be removed: {wrong[:5]}"
    return _remove(self, paths)


LocalStore.remove = _checked_remove  # type: ignore[method-assign]  # of all stores in this process
