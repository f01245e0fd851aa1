"""Kafka to table: how fast one consumer is, and beside the Iceberg and Delta sinks of Structured Streaming.

    python -m bench.bench_ingest [--kit DIR] [--work DIR] [--rows 2000000] [--passes 5] [--bootstrap HOST:PORT]

One topic for all: the kit's narrow JSON events of 194 bytes in two partitions. Every pass starts from the first offset
with a new table and drains the topic; passes take turns; the first of each is a run-up and does not count; the best of
the others does. Ours is the whole path: START CONSUME, view analysed, rounds of fetch, decode, view, sort, zstd
Parquet with fsync, and a durable RocksDB commit of rows, offsets and ledger for each; one Kafka table with one
consumer and default settings, whose rounds share Spark's two cores. The time runs until the last row is visible. Each
result is read back and checked.

- `fused`: the view picks columns. `sql`: the view computes and filters, by kernels (`view_choices`).
- Iceberg and Delta: `readStream` + `from_json`, trigger availableNow, 4 micro-batches, both cores; they do not sort.

The ratios are `fused` over the rival; `ratio_sql_iceberg` is `sql` over it. `decode_mib_cpu_s` is bench-limit's.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from rich.table import Table

from bench.report import Figure, more, print_report
from bench.rivals import PROJECT, Kit, Rival, add_kit_arguments, kit_of
from tilth.base.clock import SystemClock
from tilth.base.ids import random_id
from tilth.catalog import Catalog, RocksKV
from tilth.ingest import ConsumeContext, ConsumeManager, IngestSettings, consume_runner
from tilth.model.service import ServiceKind, Switch, SwitchState
from tilth.model.table import Column, KafkaDef, Schema, TableDef, ViewDef
from tilth.model.task import TaskKind
from tilth.model.types import Kind, Simple
from tilth.storage import data_folder, drop_table_folder, local_root, read_part
from tilth.verify import verify
from tilth.warehouse import (
    QUERY_WAREHOUSE,
    WRITE_WAREHOUSE,
    Dispatcher,
    EmbeddedWorker,
    WorkerSession,
    warehouse_settings,
)
from tools.broker import JARS, Broker

CORES = 2
MIB = 1 << 20
COLUMNS = {
    "event_id": Kind.INT64,
    "user_id": Kind.INT64,
    "ts": Kind.INT64,
    "item_id": Kind.INT64,
    "action": Kind.STRING,
    "price": Kind.FLOAT64,
    "region": Kind.STRING,
    "session": Kind.STRING,
    "ua": Kind.STRING,
}
ORDER = ("user_id", "ts")
VIEWS = {
    "fused": "SELECT event_id, user_id, ts, item_id, action, price, region, session, ua FROM default.k",
    "sql": "SELECT event_id, user_id, ts, item_id, upper(action) AS action, round(price * 1.2, 2) AS price, region, "
    "concat(session, '-', region) AS session, ua FROM default.k WHERE event_id >= 0",
}
RIVALS = ("iceberg", "delta")
TARGETS = {"fused": 50.0, "sql": 35.0, "iceberg": 3.0, "delta": 4.0, "sql_iceberg": 2.0}
PASS_SECONDS_MAX = 300.0
#: Pause between two polls: long enough not to slow down the pass.
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    seconds: float
    mib_s: float
    rounds: int
    parts: int
    verified: bool


class OwnNode:
    """Catalog, worker and ingestion of a node, in this process."""

    def __init__(self, folder: Path) -> None:
        clock = SystemClock()
        settings = warehouse_settings({"warehouse.master": f"local[{CORES}]"})
        self._session = WorkerSession(settings, folder=str(folder / "spark"), log_folder=str(folder / "log"))
        self._session.start()
        self._session.warm()
        self.catalog = Catalog(RocksKV(str(folder / "catalog")), clock, "bench", random_id)
        self._worker = EmbeddedWorker(clock, self._session, name="w", memory_bytes=1 << 40)
        workers = {QUERY_WAREHOUSE: [self._worker], WRITE_WAREHOUSE: [self._worker]}
        self._dispatcher = Dispatcher(clock, random_id, workers, slots={QUERY_WAREHOUSE: 2, WRITE_WAREHOUSE: 2})
        self.root = local_root(folder / "tables")
        context = ConsumeContext(
            clock=clock,
            catalog=self.catalog,
            dispatcher=self._dispatcher,
            ids=random_id,
            settings=IngestSettings(),
            root=self.root,
            server="bench",
        )
        self.manager = ConsumeManager(context)
        self._worker.register(TaskKind.CONSUME, consume_runner(clock, self.manager))
        self._worker.start()
        self._dispatcher.start()
        self.manager.start()

    def close(self) -> None:
        self.manager.stop()
        self._dispatcher.stop()
        self._worker.stop()
        self.catalog.close()
        self._session.stop()

    def drain(self, topic: dict[str, Any], bootstrap: str, select: str) -> Pass:
        """One pass: new tables, the whole topic, checked, dropped."""
        kafka, target, view = self._create(topic, bootstrap, select)
        expected = topic["checksum"]["rows"]
        begin = time.perf_counter()
        self.manager.start_table(kafka.uuid)
        while self.catalog.parts.version(target.uuid).inserted_rows < expected:
            if time.perf_counter() - begin > PASS_SECONDS_MAX:
                raise TimeoutError(f"the topic was not drained: {self.manager.stats()}")
            time.sleep(POLL_SECONDS)
        seconds = time.perf_counter() - begin
        self.manager.stop_table(kafka.uuid)
        rounds = sum(1 for _ in self.catalog.offsets.ledger(kafka.uuid))
        verified, parts = self._check(target, topic["checksum"])
        verified = verified and verify(self.catalog, self.root, target).is_ok
        for uuid in (view.uuid, kafka.uuid, target.uuid):
            self.catalog.tables.drop(uuid)
        self.manager.wake()
        drop_table_folder(self.root, target.uuid)
        mib_s = topic["message_bytes"] / MIB / seconds
        return Pass(seconds=seconds, mib_s=mib_s, rounds=rounds, parts=parts, verified=verified)

    def _create(self, topic: dict[str, Any], bootstrap: str, select: str) -> tuple[KafkaDef, TableDef, ViewDef]:
        schema = Schema(
            columns=tuple(Column(id=i, name=n, type=Simple(k)) for i, (n, k) in enumerate(COLUMNS.items(), start=1))
        )
        given = {"kafka_broker_list": bootstrap, "kafka_topic_list": topic["name"], "kafka_format": "JSONEachRow"}
        # The same group would go on where the last pass ended.
        given |= {"kafka_group_name": random_id()}
        kafka = KafkaDef(uuid=random_id(), database="default", name="k", schema=schema, settings=given)
        off = Switch(table=kafka.uuid, service=ServiceKind.CONSUME, state=SwitchState.STOPPED, since_ms=0)
        self.catalog.services.set(off)
        target = TableDef(uuid=random_id(), database="default", name="t", schema=schema, order_by=ORDER)
        view = ViewDef(
            uuid=random_id(), database="default", name="v", source=kafka.uuid, target=target.uuid, select=select
        )
        for relation in (kafka, target, view):
            self.catalog.tables.create(relation)
        return kafka, target, view

    def _check(self, target: TableDef, expected: dict[str, int]) -> tuple[bool, int]:
        """Rows and sums, as the kit has them, and the order of each part."""
        parts = self.catalog.parts.snapshot(target.uuid).parts
        rows = event_ids = user_ids = 0
        is_sorted = True
        for part in parts:
            table = read_part(data_folder(self.root, target.uuid), part.file, columns=["event_id", *ORDER])
            rows += table.num_rows
            event_ids += pc.sum(table["event_id"]).as_py()
            user_ids += pc.sum(table["user_id"]).as_py()
            keys = table["user_id"].to_numpy()
            is_sorted = is_sorted and bool((keys[1:] >= keys[:-1]).all())
        found = {"rows": rows, "event_ids": event_ids, "user_ids": user_ids}
        return found == expected and is_sorted, len(parts)


def prepare_topic(kit: Kit, bootstrap: str, *, rows: int) -> dict[str, Any]:
    """The kit's topic of narrow events, filled unless an earlier run did, and what it holds."""
    command = [str(kit.python), "events.py", "produce", "--bootstrap", bootstrap, "--rows", str(rows)]
    done = subprocess.run(command, cwd=kit.folder, check=True, stdout=subprocess.PIPE, text=True)
    topic: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return topic


def rival_pass(rival: Rival, kit: Kit, bootstrap: str, topic: dict[str, Any], kind: str, number: int) -> Pass:
    rows = topic["checksum"]["rows"]
    arguments = {
        "work": str(kit.work),
        "bootstrap": bootstrap,
        "topic": topic,
        "kind": kind,
        "cores": CORES,
        "batch_rows": -(-rows // 4),
        "number": number,
    }
    row = rival.call("anchors_ingest:throughput_pass", arguments)
    mib_s = topic["message_bytes"] / MIB / row["wall_s"]
    return Pass(seconds=row["wall_s"], mib_s=mib_s, rounds=row["batches"], parts=0, verified=bool(row["verified"]))


@contextmanager
def broker_for(bootstrap: str | None, work: Path) -> Iterator[str]:
    """The broker that was named, or one for this run, whose topics stay for the next."""
    if bootstrap is not None:
        yield bootstrap
        return
    jars = JARS if any(JARS.glob("*.jar")) else work / "kafka"
    java_home = PROJECT / ".cache" / "java_home"
    broker = Broker(work / "tilth-broker", jars, Path(java_home.read_text().strip()) if java_home.exists() else None)
    broker.start()
    try:
        yield broker.bootstrap
    finally:
        broker.stop()


def report(results: dict[str, list[Pass]]) -> list[Figure]:
    """Prints every pass; the figures are those of the best ones after the first."""
    best = {name: max(each.mib_s for each in passes[1:] or passes) for name, passes in results.items()}
    table = Table("who", "pass", "seconds", "MiB/s", "rounds", "parts", "verified", title="Kafka to table")
    for name, passes in results.items():
        for number, each in enumerate(passes):
            label = "run-up" if number == 0 and len(passes) > 1 else str(number)
            parts = str(each.parts) if each.parts else "-"
            verified = "yes" if each.verified else "NO"
            table.add_row(name, label, f"{each.seconds:.2f}", f"{each.mib_s:.1f}", str(each.rounds), parts, verified)
    figures = [
        Figure(name=f"ingest_{name}_mib_s", value=best[name], unit="MiB/s", target=TARGETS[name], higher_is_better=True)
        for name in VIEWS
        if name in best
    ]
    figures += [
        Figure(
            name=f"ratio_{name}",
            value=best["fused"] / best[name],
            unit="x",
            target=TARGETS[name],
            higher_is_better=True,
        )
        for name in RIVALS
        if name in best
    ]
    if "iceberg" in best:
        figures.append(more("ratio_sql_iceberg", best["sql"] / best["iceberg"], "x", TARGETS["sql_iceberg"]))
    print_report("ingest", figures, [table])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_kit_arguments(parser)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--passes", type=int, default=5, help="besides the run-up")
    parser.add_argument("--bootstrap", help="a broker; default: one for this run")
    parser.add_argument("--without-rivals", action="store_true", help="only our own passes")
    arguments = parser.parse_args()
    kit = kit_of(arguments)
    folder = Path(tempfile.mkdtemp(prefix="tilth-bench-ingest-"))
    results: dict[str, list[Pass]] = {}
    try:
        with ExitStack() as stack:
            bootstrap = stack.enter_context(broker_for(arguments.bootstrap, kit.work))
            topic = prepare_topic(kit, bootstrap, rows=arguments.rows)
            node = OwnNode(folder)
            stack.callback(node.close)
            cases: dict[str, Callable[[int], Pass]] = {
                name: lambda _, select=select: node.drain(topic, bootstrap, select)  # type: ignore[misc]  # bound here
                for name, select in VIEWS.items()
            }
            for kind in () if arguments.without_rivals else RIVALS:
                rival = Rival(kit, stack)
                cases[kind] = lambda n, kind=kind, rival=rival: rival_pass(  # type: ignore[misc]  # bound here
                    rival, kit, bootstrap, topic, kind, n
                )
            for number in range(arguments.passes + 1):
                for name, run in cases.items():
                    results.setdefault(name, []).append(run(number))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report(results)
    wrong = [name for name, passes in results.items() if not all(each.verified for each in passes)]
    if wrong:
        raise SystemExit(f"a result is wrong: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
