"""Removing what transactions leave, and names of files that could not be removed while those counted before them could.

Covers: removing files of a transaction, the names. Does not cover: when (ended.py, and the work itself).
Always holds: nothing goes of a transaction that runs, or that has landed and has no note of what stays; a file that no
count finds any more has its name in the catalog until it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec.structs import replace

from tilth.base.logs import Log
from tilth.catalog import Catalog
from tilth.maintenance.work.current_replicas import remove_from_current
from tilth.model.txn import FileRun, Txn
from tilth.storage import FilesLeftError, Roots, count_left, table_of

_LEFT = "maintenance/files-left"
#: Paths by transaction.
_Left = dict[int, list[str]]

_log = Log("maintenance")


def sweep_transaction(catalog: Catalog, root: Roots, txn: Txn, *, keep: Collection[str] = ()) -> int:
    """Remove what the transaction may have left for the first time, but for files in `keep`; return how many files.

    `keep` is what its commit named; none: it was aborted, which is looked up. Raises FilesLeftError.
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
    """Remove what the transaction may have left, also where an earlier sweep failed; return how many files.

    `runs`: what earlier sweeps have found; `counted` gets what this one finds, before anything is removed.
    Raises FilesLeftError.
    """
    kept = _kept(catalog, txn, keep)
    if kept is None:
        return 0
    # The files of a table that is gone for good go with its folder, and nobody finds its storage any more.
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
        # The names that lead to files of another replica may be gone after the first time.
        known = names.runs
        if counted is not None:
            counted(names.runs)
        return names.remove()

    tables = {*(output.table for output in txn.outputs), *map(table_of, also)}
    return remove_from_current(catalog, root, tables, remove)


def _kept(catalog: Catalog, txn: Txn, keep: Collection[str]) -> Collection[str] | None:
    kept = catalog.transactions.tombstones.kept(txn.id, keep)
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
