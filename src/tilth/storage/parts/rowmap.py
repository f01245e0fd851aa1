"""Map of the rows of a part to the rows of the parts it was made of.

Covers: writing the map beside the part's file, reading it, removing it. Does not cover: its use (deltas/rebase.py).
Always holds: row i of the map is row i of the part; the map is in no record and only needed until it is known whether
the part's commit landed, so nobody waits for the disk.

An Arrow IPC file: `source` is the source's number among those that were read, `row` the row's index in the source's
file.

Tests: tests/property/test_merge_changed.py, tests/integration/storage/test_flush_files.py.
"""

from __future__ import annotations

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

SourceNumbers = np.ndarray[Any, np.dtype[np.uint16]]
Rows = np.ndarray[Any, np.dtype[np.uint32]]
Found = np.ndarray[Any, np.dtype[np.int64]]

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


class RowMap:
    """The map of one part, inverted: from the rows of its sources to its own. Holds eight bytes a row."""

    def __init__(self, folder: Folder, part_file: str) -> None:
        """Raises PartFileNotFoundError and PartFileCorruptError naming the map."""
        name = sidecar_name(part_file, MAP_EXTENSION)
        pieces: dict[int, list[tuple[Rows, Rows]]] = {}
        first = 0
        try:
            with open_whole(folder, name) as source:
                reader = pa.ipc.open_file(source)
                for number in range(reader.num_record_batches):
                    batch = reader.get_batch(number)
                    for source_number, piece in _by_source(batch, first).items():
                        pieces.setdefault(source_number, []).append(piece)
                    first += batch.num_rows
        except FileNotFoundError as error:
            raise missing_error(folder, name) from error
        except (pa.ArrowException, OSError) as error:
            raise PartFileCorruptError(file=folder.uri(name), because=(str(error).splitlines() or [""])[0]) from error
        self._by_source = {
            number: _sort(
                np.concatenate([rows for rows, _ in parts]), np.concatenate([outputs for _, outputs in parts])
            )
            for number, parts in pieces.items()
        }

    def find(self, source: int, rows: Found) -> Found:
        """Find the positions of a source's rows in the part; -1 where they are not."""
        known = self._by_source.get(source)
        if known is None or not len(rows):
            return np.full(len(rows), -1, np.int64)
        sources, outputs = known
        at = np.minimum(np.searchsorted(sources, rows.astype(np.uint32)), len(sources) - 1)
        return np.where(sources[at] == rows, outputs[at].astype(np.int64), -1)


def remove_row_map(folder: Folder, part_file: str) -> bool:
    """Remove the map beside a part's file; False where there was none."""
    return remove(folder, sidecar_name(part_file, MAP_EXTENSION))


def _sort(rows: Rows, outputs: Rows) -> tuple[Rows, Rows]:
    """Sort by row. Rows of a sorted part are so already; those of a segment are in the order of the result."""
    if np.all(rows[1:] >= rows[:-1]):
        return rows, outputs
    order = np.argsort(rows, kind="stable")
    return rows[order], outputs[order]


def _by_source(batch: pa.RecordBatch, first: int) -> dict[int, tuple[Rows, Rows]]:
    """Return the rows by their source, with the index of each in the part."""
    numbers, rows = batch.column(0).to_numpy(), batch.column(1).to_numpy()
    # Sixteen bits are sorted by counting.
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers)).tolist()
    starts = [0, *ends[:-1]]
    return {
        number: (rows[order[start:end]], (order[start:end] + first).astype(np.uint32))
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
        if end > start
    }
