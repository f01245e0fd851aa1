"""A real Spark over a real HDFS: every scan path is read with what Spark carries, by names and sizes alone, and its
tasks in Python read the same files.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from tests.integration.storage.test_read_scan_paths import TABLE, World, got, mixed, read_error
from tests.spark_world import SparkWorld
from tilth.storage import PartFileNotFoundError, StoreAwayError, data_folder, parse_root
from tilth.storage.read.spark import located_snapshot, read_snapshot
from tilth.storage.store.stores import store_of
from tilth.warehouse import WorkerSession
from tools.hdfs_cluster import HdfsCluster

pytestmark = pytest.mark.integration


@pytest.fixture
def world(hdfs: HdfsCluster) -> World:
    return World(parse_root(f"{hdfs.address}/{uuid4().hex}"))


def test_all_scan_paths_together_are_as_in_the_model(session: SparkSession, world: World) -> None:
    snapshot = mixed(world).snapshot()
    expected = world.expected()
    assert got(read_snapshot(session, snapshot, world.root)) == [row[:-2] for row in expected]
    assert got(located_snapshot(session, snapshot, world.root)) == expected


def test_a_plan_requests_nothing_and_a_scan_lists_nothing(
    session: SparkSession, hdfs: HdfsCluster, world: World
) -> None:
    for first in range(0, 300, 100):
        world.add(range(first, first + 100))
    before = Counter(hdfs.calls())
    frame = read_snapshot(session, world.snapshot(), world.root)
    frame.explain()
    planned = Counter(hdfs.calls()) - before
    assert not planned.keys() & {"GetListing", "GetFileInfo", "GetBlockLocations", "GetContentSummary"}
    assert frame.count() == 300
    assert frame.selectExpr("sum(k)").first() == (sum(range(300)),)
    requests = Counter(hdfs.calls()) - before
    # Each file costs, in each of two scans, a request for its block locations, and one of Spark for its status.
    assert (requests["GetListing"], requests["GetBlockLocations"], requests["GetFileInfo"]) == (0, 6, 6)


def test_a_file_that_is_missing_and_a_folder_that_is_away_are_named(session: SparkSession, world: World) -> None:
    part, store = world.add(range(10)), store_of(world.root)
    folder = data_folder(world.root, TABLE.uuid)
    store.remove([folder.key(part.file.name)])
    lost = read_error(session, world.snapshot(), world.root)
    store.remove_folder("")
    away = read_error(session, world.snapshot(), world.root)
    assert (type(lost), type(away)) == (PartFileNotFoundError, StoreAwayError)
    for error in (lost, away):
        assert error is not None
        assert error.facts["file"] == folder.uri(part.file.name)


def test_files_go_out_and_come_in(hdfs: HdfsCluster, spark: WorkerSession, tmp_path: Path) -> None:
    """COPY INTO by Spark's reader and by our own; about six seconds."""
    address = f"{hdfs.address}/{uuid4().hex}"
    node = SparkWorld(tmp_path, spark, settings={"storage.file-locations": address})
    try:
        node.run("CREATE DATABASE shop", database="default")
        node.run("CREATE TABLE t (a Int64, s String) ENGINE = MergeTree ORDER BY a")
        node.run("INSERT INTO t VALUES (1, 'x'), (2, NULL)")
        for form in ("AVRO", "PARQUET"):
            folder = f"{address}/a b%20/{form}"
            assert "2 rows in" in node.run(f"EXPORT TABLE t TO '{folder}' FORMAT {form}").message
            node.run(f"CREATE TABLE {form} (a Int64, s String) ENGINE = MergeTree ORDER BY a")
            copy = f"COPY INTO {form} FROM '{folder}' FORMAT {form}"
            assert "2 rows of" in node.run(copy).message
            assert "nothing to copy" in node.run(copy).message
            assert node.rows(f"SELECT * FROM {form} ORDER BY a") == [(1, "x"), (2, None)]
        assert node.refused(f"EXPORT TABLE t TO '{folder}' FORMAT ORC").code == "EXPORT_NOT_EMPTY"
    finally:
        node.stop()
