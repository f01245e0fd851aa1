"""The composition root: the only module that knows every room and each backend, and wires them into one process.

Covers: building a node from a folder and settings, starting and stopping its rooms in order, its health, its HTTP
server. Does not cover: what any of the rooms does. Always holds: a room is stopped before those it stands on; a node
that could not be started leaves nothing running. See also: ARCHITECTURE.md "The house".

    DATA/catalog   the store        DATA/tables   the files        DATA/spark, DATA/log   temporary files, logs
    DATA/backups   catalogs      DATA/class-data   Spark's classes

Tests: tests/integration/sql/test_mutations_on_spark.py, tests/acceptance/test_served_node.py.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tilth.base import tracing
from tilth.base.bounded_calls import BoundedCalls
from tilth.base.clock import SystemClock
from tilth.base.errors import TilthError, UnavailableError
from tilth.base.ids import random_id
from tilth.base.logs import Log, name_process
from tilth.base.pressure import MemoryGate
from tilth.base.rand import new_rng
from tilth.base.settings import TRACE_SETTINGS, TraceSettings, read_settings
from tilth.base.sources import GivenSettings
from tilth.begin import NODE_SETTINGS, begin_spark, check_writable, prepare_folder
from tilth.catalog import ALL_NEWS, Catalog, CatalogSettings, DumpHeader, FollowedKV, Joining
from tilth.control.context.rooms import Rooms
from tilth.control.running import DEFAULT_SLOTS, OTHER_TASKS, StatementLimits
from tilth.control.slots import Queue
from tilth.health import HEALTH_SECONDS_MAX, check_room, failures_of, known_states, notes_of, state_of
from tilth.ingest import (
    ConsumeContext,
    ConsumeManager,
    IngestSettings,
)
from tilth.ingest.consumer.remote import consumer_handlers
from tilth.joining import check_location, check_not_lost, check_not_moved, open_store
from tilth.maintenance import (
    MaintenanceManager,
    ManagerSettings,
    Sweeper,
    sweep_transaction,
)
from tilth.membership import Member, MembershipSettings
from tilth.membership.http_peers import HttpPeers
from tilth.model.service import ALL_TABLES, ServiceStats
from tilth.model.storage import DEFAULT_STORAGE
from tilth.model.wire import Health
from tilth.query.snapshots.pins import Pins
from tilth.query.snapshots.remote import query_handlers
from tilth.query.worker.query_cache import QueryCache
from tilth.recovery import Journal, TxnNotes, has_catalog
from tilth.runners import all_runners
from tilth.server import SETTINGS as SERVER_SETTINGS
from tilth.server import (
    AppContext,
    Calls,
    HttpServer,
    Metrics,
    MetricSources,
    ServerSettings,
    build_app,
    reachable_url,
)
from tilth.statements.engine import SqlEngine
from tilth.storage import (
    BadStoreError,
    NamedRoots,
    NodeStorageSettings,
    StoreRoot,
    local_root,
    parse_root,
    tables_root,
    write_probe,
)
from tilth.warehouse import (
    QUERY_WAREHOUSE,
    Dispatcher,
    EmbeddedWorker,
    ProgressWatch,
    WorkerSession,
    drain_reason,
)
from tilth.warehouse.remote.token import service_token
from tilth.warehouse.remote.wire import StorageProbe
from tilth.warehouse.remote.workers import RemoteSettings, RemoteWorkers

WORKER = "embedded"
#: Grace period for running work at shutdown; then Spark is killed.
CLOSE_SECONDS_MAX = 12.0
#: Retry delay after a first query, or a start of Python workers, that failed.
WARM_AGAIN_SECONDS = 2.0

_log = Log("node")

T = TypeVar("T")


class Node:
    """A server and a worker in one process. Use it as a context manager, or close it."""

    def __init__(self, folder: Path, settings: GivenSettings, session: WorkerSession | None = None) -> None:
        """Start everything but the HTTP server; raises what prevents it, with nothing left running.

        `session`: what `begin_spark` gave for this folder and these settings; none: it is begun here.
        """
        given = NODE_SETTINGS.canonical(settings.texts)
        self._given = given
        self._token = service_token(read_settings(ServerSettings, given).token_file, os.environ)
        self._clock = SystemClock()
        self._folder = prepare_folder(folder)
        membership = read_settings(MembershipSettings, given)
        #: Its name among the servers of the catalog.
        self._server = membership.name or socket.gethostname()
        name_process(server=self._server)
        #: Drawn anew by each process.
        self._run_id = random_id()
        self._session = session or begin_spark(self._folder, given)
        self._parts = ExitStack()
        self._parts.callback(self._session.stop)
        self._states = BoundedCalls[dict[str, str]](self._clock, seconds_max=HEALTH_SECONDS_MAX)
        self._is_ready = threading.Event()
        self._is_closing = threading.Event()
        self._starting = "Spark runs its first query"
        #: `True` if all components that follow changes in the catalog have started.
        self._is_wired = False
        try:
            tracing.set_up(read_settings(TraceSettings, given), server=self._server)
            self._parts.callback(tracing.stop)
            root = tables_root(self._folder, read_settings(NodeStorageSettings, given).root)
            self._open_catalog(given, membership, root)
            self._open_warehouse(given)
            self._open_flows(given)
            self._open_sql(GivenSettings(given, settings.sources))
        except BaseException:
            self._parts.close()
            raise
        _log.info("node_started", folder=self._folder, server=self._server)

    def listen(self, host: str, port: int, listener: socket.socket | None = None) -> HttpServer:
        """Start the HTTP server, at an address that `bind` may have reserved before; it closes with the node.

        Raises UnavailableError (ADDRESS_IN_USE).
        """
        context = AppContext(
            clock=self._clock,
            statements=self.engine,
            snapshots=self._pins,
            health=self.health,
            ready=self.ready,
            failed_services=self.failed_services,
            metrics=self._metrics.text,
            maintenance=self._maintenance.status,
            ids=random_id,
            settings=read_settings(ServerSettings, self._given),
            listen_host=host,
            machine_name=socket.gethostname(),
            counters=self._metrics.http,
            calls=self._calls,
        )
        server = HttpServer(self._clock, build_app(context), host=host, port=port, listener=listener)
        server.start()
        self._parts.callback(server.stop)
        given = read_settings(MembershipSettings, self._given)
        self._member.announce(given.url or reachable_url(server.url))
        return server

    def health(self) -> Health:
        """The components, with a note for each warehouse that has no worker."""
        return self._health(self._components({"warehouses": self._empty_warehouses}))

    def _empty_warehouses(self) -> dict[str, str]:
        empty = [each.name for each in self._dispatcher.warehouses() if not each.workers]
        return {f"warehouse {name}": "it has no worker: start one with `tilth worker`" for name in empty}

    def _components(self, further: Mapping[str, Callable[[], dict[str, str]]] | None = None) -> dict[str, str]:
        """Return the states of all components within a second, even if some hang: the state of one that does not
        answer has its address or folder, and the time since when.
        """
        components = {}
        if self._database_watch is not None:
            components["catalog database"] = self._database_watch.trouble or "ok"
        if self._member.trouble:
            components["membership"] = self._member.trouble
        known = known_states(
            self._states,
            {
                "disk": lambda: {"disk": state_of(lambda: check_room(self._folder))},
                "catalog": lambda: {"catalog": state_of(lambda: self.catalog.tables.databases())},
                "spark": lambda: {"spark": state_of(self._check_spark)},
                "tables folder": lambda: {"tables folder": state_of(self._check_tables_folder)},
                "storages": self._storages,
            }
            | dict(further or {}),
            {"disk": str(self._folder), "catalog": self._catalog_location, "tables folder": self._roots.default.uri},
        )
        # The clock comes last, so that a full disk is named before it.
        return components | known | {"clock": str(self.catalog.clock_check.removal_error() or "ok")}

    def _check_tables_folder(self) -> None:
        """Check that a tables folder on the node's own disk can be written. Raises FolderError."""
        if self._roots.default.is_local:
            check_writable(Path(self._roots.default.uri))

    def _storages(self) -> dict[str, str]:
        is_checked = self._roots.default.is_local
        return {
            "tables folder" if name == DEFAULT_STORAGE else f"storage {name}": state.trouble or "ok"
            for name, state in self._roots.states().items()
            if not (is_checked and name == DEFAULT_STORAGE)
        }

    def ready(self) -> Health:
        """The components, and whether statements work: Spark has run a first query since the node started."""
        components = self._components()
        components["statements"] = "ok" if self._is_ready.is_set() else self._starting
        return self._health(components)

    def failed_services(self) -> dict[str, str]:
        """Return the background services that fail, and why; of many, some and the number of the others. Returns
        within a second, even if some hang.
        """

        def failing() -> dict[str, str]:
            services = (self._consume.stats, self._maintenance.failing, self.engine.pipes.stats)
            return failures_of([one for each in services for one in _known(each)])

        return known_states(self._states, {"services": failing})

    def _health(self, components: dict[str, str]) -> Health:
        empty = {name: components.pop(name) for name in list(components) if name.startswith("warehouse ")}
        is_well = all(state == "ok" for state in components.values())
        return Health(
            status="ok" if is_well else "degraded",
            version=version("tilth"),
            server=self._server,
            components=components,
            notes=notes_of(self._database_watch, self.catalog.transactions.lost.count) | empty,
        )

    def _services(self) -> list[ServiceStats]:
        services = (self._consume.stats, self._maintenance.stats, self.engine.pipes.stats)
        return [one for each in services for one in _known(each)]

    def close(self) -> None:
        """Stop the services, end running tasks, close Spark and the store; Java is killed if that lasts too long."""
        self._is_closing.set()
        # A JVM that hangs would keep everybody waiting who has to end a task.
        self._session.keep_ended()
        too_long = threading.Timer(CLOSE_SECONDS_MAX, self.kill_spark)
        too_long.daemon = True
        too_long.start()
        with suppress(TilthError):
            self._member.leave()
        try:
            self.engine.cancel_all()
            # The HTTP server closes first: no receiver is left for the ends of tasks.
            self._remote.stop()
            self._parts.close()
        finally:
            too_long.cancel()

    def kill_spark(self) -> None:
        """End Java at once, for a stop that lasts too long."""
        _log.warning("stop_is_slow", seconds=CLOSE_SECONDS_MAX, then="Java is killed")
        self._session.keep_ended()
        self._session.kill_if_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check_spark(self) -> None:
        trouble = self._worker.trouble()
        if trouble:
            raise UnavailableError(trouble)
        _ = self._session.session

    def _open_catalog(self, given: Mapping[str, str], membership: MembershipSettings, root: StoreRoot) -> None:
        settings = read_settings(CatalogSettings, given)
        bound = membership.gone_seconds
        if not settings.url:
            check_not_lost(root, is_empty=not has_catalog(self._folder))
        opened = open_store(self._clock, self._folder, settings, version=version("tilth"), gone_seconds=bound)
        self.catalog: Catalog = Catalog(
            opened.store,
            self._clock,
            self._server,
            random_id,
            commit_attempts_max=settings.commit_attempts_max,
        )
        self._parts.callback(self.catalog.close)
        sweeper = Sweeper()
        self._start(sweeper.start, sweeper.stop)
        #: Storage root of each table.
        self._roots = NamedRoots(self._clock, root, self.catalog.storage_of, self.catalog.copies.incomplete)
        self.catalog.sweep_with(partial(sweep_transaction, self.catalog, self._roots))
        self.catalog.sweep_on(sweeper.offer)
        #: Address or folder of the catalog, as errors name it.
        self._catalog_location = opened.location
        #: Watch on the catalog's database; None: the catalog is in a local folder.
        self._database_watch = opened.watch
        if opened.watch is not None:
            self._start(opened.watch.start, opened.watch.stop)
        check_not_moved(self.catalog)
        if opened.liveness is not None:
            check_location(self.catalog, self._roots.default)
        self._member = Member(
            self._clock,
            self.catalog,
            Joining(
                name=self._server,
                run=self._run_id,
                version=version("tilth"),
                servers_max=membership.servers_max,
            ),
            bounds=membership.bounds,
            liveness=opened.liveness,
            on_change=self._servers_changed,
            on_news=self._on_news,
        )
        self._member.join()
        self._member.start()
        # Last of all: what it hosted is others' then.
        self._parts.callback(self._member.stop)
        self._follow_catalog()
        self.catalog.follow_storages(self._follow_storages)
        self._write_for_recovery(opened.followed, settings.journal_seconds)
        others = {each.name for each in self.catalog.servers.all()}
        left = self.catalog.readers.close_left_behind(self._server, others)
        if left:
            _log.info("reader_leases_closed", leases=left, reason="their queries ended with a former process")

    def _servers_changed(self) -> None:
        """Follow at once the change of what this server hosts."""
        if self._is_wired:
            self._consume.wake()
            self._maintenance.wake()
            self.engine.pipes.wake()

    def _follow_catalog(self) -> None:
        """Follow the storages and warehouses of the catalog: other servers make and drop them too."""
        self._follow_storages()
        if self._is_wired:
            self._follow_warehouses()

    def _follow_storages(self) -> None:
        self._roots.follow(self.catalog.storages.all)

    def _on_news(self, tables: frozenset[str]) -> None:
        """Follow at once the commits of servers about tables, storages and warehouses."""
        if not self._is_wired:
            return
        if ALL_NEWS in tables:
            self._follow_catalog()
            self._servers_changed()
            return
        for uuid in tables:
            if self._member.hosts(uuid) or uuid == ALL_TABLES:
                self._consume.wake(uuid or None)
                self._maintenance.wake(uuid or None)
                self.engine.pipes.wake(uuid or None)

    def _follow_warehouses(self) -> None:
        self._dispatcher.declare(self.catalog.warehouses.all())
        drains = self.catalog.warehouses.drains()
        self._dispatcher.keep_drained({each.worker: drain_reason(each) for each in drains})

    def _write_for_recovery(self, store: FollowedKV | None, seconds: float) -> None:
        notes = TxnNotes(self._clock, self.catalog, self._roots.default, server=self._server)
        self._start(notes.start, notes.stop)
        if store is None:
            return
        journal = Journal(
            self._clock,
            self.catalog,
            store,
            self._roots.default,
            header=lambda: DumpHeader(version=version("tilth"), server=self._server, created_ms=self._clock.now_ms()),
            seconds=seconds,
        )
        self._start(journal.start, journal.stop)

    def _open_warehouse(self, given: Mapping[str, str]) -> None:
        settings = self._session.settings
        self._session.start()
        self._worker = EmbeddedWorker(
            self._clock,
            self._session,
            name=WORKER,
            memory_bytes=settings.memory_bytes,
            threads=settings.write_slots,
        )
        slots = settings.slots
        slots[QUERY_WAREHOUSE] += OTHER_TASKS
        # Warehouses of users run here as `write` does.
        slots = {name: slots.get(name, settings.write_slots) for name in (*slots, *settings.embedded)}
        workers = {name: [self._worker] if name in settings.embedded else [] for name in slots}
        seconds_max = settings.empty_seconds_max
        self._dispatcher = Dispatcher(self._clock, random_id, workers, slots=slots, empty_seconds_max=seconds_max)
        self._follow_warehouses()
        self._progress = ProgressWatch(self._clock, self._session, self._worker.live_ids)
        self._query_slots = settings.query_slots
        server_settings = read_settings(ServerSettings, given)
        self._remote = RemoteWorkers(
            self._clock,
            random_id,
            self._dispatcher,
            settings=RemoteSettings(
                token=self._token,
                server=self._server,
                version=version("tilth"),
                probes=self._probes,
                reserved=frozenset({WORKER}),
                gone_seconds=server_settings.worker_gone_seconds,
            ),
        )

    def _probes(self) -> tuple[StorageProbe, ...]:
        """Files that prove to a worker that it sees the tables' files."""
        content, probes = self._run_id.encode(), []
        states = self._roots.states()
        for name, root in self._roots.all().items():
            is_default = name == DEFAULT_STORAGE
            if not is_default and name in states and states[name].trouble:
                continue
            try:
                probes.append(
                    StorageProbe(root=root.text, path=write_probe(root, content, server=self._server), content=content)
                )
            except (TilthError, OSError) as error:
                if is_default:
                    raise
                # It holds up its own tables only.
                _log.warning("storage_not_probed", storage=name, reason=error)
        return tuple(probes)

    def _open_flows(self, given: Mapping[str, str]) -> None:
        self._maintenance = MaintenanceManager(
            self._clock,
            self.catalog,
            self._dispatcher,
            root=self._roots,
            settings=read_settings(ManagerSettings, given),
            hosts=self._member.hosts,
        )
        context = ConsumeContext(
            clock=self._clock,
            catalog=self.catalog,
            dispatcher=self._dispatcher,
            ids=random_id,
            settings=read_settings(IngestSettings, given),
            root=self._roots,
            server=self._server,
            hosts=self._member.hosts,
            memory=self._maintenance.memory,
        )
        self._consume = ConsumeManager(context)
        self._maintenance.add_memory_relief(self._session.release_memory)

    def _open_sql(self, given: GivenSettings) -> None:
        server_settings = read_settings(ServerSettings, given.texts)
        peers = HttpPeers(self._clock, random_id, self._member, token=self._token)
        self._parts.callback(peers.close)
        rooms = Rooms(
            clock=self._clock,
            ids=random_id,
            catalog=self.catalog,
            dispatcher=self._dispatcher,
            consume=self._consume,
            maintenance=self._maintenance,
            root=self._roots,
            backups=backup_root(read_settings(CatalogSettings, given.texts), self._folder),
            server=self._server,
            results=str(self._folder / "spark"),
            memory=MemoryGate(self._maintenance.memory, new_rng()),
            damage=self._maintenance.damage,
            peers=peers,
            hosts=self._member.hosts,
            progress=self._progress.of,
        )
        slots = {**DEFAULT_SLOTS, Queue.QUERY: self._query_slots, Queue.INSERT: server_settings.insert_slots}
        self.engine = SqlEngine(
            rooms,
            settings=given,
            upper_settings=(*SERVER_SETTINGS.all, *TRACE_SETTINGS.all),
            limits=StatementLimits(slots=slots, statements_max=server_settings.statements_max),
            result_limits=server_settings.result_limits,
        )
        self._pins = Pins(self._clock, self.catalog, root=self._roots, server=self._server)
        cache = QueryCache()
        self._metrics = Metrics(
            self._clock,
            MetricSources(
                catalog=self.catalog.stats,
                warehouse=self._dispatcher.stats,
                services=self._services,
                consumers=lambda: _known(self._consume.kafka_tables),
                replays=self._consume.replays,
                tasks=self._dispatcher.tasks,
                maintenance=self._maintenance.numbers,
                alarms=self.engine.alarms,
                inserts=self.engine.insert_stats,
                pipes=self.engine.pipes.numbers,
                statements=self.engine.statement_stats,
                queries=cache.stats,
                traces=tracing.stats,
                numbers=partial(self.engine.server_numbers, server_settings.metrics_tables_max),
            ),
        )
        runners = all_runners(self._clock, self.engine.snapshots, self._consume, cache=cache)
        for kind, runner in runners.items():
            self._worker.register(kind, runner)
        handlers = consumer_handlers(self._consume) | query_handlers(self.engine.snapshots)
        self._calls = Calls(token=self._token, handlers=self._remote.handlers(handlers) | peers.handlers(self.engine))
        self._start(self._progress.start, self._progress.stop)
        self._start(self._worker.start, self._worker.stop)
        self._start(self._remote.start, self._remote.stop)
        self._start(self._dispatcher.start, self._dispatcher.stop)
        self._start(self.engine.start, self.engine.stop)
        self._start(self._maintenance.start, self._maintenance.stop)
        self._start(self._consume.start, self._consume.stop)
        self._is_wired = True
        # Not waited for: `ready` is set when a first query has run; until then a query finds the Python workers cold.
        threading.Thread(target=self._warm, name="tilth-warm", daemon=True).start()

    def _start(self, start: Callable[[], None], stop: Callable[[], None]) -> None:
        start()
        self._parts.callback(stop)

    def _warm_workers(self) -> None:
        """Start Python's workers, and host tables then: a consumer that moves here must not wait for them."""
        try:
            self._session.warm_if_possible()
        finally:
            # Where the catalog is away, the next heartbeat publishes it.
            with suppress(TilthError):
                self._member.ready()

    def _warm(self) -> None:
        while not self._is_closing.is_set():
            if self._session.outage is not None:
                # The heartbeat retries, and reports why.
                self._clock.wait(self._is_closing, WARM_AGAIN_SECONDS)
                continue
            try:
                # Side by side: consumers wait for Python's workers, queries do not.
                threading.Thread(target=self._warm_workers, name="tilth-warm-workers", daemon=True).start()
                self._session.run_first_query()
                self._is_ready.set()
                return
            # Whatever Spark raises: statements do not work yet.
            except Exception as error:
                self._starting = f"the first query failed: {str(error)[:500]}"
                _log.warning("warming_failed", reason=error)
                self._clock.wait(self._is_closing, WARM_AGAIN_SECONDS)


def open_node(folder: Path, settings: GivenSettings | Mapping[str, str], session: WorkerSession | None = None) -> Node:
    """Start a node over the folder, which is made if it is not there; `session` as in `Node`. Raises UnavailableError
    and its kind.
    """
    return Node(folder, settings if isinstance(settings, GivenSettings) else GivenSettings(settings), session)


def backup_root(settings: CatalogSettings, folder: Path) -> StoreRoot:
    """Return where the node's backups lie. Raises BadStoreError."""
    given = settings.backup_folder
    if "://" not in given:
        return local_root(given or folder / "backups")
    try:
        return parse_root(given)
    except BadStoreError as error:
        error.facts["setting"] = "catalog.backup-folder"
        raise


def _known(call: Callable[[], list[T]]) -> list[T]:
    """Return the stats of services; none while the catalog is away, which health reports."""
    try:
        return call()
    except UnavailableError as error:
        _log.debug("services_not_read", reason=error)
        return []
