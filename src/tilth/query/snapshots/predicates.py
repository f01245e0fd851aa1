"""Predicates of a query on one table's rows, in the forms that a part's ranges can answer. Pure.

Covers: the tree. Does not cover: reading it out of Spark's optimized plan (NeedsReader.java), deciding about parts
(prune.py). Always holds: what is not understood is Undecided, and Undecided never rules a part out; comparisons with
NULL are never true.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from tilth.model.part import Bound


class Comparison(StrEnum):
    EQUAL = "="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


class Compare(msgspec.Struct, frozen=True, tag="cmp"):
    column: str
    comparison: Comparison
    #: Never None. Dates as days, timestamps as microseconds, decimals as text.
    value: Bound


class IsIn(msgspec.Struct, frozen=True, tag="in"):
    column: str
    #: None among them: `IN (1, NULL)` is then never false.
    values: tuple[Bound, ...]


class IsNull(msgspec.Struct, frozen=True, tag="null"):
    column: str


class HasPrefix(msgspec.Struct, frozen=True, tag="prefix"):
    column: str
    prefix: str


class AllOf(msgspec.Struct, frozen=True, tag="and"):
    items: tuple[Predicate, ...]


class AnyOf(msgspec.Struct, frozen=True, tag="or"):
    items: tuple[Predicate, ...]


class Negation(msgspec.Struct, frozen=True, tag="not"):
    item: Predicate


class Undecided(msgspec.Struct, frozen=True, tag="any"):
    """May be true, false or null."""


Predicate = Compare | IsIn | IsNull | HasPrefix | AllOf | AnyOf | Negation | Undecided


def leaf_name(occurrence: int, column: str) -> str:
    """Name of a column of the n-th table reference below its view; it is unique in the optimized plan."""
    return f"{occurrence}:{column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Needs of a query from each of its tables."""

    predicates: list[Predicate]
    #: Names of columns, by table; None: perhaps all.
    columns: list[frozenset[str] | None]


def nothing_known(occurrences: int) -> Needs:
    """Every row and every column may be needed."""
    return Needs(predicates=[Undecided()] * occurrences, columns=[None] * occurrences)
