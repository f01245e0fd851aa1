"""ALTER TABLE: which of its operations it is; settings and TTL.

Covers: the choice, MODIFY | RESET SETTING, MODIFY | REMOVE TTL. Does not cover: columns (alter_columns.py,
definitions/kafka.py), rows (alter_rows.py), partitions (alter_partitions.py).
Always holds: what ALTER does to data or columns leaves a line in the audit log, refused or not.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tilth.base.errors import TilthError
from tilth.base.settings import read_settings
from tilth.control.context.audit import audited
from tilth.control.context.names import relation_of, table_of, wrong_kind
from tilth.control.context.services import Call, Services
from tilth.control.context.warehouse_choice import check_named
from tilth.control.kinds import StatementKind
from tilth.grammar import statements as st
from tilth.grammar.alter import parse_alter
from tilth.grammar.parse import Form
from tilth.ingest import IngestSettings, check_allowed, check_group, read_config, reads_elsewhere
from tilth.membership.peers import note_unanswered
from tilth.model.table import KafkaDef, Relation, TableDef, ViewDef, full_name
from tilth.query.results.answer import Outcome, done
from tilth.query.settings import KAFKA_TABLE_SETTINGS, TABLE_SETTINGS, check_together, check_typed
from tilth.statements.alter.alter_columns import alter_columns
from tilth.statements.alter.alter_partitions import drop_partition, undrop_partition
from tilth.statements.alter.alter_rows import alter_rows, check_mutable
from tilth.statements.definitions.clauses import (
    check_computed,
    check_scope_stays,
    check_storage_stays,
    check_ttl,
    expired_at_once,
)
from tilth.statements.definitions.kafka import alter_kafka_columns, ensure_dead_letters
from tilth.statements.definitions.type_defaults import operations_without_null


def alter_table(services: Services, call: Call, statement: st.AlterTable) -> Outcome:
    match statement.operations:
        case (st.ModifySetting(settings=given),):
            return _change_settings(services, call, statement.name, dict(given), ())
        case (st.ResetSetting(names=names),):
            return _change_settings(services, call, statement.name, {}, names)
    what = ", ".join(dict.fromkeys(_spelled(operation) for operation in statement.operations))
    columns = _column_operations(call, statement.operations)
    relation = relation_of(services, call, statement.name)
    if isinstance(relation, KafkaDef) and len(columns) == len(statement.operations):
        with audited(services, call, verb=f"ALTER .. {what}", table=full_name(relation)):
            return alter_kafka_columns(services, call, relation, columns)
    table = table_of(services, call, statement.name, what=f"ALTER TABLE .. {what}")
    with audited(services, call, verb=f"ALTER .. {what}", table=full_name(table)) as audit:
        answer = _altered(services, call, table, statement.operations)
        if isinstance(statement.operations[0], st.ModifyTtl):
            audit.outcome = f"done: {answer.message}"
        return answer


def _altered(services: Services, call: Call, table: TableDef, operations: Sequence[st.AlterOperation]) -> Outcome:
    match operations:
        case (st.ModifyTtl(ttl=ttl),):
            return _change_ttl(services, table, ttl)
        case (st.RemoveTtl(),):
            return _change_ttl(services, table, None)
        case (st.DropPartition(partition=partition),):
            return drop_partition(services, call, table, partition)
        case (st.UndropPartition(partition=partition),):
            return undrop_partition(services, call, table, partition)
        case (st.MutateUpdate() | st.MutateDelete() as operation,):
            check_mutable(table, operation)
            is_waiting = call.settings.mutations_sync > 0
            return alter_rows(services, call, table, operation, is_waiting=is_waiting)
    columns = _column_operations(call, operations)
    # The grammar lets nothing else stand together.
    assert len(columns) == len(operations), operations
    return alter_columns(services, call, table, columns)


def _column_operations(call: Call, operations: Sequence[st.AlterOperation]) -> list[st.ColumnOperation]:
    columns = [operation for operation in operations if isinstance(operation, st.ColumnOperation)]
    return columns if call.settings.data_type_default_nullable else operations_without_null(columns)


def _spelled(operation: st.AlterOperation) -> str:
    """Write `AddColumn` as `ADD COLUMN`, `MutateDelete` as `DELETE`."""
    if isinstance(operation, st.DescribeColumn):
        return "MODIFY COLUMN"
    name = type(operation).__name__.removeprefix("Mutate")
    return "".join(f" {letter}" if letter.isupper() else letter for letter in name).strip().upper()


def _change_settings(
    services: Services, call: Call, name: st.Name, given: dict[str, str], names: tuple[str, ...]
) -> Outcome:
    relation = relation_of(services, call, name)
    verb = "ALTER .. MODIFY SETTING" if given else "ALTER .. RESET SETTING"
    with audited(services, call, verb=verb, table=full_name(relation)):
        return _changed_settings(services, relation, given, names)


def _changed_settings(services: Services, relation: Relation, given: dict[str, str], names: tuple[str, ...]) -> Outcome:
    """Store the settings; a running consumer or service adopts them by itself."""
    match relation:
        case ViewDef():
            raise wrong_kind(relation, what="MODIFY SETTING", needed="a table or a Kafka table")
        case TableDef():
            changes = TABLE_SETTINGS.canonical(given)
            reset = [TABLE_SETTINGS.find(name).name for name in names]
            check_together({name: text for name, text in relation.settings.items() if name not in reset} | changes)
            check_scope_stays(relation, changes, reset)
            check_storage_stays(relation, services.root.of(relation.uuid), changes, reset)
            kept = {name: text for name, text in relation.settings.items() if name not in reset}
            check_computed(msgspec.structs.replace(relation, settings=kept | changes))
            check_named(services, changes)
            services.catalog.tables.modify_settings(relation.uuid, changes, reset)
            services.maintenance.wake()
        case KafkaDef():
            typed = KAFKA_TABLE_SETTINGS.canonical(given)
            check_typed(typed)
            check_named(services, typed)
            changes, secrets = KAFKA_TABLE_SETTINGS.split_secrets(typed)
            reset = [KAFKA_TABLE_SETTINGS.find(name).name for name in names]
            kept = {name: text for name, text in relation.settings.items() if name not in reset}
            changed = msgspec.structs.replace(relation, settings=kept | changes)
            before = services.catalog.secrets.of(relation.uuid).settings
            others = {name: text for name, text in before.items() if name not in {*reset, *changes}}
            config = read_config(changed, others | secrets)
            check_allowed(config, read_settings(IngestSettings, services.node_settings.texts))
            if reads_elsewhere(relation, changed):
                check_group(changed, services.catalog.tables.list())
            ensure_dead_letters(services, changed, config)
            services.catalog.tables.modify_settings(relation.uuid, changes, reset, secrets=secrets)
            try:
                services.consume.adopt_settings(relation.uuid)
            except TilthError as error:
                # The settings are stored: an error would say that they are not.
                note_unanswered(f"the settings are stored; consumers adopt them when they have ended: {error.message}")
    shown = ", ".join([f"{name} = {text}" for name, text in changes.items()] + [f"{name} reset" for name in reset])
    return done(f"settings of {full_name(relation)}: {shown}")


def _change_ttl(services: Services, table: TableDef, ttl: str | None) -> Outcome:
    """Store the TTL; rows go when garbage collection and merges next come by."""
    expired = ""
    if ttl is not None:
        check_ttl(ttl, table.schema, services.clock.now_ms())
        expired = expired_at_once(services, table, ttl)
    services.catalog.tables.modify_ttl(table.uuid, ttl)
    services.maintenance.wake(table.uuid)
    return done(f"TTL of {full_name(table)}: {ttl if ttl is not None else 'none'}{expired}")


KINDS = (StatementKind(value=st.AlterTable, forms=(Form(words="ALTER", parse=parse_alter),), perform=alter_table),)
