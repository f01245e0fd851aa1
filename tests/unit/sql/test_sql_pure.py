"""The pure parts of queries: rewriting text, reading Spark's plans and errors, assignable types."""

from __future__ import annotations

from typing import Any

import pytest

from tilth.base.errors import ConflictError, TilthError
from tilth.model.part import Bound
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct
from tilth.sql.coerce import is_assignable
from tilth.sql.predicates import AllOf, AnyOf, Compare, Comparison, IsIn, IsNull, Negation, Unknown, predicates_of
from tilth.sql.rewrite import Edit, rewrite
from tilth.sql.spark_errors import from_spark

CATALYST = "org.apache.spark.sql.catalyst"


def test_rewriting_keeps_the_rest_and_knows_the_way_back() -> None:
    text = "SELECT * FROM db.t WHERE a = 1"
    rewritten = rewrite(text, [Edit(14, 18, "__v AS `t`"), Edit(7, 8, "a")])
    assert rewritten.text == "SELECT a FROM __v AS `t` WHERE a = 1"
    assert rewritten.original(0) == 0
    assert rewritten.original(rewritten.text.index("WHERE")) == text.index("WHERE")
    assert rewritten.original(rewritten.text.index("__v") + 5) == text.index("WHERE") - 1
    assert rewrite(text, []).original(5) == 5


def attribute(name: str, data_type: str = "integer") -> dict[str, Any]:
    return {
        "class": f"{CATALYST}.expressions.AttributeReference",
        "num-children": 0,
        "name": name,
        "dataType": data_type,
    }


def node(name: str, children: int, **fields: Any) -> dict[str, Any]:
    return {"class": f"{CATALYST}.{name}", "num-children": children, **fields}


def literal(value: str | None, data_type: str = "integer") -> dict[str, Any]:
    return node("expressions.Literal", 0, value=value, dataType=data_type)


def leaf(*names: str) -> dict[str, Any]:
    return {
        "class": "org.apache.spark.sql.execution.LogicalRDD",
        "num-children": 0,
        "output": [[attribute(n)] for n in names],
    }


def test_a_filter_right_above_a_leaf_is_its_predicate() -> None:
    condition = [
        node("expressions.And", 2),
        node("expressions.Not", 1),
        node("expressions.IsNull", 1),
        attribute("0:a"),
        node("expressions.Or", 2),
        node("expressions.LessThan", 2),
        literal("5"),
        attribute("0:a"),
        node("expressions.In", 3),
        attribute("0:d", "date"),
        literal("1970-01-02", "date"),
        literal(None, "date"),
    ]
    plan = [node("plans.logical.Filter", 1, condition=condition), leaf("0:a", "0:d")]
    assert predicates_of(plan, 2) == [
        AnyOf(
            (
                AllOf(
                    (
                        Negation(IsNull("a")),
                        AnyOf((Compare("a", Comparison.GREATER, 5), IsIn("d", (1, None)))),
                    )
                ),
            )
        ),
        Unknown(),
    ]


@pytest.mark.parametrize(
    ("text", "data_type", "value"),
    [
        ("0.7", "double", 0.7),
        ("0.7", "float", 0.699999988079071),
        ("3.4028235E38", "float", 3.4028234663852886e38),
        ("Infinity", "float", float("inf")),
        ("1577934245000006", "timestamp_ntz", 1_577_934_245_000_006),
        ("-1", "timestamp_ntz", -1),
        ("2020-01-02 03:04:05.000006", "timestamp", 1_577_934_245_000_006),
    ],
)
def test_literals_are_as_ranges_are(text: str, data_type: str, value: Bound) -> None:
    equals = [node("expressions.EqualTo", 2), attribute("0:a", data_type), literal(text, data_type)]
    plan = [node("plans.logical.Filter", 1, condition=equals), leaf("0:a")]
    assert predicates_of(plan, 1) == [AnyOf((Compare("a", Comparison.EQUAL, value),))]


def test_what_is_read_twice_gets_the_union_and_subqueries_are_seen() -> None:
    equals = [node("expressions.EqualTo", 2), attribute("0:a"), literal("1")]
    inner = [node("plans.logical.Project", 1), leaf("0:a")]
    plan = [
        node("plans.logical.Project", 1, projectList=[[node("expressions.ScalarSubquery", 0, plan=inner)]]),
        node("plans.logical.Filter", 1, condition=equals),
        leaf("0:a"),
    ]
    (found,) = predicates_of(plan, 1)
    assert found in (
        AnyOf((Compare("a", Comparison.EQUAL, 1), Unknown())),
        AnyOf((Unknown(), Compare("a", Comparison.EQUAL, 1))),
    )


@pytest.mark.parametrize(
    "condition",
    [
        [node("expressions.EqualTo", 2), node("expressions.Upper", 1), attribute("0:a"), literal("X", "string")],
        [node("expressions.EqualTo", 2), attribute("0:a"), attribute("0:b")],
        [node("expressions.EqualTo", 2), attribute("0:a"), literal(None)],
        [node("expressions.EqualTo", 2), attribute("0:a", "double"), literal("NaN", "double")],
        [node("expressions.EqualTo", 2), attribute("0:a", "float"), literal("1E39", "float")],
        [node("expressions.EqualTo", 2), attribute("0:a", "timestamp_ntz"), literal("2020-01-02", "timestamp_ntz")],
        [node("expressions.EqualTo", 2), attribute("0:a", "timestamp"), literal("+10000-01-01 00:00:00", "timestamp")],
        [node("expressions.Rand", 1), literal("1")],
    ],
)
def test_what_is_not_understood_is_unknown(condition: list[dict[str, Any]]) -> None:
    plan = [node("plans.logical.Filter", 1, condition=condition), leaf("0:a", "0:b")]
    assert predicates_of(plan, 1) == [AnyOf((Unknown(),))]


class AnalysisException(Exception):  # noqa: N818 - as pyspark calls it
    """As pyspark tells of a refused query."""

    def __init__(self, text: str, condition: str, told: dict[str, str]) -> None:
        super().__init__(text)
        self._condition, self._told = condition, told

    def getCondition(self) -> str:  # noqa: N802
        return self._condition

    def getMessageParameters(self) -> dict[str, str]:  # noqa: N802
        return self._told


def translated(error: Exception, text: str = "SELECT a\nFROM t") -> TilthError:
    return from_spark(error, text, lambda place: place, text)


def test_a_column_that_is_not_there() -> None:
    error = translated(
        AnalysisException(
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `__tilth_0`.`a` cannot be resolved. Did you mean "
            "one of the following? [`b`]. SQLSTATE: 42703; line 2 pos 5;\n'Project ['a]\n+- Relation",
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            {"objectName": "`a`", "proposal": "`b`, `c`"},
        )
    )
    assert (error.code, str(error)) == (
        "UNKNOWN_COLUMN",
        "no such column: column=a at=2:6 (did you mean one of: b, c?)",
    )


def test_other_errors_lose_codes_plans_and_stacks() -> None:
    error = translated(
        AnalysisException(
            "[DATATYPE_MISMATCH.X] Cannot add. SQLSTATE: 42K09; line 1 pos 7;\n'Project", "DATATYPE_MISMATCH.X", {}
        )
    )
    assert (error.code, error.message) == ("BAD_QUERY", "Cannot add: reason=DATATYPE_MISMATCH.X at=1:8")
    assert "CAST" in error.hint
    inside = (
        "[CAST_INVALID_INPUT] no number\n== SQL (line 1, position 8) ==\nSELECT c FROM __tilth_0 AS c54\n       ^\n"
    )
    named = translated(AnalysisException(inside, "CAST_INVALID_INPUT", {}))
    assert (named.message, "TRY_CAST" in named.hint) == ("no number: reason=CAST_INVALID_INPUT at=1:9", True)
    nested = translated(Exception("Job aborted: [CAST_INVALID_INPUT] of `x` FROM __tilth_0 AS c54 no number\n"))
    assert "__tilth" not in str(nested)
    failed = translated(Exception("Job aborted\n\tat org.apache.Spark\nCaused by: java.io.IOException: no space left"))
    assert failed.code == "QUERY_FAILED"
    assert "no space left" in str(failed)
    assert "\tat" not in str(failed)
    conflict = ConflictError("x")
    assert translated(conflict) is conflict


I16, I64, F64, TEXT = (Simple(kind) for kind in (Kind.INT16, Kind.INT64, Kind.FLOAT64, Kind.STRING))


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (I64, I16, True),
        (I64, F64, True),
        (F64, I64, False),
        (F64, Simple(Kind.FLOAT32), False),
        (TEXT, I64, False),
        (I64, TEXT, True),
        (Simple(Kind.DATE), Simple(Kind.TIMESTAMP), True),
        (Simple(Kind.TIMESTAMP), Simple(Kind.DATE), False),
        (Decimal(10, 2), Decimal(5, 2), True),
        (Decimal(10, 2), Decimal(10, 1), False),
        (Decimal(10, 0), I16, True),
        (Decimal(10, 2), I16, False),
        (Array(I64), Array(I16), True),
        (Array(F64), Array(I16), False),
        (Map(TEXT, I64), Map(TEXT, I16), True),
        (Struct((Field("a", I64),)), Struct((Field("A", I16),)), True),
        (Struct((Field("a", I64),)), Struct((Field("b", I64),)), False),
    ],
)
def test_what_may_be_put_into_what(source: DataType, target: DataType, expected: bool) -> None:
    assert is_assignable(source, target) is expected
