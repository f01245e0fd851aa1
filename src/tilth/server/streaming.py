"""An answer whose rows are still being computed while the first ones are sent.

Covers: sending, a client that leaves or does not read, errors on the way. Does not cover: the rows' form
(formats/format.py).
Always holds: rows are requested when the client has received the ones before; the body has its proper end only when all
rows were sent, so that an error on the way is an error for every client of HTTP; the stream of rows is closed.

Tests: tests/unit/server/test_app.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import anyio
import anyio.to_thread
from anyio import CancelScope, CapacityLimiter
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.control.running import Origin
from tilth.query.results.stream import RowStream

#: Interval of checks whether a statement was cancelled while its client does not read.
POLL_SECONDS = 0.5

_log = Log("server")
# The engine bounds how many statements there are.
_threads = CapacityLimiter(math.inf)


class RowsResponse(StreamingResponse):
    """Sends pieces as they come."""

    def __init__(
        self,
        first: bytes,
        pieces: Iterator[bytes],
        stream: RowStream,
        origin: Origin,
        *,
        media_type: str,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__((), media_type=media_type, headers=headers)
        self._first = first
        self._pieces = pieces
        self._stream = stream
        self._origin = origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch, receive, group.cancel_scope)
                await self._send(send)
                group.cancel_scope.cancel()
        finally:
            with CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.close, limiter=_threads)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        piece: bytes | None = self._first
        while piece is not None:
            if piece:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            try:
                piece = await anyio.to_thread.run_sync(next, self._pieces, None, limiter=_threads)
            except Exception as error:
                # Without its end, the server closes the connection.
                _log.warning("answer_broken_off", cause_id=self._query_id, reason=error)
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, receive: Receive, scope: CancelScope) -> None:
        """End the sending when the client has left, or when the statement was cancelled while the client sleeps."""
        while self._origin.cancellation.error is None:
            with anyio.move_on_after(POLL_SECONDS):
                if (await receive())["type"] == "http.disconnect":
                    self._origin.cancel("its client, which closed the connection")
        # The thread that waits for rows sees it first, and breaks the answer off with its reason.
        await anyio.sleep(POLL_SECONDS)
        scope.cancel()

    def close(self) -> None:
        """End the rows, unless they have ended. It waits for the thread that computes them, so an event loop must not
        call it.
        """
        error = self._origin.cancellation.error
        self._stream.close(error or TilthError("the answer was broken off"))

    @property
    def _query_id(self) -> str:
        return self.headers.get("X-Tilth-Query-Id", "")


def drop_answer(answer: Response) -> None:
    """Close an answer that nobody sends."""
    if isinstance(answer, RowsResponse):
        answer.close()
