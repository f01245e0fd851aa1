"""Files of transactions that could not be removed while those counted before them could: their names are remembered.

Covers: removing files of a transaction, the names. Does not cover: when (cleaner.py, and the work itself).
Always holds: a file that no count finds any more has its name in the catalog until it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import msgspec

from tilth.catalog import Catalog
from tilth.model.txn import Txn
from tilth.storage import FilesLeftError, Roots, clean_transaction, table_of

_LEFT = "maintenance/files-left"
#: Paths by transaction.
_Left = dict[int, list[str]]


def sweep_transaction(catalog: Catalog, root: Roots, txn: Txn, *, keep: Collection[str] = ()) -> int:
    """Remove what the transaction may have left for the first time, but for files in `keep`; return how many files.

    Raises FilesLeftError.
    """
    with _remembering(catalog, txn.id):
        return clean_transaction(root, txn, keep=keep)


def sweep_again(catalog: Catalog, root: Roots, txn: Txn, *, keep: Collection[str] = ()) -> int:
    """Remove what the transaction may have left, also where an earlier sweep failed; return how many files.

    Raises FilesLeftError.
    """
    left = _decoded(catalog.state.get(_LEFT)).get(txn.id, ())
    # What is left of a table that is gone for good goes with its folder; its storage may be gone too.
    also = [path for path in left if catalog.storage_of(table_of(path)) is not None]
    with _remembering(catalog, txn.id):
        files = clean_transaction(root, txn, keep=keep, also=also)
    if left:
        _change(catalog, lambda left: {each: paths for each, paths in left.items() if each != txn.id})
    return files


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
