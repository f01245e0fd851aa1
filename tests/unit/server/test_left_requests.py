"""Requests that are cancelled while the threads of their statements go on, as when the server stops.

Modules: server/app.py, server/streaming.py, server/threads.py, base/pressure.py.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import repeat

import httpx
import pytest

from tests.unit.fake_rooms import ONE, FakeRooms, context_of
from tilth.base.errors import TilthError
from tilth.control.running import Origin
from tilth.query.results.answer import Answer
from tilth.query.results.stream import RowStream
from tilth.server import ServerSettings, build_app
from tilth.server.app import FREE_BODY_BYTES

SECONDS_MAX = 30.0
BODY = b"SELECT 1".ljust(FREE_BODY_BYTES + 1)
#: Memory for one of these bodies, not for two.
SETTINGS = ServerSettings(insert_memory=2 * len(BODY) - 1)


@dataclass
class SlowRooms(FakeRooms):
    """The first statement waits, and has rows without end."""

    has_begun: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)
    is_closed: threading.Event = field(default_factory=threading.Event)
    #: Reasons with which the rows were closed.
    reasons: list[TilthError | None] = field(default_factory=list)

    def run(
        self, text: str, *, database: str, settings: Mapping[str, str], origin: Origin, streams: bool = False
    ) -> Answer:
        if self.has_begun.is_set():
            return self.answer
        self.has_begun.set()
        assert self.may_end.wait(SECONDS_MAX)
        rows = RowStream(ONE.schema, repeat(ONE.to_batches()[0]), self._close)
        return Answer(query_id="q", columns=[], table=ONE.slice(0, 0), stream=rows)

    def _close(self, rows: int, size: int, error: TilthError | None) -> None:
        self.reasons.append(error)
        self.is_closed.set()


@pytest.mark.parametrize("is_over_first", [False, True])
def test_a_statement_whose_request_is_cancelled_keeps_its_memory_and_closes_its_rows(*, is_over_first: bool) -> None:
    rooms = SlowRooms()
    app = build_app(context_of(rooms, SETTINGS))

    async def run() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://tilth.test") as client:
            left = asyncio.ensure_future(client.post("/v1/sql", content=BODY))
            assert await asyncio.to_thread(rooms.has_begun.wait, SECONDS_MAX)
            if is_over_first:
                # The loop does nothing meanwhile.
                rooms.may_end.set()
            left.cancel()
            with pytest.raises(asyncio.CancelledError):
                await left
            if not is_over_first:
                refused = await client.post("/v1/sql", content=BODY)
                assert (refused.status_code, refused.json()["error"]["code"]) == (503, "MEMORY_PRESSURE")
                assert not rooms.is_closed.is_set()
            rooms.may_end.set()
            assert await asyncio.to_thread(rooms.is_closed.wait, SECONDS_MAX)
            assert [type(reason) for reason in rooms.reasons] == [TilthError]
            assert (await client.post("/v1/sql", content=BODY)).status_code == 200

    asyncio.run(run())
