"""Literals of statements as values of a column's type. Pure. See also: tilth.formats for what each type takes."""

from __future__ import annotations

import pyarrow as pa

from tilth.formats import Given, to_stored
from tilth.grammar.errors import SqlSyntaxError
from tilth.grammar.insert import parse_literal
from tilth.model.part import Bound
from tilth.model.types import DataType
from tilth.storage import arrow_type, bound_of


def to_bound(value: Given, data_type: DataType) -> Bound:
    """Return the value as the catalog keeps bounds; raises ValueError."""
    return bound_of(pa.scalar(to_stored(value, data_type), arrow_type(data_type)))


def literal(text: str) -> tuple[Given] | None:
    """Return the value of an expression that is a literal, in a tuple of its own; None for any other expression."""
    try:
        return (parse_literal(text),)
    except SqlSyntaxError:
        return None
