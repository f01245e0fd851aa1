"""A file that is read in parts, each from a replica that answers.

Covers: switching to another replica when one fails or hangs, also in the middle of a file. Does not cover: bytes that
are wrong (files/files.py).
Always holds: each part comes from one replica whose file has the right size; a reader does not use a replica again that
has failed.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa

from tilth.base.errors import TilthError, as_exception
from tilth.storage.store.backends.streams import SeekableReader
from tilth.storage.store.protocol import FileSizeError
from tilth.storage.store.replicas.replica import HUNG_SECONDS, Replica, wait_for_replica

T = TypeVar("T")
_Failures = (TilthError, OSError, FileSizeError)


class FailoverReader(SeekableReader):
    """A file in several replicas."""

    def __init__(self, replicas: Sequence[Replica], path: str, *, size: int | None) -> None:
        """`replicas`: in the order in which they are tried. Raises FileNotFoundError only if all of them lack the file;
        else the error of one that could not be read.
        """
        super().__init__()
        self._left = list(replicas)
        self._path = path
        #: Size that the file must have; None: not known yet.
        self._expected = size
        self._errors: list[Exception] = []
        self._reader: _Reader | None = None
        self._size = self._expected = self._answer(lambda reader: reader.size)

    # Arrow accepts any buffer instead of bytes, and nothing is copied then.
    def read(self, size: int = -1) -> bytes:
        start = min(self._offset, self._size)
        count = self._size - start if size < 0 else min(size, self._size - start)
        data: bytes = self._answer(lambda reader: reader.read(start, count)) if count else b""
        self._offset = start + count
        return data

    def close(self) -> None:
        if not self.closed:
            super().close()
            if self._reader is not None:
                self._reader.end()

    def _answer(self, call: Callable[[_Reader], T]) -> T:
        """Return the answer of the first replica that gives one."""
        while True:
            if self._reader is None:
                if not self._left:
                    raise min(self._errors, key=error_rank)
                self._reader = _Reader(self._left.pop(0), self._path, self._expected)
            try:
                return call(self._reader)
            except _Failures as error:
                self._reader.replica.health.note_error(error)
                self._reader.end()
                self._errors.append(error)
                self._reader = None


class _Reader:
    """The file in one replica, read by a thread of its own."""

    def __init__(self, replica: Replica, path: str, size: int | None) -> None:
        self.replica = replica
        self._path = path
        self._expected = size
        self._changed = threading.Condition()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._source: pa.NativeFile | None = None
        threading.Thread(target=self._run, name="tilth-replica-read", daemon=True).start()

    @property
    def size(self) -> int:
        return self._call(lambda: int(self._open_source().size()))

    def read(self, start: int, count: int) -> bytes:
        def read() -> bytes:
            source = self._open_source()
            source.seek(start)
            # It is a buffer, not bytes: see FailoverReader.read.
            data: bytes = source.read_buffer(count)
            if len(data) < count:
                raise FileSizeError(start + len(data))
            return data

        return self._call(read)

    def end(self) -> None:
        self._calls.put(None)

    def _open_source(self) -> pa.NativeFile:
        if self._source is None:
            self._source = self.replica.store.open(self._path, size=self._expected)
        return self._source

    def _call(self, act: Callable[[], T]) -> T:
        answers: list[T] = []
        errors: list[Exception] = []

        def run() -> None:
            try:
                answers.append(act())
            # Defects are caught too: they are raised again on the reader's thread.
            except BaseException as error:
                errors.append(as_exception(error))
            with self._changed:
                self._changed.notify_all()

        self._calls.put(run)
        with self._changed:
            wait_for_replica(self.replica, self._changed, lambda: bool(answers or errors), HUNG_SECONDS)
        for error in errors:
            raise error
        return answers[0]

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
        if self._source is not None:
            self._source.close()


def error_rank(error: Exception) -> int:
    """Return the rank of an error: one that does not concern the file comes before one that reports it as missing."""
    if isinstance(error, FileNotFoundError):
        return 2
    return 1 if isinstance(error, FileSizeError) else 0
