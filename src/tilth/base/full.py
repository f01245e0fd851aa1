"""A full disk, however it shows: as an error of the operating system, of RocksDB, of Arrow or of Spark.

Covers: recognising it, its error. Does not cover: noticing it beforehand, making room.
Always holds: the error names a folder on the full disk and how many bytes are free there; nothing was applied.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass

from tilth.base.errors import ErrorKind, TilthError, UnavailableError
from tilth.base.units import GIB, show_bytes

#: Minimum free disk space; with less, the next commit may fail half way.
ROOM_BYTES_MIN = 4 << 20
#: Free bytes of a disk that a few rounds and one merge use up.
_FULL_BYTES_MAX = GIB
#: Free share of a disk at which somebody still has days to make room, and the free bytes that are enough on any disk.
_LOW_SHARE = 0.1
_LOW_BYTES_MAX = 100 * GIB
_NUMBERS = (errno.ENOSPC, errno.EDQUOT)
#: Messages of the C library, and of everybody who passes them on.
_WORDS = ("No space left on device", "Disk quota exceeded")
_PATH = re.compile(r"(?<![\w/.:])(/[^\s:'\",()\[\]]+)")
#: Maximum depth of causes that are examined.
_DEPTH_MAX = 20
_HINT = "make room on that disk; services go on by themselves, a statement has to be sent again"
#: Only these may stand for a full disk: the others have hints of their own, whatever the reason.
_KINDS = frozenset({ErrorKind.INTERNAL, ErrorKind.UNAVAILABLE, ErrorKind.RETRY})


class StoreFullError(UnavailableError):
    """there is no room left on the disk"""

    code = "STORE_FULL"


def full_error(error: BaseException, *, folder: str) -> StoreFullError | None:
    """The error of a full disk, if this error or one that it came from is of one; else None.

    `folder` is named where the error names no file.
    """
    if isinstance(error, StoreFullError):
        return error
    if isinstance(error, TilthError) and error.kind not in _KINDS:
        return None
    found: BaseException | None = error
    for _ in range(_DEPTH_MAX):
        if found is None:
            return None
        if isinstance(found, StoreFullError):
            return found
        if _is_full(found):
            return store_full(_folder_of(found) or folder)
        found = found.__cause__ or found.__context__
    return None


def store_full(folder: str) -> StoreFullError:
    return StoreFullError(folder=folder, free=show_bytes(free_bytes(folder)), hint=_HINT)


def free_bytes(folder: str) -> int:
    """Return how many bytes a program may still write to the folder's disk; 0 where that is unknown."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """Bytes of a disk."""

    #: Number of the device: folders on one disk have the same.
    device: int
    size: int
    #: Bytes that a program may still write.
    free: int


def disk_space(folder: str) -> DiskSpace | None:
    """Return the size and the free space of the folder's disk; None where it is unknown."""
    try:
        device, found = os.stat(folder).st_dev, os.statvfs(folder)
    except OSError:
        return None
    return DiskSpace(device=device, size=found.f_blocks * found.f_frsize, free=found.f_bavail * found.f_frsize)


def is_nearly_full(*, free: int, size: int) -> bool:
    """Return whether writes to a disk fail soon, or fail already."""
    return free < min(_FULL_BYTES_MAX, _LOW_SHARE * size)


def is_low(*, free: int, size: int) -> bool:
    """Return whether so little of a disk is free that somebody should make room."""
    return free < min(_LOW_BYTES_MAX, _LOW_SHARE * size)


def _is_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return True
    return any(words in str(error) for words in _WORDS)


def _folder_of(error: BaseException) -> str:
    """Return the folder of the file that the error names; empty without an existing one."""
    if isinstance(error, OSError) and error.filename:
        named = [str(error.filename)]
    else:
        # Only what stands behind the words: traces of calls name other files.
        behind = next((str(error).partition(words)[2] for words in _WORDS if words in str(error)), "")
        named = _PATH.findall("".join(behind.splitlines()[:1]))
    for path in named:
        for folder in (path, os.path.dirname(path)):
            if folder != "/" and os.path.isdir(folder):
                return folder
    return ""
