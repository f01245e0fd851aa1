"""Names of the columns of an answer where Spark's own would show what a function of Tilth is written as.

Pure. Covers: the columns of the outermost SELECT without an alias. Does not cover: ClickHouse's dialect, whose text has
got aliases already (clickhouse/dialect.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilth.grammar.text.date_diff import without_unit_diff
from tilth.warehouse import PlanNode, own_functions

#: Nodes whose columns are those of their child.
_SAME_COLUMNS = frozenset(
    "Distinct GlobalLimit LocalLimit Offset Sort UnresolvedHaving UnresolvedWith WithWindowDefinition".split()
)
#: The field of a node that has its columns.
_COLUMNS = {"Project": "projectList", "Aggregate": "aggregateExpressions"}
#: Functions of which one call may give several columns.
_GENERATORS = frozenset(
    "explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack variant_explode".split()
)


def headings(root: PlanNode, text: str, columns: Callable[[], Sequence[str]]) -> list[str] | None:
    """Return the names of a parsed query's columns, or None if they are Spark's: `columns` gives those, and is called
    only where it is needed.

    An expression without an alias that calls a function of Tilth is called what the user wrote.
    """
    items = _items(root)
    called = [_called(item) for item in items]
    if any(names & _GENERATORS for names in called) or not any(names & own_functions() for names in called):
        return None
    wanted = [_heading(item, names, text) for item, names in zip(items, called, strict=True)]
    stars = [number for number, item in enumerate(items) if "Star" in item.kind]
    found = list(columns())
    before = stars[0] if stars else len(items)
    behind = len(items) - stars[-1] - 1 if stars else 0
    if before + behind > len(found) or (not stars and before != len(found)):
        return None
    head = [new or old for new, old in zip(wanted[:before], found, strict=False)]
    tail_at = len(found) - behind
    tail = [new or old for new, old in zip(wanted[len(items) - behind :], found[tail_at:], strict=True)]
    return head + found[before:tail_at] + tail


def _items(root: PlanNode) -> list[PlanNode]:
    """Return the columns of the outermost SELECT; of a union, those of its first one."""
    while root.kind in _SAME_COLUMNS or root.kind == "Union":
        below = next((each for each in root.children if each.role in ("child", "children")), None)
        if below is None:
            return []
        root = below
    return [each for each in root.children if each.role == _COLUMNS.get(root.kind)]


def _called(item: PlanNode) -> set[str]:
    functions = (each for each in item.below() if each.kind == "UnresolvedFunction")
    return {parts[-1].lower() for each in functions if (parts := each.text("nameParts"))}


def _heading(item: PlanNode, called: set[str], text: str) -> str | None:
    """Return the text of an expression without an alias that calls a function of Tilth; None: Spark names it."""
    if item.kind != "UnresolvedAlias" or not called & own_functions():
        return None
    expression = item.child("child")
    if expression is None or expression.start < 0:
        return None
    return without_unit_diff(" ".join(text[expression.start : expression.end].split()))
