"""A RocksDB store on a disk whose syncs fail: what it answers, and what a power loss leaves of it."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from rocksdict import Rdict

from tilth.catalog import RocksKV


class ReplacedDatabase:
    """A database in front of that of a store; a subclass changes some of its calls."""

    def __init__(self, kv: RocksKV) -> None:
        self._db = kv._db
        kv._db = cast("Rdict", self)

    def __getattr__(self, name: str) -> object:
        return getattr(self._db, name)


class FailingSyncs(ReplacedDatabase):
    """The database of a store whose log cannot be synced any more after some syncs; its folder is read-only then."""

    def __init__(
        self, kv: RocksKV, patch: pytest.MonkeyPatch, *, good: int = 0, error: BaseException | None = None
    ) -> None:
        super().__init__(kv)
        self._kv = kv
        self._patch = patch
        self._good = good
        self._error = error or Exception("IO error: While fdatasync: Input/output error")
        #: Sizes of the log's files when they were last synced.
        self._synced = log_sizes(kv)

    def flush_wal(self, sync: bool) -> None:
        assert sync
        if self._good <= 0:
            make_read_only(self._patch)
            raise self._error
        self._good -= 1
        self._db.flush_wal(sync)
        self._synced = log_sizes(self._kv)

    def after_power_loss(self, folder: Path) -> RocksKV:
        """Return the store as the disk has it, in a new folder."""
        return after_power_loss(self._kv, folder, self._synced)


def log_sizes(kv: RocksKV) -> dict[str, int]:
    names = [each for each in os.listdir(kv.path) if each.endswith(".log")]
    return {each: os.path.getsize(os.path.join(kv.path, each)) for each in names}


def after_power_loss(kv: RocksKV, folder: Path, synced: Mapping[str, int]) -> RocksKV:
    """Return a copy of the store with so many bytes of each file of its log."""
    folder.mkdir()
    for name in os.listdir(kv.path):
        # Closing a file of that name would release the lock.
        if name != "LOCK":
            shutil.copy(os.path.join(kv.path, name), folder)
    for name, size in synced.items():
        os.truncate(folder / name, size)
    return RocksKV(str(folder))


def make_read_only(patch: pytest.MonkeyPatch) -> None:
    """No store of this process can be opened anew until the patch is undone."""

    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    patch.setattr(tempfile, "TemporaryFile", refuse)
