"""Cells, which are texts, as values of a column: without a loop in Python where Arrow means the same.

Does not cover: how rows are split into cells (kinds/), values that Arrow does not read (values.py).
Always holds: what Arrow reads is what `to_stored` reads; errors name the row.

Tests: tests/unit/formats/kinds/test_csv.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tilth.formats.errors import BadValueError
from tilth.formats.values import Reading, check_array, column_array, from_json, shown
from tilth.model.table import Column
from tilth.model.types import INTEGER_BITS, Decimal, Kind, Simple
from tilth.storage import arrow_type, exact_cast

_TEXTS = (Simple(Kind.STRING), Simple(Kind.BINARY))


def is_text(column: Column) -> bool:
    """True if an empty cell is a value of the column, and stands for no value that is missing."""
    return column.type in _TEXTS


def texts_array(
    column: Column, texts: pa.Array, *, reading: Reading, position: int, optional: Sequence[int] = ()
) -> pa.Array:
    """Texts as values of the column, an empty one as NULL unless it is a text; errors and arguments as those of
    `column_array`."""
    if not is_text(column) and pc.any(pc.equal(texts, "")).as_py():
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    found = _cast(texts, column, reading.of(column)) if column.nullable or not texts.null_count else None
    if found is not None:
        check_array(column, found, position=position)
        return found
    values = cells_values(column, texts.to_pylist())
    return column_array(column, values, reading=reading, position=position, optional=optional)


def cells_values(column: Column, cells: Sequence[Any]) -> Sequence[Any]:
    """Cells, some of which may be values already, as values that `column_array` takes; raises BadValueError."""
    if isinstance(column.type, Simple | Decimal):
        return cells if is_text(column) else [None if isinstance(cell, str) and not cell else cell for cell in cells]
    return [_nested(cell, column, row) if isinstance(cell, str) else cell for row, cell in enumerate(cells, start=1)]


def _cast(texts: pa.Array, column: Column, reading: Reading) -> pa.Array | None:
    """Return the values where Arrow reads all of the texts, and as `to_stored` does; else None."""
    data_type = column.type
    kind = data_type.kind if isinstance(data_type, Simple) else None
    if data_type == Simple(Kind.STRING):
        return texts
    if kind is Kind.BINARY or (kind is None and not isinstance(data_type, Decimal)):
        return None
    # Arrow takes hexadecimal digits, and for small exponents of decimals reads beyond the end of a table.
    if (kind in INTEGER_BITS and _has(texts, "x")) or (kind is None and _has(texts, "e")):
        return None
    try:
        if kind is not Kind.TIMESTAMP:
            return exact_cast(texts, arrow_type(data_type))
        if pc.all(pc.ends_with(texts, "Z")).as_py() is not False:
            return exact_cast(texts, arrow_type(data_type))
        has_zone = pc.match_substring_regex(texts, r"(?:[Zz]|[+-]\d\d(?::?\d\d)?)$")
        if pc.all(has_zone).as_py() is not False:
            return exact_cast(texts, arrow_type(data_type))
        if not pc.any(has_zone).as_py() and reading.zones.get((), reading.zone) is UTC:
            return exact_cast(exact_cast(texts, pa.timestamp("us")), arrow_type(data_type))
    except pa.ArrowInvalid:
        return None
    return None


def _has(texts: pa.Array, letter: str) -> bool:
    """True if one of the texts has the letter. Most columns of numbers have none anywhere in their bytes."""
    letters = texts.buffers()[2]
    data = b"" if letters is None else letters.to_pybytes()
    if letter.encode() not in data and letter.upper().encode() not in data:
        return False
    # It may be in bytes that are no text's: those of a header.
    return bool(pc.any(pc.match_substring(texts, letter, ignore_case=True)).as_py())


# Any: whatever JSON says.
def _nested(text: str, column: Column, row: int) -> Any:
    if not text:
        return None
    try:
        return from_json(text)
    except ValueError as error:
        raise BadValueError(
            row=row, column=column.name, given=shown(text), why="expected JSON, as of each nested value in a cell"
        ) from error
