"""What a query reads and where in its text that stands, by Spark's own parser.

Covers: relations with their places, references that name a database, functions that tell the time. Does not cover:
what the names mean (desk.py). Always holds: nothing here runs a query; places are offsets in Python's text, not in
Java's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tilth.model.types import quoted
from tilth.sql.errors import BadQueryError, NotSupportedYetError
from tilth.sql.rewrite import Edit

# A handle of a Java object of Spark's internals; py4j gives it no type.
Java = Any

#: Statements that Spark's parser accepts where a query may stand.
_WRITES = ("InsertIntoStatement", "InsertIntoDir", "MergeIntoTable", "DeleteFromTable", "UpdateTable")
#: The name follows TABLE, as in `TABLE t` or `f(TABLE(t))`: no alias may stand there.
_NO_ALIAS = re.compile(r"\btable\s*\(?\s*\Z", re.IGNORECASE)
_LONG_NAME = re.compile(r"[\w`]\s*\.\s*(?:\w+|`[^`]+`)\s*\.\s*[\w`*]")
#: Every word that may be a function of the time; those that cannot be frozen stand here too.
TIME_WORDS = re.compile(
    r"\b(now|current_timestamp|current_date|current_time|curdate|localtimestamp|unix_timestamp|getdate)\b",
    re.IGNORECASE,
)
_INSTANTS = ("now", "current_timestamp")
_DAYS = ("current_date", "curdate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """One place of a query where the name of a table stands."""

    name: tuple[str, ...]
    #: Offsets in the text; the end is not included.
    start: int
    end: int
    #: Where an alias may be put; None where the query gives one or none may stand.
    alias_at: int | None


@dataclass(frozen=True, slots=True)
class Relations:
    """What was found in one text."""

    text: str
    relations: list[Relation]
    #: Every logical plan of the query, for a look at its expressions.
    plans: list[Java]


def find_relations(parse: Callable[[str], Java], text: str) -> Relations:
    """The tables that a query names, those of common table expressions not among them.

    Raises Spark's ParseException, and BadQueryError for what is no query.
    """
    root = parse(text)
    if root.getClass().getSimpleName() == "ExplainCommand":
        root = root.logicalPlan()
    found = Relations(text, [], [])
    _walk(root, frozenset(), found, parent=None)
    return found


def _walk(plan: Java, hidden: frozenset[str], found: Relations, parent: tuple[str, Java] | None) -> None:
    """`hidden`: names that stand for common table expressions here."""
    kind = str(plan.getClass().getSimpleName())
    if kind in _WRITES:
        raise BadQueryError("only queries may stand behind WITH and FROM", statement=kind)
    if kind == "RelationTimeTravel":
        raise NotSupportedYetError(statement="SELECT .. VERSION | TIMESTAMP AS OF")
    found.plans.append(plan)
    if kind == "UnresolvedRelation":
        name = tuple(_each(plan.multipartIdentifier()))
        if len(name) > 1 or name[0].lower() not in hidden:
            found.relations.append(_relation(name, plan, found.text, parent))
        return
    if kind == "UnresolvedWith":
        for definition in _each(plan.innerChildren()):
            own = str(definition.alias()).lower()
            _walk(definition, hidden | {own} if plan.allowRecursion() else hidden, found, None)
            hidden |= {own}
        for child in _each(plan.children()):
            _walk(child, hidden, found, (kind, plan))
        return
    for child in _each(plan.children()):
        _walk(child, hidden, found, (kind, plan))
    for query in _each(plan.innerChildren()):
        _walk(query, hidden, found, None)


def _relation(name: tuple[str, ...], plan: Java, text: str, parent: tuple[str, Java] | None) -> Relation:
    start, end = place_of(plan)
    alias_at: int | None = end
    if parent is not None and parent[0] == "Sample":
        alias_at = place_of(parent[1])[1]
    is_named = parent is not None and parent[0] == "SubqueryAlias"
    if is_named or _NO_ALIAS.search(text, 0, start):
        alias_at = None
    return Relation(name=name, start=start, end=end, alias_at=alias_at)


def long_references(found: Relations, aliases: dict[tuple[str, str], str]) -> list[Edit]:
    """Edits that turn `db.t.c` into `alias.c`, for tables that got an alias; keys are lower-case (db, t)."""
    if not aliases or not _LONG_NAME.search(found.text):
        return []
    edits: dict[int, Edit] = {}
    for kind, expression in _expressions(found):
        if kind == "UnresolvedAttribute":
            parts, tail = list(_each(expression.nameParts())), ""
        elif kind == "UnresolvedStar" and expression.target().isDefined():
            parts, tail = [*_each(expression.target().get()), "*"], "*"
        else:
            continue
        alias = aliases.get((str(parts[0]).lower(), str(parts[1]).lower())) if len(parts) > 2 else None
        if alias is not None:
            start, end = place_of(expression)
            columns = [quoted(str(part)) for part in parts[2 : len(parts) - len(tail)]] + ([tail] if tail else [])
            edits[start] = Edit(start, end, ".".join([quoted(alias), *columns]))
    return list(edits.values())


def frozen_times(found: Relations, now_us: int) -> list[Edit] | None:
    """Edits that put one instant in the place of now() and its kin, or None if some of them cannot be replaced."""
    wanted = len(TIME_WORDS.findall(found.text))
    if not wanted:
        return []
    edits: dict[int, Edit] = {}
    for kind, expression in _expressions(found):
        if kind not in ("UnresolvedFunction", "UnresolvedAttribute"):
            continue
        if kind == "UnresolvedFunction" and expression.arguments().size():
            continue
        parts = list(_each(expression.nameParts()))
        instant = _instant(str(parts[0]).lower(), now_us) if len(parts) == 1 else None
        if instant is not None:
            start, end = place_of(expression)
            edits[start] = Edit(start, end, instant)
    return list(edits.values()) if len(edits) == wanted else None


def _instant(function: str, now_us: int) -> str | None:
    moment = f"timestamp_micros({now_us})"
    if function in _INSTANTS:
        return moment
    if function in _DAYS:
        return f"to_date({moment})"
    return f"cast({moment} AS timestamp_ntz)" if function == "localtimestamp" else None


def _expressions(found: Relations) -> Iterator[tuple[str, Java]]:
    stack = [expression for plan in found.plans for expression in _each(plan.expressions())]
    while stack:
        expression = stack.pop()
        yield str(expression.getClass().getSimpleName()), expression
        stack.extend(_each(expression.children()))


def _each(sequence: Java) -> Iterator[Java]:
    """The items of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def place_of(node: Java) -> tuple[int, int]:
    """Where a node stands in the text: Spark counts characters, as Python does, not Java's halves of them."""
    origin = node.origin()
    return int(origin.startIndex().get()), int(origin.stopIndex().get()) + 1
