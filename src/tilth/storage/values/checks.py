"""Checks of a column's declared type, applied to every row on its way into a file.

Covers: finding the values that break a check, wherever they are in a column of any type, and bringing UUIDs into their
one form. Does not cover: the rules (tilth.model.checks), bringing rows into a table's shape (arrow.py).
Always holds: NULL breaks no check, nor does what a NULL array, map or struct may have below it; a column without checks
is not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.model.checks import (
    ELEMENT,
    KEY,
    Check,
    IntegerRange,
    LengthMax,
    OneOf,
    Path,
    Rule,
    SecondDigits,
    UuidText,
    rule_text,
)
from tilth.model.table import Column
from tilth.model.text.times import SECOND_DIGITS_MAX, time_text
from tilth.storage.errors import BadColumnError

_UUID = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_SHOWN_LENGTH_MAX = 60

_Rows = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Misfit:
    """The first value of a row that breaks a check."""

    #: Row index, from 0.
    row: int
    value: str
    #: Reason, such as "expected a number from 0 to 255".
    why: str


def check_values(values: pa.ChunkedArray, column: Column, *, is_numbered: bool = False) -> pa.ChunkedArray:
    """The values, of the column's type, as they are stored.

    Raises BadColumnError naming the first that breaks a check. `is_numbered`: with its row, counted from 1.
    """
    if not column.checks:
        return values
    kept = pa.chunked_array([_normal(chunk, column.checks) for chunk in values.chunks], values.type)
    found = next(iter(misfits(kept, column)), None)
    if found is not None:
        message = "a value does not fit its column"
        facts = {"column": column.name, "type": column.declared_type, "value": found.value, "why": found.why}
        hint = "change the value, or the column's type: ALTER TABLE t MODIFY COLUMN"
        raise BadColumnError(message, hint=hint, **({"row": found.row + 1} if is_numbered else {}), **facts)
    return kept


def misfits(values: pa.ChunkedArray | pa.Array, column: Column) -> list[Misfit]:
    """Find the rows whose value breaks a check of the column, in their order."""
    found: dict[int, Misfit] = {}
    first = 0
    for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
        normal = _normal(chunk, column.checks)
        for check in column.checks:
            for each in _misfits(normal, check, first):
                found.setdefault(each.row, each)
        first += len(chunk)
    return [found[row] for row in sorted(found)]


def _misfits(values: pa.Array, check: Check, first: int) -> Iterator[Misfit]:
    leaves, rows = _leaves(values, np.arange(len(values)), check.path)
    positions = np.flatnonzero(_breaks(leaves, check.rule).fill_null(False).to_numpy(zero_copy_only=False))
    why = f"expected {rule_text(check.rule)}"
    for position in positions[np.unique(rows[positions], return_index=True)[1]].tolist():
        yield Misfit(first + int(rows[position]), _shown(leaves[position]), why)


def _leaves(values: pa.Array, rows: _Rows, path: Path) -> tuple[pa.Array, _Rows]:
    """The values below one path of the type, each with the row that it is in."""
    for step in path:
        if pa.types.is_struct(values.type):
            # Field by field as flatten gives them: NULL where the struct is.
            values = values.flatten()[values.type.get_field_index(step)]
            continue
        offsets = values.offsets.to_numpy()
        counts = np.where(values.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
        rows = np.repeat(rows, counts)
        inner = _inner(values, step)
        indices = np.repeat(offsets[:-1] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        values = inner.take(pa.array(indices)) if len(indices) != len(inner) else inner
    return values, rows


def _inner(values: pa.Array, step: str) -> pa.Array:
    """Return the values that the offsets of an array or a map point into."""
    if step == ELEMENT:
        return values.values
    return values.keys if step == KEY else values.items


def _breaks(values: pa.Array, rule: Rule) -> pa.Array:
    """Mark the values that break the rule; false or null for NULL."""
    match rule:
        case IntegerRange(least=least, greatest=greatest):
            low, high = (pa.scalar(Decimal(bound)).cast(values.type) for bound in (least, greatest))
            return pc.or_(pc.less(values, low), pc.greater(values, high))
        case LengthMax(length=length, is_bytes=is_bytes):
            return pc.greater(pc.binary_length(values) if is_bytes else pc.utf8_length(values), length)
        case OneOf(names=names):
            is_known = pc.is_in(values, value_set=pa.array(names, values.type))
            return pc.and_(pc.invert(is_known), values.is_valid())
        case UuidText():
            return pc.invert(pc.match_substring_regex(values, _UUID))
        case SecondDigits(digits=digits):
            micros = values.view(pa.int64())
            unit = 10 ** (SECOND_DIGITS_MAX - digits)
            return pc.not_equal(pc.multiply(pc.divide(micros, unit), unit), micros)
    assert_never(rule)


def _normal(values: pa.Array, checks: Iterable[Check]) -> pa.Array:
    """Write the values' UUIDs in lower case."""
    for check in checks:
        if isinstance(check.rule, UuidText):
            leaves, _ = _leaves(values, np.arange(len(values)), check.path)
            if not leaves.equals(pc.utf8_lower(leaves)):
                values = _change_leaf(values, check.path, pc.utf8_lower)
    return values


def _change_leaf(values: pa.Array, path: Path, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return the array with other values below one path of its type."""
    if not path:
        return change(values)
    step, rest = path[0], path[1:]
    # Without an offset of its own, which arrays cannot be made with.
    values = values.take(pa.array(np.arange(len(values))))
    is_null = values.is_null()
    if pa.types.is_struct(values.type):
        index = values.type.get_field_index(step)
        fields = [values.field(index) for index in range(values.type.num_fields)]
        fields[index] = _change_leaf(fields[index], rest, change)
        return pa.StructArray.from_arrays(fields, fields=list(values.type), mask=is_null)
    inner = _change_leaf(_inner(values, step), rest, change)
    if step == ELEMENT:
        return pa.ListArray.from_arrays(values.offsets, inner, type=values.type, mask=is_null)
    keys, items = (inner, values.items) if step == KEY else (values.keys, inner)
    return pa.MapArray.from_arrays(values.offsets, keys, items, type=values.type, mask=is_null)


def _shown(value: pa.Scalar) -> str:
    # Python knows fewer years than Arrow.
    text = time_text(value.value) if pa.types.is_timestamp(value.type) else str(value)
    return text if len(text) <= _SHOWN_LENGTH_MAX else f"{text[: _SHOWN_LENGTH_MAX - 3]}..."
