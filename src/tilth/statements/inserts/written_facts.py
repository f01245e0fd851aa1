"""Facts of files that a program outside says it has written, checked before a commit names the files.

Covers: names, task numbers, attempts, partitions, bounds, sizes in the store. Does not cover: the bytes of the files,
which reading and SYSTEM VERIFY check by their sums.
Always holds: a file that passes has a name that follows from the transaction and one of its task numbers, and no two
attempts of one task pass together.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from tilth.base.errors import InvalidInputError, TilthError
from tilth.model.part import Bound, WrittenPart
from tilth.model.table import TableDef, full_name
from tilth.model.txn import read_file_name
from tilth.model.types import DataType, Decimal, Kind, Simple
from tilth.storage import (
    PART_EXTENSION,
    SEGMENT_EXTENSION,
    TableLayout,
    check_size,
    column_of,
    file_name,
    partition_id,
    ranged_columns,
    result_type,
)

#: Files of one commit.
FILES_MAX = 100_000
#: Requests for the sizes of files at a time.
_SIZES_AT_A_TIME = 16
#: Sizes and sums are numbers of 63 and of 32 bits.
_SIZE_MAX = 2**63 - 1
_SUM_MAX = 2**32 - 1
_NUMBER = re.compile(r"-?[0-9]{1,38}(\.[0-9]{1,38})?")
_FLOATS = (Kind.FLOAT32, Kind.FLOAT64)
_INTEGERS = frozenset({Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ})


class BadFactsError(InvalidInputError):
    """the facts of a written file are not possible"""

    code = "BAD_WRITTEN_FILE"


def check_facts(table: TableDef, layout: TableLayout, parts: Sequence[WrittenPart], *, txn: int, tasks: int) -> None:
    """Check all that needs no store. Raises BadFactsError naming the file."""
    if len(parts) > FILES_MAX:
        hint = "write with fewer tasks, or repartition the rows by the columns of PARTITION BY first"
        raise BadFactsError("one commit names too many files", files=len(parts), files_max=FILES_MAX, hint=hint)
    attempts: dict[int, int] = {}
    numbers: dict[int, set[int]] = {}
    extension = SEGMENT_EXTENSION if table.unique_key else PART_EXTENSION
    ranged = frozenset(ranged_columns(layout))
    for part in parts:
        name = read_file_name(part.file.name)
        # Written anew, as numbers may be spelled in several ways.
        if name is None or name.txn != txn or file_name(**name._asdict()) != part.file.name:
            raise _bad(table, part, "the name does not follow from the transaction", txn=txn)
        if name.task >= tasks:
            raise _bad(table, part, "the number of the task is too large", tasks=tasks)
        if name.extension != extension or part.is_segment != bool(table.unique_key):
            raise _bad(table, part, "the table has its new rows in files of another kind", kind=extension)
        if attempts.setdefault(name.task, name.attempt) != name.attempt:
            raise _bad(table, part, "another attempt of the task is named, too", attempt=attempts[name.task])
        if name.n in numbers.setdefault(name.task, set()):
            raise _bad(table, part, "the file is named twice")
        numbers[name.task].add(name.n)
        _check_content(table, part, ranged)
    for task, found in numbers.items():
        if max(found) >= len(found):
            raise BadFactsError("files of a task are missing", table=full_name(table), task=task, named=len(found))


def check_sizes(layout: TableLayout, parts: Sequence[WrittenPart]) -> None:
    """Compare the sizes with those in the store. Raises PartFileNotFoundError and PartFileCorruptError."""
    if len(parts) <= 1:
        for part in parts:
            check_size(layout.folder, part.file)
        return
    with ThreadPoolExecutor(_SIZES_AT_A_TIME, thread_name_prefix="sizes") as pool:
        for _ in pool.map(lambda part: check_size(layout.folder, part.file), parts):
            pass


def check_replaced(table: TableDef, parts: Sequence[WrittenPart], replaced: Collection[str] | None) -> None:
    """Raises InvalidInputError (ROWS_OUTSIDE_PARTITIONS) for rows outside of the partitions that they replace."""
    if replaced is None:
        return
    outside = sorted({part.partition for part in parts}.difference(replaced))
    if outside:
        raise InvalidInputError.coded(
            "ROWS_OUTSIDE_PARTITIONS",
            "rows belong to partitions that are not to be replaced",
            table=full_name(table),
            partitions=", ".join(outside[:5]),
            count=len(outside),
            hint="name these partitions, too, or filter the rows; nothing was replaced",
        )


def _check_content(table: TableDef, part: WrittenPart, ranged: Collection[str]) -> None:
    if part.rows < 1 or not 0 < part.file.size <= _SIZE_MAX or not 0 <= part.file.checksum <= _SUM_MAX:
        raise _bad(table, part, "rows, size or sum are out of range")
    if set(part.ranges) != ranged:
        raise _bad(table, part, "the bounds are not those of the table's columns", needed=", ".join(sorted(ranged)))
    if any(not 0 <= each.nulls <= part.rows for each in part.ranges.values()):
        raise _bad(table, part, "more values are NULL than there are rows")
    for name, found in part.ranges.items():
        column = table.schema.find(name)
        assert column is not None
        if not (_is_bound(found.low, column.type) and _is_bound(found.high, column.type)):
            raise _bad(table, part, "a bound is none of its column's type", column=name)
    kinds = [result_type(each, column_of(table.schema, each)) for each in table.partition_by]
    if len(part.values) != len(kinds) or not all(map(_is_bound, part.values, kinds)):
        raise _bad(table, part, "the partition's values are none of PARTITION BY")
    try:
        expected = partition_id(table.schema, table.partition_by, part.values)
    except (TilthError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise _bad(table, part, "the partition's values are none of PARTITION BY", because=error) from error
    if part.partition != expected:
        raise _bad(table, part, "the partition is not that of its values", partition=part.partition)


def _is_bound(bound: Bound, of: DataType) -> bool:
    """True if the catalog may keep this as a value of the type (storage/values/bounds.py)."""
    if bound is None:
        return True
    if isinstance(of, Decimal):
        return isinstance(bound, str) and _NUMBER.fullmatch(bound) is not None
    kind = of.kind if isinstance(of, Simple) else None
    if kind is Kind.BOOLEAN or isinstance(bound, bool):
        return kind is Kind.BOOLEAN and isinstance(bound, bool)
    if kind is Kind.STRING:
        return isinstance(bound, str)
    if kind in _FLOATS:
        return isinstance(bound, float)
    return kind in _INTEGERS and isinstance(bound, int)


def _bad(table: TableDef, part: WrittenPart, why: str, **facts: object) -> BadFactsError:
    hint = "write with the version of the program that the server has"
    return BadFactsError(why, table=full_name(table), file=part.file.name[:100], **facts, hint=hint)
