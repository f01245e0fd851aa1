"""Clients of an HDFS: each gets one request at a time, and none is freed.

A client whose connection breaks wakes those that wait for an answer while it holds a lock of its own. Waking needs the
GIL; a second question to it holds the GIL and waits for that lock: seen once in some fifteen deaths of a NameNode under
many questions, too seldom for a test with a real one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tilth.storage.store.backends import hdfs
from tilth.storage.store.backends.hdfs import REQUESTS_MAX, HdfsStore
from tilth.storage.store.root import parse_root


class FakeFile:
    def __init__(self, client: FakeClient) -> None:
        self._client = client

    async def write(self, data: bytes) -> int:
        await self._client.answer()
        return len(data)

    hsync = close = lambda self: self._client.answer()


class FakeClient:
    """Counts the requests that it gets at the same time."""

    made: list[FakeClient] = []  # noqa: RUF012  # emptied by each test
    most = 0

    def __init__(self, address: str) -> None:
        self.counts = Counter[str]()
        self._now = 0
        FakeClient.made.append(self)

    async def answer(self) -> None:
        self._now += 1
        FakeClient.most = max(FakeClient.most, self._now)
        self.counts["requests"] += 1
        await asyncio.sleep(0.001)
        self._now -= 1

    async def get_file_info(self, path: str) -> None:
        await self.answer()
        if path.endswith("1"):
            raise FileNotFoundError(path)

    async def create(self, path: str, options: Any) -> FakeFile:
        await self.answer()
        return FakeFile(self)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> HdfsStore:
    FakeClient.made, FakeClient.most = [], 0
    monkeypatch.setattr(hdfs, "AsyncClient", FakeClient)
    monkeypatch.setattr(hdfs, "_clients", {})
    return HdfsStore(parse_root("hdfs://nameservice/a"))


def test_a_client_gets_one_request_at_a_time_and_all_are_used(store: HdfsStore) -> None:
    def call(thread: int) -> None:
        assert store.exist([f"t/{name}" for name in range(20)]) == [not str(name).endswith("1") for name in range(20)]
        file = store.create(f"t/{thread}")
        file.write(b"x" * 10)
        assert file.finish(fsync=True).size == 10

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(call, range(32)))
    assert FakeClient.most == 1
    assert len(FakeClient.made) == REQUESTS_MAX
    assert all(each.counts["requests"] > 10 for each in FakeClient.made)


def test_clients_are_kept_and_shared_by_the_roots_of_an_hdfs(store: HdfsStore) -> None:
    HdfsStore(parse_root("hdfs://nameservice/b"))
    assert len(FakeClient.made) == REQUESTS_MAX
    HdfsStore(parse_root("hdfs://other/b"))
    assert len(FakeClient.made) == 2 * REQUESTS_MAX
