"""Mutations: changes that ALTER requires of existing parts (docs/policies/mutations.md).

Covers: the persisted entry and which parts need it. Does not cover: doing it (maintenance), its syntax (sql).
Always holds: entries of one table are done one after the other, in the order of their commits; what an entry writes has
the columns that the table had when the entry was committed.

Tests: tests/unit/catalog/tables/test_mutations.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from tilth.model.part import Part
from tilth.model.table import SchemaVersion


class MutationKind(StrEnum):
    #: ADD, DROP, MODIFY, RENAME COLUMN: readers see it at once, parts are brought into the new shape.
    COLUMNS = "columns"
    UPDATE = "update"
    DELETE = "delete"


class MutationState(StrEnum):
    PENDING = "pending"
    #: No visible part needs it any more.
    DONE = "done"
    #: The user killed it; what was rewritten before stays rewritten.
    KILLED = "killed"


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `system.mutations`."""

    table: str
    #: The transaction of the ALTER.
    id: int
    #: 0 until the commit fixes it; entries run in this order.
    commit_ts: int = 0
    kind: MutationKind
    #: SQL text, for people.
    command: str
    #: Columns and Spark SQL expressions of UPDATE, applied together to the rows of the predicate.
    assignments: tuple[tuple[str, str], ...] = ()
    #: Spark SQL condition of UPDATE and DELETE.
    predicate: str = ""
    #: Columns of the data that it writes.
    schema: SchemaVersion
    state: MutationState = MutationState.PENDING
    created_ms: int = 0
    ended_ms: int = 0
    #: Reason why it was killed.
    reason: str = ""
    #: Parts that it has reached: rewritten, or found without a row that it changes.
    parts_done: int = 0
    #: Visible parts that still needed it when it ended; -1: it has not ended.
    parts_left: int = -1

    @property
    def parts_summary(self) -> str:
        """Describe the parts that a killed mutation leaves behind: `3 of 10 parts were done before and stay so`."""
        return f"{self.parts_done} of {self.parts_done + self.parts_left} parts were done before and stay so"


def needs(part: Part, mutation: Mutation) -> bool:
    """True if the part still needs the mutation (docs/policies/mutations.md#which-part-needs-an-entry)."""
    if mutation.kind is MutationKind.COLUMNS:
        return part.columns_commit_ts < mutation.commit_ts
    return part.mutation_ts < mutation.commit_ts and part.name.min_block < mutation.commit_ts


def first_needed(part: Part, pending: Iterable[Mutation]) -> Mutation | None:
    """The first of the pending entries, which come oldest first, that the part needs."""
    return next((mutation for mutation in pending if needs(part, mutation)), None)
