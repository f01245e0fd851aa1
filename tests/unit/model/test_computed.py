"""Expressions over the columns of a row: what is written for them, what depends on what."""

from __future__ import annotations

from tilth.model.computed import (
    circle,
    computed_columns,
    in_dependency_order,
    recomputed,
    shown_expression,
    stored_ids,
    value_text,
    written_length,
)
from tilth.model.table import Column, ColumnKind, Expression, Schema
from tilth.model.types import Kind, Simple


def column(identity: int, name: str, expression: Expression = (), kind: ColumnKind = ColumnKind.MATERIALIZED) -> Column:
    kind = kind if expression else ColumnKind.DEFAULT
    return Column(id=identity, name=name, type=Simple(Kind.INT32), kind=kind, expression=expression)


#: a, b; m = a + 1; n = m * x; x = b + a, which is read only; d = a unless it is given.
SCHEMA = Schema(
    columns=(
        column(1, "a"),
        column(2, "b c"),
        column(3, "m", (1, " + 1")),
        column(4, "n", (3, " * ", -1)),
        column(5, "d", (1,), ColumnKind.DEFAULT),
    ),
    aliases=(column(-1, "x", (2, " + ", 1), ColumnKind.ALIAS),),
)
A, B, M, N, D = SCHEMA.columns
X = SCHEMA.aliases[0]


def test_an_expression_is_shown_with_the_names_that_columns_have() -> None:
    assert shown_expression(X, SCHEMA) == "`b c` + `a`"
    assert shown_expression(N, SCHEMA, str.upper) == "M * X"


def test_a_value_is_made_of_what_is_stored() -> None:
    of_x = "CAST((CAST(`b c` AS int) + CAST(`a` AS int)\n) AS int)"
    assert value_text(X, SCHEMA) == of_x
    assert value_text(N, SCHEMA) == f"CAST((CAST(`m` AS int) * CAST({of_x} AS int)\n) AS int)"


def test_rows_that_lack_columns_get_all_of_them_from_what_they_have() -> None:
    texts = computed_columns(SCHEMA, {"a", "b c", "d"})
    assert texts[:2] == ["`a`", "`b c`"]
    assert "`m`" not in texts[3].removesuffix(" AS `n`")
    assert texts[4] == "`d`"


def test_an_update_changes_what_is_made_of_the_columns_that_it_sets() -> None:
    found = dict(recomputed(SCHEMA, {"A": "`a` * 2"}))
    assert list(found) == ["m", "n"]
    assert found["m"] == "CAST((CAST((`a` * 2\n) AS int) + 1\n) AS int)"
    assert "(`a` * 2\n)" in found["n"]
    assert [name for name, _ in recomputed(SCHEMA, {"b c": "1"})] == ["n"]
    assert recomputed(SCHEMA, {"d": "1"}) == []


def test_columns_come_behind_those_that_they_are_made_of() -> None:
    assert list(in_dependency_order([N, M, D], SCHEMA)) == [[M, D], [N]]
    assert stored_ids(SCHEMA, N.expression) == {3, 2, 1}


def test_columns_that_depend_on_themselves_are_found() -> None:
    assert circle(SCHEMA) == []
    first, second = column(1, "a", (2,)), column(2, "b", ("1 + ", 3))
    made = Schema(columns=(column(4, "k", (1,)), first, second, column(3, "c", (1,)), column(5, "d")))
    assert [each.name for each in circle(made)] == ["a", "b", "c"]


def test_the_length_of_a_chain_is_known_without_writing_it_out() -> None:
    columns = [column(1, "c1")] + [column(n, f"c{n}", (n - 1, " + ", n - 1)) for n in range(2, 60)]
    assert written_length(Schema(columns=tuple(columns)), columns[-1]) > 1 << 50


def test_a_time_is_cut_to_the_digits_of_its_column() -> None:
    from tilth.model.checks import Check, SecondDigits

    made = Column(
        id=2,
        name="t",
        type=Simple(Kind.TIMESTAMP),
        checks=(Check(SecondDigits(0)),),
        kind=ColumnKind.ALIAS,
        expression=("f(", 1, ")"),
    )
    schema = Schema(columns=(column(1, "a"),), aliases=(made,))
    assert "div 1000000 * 1000000" in value_text(made, schema)
