"""Where statements end, also while they are being typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilth.client.script import ScriptStatement, cut, first_word, pieces, statements


def texts(ended: list[ScriptStatement]) -> list[str]:
    return [one.text for one in ended]


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
    assert texts(statements(text)) == expected


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
    found, left = cut(text)
    assert (texts(found), left) == (ended, rest)


def test_lines_give_the_same_statements_as_the_whole_text() -> None:
    text = "SELECT 1;\nSELECT 'a;\nb', `;`; /* ;\n; */ SELECT\n 2;\nINSERT INTO t FORMAT CSV\n1;2\n3\n\nSELECT 3;\n"
    typed: list[str] = []
    held = ""
    for line in text.splitlines(keepends=True):
        ended, held = cut(held + line)
        typed += texts(ended)
    assert (typed, held) == (texts(statements(text)), "")


def test_the_server_cuts_scripts_in_the_same_places() -> None:
    from tilth.grammar.text.script import split

    text = "-- a\nSELECT 1;; SELECT ';' ; INSERT INTO t FORMAT CSV\n1;2\n\nSELECT /* ; */ r'\\'; SELECT `;`"
    assert texts(statements(text)) == [one.rstrip() for one in split(text)]


def test_a_large_string_is_read_once() -> None:
    """A pattern that tries again from every quote would take minutes here."""
    assert texts(statements("SELECT '" + "''" * 200_000)) == ["SELECT '" + "''" * 200_000]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"SELECT 1\G SELECT 2;", [("SELECT 1", True), ("SELECT 2", False)]),
        ("SELECT 1 \\G;\nSELECT 2\\G", [("SELECT 1", True), ("SELECT 2", True)]),
        (r"SELECT '\G'; SELECT `\G` /* \G */ -- \G", [(r"SELECT '\G'", False), (r"SELECT `\G` /* \G */ -- \G", False)]),
        (r"SELECT 1\Go", [(r"SELECT 1\Go", False)]),
        (r"\G", []),
        (
            "INSERT INTO t FORMAT CSV\na\\G\n\nSELECT 1",
            [("INSERT INTO t FORMAT CSV\na\\G", False), ("SELECT 1", False)],
        ),
    ],
)
def test_a_statement_may_end_upright(text: str, expected: list[tuple[str, bool]]) -> None:
    assert [(one.text, one.is_upright) for one in statements(text)] == expected


@given(st.text(alphabet="aG1 ;'\"`\\-/*\n(", max_size=30))
def test_pieces_are_all_of_the_text(text: str) -> None:
    assert "".join(piece.text for piece in pieces(text)) == text


def test_the_first_word_stands_behind_comments_and_brackets() -> None:
    assert first_word("-- SELECT\n/* ALTER */ (select 1)") == "SELECT"
    assert first_word("'a' 1 ;") == ""
