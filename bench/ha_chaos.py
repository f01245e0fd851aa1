"""A chaos run: seeded kills, pauses and broken links of everything, while clients and a consumer write and ask.

    python -m bench.ha_chaos --rounds 100 --seed 1

A database, a broker, a bucket, two servers over one catalog and a worker for each. In each round one of them is killed
and started again, paused for longer than a server may be silent, or its link is cut or swallows all. Then all clients
and the consumer must go on before the next blow. In the end every message is a row, once; every upsert and update that
was answered is there; VERIFY finds nothing; the bucket holds no file that the catalog does not know.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import psutil

from bench import chaos_load
from bench.chaos_load import Client, Load, loaded
from bench.cluster_stream import STATEMENTS, TOPIC, Stream, streaming
from tools.broker import Broker
from tools.ha_stage import ONE_CORE, HaStage
from tools.stage import BUCKET, wait
from tools.tcp_link import TcpLink

SERVERS = ("a", "b")
CONSUMED = "SELECT sum(messages) FROM system.ingest_ledger"
#: A blow is mended after so long; a pause outlives the bound after which a server is gone.
AWAY_SECONDS = (0.5, 4.0)
PAUSE_SECONDS = (4.0, 8.0)
GO_ON_SECONDS_MAX = 120.0
SETTLE_SECONDS_MAX = 240.0
#: So that what merges replaced is gone when files are counted.
QUICK_GC = (
    "old_parts_lifetime = 5, ttl_for_trash_items = 5, tablet_history_max_age_sec = 5, cleanup_delay_period = 1, "
    "cleanup_delay_period_random_add = 1"
)
TABLES = ("t", "u", "c")
SIDECARS = (".map", ".filter")


class HasPid(Protocol):
    """A process of the stage, which has a new id after each start."""

    @property
    def pid(self) -> int | None: ...


class Blow(NamedTuple):
    """One way to hurt the whole, and to mend it."""

    name: str
    strike: Callable[[], object]
    mend: Callable[[], object]
    #: Least and most seconds between the two.
    seconds: tuple[float, float]


@dataclass(slots=True)
class Outcome:
    """What the run found."""

    rounds: int = 0
    #: From the mending of each blow until all clients and the consumer had gone on.
    go_on_s: list[float] = field(default_factory=list)
    lost: int = 0
    twice: int = 0
    files_left: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    #: By code: errors after which the same words were answered.
    cured: Counter[str] = field(default_factory=Counter)

    @property
    def is_right(self) -> bool:
        return not (self.lost or self.twice or self.files_left or self.wrong)


class ChaosStage(HaStage):
    """All processes, and the links between them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._links: dict[str, TcpLink] = {}

    def start_all(self) -> None:
        """Return when both servers and workers take work."""
        self.broker = Broker(self._folder / "broker")
        to_broker = self._link("broker")
        self.broker.start(proxy_port=to_broker.port)
        self._parts.callback(self.broker.stop)
        to_broker.connect(self.broker.proxied_port)
        self.broker.create_topic(TOPIC, 2)
        settings = self.start_store()
        to_store, port = self._link("store"), self.store.endpoint.rpartition(":")[2]
        to_store.connect(int(port))
        settings["storage.root"] = settings["storage.root"].replace(f":{port}", f":{to_store.port}")
        self.start_servers(SERVERS, {"warehouse.master": "local[2]", **settings})
        for name in SERVERS:
            to_server = self._link(f"server {name} of its worker")
            to_server.connect(int(self.nodes[name].url.rpartition(":")[2]))
            self.add(f"w{name}", "write", ONE_CORE, server=f"http://127.0.0.1:{to_server.port}")
        for worker in self.workers.values():
            worker.wait_ready()

    def database_address(self, server: str) -> str:
        link, address = self._link(f"database of server {server}"), self.database.address()
        port = address.partition("@127.0.0.1:")[2].partition("/")[0]
        link.connect(int(port))
        return address.replace(f":{port}/", f":{link.port}/")

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._links['broker'].port}"

    def wait_all_there(self) -> None:
        """Return when both servers and both workers are alive, and take work."""
        self.wait_all_alive()
        alive = "SELECT DISTINCT name FROM system.workers WHERE state = 'alive'"
        wait(lambda: set(self.workers) <= {name for (name,) in self.ask(alive).rows}, "all workers to be alive")

    def _restart_broker(self) -> None:
        self.broker.restart()
        # Its listener behind the link has a new port.
        self._links["broker"].connect(self.broker.proxied_port)

    def _link(self, name: str) -> TcpLink:
        link = self._links[name] = TcpLink()
        self._parts.callback(link.close)
        return link

    def blows(self) -> list[Blow]:
        found = []
        for name, node in self.nodes.items():
            found.append(Blow(f"server {name} killed", node.kill, node.start, AWAY_SECONDS))
            found += [_pause(f"server {name}", node), _pause(f"server {name}", node, alone=True)]
        for name, worker in self.workers.items():
            found.append(Blow(f"worker {name} killed", worker.kill, worker.start, AWAY_SECONDS))
            found += [_pause(f"worker {name}", worker), _pause(f"worker {name}", worker, alone=True)]
        broker, store, database = self.broker, self.store, self.database
        port = int(store.endpoint.rpartition(":")[2])
        found += [
            _pause("broker", broker),
            Blow("broker killed", broker.kill, self._restart_broker, AWAY_SECONDS),
            Blow("store killed", store.kill, partial(store.start, port), AWAY_SECONDS),
            Blow("store paused", store.pause, store.go_on, PAUSE_SECONDS),
            Blow("database killed", database.kill, database.start, AWAY_SECONDS),
            Blow("database paused", database.pause, database.go_on, PAUSE_SECONDS),
        ]
        for name, link in self._links.items():
            found.append(Blow(f"link to {name} cut", link.cut, link.mend, AWAY_SECONDS))
            found.append(Blow(f"link to {name} swallows", link.swallow, link.mend, PAUSE_SECONDS))
        return found


def _pause(name: str, of: HasPid, *, alone: bool = False) -> Blow:
    """Return the pause of a process with all that it has started, or of the process alone, whose JVM runs on."""
    return Blow(
        f"{name} paused" + (" but for its JVM" if alone else ""),
        partial(_send, signal.SIGSTOP, of, alone=alone),
        partial(_send, signal.SIGCONT, of, alone=alone),
        PAUSE_SECONDS,
    )


def _send(number: signal.Signals, of: HasPid, *, alone: bool) -> None:
    pid = of.pid
    assert pid is not None  # psutil takes it for our own process
    process = psutil.Process(pid)
    for each in [process, *([] if alone else process.children(recursive=True))]:
        with suppress(psutil.NoSuchProcess):
            each.send_signal(number)


def run_chaos(folder: Path, *, rounds: int, seed: int) -> Outcome:
    """Strike so often, each time at a place drawn from the seed, and look whether all is there."""
    outcome, draw = Outcome(), random.Random(seed)
    with ChaosStage(folder) as stage:
        stage.start_all()
        stage.run(*STATEMENTS, *chaos_load.STATEMENTS)
        stage.run(*(f"ALTER TABLE d.{table} MODIFY SETTING {QUICK_GC}" for table in (*TABLES, "k_dead_letters")))
        blows = stage.blows()
        with streaming(stage.broker.bootstrap) as stream, loaded(stage.urls, lambda: stream.sent) as load:
            _go_on(stage, load, "the first steps")
            #: Each place once before any comes again.
            places: list[Blow] = []
            while outcome.rounds < rounds and not load.wrong:
                places = places or draw.sample(blows, len(blows))
                _strike(stage, load, places.pop(), draw, outcome)
        _check(stage, load, stream, outcome)
    return outcome


def _strike(stage: ChaosStage, load: Load, blow: Blow, draw: random.Random, outcome: Outcome) -> None:
    seconds = draw.uniform(*blow.seconds)
    blow.strike()
    time.sleep(seconds)
    blow.mend()
    took = _go_on(stage, load, f"all to go on after: {blow.name}")
    stage.wait_all_there()
    outcome.rounds += 1
    outcome.go_on_s.append(took)
    _say(f"{outcome.rounds:3} {blow.name}, {seconds:.1f} s; all go on after {took:.1f} s")


def _go_on(stage: ChaosStage, load: Load, what: str) -> float:
    """Return the seconds until each client has done another step and the consumer has committed another round."""
    before, consumed = load.done(), 0
    began = time.monotonic()

    def is_done() -> bool:
        return bool(load.wrong) or all(now > then for now, then in zip(load.done(), before, strict=True))

    consumed = stage.number(CONSUMED)
    wait(is_done, what, seconds_max=GO_ON_SECONDS_MAX)
    wait(lambda: stage.number(CONSUMED) > consumed, f"rounds; {what}", seconds_max=GO_ON_SECONDS_MAX)
    return time.monotonic() - began


def _check(stage: ChaosStage, load: Load, stream: Stream, outcome: Outcome) -> None:
    outcome.cured = load.cured
    _say("all are asked")
    wait(lambda: stage.number(CONSUMED) >= stream.sent, "all messages", seconds_max=SETTLE_SECONDS_MAX)
    stored, distinct = stage.ask("SELECT count(*), count(DISTINCT id) FROM d.t").rows[0]
    outcome.lost, outcome.twice = stream.sent - distinct, stored - distinct
    asking = Client("in the end", lambda client: None, stage.any)
    load.clients.append(asking)
    if not load.wrong:
        load.check(asking)
    for table in TABLES:
        report = stage.ask(f"SYSTEM VERIFY d.{table}")
        bad = [row for row in report.rows if not row[report.names.index("ok")]]
        asking.expect(not bad, f"VERIFY of {table}: {bad}")
    with suppress(RuntimeError):
        wait(lambda: not _files_left(stage), "files that nobody knows", seconds_max=SETTLE_SECONDS_MAX)
    outcome.files_left = sorted(_files_left(stage))
    outcome.wrong = load.wrong


def _files_left(stage: ChaosStage) -> set[str]:
    """Return the names of files in the bucket that the catalog does not know, and of those that are missing."""
    known = set()
    for table in ("parts", "segments", "deltas", "trash"):
        known |= {name for (name,) in stage.ask(f"SELECT file FROM system.{table}").rows if name}
    files = {path.name for path in (stage.store.folder / "buckets" / BUCKET / "tables").glob("*/data/*")}
    stems = {Path(name).stem for name in known}
    beside = {name for name in files if Path(name).suffix in SIDECARS and Path(name).stem in stems}
    return (files - beside) ^ known


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tilth-chaos-") as folder:
        outcome = run_chaos(Path(folder), rounds=arguments.rounds, seed=arguments.seed)
    print(outcome)
    sys.exit(not outcome.is_right)


if __name__ == "__main__":
    main()
