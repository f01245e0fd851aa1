"""Locations for files of tables, for tests that hold wherever the files are: a folder, buckets, an HDFS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from tests.bucket_roots import bucket_root, gcs_root
from tilth.storage import Folder, StoreRoot, data_folder, local_root, parse_root, reserve_location
from tilth.storage.store.protocol import Store
from tilth.storage.store.replicas.replicated import begin_table
from tilth.storage.store.root import replicated_root
from tilth.storage.store.stores import store_of
from tilth.testing import FakeBucket
from tools.hdfs_cluster import HdfsCluster
from tools.s3server import S3Server

#: Kinds by name; the last two need their servers.
KINDS = ("folder", "fake bucket", "fake bucket of GCS", "replicas", "s3proxy", "hdfs")


@dataclass(frozen=True, slots=True)
class Location:
    """A root of a test's own."""

    root: StoreRoot

    @property
    def store(self) -> Store:
        return store_of(self.root)

    @property
    def folder(self) -> Folder:
        return data_folder(self.root, "t")

    def bytes_of(self, name: str) -> bytes:
        """All bytes of a file."""
        found: bytes = self.store.read(self.folder.key(name)).to_pybytes()
        return found

    def overwrite(self, name: str, data: bytes) -> None:
        """Do what nobody does: write other bytes under a name that is taken."""
        self.store.put(self.folder.key(name), data)


@contextmanager
def new_location(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Location]:
    """A location of this kind that nobody else uses."""
    match kind:
        case "folder":
            yield Location(local_root(folder))
        case "fake bucket":
            with FakeBucket() as bucket:
                yield Location(bucket_root(bucket.endpoint))
        case "fake bucket of GCS":
            with FakeBucket(is_gcs=True) as bucket:
                yield Location(gcs_root(bucket.endpoint, folder))
        case "replicas":
            with FakeBucket() as bucket:
                folders = [local_root(folder / name) for name in ("one", "two")]
                yield Location(replicated(*folders, bucket_root(bucket.endpoint)))
        case "hdfs":
            cluster: HdfsCluster = request.getfixturevalue("hdfs")
            yield Location(parse_root(f"{cluster.address}/{uuid4().hex}"))
        case _:
            server: S3Server = request.getfixturevalue("s3_server")
            yield Location(bucket_root(server.endpoint))


def replicated(*replicas: StoreRoot, quorum: int = 2) -> StoreRoot:
    """Return a storage of these replicas as CREATE STORAGE and CREATE TABLE leave it."""
    for each in replicas:
        reserve_location(each)
    root = replicated_root("r", replicas, quorum)
    for table in ("t", "t2", "a", "ab"):
        begin_table(root, table)
    return root
