"""A cursor over a statement's tokens, with the methods that every parser is made of. Pure.

Covers: reading ahead, accepting words, names, strings and raw expressions, errors that name what was expected. Does not
cover: any statement. Always holds: words are compared without regard to case, and only when they are not quoted.

Tests: tests/unit/grammar/text/test_elsewhere.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches

from tilth.grammar.errors import SqlSyntaxError, UnsupportedSqlError, syntax_error, unsupported
from tilth.grammar.text.elsewhere import BETWEEN, form_of, instead, instead_of_statement, phrase
from tilth.grammar.text.tokens import Token, TokenKind, name_value, next_token, string_value

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(_PAIRS.values())
#: Words behind which an operand must follow.
_OPERATORS_TEXT = (
    "AND OR NOT IN LIKE ILIKE RLIKE REGEXP IS BETWEEN CASE WHEN THEN ELSE INTERVAL DIV DISTINCT FROM ESCAPE"
)
_OPERATORS = frozenset(_OPERATORS_TEXT.split())
#: Longest text of a found token that a message repeats.
_SHOWN_MAX = 40
#: Keywords that are read ahead of an error, to find the clause of another system.
_AHEAD_MAX = 3
#: Keywords of a statement that are retained for its error message.
_KEYWORDS_MAX = 200
_END = "the end of the statement"
#: Digits of a number; no type holds more, and Python's own limit is not ours to meet.
_DIGITS_MAX = 400
#: Digits of an exponent; Python's decimals have 18 at most.
_EXPONENT_DIGITS_MAX = 9


class Cursor:
    """Moves over the tokens of one statement."""

    def __init__(self, text: str, position: int = 0) -> None:
        self.text = text
        self._from = position
        self._ahead: list[Token] = []
        self._start = position
        self._last: Token | None = None
        #: Keywords that were read, with BETWEEN for the names, literals and expressions between two of them.
        self._keywords_read: list[str] = []
        #: True if a name, a literal or an expression follows the last keyword.
        self._has_between = False
        #: Messages for the user about clauses without effect.
        self.notices: list[str] = []

    # Reading ahead

    def peek(self, ahead: int = 0) -> Token:
        while len(self._ahead) <= ahead:
            token = next_token(self.text, self._from)
            self._from = token.end
            self._ahead.append(token)
        return self._ahead[ahead]

    def at(self, *words: str) -> bool:
        """True if these words come next."""
        return all(self.is_word(word, ahead) for ahead, word in enumerate(words))

    def is_word(self, word: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token.kind is TokenKind.WORD and token.text.upper() == word

    def is_symbol(self, symbol: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token.kind is TokenKind.SYMBOL and token.text == symbol

    def is_name(self, ahead: int = 0) -> bool:
        return self.peek(ahead).kind in (TokenKind.WORD, TokenKind.QUOTED)

    def is_string(self, ahead: int = 0) -> bool:
        return self.peek(ahead).kind is TokenKind.STRING

    @property
    def at_end(self) -> bool:
        """True if the statement is over; a `;` ends it."""
        return self.peek().kind is TokenKind.END or self.is_symbol(";")

    @property
    def last_end(self) -> int:
        """End of the token that was read last."""
        return self._start if self._last is None else self._last.end

    # Accepting

    def advance(self) -> Token:
        token = self.peek()
        del self._ahead[0]
        self._last = token
        if token.kind is not TokenKind.SYMBOL:
            self._has_between = True
        return token

    def _read_keyword(self, word: str) -> None:
        if len(self._keywords_read) < _KEYWORDS_MAX:
            self._keywords_read += [BETWEEN, word] if self._has_between else [word]
        self.advance()
        self._has_between = False

    @property
    def _keywords(self) -> list[str]:
        """Keywords up to here, with BETWEEN for each gap, also for one behind the last keyword."""
        return [*self._keywords_read, BETWEEN] if self._has_between else self._keywords_read

    def jump(self, position: int) -> None:
        self._ahead.clear()
        self._from = self._start = position
        self._last = None

    def accept(self, *words: str) -> bool:
        """Accept these words if they come next."""
        if not self.at(*words):
            return False
        for word in words:
            self._read_keyword(word)
        return True

    def accept_symbol(self, symbol: str) -> bool:
        if not self.is_symbol(symbol):
            return False
        self.advance()
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.accept(word):
                near = nearest(self.peek().text, (word,))
                raise self.expected(word, words=(word,), hint="" if near else form_of(self._keywords))

    def expect_symbol(self, symbol: str) -> None:
        if not self.accept_symbol(symbol):
            raise self.expected(f"'{symbol}'")

    def choose(self, *words: str) -> str:
        """Accept one of the words and return it in upper case."""
        for word in words:
            if self.accept(word):
                return word
        raise self.expected(listed(words, "or"), words=words)

    def name(self, what: str) -> str:
        """Read a name, bare or quoted."""
        if not self.is_name():
            hint = 'names are bare, in `backticks` or in "double quotes"' if self.is_string() else ""
            raise self.expected(what, hint=hint)
        value = name_value(self.peek())
        if not value:
            raise self.error(f"{what} is empty")
        self.advance()
        return value

    def string(self, what: str) -> str:
        if not self.is_string():
            is_double = self.peek().text.startswith('"')
            raise self.expected(what, hint="strings take single quotes" if is_double else "")
        return string_value(self.advance())

    def number(self, what: str) -> Token:
        """Read a number without a sign."""
        token = self.peek()
        if token.kind is not TokenKind.NUMBER:
            raise self.expected(what)
        if len(token.text) > _DIGITS_MAX:
            raise self.error(f"this number has more than {_DIGITS_MAX} digits")
        is_hex = token.text[:2].lower() == "0x"
        if not is_hex and len(token.text.lower().partition("e")[2].lstrip("+-0")) > _EXPONENT_DIGITS_MAX:
            raise self.error(f"the exponent of this number has more than {_EXPONENT_DIGITS_MAX} digits")
        return self.advance()

    def integer(self, what: str) -> int:
        """Read a whole number without a sign."""
        if not self.peek().text.isdecimal():
            raise self.expected(what)
        return int(self.number(what).text)

    def end(self) -> None:
        """Check that nothing but a `;` follows."""
        self.accept_symbol(";")
        if self.peek().kind is not TokenKind.END:
            if self.text[: self.last_end].endswith(";"):
                raise self.error(f"expected {_END}, found {self.found()}", hint="one statement at a time")
            raise self.expected(_END)

    # Raw text

    def expression(
        self, what: str, stop: Callable[[Cursor], bool] | None = None, *, stop_at_comma: bool = False
    ) -> str:
        """Read tokens as they are up to the end, an unmatched bracket, or where `stop` holds outside of brackets."""
        first = self.peek()
        depth: list[Token] = []
        while self.peek().kind is not TokenKind.END:
            if not depth:
                if self.at_end or self._is_closing() or (stop_at_comma and self.is_symbol(",")):
                    break
                if stop is not None and self.peek() is not first and self._is_operand_over() and stop(self):
                    break
            self._read_balanced(depth)
        if depth:
            raise syntax_error(f"this bracket is not closed: '{depth[-1].text}'", self.text, depth[-1].start)
        if self.peek() is first:
            raise self.expected(what)
        return self.text[first.start : self.last_end]

    def _is_operand_over(self) -> bool:
        """True if an expression could end behind the last token: `a + ttl` goes on where `a ttl` does not."""
        if self._last is None or self._last.kind is TokenKind.SYMBOL:
            return self._last is not None and self._last.text in _CLOSING
        return self._last.kind is not TokenKind.WORD or self._last.text.upper() not in _OPERATORS

    def _is_closing(self) -> bool:
        token = self.peek()
        return token.kind is TokenKind.SYMBOL and token.text in _CLOSING

    def _read_balanced(self, depth: list[Token]) -> None:
        token = self.peek()
        if token.kind is TokenKind.SYMBOL and token.text in _PAIRS:
            depth.append(token)
        elif self._is_closing():
            if _PAIRS[depth[-1].text] != token.text:
                raise self.expected(f"'{_PAIRS[depth[-1].text]}'")
            depth.pop()
        self.advance()

    # Messages

    def expected(self, what: str, *, words: Sequence[str] = (), hint: str = "") -> SqlSyntaxError:
        """Error that names what should stand here and what does; the nearest of the words becomes the hint.

        A keyword that another system is known to read is refused by name, with what to write instead. So is a word in
        capital letters that is no misspelling, where the statement could end or has a choice of keywords.
        """
        token = self.peek()
        foreseen = instead(self._keywords, self._keywords_ahead()) if token.kind is TokenKind.WORD else ""
        near = "" if foreseen else nearest(token.text, words)
        is_listed = len(words) > 1 and what == listed(words, "or")
        is_foreign_keyword = token.kind is TokenKind.WORD and token.text.isupper() and (what == _END or is_listed)
        if foreseen or (is_foreign_keyword and not near and not hint):
            message = f"{phrase(self._keywords, self._shown())} is not supported"
            return self.refused(message, hint=foreseen or (f"write {what}" if is_listed else form_of(self._keywords)))
        if what == _END and not hint:
            hint = form_of(self._keywords)
        return self.error(
            f"expected {what}, found {self.found()}", hint=hint or (f"did you mean {near}?" if near else "")
        )

    def refuse_elsewhere(self) -> None:
        """Raises UnsupportedSqlError where the first words are a statement of another system and a name follows."""
        words = self._keywords_ahead()
        count, hint = instead_of_statement(words)
        is_followed = self.is_name(count) or self.is_string(count) or self.is_symbol("*", count)
        if count and (is_followed or words[0] == "SYSTEM"):
            raise self.refused(f"{' '.join(words[:count])} is not supported", hint=hint)

    def _keywords_ahead(self) -> list[str]:
        """Return the next words, up to the first token that is none."""
        words: list[str] = []
        while len(words) <= _AHEAD_MAX and self.peek(len(words)).kind is TokenKind.WORD:
            words.append(self.peek(len(words)).text.upper())
        return words

    def found(self) -> str:
        """Text that stands here, for messages."""
        token = self.peek()
        if token.kind is TokenKind.END:
            return "the end of the text"
        shown = self._shown()
        return shown if token.kind in (TokenKind.STRING, TokenKind.QUOTED) else f"'{shown}'"

    def _shown(self) -> str:
        text = self.peek().text
        return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}.."

    def notice(self, message: str) -> None:
        """Notify the user, once, of something that is read and has no effect."""
        if message not in self.notices:
            self.notices.append(message)

    def error(self, message: str, *, at: Token | None = None, hint: str = "") -> SqlSyntaxError:
        return syntax_error(message, self.text, (at or self.peek()).start, hint=hint)

    def refused(self, message: str, *, at: Token | None = None, hint: str = "") -> UnsupportedSqlError:
        return unsupported(message, self.text, (at or self.peek()).start, hint=hint)


def nearest(found: str, words: Sequence[str]) -> str:
    """The word most like what was found; empty when none is."""
    by_upper = {word.upper(): word for word in words}
    near = get_close_matches(found.upper(), list(by_upper), n=1, cutoff=0.6)
    return by_upper[near[0]] if near else ""


def listed(words: Sequence[str], last: str) -> str:
    """`A, B or C`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
