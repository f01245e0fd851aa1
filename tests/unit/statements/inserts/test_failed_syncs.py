"""INSERTs while the disk of the catalog fails: an answer of success is never about what a power loss takes.

Modules: catalog/kv/rocksdb.py, catalog/kv/grouped.py, statements/inserts/insert.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failing_syncs import FailingSyncs
from tests.sql_world import SqlWorld, table_of
from tilth.base.errors import TilthError
from tilth.catalog import GroupedKV, RocksKV, StoreIOError

LABELLED = {"insertion_label": "x"}


def count(world: SqlWorld) -> int:
    return world.catalog.parts.snapshot(table_of(world).uuid).rows


@pytest.mark.parametrize("good", [0, 1])
@pytest.mark.parametrize("options", ["", " SETTINGS memory_buffer = 1"])
def test_an_insert_whose_sync_failed_is_never_told_as_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: int, options: str
) -> None:
    kv = RocksKV(str(tmp_path / "kv"))
    world = SqlWorld(tmp_path, kv=GroupedKV(kv))
    world.run(f"CREATE TABLE t (a Int32 NOT NULL) ENGINE = MergeTree ORDER BY a{options}")
    disk = FailingSyncs(kv, monkeypatch, good=good)
    for _ in range(2):
        with pytest.raises(TilthError):
            world.run("INSERT INTO t VALUES (1)", settings=LABELLED)
    for text in ("SELECT a FROM t", "INSERT INTO t VALUES (2)"):
        with pytest.raises(StoreIOError, match=r"kv .*check the disk"):
            world.run(text)
    with pytest.raises(StoreIOError):
        count(world)
    lost = SqlWorld(tmp_path, kv=disk.after_power_loss(tmp_path / "lost"))
    assert count(lost) == 0
    assert lost.run("INSERT INTO t VALUES (1)", settings=LABELLED).rows_written == 1
    assert count(lost) == 1
    # Without a power loss, the log decides; from then on the answers and the rows agree.
    monkeypatch.undo()
    stored = count(world)
    assert world.run("INSERT INTO t VALUES (1)", settings=LABELLED).rows_written == 1 - stored
    assert count(world) == 1
