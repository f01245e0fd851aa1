"""CREATE MATERIALIZED VIEW: from one Kafka table into one table.

Always holds: the SELECT is analysed by a worker before the view exists; a column that does not fit is named.
"""

from __future__ import annotations

import msgspec

from tilth.model.table import KafkaDef, ViewDef, full_name
from tilth.sql.context.services import Call, Services, place_of, table_of, wrong_kind
from tilth.sql.errors import BadDefinitionError
from tilth.sql.grammar import CreateView
from tilth.sql.query.desk import qualified
from tilth.sql.query.protocol import CheckTask, NamesTask
from tilth.sql.results.answer import Outcome, done
from tilth.sql.statements.select import ask_worker
from tilth.sql.statements.tables import find_column


def create_view(services: Services, call: Call, statement: CreateView) -> Outcome:
    database, name = place_of(call, statement.name)
    existing = services.catalog.tables.find(database, name)
    if existing is not None and statement.if_not_exists:
        return done(f"exists already: {full_name(existing)}")
    target = table_of(services, call, statement.target, what="CREATE MATERIALIZED VIEW .. TO")
    for column in statement.columns:
        find_column(target.schema, column, "the view's columns")
    kafka = _source(services, call, statement, f"{database}.{name}")
    filled = ask_worker(
        services, CheckTask(view=f"{database}.{name}", kafka=kafka, target=target, select=statement.select)
    )
    view = ViewDef(
        uuid="",
        database=database,
        name=name,
        source=kafka.uuid,
        target=target.uuid,
        select=statement.select,
        quotes_names=True,
        target_columns=msgspec.msgpack.decode(filled, type=tuple[tuple[str, int], ...]),
        comment=statement.comment,
        created_ms=services.clock.now_ms(),
    )
    made = services.catalog.tables.create(view, if_not_exists=statement.if_not_exists)
    services.consume.wake(kafka.uuid)
    return done(f"view created: {full_name(made)}, from {full_name(kafka)} into {full_name(target)}")


def _source(services: Services, call: Call, statement: CreateView, view: str) -> KafkaDef:
    """The Kafka table that the SELECT reads."""
    payload = ask_worker(services, NamesTask(text=statement.select))
    names = [qualified(name, call.database) for name in msgspec.msgpack.decode(payload, type=list[tuple[str, ...]])]
    if len(set(names)) != 1:
        raise BadDefinitionError(
            "a materialized view reads exactly one Kafka table",
            view=view,
            reads=", ".join(f"{database}.{table}" for database, table in dict.fromkeys(names)) or "nothing",
        )
    relation = services.catalog.tables.get(*names[0])
    if not isinstance(relation, KafkaDef):
        raise wrong_kind(relation, what="a materialized view's SELECT", needed="a Kafka table")
    return relation
