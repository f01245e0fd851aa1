"""Columns that a query can name and `*` does not stand for: MATERIALIZED and ALIAS.

Covers: which columns a relation shows to a query, how they are made of the stored ones, the edits by which `*` leaves
hidden ones out. Does not cover: the snapshots behind relations (spark.py), what expressions mean (model/computed.py).
Always holds: a relation shows hidden columns only to a query whose text has their names, so that any other query is
answered as if they were not there; where `*` would stand for one of them the query is refused.

Tests: tests/integration/sql/test_computed_columns.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilth.model.computed import value_text
from tilth.model.table import Column, ColumnKind, Schema
from tilth.model.types import quoted
from tilth.query.errors import BadQueryError
from tilth.query.worker.relations import Edit, Relations
from tilth.warehouse import PlanNode

_STARS = frozenset({"UnresolvedStar", "UnresolvedStarExceptOrReplace"})
#: Lists of columns that a SELECT answers with.
_LISTS = frozenset({"projectList", "aggregateExpressions"})
#: Fields of a plan with the plans whose columns it sees.
_BELOW = frozenset({"child", "left", "right"})
_SELECTS = frozenset({"Project", "Aggregate"})
#: Plans whose answer depends on all columns of their relations, whether they are named or not.
_OF_ALL = {
    "Pivot": "PIVOT",
    "Unpivot": "UNPIVOT",
    "NaturalJoin": "NATURAL JOIN",
    "UnresolvedSubqueryColumnAliases": "a list of names behind an alias",
}


@dataclass(frozen=True, slots=True)
class ShownColumns:
    """Columns of a relation as a query sees them."""

    #: Names of those that `*` does not stand for.
    hidden: tuple[str, ...]
    #: Spark SQL for each column over the stored ones; None: they are the stored ones.
    projection: tuple[str, ...] | None


def shown_columns(schema: Schema, text: str) -> ShownColumns:
    """Return the columns that the query in the text sees of a table."""
    others = [column for column in schema.all_columns if column.kind is not ColumnKind.DEFAULT]
    if not others:
        return ShownColumns((), None)
    named = [column for column in others if _is_in(column.name, text)]
    shown = [each for each in schema.all_columns if each.kind is ColumnKind.DEFAULT or each in named]
    return ShownColumns(tuple(column.name for column in named), tuple(_projected(column, schema) for column in shown))


def _is_in(name: str, text: str) -> bool:
    """True if the name may stand in the text; in a string or a comment it does no harm."""
    written = {name, quoted(name)[1:-1], name.replace('"', '""')}
    return any(re.search(rf"(?<!\w){re.escape(each)}(?!\w)", text, re.IGNORECASE) for each in written)


def _projected(column: Column, schema: Schema) -> str:
    name = quoted(column.name)
    return f"{value_text(column, schema)} AS {name}" if column.kind is ColumnKind.ALIAS else name


def star_edits(found: Relations, shown: Sequence[ShownColumns], names: Sequence[str | None]) -> list[Edit]:
    """Edits by which each `*` leaves out the hidden columns.

    `names`: by which the query knows each relation. Raises BadQueryError where hidden columns cannot be left out.
    """
    hidden = {relation.start: each.hidden for relation, each in zip(found.relations, shown, strict=True)}
    if not any(hidden.values()):
        return []
    names_at = {relation.start: name for relation, name in zip(found.relations, names, strict=True)}
    for kind in _OF_ALL.keys() & found.kinds:
        raise _refused(_OF_ALL[kind], hidden)
    for node in found.nodes:
        if node.kind == "UnresolvedRelation" and hidden.get(node.start) and _select_above(node) is None:
            raise _refused("a table without a list of columns", hidden)
    edits: dict[int, Edit] = {}
    for node in found.nodes:
        if node.kind not in _STARS:
            continue
        select = _select_of(node)
        if select is None:
            raise _refused("* outside of the list of columns", hidden)
        excepted = _excepted(found.text[node.start : node.end]) if node.text("excepts") else frozenset()
        left_out = [
            f"{quoted(name)}.{quoted(column)}"
            for start, name in _relations_of(select, names_at)
            if _is_meant(node, name)
            for column in hidden.get(start, ())
            if column.lower() not in excepted
        ]
        if left_out:
            edits[node.start] = _without(node, ", ".join(left_out))
    return list(edits.values())


def _select_of(star: PlanNode) -> PlanNode | None:
    """Return the SELECT in whose list of columns the star stands."""
    node = star
    while node.role not in _LISTS:
        if node.holder is None:
            return None
        node = node.holder
    return node.holder


def _select_above(relation: PlanNode) -> PlanNode | None:
    """Return the SELECT that chooses from the columns of the relation."""
    node = relation
    while node.role in _BELOW and node.holder is not None:
        node = node.holder
        if node.kind in _SELECTS:
            return node
    return None


def _relations_of(select: PlanNode, names: dict[int, str | None]) -> Iterator[tuple[int, str]]:
    """Yield the location of each relation whose columns a SELECT sees, and by which name it knows it."""
    stack: list[tuple[PlanNode, str | None]] = [(child, None) for child in select.children if child.role in _BELOW]
    while stack:
        node, alias = stack.pop()
        if node.kind == "UnresolvedRelation":
            name = alias or names.get(node.start)
            if name is not None:
                yield node.start, name
        elif node.kind not in _SELECTS:
            if node.kind == "SubqueryAlias":
                alias = alias or node.text("name")[0]
            stack.extend((child, alias) for child in node.children if child.role in _BELOW)


def _is_meant(star: PlanNode, name: str) -> bool:
    target = star.text("target")
    return not target or target[-1].lower() == name.lower()


def _excepted(star: str) -> frozenset[str]:
    """Return the names behind EXCEPT, in small letters and without those of tables."""
    listed = star[star.index("(") + 1 : -1].split(",")
    return frozenset(name.rpartition(".")[2].strip(' \t\n`"').lower() for name in listed)


def _without(star: PlanNode, left_out: str) -> Edit:
    if star.text("excepts"):
        return Edit(star.end - 1, star.end - 1, f", {left_out}")
    return Edit(star.end, star.end, f" EXCEPT ({left_out})")


def _refused(what: str, hidden: dict[int, tuple[str, ...]]) -> BadQueryError:
    columns = ", ".join(dict.fromkeys(name for names in hidden.values() for name in names))
    hint = "name the columns that are wanted, as in FROM (SELECT a, b FROM t)"
    return BadQueryError(f"{what} beside the name of a MATERIALIZED or ALIAS column", columns=columns, hint=hint)
