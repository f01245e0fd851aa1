"""A large result as Arrow files: tasks of Spark write them, the server streams them while others are being written.

    FOLDER/schema.arrow              an Arrow stream without rows: the result is a large one, and these are its columns
    FOLDER/000003.17.000001.arrow    an Arrow stream: rows of partition 3 by attempt 17, complete once it has this name
    FOLDER/000003.17.end             attempt 17 of partition 3 has no more files

Covers: names, writing, following. Does not cover: what is written (spark.py), when the folder goes (stream.py).
Always holds: rows come in the order of the partitions, which is that of ORDER BY; memory holds one batch of rows; a
stream ends well only when the job did, and every file was read to its end; the rows of a partition are those of one
attempt, for another may have them in another order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from tilth.base.units import GIB, MIB
from tilth.query.errors import ResultLostError, ResultTooLargeError

SCHEMA_FILE = "schema.arrow"
#: Rows of about so many bytes are one file.
FILE_BYTES = 4 * MIB
#: Maximum that is collected for callers that take no stream, where `max_result_bytes` sets no limit.
COLLECTED_BYTES_WITHOUT_LIMIT = 1 * GIB
#: Interval at which the server polls for the next file.
POLL_SECONDS = 0.02
#: Partition and attempt of a file with rows, or of an attempt's end.
_NAME = re.compile(r"(\d+)\.(\d+)\.(?:\d+\.arrow|(end))")
LOST_HINT = "run the query again"
TOO_LARGE_HINT = "select fewer rows or columns, add a LIMIT, or raise the setting max_result_bytes"


def write_schema(folder: str, schema: pa.Schema) -> None:
    """Mark the result as one that comes as files."""
    write_batches(os.path.join(folder, SCHEMA_FILE), schema, iter(()))


def write_partition(
    folder: str, partition: int, schema: pa.Schema, batches: Iterator[pa.RecordBatch], *, attempt: int
) -> None:
    """Write the batches of one partition, in files of about `FILE_BYTES`. Each try has its own `attempt`."""
    number = 0
    first = next(batches, None)
    while first is not None:
        write_batches(_path(folder, partition, attempt, number), schema, _some(first, batches))
        number, first = number + 1, next(batches, None)
    with open(_end_path(folder, partition, attempt), "xb"):
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


def _path(folder: str, partition: int, attempt: int, number: int) -> str:
    return os.path.join(folder, f"{partition:06d}.{attempt}.{number:06d}.arrow")


def _end_path(folder: str, partition: int, attempt: int) -> str:
    return os.path.join(folder, f"{partition:06d}.{attempt}.end")


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
    attempt: int | None = None
    while True:
        if attempt is None:
            attempt = _best(_attempts(folder).get(partition, {}))
        if attempt is not None:
            path = Path(_path(str(folder), partition, attempt, number))
            # Checked first: once it is there, all files before it are.
            is_over = os.path.exists(_end_path(str(folder), partition, attempt))
            if path.exists():
                yield path
                number += 1
                continue
            if is_over:
                partition, number, attempt = partition + 1, 0, None
                continue
            if len(_attempts(folder).get(partition, {})) > 1:
                raise _lost()
        if wait(POLL_SECONDS):
            check()
            yield from _rest(folder, partition, attempt, number)
            return
        check()


def _rest(folder: Path, partition: int, attempt: int | None, number: int) -> Iterator[Path]:
    """Yield the files of a job that has ended well, from this one on. Spark may leave out partitions without rows."""
    attempts = _attempts(folder)
    if attempt is not None and not attempts.get(partition, {}).get(attempt, False):
        raise _lost()
    for each in sorted(each for each in attempts if each >= partition):
        of = attempt if each == partition and attempt is not None else _best(attempts[each])
        assert of is not None, "each partition that is found has an attempt"
        n = number if each == partition else 0
        while (path := Path(_path(str(folder), each, of, n))).exists():
            yield path
            n += 1


def _attempts(folder: Path) -> dict[int, dict[int, bool]]:
    """Return by partition the attempts that have files, and whether they have ended."""
    found: dict[int, dict[int, bool]] = {}
    for name in os.listdir(folder):
        if words := _NAME.fullmatch(name):
            of = found.setdefault(int(words[1]), {})
            of[int(words[2])] = of.get(int(words[2]), False) or words[3] is not None
    return found


def _best(attempts: dict[int, bool]) -> int | None:
    """Return the attempt to read: one that has ended, or else the last."""
    return max(attempts, key=lambda each: (attempts[each], each), default=None)


def _lost() -> ResultLostError:
    return ResultLostError("the executor that wrote these rows is gone, and some were sent", hint=LOST_HINT)
