"""This server among the servers of its catalog: it sends heartbeats, watches the others, and knows what it hosts.

Covers: joining, renewing, draining, ending others that are gone, joining anew. Does not cover: what is done with a
table that comes or goes (ingest, maintenance), the records (tilth.catalog), the delivery of news (delivery.py).
Always holds: what is written each second does not depend on the number of tables or parts; heartbeats have a thread and
a connection of their own, which do nothing else; a server that others have declared gone hosts nothing until
it has joined anew; one server alone, whose store nobody else can open, writes nothing.

    joined --renewed in time--> joined          what it hosts: the placement over all that live and do not drain
      |--ended by another, or paused too long--> hosts nothing --joins anew--> joined, next epoch
      '--drained--> renews, hosts nothing        --stopped--> ended
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import FencedError, TilthError
from tilth.base.hybrid import milliseconds
from tilth.base.logs import Log
from tilth.catalog import (
    ALL_NEWS,
    Catalog,
    Joining,
    KeyValue,
    Placements,
    ServerNameTakenError,
    Servers,
    ServerVersionError,
)
from tilth.membership.delivery import Delivery
from tilth.membership.silence import SilenceWatch
from tilth.model.server import ServerRecord, host_of

#: Interval between polls of the others.
POLL_SECONDS = 0.25
#: Number of heartbeats in the time after which a silent server counts as gone.
HEARTBEATS = 6
#: A server whose liveness lock is free and that sent no heartbeat within this time is not waited for.
GONE_SECONDS = 1.0
#: Attempts to join of a process that others end before its first heartbeat.
JOIN_ATTEMPTS_MAX = 5
#: Interval at which everything is read again: news are hints that may be lost.
REREAD_SECONDS = 30.0
#: The same interval while news cannot be received.
DEAF_REREAD_SECONDS = 2.0

#: Reason why a server that has just joined hosts no tables.
STARTING = "it starts"
LEAVING = "it stops"


_log = Log("membership")


class Liveness(Protocol):
    """Lock of a process that ends with it, as fast as its connections: a hint, for what counts is the records."""

    @property
    def heartbeat_store(self) -> KeyValue:
        """The catalog's store over a connection that nothing but heartbeats uses."""

    @property
    def watch_store(self) -> KeyValue:
        """The catalog's store over a connection that nothing but the watch on the others uses."""

    def acquire(self, server: str) -> None:
        """Acquire the lock of the process with this id, unless it is held already."""

    def is_gone(self, server: str) -> bool:
        """Return whether the process surely has ended; False where that is not known."""

    def clock_offset(self) -> tuple[float, float] | None:
        """Return by how many milliseconds this machine's clock is ahead of the catalog's database, and how wrong that
        may be; None: not known.
        """

    def news(self) -> frozenset[str]:
        """Return the tables, by uuid, of which others have committed news since the last call; `*`: of any.

        Raises UnavailableError when news cannot be received.
        """

    def close(self) -> None:
        """Release the lock and close the connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """All servers, as one of them saw them at one time."""

    #: Id of this process.
    me: str
    servers: tuple[ServerRecord, ...]
    #: Name of the server assigned to a thing, which hosts it if it can.
    placements: Mapping[str, str] = field(default_factory=dict)

    def host_of(self, thing: str) -> ServerRecord | None:
        """Return the server that hosts the thing; None: no server does now."""
        hosts = {each.name: each for each in self.servers if not each.draining}
        ordered = self.placements.get(thing)
        name = ordered if ordered in hosts else host_of(thing, hosts)
        return None if name is None else hosts[name]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of what servers tolerate of one another, in seconds."""

    #: Maximum time without a heartbeat.
    gone_seconds: float
    #: Maximum skew of a server's clock from the database's.
    skew_seconds: float = 0.5


class Member:
    """The servers of the catalog as this one sees them. `join` and `start` first, `ready` when it can
    work, in the end `stop`."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        joining: Joining,
        *,
        bounds: Bounds,
        liveness: Liveness | None,
        on_change: Callable[[], None],
        on_news: Callable[[frozenset[str]], None] = lambda tables: None,
    ) -> None:
        """`liveness`: None where no other process can open the catalog's store. `on_change` is called when hosts may
        have changed; `on_news` with the tables, by uuid, of which somebody has committed news; `*`: of any.
        """
        self._clock = clock
        self._catalog = catalog
        self._joining = joining
        self._gone_seconds = bounds.gone_seconds
        self._skew_ms_max = bounds.skew_seconds * 1000
        self._liveness = liveness
        #: Repositories of servers and placements, each over the connection of the thread that uses it.
        self._servers = catalog.servers if liveness is None else Servers(clock, liveness.heartbeat_store)
        self._others = catalog.servers if liveness is None else Servers(clock, liveness.watch_store)
        self._placements = catalog.placements if liveness is None else Placements(clock, liveness.watch_store)
        self._delivery = Delivery(clock, on_change=on_change, on_news=on_news)
        self._watch = SilenceWatch()
        #: Guards the own record, which the thread renews and others drain.
        self._lock = threading.Lock()
        self._record: ServerRecord | None = None
        #: Guards `_now`: a server that was ended must not host tables again by what another thread has read before.
        self._now_lock = threading.Lock()
        self._now = Membership(me="", servers=())
        self._renewed_at = self._polled_at = self._reread_at = 0.0
        #: Reasons of the current failures, by the description of what fails.
        self._troubles: dict[str, str] = {}
        self._clock_fault = ""
        #: The history of the store in which this server has joined.
        self._history = catalog.incarnation
        self._is_starting = self._is_leaving = False
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(what, step), name=f"tilth-{name}", daemon=True)
            for name, what, step in (
                ("heartbeats", "it cannot send heartbeats", self.send_heartbeat),
                ("members", "it cannot see what other servers do and change", self.watch),
            )
        ]

    # --- queries ---

    def now(self) -> Membership:
        return self._now

    def hosts(self, thing: str) -> bool:
        """Return whether this server hosts the thing."""
        found = self._now
        host = found.host_of(thing)
        return host is not None and host.id == found.me

    @property
    def trouble(self) -> str:
        """The reason why this server cannot send heartbeats, or cannot see the others; empty: it can do both."""
        return "; ".join(f"{what}: {why}" for what, why in list(self._troubles.items()))

    # --- life ---

    def join(self) -> ServerRecord:
        """Become a server of the catalog. A former process of this name, and servers of a version that does not fit,
        are waited for as long as they may live.

        Raises ServerNameTakenError and ServerVersionError when these live, ConflictError (TOO_MANY_SERVERS).
        """
        if self._liveness is None:
            self._catalog.servers.end_all()
            self._catalog.clock_check.alone(milliseconds(self._catalog.transactions.newest_time()))
        for _ in range(JOIN_ATTEMPTS_MAX - 1):
            try:
                return self._join_and_renew()
            except FencedError as error:
                # Connecting may have taken longer than others wait for a heartbeat.
                _log.warning("server_ended_while_it_joined", server=self._joining.name, reason=error)
                self._forget()
        return self._join_and_renew()

    def start(self) -> None:
        """Start the threads that send heartbeats and watch the others."""
        if self._liveness is not None:
            for thread in self._threads:
                thread.start()
            self._delivery.start()

    def ready(self) -> None:
        """Host tables from now on: this server can run their services."""
        self._is_starting = False
        self._renew(self._with_draining)

    def leave(self) -> None:
        """Let others host the tables as soon as this server releases them: it stops."""
        self._is_leaving = True
        if self._liveness is not None:
            self._renew(self._with_draining)

    def announce(self, url: str) -> None:
        """Publish the URL of this server to the others."""
        # For the next epoch, too.
        self._joining = replace(self._joining, url=url)
        self._renew(lambda record: msgspec.structs.replace(record, url=url))

    def stop(self) -> None:
        """Leave the cluster: others may host its tables at once. Call it when none of their services runs any more."""
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._delivery.stop()
        with self._lock:
            record, self._record = self._record, None
        try:
            if record is not None:
                self._servers.end(record)
        except TilthError as error:
            # The others notice it without that, a little later.
            _log.warning("server_not_left", server=record and record.id, reason=error)
        if self._liveness is not None:
            self._liveness.close()

    # --- inside ---

    def _run(self, what: str, step: Callable[[], None]) -> None:
        while not self._clock.wait(self._stopping, POLL_SECONDS):
            try:
                step()
                self._troubles.pop(what, None)
            except TilthError as error:
                if str(error) != self._troubles.get(what):
                    _log.warning("membership_fails", what=what, reason=error)
                self._troubles[what] = str(error)
            # The outermost loop of a service: it goes on whatever happened.
            except BaseException as error:
                _log.error("members_failed", error=error)

    def step(self) -> None:
        """Send a heartbeat, watch and deliver once, as the three threads do. For tests; raises the first failure."""
        failures = []
        for part in (self.send_heartbeat, self.watch, self._delivery.deliver):
            try:
                part()
            except TilthError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def send_heartbeat(self) -> None:
        """Renew the own record when that is due; join anew after it was ended, or after the history of the store has
        changed.
        """
        self._follow_history()
        if self._clock.monotonic() - self._renewed_at >= self._gone_seconds / HEARTBEATS:
            try:
                self._renew(lambda record: self._with_draining(self._with_clock(record)))
            except FencedError as error:
                _log.warning("server_ended_by_others", server=self._now.me, reason=error)
                self._forget()
        if self._record is None:
            self._join_anew()

    def watch(self) -> None:
        """Read the other servers and the news of their commits. While that fails, every table counts as changed."""
        seconds = DEAF_REREAD_SECONDS
        try:
            self._refresh()
            if self._liveness is not None:
                self._delivery.add(self._liveness.news())
            seconds = REREAD_SECONDS
        finally:
            now = self._clock.monotonic()
            if now - self._reread_at >= seconds:
                self._reread_at = now
                self._delivery.add(frozenset({ALL_NEWS}))

    def _follow_history(self) -> None:
        """Join anew after the database has lost the end of its log, from which this server's knowledge may come."""
        history = self._catalog.incarnation
        if history == self._history:
            return
        _log.warning("history_changed", server=self._now.me, before=self._history, now=history)
        # Losses are recorded before the server's record ends: until then, no other server ends its transactions.
        self._catalog.transactions.find_lost(self._history)
        self._forget()
        own = self._servers.get(self._joining.name)
        if own is not None and own.lives and own.run == self._joining.run:
            self._servers.end(own)
        self._history = history

    def _join_anew(self) -> None:
        """Join under the next epoch. Raises as `join`, except that it waits for nobody: the next heartbeat retries."""
        try:
            self._adopt(self._servers.join(self._joining))
        except ServerVersionError as error:
            # This version must not overwrite what the other version has written.
            self._catalog.transactions.refuse(error)
            raise
        if isinstance(self._catalog.transactions.refusal, ServerVersionError):
            self._catalog.transactions.refuse(None)
        self._renew(self._with_draining)

    def _renew(self, step: Callable[[ServerRecord], ServerRecord]) -> None:
        """Write the own record, changed or not, which is the heartbeat."""
        with self._lock:
            if self._record is None:
                return
            began = self._clock.monotonic()
            self._record = self._servers.renew(step(self._record))
            self._renewed_at = began
            if self._liveness is not None:
                self._liveness.acquire(self._record.id)

    def _with_draining(self, record: ServerRecord) -> ServerRecord:
        """Return the record with the reason why this server hosts no tables; empty: it does."""
        drained = self._servers.drains().get(record.name)
        requested = "" if drained is None else f"ALTER SERVER .. DRAIN{': ' if drained else ''}{drained}"
        own = LEAVING if self._is_leaving else STARTING if self._is_starting else self._clock_fault
        return msgspec.structs.replace(record, draining=own or requested)

    def _with_clock(self, record: ServerRecord) -> ServerRecord:
        """Compare the clock with the database's: while it is too wrong, this server drains and commits nothing."""
        measured = None if self._liveness is None else self._liveness.clock_offset()
        if measured is None:
            return record
        offset, doubt = measured
        check = self._catalog.clock_check
        if check.compare(offset, doubt_ms=doubt, bound_ms=self._skew_ms_max) is not None:
            where = "ahead of" if offset > 0 else "behind"
            self._clock_fault = f"its clock is wrong: {abs(offset) / 1000:.1f} s {where} the catalog's database"
            _log.warning("clock_is_wrong", server=record.id, offset_ms=round(offset))
        elif self._clock_fault:
            # The times of the wrong clock are dropped: no commit has used them.
            self._catalog.transactions.follow_clock()
            self._clock_fault = ""
        return msgspec.structs.replace(record, clock_offset_ms=round(offset, 1))

    def _adopt(self, record: ServerRecord) -> None:
        with self._lock:
            self._record, self._renewed_at = record, self._clock.monotonic()
        self._catalog.serve_as(record)
        if self._liveness is not None:
            self._liveness.acquire(record.id)
        _log.info("server_joined", server=record.id, number=record.number)

    def _forget(self) -> None:
        """Host nothing: others may hold by now what this process held."""
        with self._lock:
            self._record = None
        with self._now_lock:
            self._now = Membership(me="", servers=self._now.servers)
        self._delivery.add(has_changed=True)

    def _refresh(self) -> None:
        records = self._others.all()
        polled, self._polled_at = self._polled_at, self._clock.monotonic()
        if self._polled_at - polled > GONE_SECONDS:
            # This process stood still itself: what it has not seen proves nothing.
            self._watch = SilenceWatch()
        silent = self._watch.silent_seconds(records, self._clock.monotonic())
        gone = [each for each in records if each.lives and self._is_gone(each, silent[each.id])]
        for record in gone:
            if self._others.end(record):
                _log.warning("server_gone", server=record.id, silent_seconds=round(silent[record.id], 2))
        ended = {each.id for each in gone}
        servers = tuple(each for each in records if each.lives and each.id not in ended)
        placements = {} if self._liveness is None else {each.thing: each.server for each in self._placements.all()}
        with self._now_lock:
            own = self._record
            found = Membership(me="" if own is None else own.id, servers=servers, placements=placements)
            has_changed = _who(found) != _who(self._now)
            self._now = found
        if has_changed:
            _log.info("servers_changed", servers=[each.id for each in servers], me=found.me)
            # A server that is gone may have committed something without announcing it.
            self._delivery.add(frozenset({ALL_NEWS}), has_changed=True)

    def _is_gone(self, record: ServerRecord, silent: float) -> bool:
        own = self._record
        if own is not None and record.id == own.id:
            return False
        if silent > self._gone_seconds:
            return True
        return silent > GONE_SECONDS and self._liveness is not None and self._liveness.is_gone(record.id)

    def _join_and_renew(self) -> ServerRecord:
        """Join, and send the first heartbeat. Raises FencedError when the server was ended before it."""
        record = self._join_when_free()
        self._adopt(record)
        self._refresh()
        # Others, if there are any, host its tables until it can run something.
        self._is_starting = len(self._now.servers) > 1
        self._renew(lambda record: self._with_draining(self._with_clock(record)))
        return record

    def _join_when_free(self) -> ServerRecord:
        while True:
            try:
                return self._servers.join(self._joining)
            except (ServerNameTakenError, ServerVersionError) as error:
                other = error.facts["server"]
            if self._observe(other):
                # Raises with its current address, unless it has left meanwhile.
                return self._servers.join(self._joining)

    def _observe(self, name: str) -> bool:
        """Observe the process that has the name: return True once it has sent a heartbeat, False once it has ended."""
        watch, first = SilenceWatch(), self._servers.get(name)
        while first is not None and first.lives:
            record = self._servers.get(name)
            if record is None or not record.lives:
                return False
            if record.renewed_ms != first.renewed_ms:
                return True
            silent = watch.silent_seconds([record], self._clock.monotonic())[record.id]
            if self._is_gone(record, silent):
                self._servers.end(record)
                return False
            self._clock.wait(self._stopping, POLL_SECONDS)
        return False


def _who(found: Membership) -> tuple[str, frozenset[tuple[str, str, str]], Mapping[str, str]]:
    return found.me, frozenset((each.id, each.url, each.draining) for each in found.servers), found.placements
