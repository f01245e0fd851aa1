"""The pure parts of queries: rewriting text, reading Spark's errors, assignable types."""

from __future__ import annotations

import pytest

from tilth.base.errors import ConflictError, TilthError
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct
from tilth.query.language.coerce import is_assignable
from tilth.query.language.spark_errors import from_spark
from tilth.query.worker.relations import Edit, rewrite


def test_rewriting_keeps_the_rest_and_knows_the_way_back() -> None:
    text = "SELECT * FROM db.t WHERE a = 1"
    rewritten = rewrite(text, [Edit(14, 18, "__v AS `t`"), Edit(7, 8, "a")])
    assert rewritten.text == "SELECT a FROM __v AS `t` WHERE a = 1"
    assert rewritten.original(0) == 0
    assert rewritten.original(rewritten.text.index("WHERE")) == text.index("WHERE")
    assert rewritten.original(rewritten.text.index("__v") + 5) == text.index("WHERE") - 1
    assert rewrite(text, []).original(5) == 5


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
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `__tilth_a_0`.`a` cannot be resolved. Did you mean "
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
        "[CAST_INVALID_INPUT] no number\n== SQL (line 1, position 8) ==\nSELECT c FROM __tilth_a_0 AS c54\n       ^\n"
    )
    named = translated(AnalysisException(inside, "CAST_INVALID_INPUT", {}))
    assert (named.message, "TRY_CAST" in named.hint) == ("no number: reason=CAST_INVALID_INPUT at=1:9", True)
    nested = translated(Exception("Job aborted: [CAST_INVALID_INPUT] of `x` FROM __tilth_a_0 AS c54 no number\n"))
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
