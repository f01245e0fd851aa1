"""A server and another one of its catalog that is of another version: what it answers, and what is said of that."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from itertools import count

import httpx
import msgspec
import pyarrow as pa
import pytest

from tests.codes import WithCode
from tilth.base.errors import ErrorKind, RetryError, TilthError, UnavailableError
from tilth.base.units import MIB
from tilth.catalog import Catalog, Joining, KeyValue, MemoryKV, NotHostedError
from tilth.introspection.registry import find_system_table
from tilth.membership import Bounds, Member
from tilth.membership.http_peers import BESIDE_ROWS_BYTES_MAX, HttpPeers
from tilth.membership.peers import noting_unanswered
from tilth.model.failure import failure_of
from tilth.model.service import ALL_TABLES, ServiceKind
from tilth.testing import ManualClock
from tilth.warehouse.remote.errors import (
    PeerAnswerTooLargeError,
    PeerAnswerUnreadableError,
    RouteNotFoundError,
)
from tilth.warehouse.remote.wire import MEDIA_TYPE

OTHERS_VERSION = version("tilth") + ".999"
SCHEMA = find_system_table("bg_threads").schema


class AlwaysAlive:
    """Liveness of a process that never ends."""

    def __init__(self, kv: KeyValue) -> None:
        self.heartbeat_store = self.watch_store = kv

    def acquire(self, server: str) -> None:
        """It is seen anyway."""

    def is_gone(self, server: str) -> bool:
        return False

    def clock_offset(self) -> tuple[float, float] | None:
        return None

    def news(self) -> frozenset[str]:
        return frozenset()

    def close(self) -> None:
        """Do nothing."""


def peers_of(answer: httpx.Response) -> HttpPeers:
    """Return the peers of a server `a`, where `b` answers every call with this."""
    kv, clock, numbers = MemoryKV(), ManualClock(), count()
    for name, given in (("b", OTHERS_VERSION), ("a", version("tilth"))):
        catalog = Catalog(kv, clock, name, lambda: f"{next(numbers):032x}")
        joining = Joining(name=name, run=name, version=given, url=f"http://{name}:7411")
        member = Member(clock, catalog, joining, bounds=Bounds(3.0), liveness=AlwaysAlive(kv), on_change=lambda: None)
        member.join()
    transport = httpx.MockTransport(lambda request: answer)
    return HttpPeers(clock, lambda: f"{next(numbers):032x}", member, token="t" * 16, transport=transport)


def answered(content: bytes, status: int = 200) -> httpx.Response:
    return httpx.Response(status, content=content, headers={"content-type": MEDIA_TYPE})


def refused(error: TilthError) -> httpx.Response:
    return answered(msgspec.msgpack.encode(failure_of(error)), status=404)


UNREADABLE = [
    answered(b"\xff no message"),
    answered(msgspec.msgpack.encode({"of": "a later version"})),
    answered(msgspec.msgpack.encode({"rows": b"no rows", "message": "", "notices": [], "rows_written": 0})),
]


def words_of_both() -> tuple[str, ...]:
    return "server=b", "url=http://b:7411", f"server_version={OTHERS_VERSION}", f"version={version('tilth')}"


@pytest.mark.parametrize("answer", UNREADABLE)
def test_an_answer_in_an_unknown_form_names_the_server_and_both_versions(answer: httpx.Response) -> None:
    peers = peers_of(answer)
    with pytest.raises(PeerAnswerUnreadableError) as raised:
        peers.run(NotHostedError(server="b"), "OPTIMIZE TABLE t", database="default", settings={})
    assert all(word in raised.value.message for word in words_of_both()), raised.value.message
    assert "install one version" in raised.value.hint
    with noting_unanswered() as notes:
        assert peers.tables("bg_threads", SCHEMA) == []
    [note] = notes
    assert "rows of server b at http://b:7411 are missing" in note
    assert OTHERS_VERSION in note


def test_a_call_that_the_other_does_not_know_has_done_nothing_and_says_so() -> None:
    peers = peers_of(refused(RouteNotFoundError(call="server/statement")))
    with pytest.raises(UnavailableError, check=WithCode("PEER_VERSION")) as raised:
        peers.run(NotHostedError(server="b"), "OPTIMIZE TABLE t", database="default", settings={})
    assert all(word in raised.value.message for word in words_of_both()), raised.value.message


def test_what_the_other_says_of_the_statement_comes_as_it_was() -> None:
    peers = peers_of(refused(RetryError("not now", table="t")))
    with pytest.raises(RetryError, match=r"not now: table=t$"):
        peers.run(NotHostedError(server="b"), "OPTIMIZE TABLE t", database="default", settings={})


def test_rows_with_other_columns_are_left_out_with_both_versions() -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"of_a_later_version": [1]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    peers = peers_of(answered(msgspec.msgpack.encode({"rows": sink.getvalue().to_pybytes()})))
    with noting_unanswered() as notes:
        assert peers.tables("bg_threads", SCHEMA) == []
    [note] = notes
    assert "bg_threads has other columns" in note
    assert OTHERS_VERSION in note


def test_a_service_is_stopped_for_all_tables_when_the_others_have_said_so() -> None:
    with noting_unanswered() as notes:
        peers_of(answered(msgspec.msgpack.encode({}))).wait_stopped(ServiceKind.MERGE, ALL_TABLES)
    assert notes == set()


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (refused(UnavailableError("a consumer does not end")), "a consumer does not end"),
        (refused(RouteNotFoundError(call="server/stopped")), "does not understand the call"),
        (httpx.Response(502), "502"),
    ],
)
def test_who_does_not_say_that_it_has_stopped_is_named(answer: httpx.Response, word: str) -> None:
    with noting_unanswered() as notes:
        peers_of(answer).wait_stopped(ServiceKind.CONSUME, "u1")
    [note] = notes
    assert "server b at http://b:7411 has not confirmed that it has stopped consume: " in note
    assert word in note


def packed(rows: int) -> bytes:
    """Rows of eight zeros each, compressed."""
    batch = pa.record_batch([pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(bytes(8 * rows))])], ["v"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def test_rows_of_another_server_are_unpacked_up_to_the_limit_of_the_statement() -> None:
    """136 MiB in some kilobytes."""
    rows = packed(17 * MIB)
    assert len(rows) < MIB
    peers = peers_of(answered(msgspec.msgpack.encode({"rows": rows, "message": "", "notices": [], "rows_written": 0})))
    outer = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(outer)
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(PeerAnswerTooLargeError) as raised:
            peers.run(
                NotHostedError(server="b"),
                "OPTIMIZE TABLE t",
                database="default",
                settings={"max_result_bytes": "9 MiB"},
            )
        with noting_unanswered() as notes:
            assert peers.tables("bg_threads", SCHEMA) == []
        assert pool.max_memory() < MIB
    finally:
        pa.set_memory_pool(outer)
    error = raised.value
    assert error.kind is ErrorKind.UNKNOWN_OUTCOME
    assert all(word in error.message for word in (*words_of_both(), f"bytes_max={9 * MIB}")), error.message
    assert "max_result_bytes" in error.hint
    [note] = notes
    assert "rows of server b at http://b:7411 are missing: the other process answers with more" in note


def test_the_answer_of_another_server_is_read_up_to_the_limit_of_the_statement() -> None:
    pieces: list[int] = []

    def body() -> Iterator[bytes]:
        while True:
            pieces.append(MIB)
            yield bytes(MIB)

    endless = httpx.Response(200, content=body(), headers={"content-type": MEDIA_TYPE})
    with pytest.raises(PeerAnswerTooLargeError, match=r"call=server/statement .*server=b"):
        peers_of(endless).run(
            NotHostedError(server="b"), "OPTIMIZE TABLE t", database="default", settings={"max_result_bytes": "1 MiB"}
        )
    assert sum(pieces) == BESIDE_ROWS_BYTES_MAX + 2 * MIB


def test_a_compressed_answer_names_the_server_and_what_to_do() -> None:
    content = msgspec.msgpack.encode({"rows": b"", "message": "", "notices": [], "rows_written": 0})
    headers = {"content-type": MEDIA_TYPE, "content-encoding": "gzip"}
    answer = httpx.Response(200, content=iter([content]), headers=headers)
    with pytest.raises(PeerAnswerUnreadableError, match=r"encoding=gzip server=b") as raised:
        peers_of(answer).run(NotHostedError(server="b"), "OPTIMIZE TABLE t", database="default", settings={})
    assert "a proxy between both" in raised.value.hint
