"""Rows that a view's target cannot take, and the reasons.

Covers: what a view requires of messages before rows are made of them, the rows that the target's columns do not take,
from rows to their messages. Does not cover: rows that Spark SQL cannot compute (probe.py), what becomes of the
messages. Always holds: a message whose row is refused is refused with all of its rows; its neighbours are not touched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.base.errors import InvalidInputError
from tilth.ingest.messages.arrays import MISFITS
from tilth.ingest.messages.decode import Owners
from tilth.ingest.views.ops import are_deletes, bad_ops
from tilth.model.table import OP_COLUMN, Schema
from tilth.storage import TableLayout, conform, shape_rows

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
#: Reasons by row, or by message.
Refused = dict[int, str]

_SHOWN_LENGTH_MAX = 60
_REFUSALS = (InvalidInputError, *MISFITS)


class Wanted(Enum):
    #: A value.
    PRESENT = auto()
    #: A known operation of the row.
    OP = auto()
    #: A value, in rows that delete.
    PRESENT_IN_DELETES = auto()


@dataclass(frozen=True, slots=True)
class RowCheck:
    """Condition on a column's values; the view refuses a message with other values."""

    column: str
    wanted: Wanted
    #: Because of whom, in words.
    because: str
    #: The column with the operations of rows; for PRESENT_IN_DELETES.
    op: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.op) if self.op else (self.column,)


def failed_checks(rows: pa.RecordBatch, checks: Sequence[RowCheck]) -> Refused:
    """The rows with a value that is not as it must be."""
    refused: Refused = {}
    for check in checks:
        values = rows.column(check.column)
        match check.wanted:
            case Wanted.PRESENT:
                found = values.is_null()
            case Wanted.OP:
                found = bad_ops(values)
            case Wanted.PRESENT_IN_DELETES:
                found = pc.and_(values.is_null(), are_deletes(rows.column(check.op)))
        for row in np.flatnonzero(found.to_numpy(zero_copy_only=False)).tolist():
            refused.setdefault(row, f"column `{check.column}`: {_shown(values[row])}, but {check.because}")
    return refused


def check_rows(layout: TableLayout, rows: pa.Table) -> None:
    """Raises what `write_rows` would of these rows, and writes nothing."""
    if layout.is_buffered:
        shape_rows(layout, rows)
    else:
        conform(rows, layout.schema)


def misfits(layout: TableLayout, rows: pa.Table) -> Refused:
    """Return the rows that do not fit the table. Raises if none fits, or if each fits but not all together."""
    refused: Refused = {}
    # One error names one column: each pass checks the rows that are left. Every pass refuses a row, so the loop ends.
    left = np.arange(rows.num_rows)
    while len(left):
        kept = rows if len(left) == rows.num_rows else rows.take(pa.array(left))
        error = _refusal(layout, kept)
        if error is None:
            break
        found = {} if _refusal(layout, kept.slice(0, 0)) else _bisected(*_narrowed(layout, kept, error))
        if not found:
            # Refused are rows together, or even none: no row is to blame.
            raise error
        refused.update((int(left[row]), why) for row, why in found.items())
        left = np.delete(left, list(found))
    return refused


def by_message(refused: Mapping[int, str], owners: Owners) -> Refused:
    """Return the first reason of each message with a refused row."""
    if owners is None:
        return dict(sorted(refused.items()))
    messages: Refused = {}
    for row, why in sorted(refused.items()):
        messages.setdefault(int(owners[row]), why)
    return messages


def without(rows: Rows, owners: Owners, messages: Collection[int]) -> tuple[Rows, Owners]:
    """The rows of the other messages, and whose they are."""
    if not messages:
        return rows, owners
    owners = np.arange(rows.num_rows) if owners is None else owners
    is_kept = ~np.isin(owners, list(messages))
    return rows.filter(pa.array(is_kept)), owners[is_kept]


def _refusal(layout: TableLayout, rows: pa.Table) -> Exception | None:
    try:
        check_rows(layout, rows)
    except _REFUSALS as error:
        return error
    return None


def _narrowed(layout: TableLayout, rows: pa.Table, error: Exception) -> tuple[TableLayout, pa.Table]:
    """The one column that the error names, where it alone is refused too: much is saved in wide tables."""
    name = error.facts.get("column", "") if isinstance(error, InvalidInputError) else ""
    column = layout.schema.find(name)
    indexes = [index for index, given in enumerate(rows.column_names) if given.lower() == name.lower()]
    if column is None or not indexes:
        return layout, rows
    key = tuple(each for each in layout.unique_key if each.lower() == name.lower())
    narrow = replace(
        layout, schema=Schema(columns=(column,)), partition_by=(), order_by=(), unique_key=key, version_column=None
    )
    only = rows.select([*indexes, *([OP_COLUMN] if OP_COLUMN in rows.column_names and layout.is_buffered else [])])
    return (narrow, only) if _refusal(narrow, only) is not None else (layout, rows)


def _bisected(layout: TableLayout, rows: pa.Table) -> Refused:
    """The rows that are refused alone, by halving those that are refused together."""
    refused: Refused = {}
    waiting = [(0, rows.num_rows)]
    while waiting:
        start, end = waiting.pop()
        error = _refusal(layout, rows.slice(start, end - start))
        if error is None:
            continue
        if end - start == 1:
            refused[start] = _error_line(error)
        else:
            middle = (start + end) // 2
            waiting += [(start, middle), (middle, end)]
    return refused


def _error_line(error: Exception) -> str:
    """The error in one line, with the column first."""
    if not isinstance(error, InvalidInputError):
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    column, value, why = (error.facts.get(name) for name in ("column", "value", "why"))
    if column and value is not None and why:
        return f"column `{column}`: {value}, but {why}"
    facts = {name: value for name, value in error.facts.items() if name not in ("column", "nulls", "rows")}
    what = error.message.partition(":")[0]
    more = "".join(f", {name} {value}" for name, value in facts.items())
    return f"column `{column}`: {what}{more}" if column else f"{what}{more}"


# Any: an Arrow scalar.
def _shown(value: Any) -> str:
    text = str(value.as_py())
    return text if len(text) <= _SHOWN_LENGTH_MAX else f"{text[:_SHOWN_LENGTH_MAX]}..."
