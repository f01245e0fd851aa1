"""Arrow files for one job: written by its first tasks, read by its later ones, gone before its commit.

Covers: writing, reading and removing them. Does not cover: what is in them.
Always holds: no commit names them. They are named like the other files of their transaction, so what a crash leaves is
removed by name; and they need not be on the disk, for nothing reads them after a crash.

Tests: tests/integration/storage/test_store_behaviour.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import pyarrow as pa

from tilth.base.errors import TilthError
from tilth.storage.store.files.files import make_folder, new_stream, remove
from tilth.storage.store.files.whole import open_whole
from tilth.storage.store.paths import SEGMENT_EXTENSION, TableLayout, file_name

#: Small batches are joined up to this, so that readers get few large ones.
_BATCH_BYTES = 4 << 20


def scratch_name(*, txn: int, task: int, attempt: int, n: int) -> str:
    """The name of a file; `n` counts on from the row segments of the same task and attempt."""
    return file_name(txn=txn, task=task, attempt=attempt, n=n, extension=SEGMENT_EXTENSION)


class ScratchWriter:
    """Writes batches of one schema to a new file; raises FileExistsError where the name is taken."""

    def __init__(self, layout: TableLayout, name: str, schema: pa.Schema) -> None:
        make_folder(layout.folder, fsync=layout.fsync)
        self._file = new_stream(layout.folder, name)
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        self._writer = pa.ipc.new_file(self._file, schema, options=options)
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows that follow those before."""
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes >= _BATCH_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()
        self._file.close()

    def __enter__(self) -> ScratchWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            # The error before this one is more precise.
            with suppress(TilthError):
                self._file.close()

    def _flush(self) -> None:
        if self._held:
            for batch in pa.Table.from_batches(self._held).combine_chunks().to_batches():
                self._writer.write_batch(batch)
        self._held, self._held_bytes = [], 0


def read_scratch(
    layout: TableLayout, name: str, columns: Sequence[str], *, is_wanted: Callable[[pa.Array], bool] | None = None
) -> Iterator[pa.RecordBatch]:
    """The batches of a file that was closed, with these columns; with `is_wanted` those whose first column it wants,
    and of the others nothing but that is read.
    """
    with open_whole(layout.folder, name) as source:
        names = pa.ipc.open_file(source).schema.names
        reader = _reader(source, [names.index(column) for column in columns])
        firsts = None if is_wanted is None else _reader(source, [0])
        for number in range(reader.num_record_batches):
            if firsts is None or is_wanted is None or is_wanted(firsts.get_batch(number).column(0)):
                yield reader.get_batch(number).select(list(columns))


def remove_scratch(layout: TableLayout, name: str) -> None:
    """Remove a file; do nothing where it is gone already."""
    remove(layout.folder, name)


# Any: a reader of Arrow's.
def _reader(source: Any, fields: list[int]) -> Any:
    return pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False))
