"""Three servers over one database, workers, a broker, a storage with three replicas: the subject `servers`.

Covers: starting all processes with links between them, and the blows on servers, workers and replicas. Does not cover:
blows on the database (database.py), on broker and bucket (services.py).
Always holds: clients reach a server directly; all other connections between processes go through a link.
"""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from tilth import Result
from tools.ha_stage import ONE_CORE, HaStage
from tools.hosts import HERE, Host, Hosts, why_no_hosts
from tools.jepsen.database import Database
from tools.jepsen.definitions import Replicas
from tools.jepsen.harm import (
    SHORT,
    SITE,
    Blow,
    Clock,
    Disk,
    clock_blows,
    flipping,
    host_blows,
    jvm_killed,
    link_blows,
    pause_of_several,
    pauses,
    vanishing,
)
from tools.jepsen.history import History
from tools.jepsen.nemesis import LASTING_SECONDS
from tools.jepsen.services import KILLED_SECONDS, broker_killed, bucket_killed, start_broker
from tools.jepsen.subjects import Copies, HarnessConnection, Store, bucket_copies, folder_copies
from tools.node_process import NodeProcess
from tools.stage import BUCKET, wait
from tools.tcp_link import TcpLink

NAMES = ("a", "b", "c")
WORKED = ("a", "b")
STORAGE = "safe"
QUORUM = 2
#: A version that serves together with the installed one.
PATCHED = re.sub(r"\d+$", lambda found: str(int(found[0]) + 1), version("tilth"))


class Servers(HaStage):
    """All processes, and the links between them."""

    storage = STORAGE
    replicas: Replicas | None = None

    def __init__(
        self, folder: Path, rng: random.Random, history: History, *, is_synchronous: bool, names: Sequence[str] = NAMES
    ) -> None:
        super().__init__(folder)
        self._rng = rng
        self.keeps_commits = is_synchronous
        self._database = Database(folder / "database", rng, history, is_synchronous=is_synchronous)
        self._names = names
        self._links: dict[str, TcpLink] = {}
        self._clocks = {name: Clock(folder / "clocks" / name) for name in names}
        self._disks: list[Disk] = []
        self._needs_scrub = False
        #: Names of processes that a blow has ended, to be started again by its mending.
        self._down = set[str]()
        self._patched = _patched_package(folder / "patched")
        self._number = itertools.count()
        #: Network hosts of the servers; None if this process cannot make them: links swallow bytes then.
        self._hosts = None if why_no_hosts() else Hosts(len(names))
        self._here = "127.0.0.1" if self._hosts is None else self._hosts.here

    # --- start -------------------------------------------------------------------------------------------------------

    def start_all(self) -> None:
        """Start every process, and return when all servers and workers accept tasks."""
        if self._hosts is not None:
            self._parts.enter_context(self._hosts)
        self.broker = start_broker(self._folder / "broker", self._link("broker"), self._parts)
        bucket = self._start_bucket()
        self._start_disks()
        settings = {
            "warehouse.master": "local[2]",
            "storage.local-folder": str(self._folder / "disks"),
            "storage.secrets-folder": str(self._folder / "secrets"),
            "warehouse.jars": bucket["warehouse.jars"],
            # A blow is shorter; the last check waits for the removal.
            "failover_grace_seconds": str(LASTING_SECONDS[1] + 10),
        }
        self._start_nodes(settings)
        self.harness = HarnessConnection(self.urls_by_name.values())
        self._parts.callback(self.harness.close)
        for name in [each for each in WORKED if each in self._names]:
            door = f"http://{self._here}:{self._links[f'door of {name}'].port}"
            self.add(f"w{name}", "write", ONE_CORE, server=door, host=Host(address=self._here))
        for worker in self.workers.values():
            worker.wait_ready()
        self._parts.callback(self._stop_processes)
        roots = ", ".join(f"'{root}'" for root in (*map(str, self._replica_folders), bucket["root"]))
        self.sql(f"CREATE STORAGE {STORAGE} REPLICAS ({roots}) QUORUM {QUORUM}")
        folders = [*map(str, self._replica_folders)]
        # The second folder may be replaced, for a blow changes bytes in it; the first one stays.
        self.replicas = Replicas(storage=STORAGE, new=self._new_folder, folders=folders, kept=folders[0])

    def _start_bucket(self) -> dict[str, str]:
        settings = self.start_store()
        secrets = self._folder / "secrets"
        secrets.mkdir()
        for name in ("key", "secret"):
            (self._folder / name).rename(secrets / name)
        to_store, port = self._link("bucket"), self.store.port
        to_store.connect(port)
        root = settings["storage.root"].replace(f"127.0.0.1:{port}", f"{self._here}:{to_store.port}")
        root = root.replace(f"file:{self._folder}/", f"file:{secrets}/").replace("/tables?", "/copies?")
        return {"warehouse.jars": settings["warehouse.jars"], "root": root}

    def _start_disks(self) -> None:
        disk = Disk(self._folder / "disks" / "one")
        self._disks.append(disk)
        self._parts.callback(disk.close)
        self._replica_folders = [disk.folder / "copies", self._folder / "disks" / "two"]

    def _new_folder(self) -> str:
        return str(self._folder / "disks" / f"new{next(self._number)}")

    def _start_nodes(self, settings: dict[str, str]) -> None:
        self._parts.callback(self._database.stop)
        self._database.start()
        for number, name in enumerate(self._names):
            own = {
                "server.name": name,
                "catalog.url": self.database_address(name),
                "storage.root": f"file://{self._folder}/tables",
                "server.token-file": str(self._folder / "token"),
                "server.url": f"http://{self._here}:{self._link(f'door of {name}').port}",
                "server.allowed-hosts": self._here,
                "warehouse.driver-memory": "1g",
            }
            environment = self._clocks[name].environment | {"PYTHONPATH": python_path(SITE)}
            host = HERE if self._hosts is None else self._hosts.host(number)
            node = NodeProcess(self._folder / name, settings={**settings, **own}, environment=environment, host=host)
            self.nodes[name] = node
            self._links[f"door of {name}"].connect(int(node.url.rpartition(":")[2]), host.address)
            node.start()
            self._parts.callback(node.stop)
        for node in self.nodes.values():
            node.wait_ready()

    def _stop_processes(self) -> None:
        """Stop servers and workers at the same time, for each needs seconds to end its Spark."""
        stops = [*(worker.stop for worker in self.workers.values()), *(node.stop for node in self.nodes.values())]
        with ThreadPoolExecutor(len(stops)) as pool:
            for stopped in [pool.submit(stop) for stop in stops]:
                stopped.result()

    def database_address(self, server: str) -> str:
        link = self._link(f"database of {server}")
        link.connect(self._database.pair.front.port)
        address = self._database.pair.primary.address(by_port=link.port)
        return address.replace(f"@127.0.0.1:{link.port}/", f"@{self._here}:{link.port}/")

    def _link(self, name: str) -> TcpLink:
        link = self._links[name] = TcpLink(self._here)
        self._parts.callback(link.close)
        return link

    @property
    def bootstrap(self) -> str:
        return f"{self._here}:{self._links['broker'].port}"

    @property
    def urls_by_name(self) -> dict[str, str]:
        return {name: node.url for name, node in self.nodes.items()}

    # --- as a subject ------------------------------------------------------------------------------------------------

    def sql(self, statement: str) -> Result:  # type: ignore[override]  # one statement, with its answer
        return self.harness.sql(statement.replace("{bootstrap}", self.bootstrap))

    def wait_all_there(self) -> list[str]:
        found: list[str] = []

        def are_there(alive: str, wanted: Collection[str]) -> bool:
            # A worker of another version than its server may end only now.
            found.extend(self.recover())
            return set(wanted) <= {name for (name,) in self.sql(alive).rows}

        for node in self.nodes.values():
            node.wait_ready()
        alive = "SELECT name FROM system.servers WHERE state = 'alive' AND url IS NOT NULL"
        wait(lambda: are_there(alive, self.nodes), "all servers to be alive")
        workers = "SELECT DISTINCT name FROM system.workers WHERE state = 'alive'"
        wait(lambda: are_there(workers, self.workers), "all workers to be alive")
        return found

    def recover(self) -> list[str]:
        """Restart processes that ended by themselves, as a supervisor does, and scrub copies with wrong bytes."""
        found = self._database.recover()
        for name, node in self.nodes.items():
            if node.has_ended and name not in self._down:
                found.append(f"server {name} ended by itself: exit {node.exit_code}")
                node.start()
        for name, worker in self.workers.items():
            if worker.wait_end(0.0) is not None and name not in self._down:
                found.append(f"worker {name} ended by itself")
                worker.start()
        if self._needs_scrub:
            tables = self.sql(f"SELECT name FROM system.tables WHERE storage_policy = '{STORAGE}'").rows
            self._needs_scrub = any(self.harness.sql_once(f"SYSTEM SCRUB d.{name}") is None for (name,) in tables)
        return found

    def stores(self) -> list[Store]:
        return [
            Store(storage="", quorum=1, copies=lambda: [folder_copies(self._folder / "tables")]),
            Store(storage=STORAGE, quorum=QUORUM, copies=self._copies),
        ]

    def _copies(self) -> list[Copies]:
        paths = [
            str(path)
            for (path,) in self.sql(
                f"SELECT DISTINCT replica_path FROM system.replicas WHERE storage = '{STORAGE}'"
            ).rows
        ]
        bucket = self.store.folder / "buckets" / BUCKET / "copies"
        return [
            bucket_copies(bucket) if path.startswith("s3:") else folder_copies(Path(path.removeprefix("file://")))
            for path in paths
        ]

    def logs(self) -> dict[str, Path]:
        return {name: self._folder / name / "node.log" for name in self.nodes}

    # --- blows -------------------------------------------------------------------------------------------------------

    def blows(self) -> list[Blow]:
        found: list[Blow] = []
        for name, node in self.nodes.items():
            target = f"server {name}"
            found += [self._killed(target, name, node.kill, node.start), *pauses(target, node)]
            found += [jvm_killed(target, node, self._rng), *clock_blows(target, self._clocks[name], self._rng)]
            found.append(self._upgraded(name, node))
        if self._hosts is not None:
            for number, name in enumerate(self._names):
                found += host_blows(self._hosts, number, name)
        for name, worker in self.workers.items():
            target = f"worker {name}"
            found += [self._killed(target, name, worker.kill, worker.start), *pauses(target, worker)]
            found.append(jvm_killed(target, worker, self._rng))
        for name, link in self._links.items():
            found += [_scaled(blow, 0.4) for blow in link_blows(name, link, self._rng)]
        found += [*self._blows_on_several(), *self._service_blows(), *self._replica_blows(), *self._database.blows()]
        return found

    def _killed(self, target: str, name: str, kill: Callable[[], None], start: Callable[[], None]) -> Blow:
        def strike() -> None:
            self._down.add(name)
            kill()

        def mend() -> None:
            self._down.discard(name)
            with suppress(AssertionError):
                start()

        return Blow(
            name=f"{target} killed", target=target, strike=strike, mend=mend, seconds=KILLED_SECONDS, weight=1.5
        )

    def _upgraded(self, name: str, node: NodeProcess) -> Blow:
        """Return the orderly stop of a server, and its start with another patch version."""

        def strike() -> None:
            self._down.add(name)
            node.stop()

        def mend() -> None:
            package = self._patched if self._rng.random() < 0.5 else None
            packages = [package] if package else []
            node.change_environment({"PYTHONPATH": python_path(SITE, *packages)})
            worker = self.workers.get(f"w{name}")
            if worker is not None:
                # A server refuses a worker of another version, which ends then and is started again by `recover`.
                worker.change_environment({"PYTHONPATH": python_path(*packages)})
            self._down.discard(name)
            with suppress(AssertionError):
                node.start()

        target = f"server {name}"
        return Blow(name=f"{target} upgraded", target=target, strike=strike, mend=mend, seconds=SHORT, weight=0.6)

    def _blows_on_several(self) -> list[Blow]:
        """Return blows on several servers at once, and on one while another is being ended."""
        nodes = list(self.nodes.values())
        blows: list[Blow] = []
        for name in self.nodes:
            others = [node for other, node in self.nodes.items() if other != name]
            blows.append(pause_of_several(f"servers other than {name}", others, target="servers"))
            # One server is silent for so long that the others end it, while another one restarts.
            blows.append(self._restarted_while_another_ends(name))

        def kill_all() -> None:
            for name, node in self.nodes.items():
                self._down.add(name)
                node.kill()

        def start_all() -> None:
            for name, node in self.nodes.items():
                self._down.discard(name)
                with suppress(AssertionError):
                    node.start()

        blows.append(
            Blow(
                name="all servers killed", target="servers", strike=kill_all, mend=start_all, seconds=SHORT, weight=0.5
            )
        )
        blows.append(pause_of_several("all servers", nodes, target="servers"))
        return [_scaled(each, 0.5) for each in blows]

    def _restarted_while_another_ends(self, name: str) -> Blow:
        names, target = list(self.nodes), f"server {name}"
        other = names[(names.index(name) + 1) % len(names)]
        silent, restarted = self.nodes[name], self.nodes[other]
        [pause, _] = pauses(target, silent)

        def strike() -> None:
            pause.strike()
            self._down.add(other)
            restarted.kill()
            with suppress(AssertionError):
                restarted.start()
            self._down.discard(other)

        return Blow(
            name=f"{target} silent while {other} restarts",
            target=target,
            strike=strike,
            mend=pause.mend,
            seconds=(2.5, 8.0),
        )

    def _service_blows(self) -> list[Blow]:
        broker, store = self.broker, self.store
        return [
            pauses("broker", broker)[0],
            broker_killed(broker, self._links["broker"]),
            bucket_killed(store, "replica"),
            Blow(name="bucket hangs", target="replica", strike=store.pause, mend=store.go_on),
        ]

    def _replica_blows(self) -> list[Blow]:
        first, second = self._replica_folders
        found = self._disks[0].blows("replica one", "replica")
        if not self._disks[0].is_mounted:
            found.append(vanishing("replica one", first, "replica"))

        def flipped() -> None:
            self._needs_scrub = True

        flip = flipping("replica two", second, "replica", self._rng)
        found.append(vanishing("replica two", second, "replica"))
        found.append(replace(flip, mend=flipped, weight=0.7))
        return found


def _scaled(blow: Blow, factor: float) -> Blow:
    return replace(blow, weight=blow.weight * factor)


def python_path(*folders: Path) -> str:
    """Return the folders before those in which this process finds its packages."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH", "")])])


def _patched_package(folder: Path) -> Path:
    """Return a folder that makes a process report another patch version of Tilth."""
    info = folder / f"tilth-{PATCHED}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tilth\nVersion: {PATCHED}\n")
    return folder


def asynchronous(folder: Path, rng: random.Random, stack: ExitStack, history: History) -> Servers:
    return stack.enter_context(Servers(folder, rng, history, is_synchronous=False))


def two_servers(folder: Path, rng: random.Random, stack: ExitStack, history: History) -> Servers:
    """Return the smallest subject of several servers: of the two one has a worker."""
    return stack.enter_context(Servers(folder, rng, history, is_synchronous=False, names=("a", "c")))


def synchronous(folder: Path, rng: random.Random, stack: ExitStack, history: History) -> Servers:
    return stack.enter_context(Servers(folder, rng, history, is_synchronous=True))
