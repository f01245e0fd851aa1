"""The composition root of a worker process: its Spark, its runners, its HTTP endpoint, its link to the server.

Covers: building a worker from its options and settings, starting and stopping it in order. Does not cover: what any of
the rooms does, the server (node.py).
Always holds: nothing of the catalog is opened here; Spark starts only after a server has accepted this
worker, and stays when the worker goes on with another server; a worker that could not be started leaves nothing
running. See also: docs/operate/workers.md.

Tests: tests/integration/warehouse/test_worker_processes.py.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from tilth.base import tracing
from tilth.base.clock import SystemClock
from tilth.base.errors import FolderError, TilthError, UnavailableError
from tilth.base.ids import random_id
from tilth.base.logs import Log, name_process
from tilth.base.settings import TraceSettings, read_settings
from tilth.begin import PRIVATE
from tilth.control.running import OTHER_TASKS
from tilth.ingest.consumer.remote import RemoteConsumerCalls
from tilth.model.task import TaskKind
from tilth.query.snapshots.remote import RemoteQueryCalls
from tilth.query.worker.query_cache import QueryCache
from tilth.runners import all_runners
from tilth.server import Calls, HttpServer, ServerSettings, build_calls_app, reachable_url
from tilth.storage import check_probe
from tilth.warehouse import (
    QUERY_WAREHOUSE,
    EmbeddedWorker,
    Runner,
    WorkerSession,
    class_data,
    warehouse_settings,
)
from tilth.warehouse.remote.channel import Channel
from tilth.warehouse.remote.errors import BadTokenError
from tilth.warehouse.remote.link import WorkerLink
from tilth.warehouse.remote.shared import LastOver, MemberTasks, SharedWorker, handlers_by_caller, runners_by_owner
from tilth.warehouse.remote.token import VARIABLE, service_token
from tilth.warehouse.remote.wire import WIRE_VERSION, Registration, StorageProbe
from tilth.warehouse.remote.workers import Handler

#: Grace period for running tasks when the worker is stopped.
DRAIN_SECONDS_MAX = 10.0
_FOLDERS = ("spark", "log")

_log = Log("worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Options of `tilth worker`."""

    #: Address of the server, or addresses of several of one catalog with commas between.
    server: str
    #: `True`: it serves all of them at once; else one at a time.
    serves_all: bool = False
    warehouse: str
    name: str
    folder: Path
    token: str = field(repr=False)
    #: Address of its HTTP endpoint; port 0 selects a free one.
    listen_host: str = "127.0.0.1"
    listen_port: int = 0


class WorkerNode:
    """A worker of a server in another process. Start it, wait for `over`, stop it."""

    def __init__(self, options: WorkerOptions, given: Mapping[str, str], *, over: threading.Event) -> None:
        """`given`: texts of settings of the warehouse; `over` is set when the server refuses the worker for good.

        Starts nothing yet. Raises InvalidInputError (BAD_SERVER_ADDRESS) and FolderError.
        """
        self._options = options
        name_process(worker=options.name)
        self._over = over
        self._clock = SystemClock()
        self._settings = warehouse_settings(given)
        self._traces = read_settings(TraceSettings, given)
        self._folder = _prepare_folder(options.folder)
        self._parts = ExitStack()
        urls = options.server.split(",") if options.serves_all else [options.server]
        #: A channel to the server, or to each of several that it serves at once.
        self._channels = [Channel(self._clock, random_id, url, token=options.token) for url in urls]
        self._session = WorkerSession(
            self._settings,
            folder=str(self._folder / "spark"),
            log_folder=str(self._folder / "log"),
            class_data=class_data(self._settings, default=self._folder / "class-data"),
        )
        self._links: list[WorkerLink] = []

    @property
    def server(self) -> str:
        """Address of the server that it calls now, or addresses of all that it serves."""
        return ", ".join(channel.url for channel in self._channels)

    @property
    def refusal(self) -> TilthError | None:
        """Reason why the server refuses it for good, or why all of them do."""
        refusals = [link.refusal for link in self._links]
        return refusals[0] if refusals and None not in refusals else None

    def start(self) -> None:
        """Return when the server has registered the worker. Raises what prevents it, with nothing left running."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        settings, options = self._settings, self._options
        tracing.set_up(self._traces, worker=options.name)
        self._parts.callback(tracing.stop)
        # Filled below: the address of the endpoint is a part of the registration.
        handlers: dict[str, Handler] = {}
        app = build_calls_app(Calls(token=options.token, handlers=handlers))
        server = HttpServer(self._clock, app, host=options.listen_host, port=options.listen_port)
        server.start()
        self._parts.callback(server.stop)
        over = LastOver(self._over, servers=len(self._channels))
        self._links = [
            WorkerLink(
                self._clock,
                random_id,
                channel,
                self._registration(server.url),
                check_storage=self._check_storage,
                over=over,
                shares_worker=len(self._channels) > 1,
            )
            for channel in self._channels
        ]
        handlers |= handlers_by_caller(self._links)
        there = self._try_servers()
        self._session.start()
        self._parts.callback(self._session.stop)
        worker = EmbeddedWorker(
            self._clock,
            self._session,
            name=options.name,
            memory_bytes=settings.memory_bytes,
            threads=settings.write_slots,
        )
        shared = SharedWorker(worker)
        members = [shared.member() for _ in self._links]
        runners = {member: self._runners(channel) for member, channel in zip(members, self._channels, strict=True)}
        for kind, runner in runners_by_owner(shared, runners).items():
            worker.register(kind, runner)
        worker.start()
        self._parts.callback(worker.stop)
        # Before the first task: a consumer that moves here must not wait for Python and for classes.
        self._session.warm_if_possible(with_query=True)
        for link, member in zip(self._links, members, strict=True):
            self._join(link, member, is_there=link in there)
        _log.info("worker_started", worker=options.name, server=self.server, warehouse=options.warehouse)

    def stop(self, reason: str) -> None:
        """Wait a while for running tasks, unregister, and end Spark."""
        with ThreadPoolExecutor(max(1, len(self._links)), "tilth-leave") as pool:
            for link in self._links:
                pool.submit(link.leave, reason, drain_seconds=DRAIN_SECONDS_MAX)
        self.close()

    def close(self) -> None:
        """End at once; does nothing a second time."""
        for link in self._links:
            link.close()
        self._session.keep_ended()
        self._parts.close()
        for channel in self._channels:
            channel.close()

    def kill_spark(self) -> None:
        """End Java at once, for a stop that lasts too long."""
        self._session.keep_ended()
        self._session.kill_if_alive()

    def _try_servers(self) -> list[WorkerLink]:
        """Return the links whose servers would accept this worker now. Raises the refusal of the first one if there is
        none; of several, others are tried again while it runs.
        """
        there, errors = list[WorkerLink](), list[TilthError]()
        for link in self._links:
            try:
                link.try_server()
            except TilthError as error:
                errors.append(error)
                _log.warning("server_not_there", url=link.url, reason=error)
            else:
                there.append(link)
        if not there:
            raise errors[0]
        return there

    def _join(self, link: WorkerLink, member: MemberTasks, *, is_there: bool) -> None:
        """Register at a server; at one of several that is not there, as soon as it is."""
        cores = self._session.parallelism.cores
        if is_there:
            try:
                link.join(member, cores=cores)
                return
            except UnavailableError as error:
                if len(self._links) == 1:
                    raise
                _log.warning("server_not_there", url=link.url, reason=error)
        link.join_when_there(member, cores=cores)

    def _runners(self, channel: Channel) -> dict[TaskKind, Runner]:
        return all_runners(self._clock, RemoteQueryCalls(channel), RemoteConsumerCalls(channel), cache=QueryCache())

    def _registration(self, url: str) -> Registration:
        settings, options = self._settings, self._options
        is_query = options.warehouse == QUERY_WAREHOUSE
        return Registration(
            name=options.name,
            version=version("tilth"),
            wire=WIRE_VERSION,
            warehouse=options.warehouse,
            url=reachable_url(url),
            host=socket.gethostname(),
            pid=os.getpid(),
            master=settings.master,
            memory_bytes=settings.memory_bytes,
            slots=settings.query_slots + OTHER_TASKS if is_query else settings.write_slots,
        )

    def _check_storage(self, probe: StorageProbe) -> None:
        own = f"{self._options.name}-{os.getpid()}".replace("/", "-")
        try:
            check_probe(probe.root, probe.path, probe.content, own_name=own)
        except TilthError as error:
            raise UnavailableError.coded(
                "WORKER_STORAGE",
                "the worker does not see the files of the server's tables",
                worker=self._options.name,
                reason=error.message,
                hint=error.hint,
            ) from error


def worker_token(file: Path | None, given: Mapping[str, str]) -> str:
    """Return the service token of the file, of the setting's file, or of the environment. Raises BadTokenError, also
    where there is none.
    """
    token_file = str(file) if file is not None else read_settings(ServerSettings, given).token_file
    token = service_token(token_file, os.environ)
    if not token:
        hint = f"give the server's in the environment as {VARIABLE}, or in a file by --token-file"
        raise BadTokenError("a worker needs the service token", hint=hint)
    return token


def _prepare_folder(folder: Path) -> Path:
    """Make the worker's folders. Raises FolderError."""
    try:
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        for name in _FOLDERS:
            (folder / name).mkdir(mode=PRIVATE, exist_ok=True)
        with suppress(PermissionError):
            folder.chmod(PRIVATE)
    except OSError as error:
        hint = "choose a folder that can be created and written by --folder"
        raise FolderError(folder=folder, reason=error.strerror, hint=hint) from error
    return folder.resolve()
