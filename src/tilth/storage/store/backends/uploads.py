"""A large object on its way into a bucket, in pieces, which leaves nothing there when it is given up.

Covers: the thread that sends the pieces. Does not cover: what is sent, errors in our words (objects.py).
Always holds: an upload that is given up, or that nobody holds any more, is ended in the store; only what a killed
process has sent stays, until the bucket's lifecycle rule for incomplete uploads removes it.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress

from tilth.base.errors import as_exception

#: Interval at which a thread that waits for pieces checks whether somebody still holds the upload.
POLL_SECONDS = 1.0
#: Longest wait for the store to end an upload that is given up.
GIVE_UP_SECONDS = 2.0


class UploadGivenUpError(Exception):
    """An upload was given up; only the store's client sees this error, and ends the upload."""


class Upload:
    """One object, sent by a thread of its own; for one writer."""

    def __init__(self, put: Callable[[Iterator[bytes]], object]) -> None:
        """`put`: sends all pieces and ends the object; if the pieces end with an error, it ends the upload instead."""
        self._pieces: queue.Queue[bytes | None] = queue.Queue(1)
        self._is_over = threading.Event()
        self._outcome: Future[object] = Future()
        pieces = _pieces(self._pieces, self._is_over)
        threading.Thread(target=_run, args=(put, pieces, self._outcome), name="tilth-upload", daemon=True).start()
        weakref.finalize(self, self._is_over.set)

    def write(self, piece: bytes) -> None:
        """Enqueue a piece; wait while the store is slow. Raises the error of the upload."""
        self._enqueue(piece)

    def close(self) -> None:
        """Return when the object is there. Raises the error of the upload."""
        self._enqueue(None)
        self._outcome.result()

    def give_up(self) -> None:
        """End the upload without an object; after GIVE_UP_SECONDS the store ends it in the background."""
        self._is_over.set()
        with suppress(queue.Full):
            self._pieces.put_nowait(None)
        wait([self._outcome], GIVE_UP_SECONDS)

    def _enqueue(self, piece: bytes | None) -> None:
        while True:
            if self._outcome.done():
                self._outcome.result()
            with suppress(queue.Full):
                self._pieces.put(piece, timeout=POLL_SECONDS)
                return


def _pieces(given: queue.Queue[bytes | None], is_over: threading.Event) -> Iterator[bytes]:
    while True:
        piece = None
        with suppress(queue.Empty):
            piece = given.get(timeout=POLL_SECONDS)
            if piece is None and not is_over.is_set():
                return
        if is_over.is_set():
            raise UploadGivenUpError
        if piece is not None:
            yield piece


def _run(put: Callable[[Iterator[bytes]], object], pieces: Iterator[bytes], outcome: Future[object]) -> None:
    try:
        outcome.set_result(put(pieces))
    # Defects are caught too: they are raised again on the writer's thread.
    except BaseException as error:
        outcome.set_exception(as_exception(error))
