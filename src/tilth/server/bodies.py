"""Bodies of requests: small ones as a whole, large ones piece by piece while they come in.

Covers: limits, compressed bodies, a client that leaves. Does not cover: what becomes of a body (statements/inserts).
Always holds: of a large body a few pieces are in memory; the client sends no faster than its pieces are consumed; what
is known to be too large is refused before it is read.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import anyio
import anyio.from_thread
import pyarrow as pa
from starlette.requests import ClientDisconnect, Request

from tilth.base.pressure import MemoryShare
from tilth.base.units import MIB
from tilth.control.running import Origin
from tilth.server.errors import BodyTooLargeError
from tilth.warehouse.remote.errors import BadBodyError

#: A thread gets pieces of about this size.
PIECE_BYTES = 1 * MIB
#: Interval at which a thread that waits for a piece checks whether its statement was cancelled.
POLL_SECONDS = 0.25
#: Ways in which bodies may be compressed, and no other value of `Content-Encoding`.
_ENCODINGS = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """Limits of a request's body."""

    #: Largest body that is held in memory.
    held_max: int
    #: A larger body is streamed; 0: it is refused.
    streamed_from: int = 0
    #: Largest body that is streamed.
    streamed_max: int = 0


class ReceivedBody:
    """A body of which the beginning is there; a thread consumes the rest piece by piece."""

    def __init__(self, request: Request, origin: Origin, begin: bytes, *, is_whole: bool) -> None:
        self._request = request
        self._origin = origin
        self.begin = begin
        self.is_whole = is_whole
        #: Set when nothing more of the body comes.
        self.over = anyio.Event()
        if is_whole:
            self.over.set()

    def pieces(self) -> Iterator[bytes]:
        """Yield the body, on a thread of a statement. Raises why the statement was cancelled."""
        begin, self.begin = self.begin, b""
        yield begin
        del begin
        while not self.is_whole:
            piece = anyio.from_thread.run(self._receive)
            self._origin.cancellation.raise_if_cancelled()
            if piece:
                yield piece

    def unpacked(self, encoding: str) -> Iterator[bytes]:
        """Yield the body as it was before it was compressed. Raises BadBodyError."""
        if not encoding:
            yield from self.pieces()
            return
        try:
            with pa.CompressedInputStream(pa.PythonFile(_Source(self.pieces()), mode="r"), encoding) as source:
                while piece := source.read(PIECE_BYTES):
                    yield piece
        except OSError as error:
            raise BadBodyError("the body is not what its Content-Encoding says", reason=error) from error

    async def _receive(self) -> bytes:
        """Return the bytes that arrive within POLL_SECONDS, about a piece at most."""
        piece = bytearray()
        with anyio.move_on_after(POLL_SECONDS):
            while not self.is_whole and len(piece) < PIECE_BYTES:
                message = await self._request.receive()
                if message["type"] == "http.disconnect":
                    self._origin.cancel("its client, which closed the connection")
                    self._end()
                    break
                piece += message.get("body", b"")
                if not message.get("more_body", False):
                    self._end()
        return bytes(piece)

    def _end(self) -> None:
        self.is_whole = True
        self.over.set()


class _Source(io.RawIOBase):
    """Pieces as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return up to so many bytes; none at the end."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._left = memoryview(piece)
        taken = len(self._left) if size < 0 else size
        found = bytes(self._left[:taken])
        self._left = self._left[taken:]
        return found


async def receive(request: Request, origin: Origin, share: MemoryShare, limits: BodyLimits) -> ReceivedBody:
    """Receive a body, a large one up to the size from which on it is streamed.

    Raises BodyTooLargeError, as soon as it is known to be too large, MemoryPressureError and ClientDisconnect.
    """
    length = request.headers.get("content-length", "0")
    size = int(length) if length.isdecimal() else 0
    largest = max(limits.held_max, limits.streamed_max) if limits.streamed_from else limits.held_max
    if size > largest:
        raise too_large(size, largest)
    held_max = min(limits.held_max, limits.streamed_from or limits.held_max)
    share.grow_to(min(size, held_max))
    begin = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        begin += message.get("body", b"")
        share.grow_to(len(begin))
        is_whole = not message.get("more_body", False)
        if len(begin) > limits.held_max and not 0 < limits.streamed_from <= limits.held_max:
            raise too_large(len(begin), limits.held_max)
        if is_whole or (limits.streamed_from and len(begin) > limits.streamed_from):
            return ReceivedBody(request, origin, bytes(begin), is_whole=is_whole)


async def receive_rest(request: Request, body: ReceivedBody, share: MemoryShare, held_max: int) -> bytes:
    """Return a body as a whole, of which the beginning is there. Raises as `receive`."""
    held = bytearray(body.begin)
    while not body.is_whole:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        held += message.get("body", b"")
        if len(held) > held_max:
            raise too_large(len(held), held_max)
        share.grow_to(len(held))
        if not message.get("more_body", False):
            break
    return bytes(held)


def first_pieces(pieces: Iterator[bytes], size: int, grow: Callable[[int], None]) -> tuple[bytes, bool]:
    """Return the first pieces, up to the one that exceeds `size` bytes, and whether these are all. `grow` gets the size
    before it is reached.
    """
    held = bytearray()
    for piece in pieces:
        grow(len(held) + len(piece))
        held += piece
        if len(held) > size:
            return bytes(held), False
    return bytes(held), True


def without_begin(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the pieces without so many bytes of the first one."""
    for piece in pieces:
        yield piece[size:]
        size = 0


def encoding_of(request: Request) -> str:
    """Return how the body is compressed, as Arrow names it; empty: it is not. Raises BadBodyError."""
    name = request.headers.get("content-encoding", "").strip().lower()
    if name in ("", "identity"):
        return ""
    if name not in _ENCODINGS:
        raise BadBodyError("this Content-Encoding is not supported", encoding=name, hint="send gzip, zstd or neither")
    return _ENCODINGS[name]


def too_large(size: int, limit: int) -> BodyTooLargeError:
    hint = "send it in pieces, or raise the node's setting server.body-max"
    return BodyTooLargeError(bytes=size, allowed=limit, hint=hint)
