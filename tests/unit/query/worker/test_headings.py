"""Headings of columns without an alias that call functions of Tilth: plans as Spark's parser gives them."""

from __future__ import annotations

import pytest

from tilth.query.worker.headings import headings
from tilth.warehouse import PlanNode


class Parsed:
    """A plan of `text`, built by hand; expressions are found in the text by what they say."""

    def __init__(self, text: str) -> None:
        self.text = text

    def node(self, kind: str, role: str, *children: PlanNode, said: str = "", name: str = "") -> PlanNode:
        start = self.text.find(said) if said else -1
        made = PlanNode(kind, role, start, start + len(said) if said else -1, "", None, list(children))
        if name:
            made.texts["nameParts"] = [name]
        return made

    def call(self, said: str, *inner: PlanNode, role: str = "child") -> PlanNode:
        return self.node("UnresolvedFunction", role, *inner, said=said, name=said.partition("(")[0])

    def unnamed(self, expression: PlanNode, role: str = "projectList") -> PlanNode:
        return self.node("UnresolvedAlias", role, expression)


def test_a_function_of_tilth_is_called_what_the_user_wrote() -> None:
    parsed = Parsed("SELECT count(*), 1 + toMonday(  `a b`,\n 'x  y' ), toDate(b) AS d, c FROM t")
    sum_ = parsed.node(
        "Add",
        "child",
        parsed.call("toMonday(  `a b`,\n 'x  y' )", role="right"),
        said="1 + toMonday(  `a b`,\n 'x  y' )",
    )
    root = parsed.node(
        "GlobalLimit",
        "",
        parsed.node("Literal", "limitExpr"),
        parsed.node(
            "Project",
            "child",
            parsed.unnamed(parsed.call("count(*)")),
            parsed.unnamed(sum_),
            parsed.node("Alias", "projectList", parsed.call("toDate(b)")),
            parsed.node("UnresolvedAttribute", "projectList", said="c"),
        ),
    )
    found = headings(root, parsed.text, lambda: ["count(1)", "(1 + trunc(..))", "d", "c"])
    assert found == ["count(1)", "1 + toMonday( `a b`, 'x y' )", "d", "c"]


@pytest.mark.parametrize(
    ("items", "columns", "wanted"),
    [
        ("toDate(a) * count(b)", ["x", "p", "q", "count(b)"], ["toDate(a)", "p", "q", "count(b)"]),
        ("* toDate(a)", ["p", "q", "x"], ["p", "q", "toDate(a)"]),
        # The name under which Spark's parser gets dateDiff with a unit in quotes.
        ("unitDiff('day',a,b) unit_diff('day',a,b)", ["x", "y"], ["dateDiff('day',a,b)", "date_diff('day',a,b)"]),
        ("* toDate(a) *", ["p", "x", "q"], ["p", "x", "q"]),
        ("toDate(a) * count(b) * toMonday(c)", list("abcdef"), ["toDate(a)", "b", "c", "d", "e", "toMonday(c)"]),
        # Spark's own names, several columns of one call, and a number of columns that nobody expected.
        ("count(b) upper(c)", ["count(b)", "upper(c)"], None),
        ("toDate(a) posexplode(b)", ["x", "pos", "col"], None),
        ("toDate(a) count(b)", ["x"], None),
    ],
)
def test_stars_and_calls_of_several_columns(items: str, columns: list[str], wanted: list[str] | None) -> None:
    parsed = Parsed(items)
    nodes = [
        parsed.node("UnresolvedStar", "projectList") if item == "*" else parsed.unnamed(parsed.call(item))
        for item in items.split()
    ]
    assert headings(parsed.node("Project", "", *nodes), items, lambda: columns) == wanted


def test_the_first_select_of_a_union_names_its_columns() -> None:
    parsed = Parsed("SELECT toDate(a) FROM t GROUP BY a UNION ALL SELECT toMonday(b) FROM t")
    first = parsed.node("Aggregate", "children", parsed.unnamed(parsed.call("toDate(a)"), "aggregateExpressions"))
    second = parsed.node("Project", "children", parsed.unnamed(parsed.call("toMonday(b)")))
    assert headings(parsed.node("Union", "", first, second), parsed.text, lambda: ["x"]) == ["toDate(a)"]
    assert headings(parsed.node("UnresolvedRelation", ""), "TABLE t", lambda: ["x"]) is None
