"""CREATE, ALTER, DROP and SHOW STORAGE.

Covers: what they check, keep and answer. Does not cover: what an address means (tilth.storage).
Always holds: a location is proved before its name is kept; a storage that a table uses is not dropped, and no file of
it is touched when it is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum

import msgspec
import pyarrow as pa

from tilth.base.errors import ConflictError, InvalidInputError
from tilth.base.logs import Log
from tilth.base.settings import read_settings
from tilth.catalog import ReplicaNeededError
from tilth.control.context.audit import audited
from tilth.control.context.services import Call, Services
from tilth.control.kinds import StatementKind
from tilth.control.slots import Queue
from tilth.grammar.parse import Form
from tilth.grammar.phrases import read_if_exists, read_if_not_exists
from tilth.grammar.render import if_not_exists_text, quoted_name, quoted_string
from tilth.grammar.statements import Statement
from tilth.grammar.text.cursor import Cursor
from tilth.introspection.registry import find_system_table
from tilth.introspection.statements.show import is_like
from tilth.model.copy_note import CopyNote
from tilth.model.storage import DEFAULT_STORAGE, STORAGE_SETTING, Storage
from tilth.model.table import Relation, TableDef, full_name
from tilth.query.results.answer import Outcome, done
from tilth.storage import (
    BadStoreError,
    NodeStorageSettings,
    StorageSettings,
    StoreAwayError,
    StoreBusyError,
    StoreRefusedError,
    StoreRoot,
    begin_table,
    check_from_sql,
    defined_root,
    insert_quorum,
    location_text,
    named_host,
    parse_root,
    replicas_of,
    replicas_with_marker,
    replicated_root,
    reserve_replica,
)

_USERS_SHOWN_MAX = 10
_NAME_CHARACTERS_MAX = 128
_NAME = "the name of a storage"
_OWNER = "owner of storages"
_SHOW_REPLICAS = "SELECT * FROM system.replicas"
_MAKE_ANOTHER = "make another storage with REPLICAS, and a table in it: INSERT .. SELECT"

_log = Log("sql")

#: Definitions are read, changed and declared by one statement at a time.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateStorage(Statement):
    """CREATE STORAGE name ROOT 'address', or REPLICAS ('address', ..) QUORUM n"""

    storage: str
    #: Empty where there are replicas.
    root: str = ""
    replicas: tuple[str, ...] = ()
    #: Copies of a file before a commit names it; None: more than half of them.
    quorum: int | None = None
    if_not_exists: bool = False


class ReplicaChange(Enum):
    """Change of a replica by ALTER STORAGE."""

    RESTORE = "RESTORE"
    REPLACE = "REPLACE"
    ADD = "ADD"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterStorage(Statement):
    """ALTER STORAGE name RESTORE REPLICA 'address', REPLACE REPLICA 'address' WITH 'address', ADD REPLICA 'address'"""

    storage: str
    change: ReplicaChange
    replica: str
    #: Address of the new replica, for REPLACE.
    substitute: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropStorage(Statement):
    storage: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowStorages(Statement):
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreateStorage(Statement):
    storage: str


class StorageExistsError(ConflictError):
    """the storage exists already"""

    code = "STORAGE_EXISTS"


class StorageInUseError(ConflictError):
    """the storage is used"""

    code = "STORAGE_IN_USE"


def _parse_create_storage(cursor: Cursor) -> CreateStorage:
    """Read what follows CREATE STORAGE."""
    if_not_exists = read_if_not_exists(cursor)
    name = cursor.name(_NAME)
    if cursor.choose("ROOT", "REPLICAS") == "REPLICAS":
        return _read_replicas(cursor, name, if_not_exists=if_not_exists)
    return CreateStorage(storage=name, root=_read_address(cursor, "of the storage"), if_not_exists=if_not_exists)


def _parse_alter_storage(cursor: Cursor) -> AlterStorage:
    """Read what follows ALTER STORAGE."""
    name = cursor.name(_NAME)
    change = ReplicaChange(cursor.choose(*(each.value for each in ReplicaChange)))
    cursor.expect("REPLICA")
    replica, substitute = _read_address(cursor, "of the replica"), ""
    if change is ReplicaChange.REPLACE:
        cursor.expect("WITH")
        substitute = _read_address(cursor, "of the new replica")
    return AlterStorage(storage=name, change=change, replica=replica, substitute=substitute)


def _read_replicas(cursor: Cursor, name: str, *, if_not_exists: bool) -> CreateStorage:
    cursor.expect_symbol("(")
    replicas = [_read_address(cursor, "of a replica")]
    while cursor.accept_symbol(","):
        replicas.append(_read_address(cursor, "of a replica"))
    cursor.expect_symbol(")")
    quorum = cursor.integer("a number of replicas") if cursor.accept("QUORUM") else None
    return CreateStorage(storage=name, replicas=tuple(replicas), quorum=quorum, if_not_exists=if_not_exists)


def _read_address(cursor: Cursor, whose: str) -> str:
    if not cursor.is_string():
        hint = "put it in single quotes: 's3://bucket/prefix?key=env:TILTH_STORAGE_KEY&secret=..'"
        raise cursor.expected(f"the address {whose}", hint=hint)
    return cursor.string("the address")


def _parse_drop_storage(cursor: Cursor) -> DropStorage:
    """Read what follows DROP STORAGE."""
    if_exists = read_if_exists(cursor)
    return DropStorage(storage=cursor.name(_NAME), if_exists=if_exists)


def _parse_show_storages(cursor: Cursor) -> ShowStorages:
    """Read what follows SHOW STORAGES."""
    return ShowStorages(like=cursor.string("a pattern") if cursor.accept("LIKE") else None)


def _parse_show_create_storage(cursor: Cursor) -> ShowCreateStorage:
    """Read what follows SHOW CREATE STORAGE."""
    return ShowCreateStorage(storage=cursor.name(_NAME))


def storage_text(storage: CreateStorage) -> str:
    """Return the statement that makes the storage."""
    head = f"CREATE STORAGE {if_not_exists_text(storage.if_not_exists)}{quoted_name(storage.storage)}"
    if not storage.replicas:
        return f"{head} ROOT {quoted_string(storage.root)}"
    quorum = "" if storage.quorum is None else f" QUORUM {storage.quorum}"
    return f"{head} REPLICAS ({', '.join(map(quoted_string, storage.replicas))}){quorum}"


def _show(services: Services, call: Call, statement: ShowStorages) -> Outcome:
    table = find_system_table("storages").build(services)
    kept = [is_like(name, statement.like) for name in table["name"].to_pylist()]
    return Outcome(table=table.filter(pa.array(kept, pa.bool_())))


def _show_create(services: Services, call: Call, statement: ShowCreateStorage) -> Outcome:
    name = statement.storage
    root, is_default = services.root.named(name), name == DEFAULT_STORAGE
    made = CreateStorage(storage=name, root=root.text, if_not_exists=is_default)
    if root.replicas:
        addresses = tuple(each.text for each in root.replicas)
        made = CreateStorage(storage=name, replicas=addresses, quorum=root.quorum)
    return Outcome(table=pa.table({"statement": pa.array([storage_text(made)], pa.string())}))


@contextmanager
def _changing(services: Services, call: Call, verb: str) -> Iterator[None]:
    with audited(services, call, verb=verb), _one_at_a_time:
        yield


@contextmanager
def kept_storage(services: Services, name: str) -> Iterator[None]:
    """While it is entered, no statement of this process changes the storage; the catalog refuses conflicting changes of
    other processes.

    Raises NotFoundError (STORAGE_NOT_FOUND).
    """
    with nullcontext() if name == DEFAULT_STORAGE else _one_at_a_time:
        services.root.named(name)
        yield


def create_in_storage(services: Services, table: TableDef, *, if_not_exists: bool = False) -> TableDef:
    """Create a table in the storage that its settings name, else in that of the setting `storage.default`.

    Returns the table that is there afterwards. Raises NotFoundError (STORAGE_NOT_FOUND), and InvalidInputError for more
    copies than the storage keeps.
    """
    default = read_settings(NodeStorageSettings, services.node_settings.texts).default
    if STORAGE_SETTING not in table.settings and default != DEFAULT_STORAGE:
        table = msgspec.structs.replace(table, settings={**table.settings, STORAGE_SETTING: default})
    storage = _storage_of(table)
    services.root.named(storage).with_quorum(insert_quorum(table.settings))
    with kept_storage(services, storage):
        made = services.catalog.tables.create(table, if_not_exists=if_not_exists)
    assert isinstance(made, TableDef)
    if made.uuid == table.uuid:
        # One that was there may lack files where it lacks the sign.
        begin_table(services.root.of(made.uuid), made.uuid)
    return made


def _create(services: Services, call: Call, statement: CreateStorage) -> Outcome:
    """Raises StorageExistsError, BadStoreError, and what the store says."""
    with _changing(services, call, "CREATE STORAGE"):
        name = statement.storage
        if not name.isprintable() or len(name) > _NAME_CHARACTERS_MAX:
            hint = f"at most {_NAME_CHARACTERS_MAX} printable characters"
            raise InvalidInputError("not a name of a storage", storage=name, hint=hint)
        if name in services.root.all():
            if statement.if_not_exists:
                return done(f"exists already: {name}")
            raise StorageExistsError(storage=name, hint="DROP STORAGE removes its name; files stay where they are")
        settings = read_settings(NodeStorageSettings, services.node_settings.texts)
        if statement.replicas:
            locations = [check_from_sql(each, settings) for each in statement.replicas]
            quorum = len(locations) // 2 + 1 if statement.quorum is None else statement.quorum
            root = replicated_root(name, locations, quorum)
        else:
            root = check_from_sql(statement.root, settings)
        for each in root.locations:
            _check_apart(services, each)
        for each in root.locations:
            _reserve(services, each, settings)
        replica_ids = tuple(services.ids() for _ in root.replicas)
        storage = Storage(name=name, root=root.text, created_ms=services.clock.now_ms(), replica_ids=replica_ids)
        if not services.catalog.storages.create(storage):
            raise StorageExistsError(storage=name, hint="it was made meanwhile")
        _declare(services)
        return done(f"storage created: {name}; CREATE TABLE .. SETTINGS storage_policy = '{name}' uses it")


def _alter(services: Services, call: Call, statement: AlterStorage) -> Outcome:
    """Raises NotFoundError (STORAGE_NOT_FOUND), StorageExistsError, ReplicaNeededError, BadStoreError, and what the
    store says.
    """
    with _changing(services, call, "ALTER STORAGE"):
        # Another server may have changed it just now.
        _declare(services)
        name, root = statement.storage, services.root.named(statement.storage)
        if statement.change is ReplicaChange.ADD:
            if not root.replicas:
                raise BadStoreError("this storage has one location, not replicas", storage=name, hint=_MAKE_ANOTHER)
            return _changed(services, root, statement, number=len(root.replicas), address=statement.replica)
        address = parse_root(statement.replica)
        number = next(
            (at for at, each in enumerate(root.replicas) if location_text(each) == location_text(address)), None
        )
        if number is None:
            known = ", ".join(each.uri for each in root.replicas) or "none"
            raise BadStoreError("this is no replica of the storage", storage=name, replica=address.uri, known=known)
        if statement.change is ReplicaChange.REPLACE:
            return _changed(services, root, statement, number=number, address=statement.substitute)
        # Only its owner knows whether the replica is empty or not mounted.
        reserve_replica(root.replicas[number], _owner(services))
        services.maintenance.wake()
        return done(f"replica {number} of {name} is filled with what it lacks: {_SHOW_REPLICAS}")


def _changed(services: Services, root: StoreRoot, statement: AlterStorage, *, number: int, address: str) -> Outcome:
    """Make the address the replica of this number: an additional one, or a substitute for one whose files stay."""
    name = statement.storage
    before = next((each for each in services.catalog.storages.all() if each.name == name), None)
    if before is None or defined_root(before) != root:
        raise StorageExistsError("the storage was changed meanwhile", storage=name, hint="send the statement again")
    settings = read_settings(NodeStorageSettings, services.node_settings.texts)
    location = check_from_sql(address, settings)
    _check_apart(services, location)
    tables = [each.uuid for each in _relations(services) if _storage_of(each) == name]
    others = _complete_others(services, name, tables, besides=number)
    _reserve(services, location, settings)
    locations = [*root.replicas[:number], location, *root.replicas[number + 1 :]]
    replica_ids = (*root.replica_ids[:number], services.ids(), *root.replica_ids[number + 1 :])
    text = replicated_root(name, locations, root.quorum).text
    after = msgspec.structs.replace(before, root=text, replica_ids=replica_ids)
    # Until the files are there nobody reads from it.
    now_ms, reason = services.clock.now_ms(), "the replica is new"
    notes = [CopyNote(table=each, replica=number, file=None, since_ms=now_ms, reason=reason) for each in tables]
    if not services.catalog.storages.replace(after, before, notes, others):
        raise StorageExistsError("the storage was changed meanwhile", storage=name, hint="send the statement again")
    _declare(services)
    services.maintenance.wake()
    return done(f"replica {number} of {name} is {location} and is filled with what it lacks: {_SHOW_REPLICAS}")


def _complete_others(
    services: Services, storage: str, tables: Sequence[str], *, besides: int
) -> dict[str, tuple[int, ...]]:
    """Return for each table the replicas that answer and have all its files, without the replica `besides`.

    Raises ReplicaNeededError for a table without one. The commit of the change requires that they still have all files.
    """
    others = [each for each in replicas_of(services.root.named(storage)) if each.number != besides]
    copies, found = services.catalog.copies, {}
    for table in tables:
        whole = [each for each in others if not copies.of(table, replica=each.number, limit=1)]
        found[table] = tuple(each.number for each in replicas_with_marker(whole, table))
        if not found[table]:
            hint = f"wait until another replica that answers lacks nothing: {_SHOW_REPLICAS}"
            raise ReplicaNeededError(storage=storage, table=table, hint=hint)
    return found


def _reserve(services: Services, location: StoreRoot, settings: NodeStorageSettings) -> None:
    """Make it a location of this catalog.

    Where the operator lists no hosts, the error of one that a user names is the same whatever listens there: statements
    would be a scanner of ports.
    """
    try:
        reserve_replica(location, _owner(services))
    except (StoreAwayError, StoreBusyError, StoreRefusedError) as error:
        if settings.hosts or named_host(location) is None:
            raise
        _log.warning("storage_not_reserved", location=location, reason=error)
        hint = (
            "the log of the server has the reason; answers have it, too, where the setting storage.hosts lists the host"
        )
        raise StoreAwayError("no store answers there as it has to", location=location, hint=hint) from None


def _owner(services: Services) -> str:
    """Return the id by which locations know this catalog's node; drawn once."""
    drawn = services.ids().encode()
    services.catalog.state.change(_OWNER, lambda known: known or drawn)
    return (services.catalog.state.get(_OWNER) or drawn).decode()


def _check_apart(services: Services, root: StoreRoot) -> None:
    """Raises StorageExistsError for a location that has a name, and for other keys to a bucket that is used."""
    known = ((name, each) for name, other in services.root.all().items() for each in other.locations)
    for name, other in known:
        if location_text(other) == location_text(root):
            raise StorageExistsError("this location is a storage already", storage=name, root=root)
        if (other.kind, other.bucket) == (root.kind, root.bucket) and other.options != root.options:
            hint = "Spark has one way to a bucket: give the same endpoint and keys, or use another bucket"
            raise StorageExistsError("this bucket is reached in another way already", storage=name, hint=hint)


def _drop(services: Services, call: Call, statement: DropStorage) -> Outcome:
    """Raises NotFoundError (STORAGE_NOT_FOUND), and StorageInUseError with who uses it."""
    with _changing(services, call, "DROP STORAGE"):
        name = statement.storage
        if statement.if_exists and name not in services.root.all():
            return done(f"no such storage: {name}")
        services.root.named(name)
        if name == DEFAULT_STORAGE:
            raise StorageInUseError("this storage is always there", storage=name)
        users = [full_name(each) for each in services.catalog.storages.drop(name)]
        if users:
            more = f" and {len(users) - _USERS_SHOWN_MAX} more" if len(users) > _USERS_SHOWN_MAX else ""
            hint = "drop them; dropped tables count until they are forgotten, see system.dropped_tables"
            raise StorageInUseError(storage=name, tables=", ".join(users[:_USERS_SHOWN_MAX]) + more, hint=hint)
        _declare(services)
        return done(f"storage dropped: {name}; its files were not touched")


def _declare(services: Services) -> None:
    services.root.follow(services.catalog.storages.all)


def _relations(services: Services) -> list[Relation]:
    dropped = [each.relation for each in services.catalog.tables.dropped()]
    return [*services.catalog.tables.all(), *dropped]


def _storage_of(relation: Relation) -> str:
    """Return the storage of a table; empty for what has no files."""
    return read_settings(StorageSettings, relation.settings).storage_policy if isinstance(relation, TableDef) else ""


KINDS = (
    StatementKind(
        value=CreateStorage, forms=(Form(words="CREATE STORAGE", parse=_parse_create_storage),), perform=_create
    ),
    StatementKind(value=AlterStorage, forms=(Form(words="ALTER STORAGE", parse=_parse_alter_storage),), perform=_alter),
    StatementKind(value=DropStorage, forms=(Form(words="DROP STORAGE", parse=_parse_drop_storage),), perform=_drop),
    StatementKind(
        value=ShowStorages,
        forms=(Form(words="SHOW STORAGES", parse=_parse_show_storages),),
        perform=_show,
        queue=Queue.WATCH,
        only_reads=True,
    ),
    StatementKind(
        value=ShowCreateStorage,
        forms=(
            Form(
                words="SHOW CREATE STORAGE",
                parse=_parse_show_create_storage,
                # A table may be called so.
                fits=lambda cursor: cursor.is_name(2),
            ),
        ),
        perform=_show_create,
        queue=Queue.WATCH,
        only_reads=True,
    ),
)
