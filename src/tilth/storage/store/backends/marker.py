"""Marker file of a location: written when a location becomes one of tables, missed when it is not that one any more.

Covers: writing and checking it in a store. Does not cover: which locations there are (locations/location.py).
Always holds: a location is written to before anybody relies on it; one without the marker is never taken for one that
was chosen before: it is another bucket, or a disk that is not mounted.

Tests: tests/unit/storage/store/locations/test_watch.py.
"""

from __future__ import annotations

from collections.abc import Callable

from tilth.base.errors import ConflictError, TilthError
from tilth.storage.store.protocol import Store
from tilth.storage.store.root import StoreRoot

#: Name of the marker file.
LOCATION_FILE = ".tilth"
# Compared byte for byte.
_CONTENT = b"a place of tables of Tilth\n"


class StoreLocationError(ConflictError):
    """the tables of this node are somewhere else"""

    code = "STORE_LOCATION"


def write_marker(store: Store, root: StoreRoot, owner: str) -> None:
    """Write the marker, which proves that the location can be written. `owner`: a node's id; with one, the location of
    another owner is refused.

    Raises StoreLocationError, and the errors of the store.
    """
    store.prepare("", fsync=True)
    content = _CONTENT + (f"node={owner}\n".encode() if owner else b"")
    if owner and has_marker(store) and store.read(LOCATION_FILE).to_pybytes() != content:
        hint = f"choose another prefix; if that node is gone for good, remove {LOCATION_FILE} there"
        raise StoreLocationError("another node keeps tables in this location", root=root, hint=hint)
    store.put(LOCATION_FILE, content)


def has_marker(store: Store) -> bool:
    """Return whether the marker exists; raises the errors of the store."""
    return store.exist([LOCATION_FILE]) == [True]


def trouble_at(root: StoreRoot, open_store: Callable[[StoreRoot], Store]) -> str:
    """Return why a location cannot be used now; empty: it can."""
    try:
        is_there = has_marker(open_store(root))
    except (TilthError, OSError) as error:
        return error.message if isinstance(error, TilthError) else str(error)
    return "" if is_there else "the location of the tables is not there any more"
