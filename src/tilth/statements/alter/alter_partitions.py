"""ALTER TABLE .. DROP | UNDROP PARTITION, and the partition that a statement names.

Covers: names of partitions, by id or by values; the commit of both statements. Does not cover: what goes when from the
trash (tilth.maintenance).

Tests: tests/unit/statements/alter/test_alter.py.
"""

from __future__ import annotations

from decimal import InvalidOperation

from tilth.base.errors import NotFoundError
from tilth.base.units import show_time
from tilth.catalog import HidePartition, RestorePartition
from tilth.control.context.lifetimes import trash_lifetime_ms
from tilth.control.context.services import Call, Services
from tilth.formats import BadValueError
from tilth.grammar.statements import Partition, PartitionId
from tilth.model.table import TableDef, full_name
from tilth.model.types import spark_name
from tilth.query.language.values import to_bound
from tilth.query.results.answer import Outcome, done
from tilth.statements.errors import BadAlterError
from tilth.storage import partition_id, result_type, storage_settings


def drop_partition(services: Services, call: Call, table: TableDef, partition: Partition) -> Outcome:
    name = partition_named(services, table, partition)
    services.catalog.transactions.apply(
        f"drop partition {full_name(table)} {name} by {call.query_id}",
        [HidePartition(table=table.uuid, partition=name)],
    )
    # Tasks that still run there could not commit any more.
    services.maintenance.cancel_partition(table.uuid, name)
    services.maintenance.wake(table.uuid)
    until = show_time(services.clock.now_ms() + trash_lifetime_ms(table))
    return done(f"partition dropped: {name} of {full_name(table)}; UNDROP PARTITION brings it back until {until}")


def undrop_partition(services: Services, call: Call, table: TableDef, partition: Partition) -> Outcome:
    if table.unique_key and not storage_settings(table).partition_level_unique_keys:
        raise BadAlterError(
            "UNDROP PARTITION cannot be used for tables whose keys are unique in the whole table",
            table=full_name(table),
            hint="other partitions may have rows with the same keys by now: insert missing rows again",
        )
    if isinstance(partition, PartitionId):
        name = partition.id
    else:
        name = _id_of_values(table, partition.values, services.catalog.parts.partitions(table.uuid))
    update = RestorePartition(table=table.uuid, partition=name)
    services.catalog.transactions.apply(f"undrop partition {full_name(table)} {name} by {call.query_id}", [update])
    services.maintenance.wake(table.uuid)
    return done(f"partition restored: {name} of {full_name(table)}")


def partition_named(services: Services, table: TableDef, partition: Partition) -> str:
    """Id of a partition that exists; raises NotFoundError, BadValueError."""
    known = services.catalog.parts.partitions(table.uuid)
    wanted = partition.id if isinstance(partition, PartitionId) else _id_of_values(table, partition.values, known)
    if wanted not in known:
        raise NotFoundError.coded(
            "PARTITION_NOT_FOUND",
            "no such partition",
            partition=wanted,
            table=full_name(table),
            hint="system.partitions lists them; PARTITION ID 'x' takes an id from there",
        )
    return wanted


def _id_of_values(table: TableDef, values: tuple[object, ...], known: list[str]) -> str:
    """Find a partition by the values of PARTITION BY, or by its id from system.partitions, if that stands alone."""
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
        kind = result_type(transform, column)
        try:
            bounds.append(to_bound(value, kind))
        except (ValueError, InvalidOperation, OverflowError) as error:
            raise BadValueError(
                "no value of this partition element",
                element=f"{transform.kind.value}({transform.column})",
                type=column.declared_type if kind == column.type else spark_name(kind),
                given=repr(value),
                why=error,
            ) from error
    return partition_id(table.schema, table.partition_by, bounds)
