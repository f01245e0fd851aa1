"""Rows change all the time while everything is flushed, merged and compacted: does anything give up, or get lost?

    python -m bench.stress_changes [--minutes 30] [--seed N] [--work DIR]

A node with Spark in this process; two writers upsert, delete and update rows of a table with a unique key, by SQL, each
its own keys; a third thread flushes and optimizes the table beside the background's own work. Every minute the writers
pause, and the whole table is compared with what they wrote; at the end too, and as of earlier versions. Ends with 1
when a row differs, or when maintenance gave up a piece of work because rows had changed.

Covers: rows that change under maintenance, through the doors that users have. Does not cover: crashes (the simulation
tests), speed (bench_hot.py).
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.report import machine
from tilth.base.errors import ErrorKind, TilthError
from tilth.front import LocalNode
from tilth.front import open as open_node

KEYS = 20_000
PARTITIONS = 4
WRITERS = 2
#: Rows of one statement.
BATCHES = (1, 5, 40)
CHECK_SECONDS = 60.0
#: Between two commands of the third thread.
PAUSES = (0.0, 0.5, 3.0)
#: Earlier versions that are read at each comparison are those of the last so many.
VERSIONS = 3
SETTINGS = {
    "flush_threshold_secs": "1",
    "tablet_delta_store_major_compact_min_ratio": "0.01",
    "maintenance_manager_history_size": "10000",
}
TABLE = """CREATE TABLE t (k BIGINT NOT NULL, p INT NOT NULL, v BIGINT, w STRING) ENGINE = MergeTree
    PARTITION BY p ORDER BY k UNIQUE KEY (k)
    SETTINGS tablet_history_max_age_sec = 120, old_parts_lifetime = 0, ttl_for_trash_items = 0"""
COMMANDS = ("SYSTEM FLUSH t", "OPTIMIZE TABLE t", "OPTIMIZE TABLE t FINAL", "SYSTEM GC t")

#: Values of `v` and `w` by key.
Rows = dict[int, tuple[int | None, str | None]]


@dataclass(slots=True)
class Writer:
    """One of the writers, and the rows that it has written."""

    number: int
    rng: random.Random
    rows: Rows = field(default_factory=dict)
    #: Held while a statement runs; whoever has it may compare.
    lock: threading.Lock = field(default_factory=threading.Lock)


class Stress:
    """One run."""

    def __init__(self, node: LocalNode, seed: int) -> None:
        self._node = node
        self._rng = random.Random(seed)
        self._writers = [Writer(number, random.Random(f"{seed} {number}")) for number in range(WRITERS)]
        self._stopping = threading.Event()
        self._values = 0
        #: Expected rows of each version of the table.
        self._versions: dict[int, Rows] = {}
        #: Runs of maintenance that were checked.
        self._runs: set[tuple[str, int, int]] = set()
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    def run(self, seconds: float) -> None:
        self._node.sql(TABLE)
        for writer in self._writers:
            self._insert(writer, range(writer.number, KEYS, WRITERS))
        routines: list[Callable[[], None]] = [self._command]
        routines += [lambda writer=writer: self._write(writer) for writer in self._writers]  # type: ignore[misc]
        threads = [threading.Thread(target=self._guarded, args=(routine,), daemon=True) for routine in routines]
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        while not self._stopping.is_set() and time.monotonic() < end:
            self._stopping.wait(min(CHECK_SECONDS, max(0.0, end - time.monotonic())))
            self._guarded_once(self._compare)
        self._stopping.set()
        for thread in threads:
            thread.join(120)
        self._guarded_once(self._compare)

    def _compare(self) -> None:
        """The table now, and as of the versions that were compared last."""
        with ExitStack() as stack:
            for writer in self._writers:
                stack.enter_context(writer.lock)
            version = self._value("SELECT max(version) FROM system.table_versions WHERE table = 't'")
            wanted = {key: row for writer in self._writers for key, row in writer.rows.items()}
            self._expect("", wanted)
        for older in list(self._versions)[-VERSIONS:]:
            try:
                self._expect(f" VERSION AS OF {older}", self._versions[older])
            except TilthError as error:
                # Not after its time: history is kept for a while only.
                if error.kind is not ErrorKind.INVALID and error.kind is not ErrorKind.NOT_FOUND:
                    raise
                del self._versions[older]
                self.counts["versions too old"] += 1
        self._versions[version] = wanted
        self._check_runs()

    def _expect(self, as_of: str, wanted: Rows) -> None:
        found = self._node.sql(f"SELECT k, p, v, w FROM t{as_of}").rows
        self.counts["comparisons"] += 1
        have = {row[0]: (row[2], row[3]) for row in found}
        if len(have) < len(found):
            self.failures.append(f"{len(found) - len(have)} keys are there twice{as_of}")
        if have != wanted:
            differ = [key for key in sorted(have.keys() | wanted.keys()) if have.get(key) != wanted.get(key)]
            report = [(key, have.get(key), wanted.get(key)) for key in differ[:5]]
            self.failures.append(f"{len(differ)} keys differ{as_of}: key, found, wanted: {report}")
        if self.failures:
            self._stopping.set()

    def _write(self, writer: Writer) -> None:
        rng = writer.rng
        kind = rng.choices(("insert", "insert_op", "delete", "update"), (50, 10, 15, 25))[0]
        keys = rng.sample(range(writer.number, KEYS, WRITERS), rng.choice(BATCHES))
        with writer.lock:
            match kind:
                case "insert":
                    # Some twice: the last one counts.
                    self._insert(writer, [*keys, *keys[: len(keys) // 4]])
                case "insert_op":
                    rows = ", ".join(f"({key}, {key % PARTITIONS}, 'd')" for key in keys)
                    self._node.sql(f"INSERT INTO t (k, p, _op) VALUES {rows}")
                    self._forget(writer, keys)
                case "delete":
                    self._node.sql(f"DELETE FROM t WHERE k IN ({', '.join(map(str, keys))})")
                    self._forget(writer, keys)
                case "update":
                    self._update(writer)
        self.counts[kind] += 1

    def _insert(self, writer: Writer, keys: Iterable[int]) -> None:
        self._values += 1
        values = {key: (self._values * KEYS + index, f"w{index}") for index, key in enumerate(keys)}
        rows = ", ".join(f"({key}, {key % PARTITIONS}, {v}, '{w}')" for key, (v, w) in values.items())
        self._node.sql(f"INSERT INTO t (k, p, v, w) VALUES {rows}")
        writer.rows.update(values)

    def _update(self, writer: Writer) -> None:
        """Update scattered rows; one that is changed twice, or not at all, has another value."""
        modulus = writer.rng.choice((97, 997)) * WRITERS
        rest = writer.rng.randrange(writer.number, modulus, WRITERS)
        self._node.sql(f"UPDATE t SET v = v * 3 % 1000003 + 1 WHERE k % {modulus} = {rest}")
        for key, (v, w) in writer.rows.items():
            if key % modulus == rest and v is not None:
                writer.rows[key] = (v * 3 % 1000003 + 1, w)

    def _forget(self, writer: Writer, keys: Iterable[int]) -> None:
        for key in keys:
            writer.rows.pop(key, None)

    def _command(self) -> None:
        command = self._rng.choice(COMMANDS)
        self._node.sql(command)
        self.counts[command.partition(" t")[0].lower()] += 1
        self._stopping.wait(self._rng.choice(PAUSES))

    def _check_runs(self) -> None:
        """Every run of maintenance that failed is a failure here: nobody stopped or dropped anything."""
        for run in self._node._node._maintenance.runs():
            key = (run.name, run.thread_id, run.started_ms)
            if run.ended_ms and key not in self._runs:
                self._runs.add(key)
                self.counts[f"runs of {run.name.partition('(')[0]}"] += 1
                if run.error:
                    self.failures.append(f"{run.name} gave up: {run.error}")

    def _value(self, query: str) -> int:
        return int(self._node.sql(query).rows[0][0])

    def _guarded(self, routine: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            self._guarded_once(routine)

    def _guarded_once(self, routine: Callable[[], None]) -> None:
        try:
            routine()
        except TilthError as error:
            if error.kind is ErrorKind.RETRY:
                # Nothing was changed, and the statement may be retried.
                self.counts[f"refused {error.code}"] += 1
                return
            self._failed(error)
        # Whatever it is, the stress has failed.
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.failures.append(f"{type(error).__name__}: {error}")
        self._stopping.set()


class Rebases(logging.Handler):
    """Counts how often changes were brought over to what maintenance had written meanwhile."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "changes_rebased" in record.getMessage()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 40))
    parser.add_argument("--work", help="folder for the node; default: a temporary one")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    rebases = Rebases()
    logger = logging.getLogger("tilth.maintenance")
    logger.addHandler(rebases)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    with ExitStack() as stack:
        work = given.work or stack.enter_context(tempfile.TemporaryDirectory())
        node = stack.enter_context(open_node(Path(work) / "node", settings=SETTINGS))
        stress = Stress(node, given.seed)
        stress.run(given.minutes * 60)
    counts = {**dict(sorted(stress.counts.items())), "rebases": rebases.count}
    for name, count in counts.items():
        print(f"{name:30} {count:>10,}")
    for failure in stress.failures:
        print(f"FAILED: {failure[:1000]}")
    report = {"bench": "stress_changes", "minutes": given.minutes, "seed": given.seed, "counts": counts}
    print(json.dumps({**report, "failures": len(stress.failures), "machine": machine()}), flush=True)
    sys.exit(1 if stress.failures else 0)


if __name__ == "__main__":
    main()
