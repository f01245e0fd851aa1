"""Tokens: quotes, escapes, comments, and the place of what is not closed."""

from __future__ import annotations

import pytest

from tilth.grammar.errors import SqlSyntaxError
from tilth.grammar.text.tokens import Token, TokenKind, name_value, next_token, string_value


def tokens(text: str) -> list[Token]:
    found: list[Token] = []
    position = 0
    while (token := next_token(text, position)).kind is not TokenKind.END:
        found.append(token)
        position = token.end
    return found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("''", ""),
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        (r"'a\\'", "a\\"),
        (r"'\n\t\r\0'", "\n\t\r\0"),
        (r"'\x41'", "A"),
        (r"'\d+\.\%'", r"\d+\.\%"),
        ("'a\nb'", "a\nb"),
        ("'-- no /* comment'", "-- no /* comment"),
        (r"r'\n'", r"\n"),
        ("'ü€😀'", "ü€😀"),
    ],
)
def test_strings(text: str, value: str) -> None:
    [token] = tokens(text)
    assert token.kind is TokenKind.STRING
    assert string_value(token) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain_1", "plain_1"),
        ("größe", "größe"),
        ("`a b`", "a b"),
        ("`a``b`", "a`b"),
        (r"`a\b`", r"a\b"),
        ('"a""b"', 'a"b'),
        (r'"a\"b"', r"a\"b"),
    ],
)
def test_names(text: str, value: str) -> None:
    [token] = tokens(text)
    assert name_value(token) == value


@pytest.mark.parametrize("text", ["0", "12", "1.5", ".5", "1.", "1e3", "1.5E-3", "0x1F"])
def test_numbers(text: str) -> None:
    [token] = tokens(text)
    assert (token.kind, token.text) == (TokenKind.NUMBER, text)


def test_comments_are_no_tokens_and_nest() -> None:
    text = "a -- one ' \n /* two /* three */ \" */ b--"
    assert [token.text for token in tokens(text)] == ["a", "b"]


def test_operators_are_single_symbols() -> None:
    assert [token.text for token in tokens("a::b>=c->d")] == ["a", ":", ":", "b", ">", "=", "c", "-", ">", "d"]


@pytest.mark.parametrize(
    ("text", "line", "column", "what"),
    [
        ("a 'b", 1, 3, "string"),
        ("a\n  'b''", 2, 3, "string"),
        ("a\n\n`b", 3, 1, "quoted name"),
        ('"b', 1, 1, "quoted name"),
        ("a /* b /* c */", 1, 3, "comment"),
    ],
)
def test_what_is_not_closed_is_told_with_its_place(text: str, line: int, column: int, what: str) -> None:
    with pytest.raises(SqlSyntaxError, match=f"this {what} is not closed") as caught:
        tokens(text)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_nothing_is_read_beyond_the_token_asked_for() -> None:
    assert next_token("FORMAT 'not closed", 0).text == "FORMAT"
