"""Names of a statement, resolved to relations of the catalog, of the kind that the statement needs.

Covers: names without a database, what cannot be changed. Does not cover: names in a query, which Spark's parser finds
(query/worker/relations.py).

Tests: tests/unit/statements/definitions/test_tables.py.
"""

from __future__ import annotations

from tilth.base.errors import ConflictError
from tilth.catalog import SYSTEM_DATABASE
from tilth.control.context.services import Call, Services
from tilth.grammar.statements import Name
from tilth.model.table import KafkaDef, Relation, TableDef, ViewDef, full_name
from tilth.query.errors import WrongKindOfTableError


def database_and_name(call: Call, name: Name) -> tuple[str, str]:
    """Database and table that a name means; raises ConflictError for what cannot be defined or changed."""
    database = name.database or call.database
    if database.lower() == SYSTEM_DATABASE:
        raise ConflictError.coded("READ_ONLY", "system tables cannot be changed", table=f"{database}.{name.table}")
    return database, name.table


def relation_of(services: Services, call: Call, name: Name) -> Relation:
    """Raises DatabaseNotFoundError or TableNotFoundError."""
    return services.catalog.tables.get(*database_and_name(call, name))


def table_of(services: Services, call: Call, name: Name, *, what: str) -> TableDef:
    """Raises WrongKindOfTableError, which names `what` cannot be done, for a relation that stores no rows."""
    relation = relation_of(services, call, name)
    if not isinstance(relation, TableDef):
        raise wrong_kind(relation, what=what, needed="a MergeTree table")
    return relation


def kafka_of(services: Services, call: Call, name: Name, *, what: str) -> KafkaDef:
    """Raises WrongKindOfTableError, which names `what` cannot be done, for a relation that is no Kafka table."""
    relation = relation_of(services, call, name)
    if not isinstance(relation, KafkaDef):
        raise wrong_kind(relation, what=what, needed="a Kafka table")
    return relation


def wrong_kind(relation: Relation, *, what: str, needed: str) -> WrongKindOfTableError:
    """Return an error that names what is needed; a view's hint names the table behind it."""
    match relation:
        case KafkaDef():
            hint = (
                "a Kafka table stores nothing: name the table that its view writes into, or send messages to its topic"
            )
        case TableDef():
            hint = "DESCRIBE t shows what a table is"
        case ViewDef():
            hint = "name the table that the view writes into"
    return WrongKindOfTableError(
        f"{what} needs {needed}", table=full_name(relation), engine=relation.engine.value, hint=hint
    )
