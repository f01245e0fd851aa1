"""Text to statements, so that a shell knows when one has ended and a file is sent one by one. Pure.

Covers: where a statement ends, its pieces. Does not cover: what it means; the server reads it again.
Always holds: a `;` or a `\\G` in a string, a quoted name or a comment ends nothing. Data behind `INSERT .. FORMAT` ends
at a line that is empty, at a `;` that ends a line, or with the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

_PIECE = re.compile(
    r"""
      (?P<space>   \s+ | --[^\n]* )
    | (?P<comment> /\* )
    | (?P<quoted>  [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.|'')*+' | `(?:[^`]|``)*+` | "(?:[^"\\]|\\.|"")*+" )
    | (?P<open>    ['"`] )
    | (?P<word>    [^\W\d]\w* )
    | (?P<symbol>  . )
    """,
    re.VERBOSE | re.DOTALL,
)
#: Ends a statement whose rows are wanted upright; a `;` behind it ends nothing more.
_UPRIGHT_END = re.compile(r"\\G(?!\w)(?:\s*;)?")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_DATA_END = re.compile(r";[ \t\r]*(?:\n|\Z)|\n[ \t\r]*\n")
#: Words after which a FORMAT in an INSERT is not the one that data follows.
_NO_DATA = frozenset(("SELECT", "WITH", "VALUES"))


class PieceKind(StrEnum):
    """Kind of a piece of a text."""

    #: Blanks, or a comment to the end of its line.
    SPACE = "space"
    COMMENT = "comment"
    #: A string or a quoted name.
    QUOTED = "quoted"
    #: A string, a quoted name or a comment that does not end.
    OPEN = "open"
    WORD = "word"
    SYMBOL = "symbol"


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a text."""

    kind: PieceKind
    start: int
    text: str

    @property
    def is_blank(self) -> bool:
        return self.kind in (PieceKind.SPACE, PieceKind.COMMENT)


@dataclass(frozen=True, slots=True)
class ScriptStatement:
    """A statement that has ended, without its end."""

    text: str
    #: `True` if it ended with `\\G`: its rows are wanted upright.
    is_upright: bool = False


def pieces(text: str) -> Iterator[Piece]:
    """Yield all of the text, piece by piece."""
    position = 0
    while found := _PIECE.match(text, position):
        kind, end = PieceKind(found.lastgroup or ""), found.end()
        if kind is PieceKind.COMMENT:
            closed = _comment_end(text, position)
            kind, end = (PieceKind.OPEN, len(text)) if closed is None else (kind, closed)
        elif kind is PieceKind.OPEN:
            end = len(text)
        yield Piece(kind, position, text[position:end])
        position = end


def first_word(text: str) -> str:
    """Return the first word in capitals; empty: there is none."""
    return next((piece.text.upper() for piece in pieces(text) if piece.kind is PieceKind.WORD), "")


def cut(text: str) -> tuple[list[ScriptStatement], str]:
    """Return the statements that have ended, and the incomplete one behind them.

    The latter is empty if nothing but spaces and comments is left.
    """
    statements: list[ScriptStatement] = []
    position = 0
    while True:
        start = _skip_space(text, position)
        ended = _end(text, start)
        if ended is None:
            return statements, text[start:]
        end, position = ended
        if end > start:
            statements.append(ScriptStatement(text[start:end].rstrip(), is_upright=text.startswith("\\G", end)))


def statements(text: str) -> list[ScriptStatement]:
    """All statements of a text; the last one needs no `;`."""
    ended, rest = cut(text)
    return [*ended, ScriptStatement(rest.rstrip())] if rest else ended


def _end(text: str, start: int) -> tuple[int, int] | None:
    """Return the end of the statement and the start of the next one; None if the statement goes on beyond the text."""
    may_have_data = text[start : start + 6].upper() == "INSERT"
    is_format = False
    depth = 0
    position = start
    while found := _PIECE.match(text, position):
        position = found.end()
        word = found[0].upper() if found.lastgroup == "word" else ""
        match found.lastgroup:
            case "space":
                continue
            case "comment":
                closed = _comment_end(text, found.start())
                if closed is None:
                    return None
                position = closed
                continue
            case "open":
                return None
            case "symbol":
                if found[0] == ";":
                    return found.start(), found.end()
                if upright := _UPRIGHT_END.match(text, found.start()):
                    return upright.span()
                depth += (found[0] == "(") - (found[0] == ")")
        if is_format and found.lastgroup in ("word", "quoted") and word != "VALUES":
            data_end = _DATA_END.search(text, position)
            return None if data_end is None else data_end.span()
        may_have_data = may_have_data and word not in _NO_DATA
        is_format = may_have_data and depth == 0 and word == "FORMAT"
    return None


def _skip_space(text: str, position: int) -> int:
    """Skip spaces and comments; a comment that is not closed stays."""
    while found := _PIECE.match(text, position):
        match found.lastgroup:
            case "space":
                position = found.end()
            case "comment":
                closed = _comment_end(text, position)
                if closed is None:
                    return position
                position = closed
            case _:
                return position
    return position


def _comment_end(text: str, start: int) -> int | None:
    """Find the end of a comment; comments nest, as they do for the server."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return None
