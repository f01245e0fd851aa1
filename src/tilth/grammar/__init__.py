"""Words: the text of a statement to a value, and back.

Covers: every statement of Tilth; anything that is a query is passed on as text. Does not cover: what statements do
(tilth.statements), Spark SQL's own grammar. Always holds: pure; errors name line and column; `parse(render(s)) == s`.
See also: statements.py for the values, docs/reference for examples.
"""
