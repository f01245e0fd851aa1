"""The rows of a statement on their way to the client.

Covers: what a door iterates, the end, rows that begin again. Does not cover: where rows come from (files.py), their
form (server), which losses are mended (control/resends.py).
Always holds: `close` is called exactly once, however the way ends; what a client has of one stream is never followed by
rows of another.

Tests: tests/unit/control/test_resends.py.
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
        """Raises TilthErrors; then the rows before are not the whole result."""
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


def rows_of_table(table: pa.Table) -> RowStream:
    """Return rows that are all there as a stream."""
    return RowStream(table.schema, iter(table.to_batches()), lambda rows, size, error: None)


def begun_again(stream: RowStream, again: Callable[[TilthError], RowStream]) -> RowStream:
    """Return the rows of the stream, or, if it breaks off before its first row, those of the one that `again` returns.

    `again` gets the error, and raises it where there is no other stream. A stream with other columns is refused with
    that error, too: those of the first may be on their way to the client.
    """
    rows = _BegunAgain(stream, again)
    return RowStream(stream.schema, rows.batches(), rows.close)


class _BegunAgain:
    def __init__(self, stream: RowStream, again: Callable[[TilthError], RowStream]) -> None:
        self._stream = stream
        self._again = again
        self._lock = threading.Lock()
        self._is_closed = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        batches = iter(self._stream)
        try:
            first = next(batches, None)
        except TilthError as error:
            self._continue_with(self._again(error), error)
            batches = iter(self._stream)
            first = next(batches, None)
        if first is not None:
            yield first
            yield from batches

    def close(self, rows: int, size: int, error: TilthError | None) -> None:
        with self._lock:
            self._is_closed = True
            stream = self._stream
        stream.close(error)

    def _continue_with(self, stream: RowStream, error: TilthError) -> None:
        """Go on with another stream; raises the error that ended the first one where that is not possible."""
        with self._lock:
            is_other = not stream.schema.equals(self._stream.schema, check_metadata=True)
            is_refused = is_other or self._is_closed
            if not is_refused:
                self._stream = stream
        if is_refused:
            stream.close(error)
            raise error
