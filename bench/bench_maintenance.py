"""The maintenance manager: a start with 10,000 tables, an idle pass over them, a choice among 7,000 parts, a long load.

Builds a store of 10,000 tables x 100 parts and measures the manager on it in fresh processes, which have nothing in
memory; then the key_range policy, then twenty minutes of ingestion.
`python -m bench.bench_maintenance [--work DIR] [--tables N] [--passes N] [--minutes N]`; best of the passes.

    start       from the begin of the process, imports and opening the store among it, until every table is registered
                and the first choice was made; the table has the time until each table was refreshed once, too
    turn        the slowest of all turns from the start until nothing is due
    idle pass   the slowest of all turns of half an hour in which nothing happens; background tasks of longer periods,
                as the list of tables and the transactions, are among them. The turns are made one after another, with
                a clock that is moved by the polling interval.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import os
import pstats
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from bench.fresh_process import fresh_process, peak_memory_mib
from bench.report import Figure, print_report

#: Before the imports of what is measured: they are a part of getting ready.
_STARTED = time.perf_counter()

from tilth.base.clock import SystemClock  # noqa: E402
from tilth.base.ids import random_id  # noqa: E402
from tilth.base.rand import new_rng  # noqa: E402
from tilth.base.settings import read_settings  # noqa: E402
from tilth.catalog import Catalog, InsertPart, RocksKV, Update  # noqa: E402
from tilth.maintenance import MaintenanceManager, ManagerSettings  # noqa: E402
from tilth.maintenance.manager.manager import StandIns  # noqa: E402
from tilth.model.part import ColumnRange, DataFile, WrittenPart  # noqa: E402
from tilth.model.table import Column, Schema, TableDef  # noqa: E402
from tilth.model.types import Kind, Simple  # noqa: E402
from tilth.storage import local_root  # noqa: E402
from tilth.warehouse import Dispatcher  # noqa: E402

PARTITIONS = 20
#: Sizes of the parts of each partition: too large for any two to be merged, as in a table that has come to rest.
PART_BYTES = (100 << 30,) * 5
IDLE_SECONDS = 1800.0
TURN_SECONDS = 0.25
#: Turns between two checks whether every table was refreshed.
CHECK_TURNS = 200
TARGETS = {
    "idle_pass_10k_ms": 100.0,
    "turn_10k_max_ms": 100.0,
    "start_10k_s": 10.0,
    "key_range_7000_s": 1.0,
    "query_end_over_start": 1.3,
}
#: Units of the figures; the others are plain numbers.
UNITS = {"idle_pass_10k_ms": "ms", "turn_10k_max_ms": "ms", "start_10k_s": "s", "key_range_7000_s": "s"}


class MovedClock(SystemClock):
    """The time of day stands still but for what it is moved by; durations are real, and what it is moved by on top."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = float(now_ms)
        self._moved = 0.0

    def now_ms(self) -> int:
        return int(self._now_ms)

    def monotonic(self) -> float:
        return super().monotonic() + self._moved

    def advance(self, seconds: float) -> None:
        self._now_ms += seconds * 1000
        self._moved += seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Measurements of one fresh process."""

    import_s: float
    open_s: float
    #: Time until all tables are registered.
    first_turn_s: float
    refreshed_s: float
    settled_s: float
    #: The longest turn of all these.
    turn_max_ms: float
    idle_max_ms: float
    idle_p99_ms: float
    idle_median_ms: float
    rss_mib: float


def main() -> None:
    arguments = _arguments()
    if arguments.measure:
        print(json.dumps(_measure(arguments.measure, profiles=arguments.profile)))
        return
    os.makedirs(arguments.work, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="maintenance-", dir=arguments.work)
    try:
        built_s = _build(folder, tables=arguments.tables)
        given = ["--measure", folder, *(["--profile"] if arguments.profile else [])]
        passes = [Pass(**fresh_process("bench.bench_maintenance", given)) for _ in range(arguments.passes)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures = {"idle_pass_10k_ms": min(each.idle_max_ms for each in passes)}
    figures["turn_10k_max_ms"] = min(each.turn_max_ms for each in passes)
    figures["start_10k_s"] = min(each.import_s + each.open_s + each.first_turn_s for each in passes)
    # Here, for the processes that measure a start need none of it.
    from bench import bench_key_range, sustained

    figures["key_range_7000_s"] = bench_key_range.run()["key_range_7000_s"]
    if arguments.minutes > 0:
        load = sustained.run(Path(arguments.work), minutes=arguments.minutes)
        figures["parts_max"] = load.parts_max
        figures["query_end_over_start"] = load.query_end_over_start
        figures["write_amplification"] = load.write_amplification
    _report(passes, figures, tables=arguments.tables, built_s=built_s)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The maintenance manager with ten thousand tables.")
    parser.add_argument("--work", default=".cache/bench", help="where the temporary store is made")
    parser.add_argument("--tables", type=int, default=10_000, help="tables of 100 parts each")
    parser.add_argument("--passes", type=int, default=2, help="fresh processes; the best counts")
    parser.add_argument("--minutes", type=float, default=20.0, help="of ingestion; 0 leaves it out")
    parser.add_argument("--profile", action="store_true", help="print where the time of start and slow turns goes")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    return parser.parse_args()


def _build(folder: str, *, tables: int) -> float:
    started = time.perf_counter()
    kv = RocksKV(folder)
    # An hour ago: what has just been written is not idle.
    clock = MovedClock(SystemClock().now_ms() - 3_600_000)
    catalog = Catalog(kv, clock, "bench", random_id)
    columns = tuple(Column(id=number, name=f"c{number}", type=Simple(Kind.INT64)) for number in range(1, 11))
    for number in range(tables):
        definition = TableDef(
            uuid=random_id(),
            database="default",
            name=f"t{number:05d}",
            schema=Schema(columns=columns),
            # Without it, tables are due to be scrubbed, which no worker does here.
            created_ms=clock.now_ms(),
        )
        table = catalog.tables.create(definition).uuid
        txn = catalog.transactions.open("insert")
        updates: list[Update] = [
            InsertPart(table=table, written=_written(partition, part))
            for partition in range(PARTITIONS)
            for part in range(len(PART_BYTES))
        ]
        txn.commit(updates)
        clock.advance(0.01)
    kv.close()
    return time.perf_counter() - started


def _written(partition: int, part: int) -> WrittenPart:
    name = f"2013-{partition:02d}"
    file = DataFile(name=f"{partition}-0.0-{part}.parquet", size=PART_BYTES[part], checksum=part)
    ranges = {"c1": ColumnRange(part, part + 1000, 0)}
    return WrittenPart(partition=name, values=(name,), rows=1000, file=file, ranges=ranges)


def _measure(folder: str, *, profiles: bool) -> dict[str, float]:
    imported = time.perf_counter()
    kv = RocksKV(folder)
    clock = MovedClock(SystemClock().now_ms())
    catalog = Catalog(kv, clock, "bench", random_id)
    opened = time.perf_counter()
    profile = cProfile.Profile() if profiles else None
    if profile is not None:
        profile.enable()
    manager = _manager(clock, catalog, folder)
    starting: list[float] = []
    while not manager.has_read_tables:
        _turn(manager, starting)
    first_turn = time.perf_counter()
    while any(op.stats.about == "not checked yet" for op in manager.ops()):
        # To list all ops takes longer than a turn.
        for _ in range(CHECK_TURNS):
            _turn(manager, starting)
    refreshed = time.perf_counter()
    _print_profile(profile)
    turns = _settle(clock, manager, starting)
    settled = time.perf_counter()
    idle = _idle_turns(clock, manager, profiles=profiles)
    manager.stop()
    kv.close()
    print(f"{turns} turns until nothing was due", file=sys.stderr)
    return {
        "import_s": imported - _STARTED,
        "open_s": opened - imported,
        "first_turn_s": first_turn - opened,
        "refreshed_s": refreshed - opened,
        "settled_s": settled - refreshed,
        "turn_max_ms": max(starting),
        "idle_max_ms": max(idle),
        "idle_p99_ms": sorted(idle)[int(len(idle) * 0.99)],
        "idle_median_ms": statistics.median(idle),
        "rss_mib": peak_memory_mib(),
    }


def _manager(clock: MovedClock, catalog: Catalog, folder: str) -> MaintenanceManager:
    return MaintenanceManager(
        clock,
        catalog,
        Dispatcher(clock, random_id, {"write": []}, slots={"write": 1}),
        local_root(Path(folder) / "tables"),
        read_settings(ManagerSettings, {}),
        stand_ins=StandIns(rng=new_rng(7)),
    )


def _turn(manager: MaintenanceManager, times: list[float]) -> bool:
    """Make one turn as the manager's loop does, add its milliseconds, and return whether it has started something."""
    started = time.perf_counter()
    choice = manager.step()
    manager.tend()
    times.append((time.perf_counter() - started) * 1000)
    return choice.op_name is not None


def _settle(clock: MovedClock, manager: MaintenanceManager, times: list[float]) -> int:
    """Make turns until nothing is due, and return their number: the first refreshes of garbage are no idle turns."""
    turns, quiet = 0, 0
    while quiet < 200:
        turns += 1
        has_started = _turn(manager, times)
        is_busy = has_started or any(run.ended_ms == 0 for run in manager.runs())
        quiet = 0 if is_busy else quiet + 1
        if not has_started:
            clock.advance(TURN_SECONDS)
            time.sleep(0.0005)
    return turns


def _idle_turns(clock: MovedClock, manager: MaintenanceManager, *, profiles: bool) -> list[float]:
    """Milliseconds of each turn."""
    # The garbage of the first refreshes is collected now, not in a turn.
    gc.collect()
    times: list[float] = []
    slowest: cProfile.Profile | None = None
    for _ in range(int(IDLE_SECONDS / TURN_SECONDS)):
        profile = cProfile.Profile() if profiles else None
        if profile is not None:
            profile.enable()
        _turn(manager, times)
        if profile is not None:
            profile.disable()
            if times[-1] == max(times):
                slowest = profile
        clock.advance(TURN_SECONDS)
    _print_profile(slowest)
    return times


def _print_profile(profile: cProfile.Profile | None) -> None:
    if profile is not None:
        profile.disable()
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(25)


def _report(passes: list[Pass], figures: dict[str, float], *, tables: int, built_s: float) -> None:
    parts = PARTITIONS * len(PART_BYTES)
    table = Table(title=f"{tables:,} tables of {parts} parts, built in {built_s:.0f} s")
    columns = {
        "imports s": "import_s",
        "open s": "open_s",
        "first turn s": "first_turn_s",
        "all refreshed s": "refreshed_s",
        "settled s": "settled_s",
        "turn max ms": "turn_max_ms",
        "idle max ms": "idle_max_ms",
        "idle p99 ms": "idle_p99_ms",
        "idle median ms": "idle_median_ms",
        "peak memory MiB": "rss_mib",
    }
    table.add_column("pass")
    for title in columns:
        table.add_column(title, justify="right")
    for number, each in enumerate(passes, 1):
        table.add_row(str(number), *(f"{getattr(each, name):.3f}" for name in columns.values()))
    found = [
        Figure(name=name, value=value, unit=UNITS.get(name, ""), target=TARGETS.get(name), higher_is_better=False)
        for name, value in figures.items()
    ]
    print_report("maintenance", found, [table])


if __name__ == "__main__":
    main()
