"""Statements that change nothing in the node: SET, and what is always done already.

Covers: their answers, the settings that a statement names. Does not cover: keeping what SET says, which clients do.

Tests: tests/unit/grammar/test_grammar_foreign.py, tests/unit/statements/test_sql_words.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilth.control.context.services import Call, Services
from tilth.control.kinds import StatementKind
from tilth.control.slots import Queue
from tilth.formats import BadValueError
from tilth.grammar.literals import parse_setting_value
from tilth.grammar.parse import Form
from tilth.grammar.phrases import parse_name
from tilth.grammar.statements import AlterTable, CreateTable, ModifySetting, SettingTexts, Statement, WithSettings
from tilth.grammar.text.cursor import Cursor
from tilth.query.errors import WrongKindOfTableError
from tilth.query.results.answer import Outcome
from tilth.query.settings import session_settings

#: A client is handed the settings in a header.
CHARACTERS_MAX = 4_000
_FLUSH_LOGS = "SYSTEM FLUSH LOGS"
#: Statements that are always fulfilled, with the reason.
_NOTHING_TO_DO = {
    "SYSTEM FLUSH LOGS": "system tables are always up to date",
    "SYSTEM FLUSH ASYNC INSERT QUEUE": "an INSERT is answered when its rows are stored",
    "SYSTEM FLUSH DISTRIBUTED": "an INSERT is answered when its rows are stored",
    "SYSTEM SYNC REPLICA": "every server sees the one catalog",
    "SYSTEM SYNC DATABASE REPLICA": "every server sees the one catalog",
    "SYSTEM RESTART REPLICA": "every server sees the one catalog",
    "SYSTEM RESTART REPLICAS": "every server sees the one catalog",
}
#: Maximum number of words between DROP and CACHE in the name of a cache.
_CACHE_WORDS_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSettings(Statement):
    """SET: for the statements of this connection that follow."""

    settings: SettingTexts


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingToDo(Statement):
    """A statement whose purpose is always fulfilled here."""

    #: Statement as written, in upper case.
    words: str
    #: Reason why there is nothing to do.
    reason: str


def _parse_set(cursor: Cursor) -> SetSettings:
    settings: dict[str, str] = {}
    while True:
        token = cursor.peek()
        name = cursor.name("the name of a setting")
        while cursor.accept_symbol("."):
            name = f"{name}.{cursor.name('the name of a setting')}"
        if name in settings:
            raise cursor.error(f"setting {name} is given twice", at=token)
        if not cursor.accept_symbol("="):
            raise cursor.expected("'='", hint="write SET name = value; SHOW SETTINGS lists the settings")
        settings[name] = parse_setting_value(cursor)
        if not cursor.accept_symbol(","):
            return SetSettings(settings=tuple(settings.items()))


def _parse_nothing(words: str) -> Callable[[Cursor], NothingToDo]:
    def parse(cursor: Cursor) -> NothingToDo:
        if words.endswith(("REPLICA", "DISTRIBUTED")) and cursor.is_name():
            parse_name(cursor)
        return NothingToDo(words=words, reason=_NOTHING_TO_DO[words])

    return parse


def _parse_drop(cursor: Cursor) -> NothingToDo:
    """`DROP MARK CACHE`, `DROP CNCH PART CACHE t` and their kin."""
    count = next((at for at in range(1, _CACHE_WORDS_MAX + 1) if cursor.is_word("CACHE", at)), 0)
    if not count or not all(cursor.is_name(at) for at in range(count)):
        hint = "SYSTEM RESET CONSUME OFFSET changes offsets, DROP TABLE drops tables"
        raise cursor.refused("SYSTEM DROP is not supported", hint=hint)
    words = " ".join(cursor.advance().text.upper() for _ in range(count + 1))
    if cursor.is_name():
        parse_name(cursor)
    return NothingToDo(words=f"SYSTEM DROP {words}", reason="there is no such cache")


def set_settings(services: Services, call: Call, statement: SetSettings) -> Outcome:
    """The settings, checked, for the client to send with the statements that follow.

    Raises UnknownSettingError, BadSettingError, NotAllowedError and NotFoundError (WAREHOUSE_NOT_FOUND).
    """
    given = dict(statement.settings)
    if sum(len(name) + len(text) for name, text in given.items()) > CHARACTERS_MAX:
        hint = "put long values into SETTINGS of the statement that needs them"
        raise BadValueError("SET is too long", allowed=f"{CHARACTERS_MAX} characters", hint=hint)
    checked = session_settings(given)
    for name in (checked.warehouse, checked.write_warehouse):
        if name:
            services.dispatcher.warehouse_named(name)
    shown = ", ".join(f"{name} = {text}" for name, text in given.items())
    notice = "the client keeps it for this connection; over plain HTTP, send it as a parameter: ?name=value"
    return Outcome(message=f"set: {shown}", connection_settings=given, notices=(notice,))


def nothing_to_do(services: Services, call: Call, statement: NothingToDo) -> Outcome:
    """Raises WrongKindOfTableError where the words may mean a table of the user."""
    if statement.words == _FLUSH_LOGS:
        for name in ("logs", "LOGS"):
            if services.catalog.tables.find(call.database, name) is not None:
                hint = f"write SYSTEM FLUSH {call.database}.{name} for the table; system tables need no flush"
                raise WrongKindOfTableError("SYSTEM FLUSH LOGS may mean two things", table=name, hint=hint)
    return Outcome(message=f"nothing to do: {statement.reason}", notices=(f"{statement.words} has no effect",))


def named_settings(statement: Statement) -> tuple[str, ...]:
    """Return the names of all settings that a statement gives values to, for itself, its connection or its table."""
    match statement:
        case AlterTable(operations=operations, settings=settings):
            changed = [name for each in operations if isinstance(each, ModifySetting) for name, _ in each.settings]
            return (*changed, *(name for name, _ in settings))
        case CreateTable(settings=settings) | SetSettings(settings=settings) | WithSettings(settings=settings):
            return tuple(name for name, _ in settings)
        case _:
            return ()


KINDS = (
    StatementKind(
        value=SetSettings, forms=(Form(words="SET", parse=_parse_set),), perform=set_settings, queue=Queue.WATCH
    ),
    StatementKind(
        value=NothingToDo,
        forms=(
            *(Form(words=words, parse=_parse_nothing(words), is_listed=False) for words in _NOTHING_TO_DO),
            Form(words="SYSTEM DROP", parse=_parse_drop, is_listed=False),
        ),
        perform=nothing_to_do,
        queue=Queue.WATCH,
    ),
)
