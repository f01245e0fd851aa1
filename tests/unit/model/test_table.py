"""Columns by name, and schemas on their way to tasks."""

from __future__ import annotations

import copy
import pickle

from tilth.model.checks import Check, IntegerRange
from tilth.model.table import Column, ColumnKind, Schema
from tilth.model.types import Array, Decimal, Field, Kind, Map, Simple, Struct

COLUMNS = (
    Column(id=1, name="A", type=Simple(Kind.INT64), nullable=False, default="7", written_default="3 + 4"),
    Column(id=2, name="naïve", type=Map(Simple(Kind.STRING), Array(Decimal(10, 2))), comment="x"),
    Column(id=4, name="s", type=Struct((Field("f", Simple(Kind.TIMESTAMP)),)), zones=((("f",), "Asia/Tokyo"),)),
    Column(
        id=5,
        name="u",
        type=Simple(Kind.INT16),
        declared="UInt8",
        checks=(Check(rule=IntegerRange(least=0, greatest=255)),),
    ),
    Column(id=6, name="a", type=Simple(Kind.DATE)),
)
ALIASES = (Column(id=-1, name="Sum", type=Simple(Kind.INT64), kind=ColumnKind.ALIAS, expression=(1, " + 1")),)
SCHEMA = Schema(columns=COLUMNS, aliases=ALIASES)


def test_names_are_compared_without_regard_to_case_and_the_first_counts() -> None:
    assert SCHEMA.find("a") is SCHEMA.find("A") is COLUMNS[0]
    assert SCHEMA.find("NAÏVE") is COLUMNS[1]
    assert SCHEMA.find("sum") is None is SCHEMA.find_any("b")
    assert SCHEMA.find_any("sum") is ALIASES[0]
    assert SCHEMA.find_any("S") is COLUMNS[2]


def test_a_schema_is_the_same_after_pickling_and_found_again_by_the_next_round() -> None:
    SCHEMA.find("a")
    first, second = (pickle.loads(pickle.dumps(SCHEMA)) for _ in range(2))
    assert first == SCHEMA
    assert first is second
    other = Schema(columns=COLUMNS[:2], aliases=ALIASES)
    assert pickle.loads(pickle.dumps(other)) == other == copy.deepcopy(other)
    assert hash(first) == hash(SCHEMA) != hash(other)
