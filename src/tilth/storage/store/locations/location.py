"""Locations of tables: chosen once, proved to be writable, recognized later.

Covers: the location of a node, reserving a new one, why one cannot be used. Does not cover: names of storages
(storages.py), the marker file (backends/marker.py). Always holds: a location that is empty where tables should be is
never taken for a new one.

Tests: tests/unit/storage/store/locations/test_watch.py.
"""

from __future__ import annotations

import os
from pathlib import Path

from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.storage.store.backends.local import sync_local_folder
from tilth.storage.store.backends.marker import StoreLocationError, has_marker, trouble_at, write_marker
from tilth.storage.store.root import StoreRoot, local_root, parse_root
from tilth.storage.store.stores import store_of

#: Record in the data folder of the location that was chosen at the first start.
ROOT_RECORD = "storage-root"

_log = Log("storage")


def tables_root(folder: Path, text: str) -> StoreRoot:
    """Return the location of the tables' files, which is chosen at the first start.

    Raises StoreLocationError where another one was chosen, and the error of a store that cannot be written.
    """
    own = local_root(folder / "tables")
    if (folder / ROOT_RECORD).exists():
        _check_location(parse_root(text) if text else own)
    root, is_chosen = chosen_root(folder, text)
    if not is_chosen and root != own:
        # Fails at once where the address or its keys are wrong.
        reserve_location(root)
        with (folder / ROOT_RECORD).open("x") as file:
            file.write(f"{location_text(root)}\n")
            file.flush()
            os.fsync(file.fileno())
        sync_local_folder(str(folder))
    return root


def chosen_root(folder: Path, text: str) -> tuple[StoreRoot, bool]:
    """Return the location of the tables' files, and whether a start has chosen it already; nothing is written.

    Raises StoreLocationError where another one was chosen.
    """
    own = local_root(folder / "tables")
    root = parse_root(text) if text else own
    record, tables = folder / ROOT_RECORD, folder / "tables"
    chosen = ""
    if record.exists():
        chosen = record.read_text().strip()
    elif tables.exists() and any(tables.iterdir()):
        chosen = own.uri
    if chosen and chosen != location_text(root):
        hint = "files are not moved: start with the same storage.root, or a new data folder"
        raise StoreLocationError(chosen=chosen, given=root, hint=hint)
    return root, bool(chosen)


def location_text(root: StoreRoot) -> str:
    """Return what distinguishes a location from others: its address and the server that has it, without keys."""
    where = [root.option(name) for name in ("endpoint", "account")]
    return " ".join((root.uri, *filter(None, where)))


def _check_location(root: StoreRoot) -> None:
    """Raises StoreLocationError where a store answers that the location is not the one that was chosen."""
    try:
        is_there = root.is_local or has_marker(store_of(root))
    except TilthError as error:
        # It may be back before somebody reads a table; health shows it.
        _log.warning("store_not_checked", root=root, reason=error)
        return
    if not is_there:
        hint = "the files of the tables are not there: check the bucket and its prefix"
        raise StoreLocationError("the location of the tables is not what was chosen", root=root, hint=hint)


def reserve_location(root: StoreRoot, owner: str = "") -> None:
    """Make a new location of tables: proves that it can be written. `owner`: a node's id; with one, the location of
    another owner is refused.

    Raises StoreLocationError, and the errors of the store.
    """
    write_marker(store_of(root), root, owner)


def location_trouble(root: StoreRoot) -> str:
    """Return why a location cannot be used now; empty: it can."""
    return trouble_at(root, store_of)
