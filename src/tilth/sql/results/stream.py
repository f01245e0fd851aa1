"""The rows of a statement on their way to the client.

Covers: what a door iterates, the end. Does not cover: where rows come from (files.py), their form (server).
Always holds: `close` is called exactly once, however the way ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa

from tilth.base.errors import TilthError


class RowStream:
    """Batches of rows, once."""

    def __init__(
        self,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        close: Callable[[int, int, TilthError | None], None],
    ) -> None:
        """`close` gets the number of rows and bytes that were taken, and what broke the stream off."""
        self.schema = schema
        self._batches = batches
        self._close = close
        self._lock = threading.Lock()
        self._is_closed = False
        self.rows = self.bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Raises TilthErrors; then the rows so far are not the whole result."""
        try:
            for batch in self._batches:
                self.rows += batch.num_rows
                self.bytes += batch.nbytes
                yield batch
        except TilthError as error:
            self.close(error)
            raise
        # A file that cannot be read, for instance: whoever iterates reports it.
        except BaseException as defect:
            self.close(TilthError(f"a defect of Tilth: {type(defect).__name__}: {defect}"))
            raise
        self.close(None)

    def close(self, error: TilthError | None) -> None:
        """End it; a second call does nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._close(self.rows, self.bytes, error)
