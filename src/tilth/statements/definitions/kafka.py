"""Kafka tables: the table that takes their broken messages, and ALTER TABLE of their columns.

Covers: finding or making the dead-letter table; ADD | DROP | MODIFY | RENAME COLUMN: what the columns become, whether
the views still fit, the commit. Does not cover: columns of tables of rows (alter/alter_columns.py), consumers, which
take the new columns over by themselves (tilth.ingest).
Always holds: nothing is stored, so any change goes that the format can fill; but nothing is made before every view that
reads the table was checked by a worker, and a view fills afterwards at least the columns that it filled before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from tilth.catalog import TableInUseError
from tilth.control.context.services import Call, Services, run_on_worker
from tilth.grammar.statements import AddColumn, ColumnOperation, DescribeColumn, DropColumn, ModifyColumn, RenameColumn
from tilth.ingest import (
    DEAD_LETTER_SCHEMA,
    KafkaConfig,
    ViewError,
    accepts_dead_letters,
    check_kafka,
    dead_letter_table,
    read_config,
)
from tilth.model.table import KafkaDef, Schema, TableDef, ViewDef, full_name
from tilth.query.errors import BadDefinitionError
from tilth.query.results.answer import Outcome, done
from tilth.query.snapshots.protocol import CheckTask
from tilth.statements.definitions.columns import (
    NewColumns,
    column_of,
    described,
    find_in,
    replaced,
    with_column,
    with_default,
)
from tilth.statements.definitions.storages import create_in_storage
from tilth.statements.errors import BadAlterError
from tilth.statements.inserts.defaults import altered

_OTHER_NAME = "choose another name"
_AGAIN = "drop the view (DROP VIEW), alter the table, and create the view again; offsets are kept"
#: The values of kafka_handle_error_mode that need such a table.
_WITH_TABLE = ("dead_letter", "stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterTable:
    #: None: the Kafka table has none.
    table: TableDef | None
    is_new: bool


def alter_kafka_columns(
    services: Services, call: Call, kafka: KafkaDef, operations: Sequence[ColumnOperation]
) -> Outcome:
    """All operations in one commit, with the columns that views fill by them.

    From the commit on no message is read by the old columns: a consumer that has them is refused its next round.
    """
    new = changed_columns(kafka, operations)
    schema = kafka.schema
    if new is not None:
        schema = altered(services, call, full_name(kafka), kafka.schema, new.schema, is_kafka=True)
    if new is None or schema == kafka.schema:
        return done(f"nothing to change in {full_name(kafka)}")
    wanted = msgspec.structs.replace(kafka, schema=schema, next_column_id=new.next_column_id)
    check_kafka(wanted)
    views = [_checked(services, view, kafka, wanted) for view in services.catalog.tables.views_of(kafka.uuid)]
    services.catalog.tables.alter_kafka(kafka, schema, next_column_id=new.next_column_id, views=views)
    services.consume.wake(kafka.uuid)
    return done(f"columns changed: {full_name(kafka)}; new messages are read with them")


def changed_columns(kafka: KafkaDef, operations: Sequence[ColumnOperation]) -> NewColumns | None:
    """The columns after all operations, each on what those before it have made; None: nothing changes. Pure.

    Raises BadAlterError, UnknownColumnError, BadValueError.
    """
    now = NewColumns(kafka.schema, kafka.free_column_id)
    for operation in operations:
        match operation:
            case AddColumn():
                now = _added(kafka, now, operation)
            case DropColumn():
                now = _dropped(kafka, now, operation)
            case ModifyColumn():
                now = _modified(now, operation)
            case DescribeColumn():
                now = _described(now, operation)
            case RenameColumn():
                now = _renamed(kafka, now, operation)
    return None if now.schema == kafka.schema else now


def _added(kafka: KafkaDef, now: NewColumns, operation: AddColumn) -> NewColumns:
    spec = operation.column
    if now.schema.find(spec.name) is not None:
        if operation.if_not_exists:
            return now
        hint = "ADD COLUMN IF NOT EXISTS keeps the column as it is"
        raise BadAlterError("the column exists already", table=full_name(kafka), column=spec.name, hint=hint)
    return with_column(now, operation)


def _dropped(kafka: KafkaDef, now: NewColumns, operation: DropColumn) -> NewColumns:
    if operation.if_exists and now.schema.find(operation.column) is None:
        return now
    column = find_in(now.schema, operation.column)
    if len(now.schema.columns) == 1:
        hint = "DROP TABLE drops all of it; offsets are kept for its group"
        raise BadAlterError(
            "the last column of a Kafka table cannot be dropped", table=full_name(kafka), column=column.name, hint=hint
        )
    return replace(now, schema=Schema(columns=tuple(each for each in now.schema.columns if each is not column)))


def _modified(now: NewColumns, operation: ModifyColumn) -> NewColumns:
    """Change type and NULL to what is written; DEFAULT and COMMENT stay unless they are written, too."""
    spec = operation.column
    if operation.if_exists and now.schema.find(spec.name) is None:
        return now
    old = find_in(now.schema, spec.name)
    new = column_of(spec, old.id)
    if spec.default is None:
        new = with_default(new, old)
    new = msgspec.structs.replace(new, name=old.name, comment=spec.comment or old.comment)
    return replaced(now, old, new)


def _described(now: NewColumns, operation: DescribeColumn) -> NewColumns:
    if operation.if_exists and now.schema.find(operation.column) is None:
        return now
    old = find_in(now.schema, operation.column)
    return replaced(now, old, described(old, operation))


def _renamed(kafka: KafkaDef, now: NewColumns, operation: RenameColumn) -> NewColumns:
    if operation.if_exists and now.schema.find(operation.old) is None:
        return now
    old = find_in(now.schema, operation.old)
    existing = now.schema.find(operation.new)
    if existing is not None and existing is not old:
        raise BadAlterError("the column exists already", table=full_name(kafka), column=existing.name, hint=_OTHER_NAME)
    return replaced(now, old, msgspec.structs.replace(old, name=operation.new))


def _checked(services: Services, view: ViewDef, kafka: KafkaDef, wanted: KafkaDef) -> tuple[ViewDef, TableDef]:
    """The view with the columns that it fills now, and its target. Raises TableInUseError where it would not fit, or
    would leave a column out that it fills.
    """
    target = services.catalog.tables.by_id(view.target)
    assert isinstance(target, TableDef), "a view's target is there as long as the view is"
    task = CheckTask(
        view=full_name(view),
        kafka=wanted,
        target=target,
        select=view.select,
        target_columns=view.target_columns,
    )
    try:
        filled = msgspec.msgpack.decode(run_on_worker(services, task), type=tuple[tuple[str, int], ...])
    except ViewError as error:
        raise _in_use(view, kafka, wanted, target, error) from error
    lost = {identity for _, identity in view.target_columns} - {identity for _, identity in filled}
    left_out = [column.name for column in target.schema.columns if column.id in lost]
    if left_out:
        raise TableInUseError(
            "a view would no longer fill a column of its target",
            table=full_name(kafka),
            view=full_name(view),
            target=full_name(target),
            column=left_out[0],
            hint=_AGAIN,
        )
    return msgspec.structs.replace(view, target_columns=filled), target


def _in_use(view: ViewDef, kafka: KafkaDef, wanted: KafkaDef, target: TableDef, error: ViewError) -> TableInUseError:
    column = error.facts.get("column", "")
    is_new = wanted.schema.find(column) is not None and kafka.schema.find(column) is None
    hint = _AGAIN
    if is_new and target.schema.find(column) is None:
        hint = (
            f"the view takes every column: ALTER TABLE {full_name(target)} ADD COLUMN {column} .. first, or name the "
        )
        hint += "columns in its SELECT"
    return TableInUseError(
        "a view does not fit these columns",
        table=full_name(kafka),
        view=full_name(view),
        why=error.message,
        hint=hint,
    )


def ensure_dead_letters(services: Services, kafka: KafkaDef, config: KafkaConfig) -> DeadLetterTable:
    """The dead-letter table that the Kafka table's settings name, made if it is missing.

    Raises BadDefinitionError where a relation of its name cannot take dead letters.
    """
    if config.error_mode.value not in _WITH_TABLE:
        return DeadLetterTable(table=None, is_new=False)
    found = services.catalog.tables.find(kafka.database, config.dead_letter_table)
    if found is not None:
        if not isinstance(found, TableDef) or not accepts_dead_letters(found):
            raise BadDefinitionError(
                "this table cannot take dead letters",
                table=full_name(found),
                hint="name another one by kafka_dead_letter_table, or give it the columns "
                f"{DEAD_LETTER_SCHEMA.spark_ddl}",
            )
        return DeadLetterTable(table=found, is_new=False)
    new = dead_letter_table(kafka, config, uuid=services.ids(), now_ms=services.clock.now_ms())
    return DeadLetterTable(table=create_in_storage(services, new), is_new=True)


def has_dead_letters_in(kafka: KafkaDef, table: TableDef) -> bool:
    """True if the Kafka table's broken messages go into this table."""
    config = read_config(kafka)
    name = config.dead_letter_table if config.error_mode.value in _WITH_TABLE else None
    return (kafka.database, name) == (table.database, table.name)
