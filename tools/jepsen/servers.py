"""Three servers over one database, workers, a broker, a storage with three replicas: the subject `servers`.

Covers: starting all of it with links between the parts, and the blows on each. Does not cover: blows on the database
(database.py).
Always holds: clients reach a server directly; whoever else talks to another process does so over a link.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from tilth import Result
from tools.broker import Broker
from tools.ha_stage import ONE_CORE, HaStage
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
    jvm_killed,
    link_blows,
    pause_of_group,
    pauses,
    vanishing,
)
from tools.jepsen.history import History
from tools.jepsen.hosts import Hosts, can_make_hosts
from tools.jepsen.subjects import Asking, Copies, Store, folder_copies
from tools.jepsen.tables import OTHER_TOPIC, TOPIC
from tools.node_process import NodeProcess
from tools.stage import BUCKET, wait
from tools.tcp_link import TcpLink

NAMES = ("a", "b", "c")
WORKED = ("a", "b")
STORAGE = "safe"
QUORUM = 2
KILLED_SECONDS = (0.3, 3.0)
PATCHED = "0.1.1"


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
        #: Processes that a blow has ended and whose mending starts again.
        self._down = set[str]()
        self._patched = _patched_package(folder / "patched")
        self._number = itertools.count()
        #: None where this machine lets us make none: packets are not lost then, links swallow.
        self._hosts = Hosts(len(names)) if can_make_hosts() else None
        self._here = "127.0.0.1" if self._hosts is None else self._hosts.here

    # --- start -------------------------------------------------------------------------------------------------------

    def start_all(self) -> None:
        """Return when all servers and workers take work."""
        if self._hosts is not None:
            self._parts.enter_context(self._hosts)
        self.broker = Broker(self._folder / "broker")
        to_broker = self._link("broker")
        self.broker.start(proxy_port=to_broker.port, proxy_host=self._here)
        self._parts.callback(self.broker.stop)
        to_broker.connect(self.broker.proxied_port)
        self.broker.create_topic(TOPIC, 2)
        self.broker.create_topic(OTHER_TOPIC, 1)
        bucket = self._start_bucket()
        self._start_disks()
        settings = {
            "warehouse.master": "local[2]",
            "storage.local-folder": str(self._folder / "disks"),
            "storage.secrets-folder": str(self._folder / "secrets"),
            "warehouse.jars": bucket["warehouse.jars"],
        }
        self._start_nodes(settings)
        self.asking = Asking(self.urls_by_name.values())
        self._parts.callback(self.asking.close)
        for name in [each for each in WORKED if each in self._names]:
            door = f"http://{self._here}:{self._links[f'door of {name}'].port}"
            self.add(f"w{name}", "write", ONE_CORE, server=door, host=self._here)
        for worker in self.workers.values():
            worker.wait_ready()
        roots = ", ".join(f"'{root}'" for root in (*map(str, self._replica_folders), bucket["root"]))
        self.sql(f"CREATE STORAGE {STORAGE} REPLICAS ({roots}) QUORUM {QUORUM}")
        folders = [*map(str, self._replica_folders)]
        # The second one may be replaced, for its bytes may be wrong; the first one stays.
        self.replicas = Replicas(storage=STORAGE, new=self._new_folder, folders=folders, kept=folders[0])

    def _start_bucket(self) -> dict[str, str]:
        settings = self.start_store()
        secrets = self._folder / "secrets"
        secrets.mkdir()
        for name in ("key", "secret"):
            (self._folder / name).rename(secrets / name)
        to_store, port = self._link("bucket"), int(self.store.endpoint.rpartition(":")[2])
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
            hosts = self._hosts
            host, begin = ("127.0.0.1", []) if hosts is None else (hosts.address(number), hosts.command(number))
            node = NodeProcess(
                self._folder / name, settings={**settings, **own}, environment=environment, host=host, begin=begin
            )
            self.nodes[name] = node
            self._links[f"door of {name}"].connect(int(node.url.rpartition(":")[2]), host)
            node.start()
            self._parts.callback(node.stop)
        for node in self.nodes.values():
            node.wait_ready()

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
        return self.asking.sql(statement.replace("{bootstrap}", self.bootstrap))

    def wait_all_there(self) -> None:
        for node in self.nodes.values():
            node.wait_ready()
        alive = "SELECT name FROM system.servers WHERE state = 'alive' AND url IS NOT NULL"
        wait(lambda: {name for (name,) in self.sql(alive).rows} == set(self.nodes), "all servers to be alive")
        workers = "SELECT DISTINCT name FROM system.workers WHERE state = 'alive'"
        wait(lambda: set(self.workers) <= {name for (name,) in self.sql(workers).rows}, "all workers to be alive")

    def recover(self) -> list[str]:
        """A supervisor: what ended by itself is started again; copies with wrong bytes are found."""
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
            self._needs_scrub = any(self.asking.once(f"SYSTEM SCRUB d.{name}") is None for (name,) in tables)
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
            folder_copies(bucket if path.startswith("s3:") else Path(path.removeprefix("file://"))) for path in paths
        ]

    def logs(self) -> dict[str, Path]:
        return {name: self._folder / name / "node.log" for name in self.nodes}

    # --- blows -------------------------------------------------------------------------------------------------------

    def blows(self) -> list[Blow]:
        found: list[Blow] = []
        for name, node in self.nodes.items():
            place = f"server {name}"
            found += [self._killed(place, name, node.kill, node.start), *pauses(place, node)]
            found += [jvm_killed(place, node, self._rng), *clock_blows(place, self._clocks[name], self._rng)]
            found.append(self._upgraded(name, node))
        if self._hosts is not None:
            for number, name in enumerate(self._names):
                found += self._hosts.blows(number, name)
        for name, worker in self.workers.items():
            place = f"worker {name}"
            found += [self._killed(place, name, worker.kill, worker.start), *pauses(place, worker)]
            found.append(jvm_killed(place, worker, self._rng))
        for name, link in self._links.items():
            found += [self._scaled(blow, 0.4) for blow in link_blows(name, link, self._rng)]
        found += [*self._group_blows(), *self._service_blows(), *self._replica_blows(), *self._database.blows()]
        return found

    def _killed(self, place: str, name: str, kill: Callable[[], None], start: Callable[[], None]) -> Blow:
        def strike() -> None:
            self._down.add(name)
            kill()

        def mend() -> None:
            self._down.discard(name)
            with suppress(AssertionError):
                start()

        return Blow(name=f"{place} killed", place=place, strike=strike, mend=mend, seconds=KILLED_SECONDS, weight=1.5)

    def _upgraded(self, name: str, node: NodeProcess) -> Blow:
        """Return the end of a server in order, and its start with another patch version."""

        def strike() -> None:
            self._down.add(name)
            node.stop()

        def mend() -> None:
            package = self._patched if self._rng.random() < 0.5 else None
            node.change_environment({"PYTHONPATH": python_path(SITE, *([package] if package else []))})
            self._down.discard(name)
            with suppress(AssertionError):
                node.start()

        place = f"server {name}"
        return Blow(name=f"{place} upgraded", place=place, strike=strike, mend=mend, seconds=SHORT, weight=0.6)

    def _group_blows(self) -> list[Blow]:
        """Return blows on several servers at once, and on one while another is being ended."""
        nodes, names = list(self.nodes.values()), list(self.nodes)
        groups: list[Blow] = []
        for name in names:
            place = f"server {name}"
            others = [node for other, node in self.nodes.items() if other != name]
            groups.append(pause_of_group(f"servers other than {name}", others, place="servers"))
            # One is silent for so long that it is ended, and another starts meanwhile.
            groups.append(self._restarted_while_another_ends(name, place))

        def kill_all() -> None:
            for name, node in self.nodes.items():
                self._down.add(name)
                node.kill()

        def start_all() -> None:
            for name, node in self.nodes.items():
                self._down.discard(name)
                with suppress(AssertionError):
                    node.start()

        groups.append(
            Blow(name="all servers killed", place="servers", strike=kill_all, mend=start_all, seconds=SHORT, weight=0.5)
        )
        groups.append(pause_of_group("all servers", nodes, place="servers"))
        return [self._scaled(each, 0.5) for each in groups]

    def _restarted_while_another_ends(self, name: str, place: str) -> Blow:
        names = list(self.nodes)
        other = names[(names.index(name) + 1) % len(names)]
        silent, restarted = self.nodes[name], self.nodes[other]
        [pause, _] = pauses(place, silent)

        def strike() -> None:
            pause.strike()
            self._down.add(other)
            restarted.kill()
            with suppress(AssertionError):
                restarted.start()
            self._down.discard(other)

        return Blow(
            name=f"{place} silent while {other} restarts",
            place=place,
            strike=strike,
            mend=pause.mend,
            seconds=(2.5, 8.0),
        )

    def _service_blows(self) -> list[Blow]:
        broker, store = self.broker, self.store
        port = int(store.endpoint.rpartition(":")[2])

        def restart_broker() -> None:
            broker.restart()
            # Its listener behind the link has a new port.
            self._links["broker"].connect(broker.proxied_port)

        return [
            pauses("broker", broker)[0],
            Blow(name="broker killed", place="broker", strike=broker.kill, mend=restart_broker, seconds=KILLED_SECONDS),
            Blow(
                name="bucket killed",
                place="replica",
                strike=store.kill,
                mend=partial(store.start, port),
                seconds=KILLED_SECONDS,
            ),
            Blow(name="bucket hangs", place="replica", strike=store.pause, mend=store.go_on),
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
        found.append(
            Blow(name=flip.name, place=flip.place, strike=flip.strike, mend=flipped, seconds=flip.seconds, weight=0.7)
        )
        return found

    @staticmethod
    def _scaled(blow: Blow, factor: float) -> Blow:
        return Blow(
            name=blow.name,
            place=blow.place,
            strike=blow.strike,
            mend=blow.mend,
            seconds=blow.seconds,
            weight=blow.weight * factor,
            may_last=blow.may_last,
        )


def python_path(*folders: Path) -> str:
    """Return the folders before those in which this process finds its packages."""

    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH", "")])])


def _patched_package(folder: Path) -> Path:
    """Return a folder that makes a process say that it is another patch version of Tilth."""
    info = folder / f"tilth-{PATCHED}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tilth\nVersion: {PATCHED}\n")
    return folder


def asynchronous(folder: Path, rng: random.Random, stack: ExitStack, history: History) -> Servers:
    return stack.enter_context(Servers(folder, rng, history, is_synchronous=False))


def synchronous(folder: Path, rng: random.Random, stack: ExitStack, history: History) -> Servers:
    return stack.enter_context(Servers(folder, rng, history, is_synchronous=True))
