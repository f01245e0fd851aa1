"""Places for files of tables, for tests that hold wherever the files are: a folder, a fake bucket, a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from tests.integration.storage.conftest import BUCKET, KEY_VARIABLE, SECRET_VARIABLE
from tilth.storage import Folder, StoreRoot, data_folder, local_root, parse_root
from tilth.storage.store.store import Store
from tilth.storage.store.stores import store_of
from tilth.testing import FakeBucket
from tools.s3server import S3Server

#: By name; the last one needs its server.
KINDS = ("folder", "fake bucket", "s3proxy")


@dataclass(frozen=True, slots=True)
class Place:
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
def new_place(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Place]:
    """A place of this kind that nobody else uses."""
    match kind:
        case "folder":
            yield Place(local_root(folder))
        case "fake bucket":
            with FakeBucket() as bucket:
                yield Place(bucket_root(bucket.endpoint))
        case _:
            server: S3Server = request.getfixturevalue("s3_server")
            yield Place(bucket_root(server.endpoint))


def bucket_root(endpoint: str, **options: str) -> StoreRoot:
    """A prefix of the tests' bucket."""
    given = {"endpoint": endpoint, "key": f"env:{KEY_VARIABLE}", "secret": f"env:{SECRET_VARIABLE}"} | options
    query = "&".join(f"{name}={value}" for name, value in given.items())
    return parse_root(f"s3://{BUCKET}/{uuid4().hex}?{query}")
