"""ALTER TABLE: settings, TTL and partitions here, columns and rows in alter_columns.py.

Always holds: what ALTER does to data or columns leaves a line in the audit log, refused or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import InvalidOperation

import msgspec

from tilth.base.settings import read_settings
from tilth.catalog import DropPartition as HidePartition
from tilth.catalog import UndropPartition as RestorePartition
from tilth.ingest import IngestSettings, check_group, check_library, read_config, reads_elsewhere
from tilth.model.table import KafkaDef, Relation, TableDef, ViewDef, full_name
from tilth.model.types import spark_name
from tilth.sql.context.lifetimes import told_time, trash_lifetime_ms
from tilth.sql.context.services import Call, Services, relation_of, table_of, wrong_kind
from tilth.sql.errors import BadAlterError, BadValueError, PartitionNotFoundError
from tilth.sql.grammar import (
    AlterOperation,
    AlterTable,
    ColumnOperation,
    DescribeColumn,
    DropPartition,
    ModifySetting,
    ModifyTtl,
    MutateDelete,
    MutateUpdate,
    Name,
    Partition,
    PartitionId,
    RemoveTtl,
    ResetSetting,
    UndropPartition,
)
from tilth.sql.language.values import to_bound
from tilth.sql.results.answer import Outcome, done
from tilth.sql.settings import (
    KAFKA_TABLE_SETTINGS,
    TABLE_SETTINGS,
    check_together,
    check_typed,
)
from tilth.sql.statements.alter_columns import alter_columns, alter_rows
from tilth.sql.statements.dead_letters import ensure_dead_letters
from tilth.sql.statements.kafka import alter_kafka_columns
from tilth.sql.statements.ttl import check_ttl, told_expired
from tilth.sql.statements.unique_key import check_scope_stays
from tilth.storage import partition_id, result_type, storage_settings


def alter_table(services: Services, call: Call, statement: AlterTable) -> Outcome:
    match statement.operations:
        case (ModifySetting(settings=given),):
            return _change_settings(services, call, statement.name, dict(given), ())
        case (ResetSetting(names=names),):
            return _change_settings(services, call, statement.name, {}, names)
    what = ", ".join(dict.fromkeys(_spelled(operation) for operation in statement.operations))
    columns = [operation for operation in statement.operations if isinstance(operation, ColumnOperation)]
    relation = relation_of(services, call, statement.name)
    if isinstance(relation, KafkaDef) and len(columns) == len(statement.operations):
        with services.audited(call, verb=f"ALTER .. {what}", table=full_name(relation)):
            return alter_kafka_columns(services, call, relation, columns)
    table = table_of(services, call, statement.name, what=f"ALTER TABLE .. {what}")
    with services.audited(call, verb=f"ALTER .. {what}", table=full_name(table)) as audit:
        answer = _altered(services, call, table, statement.operations)
        if isinstance(statement.operations[0], ModifyTtl):
            audit.outcome = f"done: {answer.message}"
        return answer


def _altered(services: Services, call: Call, table: TableDef, operations: Sequence[AlterOperation]) -> Outcome:
    match operations:
        case (ModifyTtl(ttl=ttl),):
            return _change_ttl(services, table, ttl)
        case (RemoveTtl(),):
            return _change_ttl(services, table, None)
        case (DropPartition(partition=partition),):
            return _drop_partition(services, table, partition)
        case (UndropPartition(partition=partition),):
            return _undrop_partition(services, table, partition)
        case (MutateUpdate() | MutateDelete() as operation,):
            _check_mutable(table, operation)
            is_waiting = call.settings.mutations_sync > 0
            return alter_rows(services, call, table, operation, is_waiting=is_waiting)
    columns = [operation for operation in operations if isinstance(operation, ColumnOperation)]
    # The grammar lets nothing else stand together.
    assert len(columns) == len(operations), operations
    return alter_columns(services, call, table, columns)


def _check_mutable(table: TableDef, operation: MutateUpdate | MutateDelete) -> None:
    """Raises BadAlterError for a table with a unique key: parts that are rewritten much later than the statement was
    said would mix its effect with that of newer upserts."""
    if table.unique_key:
        verb, instead = (
            ("UPDATE", "UPDATE t SET ..") if isinstance(operation, MutateUpdate) else ("DELETE", "DELETE FROM t")
        )
        raise BadAlterError(
            f"ALTER TABLE .. {verb} is not for tables with a UNIQUE KEY",
            table=full_name(table),
            hint=f"write {instead} WHERE ..: it changes the rows at once",
        )


def _spelled(operation: AlterOperation) -> str:
    """`AddColumn` as `ADD COLUMN`, `MutateDelete` as `DELETE`."""
    if isinstance(operation, DescribeColumn):
        return "MODIFY COLUMN"
    name = type(operation).__name__.removeprefix("Mutate")
    return "".join(f" {letter}" if letter.isupper() else letter for letter in name).strip().upper()


def _change_settings(
    services: Services, call: Call, name: Name, given: dict[str, str], names: tuple[str, ...]
) -> Outcome:
    relation = relation_of(services, call, name)
    verb = "ALTER .. MODIFY SETTING" if given else "ALTER .. RESET SETTING"
    with services.audited(call, verb=verb, table=full_name(relation)):
        return _changed_settings(services, relation, given, names)


def _changed_settings(services: Services, relation: Relation, given: dict[str, str], names: tuple[str, ...]) -> Outcome:
    """A running consumer or service takes them over by itself."""
    match relation:
        case ViewDef():
            raise wrong_kind(relation, what="MODIFY SETTING", needed="a table or a Kafka table")
        case TableDef():
            changes = TABLE_SETTINGS.canonical(given)
            reset = [TABLE_SETTINGS.find(name).name for name in names]
            check_together({name: text for name, text in relation.settings.items() if name not in reset} | changes)
            check_scope_stays(relation, changes, reset)
            services.catalog.tables.modify_settings(relation.uuid, changes, reset)
            services.maintenance.wake()
        case KafkaDef():
            typed = KAFKA_TABLE_SETTINGS.canonical(given)
            check_typed(typed)
            changes, secrets = KAFKA_TABLE_SETTINGS.parted(typed)
            reset = [KAFKA_TABLE_SETTINGS.find(name).name for name in names]
            kept = {name: text for name, text in relation.settings.items() if name not in reset}
            changed = msgspec.structs.replace(relation, settings=kept | changes)
            before = services.catalog.secrets.of(relation.uuid).settings
            others = {name: text for name, text in before.items() if name not in {*reset, *changes}}
            config = read_config(changed, others | secrets)
            check_library(config, read_settings(IngestSettings, services.node_settings.texts).certificates_folder)
            if reads_elsewhere(relation, changed):
                check_group(changed, services.catalog.tables.list())
            ensure_dead_letters(services, changed, config)
            services.catalog.tables.modify_settings(relation.uuid, changes, reset, secrets=secrets)
            services.consume.restart(relation.uuid)
    told = ", ".join([f"{name} = {text}" for name, text in changes.items()] + [f"{name} reset" for name in reset])
    return done(f"settings of {full_name(relation)}: {told}")


def _change_ttl(services: Services, table: TableDef, ttl: str | None) -> Outcome:
    """Rows go when garbage collection and merges next come by."""
    expired = ""
    if ttl is not None:
        check_ttl(ttl, table.schema, services.clock.now_ms())
        expired = told_expired(services, table, ttl)
    services.catalog.tables.modify_ttl(table.uuid, ttl)
    services.maintenance.wake(table.uuid)
    return done(f"TTL of {full_name(table)}: {ttl if ttl is not None else 'none'}{expired}")


def _drop_partition(services: Services, table: TableDef, partition: Partition) -> Outcome:
    name = partition_named(services, table, partition)
    services.catalog.transactions.apply(
        f"drop partition {full_name(table)} {name}", [HidePartition(table=table.uuid, partition=name)]
    )
    # What still runs there could not commit any more.
    services.maintenance.cancel_partition(table.uuid, name)
    services.maintenance.wake(table.uuid)
    until = told_time(services.clock.now_ms() + trash_lifetime_ms(table))
    return done(f"partition dropped: {name} of {full_name(table)}; UNDROP PARTITION brings it back until {until}")


def _undrop_partition(services: Services, table: TableDef, partition: Partition) -> Outcome:
    if table.unique_key and not storage_settings(table).partition_level_unique_keys:
        raise BadAlterError(
            "UNDROP PARTITION is not for tables whose keys are unique in the whole table",
            table=full_name(table),
            hint="other partitions may have got rows with the same keys since: insert what is missing anew",
        )
    if isinstance(partition, PartitionId):
        name = partition.id
    else:
        name = _id_of_values(table, partition.values, services.catalog.parts.partitions(table.uuid))
    update = RestorePartition(table=table.uuid, partition=name)
    services.catalog.transactions.apply(f"undrop partition {full_name(table)} {name}", [update])
    services.maintenance.wake(table.uuid)
    return done(f"partition back again: {name} of {full_name(table)}")


def partition_named(services: Services, table: TableDef, partition: Partition) -> str:
    """The id of a partition that exists; raises PartitionNotFoundError, BadValueError."""
    known = services.catalog.parts.partitions(table.uuid)
    wanted = partition.id if isinstance(partition, PartitionId) else _id_of_values(table, partition.values, known)
    if wanted not in known:
        raise PartitionNotFoundError(
            partition=wanted,
            table=full_name(table),
            hint="system.partitions lists them; PARTITION ID 'x' takes an id as it stands there",
        )
    return wanted


def _id_of_values(table: TableDef, values: tuple[object, ...], known: list[str]) -> str:
    """By the values of PARTITION BY; an id as system.partitions shows it is taken too, where it is the only value."""
    if len(values) == 1 and str(values[0]) in known:
        return str(values[0])
    if len(values) != len(table.partition_by):
        raise BadValueError(
            "a partition has one value for each element of PARTITION BY",
            values=len(values),
            elements=len(table.partition_by),
        )
    bounds = []
    for transform, value in zip(table.partition_by, values, strict=True):
        column = table.schema.find(transform.column)
        assert column is not None
        kind = result_type(transform, column.type)
        try:
            bounds.append(to_bound(value, kind))
        except (ValueError, InvalidOperation, OverflowError) as error:
            raise BadValueError(
                "no value of this partition element",
                element=f"{transform.kind.value}({transform.column})",
                type=spark_name(kind),
                given=repr(value),
                why=error,
            ) from error
    return partition_id(table.schema, table.partition_by, bounds)
