"""Parts, marks and drop ranges: what a table consists of.

Covers: names (docs/policies/visibility.md#names) and records. Does not cover: what a reader sees of them
(catalog/rules/visibility.py).
Always holds: a part never changes; a mark hides exactly one part; names parse and format without loss.

Tests: tests/unit/catalog/test_catalog_counts.py.
"""

from __future__ import annotations

import re

import msgspec

from tilth.base.errors import InvalidInputError

#: The level of drop ranges.
LEVEL_MAX = 999_999_999
_NAME = re.compile(r"([A-Za-z0-9-]+)_(\d+)_(\d+)_(\d+)_(\d+)")

#: A column's smallest or largest value: dates as days, timestamps as microseconds, decimals as text.
Bound = bool | int | float | str | None


class PartName(msgspec.Struct, frozen=True, order=True):
    """`partition_min_max_level_mutation`; sorts in that order."""

    #: Letters, digits and `-` only; `all` for a table without PARTITION BY.
    partition: str
    min_block: int
    max_block: int
    level: int
    #: The transaction that made the entry.
    mutation: int

    def __str__(self) -> str:
        return f"{self.partition}_{self.min_block}_{self.max_block}_{self.level}_{self.mutation}"

    @property
    def blocks(self) -> tuple[int, int]:
        """The range of blocks that the entry covers."""
        return self.min_block, self.max_block


def parse_part_name(text: str) -> PartName:
    """Raises InvalidInputError when the text is no part name."""
    found = _NAME.fullmatch(text)
    if found is None:
        raise InvalidInputError("not a part name", name=text)
    return PartName(found[1], int(found[2]), int(found[3]), int(found[4]), int(found[5]))


class FileCopies(msgspec.Struct, frozen=True, array_like=True):
    """Replicas that have a file, according to its writer."""

    #: Ids of the replicas; an id is never used again (model/storage.py).
    replicas: tuple[str, ...]
    #: Number of copies that the commit of the file requires.
    quorum: int


class DataFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a table's `data/` folder."""

    #: `{txn}-{task}-{n}.{ext}`; never used again.
    name: str
    size: int
    #: CRC-32 of the whole file.
    checksum: int
    #: `True` if a scan that skips rows by the statistics, page index and dictionaries of a part's Parquet file finds
    #: every row that Spark's comparisons match. `False`: not known, as where a value that misleads them came late.
    is_filterable: bool = False
    #: Set by the writer for the commit, which notes the missing copies; None in the catalog and in a storage without
    #: replicas.
    copies: FileCopies | None = None


class ColumnRange(msgspec.Struct, frozen=True, array_like=True):
    """Bounds and NULLs of one column's values in a part. None as a bound: not known."""

    low: Bound
    high: Bound
    nulls: int


class WrittenPart(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a part's file from the task that wrote it; the commit makes it a Part."""

    partition: str
    #: The partition's values, one for each element of PARTITION BY.
    values: tuple[Bound, ...]
    rows: int
    file: DataFile
    #: Ranges by column name: partition columns, sort key and unique key at least.
    ranges: dict[str, ColumnRange]
    #: True: a row segment, an Arrow IPC file whose rows are in the order in which they came.
    is_segment: bool = False


class Part(msgspec.Struct, frozen=True, kw_only=True, tag="p"):
    """A visible or once visible part."""

    name: PartName
    schema_version: int
    rows: int
    file: DataFile
    values: tuple[Bound, ...] = ()
    ranges: dict[str, ColumnRange] = {}
    #: Smallest and largest commit_ts of the inserts whose rows are in it.
    min_row_ts: int = 0
    max_row_ts: int = 0
    #: 0 until its transaction's commit fixes it.
    commit_ts: int = 0
    #: Commit of the schema version that it was written with.
    columns_commit_ts: int = 0
    #: The newest UPDATE or DELETE mutation that it already contains, or was born after
    #: (docs/policies/mutations.md#which-part-needs-an-entry).
    mutation_ts: int = 0
    #: True: made by rewriting the part below it in its chain, of which no later reader needs anything.
    is_rewritten: bool = False
    #: True: a row segment: rows that are committed and readable, not sorted into a Parquet file yet.
    is_segment: bool = False
    #: The transaction of the merge that made it as one of several key ranges, which count and are merged as one part;
    #: 0: it is whole.
    cut: int = 0

    @property
    def bytes(self) -> int:
        return self.file.size


class Mark(msgspec.Struct, frozen=True, kw_only=True, tag="m"):
    """Hides the part with the same partition and blocks and a lower level."""

    name: PartName
    commit_ts: int = 0


class DropRange(msgspec.Struct, frozen=True, kw_only=True, tag="r"):
    """Hides every part of its partition with `max_block <=` its own."""

    name: PartName
    commit_ts: int = 0
    #: Number of visible parts that it hid.
    parts: int = 0


Entry = Part | Mark | DropRange


def mark_of(part: PartName, *, txn: int) -> Mark:
    return Mark(name=PartName(part.partition, part.min_block, part.max_block, part.level + 1, txn))


def drop_range(partition: str, *, max_block: int, txn: int, parts: int = 0) -> DropRange:
    """The range that hides what the partition holds up to a block."""
    return DropRange(name=PartName(partition, 0, max_block, LEVEL_MAX, txn), parts=parts)


class TrashItem(msgspec.Struct, frozen=True, kw_only=True):
    """A part that has left the table; its file is still there until the trash is emptied."""

    part: Part
    #: Hybrid time since when no reader needs it; 0 where its transaction never finished.
    end_ts: int
    moved_ms: int
    #: True: a drop range hid it, so that UNDROP PARTITION can bring it back.
    is_dropped: bool = False
    #: Number of parts that this range hid.
    dropped_parts: int = 0
    #: True once its file is being removed: it cannot come back any more.
    is_going: bool = False


class PartEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `system.part_log`."""

    #: `new`, `merge`, `flush`, `remove_deleted`, `mutate`, `delete`, `flush_deltas`, `minor_delta`, `major_delta`,
    #: `hide`, `undrop`, `trash`, `remove`.
    event: str
    at_ms: int
    table: str
    part: str
    rows: int
    bytes: int
    #: Parts that a merge read.
    sources: int = 0
    duration_ms: int = 0
    reason: str = ""
    #: Range of the first column of the sort key in a `new` part, if it is known; retained for a day.
    key: ColumnRange | None = None
