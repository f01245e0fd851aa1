"""ALTER TABLE, as far as it exists: settings and partitions."""

from __future__ import annotations

from decimal import InvalidOperation

import msgspec

from tilth.catalog import DropPartition as HidePartition
from tilth.ingest import KAFKA_SETTINGS, read_config
from tilth.model.table import KafkaDef, Relation, TableDef, ViewDef, full_name
from tilth.model.types import spark_name
from tilth.sql.answer import Outcome, done
from tilth.sql.dead_letters import ensure_dead_letters
from tilth.sql.errors import BadValueError, NotSupportedYetError, PartitionNotFoundError
from tilth.sql.grammar import AlterTable, DropPartition, ModifySetting, Partition, PartitionId, ResetSetting
from tilth.sql.services import Call, Services, relation_of, table_of, wrong_kind
from tilth.sql.settings import TABLE_SETTINGS
from tilth.sql.values import to_bound
from tilth.storage import partition_id, result_type


def alter_table(services: Services, call: Call, statement: AlterTable) -> Outcome:
    match statement.operations:
        case (ModifySetting(settings=given),):
            return _change_settings(services, relation_of(services, call, statement.name), dict(given), ())
        case (ResetSetting(names=names),):
            return _change_settings(services, relation_of(services, call, statement.name), {}, names)
        case (DropPartition(partition=partition),):
            table = table_of(services, call, statement.name, what="DROP PARTITION")
            return _drop_partition(services, table, partition)
        case (first, *_):
            raise NotSupportedYetError(statement=f"ALTER TABLE .. {_spelled(type(first).__name__)}")
    raise AssertionError(statement)


def _spelled(name: str) -> str:
    """`AddColumn` as `ADD COLUMN`."""
    return "".join(f" {letter}" if letter.isupper() else letter for letter in name).strip().upper()


def _change_settings(services: Services, relation: Relation, given: dict[str, str], names: tuple[str, ...]) -> Outcome:
    """A running consumer or service takes them over by itself."""
    match relation:
        case ViewDef():
            raise wrong_kind(relation, what="MODIFY SETTING", needed="a table or a Kafka table")
        case TableDef():
            changes = TABLE_SETTINGS.canonical(given)
            reset = [TABLE_SETTINGS.find(name).name for name in names]
            services.catalog.tables.modify_settings(relation.uuid, changes, reset)
            services.maintenance.wake()
        case KafkaDef():
            changes = KAFKA_SETTINGS.canonical(given)
            reset = [KAFKA_SETTINGS.find(name).name for name in names]
            kept = {name: text for name, text in relation.settings.items() if name not in reset}
            changed = msgspec.structs.replace(relation, settings=kept | changes)
            ensure_dead_letters(services, changed, read_config(changed))
            services.catalog.tables.modify_settings(relation.uuid, changes, reset)
            services.consume.restart(relation.uuid)
    told = ", ".join([f"{name} = {text}" for name, text in changes.items()] + [f"{name} reset" for name in reset])
    return done(f"settings of {full_name(relation)}: {told}")


def _drop_partition(services: Services, table: TableDef, partition: Partition) -> Outcome:
    name = partition_named(services, table, partition)
    transactions = services.catalog.transactions
    txn = transactions.begin(f"drop partition {full_name(table)} {name}")
    transactions.commit_or_raise(txn.id, [HidePartition(table=table.uuid, partition=name)])
    services.maintenance.wake()
    return done(f"partition dropped: {name} of {full_name(table)}")


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
