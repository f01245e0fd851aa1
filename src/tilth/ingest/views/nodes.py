"""Ways through the plans that Spark makes of a query, reached through the JVM.

Covers: nodes, expressions and their classes. Does not cover: what follows from them (views.py, probe.py).

Tests: tests/integration/ingest/test_ingest_views.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Any: plans and expressions are handles of the JVM; pyspark gives them no types.


def below(plan: Any) -> Iterator[Any]:
    """The plan and what it reads, without subqueries."""
    yield plan
    for child in listed(plan.children()):
        yield from below(child)


def nodes_of(plan: Any) -> Iterator[Any]:
    """The plan's nodes, those of common table expressions and of subqueries among them."""
    yield plan
    for child in listed(plan.children()):
        yield from nodes_of(child)
    for child in listed(plan.innerChildren()):
        if hasattr(child, "innerChildren"):
            yield from nodes_of(child)
    for expression in listed(plan.expressions()):
        yield from _inside(expression)


def _inside(expression: Any) -> Iterator[Any]:
    """The plans of subqueries in an expression."""
    if class_of(expression) in ("ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery"):
        if class_of(expression) == "InSubquery":
            yield from nodes_of(expression.query().plan())
        else:
            yield from nodes_of(expression.plan())
    for child in listed(expression.children()):
        yield from _inside(child)


def listed(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def class_of(node: Any) -> str:
    """Name of the node's class, as in `Project`."""
    return str(node.getClass().getSimpleName())
