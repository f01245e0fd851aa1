"""CREATE, ALTER, DROP and SHOW WAREHOUSE, ALTER WORKER.

Covers: what they check, keep and answer. Does not cover: what a warehouse's settings do (tilth.warehouse).
Always holds: what is said is kept in the catalog first, and then given to the dispatcher; `default` and `write` stay; a
warehouse that somebody uses is not dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tilth.base.errors import ConflictError, InvalidInputError, NotFoundError
from tilth.control.context.audit import audited
from tilth.control.context.services import Call, Services
from tilth.control.kinds import StatementKind
from tilth.control.slots import Queue
from tilth.grammar.literals import parse_settings
from tilth.grammar.parse import Form
from tilth.grammar.phrases import read_if_exists, read_if_not_exists, skip_on_cluster
from tilth.grammar.render import if_not_exists_text, quoted_name, settings_clause
from tilth.grammar.statements import SettingTexts, Statement
from tilth.grammar.text.cursor import Cursor
from tilth.introspection.registry import find_system_table
from tilth.introspection.statements.show import is_like
from tilth.model.table import KafkaDef, TableDef, full_name
from tilth.model.warehouse import Drain, Warehouse
from tilth.query.results.answer import Outcome, done
from tilth.query.settings import WAREHOUSES
from tilth.warehouse import (
    BUILT_IN,
    WarehouseInUseError,
    WorkerNotFoundError,
    drain_reason,
    table_warehouses,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateWarehouse(Statement):
    """CREATE WAREHOUSE name SETTINGS .."""

    warehouse: str
    if_not_exists: bool = False
    settings: SettingTexts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterWarehouse(Statement):
    """ALTER WAREHOUSE name SETTINGS .., or RESET SETTING ..; one of the two."""

    warehouse: str
    settings: SettingTexts = ()
    reset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropWarehouse(Statement):
    warehouse: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowWarehouses(Statement):
    """SHOW WAREHOUSES, or SHOW WAREHOUSE of one."""

    like: str | None = None
    #: None: all.
    warehouse: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreateWarehouse(Statement):
    warehouse: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterWorker(Statement):
    """ALTER WORKER name DRAIN or RESUME."""

    worker: str
    #: False: it takes tasks again.
    drains: bool
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterServer(Statement):
    """ALTER SERVER name DRAIN or RESUME."""

    server: str
    #: False: it hosts tables again.
    drains: bool
    because: str = ""


_USERS_SHOWN_MAX = 10
_NAME_CHARACTERS_MAX = 128
_NAME = "the name of a warehouse"
#: Definitions are read, changed and given to the dispatcher by one statement at a time.
_one_at_a_time = threading.Lock()


def _parse_create_warehouse(cursor: Cursor) -> CreateWarehouse:
    """Read what follows CREATE WAREHOUSE."""
    if_not_exists = read_if_not_exists(cursor)
    name = _read_name(cursor, _NAME)
    skip_on_cluster(cursor)
    return CreateWarehouse(warehouse=name, if_not_exists=if_not_exists, settings=_read_settings(cursor))


def _parse_alter_warehouse(cursor: Cursor) -> AlterWarehouse:
    """Read what follows ALTER WAREHOUSE: SETTINGS a = 1, MODIFY SETTING a = 1 or RESET SETTING a."""
    name = _read_name(cursor, _NAME)
    if cursor.accept("RESET", "SETTING"):
        names = [cursor.name("the name of a setting")]
        while cursor.accept_symbol(","):
            names.append(cursor.name("the name of a setting"))
        return AlterWarehouse(warehouse=name, reset=tuple(names))
    settings = parse_settings(cursor) if cursor.accept("MODIFY", "SETTING") else _read_settings(cursor)
    if not settings:
        raise cursor.expected("SETTINGS or RESET SETTING", words=("SETTINGS", "RESET SETTING"))
    return AlterWarehouse(warehouse=name, settings=settings)


def _parse_drop_warehouse(cursor: Cursor) -> DropWarehouse:
    """Read what follows DROP WAREHOUSE."""
    if_exists = read_if_exists(cursor)
    return DropWarehouse(warehouse=_read_name(cursor, _NAME), if_exists=if_exists)


def _parse_show_warehouses(cursor: Cursor) -> ShowWarehouses:
    """Read what follows SHOW WAREHOUSES."""
    return ShowWarehouses(like=cursor.string("a pattern") if cursor.accept("LIKE") else None)


def _parse_show_warehouse(cursor: Cursor) -> ShowWarehouses:
    """Read what follows SHOW WAREHOUSE."""
    return ShowWarehouses(warehouse=_read_name(cursor, _NAME))


def _parse_show_create_warehouse(cursor: Cursor) -> ShowCreateWarehouse:
    """Read what follows SHOW CREATE WAREHOUSE."""
    return ShowCreateWarehouse(warehouse=_read_name(cursor, _NAME))


def _parse_alter_worker(cursor: Cursor) -> AlterWorker:
    """Read what follows ALTER WORKER."""
    worker = _read_name(cursor, "the name of a worker")
    drains, because = _read_drain(cursor)
    return AlterWorker(worker=worker, drains=drains, because=because)


def _parse_alter_server(cursor: Cursor) -> AlterServer:
    """Read what follows ALTER SERVER."""
    server = _read_name(cursor, "the name of a server")
    drains, because = _read_drain(cursor)
    return AlterServer(server=server, drains=drains, because=because)


def _read_drain(cursor: Cursor) -> tuple[bool, str]:
    """Read DRAIN or RESUME, and the reason."""
    drains = cursor.choose("DRAIN", "RESUME") == "DRAIN"
    because = ""
    if cursor.accept("BECAUSE"):
        if not cursor.is_string():
            raise cursor.expected("the reason", hint="put it in single quotes: BECAUSE 'its disk is replaced'")
        because = cursor.string("the reason")
    return drains, because


def _read_name(cursor: Cursor, what: str) -> str:
    """Read a name, or a text: names of workers often have a dash."""
    return cursor.string(what) if cursor.is_string() else cursor.name(what)


def _read_settings(cursor: Cursor) -> SettingTexts:
    """Read SETTINGS, or ByConity's WITH."""
    if cursor.accept("SETTINGS") or cursor.accept("WITH"):
        return parse_settings(cursor)
    return ()


def warehouse_text(warehouse: CreateWarehouse) -> str:
    """Return the statement that makes the warehouse."""
    name = f"{if_not_exists_text(warehouse.if_not_exists)}{quoted_name(warehouse.warehouse)}"
    return f"CREATE WAREHOUSE {name}{settings_clause(warehouse.settings)}"


def _alter_server(services: Services, call: Call, statement: AlterServer) -> Outcome:
    """Raises NotFoundError."""
    with _changing(services, call, f"ALTER SERVER .. {_drain_word(statement.drains)}", statement.because):
        name, servers = statement.server, services.catalog.servers
        known = {each.name for each in servers.all()}
        if name not in known and (statement.drains or name not in servers.drains()):
            raise NotFoundError.coded(
                "SERVER_NOT_FOUND", "no such server", server=name, hint=f"there are: {', '.join(sorted(known))}"
            )
        if not statement.drains:
            servers.resume(name)
            return done(f"server {name} hosts tables again")
        servers.drain(name, statement.because)
        return done(f"server {name} lets go of its tables, after a restart too, until ALTER SERVER .. RESUME")


def _create(services: Services, call: Call, statement: CreateWarehouse) -> Outcome:
    """Raises ConflictError, and what settings raise."""
    with _changing(services, call, "CREATE WAREHOUSE"):
        name = statement.warehouse
        settings = WAREHOUSES.canonical(dict(statement.settings))
        if not name.strip() or len(name) > _NAME_CHARACTERS_MAX or not name.isprintable() or "," in name:
            hint = f"give up to {_NAME_CHARACTERS_MAX} characters, without commas"
            raise InvalidInputError("not a name of a warehouse", warehouse=name, hint=hint)
        warehouse = Warehouse(name=name, settings=settings, created_ms=services.clock.now_ms())
        known = {each.name for each in services.dispatcher.warehouses()}
        if name in known or not services.catalog.warehouses.create(warehouse):
            if statement.if_not_exists:
                return done(f"exists already: {name}")
            raise ConflictError.coded(
                "WAREHOUSE_EXISTS",
                "there is a warehouse of this name",
                warehouse=name,
                hint="ALTER WAREHOUSE changes it",
            )
        _declare(services)
        return done(f"warehouse created: {name}; `tilth worker --warehouse {name}` gives it a worker")


def _alter(services: Services, call: Call, statement: AlterWarehouse) -> Outcome:
    """Raises NotFoundError (WAREHOUSE_NOT_FOUND), and what settings raise."""
    with _changing(services, call, "ALTER WAREHOUSE"):
        name = _exact(services, statement.warehouse)
        changes = WAREHOUSES.canonical(dict(statement.settings))
        reset = [WAREHOUSES.find(each).name for each in statement.reset]

        def altered(known: Warehouse | None) -> Warehouse:
            found = known or Warehouse(name=name, created_ms=services.clock.now_ms())
            kept = {each: text for each, text in found.settings.items() if each not in reset}
            return msgspec.structs.replace(found, settings=kept | changes)

        services.catalog.warehouses.change(name, altered)
        _declare(services)
        shown = ", ".join([f"{each} = {text}" for each, text in changes.items()] + [f"{each} reset" for each in reset])
        return done(f"settings of warehouse {name}: {shown}; workers that are there stay")


def _drop(services: Services, call: Call, statement: DropWarehouse) -> Outcome:
    """Raises NotFoundError (WAREHOUSE_NOT_FOUND), and WarehouseInUseError with who uses it."""
    with _changing(services, call, "DROP WAREHOUSE"):
        name = statement.warehouse
        if statement.if_exists and name not in {each.name for each in services.dispatcher.warehouses()}:
            return done(f"not there: {name}")
        name = _exact(services, name)
        if name in BUILT_IN:
            hint = "ALTER WAREHOUSE changes it, and warehouse.embedded says whether the server's own Spark serves it"
            raise WarehouseInUseError("this warehouse is always there", warehouse=name, hint=hint)
        workers = [each.name for each in services.dispatcher.workers() if name in each.warehouses]
        if workers:
            hint = "ALTER WORKER .. DRAIN, and end them"
            raise WarehouseInUseError("it has workers", warehouse=name, workers=_listed(workers), hint=hint)
        tables = [full_name(each) for each in services.catalog.tables.list() if name in _named_by(each)]
        if tables:
            hint = "ALTER TABLE .. MODIFY SETTING cnch_vw_default, cnch_vw_write, .. names another one"
            raise WarehouseInUseError("tables name it", warehouse=name, tables=_listed(tables), hint=hint)
        services.catalog.warehouses.drop(name)
        _declare(services)
        return done(f"warehouse dropped: {name}")


def _alter_worker(services: Services, call: Call, statement: AlterWorker) -> Outcome:
    """Raises WorkerNotFoundError."""
    with _changing(services, call, f"ALTER WORKER .. {_drain_word(statement.drains)}", statement.because):
        name = statement.worker
        known = [each.name for each in services.dispatcher.workers()]
        kept = services.catalog.warehouses.drains()
        if name not in known and (statement.drains or name not in {each.worker for each in kept}):
            raise WorkerNotFoundError(worker=name, hint=f"there are: {', '.join(sorted(known)) or 'none'}")
        if not statement.drains:
            services.catalog.warehouses.resume(name)
        else:
            drain = Drain(
                worker=name,
                since_ms=services.clock.now_ms(),
                because=statement.because,
                query_id=call.query_id,
            )
            services.catalog.warehouses.drain(drain)
        drains = services.catalog.warehouses.drains()
        services.dispatcher.keep_drained({each.worker: drain_reason(each) for each in drains})
        if not statement.drains:
            return done(f"worker {name} takes tasks again")
        return done(f"worker {name} takes no more tasks, after a restart too, until ALTER WORKER .. RESUME")


def _show(services: Services, call: Call, statement: ShowWarehouses) -> Outcome:
    table = find_system_table("warehouses").build(services)
    if statement.warehouse is not None:
        name = _exact(services, statement.warehouse)
        return Outcome(table=table.filter(pc.equal(table["name"], name)))
    kept = [is_like(name, statement.like) for name in table["name"].to_pylist()]
    return Outcome(table=table.filter(pa.array(kept, pa.bool_())))


def _show_create(services: Services, call: Call, statement: ShowCreateWarehouse) -> Outcome:
    name = _exact(services, statement.warehouse)
    found = services.catalog.warehouses.find(name)
    settings = tuple(found.settings.items()) if found is not None else ()
    text = warehouse_text(CreateWarehouse(warehouse=name, if_not_exists=name in BUILT_IN, settings=settings))
    return Outcome(table=pa.table({"statement": pa.array([text], pa.string())}))


@contextmanager
def _changing(services: Services, call: Call, verb: str, because: str = "") -> Iterator[None]:
    with audited(services, call, verb=verb, because=because), _one_at_a_time:
        yield


def _drain_word(drains: bool) -> str:
    return "DRAIN" if drains else "RESUME"


def _exact(services: Services, name: str) -> str:
    """Return the warehouse that a name means. Raises NotFoundError (WAREHOUSE_NOT_FOUND)."""
    return services.dispatcher.warehouse_named(name)


def _declare(services: Services) -> None:
    services.dispatcher.declare(services.catalog.warehouses.all())


def _named_by(relation: object) -> tuple[str, ...]:
    if isinstance(relation, TableDef | KafkaDef):
        return table_warehouses(relation.settings).named
    return ()


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _USERS_SHOWN_MAX} more" if len(names) > _USERS_SHOWN_MAX else ""
    return ", ".join(sorted(names)[:_USERS_SHOWN_MAX]) + more


KINDS = (
    StatementKind(
        value=CreateWarehouse, forms=(Form(words="CREATE WAREHOUSE", parse=_parse_create_warehouse),), perform=_create
    ),
    StatementKind(
        value=AlterWarehouse, forms=(Form(words="ALTER WAREHOUSE", parse=_parse_alter_warehouse),), perform=_alter
    ),
    StatementKind(
        value=DropWarehouse, forms=(Form(words="DROP WAREHOUSE", parse=_parse_drop_warehouse),), perform=_drop
    ),
    StatementKind(
        value=ShowWarehouses,
        forms=(
            Form(words="SHOW WAREHOUSES", parse=_parse_show_warehouses),
            Form(words="SHOW WAREHOUSE", parse=_parse_show_warehouse),
        ),
        perform=_show,
        queue=Queue.WATCH,
        only_reads=True,
    ),
    StatementKind(
        value=ShowCreateWarehouse,
        forms=(
            Form(
                words="SHOW CREATE WAREHOUSE",
                parse=_parse_show_create_warehouse,
                # A table may be called so.
                fits=lambda cursor: cursor.is_name(2),
            ),
        ),
        perform=_show_create,
        queue=Queue.WATCH,
        only_reads=True,
    ),
    StatementKind(
        value=AlterWorker,
        forms=(Form(words="ALTER WORKER", parse=_parse_alter_worker),),
        perform=_alter_worker,
        queue=Queue.WATCH,
    ),
    StatementKind(
        value=AlterServer,
        forms=(Form(words="ALTER SERVER", parse=_parse_alter_server),),
        perform=_alter_server,
        queue=Queue.WATCH,
    ),
)
