"""Tables that a statement names."""

from __future__ import annotations

import pytest

from tilth.client.shell.relations import condition, relations, used_database


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM t", [(("t",), "")]),
        ('SELECT * FROM db.t AS x, `a.b`."c""d" y WHERE', [(("db", "t"), "x"), (("a.b", 'c"d'), "y")]),
        ("SELECT * FROM t JOIN u ON t.a = u.a ORDER BY a DESC LIMIT 3", [(("t",), ""), (("u",), "")]),
        ("INSERT INTO shop.t (a)", [(("shop", "t"), "")]),
        ("CREATE TABLE IF NOT EXISTS t (a INT)", [(("t",), "")]),
        ("OPTIMIZE TABLE db.t FINAL", [(("db", "t"), "")]),
        ("SELECT * FROM (SELECT 1 FROM t) x", [(("t",), "")]),
        ("SELECT ' FROM x' /* FROM y */ FROM t z", [(("t",), "z")]),
        ("SELECT * FROM db.", [(("db",), "")]),
        ("SELECT * FROM", []),
        ("", []),
    ],
)
def test_names_and_aliases(sql: str, expected: list[tuple[tuple[str, ...], str]]) -> None:
    assert [(one.path.parts, one.alias) for one in relations(sql)] == expected


def test_a_name_without_a_database_is_of_the_current_one() -> None:
    (one,), (other,) = relations("SELECT * FROM t"), relations("SELECT * FROM a.b.c")
    assert one.path.within("now") == ("now", "t")
    assert other.path.within("now") == ("b", "c")


@pytest.mark.parametrize(
    ("statement", "database"),
    [
        ("USE d", "d"),
        ("use `my ``db`", "my `db"),
        ('USE "my db"', "my db"),
        ("/* now */ USE -- this\n größe /* or not */", "größe"),
        (" USE d ; ", "d"),
        ("USE", None),
        ("USE DATABASE d", None),
        ("SELECT USE", None),
        ("INSERT INTO use FORMAT CSV\n" + "1\n" * 1_000_000, None),
        ("", None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_the_database_of_a_use(statement: str, database: str | None) -> None:
    assert used_database(statement) == database


def test_a_table_is_found_in_system_tables_whatever_its_name() -> None:
    assert condition(("a", "it's \\ \n")) == "database = 'a' AND \"table\" = 'it''s \\\\ \n'"
