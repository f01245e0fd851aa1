"""Which earlier columns of a table have to be kept. Pure.

Always holds: the columns of every part are known, and the default that a column came with is known for as long as
there are parts without the column.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tilth.model.mutation import Mutation
from tilth.model.part import Part
from tilth.model.table import TableDef


def without_unused(definition: TableDef, parts: Iterable[Part], pending: Iterable[Mutation]) -> TableDef:
    """Without the older columns that nobody needs; `parts`: all that are there, those in the trash too."""
    used = {part.schema_version for part in parts} | {each.schema.version for each in pending}
    kept = used | _origins(definition, used)
    older = tuple(each for each in definition.older_schemas if each.version in kept)
    return msgspec.structs.replace(definition, older_schemas=older)


def _origins(definition: TableDef, used: set[int]) -> set[int]:
    """The versions with which columns came that parts of other versions lack."""
    wanted = {column.id for column in definition.schema.columns}
    origins: set[int] = set()
    is_used = False
    known: set[int] = set()
    for each in definition.older_schemas:
        columns = wanted.intersection(column.id for column in each.schema.columns)
        if is_used and not columns <= known:
            origins.add(each.version)
        known |= columns
        is_used = is_used or each.version in used
    return origins
