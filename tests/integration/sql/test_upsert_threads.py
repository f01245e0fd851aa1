"""Writers of one table with a unique key, at once: each key ends with the row that was acknowledged last.

Each thread has keys of its own, so that it knows what must be left of them; partitions and files they share.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.sql_world import fake_rooms
from tilth.base.clock import SystemClock
from tilth.base.ids import random_id
from tilth.catalog import Catalog, MemoryKV
from tilth.model.table import TableDef
from tilth.statements.engine import SqlEngine
from tilth.storage import clean_transaction, data_folder, local_root, read_source, sources_of

pytestmark = pytest.mark.integration

THREADS = 3
INSERTS = 12
KEYS = 8


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(
        MemoryKV(),
        SystemClock(),
        "s1",
        random_id,
        is_checking=True,
        sweep=partial(clean_transaction, local_root(tmp_path)),
    )


@pytest.fixture
def engine(catalog: Catalog, tmp_path: Path) -> Iterator[SqlEngine]:
    clock = SystemClock()
    root = local_root(tmp_path)
    made = SqlEngine(fake_rooms(clock, random_id, catalog, root=root))
    yield made
    made.stop()


def write(engine: SqlEngine, number: int, seed: int, left: dict[int, tuple[int, int] | None]) -> None:
    """A thread's inserts; `left` gets what its keys must have in the end."""
    draw = random.Random(seed)
    for _ in range(INSERTS):
        rows = []
        for _ in range(draw.randint(1, 5)):
            key, place, value = draw.randrange(KEYS) * THREADS + number, draw.randrange(3), draw.randrange(1 << 30)
            is_delete = draw.random() < 0.2
            rows.append((key, place, value, int(is_delete)))
            left[key] = None if is_delete else (place, value)
        told = ", ".join(map(str, rows))
        engine.run(f"INSERT INTO t (k, p, v, _op) VALUES {told}", settings={"async_insert": draw.choice("01")})


@pytest.mark.parametrize("seed", [1, 2])
def test_the_last_acknowledged_row_of_each_key_is_left(
    engine: SqlEngine, catalog: Catalog, tmp_path: Path, seed: int
) -> None:
    engine.run(
        "CREATE TABLE t (k Int64, p Int32, v Int64) ENGINE = MergeTree PARTITION BY p ORDER BY k UNIQUE KEY k "
        "SETTINGS partition_level_unique_keys = 0"
    )
    left: list[dict[int, tuple[int, int] | None]] = [{} for _ in range(THREADS)]
    threads = [
        threading.Thread(target=write, args=(engine, number, seed * 100 + number, left[number]))
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    table = catalog.tables.get("default", "t")
    assert isinstance(table, TableDef)
    snapshot = catalog.parts.snapshot(table.uuid)
    found: list[tuple[int, tuple[int, int]]] = []
    for source in sources_of(snapshot.table, snapshot.parts, snapshot.deltas):
        rows = read_source(data_folder(local_root(tmp_path), table.uuid), source)[0]
        found += [(row["k"], (row["p"], row["v"])) for row in rows.to_pylist()]
    expected = {key: row for each in left for key, row in each.items() if row is not None}
    assert sorted(found) == sorted(expected.items()), f"seed={seed}"
    assert snapshot.rows == len(expected)
