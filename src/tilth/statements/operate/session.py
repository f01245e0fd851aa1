"""Statements that change nothing in the node: SET, and what is always done already.

Covers: their answers, the settings that a statement names. Does not cover: keeping what SET says, which clients do.
"""

from __future__ import annotations

from tilth.control.context.services import Call, Services
from tilth.grammar.statements import (
    AlterTable,
    CreateTable,
    CreateView,
    DeleteRows,
    InsertData,
    InsertQuery,
    InsertValues,
    ModifySetting,
    NothingToDo,
    Query,
    SetSettings,
    Statement,
    UpdateRows,
)
from tilth.query.errors import BadValueError, WrongKindOfTableError
from tilth.query.results.answer import Outcome
from tilth.query.settings import session_settings

#: A client is handed the settings in a header.
CHARACTERS_MAX = 4_000
_FLUSH_LOGS = "SYSTEM FLUSH LOGS"


def set_settings(services: Services, statement: SetSettings) -> Outcome:
    """The settings, checked, for the client to send with the statements that follow.

    Raises UnknownSettingError, BadSettingError, NotAllowedError and WarehouseNotFoundError.
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
    match statement:
        case AlterTable(operations=operations, settings=settings):
            changed = [name for each in operations if isinstance(each, ModifySetting) for name, _ in each.settings]
            return (*changed, *(name for name, _ in settings))
        case (
            CreateTable(settings=settings)
            | CreateView(settings=settings)
            | Query(settings=settings)
            | InsertValues(settings=settings)
            | InsertQuery(settings=settings)
            | InsertData(settings=settings)
            | DeleteRows(settings=settings)
            | UpdateRows(settings=settings)
            | SetSettings(settings=settings)
        ):
            return tuple(name for name, _ in settings)
        case _:
            return ()
