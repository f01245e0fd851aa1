"""Removal of the files that transactions leave, and a record of the names that could not be removed.

Covers: removing files of a transaction, the names. Does not cover: when that is done (ended.py, and the work itself).
Always holds: no file is removed of a transaction that runs, or that has committed without a note of the files to keep;
a file that a count can no longer find has its name in the catalog until it is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec.structs import replace

from tilth.base.logs import Log
from tilth.catalog import Catalog
from tilth.maintenance.cleaner.current_replicas import remove_from_current
from tilth.model.txn import FileRun, Txn
from tilth.storage import FilesLeftError, Roots, count_left, table_of

_LEFT = "maintenance/files-left"
#: Paths by transaction.
_Left = dict[int, list[str]]

_log = Log("maintenance")


def sweep_transaction(catalog: Catalog, root: Roots, txn: Txn, *, keep: Collection[str] = ()) -> int:
    """Remove the files that a transaction may have left, except those in `keep`, for the first time; return how many.

    `keep`: names of the files that it has committed; empty: it was aborted, which is checked. Raises FilesLeftError.
    """
    kept = keep or _kept(catalog, txn, keep)
    if kept is None:
        return 0
    with _remembering(catalog, txn.id):
        return _removed(catalog, root, txn, kept)


def sweep_again(
    catalog: Catalog,
    root: Roots,
    txn: Txn,
    *,
    keep: Collection[str] = (),
    runs: Sequence[FileRun] = (),
    counted: Callable[[tuple[FileRun, ...]], None] | None = None,
) -> int:
    """Remove the files that a transaction may have left, also those that an earlier sweep could not; return how many.

    `runs`: runs that earlier sweeps have found; `counted` is called with those of this one, before anything is removed.
    Raises FilesLeftError.
    """
    kept = _kept(catalog, txn, keep)
    if kept is None:
        return 0
    # The files of a table that is gone for good are removed with its folder, and its storage is no longer known.
    outputs = tuple(each for each in txn.outputs if catalog.storage_of(each.table) is not None)
    left = _decoded(catalog.state.get(_LEFT)).get(txn.id, ())
    also = [path for path in left if catalog.storage_of(table_of(path)) is not None]
    with _remembering(catalog, txn.id):
        files = _removed(catalog, root, replace(txn, outputs=outputs), kept, also=also, runs=runs, counted=counted)
    if left:
        _change(catalog, lambda left: {each: paths for each, paths in left.items() if each != txn.id})
    return files


def _removed(
    catalog: Catalog,
    root: Roots,
    txn: Txn,
    keep: Collection[str],
    *,
    also: Sequence[str] = (),
    runs: Sequence[FileRun] = (),
    counted: Callable[[tuple[FileRun, ...]], None] | None = None,
) -> int:
    known = runs

    def remove(roots: Roots) -> int:
        nonlocal known
        names = count_left(roots, txn, keep=keep, also=also, runs=known)
        # After the first removal, the names that lead to files in another replica may be gone.
        known = names.runs
        if counted is not None:
            counted(names.runs)
        return names.remove()

    tables = {*(output.table for output in txn.outputs), *map(table_of, also)}
    return remove_from_current(catalog, root, tables, remove)


def _kept(catalog: Catalog, txn: Txn, keep: Collection[str]) -> Collection[str] | None:
    kept = catalog.transactions.tombstones.protected_files(txn.id, keep)
    if kept is None:
        _log.error("sweep_refused", cause_id=str(txn.id), actor=txn.actor, reason="it runs, or it has landed")
    return kept


@contextmanager
def _remembering(catalog: Catalog, txn: int) -> Iterator[None]:
    try:
        yield
    except FilesLeftError as error:
        still = list(error.left)
        if still:
            _change(catalog, lambda left: {**left, txn: still})
        raise


def _change(catalog: Catalog, step: Callable[[_Left], _Left]) -> None:
    catalog.state.change(_LEFT, lambda found: msgspec.msgpack.encode(step(_decoded(found))))


def _decoded(found: bytes | None) -> _Left:
    return {} if found is None else msgspec.msgpack.decode(found, type=_Left)
