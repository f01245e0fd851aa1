"""Columns and conditions of a query for the makers of a system table's rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

_NO_TEXTS: Mapping[str, str] = {}


class Pushdown(msgspec.Struct, frozen=True, kw_only=True):
    """Columns and rows that a query may need; more rows than these change no answer, fewer would."""

    #: Names in small letters, others are not needed; None: all are.
    columns: frozenset[str] | None = None
    #: Texts that columns of the rows have, by the names of the columns in small letters.
    equal: Mapping[str, str] = _NO_TEXTS
    #: Columns that are true in the rows, by their names in small letters.
    true: frozenset[str] = frozenset()
    #: Columns that are not NULL in the rows, likewise.
    not_null: frozenset[str] = frozenset()

    def has(self, column: str) -> bool:
        """Return whether the column is needed."""
        return self.columns is None or column.lower() in self.columns


EVERYTHING = Pushdown()
