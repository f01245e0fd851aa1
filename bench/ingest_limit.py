"""Stages of a round, each by itself in one process: MiB of JSON for a second of processor time, beside physical limits.

    python -m bench.ingest_limit [--kit DIR] [--work DIR] [--rows 500000] [--bootstrap HOST:PORT]

The topic is that of bench_ingest. Each stage is code of a round's task over the results of the stage before: fetch,
decode, the checks of a view that picks columns, sort, encode (Parquet without compression), compress (the additional
time with zstd), sync (the additional time with a wait for the disk, by the clock), commit (a small durable commit of
the catalog, by the clock). The best of several runs counts. `together` is a task with all stages but the commit.

Limits: a copy of the messages in memory; zstd of the same columns with nothing else; the disk with writes of 1 MiB and
one fsync for each file. Processor time is that of the whole process, the threads of the Kafka client among them.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from bench.bench_ingest import COLUMNS, ORDER, broker_for, prepare_topic
from bench.report import more, print_report
from bench.rivals import add_kit_arguments, kit_of
from tilth.base.clock import SystemClock
from tilth.base.ids import random_id
from tilth.catalog import Catalog, RocksKV
from tilth.ingest.kafka.fetch import Fetched, fetch
from tilth.ingest.messages.decode import Decoded, Decoder
from tilth.ingest.settings import KafkaConfig
from tilth.ingest.views.refusals import misfits
from tilth.model.offset import OffsetRange
from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Simple
from tilth.storage import TableLayout, layout_of, local_root, write_rows

MIB = 1 << 20
RUNS = 5
PARQUET_WRITER = pq.ParquetWriter
COMMITS = 50
#: Goal of decoding, MiB for a second of a core.
DECODE_GOAL = 250.0


class Stages:
    """The stages over one topic; each retains its results for the next."""

    def __init__(self, topic: dict[str, Any], bootstrap: str, folder: Path) -> None:
        columns = [Column(id=i, name=n, type=Simple(k)) for i, (n, k) in enumerate(COLUMNS.items(), start=1)]
        self._schema = Schema(columns=tuple(columns))
        given = {"brokers": bootstrap, "group": random_id(), "topics": (topic["name"],), "format": "JSONEachRow"}
        self._config = KafkaConfig(table="bench.k", **given)
        rows, partitions = topic["checksum"]["rows"], topic["partitions"]
        each = rows // partitions
        self._ranges = [
            OffsetRange(topic=topic["name"], partition=number, start=0, end=each) for number in range(partitions)
        ]
        self.table = TableDef(uuid=random_id(), database="default", name="t", schema=self._schema, order_by=ORDER)
        self.root = local_root(folder / "tables")
        self._layout = layout_of(self.table, self.root)
        self._clock = SystemClock()
        self._txn = 0
        self.fetched: list[Fetched] = []
        self._decoded: list[Decoded] = []
        self._rows = self._in_order = pa.table({})
        self.written_bytes = 0

    @property
    def bytes(self) -> int:
        return sum(each.messages.values.size for each in self.fetched)

    def keep(self) -> None:
        """Fetch all messages for the other stages."""
        self.fetched = list(fetch(self._clock, self._config, self._ranges, has_headers=False))

    def fetch(self) -> None:
        for _ in fetch(self._clock, self._config, self._ranges, has_headers=False):
            pass

    def decode(self) -> None:
        decoder = Decoder(self._schema, self._config, columns=list(COLUMNS), defaults={})
        self._decoded = [decoder.decode(each.topic, each.partition, each.messages) for each in self.fetched]

    def check(self) -> None:
        for each in self._decoded:
            misfits(self._layout, pa.Table.from_batches([each.rows]))

    def gather(self) -> None:
        self._rows = pa.Table.from_batches([each.rows for each in self._decoded])
        keys = [(name, "ascending") for name in ORDER]
        self._in_order = self._rows.sort_by(keys).combine_chunks()

    def write(self, *, is_sorted: bool = False, is_compressed: bool = True, fsync: bool = False) -> None:
        layout = replace(self._layout, fsync=fsync)
        with nullcontext() if is_compressed else mock.patch.object(pq, "ParquetWriter", _plain_writer):
            self._write(layout, self._in_order if is_sorted else self._rows)

    def _write(self, layout: TableLayout, rows: pa.Table) -> None:
        self._txn += 1
        parts = write_rows(layout, rows, txn=self._txn, task=0, attempt=0)
        self.written_bytes = sum(part.file.size for part in parts)

    def together(self) -> None:
        """All stages but commit, batch by batch, as a task does."""
        decoder = Decoder(self._schema, self._config, columns=list(COLUMNS), defaults={})
        held = []
        for each in fetch(self._clock, self._config, self._ranges, has_headers=False):
            rows = pa.Table.from_batches([decoder.decode(each.topic, each.partition, each.messages).rows])
            misfits(self._layout, rows)
            held.append(rows)
        self._write(self._layout, pa.concat_tables(held))

    @property
    def columns(self) -> pa.Table:
        return self._in_order


# Any: arguments of pyarrow's writer.
def _plain_writer(*arguments: Any, **more: Any) -> Any:
    return PARQUET_WRITER(*arguments, **more | {"compression": "none", "compression_level": None})


def best(run: Callable[[], None], clock: Callable[[], float] = time.process_time) -> float:
    """Return the least time of several runs, in seconds; without a search for cycles, as in a task."""
    found = []
    for _ in range(RUNS):
        gc.collect()
        gc.disable()
        try:
            begin = clock()
            run()
            found.append(clock() - begin)
        finally:
            gc.enable()
    return min(found)


def commit_seconds(folder: Path, table: TableDef) -> float:
    """Return the seconds of a small durable commit of the catalog."""
    catalog = Catalog(RocksKV(str(folder / "catalog")), SystemClock(), "bench", random_id)
    try:
        tables = [msgspec.structs.replace(table, uuid=random_id(), name=f"t{number}") for number in range(COMMITS)]
        begin = time.perf_counter()
        for each in tables:
            catalog.tables.create(each)
        return (time.perf_counter() - begin) / COMMITS
    finally:
        catalog.close()


def disk_mib_s(folder: Path) -> float:
    """Return how fast the disk takes 256 MiB with one fsync in the end."""
    block = os.urandom(MIB)
    begin = time.perf_counter()
    with (folder / "disk").open("wb") as file:
        for _ in range(256):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return 256 / (time.perf_counter() - begin)


def zstd_seconds(columns: pa.Table) -> float:
    """Return the seconds that zstd takes for the columns' bytes alone."""
    chunks = [chunk for column in columns.columns for chunk in column.chunks]
    buffers = [buffer for chunk in chunks for buffer in chunk.buffers() if buffer]
    codec = pa.Codec("zstd", 1)

    def compress() -> None:
        for buffer in buffers:
            codec.compress(buffer)

    return best(compress)


def stage_seconds(stages: Stages, folder: Path) -> dict[str, float]:
    """Return seconds of a core by stage, in the order of a round; of sync and commit by the clock."""
    stages.keep()
    found = {"fetch": best(stages.fetch), "decode": best(stages.decode), "check": best(stages.check)}
    stages.gather()
    whole = best(stages.write)
    in_order = best(lambda: stages.write(is_sorted=True))
    plain = best(lambda: stages.write(is_sorted=True, is_compressed=False))
    found |= {"sort": whole - in_order, "encode": plain, "compress": in_order - plain}
    waited = [best(lambda fsync=fsync: stages.write(fsync=fsync), time.perf_counter) for fsync in (False, True)]  # type: ignore[misc]  # bound here
    found |= {"sync": waited[1] - waited[0], "commit": commit_seconds(folder, stages.table)}
    found["together"] = best(stages.together)
    return found


def limits(stages: Stages, folder: Path) -> dict[str, tuple[float, str]]:
    """Return the least seconds of the machine and their meaning, by stage."""
    messages = [text or b"" for each in stages.fetched for text in each.messages.values.items]

    def copy() -> None:
        bytearray(b"".join(messages))

    copied = best(copy)
    return {
        "decode": (copied, "the messages' bytes copied twice"),
        "compress": (zstd_seconds(stages.columns), "zstd of the columns alone"),
        "sync": (stages.written_bytes / MIB / disk_mib_s(folder), "the parts' bytes on this disk"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_kit_arguments(parser)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--bootstrap", help="a broker; default: one for this run")
    arguments = parser.parse_args()
    kit = kit_of(arguments)
    folder = Path(tempfile.mkdtemp(prefix="tilth-bench-limit-", dir=kit.work))
    try:
        with ExitStack() as stack:
            bootstrap = stack.enter_context(broker_for(arguments.bootstrap, kit.work))
            topic = prepare_topic(kit, bootstrap, rows=arguments.rows)
            stages = Stages(topic, bootstrap, folder)
            seconds = stage_seconds(stages, folder)
            least = limits(stages, folder)
        mib = stages.bytes / MIB
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = Table("stage", "seconds", "MiB/s", "limit, MiB/s", "limit of", title=f"Stages of {mib:.0f} MiB of JSON")
    for name, each in seconds.items():
        bound, why = least.get(name, (0.0, ""))
        table.add_row(name, f"{each:.3f}", f"{mib / each:.0f}", f"{mib / bound:.0f}" if bound else "", why)
    figures = [more("decode_mib_cpu_s", mib / seconds["decode"], "MiB/s", DECODE_GOAL)]
    figures += [more(f"{name}_mib_s", mib / each, "MiB/s") for name, each in seconds.items() if name != "decode"]
    print_report("limit", figures, [table])


if __name__ == "__main__":
    main()
