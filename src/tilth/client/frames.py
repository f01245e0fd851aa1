"""Rows as callers have them, as one Arrow table: what `Connection.insert` accepts.

Covers: Arrow, Spark, Polars and pandas frames, everything with `__arrow_c_stream__`, lists of dicts. Does not cover:
sending them. Always holds: a library is used only if the caller has brought an object of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tilth.base.errors import InvalidInputError

_HINT = "give an Arrow table, a pandas, Polars or Spark DataFrame, or a list of dicts"


# Any: an object of any library.
def arrow_table(rows: Any) -> pa.Table:
    """Convert rows with their names and types. Raises InvalidInputError for what holds no rows, or cannot be Arrow."""
    try:
        found = _converted(rows)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInputError("these rows cannot be sent as Arrow", reason=_first_line(error), hint=_HINT) from error
    if found is None:
        raise InvalidInputError("these are not rows", given=_type_name(rows), hint=_HINT)
    return found


def _converted(rows: Any) -> pa.Table | None:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all()
    module = type(rows).__module__.partition(".")[0]
    if module == "pandas" and hasattr(rows, "columns"):
        # The index is no column of a table.
        return pa.Table.from_pandas(rows, preserve_index=False)
    if module == "pyspark" and hasattr(rows, "toArrow"):
        collected = rows.toArrow()
        return collected if isinstance(collected, pa.Table) else None
    if module == "polars" and hasattr(rows, "to_arrow"):
        collected = rows.to_arrow()
        return collected if isinstance(collected, pa.Table) else None
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    if isinstance(rows, Sequence) and rows and all(isinstance(each, Mapping) for each in rows):
        return _of_dicts(rows)
    return None


def _of_dicts(rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """Make a column for every name in any of the rows; where a row does not have it, NULL."""
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def _type_name(rows: object) -> str:
    kind = type(rows)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
