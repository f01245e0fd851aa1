"""Relations of a query and their positions in its text, by Spark's own parser; the text with other names there.

Covers: relations with their positions and AS OF, references that name a database, functions of the time, rewriting.
Does not cover: parsing and what may stand in a query (tilth.warehouse), what names and times mean
(snapshots/snapshots.py, snapshots/as_of.py).
Always holds: nothing here runs a query; positions are offsets in Python's text, not in Java's; everything between the
replaced texts reaches Spark as it was written.

Tests: tests/unit/query/test_sql_pure.py, tests/integration/sql/test_sql_on_spark.py.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilth.model.types import quoted
from tilth.query.errors import BadQueryError
from tilth.query.snapshots.protocol import Resolved
from tilth.warehouse import LogicalPlan, PlanNode

#: The name follows TABLE, as in `TABLE t`: no alias may stand there.
_NO_ALIAS = re.compile(r"\btable\s*\(?\s*\Z", re.IGNORECASE)
_SAMPLE = re.compile(r"tablesample\b", re.IGNORECASE)
_LONG_NAME = re.compile(r"[\w`]\s*\.\s*(?:\w+|`[^`]+`)\s*\.\s*[\w`*]")
#: Every word that may be a function of the time; those that cannot be frozen stand here too.
TIME_WORDS = re.compile(
    r"\b(now|current_timestamp|current_date|current_time|curdate|localtimestamp|unix_timestamp|getdate"
    r"|today|yesterday|now64)\b",
    re.IGNORECASE,
)
#: Digits behind a second that Spark cuts.
FINE_TIME = re.compile(r":\d\d\.\d{6}\d*[1-9]")
_INSTANTS = ("now", "current_timestamp")
_DAYS = ("current_date", "curdate", "today")
_RELATION = "UnresolvedRelation"
_TIME_TRAVEL = "RelationTimeTravel"
_WITH = "UnresolvedWith"
#: Expressions that read rows.
QUERIES = frozenset({"ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Version or time that `VERSION AS OF` or `TIMESTAMP AS OF` behind a table's name gives."""

    #: Offsets of the whole clause in the text; the end is not included.
    start: int
    end: int
    #: One of both: the version as written, without quotes; the expression of the time.
    version: str | None = None
    time: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """One occurrence of a table's name in a query."""

    name: tuple[str, ...]
    #: Offsets in the text; the end is not included.
    start: int
    end: int
    #: Offset for an alias; None: the query gives one, or none is allowed.
    alias_at: int | None
    #: The alias that the query gives; None: it gives none.
    alias: str | None = None
    #: None: the table as it is now.
    past: Past | None = None


@dataclass(frozen=True, slots=True)
class Relations:
    """Relations that were found in one text."""

    text: str
    relations: list[Relation]
    #: All nodes of the query without the expressions of AS OF; the first one is the root.
    nodes: list[PlanNode]
    #: Kinds of the nodes and of all other values in them.
    kinds: frozenset[str]

    @property
    def present(self) -> str:
        """The text with blanks instead of AS OF and its expressions."""
        text = self.text
        for past in (relation.past for relation in self.relations if relation.past is not None):
            text = text[: past.start] + " " * (past.end - past.start) + text[past.end :]
        return text


def find_relations(plan: LogicalPlan, text: str) -> Relations:
    """The tables that a query names, those of common table expressions not among them.

    Raises BadQueryError for a past that makes no sense.
    """
    found = Relations(text, [], [], plan.kinds)
    positions: set[int] = set()
    #: Nodes with the names of the common table expressions that they see.
    stack: list[tuple[PlanNode, frozenset[str]]] = [(plan.root, frozenset())]
    while stack:
        node, hidden = stack.pop()
        found.nodes.append(node)
        past: Past | None = None
        if node.kind == _TIME_TRAVEL:
            table = node.child("relation")
            assert table is not None
            past, node = _past(node, table, text), table
        if node.kind == _RELATION:
            name = node.text("multipartIdentifier")
            if len(name) > 1 or name[0].lower() not in hidden:
                # The plan repeats the operand of CASE x WHEN .. for each WHEN.
                if node.start not in positions:
                    positions.add(node.start)
                    found.relations.append(_relation(name, node, text, past))
                continue
        if past is not None:
            raise BadQueryError("AS OF works for tables only", at=text[past.start : past.end])
        stack.extend(reversed(list(_scopes(node, hidden))))
    return found


def _scopes(node: PlanNode, hidden: frozenset[str]) -> Iterator[tuple[PlanNode, frozenset[str]]]:
    """Yield the children with the names of the common table expressions that they see."""
    if node.kind == _WITH:
        is_recursive = bool(node.text("allowRecursion"))
        definitions = [each for each in node.children if each.role == "cteRelations"]
        for definition in definitions:
            own = definition.text("name")[0].lower()
            yield definition, hidden | {own} if is_recursive else hidden
            hidden |= {own}
        for child in node.children:
            if child.role != "cteRelations":
                yield child, hidden
        return
    for child in node.children:
        yield child, hidden


def _past(node: PlanNode, table: PlanNode, text: str) -> Past:
    """Raises BadQueryError for a time that depends on rows."""
    # In `t@v1` the clause includes the name.
    start = max(node.start, table.end)
    version = node.text("version")
    if version:
        return Past(start=start, end=node.end, version=version[0])
    time = node.child("timestamp")
    assert time is not None
    if any(each.kind in QUERIES for each in time.below()):
        raise BadQueryError("the time of AS OF is a constant: no subqueries", at=text[start : node.end])
    return Past(start=start, end=node.end, time=text[time.start : time.end])


def _relation(name: tuple[str, ...], node: PlanNode, text: str, past: Past | None) -> Relation:
    holder = node.holder if past is None or node.holder is None else node.holder.holder
    alias_at: int | None = node.end if past is None else past.end
    if holder is not None and _SAMPLE.match(text, holder.start):
        # A sample of a number of rows is a Limit, which stands outside of the alias.
        alias_at = holder.end
    alias = holder.text("name")[0] if holder is not None and holder.kind == "SubqueryAlias" else None
    if alias is not None or _NO_ALIAS.search(text, 0, node.start):
        alias_at = None
    return Relation(name=name, start=node.start, end=node.end, alias_at=alias_at, alias=alias, past=past)


def long_references(found: Relations, aliases: dict[tuple[str, str], str]) -> list[Edit]:
    """Edits that turn `db.t.c` into `alias.c`, for tables that got an alias; keys are lower-case (db, t)."""
    if not aliases or not _LONG_NAME.search(found.text):
        return []
    edits: dict[int, Edit] = {}
    for node in found.nodes:
        if node.kind == "UnresolvedAttribute":
            parts, tail = node.text("nameParts"), ""
        elif node.kind == "UnresolvedStar" and node.text("target"):
            parts, tail = (*node.text("target"), "*"), "*"
        else:
            continue
        alias = aliases.get((parts[0].lower(), parts[1].lower())) if len(parts) > 2 else None
        if alias is not None:
            columns = [quoted(part) for part in parts[2 : len(parts) - len(tail)]] + ([tail] if tail else [])
            edits[node.start] = Edit(node.start, node.end, ".".join([quoted(alias), *columns]))
    return list(edits.values())


def frozen_times(found: Relations, now_us: int) -> list[Edit] | None:
    """Edits that replace now() and its kin by one instant, or None if some of them cannot be replaced."""
    wanted = len(TIME_WORDS.findall(found.present))
    if not wanted:
        return []
    edits: dict[int, Edit] = {}
    for node in found.nodes:
        if node.kind not in ("UnresolvedFunction", "UnresolvedAttribute"):
            continue
        if node.kind == "UnresolvedFunction" and any(child.role == "arguments" for child in node.children):
            continue
        parts = node.text("nameParts")
        instant = _instant(parts[0].lower(), now_us) if len(parts) == 1 else None
        if instant is not None:
            edits[node.start] = Edit(node.start, node.end, instant)
    return list(edits.values()) if len(edits) == wanted else None


def has_fine_times(found: Relations) -> bool:
    """True if a literal of a time has digits that Spark cuts."""
    if not FINE_TIME.search(found.text):
        return False
    literals = (node for node in found.nodes if node.kind == "Literal")
    return any(FINE_TIME.search(found.text, node.start, node.end) for node in literals)


def _instant(function: str, now_us: int) -> str | None:
    instant = f"timestamp_micros({now_us})"
    if function in _INSTANTS:
        return instant
    if function in _DAYS:
        return f"to_date({instant})"
    if function == "yesterday":
        return f"date_sub({instant}, 1)"
    return f"cast({instant} AS timestamp_ntz)" if function == "localtimestamp" else None


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Text from `start` to before `end` becomes `text`; `start == end` inserts."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The new text, with the mapping of its positions to the old one."""

    text: str
    #: (position in the new text, position in the old text), rising: from here on both run side by side.
    anchors: tuple[tuple[int, int], ...]

    def original(self, position: int) -> int:
        """Map a position of the new text to one in the old; inside a replacement: to where the replaced text began."""
        index = bisect_right([anchor for anchor, _ in self.anchors], position) - 1
        new, old = self.anchors[index]
        following = self.anchors[index + 1][1] if index + 1 < len(self.anchors) else None
        found = old + position - new
        return found if following is None else min(found, following)


def rewrite(text: str, edits: list[Edit]) -> Rewritten:
    """Apply edits that do not overlap."""
    pieces: list[str] = []
    anchors = [(0, 0)]
    at, length = 0, 0
    for edit in sorted(edits):
        assert edit.start >= at, "edits overlap"
        pieces += [text[at : edit.start], edit.text]
        length += edit.start - at
        anchors.append((length, edit.start))
        length += len(edit.text)
        at = edit.end
        anchors.append((length, at))
    pieces.append(text[at:])
    return Rewritten("".join(pieces), tuple(anchors))


def names_of(found: Relations, resolved: Sequence[Resolved]) -> list[str | None]:
    """Return the name by which the query knows the columns of each relation; None: it has none, as in `TABLE t`."""
    bare = {(one.database.lower(), one.table.lower()) for one in resolved}
    tables = [table for _, table in bare]
    names: list[str | None] = []
    for relation, one in zip(found.relations, resolved, strict=True):
        name = relation.name[-1]
        is_long = tables.count(one.table.lower()) > 1 and len(relation.name) > 1
        if is_long and _names_its_database(found.text, relation.name):
            # Two tables of one name; only with their databases can the query distinguish them.
            name = f"{relation.name[-2]}_{name}"
        names.append(relation.alias if relation.alias_at is None else name)
    return names


def edits_of(found: Relations, names: Sequence[str | None], resolved: list[Resolved], views: list[str]) -> list[Edit]:
    """Put the views' names instead of the tables', each with the alias by which the query knows it.

    `names`: of the relations, by which the query knows them.
    """
    edits: list[Edit] = []
    aliases: dict[tuple[str, str], str] = {}
    for relation, alias, one, view in zip(found.relations, names, resolved, views, strict=True):
        edits.append(Edit(relation.start, relation.end, view))
        if relation.past is not None:
            edits.append(Edit(relation.past.start, relation.past.end, ""))
        if relation.alias_at is None or alias is None:
            continue
        key = (one.database.lower(), one.table.lower())
        if len(relation.name) > 1:
            key = (relation.name[-2].lower(), relation.name[-1].lower())
        aliases[key] = alias
        edits.append(Edit(relation.alias_at, relation.alias_at, f" AS {quoted(alias)}"))
    return _joined(edits) + long_references(found, aliases)


def _names_its_database(text: str, name: tuple[str, ...]) -> bool:
    parts = (rf"(?:`{re.escape(part)}`|{re.escape(part)})" for part in name[-2:])
    return re.search(r"\s*\.\s*".join(parts) + r"\s*\.", text, re.IGNORECASE) is not None


def _joined(edits: list[Edit]) -> list[Edit]:
    """Make an alias right behind its view part of the same edit."""
    joined: list[Edit] = []
    for edit in sorted(edits):
        last = joined[-1] if joined else None
        if last is not None and last.end == edit.start == edit.end:
            joined[-1] = Edit(last.start, last.end, last.text + edit.text)
        else:
            joined.append(edit)
    return joined
