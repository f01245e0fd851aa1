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
from rocksdict import Rdict, WriteBatch

from tilth.catalog import RocksKV


class FailingSyncs:
    """The database of a store whose log cannot be synced any more after some syncs; its folder is read-only then."""

    def __init__(
        self, kv: RocksKV, patch: pytest.MonkeyPatch, *, good: int = 0, error: BaseException | None = None
    ) -> None:
        self._kv = kv
        self._db = kv._db
        self._patch = patch
        self._good = good
        self._error = error or Exception("IO error: While fdatasync: Input/output error")
        #: Sizes of the log's files when they were last synced.
        self._synced = log_sizes(kv)
        kv._db = cast("Rdict", self)

    def __getattr__(self, name: str) -> object:
        return getattr(self._db, name)

    def write(self, batch: WriteBatch) -> None:
        self._db.write(batch)

    def flush_wal(self, sync: bool) -> None:
        assert sync
        if self._good <= 0:
            make_read_only(self._patch)
            raise self._error
        self._good -= 1
        self._db.flush_wal(sync)
        self._synced = log_sizes(self._kv)

    def after_power_loss(self, folder: Path) -> RocksKV:
        """The store as the disk has it, in a new folder."""
        return after_power_loss(self._kv, folder, self._synced)


def log_sizes(kv: RocksKV) -> dict[str, int]:
    names = [each for each in os.listdir(kv.path) if each.endswith(".log")]
    return {each: os.path.getsize(os.path.join(kv.path, each)) for each in names}


def after_power_loss(kv: RocksKV, folder: Path, synced: Mapping[str, int]) -> RocksKV:
    """A copy of the store, with those bytes of its log's files."""
    folder.mkdir()
    for name in os.listdir(kv.path):
        # Whoever closes a file of that name gives the lock up.
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
