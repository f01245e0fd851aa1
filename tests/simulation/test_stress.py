"""Rows change while maintenance runs on threads of its own: nothing is given up for it, nothing is lost.

A short run (TILTH_STRESS_SECONDS) without Spark; `python -m bench.stress_changes` is the long one, with Spark and by
SQL.
"""

from __future__ import annotations

import os
import random
import secrets
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.sequence_standins import spark_task
from tests.sequence_world import SequenceWorld
from tests.simulation.sequence_model import Fresh, Model, Row, Shape, in_order
from tilth.base.clock import SystemClock

pytestmark = pytest.mark.simulation

SEED = int(os.environ.get("TILTH_SEQUENCE_SEED", "0")) or secrets.randbelow(1 << 40)
SECONDS = float(os.environ.get("TILTH_STRESS_SECONDS", "6"))
KEYS = 200
#: Times of the past that are compared in the end.
TIMES_MAX = 50


def test_changes_under_maintenance(tmp_path: Path) -> None:
    """Two writers and a reader on threads of their own, beside the running manager, flushes and merges: no work is
    given up because rows changed, and what is left is what was written."""
    world = SequenceWorld(
        tmp_path,
        Shape(partitions=2, order_by=("s", "k")),
        history=2.0,
        settings={"old_parts_lifetime": "0", "ttl_for_trash_items": "0"},
        clock=SystemClock(),
        workers=4,
    )
    stress = Stress(world)
    with spark_task():
        stress.run(SECONDS)
    print(f"seed {stress.seed}, {dict(sorted(stress.counts.items()))}")
    assert not stress.failures, stress.failures[0]
    assert stress.counts["insert"] > 20, stress.counts
    assert stress.counts["merges"] + stress.counts["merge runs"] > 0, stress.counts
    world.close()


class Stress:
    """What the threads share."""

    def __init__(self, world: SequenceWorld) -> None:
        self.world = world
        self.seed = SEED
        self.failures: list[str] = []
        self.counts: Counter[str] = Counter()
        self._stopping = threading.Event()

    def run(self, seconds: float) -> None:
        world = self.world
        models = [Model(world.shape), Model(world.shape)]
        routines: list[Callable[[], None]] = [
            *(partial(self._write, model, random.Random(f"{self.seed} {n}"), n) for n, model in enumerate(models)),
            self._read,
            self._flush,
            self._merge,
        ]
        world.manager.start()
        threads = [threading.Thread(target=self._guarded, args=(routine,), daemon=True) for routine in routines]
        for thread in threads:
            thread.start()
        self._stopping.wait(seconds)
        self._stopping.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        # A running manager would collect history while it is compared: the mark moves with the clock.
        world.manager.stop()
        runs = world.manager.runs()
        self.failures += [f"{run.name}: {run.error}" for run in runs if run.error]
        for run in runs:
            self.counts[f"{run.name.partition('(')[0].lower()} runs"] += 1
        self._compare(models)
        self.counts.update(world.counts)

    def _compare(self, models: list[Model]) -> None:
        """Now, and at each time that may still be read."""
        world = self.world
        times = [None, *(ts for ts in sorted(ts for model in models for ts in model.times) if ts > world.ahm())]
        for ts in times[:TIMES_MAX]:
            wanted = [row for model in models for row in (model.rows if ts is None else model.at(ts))]
            if in_order(world.rows(ts)) != in_order(wanted):
                self.failures.append(f"at {ts} the rows are not what was written")
            self.counts["times compared"] += 1

    def _guarded(self, routine: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            try:
                routine()
            # Whatever it is, the stress has failed.
            except Exception as error:
                self.failures.append("".join(traceback.format_exception(error)))
                self._stopping.set()

    def _write(self, model: Model, rng: random.Random, writer: int) -> None:
        """Keys of one writer are even, those of the other odd."""
        keys = set(rng.sample(range(writer, KEYS, 2), rng.choice((1, 3, 20))))
        value = rng.randrange(1 << 40)
        what = rng.choices(("insert", "delete", "update"), (60, 15, 25))[0]
        match what:
            case "insert":
                batch = [
                    Fresh(Row(k, rng.choice("ab"), rng.randrange(5), value, f"w{value}"), rng.random() < 0.1)
                    for k in rng.choices(sorted(keys), k=len(keys) + 2)
                ]
                self.world.insert(batch, model)
            case "delete":
                self.world.change(lambda row: row.k in keys, model=model)
            case "update":
                self.world.change(
                    lambda _: False,
                    lambda row: row.k in keys,
                    lambda row: row._replace(v=value),
                    columns=("v",),
                    model=model,
                )
        self.counts[what] += 1

    def _read(self) -> None:
        """Whatever the moment, a key is there once in its partition, and as many rows as the catalog says."""
        rows = self.world.rows()
        assert len({(row.p, row.k) for row in rows}) == len(rows)
        self.counts["reads"] += 1
        self._stopping.wait(0.05)

    def _flush(self) -> None:
        self.counts["segments flushed"] += self.world.manager.flush_now(self.world.uuid).segments
        self._stopping.wait(0.2)

    def _merge(self) -> None:
        self.counts["merges"] += self.world.manager.optimize(self.world.uuid, final=True).merges
        self._stopping.wait(0.2)
