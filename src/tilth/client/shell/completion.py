"""Completion: the names and words that fit at the cursor.

Covers: which of the known names fit a text up to the cursor. Does not cover: reading the names (names.py).
Always holds: it computes with what is there and waits for nothing; in a string or a comment nothing is offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from tilth.client.script import Piece, PieceKind, cut, pieces
from tilth.client.shell.meta_commands import COMMANDS, Argument
from tilth.client.shell.names import Known, Named, Names
from tilth.client.shell.relations import BEFORE_TABLE, Mentioned, TablePath, is_name, plain, relations
from tilth.client.shell.words import KEYWORDS, TYPES
from tilth.model.types import quoted

OPTIONS_MAX = 200
#: A longer text is not read at each key.
TEXT_CHARACTERS_MAX = 20_000
_WORDS = tuple(Named(word) for word in sorted(KEYWORDS | TYPES))


@dataclass(frozen=True, slots=True)
class Option:
    """A completion of what is typed."""

    text: str
    #: Characters before the cursor that it replaces.
    replaces: int
    about: str = ""


@dataclass(frozen=True, slots=True)
class _Cursor:
    """An incomplete name at the end of a text."""

    #: The prefix that was typed, without its quote.
    partial: str
    quote: str
    #: Names before it, with dots between.
    parents: tuple[str, ...]
    #: Pieces before all of these, without blanks.
    before: tuple[Piece, ...]


class SqlCompleter(Completer):
    """Completion of the shell."""

    def __init__(self, names: Names, database: Callable[[], str]) -> None:
        self._names = names
        self._database = database

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield completions; at the start of a word they come without being wanted only behind a dot."""
        text = document.text_before_cursor
        if len(document.text) > TEXT_CHARACTERS_MAX:
            return
        known, database = self._names.known(), self._database()
        is_wanted = complete_event.completion_requested
        found = options(text, document.text, known, database, is_wanted=is_wanted, missing=self._names.want_columns)
        for option in islice(found, OPTIONS_MAX):
            yield Completion(option.text, start_position=-option.replaces, display_meta=option.about)


def options(
    text: str,
    whole: str,
    known: Known,
    database: str,
    *,
    is_wanted: bool = True,
    missing: Callable[[TablePath], None] = lambda _: None,
) -> Iterator[Option]:
    """Yield what fits at the end of `text`, the best first.

    `whole`: the text with what is behind the cursor. `missing` gets the tables whose columns are not known.
    """
    if text.startswith("\\"):
        yield from _of_command(text, known, database)
        return
    # Statements before the last one have ended.
    _, statement = cut(text)
    cursor = _cursor(statement)
    if cursor is None or not (cursor.partial or cursor.parents or cursor.quote or is_wanted):
        return
    mentioned = relations(statement + whole[len(text) :])
    columns = _Columns(known, database, missing)
    for named in _fitting(cursor.partial, _names(cursor, mentioned, known, database, columns)):
        replaced = len(cursor.partial) + len(cursor.quote)
        yield Option(_spelled(named.name, cursor), replaced, named.about)
    if not cursor.parents and not cursor.quote and cursor.partial:
        is_lower = cursor.partial.islower()
        for word in _fitting(cursor.partial, _WORDS):
            yield Option(word.name.lower() if is_lower else word.name, len(cursor.partial))


@dataclass(frozen=True, slots=True)
class _Columns:
    known: Known
    database: str
    missing: Callable[[TablePath], None]

    def of(self, path: TablePath) -> tuple[Named, ...]:
        found = self.known.columns.get((path[0].lower(), path[1].lower()))
        if found is None:
            self.missing(path)
        return found or ()

    def of_all(self, mentioned: Iterable[Mentioned]) -> list[Named]:
        paths = dict.fromkeys(one.path.within(self.database) for one in mentioned)
        return list({named.name: named for path in paths for named in self.of(path)}.values())


def _names(
    cursor: _Cursor, mentioned: Sequence[Mentioned], known: Known, database: str, columns: _Columns
) -> Iterator[Named]:
    tables = known.tables.get(database.lower(), ())
    if len(cursor.parents) > 1:
        yield from columns.of((cursor.parents[0], cursor.parents[1]))
        return
    if cursor.parents:
        parent = cursor.parents[0]
        meant = [one for one in mentioned if parent.lower() in (one.alias.lower(), one.path.parts[-1].lower())]
        found = columns.of_all(meant) or known.tables.get(parent.lower()) or columns.of((database, parent))
        yield from found
        return
    last = cursor.before[-1] if cursor.before else None
    word = last.text.upper() if last is not None and last.kind is PieceKind.WORD else ""
    scopes = _scopes(cursor.before)
    if scopes:
        yield from (named for named in known.settings if named.about in scopes)
        return
    if word == "USE":
        yield from known.databases
        return
    if word not in BEFORE_TABLE:
        yield from columns.of_all(mentioned)
        yield from (Named(one.alias, "alias") for one in mentioned if one.alias)
        if cursor.partial:
            yield from known.functions
    yield from tables
    yield from known.databases


def _cursor(text: str) -> _Cursor | None:
    """Return the name under way; None in a string or a comment."""
    every = list(pieces(text))
    last = every[-1] if every else None
    quote = last.text[0] if last is not None and last.kind is PieceKind.OPEN and last.text[0] in '`"' else ""
    if last is not None and (
        (last.kind is PieceKind.OPEN and not quote) or (last.kind is PieceKind.SPACE and last.text.startswith("--"))
    ):
        return None
    shown = [piece for piece in every if not piece.is_blank]
    is_under_way = bool(quote) or (last is not None and last.kind is PieceKind.WORD)
    partial = shown.pop().text[len(quote) :] if is_under_way else ""
    parents: list[str] = []
    while len(shown) > 1 and shown[-1].text == "." and is_name(shown[-2]):
        parents.insert(0, plain(shown[-2].text))
        del shown[-2:]
    return _Cursor(partial, quote, tuple(parents), tuple(shown))


def _scopes(before: Sequence[Piece]) -> tuple[str, ...]:
    """Scopes of the setting whose name is under way; empty: none is."""
    if not before:
        return ()
    first = before[0].text.upper()
    at = -1
    for index, piece in enumerate(before):
        is_clause = piece.text.upper() in ("SETTING", "SETTINGS") and (not index or before[index - 1].text != ".")
        if is_clause or (not index and first == "SET"):
            at = index
    if at < 0:
        return ()
    # A clause of settings holds names, values, `=`, `,` and `.`; a name follows it or a comma.
    rest = before[at + 1 :]
    is_open = all(piece.kind is not PieceKind.SYMBOL or piece.text in "=,.-0123456789" for piece in rest)
    if not is_open or (rest and rest[-1].text != ","):
        return ()
    return ("table", "kafka") if first in ("CREATE", "ALTER") else ("session",)


def _fitting(partial: str, names: Iterable[Named]) -> Iterator[Named]:
    """Yield names that begin with the partial one, then those that contain it, each once."""
    begun = partial.lower()
    seen: set[str] = set()
    others: list[Named] = []
    for named in names:
        if named.name in seen:
            continue
        lower = named.name.lower()
        if lower.startswith(begun):
            seen.add(named.name)
            yield named
        elif len(begun) > 1 and begun in lower and len(others) < OPTIONS_MAX:
            others.append(named)
    for named in others:
        if named.name not in seen:
            seen.add(named.name)
            yield named


def _spelled(name: str, cursor: _Cursor) -> str:
    is_plain = name.isascii() and name.isidentifier() and not cursor.quote
    return name if is_plain else quoted(name)


def _of_command(text: str, known: Known, database: str) -> Iterator[Option]:
    name, blank, typed = text.partition(" ")
    if not blank:
        for one in COMMANDS.values():
            if one.name.startswith(name):
                yield Option(one.name, len(name), one.about)
        return
    command = COMMANDS.get(name)
    typed = typed.lstrip()
    offered: Iterable[Named] = ()
    match command.argument if command is not None else Argument.NONE:
        case Argument.TABLE:
            parent, dot, typed_name = typed.rpartition(".")
            typed = typed_name if dot else typed
            offered = known.tables.get((plain(parent) if dot else database).lower(), ())
        case Argument.DATABASE:
            offered = known.databases
        case Argument.SWITCH | Argument.LAYOUT as argument:
            offered = [Named(word) for word in argument.value.split()]
        case _:
            return
    quote = typed[:1] if typed[:1] in ("`", '"') else ""
    partial = typed[len(quote) :]
    for named in _fitting(partial, offered):
        yield Option(_spelled(named.name, _Cursor(partial, quote, (), ())), len(typed), named.about)
