"""What a query reads and where in its text that stands, by Spark's own parser.

Covers: relations with their places and AS OF, references that name a database, functions that tell the time. Does not
cover: what the names and times mean (desk.py, past.py).
Always holds: nothing here runs a query; places are offsets in Python's text, not in Java's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tilth.model.types import quoted
from tilth.sql.errors import BadQueryError
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
#: Digits behind a second that Spark cuts.
FINE_TIME = re.compile(r":\d\d\.\d{6}\d*[1-9]")
_INSTANTS = ("now", "current_timestamp")
_DAYS = ("current_date", "curdate")


#: What in an expression asks for rows.
_QUERIES = frozenset({"ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What `VERSION AS OF` or `TIMESTAMP AS OF` behind a table's name says."""

    #: Offsets of the whole clause in the text; the end is not included.
    start: int
    end: int
    #: One of both: the version as written, without quotes; the expression of the time.
    version: str | None = None
    time: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """One place of a query where the name of a table stands."""

    name: tuple[str, ...]
    #: Offsets in the text; the end is not included.
    start: int
    end: int
    #: Where an alias may be put; None where the query gives one or none may stand.
    alias_at: int | None
    #: None: the table as it is now.
    past: Past | None = None


@dataclass(frozen=True, slots=True)
class Relations:
    """What was found in one text."""

    text: str
    relations: list[Relation]
    #: Every logical plan of the query, for a look at its expressions; those of AS OF are not among them.
    plans: list[Java]

    @property
    def present(self) -> str:
        """The text with blanks in the place of AS OF and its expressions."""
        text = self.text
        for past in (relation.past for relation in self.relations if relation.past is not None):
            text = text[: past.start] + " " * (past.end - past.start) + text[past.end :]
        return text


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
    past: Past | None = None
    if kind == "RelationTimeTravel":
        past, plan = _past(plan, found.text), plan.relation()
        kind = str(plan.getClass().getSimpleName())
    found.plans.append(plan)
    if kind == "UnresolvedRelation":
        name = tuple(_each(plan.multipartIdentifier()))
        if len(name) > 1 or name[0].lower() not in hidden:
            found.relations.append(_relation(name, plan, found.text, parent, past))
            return
    if past is not None:
        raise BadQueryError("only a table has a past", at=found.text[past.start : past.end])
    if kind == "UnresolvedRelation":
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


def _past(plan: Java, text: str) -> Past:
    """Raises BadQueryError for a time that depends on rows."""
    start, end = place_of(plan)
    if plan.version().isDefined():
        return Past(start=start, end=end, version=str(plan.version().get()))
    time = plan.timestamp().get()
    if any(str(node.getClass().getSimpleName()) in _QUERIES for node in _below(time)):
        raise BadQueryError("the time of AS OF is a constant: no subqueries", at=text[start:end])
    first, last = place_of(time)
    return Past(start=start, end=end, time=text[first:last])


def _relation(
    name: tuple[str, ...], plan: Java, text: str, parent: tuple[str, Java] | None, past: Past | None
) -> Relation:
    start, end = place_of(plan)
    alias_at: int | None = end if past is None else past.end
    if parent is not None and parent[0] == "Sample":
        alias_at = place_of(parent[1])[1]
    is_named = parent is not None and parent[0] == "SubqueryAlias"
    if is_named or _NO_ALIAS.search(text, 0, start):
        alias_at = None
    return Relation(name=name, start=start, end=end, alias_at=alias_at, past=past)


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
    wanted = len(TIME_WORDS.findall(found.present))
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


def has_fine_times(found: Relations) -> bool:
    """Whether a literal of a time has digits that Spark cuts."""
    if not FINE_TIME.search(found.text):
        return False
    literals = (place_of(node) for kind, node in _expressions(found) if kind == "Literal")
    return any(FINE_TIME.search(found.text, start, end) for start, end in literals)


def _instant(function: str, now_us: int) -> str | None:
    moment = f"timestamp_micros({now_us})"
    if function in _INSTANTS:
        return moment
    if function in _DAYS:
        return f"to_date({moment})"
    return f"cast({moment} AS timestamp_ntz)" if function == "localtimestamp" else None


def _expressions(found: Relations) -> Iterator[tuple[str, Java]]:
    for plan in found.plans:
        for expression in _each(plan.expressions()):
            for node in _below(expression):
                yield str(node.getClass().getSimpleName()), node


def _below(expression: Java) -> Iterator[Java]:
    """The expression and all in it."""
    stack = [expression]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(_each(node.children()))


def _each(sequence: Java) -> Iterator[Java]:
    """The items of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def place_of(node: Java) -> tuple[int, int]:
    """Where a node stands in the text: Spark counts characters, as Python does, not Java's halves of them."""
    origin = node.origin()
    return int(origin.startIndex().get()), int(origin.stopIndex().get()) + 1
