"""CREATE, ALTER, DROP and SHOW WAREHOUSE, ALTER WORKER.

Covers: what they check, keep and answer. Does not cover: what a warehouse's settings do (tilth.warehouse).
Always holds: what is said is kept in the catalog first, and then given to the dispatcher; `default` and `write` stay; a
warehouse that somebody uses is not dropped.
"""

from __future__ import annotations

import threading

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tilth.base.errors import InvalidInputError, NotFoundError
from tilth.control.context.audit import audited
from tilth.control.context.services import Call, Services
from tilth.grammar.render import render
from tilth.grammar.warehouse_statements import (
    AlterServer,
    AlterWarehouse,
    AlterWorker,
    CreateWarehouse,
    DropWarehouse,
    ShowCreateWarehouse,
    ShowWarehouses,
    WarehouseStatement,
)
from tilth.introspection.registry import find_system_table
from tilth.introspection.statements.show import is_like
from tilth.model.table import KafkaDef, TableDef, full_name
from tilth.model.warehouse import Drain, Warehouse
from tilth.query.results.answer import Outcome, done
from tilth.query.settings import WAREHOUSES
from tilth.warehouse import (
    BUILT_IN,
    WarehouseExistsError,
    WarehouseInUseError,
    WorkerNotFoundError,
    drain_reason,
    table_warehouses,
)


class ServerNotFoundError(NotFoundError):
    """no such server"""

    code = "SERVER_NOT_FOUND"


_USERS_SHOWN_MAX = 10
_NAME_CHARACTERS_MAX = 128
#: Definitions are read, changed and given to the dispatcher by one statement at a time.
_one_at_a_time = threading.Lock()


def warehouses(services: Services, call: Call, statement: WarehouseStatement) -> Outcome:
    match statement:
        case ShowWarehouses():
            return _show(services, statement)
        case ShowCreateWarehouse(warehouse=name):
            return _show_create(services, name)
        case CreateWarehouse():
            with audited(services, call, verb="CREATE WAREHOUSE"), _one_at_a_time:
                return _create(services, statement)
        case AlterWarehouse():
            with audited(services, call, verb="ALTER WAREHOUSE"), _one_at_a_time:
                return _alter(services, statement)
        case DropWarehouse():
            with audited(services, call, verb="DROP WAREHOUSE"), _one_at_a_time:
                return _drop(services, statement)
        case AlterWorker(drains=drains, because=because):
            verb = f"ALTER WORKER .. {'DRAIN' if drains else 'RESUME'}"
            with audited(services, call, verb=verb, because=because), _one_at_a_time:
                return _alter_worker(services, call, statement)
        case AlterServer(drains=drains, because=because):
            verb = f"ALTER SERVER .. {'DRAIN' if drains else 'RESUME'}"
            with audited(services, call, verb=verb, because=because), _one_at_a_time:
                return _alter_server(services, statement)


def _alter_server(services: Services, statement: AlterServer) -> Outcome:
    """Raises ServerNotFoundError."""
    name, servers = statement.server, services.catalog.servers
    known = {each.name for each in servers.all()}
    if name not in known and (statement.drains or name not in servers.drains()):
        raise ServerNotFoundError(server=name, hint=f"there are: {', '.join(sorted(known))}")
    if not statement.drains:
        servers.resume(name)
        return done(f"server {name} hosts tables again")
    servers.drain(name, statement.because)
    return done(f"server {name} lets go of its tables, after a restart too, until ALTER SERVER .. RESUME")


def _create(services: Services, statement: CreateWarehouse) -> Outcome:
    """Raises WarehouseExistsError, and what settings raise."""
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
        raise WarehouseExistsError(warehouse=name, hint="ALTER WAREHOUSE changes it")
    _declare(services)
    return done(f"warehouse created: {name}; `tilth worker --warehouse {name}` gives it a worker")


def _alter(services: Services, statement: AlterWarehouse) -> Outcome:
    """Raises WarehouseNotFoundError, and what settings raise."""
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


def _drop(services: Services, statement: DropWarehouse) -> Outcome:
    """Raises WarehouseNotFoundError, and WarehouseInUseError with who uses it."""
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


def _show(services: Services, statement: ShowWarehouses) -> Outcome:
    table = find_system_table("warehouses").build(services)
    if statement.warehouse is not None:
        name = _exact(services, statement.warehouse)
        return Outcome(table=table.filter(pc.equal(table["name"], name)))
    kept = [is_like(name, statement.like) for name in table["name"].to_pylist()]
    return Outcome(table=table.filter(pa.array(kept, pa.bool_())))


def _show_create(services: Services, name: str) -> Outcome:
    name = _exact(services, name)
    found = services.catalog.warehouses.find(name)
    settings = tuple(found.settings.items()) if found is not None else ()
    text = render(CreateWarehouse(warehouse=name, if_not_exists=name in BUILT_IN, settings=settings))
    return Outcome(table=pa.table({"statement": pa.array([text], pa.string())}))


def _exact(services: Services, name: str) -> str:
    """Return the warehouse that a name means. Raises WarehouseNotFoundError."""
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
