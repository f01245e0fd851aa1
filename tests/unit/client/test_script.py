"""Where statements end, also while they are being typed."""

from __future__ import annotations

import pytest

from tilth.client.script import cut, statements


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ; ;; ", []),
        ("-- nothing\n/* ; */", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;SELECT 2 ;\n", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';' ; SELECT \";\"; SELECT `;`", ["SELECT ';'", 'SELECT ";"', "SELECT `;`"]),
        (r"SELECT 'it\'s;', 'it''s;'; SELECT 2", [r"SELECT 'it\'s;', 'it''s;'", "SELECT 2"]),
        (r"SELECT r'\'; SELECT R'a;'", [r"SELECT r'\'", "SELECT R'a;'"]),
        ("SELECT 1 -- ; no\n+ 1; SELECT 2", ["SELECT 1 -- ; no\n+ 1", "SELECT 2"]),
        ("SELECT /* ; /* ; */ ; */ 1; SELECT 2", ["SELECT /* ; /* ; */ ; */ 1", "SELECT 2"]),
        ("-- first\nSELECT 1;\n-- second\nSELECT 2;", ["SELECT 1", "SELECT 2"]),
        ("SELECT 5-3; SELECT 4/2", ["SELECT 5-3", "SELECT 4/2"]),
        ("SELECT 'open; SELECT 2", ["SELECT 'open; SELECT 2"]),
        ("INSERT INTO t VALUES (';'); SELECT 1", ["INSERT INTO t VALUES (';')", "SELECT 1"]),
        (
            'INSERT INTO t FORMAT CSV\n1,it\'s;x\n2,"a;b"\n\nSELECT 1;',
            ['INSERT INTO t FORMAT CSV\n1,it\'s;x\n2,"a;b"', "SELECT 1"],
        ),
        (
            'insert into t (a, b) format JSONEachRow {"a": ";"};\nSELECT 1',
            ['insert into t (a, b) format JSONEachRow {"a": ";"}', "SELECT 1"],
        ),
        ("INSERT INTO t SETTINGS a = 1 FORMAT CSV\n1;2\n", ["INSERT INTO t SETTINGS a = 1 FORMAT CSV\n1;2"]),
        ("INSERT INTO t FORMAT VALUES (1); SELECT 1", ["INSERT INTO t FORMAT VALUES (1)", "SELECT 1"]),
        ("INSERT INTO t SELECT format FROM x; SELECT 1", ["INSERT INTO t SELECT format FROM x", "SELECT 1"]),
        ("INSERT INTO t (format, a) VALUES (1, 2); SELECT 1", ["INSERT INTO t (format, a) VALUES (1, 2)", "SELECT 1"]),
        ("SELECT 1 FORMAT CSV; SELECT 2", ["SELECT 1 FORMAT CSV", "SELECT 2"]),
    ],
)
def test_statements(text: str, expected: list[str]) -> None:
    assert statements(text) == expected


@pytest.mark.parametrize(
    ("text", "ended", "rest"),
    [
        ("SELECT 1\n", [], "SELECT 1\n"),
        ("SELECT 'a;\n", [], "SELECT 'a;\n"),
        ("SELECT /* ;\n", [], "SELECT /* ;\n"),
        ("/* not closed ;\n", [], "/* not closed ;\n"),
        ("SELECT 1; SELECT\n", ["SELECT 1"], "SELECT\n"),
        ("-- only a comment\n", [], ""),
        ("INSERT INTO t FORMAT CSV\n1,2\n", [], "INSERT INTO t FORMAT CSV\n1,2\n"),
        ("INSERT INTO t FORMAT CSV\n1,2\n\n", ["INSERT INTO t FORMAT CSV\n1,2"], ""),
    ],
)
def test_what_has_not_ended_is_kept(text: str, ended: list[str], rest: str) -> None:
    assert cut(text) == (ended, rest)


def test_lines_give_the_same_statements_as_the_whole_text() -> None:
    text = "SELECT 1;\nSELECT 'a;\nb', `;`; /* ;\n; */ SELECT\n 2;\nINSERT INTO t FORMAT CSV\n1;2\n3\n\nSELECT 3;\n"
    typed: list[str] = []
    held = ""
    for line in text.splitlines(keepends=True):
        ended, held = cut(held + line)
        typed += ended
    assert (typed, held) == (statements(text), "")


def test_the_server_cuts_scripts_in_the_same_places() -> None:
    from tilth.grammar.text.script import split

    text = "-- a\nSELECT 1;; SELECT ';' ; INSERT INTO t FORMAT CSV\n1;2\n\nSELECT /* ; */ r'\\'; SELECT `;`"
    assert statements(text) == [one.rstrip() for one in split(text)]


def test_a_large_string_is_read_once() -> None:
    """A pattern that tries again from every quote would take minutes here."""
    assert statements("SELECT '" + "''" * 200_000) == ["SELECT '" + "''" * 200_000]
