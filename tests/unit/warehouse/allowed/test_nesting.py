"""How deep texts are nested: what counts, what does not, and that counting takes no time."""

from __future__ import annotations

import pytest

from tilth.warehouse import TooComplexError
from tilth.warehouse.allowed.nesting import DEPTH_MAX, check_depth

NESTED = {
    "brackets": ("(", "1", ")"),
    "calls": ("abs(", "1", ")"),
    "lists": ("array(1, ", "1", ")"),
    "queries": ("SELECT * FROM (", "SELECT 1", ")"),
    "case": ("CASE WHEN a THEN ", "1", " END"),
    "else": ("case when a then b else ", "1", " end"),
    "types": ("ARRAY<", "INT", ">"),
    "mixed types": ("map<int, struct <a: ", "INT", ">>"),
    "after a comment": ("/* ) /* */ ) */(", "1", ")"),
    "before a comment": ("( -- )\n", "1", ")"),
    "beside strings": ("(')' || \")\" || `)` || r'\\' || '\\')' || ", "1", ")"),
    "not closed": ("(", "1", ""),
}


@pytest.mark.parametrize("kind", NESTED)
def test_what_is_nested_deeper_than_allowed_is_refused(kind: str) -> None:
    before, inside, after = NESTED[kind]
    # Types open two levels at once.
    levels = DEPTH_MAX // (2 if kind == "mixed types" else 1)
    check_depth(before * levels + inside + after * levels)
    with pytest.raises(TooComplexError, match="nested too deep: depth=251"):
        check_depth(before * 20_000 + inside + after * 20_000)


@pytest.mark.parametrize(
    "text",
    [
        "'" + "(" * 1000 + "'",
        "`" + "(" * 1000 + "`",
        '"' + "(" * 1000 + '"',
        "-- " + "(" * 1000,
        "/* " + "(" * 1000 + " */",
        "r'\\' || '((' || r'\\'",
        "a" + " AND (a > 1)" * 10_000,
        "CASE WHEN a > b THEN 1 END + " * 10_000 + "1",
        "t.case + t.end" * 1000,
        "a > b" * 10_000,
        "a IN (" + "1, " * 100_000 + "1)",
        "a[1]" * 10_000,
        "1 < map" * 1000,
        "'" * 9999,
    ],
    ids=range(14),
)
def test_what_is_long_or_quoted_is_not_deep(text: str) -> None:
    check_depth(text)
