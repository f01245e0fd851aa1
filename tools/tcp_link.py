"""A network cable in front of a server of one's own: it passes every byte, until it is cut or swallows what it gets.

    with TcpLink() as link:
        link.connect(port)          whoever connects to link.port reaches that port of this machine
        link.cut()                  connections end, new ones end at once
        link.swallow()              connections stay, nothing passes, as on a way that loses all packets
        link.swallow(Way.BACK)      requests arrive, answers do not
        link.delay(0.3)             every piece arrives this many seconds later
        link.mend()

Covers: TCP on loopback, any protocol. Does not cover: single requests and answers (kafka_proxy.py, http_proxy.py).
Always holds: bytes arrive unchanged and in order, or not at all; what was swallowed arrives when the link is mended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Self

from tools.broker import free_port

HOST = "127.0.0.1"
PIECE_BYTES = 1 << 16
END_SECONDS_MAX = 10.0


class Way(Enum):
    """One of the two directions of a link."""

    #: Direction from the clients to the server behind the link.
    THERE = "there"
    BACK = "back"


class TcpLink:
    """One link, which listens on `port`; a thread of its own passes the bytes on."""

    def __init__(self, host: str = HOST) -> None:
        """`host`: address of this machine on which the link listens."""
        self.host = host
        self.port = free_port()
        self._target = (HOST, 0)
        self._is_cut = False
        self._loop = asyncio.new_event_loop()
        #: Set while bytes pass.
        self._passes = {way: asyncio.Event() for way in Way}
        self._delay_seconds = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"link-{self.port}", daemon=True)
        self._thread.start()
        if not self._is_listening.wait(END_SECONDS_MAX):
            raise RuntimeError("the link does not listen")

    def connect(self, port: int, host: str = HOST) -> None:
        """Lead new connections to this port from now on."""
        self._target = (host, port)

    def cut(self) -> None:
        """End all connections, and new ones at once."""
        self._do(self._cut)

    def swallow(self, *ways: Way) -> None:
        """Hold back all bytes, in these directions or in both, and keep connections open."""

        def clear() -> None:
            for way in ways or Way:
                self._passes[way].clear()

        self._do(clear)

    def delay(self, seconds: float) -> None:
        """Pass every piece on this many seconds later."""
        self._delay_seconds = seconds

    def mend(self) -> None:
        self._is_cut, self._delay_seconds = False, 0.0
        self._do(self._open)

    def close(self) -> None:
        """End all connections and the thread."""
        self._do(self._cut)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(END_SECONDS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # --- in the link's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._open()
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, self.host, self.port))
        self._is_listening.set()
        self._loop.run_forever()
        server.close()
        # Connections are closed; tasks that wait for a mended link go on, find that, and end.
        self._open()
        if tasks := asyncio.all_tasks(self._loop):
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=END_SECONDS_MAX / 2))
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _do(self, act: Callable[[], None]) -> None:
        """Return when it is done."""
        is_done = threading.Event()

        def run() -> None:
            act()
            is_done.set()

        self._loop.call_soon_threadsafe(run)
        is_done.wait(END_SECONDS_MAX)

    def _open(self) -> None:
        for passes in self._passes.values():
            passes.set()

    def _cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passes[Way.THERE].wait()
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            remote_reader, remote_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, remote_writer}
        self._writers |= both
        try:
            await asyncio.gather(
                self._pass(reader, remote_writer, Way.THERE), self._pass(remote_reader, writer, Way.BACK)
            )
        finally:
            self._writers -= both
            for each in both:
                each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
        """Pass on what comes until its end, which is passed on too."""
        passes = self._passes[way]
        try:
            while piece := await reader.read(PIECE_BYTES):
                if self._delay_seconds:
                    await asyncio.sleep(self._delay_seconds)
                await passes.wait()
                writer.write(piece)
                await writer.drain()
            await passes.wait()
            with suppress(OSError):
                writer.write_eof()
        except OSError:
            # The other half of a connection that was reset ends in the same way.
            writer.transport.abort()
