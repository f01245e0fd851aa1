"""Partitions that are named by texts: by the id that system.partitions shows, or by the value of PARTITION BY.

Covers: finding the id. Does not cover: statements that name partitions (alter/alter_partitions.py).
"""

from __future__ import annotations

from collections.abc import Collection
from decimal import InvalidOperation

from tilth.formats import BadValueError
from tilth.model.table import TableDef, full_name
from tilth.model.types import spark_name
from tilth.query.language.values import literal, to_bound
from tilth.storage import partition_id, result_type


def id_of_text(table: TableDef, text: str, known: Collection[str]) -> str:
    """Return the id of a partition, which may have no rows yet. Raises BadValueError."""
    if text in known:
        return text
    if len(table.partition_by) != 1:
        hint = "name it by its id in system.partitions"
        raise BadValueError("no partition has this id", table=full_name(table), partition=text, hint=hint)
    [transform] = table.partition_by
    column = table.schema.find(transform.column)
    assert column is not None
    kind = result_type(transform, column)
    why: Exception | None = None
    for value in (text, *(literal(text) or ())):
        try:
            return partition_id(table.schema, table.partition_by, [to_bound(value, kind)])
        except (ValueError, InvalidOperation, OverflowError, TypeError) as error:
            why = error
    raise BadValueError(
        "neither the id of a partition nor a value of PARTITION BY",
        table=full_name(table),
        partition=text,
        type=spark_name(kind),
        hint="system.partitions lists the ids",
    ) from why
