"""500 columns: rounds into the memory table over rounds into sorted parts, and both beside the sinks of others."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

from rich.table import Table

from bench.bench_ingest import RIVALS, Pass, rival_pass
from bench.hot_node import HotNode
from bench.rivals import Kit, Rival

ROWS = 30_000
MIB = 1 << 20
#: Messages of a round: half a second at 2,000 a second; and ByConity's default.
ROUNDS = {"wide_ratio": 1_000, "wide_ratio_large_rounds": 65_536}
#: Besides a run-up.
PASSES = 2
DRAIN_SECONDS_MAX = 300.0
_DDL = "from events import SHAPES; print(SHAPES['wide'].ddl)"


def run(node: HotNode, kit: Kit, has_rivals: bool) -> tuple[dict[str, float], list[Table]]:
    """The ratios, and every pass."""
    ddl = _kit(kit, "-c", _DDL)
    given = ("--bootstrap", node.broker.bootstrap, "--shape", "wide", "--rows", str(ROWS), "--partitions", "2")
    topic: dict[str, Any] = json.loads(_kit(kit, "events.py", "produce", *given).splitlines()[-1])
    table = Table("rows a round", "memory_buffer or sink", "pass", "seconds", "MiB/s", title="500 columns")
    figures: dict[str, float] = {}
    for name, round_rows in ROUNDS.items():
        best: dict[int, float] = {}
        for number in range(PASSES + 1):
            for is_buffered in (0, 1):
                seconds = _pass(node, ddl, topic, round_rows=round_rows, is_buffered=is_buffered)
                speed = topic["message_bytes"] / MIB / seconds
                shown = str(number) if number else "run-up"
                table.add_row(f"{round_rows:,}", str(is_buffered), shown, f"{seconds:.2f}", f"{speed:.1f}")
                if number:
                    best[is_buffered] = max(best.get(is_buffered, 0.0), speed)
        figures[name] = best[1] / best[0]
    # The large rounds: one of all messages, while a sink has four micro-batches.
    speed = max(best.values())
    for kind in RIVALS if has_rivals else ():
        passes = _rival_passes(kit, node.broker.bootstrap, topic, kind)
        for number, each in enumerate(passes):
            shown = str(number) if number else "run-up"
            table.add_row("", kind, shown, f"{each.seconds:.2f}", f"{each.mib_s:.1f}")
        figures[f"wide_ratio_{kind}"] = speed / max(each.mib_s for each in passes[1:])
    return figures, [table]


def _rival_passes(kit: Kit, bootstrap: str, topic: dict[str, Any], kind: str) -> list[Pass]:
    """The run-up and the passes of a sink; raises SystemExit where a result is wrong."""
    with ExitStack() as stack:
        rival = Rival(kit, stack)
        passes = [rival_pass(rival, kit, bootstrap, topic, kind, number) for number in range(PASSES + 1)]
    if not all(each.verified for each in passes):
        raise SystemExit(f"a result is wrong: {kind}")
    return passes


def _pass(node: HotNode, ddl: str, topic: dict[str, Any], *, round_rows: int, is_buffered: int) -> float:
    # Each pass has a group and a name of its own: it would go on where the last pass ended, and count the ledger of its
    # Kafka table, which outlives it.
    group = f"wide_{uuid4().hex}"
    node.sql(
        f"CREATE TABLE wide ({ddl}) ENGINE = MergeTree ORDER BY (user_id, ts) SETTINGS memory_buffer = {is_buffered}",
        f"""CREATE TABLE {group} ({ddl}) ENGINE = Kafka SETTINGS kafka_broker_list = '{node.broker.bootstrap}',
            kafka_topic_list = '{topic["name"]}', kafka_group_name = '{group}', kafka_format = 'JSONEachRow',
            kafka_max_block_size = {round_rows}, stream_flush_interval_ms = 500""",
        f"SYSTEM STOP CONSUME {group}",
        f"CREATE MATERIALIZED VIEW wide_view TO wide AS SELECT * FROM {group}",
    )
    seconds = node.drain(group, ROWS, seconds_max=DRAIN_SECONDS_MAX)
    rows, sums = node.process.connection.sql("SELECT count(*), sum(event_id) FROM wide").rows[0]
    expected = topic["checksum"]
    if (rows, sums) != (expected["rows"], expected["event_ids"]):
        raise SystemExit(f"a result is wrong: rows={rows} of {expected['rows']}, sum={sums} of {expected['event_ids']}")
    node.sql("DROP VIEW wide_view", f"DROP TABLE {group}", "DROP TABLE wide")
    return seconds


def _kit(kit: Kit, *command: str) -> str:
    done = subprocess.run([str(kit.python), *command], cwd=kit.folder, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()
