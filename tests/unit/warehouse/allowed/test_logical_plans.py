"""The check of a plan, over plans that are made by hand: what is unknown is refused, whatever holds it."""

from __future__ import annotations

import pytest

from tilth.base.errors import TilthError
from tilth.warehouse import LogicalPlan, NotAllowedError, PlanNode, UnknownFunctionError, check_plan
from tilth.warehouse.allowed.allow_list import allow_list


def node(kind: str, holder: PlanNode | None = None, **texts: str) -> PlanNode:
    made = PlanNode(kind, "", 0, 1, "", holder, texts={name: text.split(".") for name, text in texts.items()})
    if holder is not None:
        holder.children.append(made)
    return made


def plan(*nodes: PlanNode, values: tuple[str, ...] = ()) -> LogicalPlan:
    return LogicalPlan(list(nodes), frozenset([*(each.kind for each in nodes), *values]))


def refused(found: LogicalPlan, text: str = "") -> TilthError:
    with pytest.raises(TilthError) as caught:
        check_plan(found, text)
    return caught.value


def call(name: str, **texts: str) -> LogicalPlan:
    root = node("Project")
    return plan(root, node("UnresolvedFunction", root, nameParts=name, **texts))


def test_what_the_lists_name_passes_in_any_case() -> None:
    check_plan(call("COUNT"))
    check_plan(plan(node("UnresolvedTableValuedFunction", name="Range")))
    check_plan(plan(node("UnresolvedHint", name="broadcast")))


def test_an_unknown_kind_is_refused_as_a_node_and_as_a_value() -> None:
    root = node("Project")
    assert isinstance(refused(plan(root, node("SomethingNew", root))), NotAllowedError)
    assert isinstance(refused(plan(root, values=("org.example.Closure",))), NotAllowedError)
    assert "Lambda" in str(refused(plan(root, values=("Lambda",))))


def test_a_refused_kind_is_named_in_the_words_of_users() -> None:
    error = refused(plan(node("ScriptTransformation")))
    assert "TRANSFORM" in error.message
    assert "programs" in error.hint


@pytest.mark.parametrize("name", ["reflect", "REFLECT", "system.builtin.reflect", "builtin.java_method", "from_avro"])
def test_a_refused_function_is_refused_under_every_name(name: str) -> None:
    error = refused(call(name))
    assert isinstance(error, NotAllowedError)
    assert error.hint


def test_functions_have_plain_names_and_nobody_asks_for_internal_ones() -> None:
    assert "abs(..)" in refused(call("system.builtin.abs")).hint
    assert isinstance(refused(call("abs", isInternal="true")), NotAllowedError)


def test_a_table_function_is_refused_with_what_to_do_instead_and_an_unknown_one_too() -> None:
    error = refused(plan(node("UnresolvedTableValuedFunction", name="python_worker_logs")))
    assert isinstance(error, NotAllowedError)
    assert "log folder" in error.hint
    error = refused(plan(node("UnresolvedTableValuedFunction", name="read_files")))
    assert isinstance(error, UnknownFunctionError)


def test_a_hint_that_no_list_names_is_refused() -> None:
    """Spark ignores it without a message."""
    error = refused(plan(node("UnresolvedHint", name="no_such_hint")))
    assert isinstance(error, NotAllowedError)
    assert "BROADCAST" in error.hint


def test_an_unknown_function_gets_the_names_that_are_near() -> None:
    error = refused(call("cuont"))
    assert isinstance(error, UnknownFunctionError)
    assert "count" in error.hint


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("COLUMNS", "EXCEPT"),
        ("bitmapCardinality", "count(DISTINCT x)"),
        ("runningDifference", "lag(x) OVER"),
        ("neighbor", "lead(x) OVER"),
        ("sumMap", "explode(m)"),
    ],
)
def test_functions_of_others_get_what_to_write_instead(name: str, instead: str) -> None:
    assert instead in refused(call(name)).hint


def test_explain_stands_at_the_root_only() -> None:
    explain = "org.apache.spark.sql.execution.command.ExplainCommand"
    root = node(explain)
    check_plan(plan(root, node("Project", root)))
    assert refused(plan(node("Project"), node(explain, root))).code == "NOT_ALLOWED"


def test_a_table_takes_no_options_and_is_no_stream() -> None:
    name = "db.t"
    check_plan(plan(node("UnresolvedRelation", multipartIdentifier=name)))
    assert name in str(refused(plan(node("UnresolvedRelation", multipartIdentifier=name, options="path"))))
    stream = plan(node("UnresolvedRelation", multipartIdentifier=name, isStreaming="true"))
    assert refused(stream).code == "NOT_ALLOWED"


def test_the_place_is_told_for_whole_statements_only() -> None:
    found = call("reflect")
    found.nodes[1].start = 9
    assert "at=2:3" in str(refused(found, "SELECT\n  reflect()"))
    assert "at=" not in str(refused(found))


def test_every_name_stands_once() -> None:
    allowed = allow_list()
    assert not allowed.functions & allowed.refused_functions.keys()
    assert not allowed.kinds & allowed.refused_kinds.keys()
    assert all(name == name.lower() for name in allowed.functions | allowed.table_functions | allowed.hints)
