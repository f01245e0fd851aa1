"""Removals in a storage whose replicas change meanwhile: made again by the definition that the catalog has afterwards.

Covers: which definition counts. Does not cover: what is removed (left_files.py, tilth.maintenance.gc).
Always holds: when this returns, the files were removed from all replicas that the storage had when the removal ended. A
server hears of a change a moment later than the catalog, and a writer that knows it already writes to the new replica.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from tilth.base.errors import UnavailableError
from tilth.catalog import Catalog
from tilth.storage import Roots, StoreRoot, TableRoots, defined_root

#: Changes of storages during one removal.
CHANGES_MAX = 5

T = TypeVar("T")


def remove_from_current(catalog: Catalog, roots: Roots, tables: Collection[str], remove: Callable[[Roots], T]) -> T:
    """Remove files of tables, and again where a storage of these has got another replica; return the last outcome.

    Raises UnavailableError where the replicas change all the time.
    """
    used = {table: roots.of(table) for table in tables}
    for _ in range(CHANGES_MAX):
        outcome = remove(TableRoots(used))
        now = {table: _current(catalog, table, root) for table, root in used.items()}
        if all(now[table].replica_ids == root.replica_ids for table, root in used.items()):
            return outcome
        used = now
    hint = "it is tried again"
    raise UnavailableError("replicas change while files are removed", tables=", ".join(tables), hint=hint)


def current_root(catalog: Catalog, root: StoreRoot) -> StoreRoot:
    """Return the root of the same storage as the catalog defines it now; the given one where it does not."""
    if not root.replicas:
        return root
    return next((defined_root(each) for each in catalog.storages.all() if each.name == root.storage), root)


def _current(catalog: Catalog, table: str, root: StoreRoot) -> StoreRoot:
    """Return the root of a table; of one that is gone, or of a storage that no definition names, as it was."""
    return current_root(catalog, root) if root.replica_ids and catalog.storage_of(table) is not None else root
