"""A session of the lane's Spark; locations for files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.bucket_roots import BUCKET, set_keys
from tilth.warehouse import WorkerSession
from tools.hdfs_cluster import HdfsCluster
from tools.s3server import S3Server


@pytest.fixture
def session(spark: WorkerSession) -> SparkSession:
    return spark.session


@pytest.fixture(scope="session")
def s3_server(java_home: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A running S3 server that all tests of the process share: use a prefix of your own, do not stop it."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    server.create_bucket(BUCKET)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def hdfs(java_home: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    """A running HDFS that all tests of the process share: use a folder of your own; who stops a process of it starts it
    again. Files with it are in `ON_STORES` of tools/lanes.py.
    """
    cluster = HdfsCluster(tmp_path_factory.mktemp("hdfs"))
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The secrets that the roots of buckets refer to."""
    set_keys(monkeypatch)
