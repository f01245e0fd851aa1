"""Renewal of the leases of an attached session, by a thread of the driver.

Always holds: a lease is renewed while its snapshot was used a while ago or the session runs jobs, then released; all
are released when the driver ends, and those of a driver that was killed expire by themselves on the server.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from tilth.base.clock import Clock
from tilth.base.errors import FencedError, NotFoundError, TilthError
from tilth.base.logs import Log
from tilth.datasource.attachment import Attachment, HeldLease, HeldWrite

#: Interval of renewals: a third of the time after which the server gives a reader up, or less. A write is renewed after
#: a quarter of the time after which the server aborts it, if that is sooner.
RENEW_SECONDS = 20.0
#: Interval at which new leases are found.
TURN_SECONDS = 5.0
#: Time for which an open write is renewed: longer than any batch of a stream, and than most jobs.
WRITE_SECONDS_MAX = 86_400.0
#: Maximum delay at the end of the process for each server.
RELEASE_SECONDS_MAX = 2.0

_log = Log("datasource")


class LeaseCalls(Protocol):
    """A connection that renews leases."""

    def renew(self, lease_id: str) -> None: ...

    def unpin(self, lease_id: str) -> None: ...

    def renew_write(self, write_id: str) -> None: ...

    def abort_write(self, write_id: str, reason: str) -> None: ...

    def close(self) -> None: ...


class LeaseKeeper:
    """Renews what the attachment holds. Close it."""

    def __init__(
        self,
        clock: Clock,
        attachment: Attachment,
        *,
        is_busy: Callable[[], bool],
        connect: Callable[[str], LeaseCalls],
    ) -> None:
        """`is_busy`: whether the session runs a job, which may read any of the snapshots; `connect`: to an address."""
        self._clock = clock
        self._attachment = attachment
        self._is_busy = is_busy
        self._connect = connect
        self._renewed: dict[str, float] = {}
        self._connections: dict[str, LeaseCalls] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._closing = threading.Lock()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="tilth-attached", daemon=True)
        self._thread.start()
        # Before the interpreter ends; the thread itself would not live long enough.
        atexit.register(self.close)

    def turn(self) -> None:
        """Renew what is due, release what was not used for long. Once; the thread calls it."""
        now = self._clock.now_ms() / 1000
        is_busy: bool | None = None
        held = self._attachment.held()
        for lease, used in held:
            if now - used > lease.seconds:
                is_busy = self._is_busy() if is_busy is None else is_busy
                if not is_busy:
                    self._release(lease)
                    continue
            # A new lease lives for minutes.
            if now - self._renewed.setdefault(lease.id, now) >= RENEW_SECONDS:
                self._renew(lease, now)
        writes = self._attachment.writes()
        if writes and (self._is_busy() if is_busy is None else is_busy):
            self._renew_writes(writes, now)
        for gone in self._renewed.keys() - {lease.id for lease, _ in held} - {write.id for write, _ in writes}:
            del self._renewed[gone]

    def close(self) -> None:
        """Release everything and end the attachment; a second time does nothing."""
        with self._closing:
            if self._stopping.is_set():
                return
            self._stopping.set()
        atexit.unregister(self.close)
        if self._thread is not None:
            self._thread.join(RELEASE_SECONDS_MAX)
        away: set[str] = set()
        for lease, _ in self._attachment.held():
            if lease.url not in away and not self._release(lease):
                # Each further call would wait as long; leases end by themselves.
                away.add(lease.url)
        for write, _ in self._attachment.writes():
            if write.url not in away and not self._abort(write):
                away.add(write.url)
        for connection in self._connections.values():
            connection.close()
        self._attachment.remove()

    def _run(self) -> None:
        while not self._clock.wait(self._stopping, TURN_SECONDS):
            try:
                self.turn()
            except Exception as error:
                # The JVM may be gone, the disk full: what is held is renewed again at the next turn.
                _log.warning("readers_not_renewed", reason=error)

    def _renew(self, lease: HeldLease, now: float) -> None:
        try:
            self._connection(lease.url).renew(lease.id)
            self._renewed[lease.id] = now
        except TilthError as error:
            _log.warning("reader_lease_lost", lease=lease.id, table=lease.table, reason=error)
            if _has_ended(error):
                # A read of it names the reason; a server that is away may come back in time.
                self._attachment.forget(lease.id)

    def _renew_writes(self, writes: Sequence[tuple[HeldWrite, float]], now: float) -> None:
        """Renew the writes of running jobs; one that nobody ends is left to the server after a day."""
        for write, begun in writes:
            if now - begun > WRITE_SECONDS_MAX:
                self._attachment.forget_write(write.txn)
            elif now - self._renewed.setdefault(write.id, begun) >= min(RENEW_SECONDS, write.silence_seconds / 4):
                try:
                    self._connection(write.url).renew_write(write.id)
                    self._renewed[write.id] = now
                except TilthError as error:
                    # Its commit says why it has ended.
                    _log.warning("write_not_renewed", cause_id=str(write.txn), table=write.table, reason=error)

    def _abort(self, write: HeldWrite) -> bool:
        """Return `False` if the server did not answer."""
        self._attachment.forget_write(write.txn)
        try:
            self._connection(write.url).abort_write(write.id, "the session was closed")
        except TilthError as error:
            _log.warning("write_left", cause_id=str(write.txn), table=write.table, reason=error)
            return False
        return True

    def _release(self, lease: HeldLease) -> bool:
        """Return `False` if the server did not answer."""
        self._attachment.forget(lease.id)
        try:
            self._connection(lease.url).unpin(lease.id)
        except TilthError as error:
            # It ends by itself when it is not renewed.
            _log.warning("reader_lease_left", lease=lease.id, table=lease.table, reason=error)
            return False
        return True

    def _connection(self, url: str) -> LeaseCalls:
        if url not in self._connections:
            self._connections[url] = self._connect(url)
        return self._connections[url]


def _has_ended(error: TilthError) -> bool:
    """True if the server said that the lease is no more."""
    return error.kind in (NotFoundError.kind, FencedError.kind)
