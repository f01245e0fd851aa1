"""A large result as Arrow files: tasks of Spark write them, the server streams them while others are being written.

    FOLDER/schema.arrow           an Arrow stream without rows: the result is a large one, and these are its columns
    FOLDER/000003.000001.arrow    an Arrow stream: rows of partition 3, complete once the file has this name
    FOLDER/000003.end             partition 3 has no more files

Covers: names, writing, following. Does not cover: what is written (spark.py), when the folder goes (stream.py).
Always holds: rows come in the order of the partitions, which is that of ORDER BY; memory holds one batch of rows; a
stream ends well only when the job did, and every file was read to its end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from tilth.base.units import MIB
from tilth.sql.errors import ResultTooLargeError

SCHEMA_FILE = "schema.arrow"
#: Rows of about so many bytes are one file.
FILE_BYTES = 4 * MIB
#: How often the server looks for the next file.
LOOK_SECONDS = 0.02
TOO_LARGE_HINT = "ask for fewer rows or columns, add a LIMIT, or raise the setting max_result_bytes"


def write_schema(folder: str, schema: pa.Schema) -> None:
    """Mark the result as one that comes as files."""
    write_batches(os.path.join(folder, SCHEMA_FILE), schema, iter(()))


def write_partition(folder: str, partition: int, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """Write the batches of one partition, in files of about `FILE_BYTES`."""
    number = 0
    first = next(batches, None)
    while first is not None:
        write_batches(_path(folder, partition, number), schema, _some(first, batches))
        number, first = number + 1, next(batches, None)
    with open(_end_path(folder, partition), "xb"):
        # The file is the message.
        return


def _some(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    size = first.nbytes
    while size < FILE_BYTES:
        batch = next(batches, None)
        if batch is None:
            return
        size += batch.nbytes
        yield batch


def write_batches(path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """Write the batches and then give the file its name."""
    unnamed = f"{path}.tmp"
    with pa.OSFile(unnamed, "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    os.replace(unnamed, path)


def _path(folder: str, partition: int, number: int) -> str:
    return os.path.join(folder, f"{partition:06d}.{number:06d}.arrow")


def _end_path(folder: str, partition: int) -> str:
    return os.path.join(folder, f"{partition:06d}.end")


def read_schema(folder: Path) -> pa.Schema:
    with pa.OSFile(str(folder / SCHEMA_FILE)) as source, pa.ipc.open_stream(source) as reader:
        return reader.schema


def has_schema(folder: Path) -> bool:
    """True if the result comes as files."""
    return (folder / SCHEMA_FILE).exists()


def follow(
    folder: Path, wait: Callable[[float], bool], check: Callable[[], None], *, bytes_max: int
) -> Iterator[pa.RecordBatch]:
    """The rows, as the files come. Files that were read are removed.

    `wait` waits for the end of the job, so many seconds at most, and says whether it has ended; `check` raises why it
    failed or was cancelled. `bytes_max` 0: no limit. Raises ResultTooLargeError.
    """
    size = 0
    for path in _paths(folder, wait, check):
        with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                check()
                size += batch.nbytes
                if bytes_max and size > bytes_max:
                    raise ResultTooLargeError(bytes_max=bytes_max, hint=TOO_LARGE_HINT)
                if batch.num_rows:
                    yield batch
        path.unlink(missing_ok=True)


def _paths(folder: Path, wait: Callable[[float], bool], check: Callable[[], None]) -> Iterator[Path]:
    partition = number = 0
    while True:
        path = Path(_path(str(folder), partition, number))
        # Looked for first: once it is there, all files before it are.
        is_over = os.path.exists(_end_path(str(folder), partition))
        if path.exists():
            yield path
            number += 1
        elif is_over:
            partition, number = partition + 1, 0
        elif wait(LOOK_SECONDS):
            check()
            # Spark may leave out partitions without rows.
            yield from sorted(each for each in folder.glob("*.*.arrow") if each.name >= path.name)
            return
        else:
            check()
