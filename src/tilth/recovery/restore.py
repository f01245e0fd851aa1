"""New catalogs in folders without one, from backups.

Covers: the store of a new catalog, reading a backup from a disk or another store. Does not cover: the format of
backups (tilth.catalog). Always holds: see the room.

Tests: tests/unit/statements/operate/test_backup.py, tests/acceptance/test_backup.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tilth.base.errors import FolderError
from tilth.catalog import BadDumpError, ByteSource, CatalogExistsError, DumpHeader, RocksKV, load_dump
from tilth.storage import Folder, StoreRoot, open_file, parse_root, sync_local_folder

_PRIVATE = 0o700


def restore_catalog(backup: str, folder: Path) -> tuple[DumpHeader, int]:
    """Make the catalog of a node's folder from a backup, a path or an address; return the backup's origin and the
    number of records.

    Raises CatalogExistsError where the folder has a catalog, BadDumpError, UnavailableError, BadStoreError.
    """
    check_no_catalog(folder)
    with _open(backup) as source, new_catalog(folder) as store:
        return load_dump(source, store)


def has_catalog(folder: Path) -> bool:
    """Return whether a node's folder has a catalog in it."""
    catalog = folder / "catalog"
    return catalog.exists() and any(catalog.iterdir())


def check_no_catalog(folder: Path) -> None:
    """Raises CatalogExistsError."""
    if has_catalog(folder):
        hint = "give a folder without a catalog; its tables folder may be there already"
        raise CatalogExistsError(folder=folder, hint=hint)


@contextmanager
def new_catalog(folder: Path) -> Iterator[RocksKV]:
    """Open an empty store that becomes the folder's catalog where the block ends well; else nothing is left of it.

    Raises FolderError.
    """
    catalog, unfinished = folder / "catalog", folder / "catalog.unfinished"
    try:
        folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=_PRIVATE)
        with closing(RocksKV(str(unfinished))) as store:
            yield store
        # Over an empty folder of this name, too.
        unfinished.rename(catalog)
        sync_local_folder(str(folder))
    except OSError as error:
        raise FolderError(folder=folder, file=error.filename, reason=error.strerror) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def _open(backup: str) -> Iterator[ByteSource]:
    """Open a backup. Raises BadDumpError, which does not repeat the options of an address."""
    try:
        source = _source(backup)
    except OSError as error:
        hint = "give a file that BACKUP CATALOG has written"
        shown, reason = backup.partition("?")[0], error.strerror or "it is not there"
        raise BadDumpError("the backup cannot be read", file=shown, reason=reason, hint=hint) from error
    with closing(source):
        yield source


def _source(backup: str) -> ByteSource:
    if "://" not in backup:
        return open(backup, "rb")
    whole = parse_root(backup)
    folder, _, name = whole.uri.rpartition("/")
    source: ByteSource = open_file(Folder(StoreRoot(folder or "/", whole.options)), name)
    return source
