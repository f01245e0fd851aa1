"""Dead letters on their way through the views again: in files, from which a round's tasks read them like a topic.

Covers: writing the files in tasks that read the dead-letter table, reading them as messages, the rows that go from the
table. Does not cover: choosing letters (replay/spark.py), the commit (service/letter_replay.py).
Always holds: a file has one letter at most of each offset, in the order of offsets; the rows that are deleted are those
that the files name, whatever becomes of the table meanwhile.

Tests: tests/integration/ingest/test_replayed_letters.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import compress, groupby
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.ingest.batch import MessageBatch, Texts
from tilth.ingest.kafka.fetch import Fetched
from tilth.model.delta import WrittenDelta
from tilth.model.offset import OffsetRange
from tilth.storage import (
    CHANGE_DELETE,
    DeltaWriter,
    ScratchWriter,
    TableLayout,
    read_scratch,
    remove_scratch,
    scratch_name,
)

#: Maximum number of letters about the same message in one transaction; the others stay for the next statement.
SAME_MAX = 4

#: Columns of a message's position.
POSITION_COLUMNS = ("topic", "partition", "offset")
#: Columns of the letter's row in the dead-letter table, then those of its message.
LETTER_COLUMNS = ("file", "row", *POSITION_COLUMNS, "ms", "key", "raw")
_SCHEMA = pa.schema(
    list(
        zip(
            LETTER_COLUMNS,
            (pa.string(), pa.int64(), pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary()),
            strict=True,
        )
    )
)

#: Topic, partition, offset.
Position = tuple[str, int, int]


# Any: values of columns.
def _messages(rows: Sequence[tuple[Any, ...]]) -> MessageBatch:
    """Return the messages of rows of one topic partition, without headers, which letters do not have."""
    _, _, offsets, millis, keys, values = map(list, zip(*rows, strict=True))
    return MessageBatch(
        Texts(values),
        offsets=np.array(offsets, np.int64),
        keys=Texts(keys),
        times=np.array([-1 if each is None else each for each in millis], np.int64),
    )


class LetterFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of letters."""

    name: str
    #: Ranges of offsets by topic partition, from its first letter to its last.
    ranges: tuple[OffsetRange, ...]
    letters: int


class LettersWritten(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one task."""

    files: tuple[LetterFile, ...]
    #: Letters that are in no file: there are too many of the same message.
    left: int


@dataclass(frozen=True, slots=True)
class Letters:
    """The messages of a replay; goes to the tasks that read them."""

    #: Layout of the dead-letter table.
    layout: TableLayout
    #: File names, one for each split of the round.
    names: tuple[str, ...]

    def fetch(self, split: int) -> Iterator[Fetched]:
        """Yield the messages of a split, in the order of topic partitions and offsets."""
        for batch in read_scratch(self.layout, self.names[split], LETTER_COLUMNS[2:]):
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            for (topic, partition), found in groupby(rows, itemgetter(0, 1)):
                yield Fetched(topic=topic, partition=partition, messages=_messages(list(found)))

    def deletions(
        self, partitions: Mapping[str, str], *, txn: int, first_task: int, attempt: int
    ) -> tuple[WrittenDelta, ...]:
        """Write the change segments that delete the letters from the table. `partitions`: partitions by data file."""
        batches = [batch for name in self.names for batch in read_scratch(self.layout, name, ("file", "row"))]
        rows = pa.Table.from_batches(batches)
        of_row = pa.array([partitions[name] for name in rows.column("file").to_pylist()], pa.string())
        changes = rows.append_column("op", pa.repeat(pa.scalar(CHANGE_DELETE, pa.int8()), rows.num_rows))
        with DeltaWriter(self.layout, txn=txn, task=first_task, attempt=attempt) as out:
            return tuple(
                out.changes(partition, changes.filter(pc.equal(of_row, partition)))
                for partition in sorted(of_row.unique().to_pylist())
            )

    def remove(self) -> None:
        # The last one goes first, so that the numbers of a task's files never have a hole.
        for name in reversed(self.names):
            remove_scratch(self.layout, name)


@dataclass(frozen=True, slots=True)
class LetterWriter:
    """Runs in Spark's tasks: letters in the order of their offsets in, files out."""

    layout: TableLayout
    txn: int
    first_task: int

    def __call__(self, rows: Iterable[pa.RecordBatch], /, *, task: int, attempt: int) -> LettersWritten:
        files: list[_OpenFile] = []
        left = 0
        counted = _Repeats()
        with ExitStack() as stack:
            for batch in rows:
                letters = pa.RecordBatch.from_arrays(
                    [column.cast(field.type) for column, field in zip(batch.columns, _SCHEMA, strict=True)],
                    schema=_SCHEMA,
                )
                positions = list(zip(*(letters.column(name).to_pylist() for name in POSITION_COLUMNS), strict=True))
                repeats = counted.of(positions)
                for number in range(min(max(repeats, default=-1) + 1, SAME_MAX)):
                    if number == len(files):
                        name = scratch_name(txn=self.txn, task=self.first_task + task, attempt=attempt, n=number)
                        files.append(_OpenFile(name, stack.enter_context(ScratchWriter(self.layout, name, _SCHEMA))))
                    is_in_file = [each == number for each in repeats]
                    files[number].write(letters.filter(pa.array(is_in_file)), list(compress(positions, is_in_file)))
                left += sum(each >= SAME_MAX for each in repeats)
        return LettersWritten(files=tuple(each.facts() for each in files), left=left)


class _Repeats:
    """Counts how many letters of the same message came before each one."""

    def __init__(self) -> None:
        self._last: Position | None = None
        self._count = 0

    def of(self, positions: Iterable[Position]) -> Sequence[int]:
        found = []
        for position in positions:
            self._count = self._count + 1 if position == self._last else 0
            self._last = position
            found.append(self._count)
        return found


class _OpenFile:
    def __init__(self, name: str, writer: ScratchWriter) -> None:
        self._name = name
        self._writer = writer
        self._letters = 0
        #: First and last offset by topic partition.
        self._spans: dict[tuple[str, int], tuple[int, int]] = {}

    def write(self, letters: pa.RecordBatch, positions: Iterable[Position]) -> None:
        if not letters.num_rows:
            return
        self._writer.write(letters)
        self._letters += letters.num_rows
        for topic, partition, offset in positions:
            first, _ = self._spans.get((topic, partition), (offset, offset))
            self._spans[topic, partition] = first, offset

    def facts(self) -> LetterFile:
        ranges = (
            OffsetRange(topic=topic, partition=partition, start=first, end=last + 1)
            for (topic, partition), (first, last) in self._spans.items()
        )
        return LetterFile(name=self._name, ranges=tuple(ranges), letters=self._letters)
