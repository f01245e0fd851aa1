"""Locations of tables: chosen once, proved to be writable, recognized later.

Covers: the location of a node, claiming a new one, why one cannot be used. Does not cover: names of storages
(storages.py). Always holds: a location is written to before anybody relies on it; one that is empty where tables should
be is never taken for a new one.
"""

from __future__ import annotations

import os
from pathlib import Path

from tilth.base.errors import ConflictError, TilthError
from tilth.base.logs import Log
from tilth.storage.store.local import sync_local_folder
from tilth.storage.store.root import StoreRoot, local_root, parse_root
from tilth.storage.store.stores import store_of

#: Record in the data folder of the location that was chosen at the first start.
ROOT_RECORD = "storage-root"
#: Marker file of a location; without it, this is another bucket, or a disk that is not mounted.
LOCATION_FILE = ".tilth"
# Compared byte for byte.
_LOCATION_CONTENT = b"a place of tables of Tilth\n"

_log = Log("storage")


class StoreLocationError(ConflictError):
    """the tables of this node are somewhere else"""

    code = "STORE_LOCATION"


def tables_root(folder: Path, text: str) -> StoreRoot:
    """Return the location of the tables' files, which is chosen at the first start.

    Raises StoreLocationError where another one was chosen, and what a store says that cannot be written.
    """
    own = local_root(folder / "tables")
    root = parse_root(text) if text else own
    record = folder / ROOT_RECORD
    if record.exists():
        chosen = record.read_text().strip()
        _check_location(root)
    elif any((folder / "tables").iterdir()):
        chosen = own.uri
    else:
        chosen = ""
    if chosen and chosen != location_text(root):
        hint = "files are not moved: start with the same storage.root, or a new data folder"
        raise StoreLocationError(chosen=chosen, given=root, hint=hint)
    if not chosen and root != own:
        # Says at once what is wrong with the address or its keys.
        claim_location(root)
        with record.open("x") as file:
            file.write(f"{location_text(root)}\n")
            file.flush()
            os.fsync(file.fileno())
        sync_local_folder(str(folder))
    return root


def location_text(root: StoreRoot) -> str:
    """Return what makes a root another place: its address and the server that has it, without keys."""
    where = [root.option(name) for name in ("endpoint", "account")]
    return " ".join((root.uri, *filter(None, where)))


def _check_location(root: StoreRoot) -> None:
    """Raises StoreLocationError where a store answers that the place is not the one that was chosen."""
    try:
        is_there = root.is_local or store_of(root).exist([LOCATION_FILE]) == [True]
    except TilthError as error:
        # It may be back before somebody asks for a table; health says it.
        _log.warning("store_not_checked", root=root, reason=error)
        return
    if not is_there:
        hint = "the files of the tables are not there: look at the bucket and its prefix"
        raise StoreLocationError("the place of the tables is not what was chosen", root=root, hint=hint)


def claim_location(root: StoreRoot, owner: str = "") -> None:
    """Make a new place of tables: proves that it can be written. `owner`: a node's id; with one, a place that is
    somebody else's is refused.

    Raises StoreLocationError, and what the store says.
    """
    store = store_of(root)
    store.prepare("", fsync=True)
    content = _LOCATION_CONTENT + (f"node={owner}\n".encode() if owner else b"")
    if owner and store.exist([LOCATION_FILE]) == [True] and store.read(LOCATION_FILE).to_pybytes() != content:
        hint = f"choose another prefix; if that node is gone for good, remove {LOCATION_FILE} there"
        raise StoreLocationError("another node keeps tables in this place", root=root, hint=hint)
    store.put(LOCATION_FILE, content)


def location_trouble(root: StoreRoot) -> str:
    """Return why a place cannot be used now; empty: it can."""
    try:
        is_there = store_of(root).exist([LOCATION_FILE]) == [True]
    except (TilthError, OSError) as error:
        return error.message if isinstance(error, TilthError) else str(error)
    return "" if is_there else "the place of the tables is not there any more"
