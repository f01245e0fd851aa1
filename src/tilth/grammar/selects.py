"""The SELECT that a statement contains. Pure."""

from __future__ import annotations

from tilth.grammar.statements import CreateView, InsertQuery, Query, Statement


def select_of(statement: Statement) -> str:
    """Return the SELECT of a query, of an INSERT .. SELECT or of a view; empty: there is none."""
    match statement:
        case Query(text=text):
            return text
        case InsertQuery(query=query):
            return query
        case CreateView(select=select):
            return select
        case _:
            return ""
