"""Text to tokens, one at a time. Pure.

Covers: words, quoted names, strings with both kinds of quote escapes, numbers, comments, symbols. Does not cover: what
they mean (cursor.py and above). Always holds: a symbol is one character, so operators of several characters are several
tokens; that is enough here, because expressions are kept as text. Nothing is read beyond the requested token,
so that the data behind `INSERT .. FORMAT` may be anything.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from tilth.grammar.errors import syntax_error


class TokenKind(Enum):
    WORD = "word"
    #: A name in backticks or double quotes.
    QUOTED = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end"


class Token(NamedTuple):
    kind: TokenKind
    #: Text as written, with quotes.
    text: str
    start: int
    end: int


_TOKEN = re.compile(
    r"""
      (?P<string>   '(?:[^'\\]+|\\.|'')*+'  |  [rR]'[^']*'  |  [rR]"[^"]*" )
    | (?P<quoted>   `(?:[^`]+|``)*+`  |  "(?:[^"\\]+|\\.|"")*+" )
    | (?P<number>   0[xX][0-9a-fA-F]+  |  (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)? )
    | (?P<word>     [^\W\d]\w* )
    | (?P<symbol>   . )
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACE = re.compile(r"(?:\s+|--[^\n]*+)*+")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_OPEN = {"'": "string", "`": "quoted name", '"': "quoted name"}
_ESCAPED = re.compile(r"\\(x[0-9a-fA-F]{2}|.)|''", re.DOTALL)
_CONTROL = {"b": "\b", "f": "\f", "r": "\r", "n": "\n", "t": "\t", "0": "\0", "a": "\a", "v": "\v"}


def next_token(text: str, position: int) -> Token:
    """The token at or after the position; of kind END when there is none.

    Raises SqlSyntaxError for a string, a quoted name or a comment that is not closed.
    """
    start = _skip_space(text, position)
    found = _TOKEN.match(text, start)
    if found is None:
        return Token(TokenKind.END, "", len(text), len(text))
    match found.lastgroup:
        case "word":
            kind = TokenKind.WORD
        case "string":
            kind = TokenKind.STRING
        case "quoted":
            kind = TokenKind.QUOTED
        case "number":
            kind = TokenKind.NUMBER
        case _:
            kind = TokenKind.SYMBOL
            if found[0] in _OPEN:
                raise syntax_error(
                    f"this {_OPEN[found[0]]} is not closed", text, start, hint=f"close it with {found[0]}"
                )
    return Token(kind, found[0], start, found.end())


def words_of(text: str) -> set[str]:
    """Every word and quoted name in the text, in lower case; not what stands in strings and comments."""
    words: set[str] = set()
    token = next_token(text, 0)
    while token.kind is not TokenKind.END:
        if token.kind in (TokenKind.WORD, TokenKind.QUOTED):
            words.add(name_value(token).lower())
        token = next_token(text, token.end)
    return words


def string_value(token: Token) -> str:
    r"""Value of a string. `''` and `\'` are quotes, `\n` and the like control characters, `\xHH` a character.

    A backslash before any other character stays, as in ClickHouse, so that patterns such as '\d+' keep their meaning.
    """
    if token.text[0] in "rR":
        return token.text[2:-1]
    return _ESCAPED.sub(_unescaped, token.text[1:-1])


def name_value(token: Token) -> str:
    if token.kind is TokenKind.WORD:
        return token.text
    inner = token.text[1:-1]
    quote = token.text[0]
    return inner.replace(quote * 2, quote)


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    if escape is None:
        return found[0][0]
    if len(escape) == 3:
        return chr(int(escape[1:], 16))
    if escape in _CONTROL:
        return _CONTROL[escape]
    return escape if escape in "\\'\"`/" else found[0]


def _skip_space(text: str, position: int) -> int:
    while True:
        found = _SPACE.match(text, position)
        position = found.end() if found is not None else position
        if not text.startswith("/*", position):
            return position
        position = _comment_end(text, position)


def _comment_end(text: str, start: int) -> int:
    """Find the end of a comment; comments nest, as they do for Spark."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise syntax_error("this comment is not closed", text, start, hint="close it with */")
