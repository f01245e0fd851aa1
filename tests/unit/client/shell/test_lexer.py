"""Colours while a statement is typed."""

from __future__ import annotations

from prompt_toolkit.document import Document

from tilth.client.shell.lexer import COLOURED_CHARACTERS_MAX, SqlLexer


def coloured(text: str) -> list[list[tuple[str, str]]]:
    line = SqlLexer().lex_document(Document(text))
    return [
        [(style.removeprefix("class:sql."), piece) for style, piece, *_ in line(number) if piece.strip()]
        for number in range(text.count("\n") + 1)
    ]


def test_words_strings_numbers_and_comments() -> None:
    assert coloured("select `a` + 1 -- all\nFROM t WHERE s = 'x' /* not\nyet") == [
        [("keyword", "select"), ("", "`a`"), ("", "+"), ("number", "1"), ("comment", "-- all")],
        [
            ("keyword", "FROM"),
            ("", "t"),
            ("keyword", "WHERE"),
            ("", "s"),
            ("", "="),
            ("string", "'x'"),
            ("comment", "/* not"),
        ],
        [("comment", "yet")],
    ]
    assert coloured("CAST(a AS Int64)")[0][-2:] == [("type", "Int64"), ("", ")")]
    assert coloured("SELECT 'open\nstring")[1] == [("string", "string")]


def test_commands_and_long_texts() -> None:
    assert coloured("\\d select") == [[("command", "\\d"), ("", " select")]]
    long = "SELECT 1," * COLOURED_CHARACTERS_MAX
    assert coloured(long) == [[("", long)]]
    assert SqlLexer().lex_document(Document("a"))(5) == []
