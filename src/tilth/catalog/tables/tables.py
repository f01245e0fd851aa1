"""Databases, tables, Kafka tables and views by name and by uuid.

Covers: definitions and names. Does not cover: content (parts/parts.py, offsets/offsets.py). Always holds: a name leads
to one relation; a view's source and target exist as long as the view. See also: names.py, dropped.py.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection, Mapping
from types import MappingProxyType

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import ConflictError, InvalidInputError, NotFoundError
from tilth.base.ids import IdSource
from tilth.catalog.errors import (
    ReservedNameError,
    SchemaChangedError,
    TableExistsError,
    WrongEngineError,
)
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.decoded import DecodedRecords
from tilth.catalog.records.keys import Space, pack, span
from tilth.catalog.records.nouns import DatabaseRecord, DroppedTable
from tilth.catalog.records.small_commit import Plan, change, read, read_all, unchanged
from tilth.catalog.rules.earlier_columns import without_unused
from tilth.catalog.rules.requirements import check_planned
from tilth.catalog.tables import dropped
from tilth.catalog.tables.mutations import pending_in
from tilth.catalog.tables.names import (
    DEFAULT_DATABASE,
    added_name,
    added_relation,
    changed_secrets,
    check_not_system,
    names_in,
    no_database,
    no_table,
    relation_of,
    storage_of,
    uuid_of,
    views_on,
)
from tilth.model.part import Part
from tilth.model.storage import DEFAULT_STORAGE
from tilth.model.table import KafkaDef, Relation, Schema, TableDef, ViewDef, full_name

NO_SECRETS: Mapping[str, str] = {}


class Tables:
    """`catalog.tables`."""

    def __init__(self, clock: Clock, kv: KeyValue, *, ids: IdSource) -> None:
        self._clock = clock
        self._kv = kv
        self._ids = ids
        self._relations = DecodedRecords(codec.RELATIONS, Space.RELATION)
        self._dropped = DecodedRecords(codec.DROPPED, Space.DROPPED)

    def databases(self) -> builtins.list[str]:
        """All names but `system`, in their order."""
        with self._kv.view() as view:
            names = {record.name for record in read_all(view, codec.DATABASES, Space.DATABASE)}
        return sorted(names | {DEFAULT_DATABASE})

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Raises ConflictError (DATABASE_EXISTS) or ReservedNameError."""
        check_not_system(name)
        key = pack(Space.DATABASE, name)
        value = codec.DATABASES.encode(DatabaseRecord(name=name, created_ms=self._clock.now_ms()))

        def plan(view: ReadView) -> Plan[None]:
            found = view.get(key)
            if name == DEFAULT_DATABASE or found is not None:
                if if_not_exists:
                    return Plan(result=None)
                raise ConflictError.coded(
                    "DATABASE_EXISTS",
                    "the database exists already",
                    database=name,
                    hint="CREATE DATABASE IF NOT EXISTS skips it",
                )
            return Plan(result=None, preconditions=[unchanged(key, None)], puts={key: value})

        change(self._kv, self._clock, plan)

    def drop_database(self, name: str, *, if_exists: bool = False) -> None:
        """Raises DatabaseNotFoundError, ConflictError (DATABASE_NOT_EMPTY) or ReservedNameError."""
        check_not_system(name)
        if name == DEFAULT_DATABASE:
            raise ReservedNameError(database=name, hint="the default database always exists")
        key = pack(Space.DATABASE, name)

        def plan(view: ReadView) -> Plan[None]:
            found = view.get(key)
            if found is None:
                if if_exists:
                    return Plan(result=None)
                raise no_database(view, name)
            tables = names_in(view, name)
            if tables:
                raise ConflictError.coded(
                    "DATABASE_NOT_EMPTY",
                    "the database still holds tables",
                    database=name,
                    tables=", ".join(tables),
                    hint="drop them first",
                )
            return Plan(result=None, preconditions=[unchanged(key, found)], deletes=[key])

        change(self._kv, self._clock, plan)

    def create(
        self,
        relation: Relation,
        *,
        if_not_exists: bool = False,
        secrets: Mapping[str, str] = NO_SECRETS,
        may_lack_storage: bool = False,
    ) -> Relation:
        """Create a relation and return it, or with `if_not_exists` the one that has its name. One without a uuid gets
        a new one.

        `secrets` has the full texts of the settings that are redacted in its definition; with `may_lack_storage` its
        storage may be created later. Raises DatabaseNotFoundError, TableExistsError, ReservedNameError,
        NotFoundError (STORAGE_DROPPED), and for a view without source or target TableNotFoundError or WrongEngineError.
        """
        check_not_system(relation.database)
        new: Relation = relation if relation.uuid else msgspec.structs.replace(relation, uuid=self._ids())

        def plan(view: ReadView) -> Plan[Relation]:
            existing_uuid = uuid_of(view, new.database, new.name)
            if existing_uuid is not None:
                existing = relation_of(view, existing_uuid)
                # The very same: an earlier try whose answer was lost.
                if if_not_exists or existing == new:
                    return Plan(result=existing)
                raise TableExistsError(table=full_name(new), hint="CREATE .. IF NOT EXISTS skips it")
            puts, preconditions = added_relation(view, new)
            storage = storage_of(new)
            if storage != DEFAULT_STORAGE and pack(Space.STORAGE, storage) not in puts and not may_lack_storage:
                raise NotFoundError.coded(
                    "STORAGE_DROPPED",
                    "the storage was dropped meanwhile",
                    storage=storage,
                    table=full_name(new),
                    hint="SHOW STORAGES lists them",
                )
            kept, _, pinned = changed_secrets(view, new.uuid, secrets)
            return Plan(result=new, preconditions=[*preconditions, *pinned], puts={**puts, **kept})

        return change(self._kv, self._clock, plan)

    def get(self, database: str, name: str) -> Relation:
        """Raises DatabaseNotFoundError or TableNotFoundError, with the names that are near."""
        with self._kv.view() as view:
            uuid = uuid_of(view, database, name)
            if uuid is None:
                raise no_table(view, database, name)
            return relation_of(view, uuid)

    def find(self, database: str, name: str) -> Relation | None:
        with self._kv.view() as view:
            uuid = uuid_of(view, database, name)
            return None if uuid is None else relation_of(view, uuid)

    def by_id(self, uuid: str) -> Relation | None:
        """None also for a dropped one."""
        return read(self._kv, pack(Space.RELATION, uuid), codec.RELATIONS)

    def list(self, database: str | None = None) -> builtins.list[Relation]:
        """Return all relations, or those of a database, by their names."""
        if database is None:
            return sorted(self.all(), key=lambda each: (each.database, each.name))
        with self._kv.view() as view:
            return [relation_of(view, uuid) for uuid in read_all(view, codec.TEXTS, Space.NAME, database)]

    def all(self) -> builtins.list[Relation]:
        """Return all relations, by uuid. Those that have not changed since the last call are the same objects, so it
        costs next to nothing to read ten thousand of them again.
        """
        return [relation for _, relation in self._relations.all(self._kv)]

    def some(self, after: str, *, limit: int) -> builtins.list[Relation]:
        """Return the first relations whose uuid is greater, by uuid: one read, as `all` for a part of them."""
        start, end = span(Space.RELATION)
        begin = span(Space.RELATION, after)[1] if after else start
        return [relation for _, relation in self._relations.among(self._kv, begin, end, limit=limit)]

    def views_of(self, kafka_uuid: str) -> builtins.list[ViewDef]:
        with self._kv.view() as view:
            return views_on(view, Space.VIEW_OF, kafka_uuid)

    def views_into(self, table_uuid: str) -> builtins.list[ViewDef]:
        with self._kv.view() as view:
            return views_on(view, Space.VIEW_INTO, table_uuid)

    def modify_settings(
        self,
        uuid: str,
        changes: Mapping[str, str],
        reset: Collection[str] = (),
        *,
        secrets: Mapping[str, str] = NO_SECRETS,
    ) -> Relation:
        """The relation with its new settings. Names and values are stored as they are:
        the caller has checked them, and has redacted those whose full texts are in `secrets`.
        """
        key = pack(Space.RELATION, uuid)

        def plan(view: ReadView) -> Plan[Relation]:
            relation = relation_of(view, uuid)
            if isinstance(relation, ViewDef):
                raise WrongEngineError("a view has no settings", view=full_name(relation))
            kept = {name: text for name, text in relation.settings.items() if name not in reset}
            changed: Relation = msgspec.structs.replace(relation, settings=kept | dict(changes))
            pinned = unchanged(key, view.get(key))
            kept_secrets, deletes, others = changed_secrets(view, uuid, secrets, gone=[*changes, *reset])
            return Plan(
                result=changed,
                preconditions=[pinned, *others],
                puts={key: codec.RELATIONS.encode(changed), **kept_secrets},
                deletes=deletes,
            )

        return change(self._kv, self._clock, plan)

    def modify_ttl(self, uuid: str, ttl: str | None) -> TableDef:
        """The table with its new TTL; None: rows never expire. The text is stored as it is: the caller has checked
        it. Raises TableNotFoundError, WrongEngineError.
        """
        key = pack(Space.RELATION, uuid)

        def plan(view: ReadView) -> Plan[TableDef]:
            relation = relation_of(view, uuid)
            if not isinstance(relation, TableDef):
                raise WrongEngineError("only a table of rows has a TTL", table=full_name(relation))
            changed = msgspec.structs.replace(relation, ttl=ttl)
            pinned = unchanged(key, view.get(key))
            return Plan(result=changed, preconditions=[pinned], puts={key: codec.RELATIONS.encode(changed)})

        return change(self._kv, self._clock, plan)

    def describe_columns(self, uuid: str, from_version: int, schema: Schema, *, keep_ts: int | None = None) -> TableDef:
        """The table with other defaults and comments, which are for rows to come: parts stay as they are.

        `from_version`: the schema version that the statement was checked against. Older columns that no part has are
        forgotten, but not those that a read as of `keep_ts` or later finds. Reads every entry of the table. Raises
        TableNotFoundError, WrongEngineError, SchemaChangedError, and InvalidInputError where the new columns are not
        stored as the old ones.
        """
        key = pack(Space.RELATION, uuid)

        def plan(view: ReadView) -> Plan[TableDef]:
            relation = relation_of(view, uuid)
            if not isinstance(relation, TableDef):
                raise WrongEngineError("only a table of rows has columns", table=full_name(relation))
            check_planned(relation, from_version)
            if not schema.is_stored_as(relation.schema):
                raise InvalidInputError("new columns need parts to be rewritten", table=full_name(relation))
            changed = msgspec.structs.replace(
                relation,
                schema=schema,
                schema_version=relation.schema_version + 1,
                older_schemas=(*relation.older_schemas, relation.schema_now),
            )
            trash = (item.part for item in read_all(view, codec.TRASH, Space.TRASH, uuid))
            parts = (entry for entry in read_all(view, codec.ENTRIES, Space.ENTRY, uuid) if isinstance(entry, Part))
            changed = without_unused(changed, (*trash, *parts), pending_in(view, uuid), keep_ts=keep_ts)
            pinned = unchanged(key, view.get(key))
            return Plan(result=changed, preconditions=[pinned], puts={key: codec.RELATIONS.encode(changed)})

        return change(self._kv, self._clock, plan)

    def alter_kafka(
        self, checked: KafkaDef, schema: Schema, *, next_column_id: int, views: Collection[tuple[ViewDef, TableDef]]
    ) -> KafkaDef:
        """Give a Kafka table other columns, and its views the columns that they fill with them, in one commit.

        `checked` is the table that the statement was checked against; `views`: all views that read it, as they become,
        with their targets. Raises SchemaChangedError where somebody else has changed any of them meanwhile,
        TableNotFoundError.
        """
        key = pack(Space.RELATION, checked.uuid)

        def plan(view: ReadView) -> Plan[KafkaDef]:
            changed = msgspec.structs.replace(checked, schema=schema, next_column_id=next_column_id)
            before = {each.uuid: each for each in views_on(view, Space.VIEW_OF, checked.uuid)}
            are_same = relation_of(view, checked.uuid) == checked and before.keys() == {each.uuid for each, _ in views}
            puts = {key: codec.RELATIONS.encode(changed)}
            preconditions = [unchanged(key, view.get(key))]
            for each, target in views:
                view_key, target_key = pack(Space.RELATION, each.uuid), pack(Space.RELATION, target.uuid)
                preconditions += [unchanged(one, view.get(one)) for one in (view_key, target_key)]
                puts[view_key] = codec.RELATIONS.encode(each)
                now, known = relation_of(view, target.uuid), before.get(each.uuid, each)
                is_known = msgspec.structs.replace(known, target_columns=each.target_columns) == each
                are_same = are_same and is_known and isinstance(now, TableDef) and now.schema == target.schema
            if not are_same:
                hint = "nothing has changed: retry the statement"
                raise SchemaChangedError(table=full_name(checked), hint=hint)
            return Plan(result=changed, preconditions=preconditions, puts=puts)

        return change(self._kv, self._clock, plan)

    def rename(
        self, uuid: str, database: str, name: str, *, pinned: Mapping[str, str] = MappingProxyType({})
    ) -> Relation:
        """The relation under its new name; its data stays where it is. `pinned`: settings of a Kafka table that it
        keeps from now on where it does not have them. Raises TableExistsError, DatabaseNotFoundError.
        """
        check_not_system(database)
        key = pack(Space.RELATION, uuid)

        def plan(view: ReadView) -> Plan[Relation]:
            relation = relation_of(view, uuid)
            if (relation.database, relation.name) == (database, name):
                return Plan(result=relation)
            renamed: Relation = msgspec.structs.replace(relation, database=database, name=name)
            if isinstance(renamed, KafkaDef):
                renamed = msgspec.structs.replace(renamed, settings={**pinned, **renamed.settings})
            puts, preconditions = added_name(view, renamed)
            return Plan(
                result=renamed,
                preconditions=[unchanged(key, view.get(key)), *preconditions],
                puts={key: codec.RELATIONS.encode(renamed), **puts},
                deletes=[pack(Space.NAME, relation.database, relation.name)],
            )

        return change(self._kv, self._clock, plan)

    def drop(self, uuid: str) -> None:
        """Hide the relation from readers and writers; UNDROP brings it back until it is forgotten.

        Raises TableInUseError naming the views that still read or feed it.
        """
        dropped.drop(self._kv, self._clock, uuid)

    def undrop(self, database: str, name: str) -> Relation:
        """The last relation dropped under that name, back with all it held. Raises TableNotFoundError,
        TableExistsError.
        """
        return dropped.undrop(self._kv, self._clock, database, name)

    def dropped(self) -> builtins.list[DroppedTable]:
        """Return the tables that can be brought back or await their end, longest dropped first; the same objects as in
        `all`.
        """
        found = (each for _, each in self._dropped.all(self._kv))
        return sorted(found, key=lambda each: each.dropped_ms)

    def forget(self, uuid: str) -> None:
        """Remove every key of a dropped relation whose files are gone.
        Raises TableNotFoundError when it is not dropped.
        """
        dropped.forget(self._kv, self._clock, uuid)
