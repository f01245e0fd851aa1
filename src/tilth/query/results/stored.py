"""A large result as Arrow files in a table's storage, where Spark's tasks and the server share no disk.

    ROOT/results/ID/000003.17.000001.arrow    rows of partition 3 by attempt 17, an Arrow stream

Covers: names, writing, reading, what a task says of its files. Does not cover: folders that server and tasks share
(files.py), when the folder goes (snapshots/snapshots.py).
Always holds: rows come in the order of the partitions, which is that of ORDER BY; only files of attempts that ended
well are read, and nothing is read before the job has ended; memory holds one file of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import pyarrow as pa

from tilth.base.units import MIB
from tilth.query.errors import ResultLostError, ResultTooLargeError
from tilth.query.results.files import LOST_HINT, TOO_LARGE_HINT
from tilth.storage import Folder, make_folder, new_stream, read_whole, remove_files

#: Rows of about so many bytes, uncompressed, are one file.
STORED_FILE_BYTES = 16 * MIB
#: Begins the payload of a task whose rows are stored; an Arrow stream begins with other bytes.
_PREFIX = b"tilth-stored-rows:"


class ResultFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of rows."""

    name: str
    #: Bytes of the file.
    size: int


class StoredRows(msgspec.Struct, frozen=True, kw_only=True):
    """A whole result."""

    #: The columns, as an Arrow schema that is serialized.
    columns: bytes
    #: The files in the order of the rows.
    files: tuple[ResultFile, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.columns))


def pack_rows(rows: StoredRows) -> bytes:
    return _PREFIX + msgspec.msgpack.encode(rows)


def stored_in(payload: bytes) -> StoredRows | None:
    """Return the rows that the payload of a task names; None: it has them itself."""
    if not payload.startswith(_PREFIX):
        return None
    return msgspec.msgpack.decode(payload[len(_PREFIX) :], type=StoredRows)


def store_partition(
    folder: Folder, partition: int, schema: pa.Schema, batches: Iterator[pa.RecordBatch], *, attempt: int
) -> list[ResultFile]:
    """Write the batches of one partition, in files of about `STORED_FILE_BYTES`. Each try has its own `attempt`."""
    files: list[ResultFile] = []
    first = next(batches, None)
    if first is not None:
        make_folder(folder, fsync=False)
    while first is not None:
        name = f"{partition:06d}.{attempt}.{len(files):06d}.arrow"
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        with new_stream(folder, name) as sink:
            with pa.ipc.new_stream(sink, schema, options=options) as writer:
                size = 0
                batch: pa.RecordBatch | None = first
                while batch is not None:
                    writer.write_batch(batch)
                    size += batch.nbytes
                    batch = next(batches, None) if size < STORED_FILE_BYTES else None
            size_of_file = sink.tell()
        files.append(ResultFile(name=name, size=size_of_file))
        first = next(batches, None)
    return files


class StoredReader:
    """Reads the rows of a result once, and removes each file that was read."""

    def __init__(self, folder: Folder, files: Sequence[ResultFile]) -> None:
        self._folder = folder
        self._files = list(files)
        #: Bytes that are still stored.
        self.bytes = sum(each.size for each in files)

    def batches(self, check: Callable[[], None], *, bytes_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows. `check` raises why the statement was cancelled; `bytes_max` 0: no limit.

        Raises ResultTooLargeError and ResultLostError.
        """
        size = 0
        for file in self._files:
            check()
            for batch in self._read(file):
                size += batch.nbytes
                if bytes_max and size > bytes_max:
                    raise ResultTooLargeError(bytes_max=bytes_max, hint=TOO_LARGE_HINT)
                if batch.num_rows:
                    yield batch
                check()
            remove_files(self._folder, [file.name])
            self.bytes -= file.size

    def _read(self, file: ResultFile) -> list[pa.RecordBatch]:
        try:
            return read_whole(self._folder, file.name, _batches_of)
        except FileNotFoundError as error:
            why = "the files of the result were removed before all rows were read"
            raise ResultLostError(why, file=self._folder.uri(file.name), hint=LOST_HINT) from error


def _batches_of(content: pa.Buffer) -> list[pa.RecordBatch]:
    with pa.ipc.open_stream(content) as reader:
        return list(reader)
