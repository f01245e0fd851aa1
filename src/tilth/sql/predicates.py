"""What a query asks of one table's rows, as far as it can be answered from a part's ranges, and which columns it looks
at. Pure.

Covers: the tree, and reading it out of the JSON of Spark's optimized plan. Does not cover: deciding about parts
(prune.py). Always holds: what is not understood is Unknown, and Unknown never rules a part out; comparisons with NULL
are never true; where it is not certain that a column is not looked at, it is.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any

import msgspec

from tilth.model.part import Bound

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAF = "LogicalRDD"
#: Nodes of a plan that hand on what they name, with the fields where they do.
_PROJECTIONS = {"Project": ("projectList",), "Aggregate": ("groupingExpressions", "aggregateExpressions")}
_COLUMN_FIELDS = {"Filter": ("condition",), **_PROJECTIONS}
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")


class Comparison(StrEnum):
    EQUAL = "="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


#: The same comparison with its sides changed.
_TURNED = {
    Comparison.EQUAL: Comparison.EQUAL,
    Comparison.LESS: Comparison.GREATER,
    Comparison.LESS_OR_EQUAL: Comparison.GREATER_OR_EQUAL,
    Comparison.GREATER: Comparison.LESS,
    Comparison.GREATER_OR_EQUAL: Comparison.LESS_OR_EQUAL,
}
_COMPARISONS = {
    "EqualTo": Comparison.EQUAL,
    "LessThan": Comparison.LESS,
    "LessThanOrEqual": Comparison.LESS_OR_EQUAL,
    "GreaterThan": Comparison.GREATER,
    "GreaterThanOrEqual": Comparison.GREATER_OR_EQUAL,
}


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


class Unknown(msgspec.Struct, frozen=True, tag="any"):
    """May be true, false or null."""


Predicate = Compare | IsIn | IsNull | HasPrefix | AllOf | AnyOf | Negation | Unknown

# Any: a node of Spark's JSON is a dict of whatever the node holds.
Node = dict[str, Any]


def leaf_name(occurrence: int, column: str) -> str:
    """What a column of the n-th table reference is called below its view, so that the optimized plan tells both."""
    return f"{occurrence}:{column}"


def predicates_of(plan: object, occurrences: int) -> list[Predicate]:
    """For each table reference, what its rows must satisfy.

    `plan` is the decoded `toJSON` of the optimized plan. A reference that is read more than once (a CTE) gets the
    union; one whose every reading is not filtered, or that does not occur, gets Unknown.
    """
    found: list[list[Predicate]] = [[] for _ in range(occurrences)]
    for nodes in _plans(plan):
        for index, node in enumerate(nodes):
            occurrence = _occurrence_of_leaf(node)
            if occurrence is None:
                continue
            above = nodes[index - 1] if index else None
            found[occurrence].append(_condition(above) if above is not None else Unknown())
    return [AnyOf(tuple(items)) if items else Unknown() for items in found]


def columns_of(plan: object, occurrences: int) -> list[frozenset[str] | None]:
    """For each table reference the columns on whose values the query's answer depends; None: perhaps all.

    `plan` as in `predicates_of`; that of a query over tables whose columns may all be NULL.
    """
    found: list[list[frozenset[str] | None]] = [[] for _ in range(occurrences)]
    for nodes in _plans(plan):
        for index, node in enumerate(nodes):
            occurrence = _occurrence_of_leaf(node)
            if occurrence is not None:
                found[occurrence].append(_columns_above(nodes[:index], occurrence))
    return [_all_of(each) for each in found]


def _all_of(readings: list[frozenset[str] | None]) -> frozenset[str] | None:
    if not readings or None in readings:
        return None
    return frozenset().union(*(reading for reading in readings if reading is not None))


def _columns_above(nodes: list[Node], occurrence: int) -> frozenset[str] | None:
    """What the leaf right behind these nodes hands on.

    The optimizer puts a projection above a leaf of which not all is needed; between them is a filter at most, and each
    of these has one child, so in pre-order they stand right before it.
    """
    fields: list[object] = []
    for node in reversed(nodes):
        name = _class_of(node)
        fields += [node.get(field) for field in _COLUMN_FIELDS.get(name, ())]
        if name in _PROJECTIONS:
            return frozenset(_names_in(fields, occurrence))
        if name not in _COLUMN_FIELDS:
            return None
    return None


def _names_in(value: object, occurrence: int) -> Iterator[str]:
    """The columns of a table reference at any depth."""
    if isinstance(value, dict):
        name = _class_of(value) if "class" in value else ""
        if name == _LEAF:
            return
        if name == "AttributeReference":
            number, colon, column = str(value["name"]).partition(":")
            if colon and number == str(occurrence):
                yield column
        for inner in value.values():
            yield from _names_in(inner, occurrence)
    elif isinstance(value, list):
        for inner in value:
            yield from _names_in(inner, occurrence)


def _plans(value: object) -> Iterator[list[Node]]:
    """Every list of nodes at any depth, in pre-order: plans, expressions, the plans of subqueries in expressions."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from _plans(inner)
    elif isinstance(value, list):
        if value and all(isinstance(item, dict) and "class" in item for item in value):
            yield value
        for inner in value:
            yield from _plans(inner)


def _occurrence_of_leaf(node: Node) -> int | None:
    if _class_of(node) != _LEAF:
        return None
    for attribute in node.get("output", []):
        number, colon, _ = str(attribute[0].get("name", "")).partition(":")
        if colon and number.isdecimal():
            return int(number)
    return None


def _condition(above: Node) -> Predicate:
    """A filter that stands right before a leaf in pre-order has that leaf as its only child."""
    if _class_of(above) != "Filter":
        return Unknown()
    predicate, _ = _expression(above["condition"], 0)
    return predicate


def _expression(nodes: list[Node], at: int) -> tuple[Predicate, int]:
    """The predicate of the expression that begins at an index, and the index behind it."""
    node, end = nodes[at], _end(nodes, at)
    name = _class_of(node)
    if name in ("And", "Or"):
        left, behind = _expression(nodes, at + 1)
        right, _ = _expression(nodes, behind)
        return (AllOf((left, right)) if name == "And" else AnyOf((left, right))), end
    if name == "Not":
        inner, _ = _expression(nodes, at + 1)
        return Negation(inner), end
    if name == "AttributeReference" and node.get("dataType") == "boolean":
        return Compare(_column(node) or "", Comparison.EQUAL, True), end
    return _leaf_predicate(name, _children(nodes, at)) or Unknown(), end


def _leaf_predicate(name: str, children: list[list[Node]]) -> Predicate | None:
    """A predicate over one column and literals; None when it is anything else."""
    if not all(len(child) == 1 for child in children):
        return None
    sides = [child[0] for child in children]
    if name == "IsNull":
        column = _column(sides[0])
        return IsNull(column) if column else None
    if name == "IsNotNull":
        column = _column(sides[0])
        return Negation(IsNull(column)) if column else None
    if name in _COMPARISONS:
        return _comparison(_COMPARISONS[name], *sides)
    if name == "StartsWith":
        column, known = _column(sides[0]), _literal(sides[1])
        return HasPrefix(column, known[0]) if column and known and isinstance(known[0], str) else None
    if name == "In":
        column, values = _column(sides[0]), [_literal(side) for side in sides[1:]]
        return IsIn(column, tuple(v[0] for v in values if v)) if column and all(values) else None
    return None


def _comparison(comparison: Comparison, left: Node, right: Node) -> Predicate | None:
    if _column(left) is None:
        left, right, comparison = right, left, _TURNED[comparison]
    column, known = _column(left), _literal(right)
    if column is None or known is None or known[0] is None:
        return None
    return Compare(column, comparison, known[0])


def _column(node: Node) -> str | None:
    if _class_of(node) != "AttributeReference":
        return None
    number, colon, column = str(node["name"]).partition(":")
    return column if colon and number.isdecimal() else None


def _literal(node: Node) -> tuple[Bound] | None:
    """The value in a tuple of its own (it may be None); None when the node is no literal that ranges know."""
    if _class_of(node) != "Literal":
        return None
    text, data_type = node.get("value"), str(node.get("dataType"))
    if text is None:
        return (None,)
    try:
        return _value(str(text), data_type)
    except (ValueError, OverflowError):
        return None


def _value(text: str, data_type: str) -> tuple[Bound] | None:
    if data_type in ("byte", "short", "integer", "long"):
        return (int(text),)
    if data_type in ("float", "double"):
        number = float(text)
        if data_type == "float":
            # Spark writes the shortest text that names the FLOAT; the value itself is what 4 bytes hold.
            (number,) = struct.unpack("<f", struct.pack("<f", number))
        return None if math.isnan(number) else (number,)
    if data_type == "boolean":
        return (text == "true",)
    if data_type == "string":
        # In the plan's text, bytes that are not UTF-8 are U+FFFD, and sort elsewhere.
        return None if "\ufffd" in text else (text,)
    if data_type.startswith("decimal("):
        return (text,)
    if data_type == "date":
        return (date.fromisoformat(text).toordinal() - _EPOCH_DAY,)
    if data_type == "timestamp_ntz":
        return (int(text),) if _WHOLE_NUMBER.fullmatch(text) else None
    if data_type == "timestamp":
        moment = datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH
        return ((moment.days * 86_400 + moment.seconds) * 1_000_000 + moment.microseconds,)
    return None


def _children(nodes: list[Node], at: int) -> list[list[Node]]:
    found, begin = [], at + 1
    for _ in range(nodes[at]["num-children"]):
        end = _end(nodes, begin)
        found.append(nodes[begin:end])
        begin = end
    return found


def _end(nodes: list[Node], at: int) -> int:
    """The index behind a node and all that is below it."""
    open_nodes, index = 1, at
    while open_nodes:
        open_nodes += nodes[index]["num-children"] - 1
        index += 1
    return index


def _class_of(node: Mapping[str, Any]) -> str:
    return str(node["class"]).rpartition(".")[2]
