"""Map of the rows of a part to the rows of the parts it was made of.

Covers: writing the map beside the part's file, reading it, removing it. Does not cover: its use (deltas/rebase.py).
Always holds: row i of the map is row i of the part; the map is in no record and only needed until it is known whether
the part's commit landed, so nobody waits for the disk.

An Arrow IPC file: `source` is the source's number among those that were read, `row` the row's index in the source's
file.

Tests: tests/property/test_merge_changed.py, tests/integration/storage/test_flush_files.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from tilth.base.errors import TilthError
from tilth.storage.errors import PartFileCorruptError
from tilth.storage.store.files.files import make_folder, missing_error, new_stream, remove
from tilth.storage.store.files.whole import open_whole
from tilth.storage.store.paths import MAP_EXTENSION, TableLayout, sidecar_name
from tilth.storage.store.root import Folder

#: Maximum number of sources in the row map of one part.
SOURCES_MAX = 1 << 16
#: Bytes of a row map for each row of the part.
MAP_ROW_BYTES = 6

SourceNumbers = np.ndarray[Any, np.dtype[np.uint16]]
Rows = np.ndarray[Any, np.dtype[np.uint32]]
Found = np.ndarray[Any, np.dtype[np.int64]]
_Mask = np.ndarray[Any, np.dtype[np.bool_]]

_SCHEMA = pa.schema([pa.field("source", pa.uint16(), nullable=False), pa.field("row", pa.uint32(), nullable=False)])


class RowMapWriter:
    """Writes the map of one part while the part is written; a context manager that gives up on an error."""

    def __init__(self, layout: TableLayout, part_file: str) -> None:
        self._layout = layout
        self._name = sidecar_name(part_file, MAP_EXTENSION)
        self._writer: pa.RecordBatchFileWriter | None = None
        self._sink: pa.NativeFile | None = None

    def write(self, numbers: SourceNumbers, rows: Rows) -> None:
        """Append the part's next rows: the numbers of their sources, and their indexes in these."""
        if self._writer is None:
            make_folder(self._layout.folder, fsync=self._layout.fsync)
            self._sink = new_stream(self._layout.folder, self._name)
            self._writer = pa.ipc.new_file(self._sink, _SCHEMA)
        self._writer.write_batch(pa.record_batch([pa.array(numbers), pa.array(rows)], schema=_SCHEMA))

    def close(self) -> None:
        """Close the file; there is none where nothing was written."""
        if self._writer is not None and self._sink is not None:
            self._writer.close()
            self._sink.close()
        self._writer = self._sink = None

    def __enter__(self) -> RowMapWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._sink is not None:
            # The error before this one is more precise.
            with suppress(TilthError):
                self._sink.close()
                remove(self._layout.folder, self._name)
        self._writer = self._sink = None


def find_rows(folder: Folder, part_file: str, wanted: Mapping[int, Found]) -> dict[int, Found]:
    """Find the positions, in a part, of rows of its sources; -1 for a row that the part does not have.

    `wanted`: rows by the number of their source, in their order. Holds one batch of the map at a time. Raises
    PartFileNotFoundError and PartFileCorruptError naming the map.
    """
    name = sidecar_name(part_file, MAP_EXTENSION)
    found = {number: np.full(len(rows), -1, np.int64) for number, rows in wanted.items()}
    is_wanted = np.zeros(SOURCES_MAX, bool)
    is_wanted[list(wanted)] = True
    first = 0
    try:
        with open_whole(folder, name) as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                batch = reader.get_batch(index)
                for number, rows, outputs in _by_source(batch, is_wanted):
                    _note(wanted[number], rows, outputs + first, found[number])
                first += batch.num_rows
    except FileNotFoundError as error:
        raise missing_error(folder, name) from error
    except (pa.ArrowException, OSError) as error:
        raise PartFileCorruptError(file=folder.uri(name), because=(str(error).splitlines() or [""])[0]) from error
    return found


def remove_row_map(folder: Folder, part_file: str) -> bool:
    """Remove the map beside a part's file; False where there was none."""
    return remove(folder, sidecar_name(part_file, MAP_EXTENSION))


def _note(wanted: Found, rows: Rows, outputs: Found, found: Found) -> None:
    """Note the positions of the wanted rows among these."""
    if not np.all(rows[1:] >= rows[:-1]):
        # Rows of a sorted part are in their order; those of a segment are in the order of the result.
        order = np.argsort(rows, kind="stable")
        rows, outputs = rows[order], outputs[order]
    start, end = np.searchsorted(wanted, (rows[0], rows[-1] + np.int64(1)))
    within = wanted[start:end]
    at = np.searchsorted(rows, within.astype(np.uint32))
    found[start:end] = np.where(rows[at] == within, outputs[at], found[start:end])


def _by_source(batch: pa.RecordBatch, is_wanted: _Mask) -> Iterator[tuple[int, Rows, Found]]:
    """Yield the rows of each wanted source, with the index of each in the batch."""
    numbers, rows = batch.column(0).to_numpy(), batch.column(1).to_numpy()
    outputs = np.flatnonzero(is_wanted[numbers])
    if not len(outputs):
        return
    numbers, rows = numbers[outputs], rows[outputs]
    # Sixteen bits are sorted by counting.
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers)).tolist()
    for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        if end > start:
            yield number, rows[order[start:end]], outputs[order[start:end]]
