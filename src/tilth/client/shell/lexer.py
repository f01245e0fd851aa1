"""Colours of a statement while it is typed: the words of the language, strings, numbers, comments.

Covers: SQL and the commands behind a backslash. Does not cover: names, which only the server knows.
"""

from __future__ import annotations

from collections.abc import Callable

from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.styles import Style

from tilth.client.script import Piece, PieceKind, pieces
from tilth.client.shell.words import KEYWORDS, TYPES

#: A longer text has no colours: each key would cost time.
COLOURED_CHARACTERS_MAX = 50_000

#: Colours that dark and light terminals have.
STYLE = Style.from_dict(
    {
        "sql.keyword": "bold ansiblue",
        "sql.type": "ansicyan",
        "sql.string": "ansigreen",
        "sql.number": "ansimagenta",
        "sql.comment": "italic ansibrightblack",
        "sql.command": "bold",
        "bottom-toolbar": "noreverse ansiyellow",
    }
)


class SqlLexer(Lexer):
    """Colours by our own pieces, which are the server's."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        lines = _coloured(document.text)
        return lambda number: lines[number] if number < len(lines) else []


def _coloured(text: str) -> list[StyleAndTextTuples]:
    if text.startswith("\\"):
        command, blank, rest = text.partition(" ")
        return _in_lines([("class:sql.command", command), ("", blank + rest)])
    if len(text) > COLOURED_CHARACTERS_MAX:
        return _in_lines([("", text)])
    return _in_lines([(_style(piece), piece.text) for piece in pieces(text)])


def _in_lines(fragments: list[tuple[str, str]]) -> list[StyleAndTextTuples]:
    lines: list[StyleAndTextTuples] = [[]]
    for style, text in fragments:
        first, *others = text.split("\n")
        lines[-1].append((style, first))
        lines += [[(style, other)] for other in others]
    return lines


#: Styles of a comment that does not end, and of a quoted name.
_BEGUN_BY = {"/": "class:sql.comment", "`": ""}


def _style(piece: Piece) -> str:
    match piece.kind:
        case PieceKind.WORD:
            word = piece.text.upper()
            return "class:sql.keyword" if word in KEYWORDS else "class:sql.type" if word in TYPES else ""
        case PieceKind.QUOTED | PieceKind.OPEN:
            return _BEGUN_BY.get(piece.text[0], "class:sql.string")
        case PieceKind.COMMENT:
            return "class:sql.comment"
        case PieceKind.SPACE:
            return "class:sql.comment" if "--" in piece.text else ""
        case PieceKind.SYMBOL:
            return "class:sql.number" if piece.text.isdigit() else ""
