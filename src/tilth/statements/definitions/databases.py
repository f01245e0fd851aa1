"""CREATE, DROP and USE DATABASE: a database has nothing but its name.

Tests: tests/unit/statements/definitions/test_tables.py, tests/unit/grammar/test_queries.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilth.catalog import SYSTEM_DATABASE
from tilth.control.context.services import Call, Services
from tilth.control.kinds import StatementKind
from tilth.control.slots import Queue
from tilth.grammar.literals import skip_settings
from tilth.grammar.parse import Form
from tilth.grammar.phrases import read_if_exists, read_if_not_exists, skip_on_cluster, skip_sync
from tilth.grammar.statements import Statement
from tilth.grammar.text.cursor import Cursor
from tilth.query.results.answer import Outcome, done

_DATABASE_ENGINES = ("ATOMIC", "CNCH", "ORDINARY")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDatabase(Statement):
    database: str
    if_not_exists: bool = False
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDatabase(Statement):
    database: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UseDatabase(Statement):
    database: str


def _parse_create(cursor: Cursor) -> CreateDatabase:
    if_not_exists = read_if_not_exists(cursor)
    database = cursor.name("the name of a database")
    skip_on_cluster(cursor)
    if cursor.accept("ENGINE"):
        cursor.expect_symbol("=")
        if not any(cursor.at(word) for word in _DATABASE_ENGINES):
            hint = "leave ENGINE out: rows of other systems are loaded by INSERT or from Kafka"
            raise cursor.refused(f"ENGINE = {cursor.found()} of a database is not supported", hint=hint)
        engine = cursor.choose(*_DATABASE_ENGINES)
        cursor.notice(f"ENGINE = {engine.capitalize()} has no effect: databases are names of the one catalog")
    comment = cursor.string("a comment") if cursor.accept("COMMENT") else ""
    return CreateDatabase(database=database, if_not_exists=if_not_exists, comment=comment)


def _parse_drop(cursor: Cursor) -> DropDatabase:
    if_exists = read_if_exists(cursor)
    database = cursor.name("the name of a database")
    skip_on_cluster(cursor)
    skip_sync(cursor)
    skip_settings(cursor)
    if cursor.at("CASCADE"):
        hint = "DROP TABLE each table and view first; SHOW TABLES FROM the database lists them"
        raise cursor.refused("DROP DATABASE .. CASCADE is not supported", hint=hint)
    return DropDatabase(database=database, if_exists=if_exists)


def _parse_use(cursor: Cursor) -> UseDatabase:
    return UseDatabase(database=cursor.name("the name of a database"))


def create_database(services: Services, call: Call, statement: CreateDatabase) -> Outcome:
    services.catalog.tables.create_database(statement.database, if_not_exists=statement.if_not_exists)
    return done(f"database created: {statement.database}")


def drop_database(services: Services, call: Call, statement: DropDatabase) -> Outcome:
    services.catalog.tables.drop_database(statement.database, if_exists=statement.if_exists)
    return done(f"database dropped: {statement.database}")


def use_database(services: Services, call: Call, statement: UseDatabase) -> Outcome:
    """Check that the database exists: the connection is the client's, and so is its database."""
    known = [*services.catalog.tables.databases(), SYSTEM_DATABASE]
    if statement.database not in known:
        # Raises with the names that are near.
        services.catalog.tables.get(statement.database, "")
    return done(f"database: {statement.database}")


KINDS = (
    StatementKind(
        value=CreateDatabase,
        forms=(Form(words="CREATE DATABASE", also=("CREATE SCHEMA",), parse=_parse_create),),
        perform=create_database,
    ),
    StatementKind(
        value=DropDatabase,
        forms=(Form(words="DROP DATABASE", also=("DROP SCHEMA",), parse=_parse_drop),),
        perform=drop_database,
    ),
    StatementKind(
        value=UseDatabase, forms=(Form(words="USE", parse=_parse_use),), perform=use_database, queue=Queue.WATCH
    ),
)
