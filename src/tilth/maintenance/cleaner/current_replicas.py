"""Removals in a storage whose replicas change meanwhile: repeated with the definition that the catalog has afterwards.

Covers: which definition counts. Does not cover: which files are removed (left_files.py, tilth.maintenance.gc).
Always holds: after a return, the files are removed from all replicas that the storage had when the removal ended. A
server learns of a change shortly after the catalog has it; meanwhile, writers that know it write to the new replica.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from tilth.base.errors import UnavailableError
from tilth.catalog import Catalog
from tilth.storage import Roots, StoreRoot, TableRoots, defined_root

#: Times that a removal is made while the replicas change.
CHANGES_MAX = 5

T = TypeVar("T")


def remove_from_current(catalog: Catalog, roots: Roots, tables: Collection[str], remove: Callable[[Roots], T]) -> T:
    """Remove files of tables, again if a storage of these has other replicas afterwards; return the last outcome.

    Raises UnavailableError if the replicas keep changing.
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
    """Return the root of the same storage as the catalog defines it now; the given root if it does not define it."""
    if not root.replicas:
        return root
    return next((defined_root(each) for each in catalog.storages.all() if each.name == root.storage), root)


def _current(catalog: Catalog, table: str, root: StoreRoot) -> StoreRoot:
    """Return the current root of a table; the given root if the table is gone or its storage has no definition."""
    return current_root(catalog, root) if root.replica_ids and catalog.storage_of(table) is not None else root
