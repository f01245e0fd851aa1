"""Text to a statement, by its first words. Pure.

Covers: which statement it is. Does not cover: how each is read (its `Form`, which the module of the statement has),
queries (queries.py), scripts (text/script.py). Always holds: the whole text is read or an error names where it stops
making sense.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tilth.grammar.queries import QUERY_WORDS, parse_query
from tilth.grammar.statements import Statement
from tilth.grammar.text.cursor import Cursor, listed, nearest
from tilth.grammar.text.tokens import TokenKind
from tilth.grammar.verbs import REFUSED, REFUSED_BEHIND, SKIPPED_BEHIND


def _fits(cursor: Cursor) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to begin a statement, and the function that reads the rest of it."""

    #: First words.
    words: str
    #: Reads what follows them.
    parse: Callable[[Cursor], Statement]
    #: Other first words for the same.
    also: tuple[str, ...] = ()
    #: A check for words that could also be names. The cursor stands behind the first word.
    fits: Callable[[Cursor], bool] = _fits
    #: `False` if messages do not list it.
    is_listed: bool = True


class Forms:
    """All forms, by their first words."""

    def __init__(self, forms: Iterable[Form]) -> None:
        """No two may begin alike."""
        #: Forms by verb and the words behind it, the longest first.
        self._forms: dict[str, dict[tuple[str, ...], Form]] = {}
        #: Words that messages list behind a verb.
        self._listed: dict[str, set[str]] = {}
        for form in forms:
            verb, *behind = form.words.split()
            self._listed.setdefault(verb, set()).update(behind[:1] if form.is_listed else ())
            for words in (form.words, *form.also):
                self._add(form, words)
        for verb, known in self._forms.items():
            self._forms[verb] = dict(sorted(known.items(), key=lambda each: -len(each[0])))

    def _add(self, form: Form, words: str) -> None:
        verb, *behind = words.split()
        known = self._forms.setdefault(verb, {})
        assert tuple(behind) not in known, f"two statements begin with {words}"
        known[tuple(behind)] = form

    def parse(self, text: str) -> Statement:
        """The statement in the text; a `;` may end it.

        Raises SqlSyntaxError, and of its kinds UnsupportedSqlError for what is understood but not there. Both name line
        and column.
        """
        return self.parse_noticed(text)[0]

    def parse_noticed(self, text: str) -> tuple[Statement, tuple[str, ...]]:
        """Return the statement, and what was read of it and has no effect, in words for the user. Raises as `parse`."""
        cursor = Cursor(text)
        if cursor.at_end:
            raise cursor.error("there is no statement", hint="write one; docs/reference/sql.md lists them")
        statement = self._statement(cursor)
        cursor.end()
        return statement, tuple(cursor.notices)

    def _statement(self, cursor: Cursor) -> Statement:
        if cursor.at("EXIT") or cursor.at("QUIT"):
            raise cursor.refused("EXIT is a command of the shell", hint="in `tilth sql`, exit, quit and \\q leave")
        word = cursor.peek().text.upper() if cursor.peek().kind is TokenKind.WORD else ""
        if word in QUERY_WORDS or cursor.is_symbol("("):
            return parse_query(cursor)
        cursor.refuse_elsewhere()
        if word in REFUSED:
            raise cursor.refused(f"{word} is not supported", hint=REFUSED[word])
        if word not in self._forms:
            words = (*sorted(self._listed), *QUERY_WORDS)
            near = nearest(word, words)
            hint = "" if near else f"statements begin with {listed(words, 'or')}"
            raise cursor.expected("a statement", words=words, hint=hint)
        cursor.expect(word)
        return self._form(cursor, word).parse(cursor)

    def _form(self, cursor: Cursor, verb: str) -> Form:
        """Take the words behind the verb and return the form that they are of."""
        known = self._forms[verb]
        form = _accept_form(cursor, known)
        if form is None:
            _refuse_behind(cursor, verb)
            for word in SKIPPED_BEHIND.get(verb, ()):
                cursor.accept(word)
            form = _accept_form(cursor, known)
        form = form or known.get(())
        if form is None:
            words = sorted(self._listed[verb])
            raise cursor.expected(listed(words, "or"), words=words)
        return form


def _accept_form(cursor: Cursor, known: dict[tuple[str, ...], Form]) -> Form | None:
    for words, form in known.items():
        if words and cursor.at(*words) and form.fits(cursor):
            cursor.accept(*words)
            return form
    return None


def _refuse_behind(cursor: Cursor, verb: str) -> None:
    for words, hint in REFUSED_BEHIND.get(verb, {}).items():
        if cursor.at(words.split()[0]):
            raise cursor.refused(f"{verb} {words} is not supported", hint=hint)
