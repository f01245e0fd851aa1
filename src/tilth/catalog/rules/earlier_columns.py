"""Earlier columns of a table that have to be retained. Pure.

Always holds: the columns of every part are known, and the default that a column came with is known for as long as
there are parts without the column.

Tests: tests/unit/catalog/parts/test_history.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import msgspec

from tilth.model.mutation import Mutation
from tilth.model.part import Part
from tilth.model.table import SchemaVersion, TableDef


def without_unused(
    definition: TableDef, parts: Iterable[Part], pending: Iterable[Mutation], *, keep_ts: int | None = None
) -> TableDef:
    """Remove the older columns that no part needs; `parts`: all parts, those in the trash too.

    `keep_ts`: reads as of this hybrid time and later find the columns of their time; None: no such reads are promised.
    """
    used = {part.schema_version for part in parts} | {each.schema.version for each in pending}
    kept = used | _origins(definition, used)
    if keep_ts is not None:
        followed = pairwise((*definition.older_schemas, definition.schema_now))
        # Readers see the newest of the schemas that came with one commit.
        kept |= {
            each.version
            for each, following in followed
            if each.columns_commit_ts < following.columns_commit_ts >= keep_ts
        }
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


def columns_as_of(definition: TableDef, at: int) -> TableDef:
    """The table with the columns that it had at a hybrid time: the newest of those that came at or before it, or the
    oldest ones known.
    """
    if definition.columns_commit_ts <= at:
        return definition
    older = definition.older_schemas
    then = max((each for each in older if each.columns_commit_ts <= at), key=_version, default=None)
    if then is None:
        then = min(older, key=_version, default=definition.schema_now)
    return msgspec.structs.replace(
        definition,
        schema=then.schema,
        schema_version=then.version,
        columns_commit_ts=then.columns_commit_ts,
        older_schemas=tuple(each for each in older if each.version < then.version),
    )


def _version(each: SchemaVersion) -> int:
    return each.version
