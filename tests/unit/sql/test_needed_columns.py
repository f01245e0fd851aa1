"""Which columns a query looks at, out of the JSON of Spark's plans."""

from __future__ import annotations

from typing import Any

from tilth.sql.predicates import columns_of


def _node(class_name: str, children: int = 1, **fields: Any) -> dict[str, Any]:
    return {"class": f"org.apache.spark.sql.catalyst.{class_name}", "num-children": children, **fields}


def _column(name: str) -> dict[str, Any]:
    return _node("expressions.AttributeReference", 0, name=name, dataType="integer")


def _leaf(*names: str) -> dict[str, Any]:
    return _node("execution.LogicalRDD", 0, output=[[_column(name)] for name in names])


def _project(*names: str) -> dict[str, Any]:
    return _node("plans.logical.Project", projectList=[[_node("expressions.Alias"), _column(name)] for name in names])


def _columns(nodes: list[dict[str, Any]], occurrences: int = 1) -> list[set[str] | None]:
    return [None if found is None else set(found) for found in columns_of(nodes, occurrences)]


LEAF = _leaf("0:a", "0:b", "0:c")
FILTER = _node("plans.logical.Filter", condition=[_node("expressions.IsNotNull"), _column("0:b")])


def test_a_projection_above_a_leaf_names_its_columns() -> None:
    assert _columns([_project("0:a"), LEAF]) == [{"a"}]
    assert _columns([_project("0:a"), FILTER, LEAF]) == [{"a", "b"}]
    assert _columns([_project(), LEAF]) == [set()]
    grouped = _node("plans.logical.Aggregate", groupingExpressions=[[_column("0:a")]], aggregateExpressions=[])
    assert _columns([grouped, LEAF]) == [{"a"}]


def test_without_one_all_are_needed() -> None:
    for nodes in (
        [LEAF],
        [FILTER, LEAF],
        [_node("plans.logical.Window"), LEAF],
        [_project("0:a"), _node("x.Odd"), LEAF],
    ):
        assert _columns(nodes) == [None]
    # A join's second child does not stand right behind its projection.
    nodes = [_node("plans.logical.Join", 2), _project("0:a"), LEAF, _leaf("1:a", "1:b")]
    assert _columns(nodes, 3) == [{"a"}, None, None]


def test_a_table_that_is_read_twice_gives_what_both_need() -> None:
    other = [_project("0:c"), LEAF]
    subquery = _node("plans.logical.Filter", condition=[_node("expressions.ScalarSubquery", 0, plan=other)])
    assert _columns([_project("0:a"), subquery, LEAF]) == [{"a", "c"}]
    assert _columns([_node("plans.logical.Union", 2), *other, LEAF]) == [None]
