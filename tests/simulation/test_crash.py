"""The node is killed at each step of a round, a flush, a merge, a mutation, a compaction of deltas and a collection:
every message stays exactly once, every statement that was answered stays done.

A real broker, a real node in its own process, real SIGKILLs. Each start arms one failpoint (base/failpoints.py) or
none: then the process is killed from outside after a random time, now and then amid an ALTER or an expiry. The places
and their order come from a seed that is printed and new in each run; TILTH_CRASH_SEED sets it, TILTH_CRASH_KILLS how
often it dies (60: at every place, as `make test-long` does; test_deaths.py dies at all of maintenance in each run, in
one process). `make test` dies once in each group of KINDS, after a first kill at any moment. All the while a client
writes, says again what was not answered, and looks after each restart whether its rows are there. In the end nothing is
lost, nothing is twice, each key has its last row, each mutation has changed what was there when it was asked for and
nothing else, what was dropped comes back or is gone as it should, and on disk there is no file that the catalog does
not know.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.simulation.crash_client import WritingClient, shown_writes
from tests.simulation.crash_model import DELETES_EACH, FIRST_WRITE_KEY, KEYS, TOPIC, TOPIC_PARTITIONS, Model, Writes
from tests.waiting import wait_until
from tilth.base.errors import TilthError
from tools.broker import Broker
from tools.node_process import NodeProcess

pytestmark = pytest.mark.simulation

SEED = int(os.environ.get("TILTH_CRASH_SEED") or random.SystemRandom().randrange(1 << 32))
MESSAGES_PER_START = 400
DIE_SECONDS_MAX = 120.0
#: Failpoint and the latest pass at which it strikes.
POINTS = {
    "round.before_files": 3,
    "round.after_files": 3,
    "round.before_commit": 3,
    "round.after_commit": 3,
    "flush.after_files": 3,
    "flush.before_commit": 3,
    "flush.after_commit": 3,
    "rebase.before_commit": 1,
    "flush_deltas.before_commit": 3,
    "flush_deltas.after_commit": 3,
    "minor_delta.before_commit": 1,
    "minor_delta.after_commit": 1,
    "major_delta.before_commit": 1,
    "major_delta.after_commit": 1,
    "merge.before_files": 2,
    "merge.after_files": 2,
    "merge.before_commit": 2,
    "merge.after_commit": 2,
    "log_gc.before_trash": 2,
    "log_gc.after_trash": 2,
    "history_gc.before_remove": 2,
    "history_gc.after_remove": 2,
    "deleted_part_gc.before_commit": 1,
    "deleted_part_gc.after_commit": 1,
    "gc.before_trash": 1,
    "gc.after_trash": 1,
    "gc.before_remove": 1,
    "gc.before_forget": 1,
    "gc.after_remove": 1,
    "work.before_sweep": 5,
}
#: Failpoints begin with the verbs of work; the maintenance that writes files has these.
WRITING_VERBS = ("flush.", "merge.", "rebase.", "flush_deltas.", "minor_delta.", "major_delta.")
#: Failpoints that are passed twice only if there are two new mutations.
MUTATION_POINTS = {
    "mutate.before_files": 2,
    "mutate.after_files": 2,
    "mutate.before_commit": 2,
    "mutate.after_commit": 2,
}
#: Failpoints that need an expired partition.
EXPIRY_POINTS = {"expire.before_commit": 1, "expire.after_commit": 1}
ALL_POINTS = POINTS | MUTATION_POINTS | EXPIRY_POINTS
ANY_MOMENT = "any moment"
AMID_ALTER = "amid an ALTER"
AMID_EXPIRY = "amid an expiry"

#: Each run is killed at any moment of its first start, and then once within each of these: a round, a mutation, files
#: that maintenance writes, all its other work, which removes, and from outside amid a statement.
KINDS = (
    tuple(place for place in POINTS if place.startswith("round.")),
    tuple(MUTATION_POINTS),
    tuple(place for place in POINTS if place.startswith(WRITING_VERBS)),
    tuple(place for place in (*POINTS, *EXPIRY_POINTS) if not place.startswith(("round.", *WRITING_VERBS))),
    (AMID_ALTER, AMID_EXPIRY),
)
KILLS = int(os.environ.get("TILTH_CRASH_KILLS", str(len(KINDS))))

#: A process that lives for seconds: a small Spark.
QUICK_START = {
    "warehouse.master": "local[2]",
    "warehouse.driver-memory": "512m",
    "flush_threshold_secs": "1",
    "tablet_delta_store_major_compact_min_ratio": "0",
}

#: Extensions of files that lie beside a part's.
SIDECARS = (".map", ".filter")
QUICK_LOOKS = "cleanup_delay_period = 1, cleanup_delay_period_random_add = 1"
QUICK_GC = f"old_parts_lifetime = 0, ttl_for_trash_items = 0, tablet_history_max_age_sec = 0, {QUICK_LOOKS}"
STATEMENTS = [
    "CREATE DATABASE crash",
    f"""CREATE TABLE crash.t (id BIGINT, k BIGINT, s STRING, v BIGINT) ENGINE = MergeTree PARTITION BY bucket(2, k)
       ORDER BY (k, id) SETTINGS {QUICK_GC}""",
    f"""CREATE TABLE crash.k (id BIGINT NOT NULL, k BIGINT, s STRING, v BIGINT) ENGINE = Kafka
       SETTINGS kafka_broker_list = '{{bootstrap}}', kafka_topic_list = '{TOPIC}', kafka_group_name = 'crash',
       kafka_format = 'JSONEachRow', kafka_num_consumers = 2, kafka_max_block_size = 60,
       stream_flush_interval_ms = 200""",
    f"ALTER TABLE crash.k_dead_letters MODIFY SETTING {QUICK_GC}",
    "CREATE MATERIALIZED VIEW crash.v TO crash.t AS SELECT id, k, s, v FROM crash.k",
    # The last row of each key; and rows of the client alone.
    f"""CREATE TABLE crash.m (key BIGINT, last BIGINT, s STRING) ENGINE = MergeTree PARTITION BY bucket(2, key)
       ORDER BY key UNIQUE KEY key SETTINGS {QUICK_GC}""",
    f"""CREATE MATERIALIZED VIEW crash.w TO crash.m AS SELECT coalesce(id % {KEYS}, 0) AS key, id AS last, s,
       CASE WHEN id % {DELETES_EACH} = 0 THEN 'd' ELSE 'u' END AS _op FROM crash.k""",
    # Not merged, so that deltas of one part come together; each row is deleted before long.
    f"""CREATE TABLE crash.b (id BIGINT, n BIGINT) ENGINE = MergeTree ORDER BY id
       SETTINGS memory_buffer = 1, disable_compaction = 1, {QUICK_GC}""",
    # Each partition that comes has expired already, but for one.
    f"""CREATE TABLE crash.e (id BIGINT, day DATE) ENGINE = MergeTree PARTITION BY day ORDER BY id
       TTL day + INTERVAL 1 DAY SETTINGS {QUICK_GC}""",
    "INSERT INTO crash.e VALUES (1, DATE '2999-01-01')",
    # Lies in the trash all the time, and comes back in the end.
    """CREATE TABLE crash.u (id BIGINT, day DATE) ENGINE = MergeTree PARTITION BY day ORDER BY id
       SETTINGS old_parts_lifetime = 0, tablet_history_max_age_sec = 0""",
    "INSERT INTO crash.u VALUES (1, DATE '2026-01-01'), (2, DATE '2026-01-01'), (3, DATE '2026-01-02')",
    "ALTER TABLE crash.u DROP PARTITION '2026-01-01'",
]
TABLES = ("crash.t", "crash.k_dead_letters", "crash.m", "crash.b", "crash.e", "crash.u")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path, settings=QUICK_START)
    yield node
    node.stop()


@pytest.fixture
def client(node: NodeProcess) -> Iterator[WritingClient]:
    client = WritingClient(node.url)
    yield client
    client.stop()


def test_all_is_in_exactly_once_over_many_kills(node: NodeProcess, broker: Broker, client: WritingClient) -> None:
    draw = random.Random(SEED)
    places = drawn_places(draw, max(KILLS, len(KINDS)))
    print(f"crash suite: seed={SEED} kills={len(places)}")
    survive(node, broker, client, places, draw)


def drawn_places(draw: random.Random, kills: int) -> list[str]:
    """Return where it dies, in a random order: within as many kinds as there are kills, then anywhere else."""
    places = [draw.choice(some) for some in draw.sample(KINDS, min(kills, len(KINDS)))]
    others = [place for place in [*ALL_POINTS, ANY_MOMENT, AMID_ALTER, AMID_EXPIRY] if place not in places]
    places += draw.sample(others, min(len(others), kills - len(places)))
    return draw.sample(places, len(places))


def survive(
    node: NodeProcess, broker: Broker, client: WritingClient, places: Sequence[str], draw: random.Random
) -> None:
    """Dies at any moment of the first start, then there, one after the other, and checks in the end."""
    broker.create_topic(TOPIC, TOPIC_PARTITIONS)
    node.start()
    node.wait_ready()
    for statement in STATEMENTS:
        node.connection.sql(statement.format(bootstrap=broker.bootstrap))
    model = Model()
    model.produce(broker.bootstrap, MESSAGES_PER_START)
    started = time.monotonic()
    client.start()
    wait_until(lambda: _visible(node, "t") > 0)
    time.sleep(draw.uniform(0.0, 4.0))
    node.kill()
    for number, place in enumerate(places, start=1):
        model.produce(broker.bootstrap, MESSAGES_PER_START)
        _start_and_die(node, place, number, model, draw)
        client.raise_if_failed()
        print(f"crash suite: kill {number} at {place}, {time.monotonic() - started:.0f} s", flush=True)

    looks = client.looks
    node.start()
    node.wait_ready()
    wait_until(lambda: node.value("SELECT sum(messages) FROM system.ingest_ledger") == len(model.sent))
    wait_until(lambda: node.value("SELECT count(*) FROM system.mutations WHERE NOT is_done") == 0)
    wait_until(lambda: node.value("SELECT count(*) FROM system.trash WHERE is_dropped AND `table` = 'u'") == 1)
    node.connection.sql("ALTER TABLE crash.u UNDROP PARTITION '2026-01-01'")
    wait_until(lambda: client.looks > looks or client.has_failed)
    client.stop()
    client.raise_if_failed()
    wait_until(lambda: _is_settled(node))
    seconds = time.monotonic() - started
    _check_rows(node, model, client.writes)
    for table in TABLES:
        report = node.connection.sql(f"SYSTEM VERIFY {table}")
        assert all(row[report.names.index("ok")] for row in report.rows), report.rows
    assert _unknown_files(node) == set()
    told = f"{client.writes.next.number} writes, {client.repeated} repeated in vain, {client.looks} looks"
    print(f"crash suite: {seconds:.0f} s until settled, {len(model.changes)} mutations, {told}")


def _start_and_die(node: NodeProcess, place: str, number: int, model: Model, draw: random.Random) -> None:
    """Starts the node and sees to it that it dies there."""
    if place == ANY_MOMENT:
        node.start()
        if not node.wait_end(draw.uniform(6.0, 12.0)):
            node.kill()
        return
    if place in (AMID_ALTER, AMID_EXPIRY):
        node.start()
        _say(node, partial(_change_twice, node, model) if place == AMID_ALTER else partial(_expire, node, number))
        time.sleep(draw.uniform(0.0, 2.0))
        node.kill()
        return
    node.start(failpoints=f"{place}:{draw.randint(1, ALL_POINTS[place])}")
    if place in MUTATION_POINTS:
        _say(node, partial(_change_twice, node, model))
    elif place in EXPIRY_POINTS:
        _say(node, partial(_expire, node, number))
    if not node.wait_end(DIE_SECONDS_MAX):
        raise AssertionError(f"the node did not reach {place}:\n{node.log_tail()}")


def _change_twice(node: NodeProcess, model: Model) -> None:
    for change in (model.new_change(), model.new_change()):
        node.connection.sql(f"ALTER TABLE crash.t {change.command}")
        model.answered.add(change.command)


def _expire(node: NodeProcess, number: int) -> None:
    """A row in a partition of its own, which has expired."""
    day = date(2020, 1, 1) + timedelta(number)
    node.connection.sql(f"INSERT INTO crash.e VALUES ({number}, DATE '{day}')")


def _say(node: NodeProcess, words: Callable[[], None]) -> None:
    """Says the statements while rows flow. What an earlier start left to do may kill the node before the last one."""
    try:
        node.wait_ready()
        wait_until(lambda: _visible(node, "t") > 0)
        words()
    except (TilthError, RuntimeError) as error:
        if not node.wait_end(DIE_SECONDS_MAX):
            raise AssertionError(f"the node refused a statement:\n{node.log_tail()}") from error


def _check_rows(node: NodeProcess, model: Model, writes: Writes) -> None:
    ledger = node.connection.sql("SELECT `partition`, `start`, `end`, commit_ts FROM system.ingest_ledger").rows
    mutations = node.connection.sql("SELECT commit_ts, command FROM system.mutations").rows
    rows = node.connection.sql("SELECT id, k, s, v FROM crash.t ORDER BY id").rows
    expected = model.rows([(p, start, end, ts) for p, start, end, ts in ledger], [(ts, text) for ts, text in mutations])
    assert [tuple(row) for row in rows] == expected
    latest = [(key, id, f"s{id}") for key, id in sorted(model.latest().items())]
    kept = node.connection.sql(f"SELECT key, last, s FROM crash.m WHERE key < {FIRST_WRITE_KEY} ORDER BY key").rows
    assert [tuple(row) for row in kept] == latest
    assert shown_writes(node.connection) == writes.shown()
    assert _visible(node, "k_dead_letters") == model.broken
    assert [row[0] for row in node.connection.sql("SELECT id FROM crash.e").rows] == [1]
    assert [row[0] for row in node.connection.sql("SELECT id FROM crash.u ORDER BY id").rows] == [1, 2, 3]


def _visible(node: NodeProcess, table: str) -> int:
    """Rows of the table's parts."""
    return node.value(f"SELECT sum(rows) FROM system.parts WHERE database = 'crash' AND `table` = '{table}' AND active")


def _is_settled(node: NodeProcess) -> bool:
    hidden = node.value("SELECT count(*) FROM system.parts WHERE database = 'crash' AND NOT active")
    segments = node.value("SELECT count(*) FROM system.segments")
    deltas = node.value("SELECT count(*) FROM system.deltas WHERE kind = 'changes' OR NOT active")
    trash = node.value("SELECT count(*) FROM system.trash")
    expired = _visible(node, "e") - 1
    open_transactions = node.value("SELECT count(*) FROM system.transactions WHERE state <> 'finished'")
    return hidden == segments == deltas == trash == expired == open_transactions == 0 and not _unknown_files(node)


def _unknown_files(node: NodeProcess) -> set[str]:
    """Names of files that are no part's, no delta's, and lie beside none; and of those that are missing."""
    files = {path.name for path in (node.data / "tables").glob("*/data/*")}
    tables = ("parts", "segments", "deltas")
    known = {
        name for table in tables for (name,) in node.connection.sql(f"SELECT file FROM system.{table}").rows if name
    }
    stems = {Path(name).stem for name in known}
    beside = {name for name in files if Path(name).suffix in SIDECARS and Path(name).stem in stems}
    return (files - beside) ^ known
