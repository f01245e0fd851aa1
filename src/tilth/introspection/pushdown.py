"""Columns and conditions of a query, for the makers of rows: one about one table does not list ten thousand.

Covers: columns that are not named, conditions that a column equals a text, is true or is not NULL. Does not cover: how
rows are made (tables/*). Always holds: what is left out cannot change the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from tilth.base.errors import InvalidInputError
from tilth.control.context.services import Services
from tilth.grammar.text.tokens import words_of
from tilth.model.pushdown import EVERYTHING, Pushdown
from tilth.model.table import Relation, TableDef


def pushdown_of(tree: exp.Expr, text: str) -> Pushdown:
    """Return the columns and conditions of the query for each system table that it names; `tree`: the text, parsed."""
    conditions = _conditions(tree, text)
    return Pushdown(
        columns=_columns(tree, text),
        equal=dict(_equal(conditions, text)),
        true=frozenset(one.name.lower() for one in conditions if isinstance(one, exp.Column)),
        not_null=frozenset(_not_null(conditions)),
    )


def _columns(tree: exp.Expr, text: str) -> frozenset[str] | None:
    """Every word of the text: a column that is none of them is not needed. None: some are read without a name."""
    stars = (star for star in tree.find_all(exp.Star) if not isinstance(star.parent, exp.Count))
    if any(stars) or any(join.method for join in tree.find_all(exp.Join)) or any(tree.find_all(exp.Pivot)):
        return None
    # An alias of a table may name its columns anew.
    if any(table.alias_column_names for table in tree.find_all(exp.Table)):
        return None
    try:
        return frozenset(words_of(text))
    except InvalidInputError:
        # sqlglot is more patient.
        return None


def _conditions(tree: exp.Expr, text: str) -> Sequence[exp.Expr]:
    """Return the conditions that every row of the answer fulfils, where the query reads one table."""
    # sqlglot and Spark read some escapes differently.
    if not isinstance(tree, exp.Select) or not _reads_one_table(tree) or "\\" in text:
        return ()
    where = tree.args.get("where")
    if where is None:
        return ()
    return [each.unnest() for each in (where.this.flatten() if isinstance(where.this, exp.And) else (where.this,))]


def _not_null(conditions: Sequence[exp.Expr]) -> Iterator[str]:
    for one in conditions:
        tested = one.this.unnest() if isinstance(one, exp.Not) else None
        if isinstance(tested, exp.Is) and isinstance(tested.expression, exp.Null):
            column = tested.this.unnest()
            if isinstance(column, exp.Column):
                yield column.name.lower()


def _equal(conditions: Sequence[exp.Expr], text: str) -> Iterator[tuple[str, str]]:
    """Yield the conditions `column = 'text'`."""
    seen: set[str] = set()
    for one in conditions:
        if not isinstance(one, exp.EQ):
            continue
        column, value = one.this.unnest(), one.expression.unnest()
        if isinstance(value, exp.Column):
            column, value = value, column
        if not (isinstance(column, exp.Column) and isinstance(value, exp.Literal) and value.is_string):
            continue
        # Two quotes in a text are one for Spark, none for sqlglot; a second condition may contradict the first.
        if f"'{value.this}'" in text and column.name.lower() not in seen:
            seen.add(column.name.lower())
            yield column.name.lower(), value.this


def _reads_one_table(tree: exp.Select) -> bool:
    """Return whether each column in the query is one of its only relation, under the name that the table gives it."""
    tables = list(tree.find_all(exp.Table))
    # A second relation may be no table: VALUES, or a function.
    if any(tree.find_all(exp.Join, exp.Lateral, exp.Pivot)) or len(list(tree.find_all(exp.Select))) != 1:
        return False
    return len(tables) == 1 and not tables[0].alias_column_names


def relations(services: Services, wanted: Pushdown = EVERYTHING, *, name: str = "table") -> Sequence[Relation]:
    """Return the tables and views of which rows are wanted, by database and name; `name`: the column of their names."""
    database, table = wanted.equal.get("database"), wanted.equal.get(name)
    if database is not None and table is not None:
        found = services.catalog.tables.find(database, table)
        return [] if found is None else [found]
    every = services.catalog.tables.list()
    return [each for each in every if database in (None, each.database) and table in (None, each.name)]


def stored_tables(services: Services, wanted: Pushdown) -> Iterator[TableDef]:
    """Yield those of `relations` that store rows."""
    return (each for each in relations(services, wanted) if isinstance(each, TableDef))
