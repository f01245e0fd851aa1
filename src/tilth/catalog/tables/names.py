"""Relations in the store: their names, uuids, views and the records that these depend on.

Covers: the pieces from which tables.py and dropped.py plan their batches. Always holds: a commit that adds a name, a
view or a table also rewrites the record that it depends on, of a database, a relation or a storage, so that it
conflicts with a concurrent change or drop of that record.

Tests: tests/unit/catalog/tables/test_tables.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from tilth.catalog.errors import (
    DatabaseNotFoundError,
    ReservedNameError,
    TableExistsError,
    TableNotFoundError,
    WrongEngineError,
)
from tilth.catalog.kv import Precondition, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack, span, unpack
from tilth.catalog.records.small_commit import read, read_all, unchanged
from tilth.model.storage import DEFAULT_STORAGE, STORAGE_SETTING
from tilth.model.table import KafkaDef, Relation, Secrets, TableDef, ViewDef, full_name

#: Always there.
DEFAULT_DATABASE = "default"
#: Belongs to the system tables.
SYSTEM_DATABASE = "system"
_NEAR_NAMES_MAX = 3

Puts = dict[bytes, bytes]


def check_not_system(database: str) -> None:
    """Raises ReservedNameError."""
    if database == SYSTEM_DATABASE:
        raise ReservedNameError(database=database, hint="its tables are made by the system itself")
    if not database:
        raise ReservedNameError("a database needs a name")


def uuid_of(view: ReadView, database: str, name: str) -> str | None:
    return read(view, pack(Space.NAME, database, name), codec.TEXTS)


def relation_of(view: ReadView, uuid: str) -> Relation:
    """Raises TableNotFoundError."""
    relation = read(view, pack(Space.RELATION, uuid), codec.RELATIONS)
    if relation is None:
        raise TableNotFoundError(uuid=uuid, hint="it was dropped")
    return relation


def names_in(view: ReadView, database: str) -> list[str]:
    start, end = span(Space.NAME, database)
    return [str(unpack(key, "ss")[1]) for key, _ in view.scan(start, end)]


def views_on(view: ReadView, space: Space, uuid: str) -> list[ViewDef]:
    """The views that read (VIEW_OF) or feed (VIEW_INTO) a relation."""
    relations = [relation_of(view, each) for each in read_all(view, codec.TEXTS, space, uuid)]
    return [each for each in relations if isinstance(each, ViewDef)]


def no_table(view: ReadView, database: str, name: str) -> TableNotFoundError | DatabaseNotFoundError:
    if database not in (DEFAULT_DATABASE, SYSTEM_DATABASE) and view.get(pack(Space.DATABASE, database)) is None:
        return no_database(view, database)
    near = get_close_matches(name, names_in(view, database), n=_NEAR_NAMES_MAX)
    hint = f"did you mean {', '.join(near)}?" if near else "SHOW TABLES lists the existing ones"
    return TableNotFoundError(table=f"{database}.{name}", hint=hint)


#: Names that Spark reads as a file format in the position of a database name.
_FILE_FORMATS = frozenset("avro binaryfile csv delta iceberg json orc parquet text xml".split())


def no_database(view: ReadView, name: str) -> DatabaseNotFoundError:
    known = [record.name for record in read_all(view, codec.DATABASES, Space.DATABASE)]
    near = get_close_matches(name, [*known, DEFAULT_DATABASE], n=_NEAR_NAMES_MAX)
    hint = f"did you mean {', '.join(near)}?" if near else "CREATE DATABASE makes it"
    if name.lower() in _FILE_FORMATS:
        hint = "queries cannot read files by path: load the rows over HTTP, with `tilth sql` or from Kafka"
    return DatabaseNotFoundError(database=name, hint=hint)


def added_name(view: ReadView, relation: Relation) -> tuple[Puts, list[Precondition]]:
    """Plan the puts that give the relation its name. Raises DatabaseNotFoundError, TableExistsError."""
    puts: Puts = {}
    preconditions: list[Precondition] = []
    if relation.database != DEFAULT_DATABASE:
        key = pack(Space.DATABASE, relation.database)
        if view.get(key) is None:
            raise no_database(view, relation.database)
        _write_again(view, key, puts, preconditions)
    key = pack(Space.NAME, relation.database, relation.name)
    if view.get(key) is not None:
        raise TableExistsError(table=full_name(relation), hint="choose another name, or drop that one")
    preconditions.append(unchanged(key, None))
    puts[key] = codec.TEXTS.encode(relation.uuid)
    return puts, preconditions


def added_relation(view: ReadView, relation: Relation) -> tuple[Puts, list[Precondition]]:
    """Plan the puts that add the relation. Raises what `added_name` does, and TableNotFoundError for a view whose
    source or target does not exist. A storage may be missing: a rebuilt catalog has none.
    """
    puts, preconditions = added_name(view, relation)
    key = pack(Space.RELATION, relation.uuid)
    preconditions.append(unchanged(key, view.get(key)))
    puts[key] = codec.RELATIONS.encode(relation)
    if isinstance(relation, ViewDef):
        _check_ends(view, relation)
        for space, uuid in ((Space.VIEW_OF, relation.source), (Space.VIEW_INTO, relation.target)):
            _write_again(view, pack(Space.RELATION, uuid), puts, preconditions)
            puts[pack(space, uuid, relation.uuid)] = codec.TEXTS.encode(relation.uuid)
    storage = storage_of(relation)
    if storage != DEFAULT_STORAGE and view.get(pack(Space.STORAGE, storage)) is not None:
        _write_again(view, pack(Space.STORAGE, storage), puts, preconditions)
    return puts, preconditions


def storage_of(relation: Relation) -> str:
    """Return the name of a table's storage; the default one for relations without files."""
    if not isinstance(relation, TableDef):
        return DEFAULT_STORAGE
    return relation.settings.get(STORAGE_SETTING, DEFAULT_STORAGE)


def tables_in_storage(view: ReadView, storage: str) -> list[Relation]:
    """Return the tables of a storage, dropped ones that can be restored among them."""
    relations = list(read_all(view, codec.RELATIONS, Space.RELATION))
    relations += [each.relation for each in read_all(view, codec.DROPPED, Space.DROPPED)]
    return [each for each in relations if isinstance(each, TableDef) and storage_of(each) == storage]


def changed_secrets(
    view: ReadView, uuid: str, secrets: Mapping[str, str], gone: Collection[str] = ()
) -> tuple[Puts, list[bytes], list[Precondition]]:
    """Plan a relation's secrets: the present ones without those in `gone`, and the new ones. Returns puts, deletes and
    preconditions."""
    key = pack(Space.SECRET, uuid)
    found = view.get(key)
    if found is None and not secrets:
        return {}, [], []
    before = codec.SECRETS.decode(key, found.value).settings if found is not None else {}
    now = {name: text for name, text in before.items() if name not in gone} | dict(secrets)
    if now == before:
        return {}, [], []
    puts = {key: codec.SECRETS.encode(Secrets(settings=now))} if now else {}
    return puts, [] if now else [key], [unchanged(key, found)]


def removed_relation(relation: Relation) -> list[bytes]:
    keys = [pack(Space.NAME, relation.database, relation.name), pack(Space.RELATION, relation.uuid)]
    if isinstance(relation, ViewDef):
        keys.append(pack(Space.VIEW_OF, relation.source, relation.uuid))
        keys.append(pack(Space.VIEW_INTO, relation.target, relation.uuid))
    return keys


def _check_ends(view: ReadView, relation: ViewDef) -> None:
    source, target = relation_of(view, relation.source), relation_of(view, relation.target)
    if not isinstance(source, KafkaDef):
        raise WrongEngineError("a view reads a Kafka table", view=full_name(relation), source=full_name(source))
    if not isinstance(target, TableDef):
        raise WrongEngineError("a view writes into a table", view=full_name(relation), target=full_name(target))


def _write_again(view: ReadView, key: bytes, puts: Puts, preconditions: list[Precondition]) -> None:
    """Write the same value again, under a new version."""
    found = view.get(key)
    assert found is not None
    preconditions.append(unchanged(key, found))
    puts[key] = found.value
