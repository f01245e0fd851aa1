"""A statement under translation: changes of its text, and findings with their lines. Pure.

Always holds: positions are those of the text as it was read, whatever was changed before; changes do not overlap.

Tests: tests/unit/migration/test_translate_clickhouse.py.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilth.base.errors import TilthError
from tilth.grammar.errors import SqlSyntaxError
from tilth.grammar.text.tokens import Token, TokenKind, next_token
from tilth.migration.report import DdlFinding, Difference

#: Longest part of a statement that a finding repeats.
_SHOWN_MAX = 60
_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")


class RefusedError(Exception):
    """Nothing can be created for the statement; carries the finding that says why."""

    def __init__(self, finding: DdlFinding) -> None:
        super().__init__(finding.what)
        self.finding = finding


@dataclass(slots=True)
class Draft:
    """Text of one statement, and what is found in it."""

    text: str
    #: Lines of the script before the text.
    lines_before: int = 0
    findings: list[DdlFinding] = field(default_factory=list)
    #: Start, end and new text, in their order.
    _changes: list[tuple[int, int, str]] = field(default_factory=list)
    _line_starts: list[int] = field(default_factory=list)
    _tokens: list[Token] = field(default_factory=list)

    @property
    def tokens(self) -> Sequence[Token]:
        """All tokens of the text, without the one at its end."""
        if not self._tokens:
            token = next_token(self.text, 0)
            while token.kind is not TokenKind.END:
                self._tokens.append(token)
                token = next_token(self.text, token.end)
        return self._tokens

    @property
    def is_changed(self) -> bool:
        return bool(self._changes)

    def line_at(self, position: int) -> int:
        """Line of a position in the script, from 1."""
        if not self._line_starts:
            breaks = [at + 1 for at, character in enumerate(self.text) if character == "\n"]
            self._line_starts = breaks or [len(self.text) + 1]
        return self.lines_before + bisect_right(self._line_starts, position) + 1

    def find(self, kind: Difference, position: int, what: str, why: str = "", instead: str = "") -> None:
        finding = DdlFinding(line=self.line_at(position), kind=kind, what=what, why=why, instead=instead)
        if finding not in self.findings[-10:]:
            self.findings.append(finding)

    def refused(self, position: int, what: str, why: str = "", instead: str = "") -> RefusedError:
        return RefusedError(
            DdlFinding(line=self.line_at(position), kind=Difference.REFUSED, what=what, why=why, instead=instead)
        )

    def refused_by(self, error: TilthError) -> RefusedError:
        """The error of Tilth's parser or of its checks, at its line; after a change of the text at the first line."""
        line = self.lines_before + 1
        message = error.message
        if isinstance(error, SqlSyntaxError):
            message = message_without_position(error)
            if not self.is_changed and "line" in error.facts:
                line = self.lines_before + error.line
        return RefusedError(DdlFinding(line=line, kind=Difference.REFUSED, what=message, instead=error.hint))

    def replace(self, start: int, end: int, text: str) -> None:
        """Put another text there, unless a part of it is changed already."""
        index = bisect_left(self._changes, (start, end))
        before = self._changes[index - 1] if index else None
        behind = self._changes[index] if index < len(self._changes) else None
        if (before is not None and before[1] > start) or (behind is not None and behind[0] < end):
            return
        self._changes.insert(index, (start, end, text))

    def changed_text(self) -> str:
        pieces: list[str] = []
        at = 0
        for start, end, replacement in self._changes:
            pieces += (self.text[at:start], replacement)
            at = end
        return "".join([*pieces, self.text[at:]]).rstrip()


def shown(text: str) -> str:
    """A part of a statement on one line, not too long for a message."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_MAX else f"{line[:_SHOWN_MAX]}.."


def message_without_position(error: SqlSyntaxError) -> str:
    """The message of a parser, whose position is that of another text than the script."""
    return error.message.partition(": line=")[0]


def without_columns(draft: Draft, position: int, elsewhere: str = "elsewhere") -> RefusedError:
    """The refusal of a CREATE TABLE whose columns are not in the statement. `elsewhere`: where to find them."""
    hint = f"SHOW CREATE TABLE {elsewhere}, and import the columns; then INSERT .. SELECT"
    return draft.refused(position, "CREATE TABLE without columns", "the columns are not written", hint)


def is_name(token: Token) -> bool:
    return token.kind in (TokenKind.WORD, TokenKind.QUOTED)


def is_word(token: Token, *words: str) -> bool:
    return token.kind is TokenKind.WORD and token.text.upper() in words


def depth_change(token: Token) -> int:
    """1 for a bracket that opens, -1 for one that closes, else 0."""
    if token.kind is not TokenKind.SYMBOL:
        return 0
    return (token.text in _OPENING) - (token.text in _CLOSING)


def matching(tokens: Sequence[Token], opening: int) -> int:
    """Index of the bracket that closes the one at this index; the last token where none does."""
    depth = 0
    for index in range(opening, len(tokens)):
        depth += depth_change(tokens[index])
        if depth == 0:
            return index
    return len(tokens) - 1


def split_at_commas(tokens: Sequence[Token], start: int, end: int) -> list[tuple[int, int]]:
    """Ranges of tokens between commas outside of brackets, without empty ones."""
    ranges: list[tuple[int, int]] = []
    depth, begun = 0, start
    for index in range(start, end):
        depth += depth_change(tokens[index])
        if depth == 0 and tokens[index].kind is TokenKind.SYMBOL and tokens[index].text == ",":
            ranges.append((begun, index))
            begun = index + 1
    ranges.append((begun, end))
    return [each for each in ranges if each[0] < each[1]]
