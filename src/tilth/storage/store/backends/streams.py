"""Files of stores that are reached over a network, in the shape that Arrow writes to and reads from.

Covers: what every such store does alike. Does not cover: requests (objects.py, hdfs.py).

Tests: tests/integration/storage/test_store_behaviour.py.
"""

from __future__ import annotations

import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from tilth.model.part import DataFile
from tilth.storage.store.protocol import NewFile

#: Up to so many bytes of a new file are held back: a smaller file is one request, a larger one goes in such pieces.
HELD_BYTES_MAX = 8 << 20
#: A request for a part of a file brings so many bytes at least.
READ_BYTES_MIN = 1 << 20
#: And at most, so that it ends within its time.
READ_BYTES_MAX = 32 << 20
#: Pieces of a file that is open which are kept.
PIECES_MAX = 4


class Stream(io.RawIOBase):
    """A new file that is complete when it is closed."""

    def __init__(self, file: NewFile) -> None:
        super().__init__()
        self._file = file

    def writable(self) -> bool:
        return True

    # Any: whatever Arrow hands over as bytes.
    def write(self, data: Any) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._file.finish(fsync=False)


class HeldFile(ABC):
    """A new file that sums what is written to it, and holds bytes back for requests of sufficient size."""

    def __init__(self, path: str) -> None:
        #: Below the root.
        self.path = path
        self._held = bytearray()
        self._checksum = 0
        self._size = 0
        self._is_over = False

    @abstractmethod
    def send(self, held: bytes) -> None:
        """Send bytes that others follow."""

    @abstractmethod
    def end(self, held: bytes, *, fsync: bool) -> None:
        """Send the last bytes, and end the file."""

    @abstractmethod
    def end_empty(self) -> None:
        """End the file without bytes, so that its name is taken; raises no error of the store."""

    @abstractmethod
    def forget(self) -> None:
        """Forget the file, and end an upload of it in the store."""

    @property
    def closed(self) -> bool:
        return False

    def write(self, data: bytes) -> int:
        view = memoryview(data).cast("B")
        if self._is_over:
            return len(view)
        self._checksum = zlib.crc32(view, self._checksum)
        self._size += len(view)
        self._held += view
        if len(self._held) > HELD_BYTES_MAX:
            self.send(self._drain())
        return len(view)

    def tell(self) -> int:
        return self._size

    @property
    def written(self) -> DataFile:
        return DataFile(name=self.path.rpartition("/")[2], size=self._size, checksum=self._checksum)

    def flush(self) -> None:  # noqa: B027  # as Arrow's writers call it
        """Do nothing: a file is there when it is finished."""

    def close(self) -> None:  # noqa: B027
        """Do nothing; finish and give_up close."""

    def finish(self, *, fsync: bool) -> DataFile:
        self._is_over = True
        self.end(self._drain(), fsync=fsync)
        return self.written

    def give_up(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._held.clear()
            self.end_empty()

    def abandon(self) -> None:
        self._is_over = True
        self._held.clear()
        self.forget()

    def _drain(self) -> bytes:
        held = bytes(self._held)
        self._held.clear()
        return held


class SeekableReader(io.RawIOBase):
    """The position in a file that is read, with the interface that Arrow reads from."""

    def __init__(self) -> None:
        super().__init__()
        self._offset = 0
        #: Size of the file, which the subclass sets.
        self._size = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size}[whence]
        self._offset = max(0, base + offset)
        return self._offset


class Pieces(SeekableReader):
    """A file that is read in pieces; the last ones are kept."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int, start: int, end: bytes) -> None:
        """`fetch`: brings the bytes from one offset to another; `end`: those from `start` on, known already."""
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._end = start, end
        self._pieces: list[tuple[int, bytes]] = []

    def read(self, size: int = -1) -> bytes:
        start = self._offset
        end = self._size if size < 0 else min(self._size, start + size)
        if start >= end:
            return b""
        self._offset = end
        return self._cached(start, end) or self._fetch_range(start, end)

    def _cached(self, start: int, end: int) -> bytes:
        for first, piece in (self._end, *self._pieces):
            if first <= start and end <= first + len(piece):
                return piece[start - first : end - first]
        return b""

    def _fetch_range(self, start: int, end: int) -> bytes:
        if end - start >= READ_BYTES_MIN:
            return b"".join(self._fetch(*span) for span in spans(start, end))
        piece = self._fetch(start, min(start + READ_BYTES_MIN, self._size))
        self._pieces = [*self._pieces[-PIECES_MAX + 1 :], (start, piece)]
        return piece[: end - start]


def spans(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a long read, each short enough for one request."""
    for at in range(start, end, READ_BYTES_MAX):
        yield at, min(at + READ_BYTES_MAX, end)
