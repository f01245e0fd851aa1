"""This server among the servers of its catalog: it proves that it lives, watches the others, and knows what it hosts.

Covers: joining, renewing, draining, ending others that are gone, joining anew. Does not cover: what is done with a
table that comes or goes (ingest, maintenance), the records (tilth.catalog).
Always holds: what is written each second does not depend on the number of tables or parts; a server that others took
to be gone hosts nothing until it has joined anew; one server alone, whose store nobody else can open, writes nothing.

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
from tilth.catalog import Catalog, Joining, ServerNameTakenError, ServerVersionError
from tilth.membership.watch import Watch
from tilth.model.server import ServerRecord, host_of

#: Between two looks at the others.
LOOK_SECONDS = 0.25
#: A server proves that it lives this many times in the time after which it is taken to be gone.
PROOFS = 6
#: A server whose presence is gone, and that did not prove within this that it lives, is not waited for.
GONE_SECONDS = 1.0

#: Why a server that has just joined takes no tables.
STARTING = "it starts"
LEAVING = "it stops"


_log = Log("membership")


class Presence(Protocol):
    """Sign of a process that ends with it, as fast as its connections: a hint, for what counts is the records."""

    def show(self, server: str) -> None:
        """Let others see that the process with this id is there; called again and again."""

    def is_gone(self, server: str) -> bool:
        """Return whether it surely is not; False where that is not known."""

    def clock_offset(self) -> tuple[float, float] | None:
        """Return by how many milliseconds this machine's clock is ahead of the catalog's database, and how wrong that
        may be; None: not known.
        """

    def news(self) -> frozenset[str]:
        """Return the tables, by uuid, of which others have committed news since the last call; `*`: of any."""

    def hide(self) -> None:
        """Let it not be seen any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """All servers, as one of them has seen them at one moment."""

    #: Id of this process.
    me: str
    servers: tuple[ServerRecord, ...]
    #: By thing: the name of the server that hosts it by order, if it can.
    placed: Mapping[str, str] = field(default_factory=dict)

    def host_of(self, thing: str) -> ServerRecord | None:
        """Return the server that hosts the thing; None: no server does now."""
        hosts = {each.name: each for each in self.servers if not each.draining}
        ordered = self.placed.get(thing)
        name = ordered if ordered in hosts else host_of(thing, hosts)
        return None if name is None else hosts[name]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of what servers bear of one another, in seconds."""

    #: Without a proof of life.
    gone_seconds: float
    #: Between a server's clock and the database's.
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
        presence: Presence | None,
        changed: Callable[[], None],
        heard: Callable[[frozenset[str]], None] = lambda tables: None,
    ) -> None:
        """`presence`: None where no other process can open the catalog's store. `changed` is called when hosts may
        have changed; `heard` with the tables, by uuid, of which somebody has committed news; `*`: of any.
        """
        self._clock = clock
        self._catalog = catalog
        self._joining = joining
        self._gone_seconds = bounds.gone_seconds
        self._skew_ms_max = bounds.skew_seconds * 1000
        self._presence = presence
        #: News that nobody has taken in yet.
        self._unheard = frozenset[str]()
        self._changed = changed
        self._heard = heard
        self._watch = Watch()
        #: Guards the own record, which the thread renews and others drain.
        self._lock = threading.Lock()
        self._record: ServerRecord | None = None
        self._now = Membership(me="", servers=())
        self._proved_at = self._looked_at = 0.0
        self._trouble = self._clock_fault = ""
        self._is_starting = self._is_leaving = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tilth-members", daemon=True)

    # --- what others ask ---

    def now(self) -> Membership:
        return self._now

    def hosts(self, thing: str) -> bool:
        """Return whether this server hosts the thing."""
        found = self._now
        host = found.host_of(thing)
        return host is not None and host.id == found.me

    @property
    def trouble(self) -> str:
        """The reason why this server cannot prove that it lives; empty: it can."""
        return self._trouble

    # --- life ---

    def join(self) -> ServerRecord:
        """Become a server of the catalog. A former process of this name, and servers of a version that does not fit,
        are waited for as long as they may live.

        Raises ServerNameTakenError and ServerVersionError when these live, TooManyServersError.
        """
        if self._presence is None:
            self._catalog.servers.end_all()
            self._catalog.clock_check.alone(milliseconds(self._catalog.transactions.newest_time()))
        record = self._joined()
        self._take(record)
        self._look()
        # Others, if there are any, host its tables until it can run something.
        self._is_starting = len(self._now.servers) > 1
        self._say(lambda record: self._with_draining(self._with_clock(record)))
        return record

    def start(self) -> None:
        """Go on proving that this server lives."""
        if self._presence is not None:
            self._thread.start()

    def ready(self) -> None:
        """Take tables from now on: this server can run their services."""
        self._is_starting = False
        self._say(self._with_draining)

    def leave(self) -> None:
        """Let others have the tables as soon as this server lets go of them: it stops."""
        self._is_leaving = True
        if self._presence is not None:
            self._say(self._with_draining)

    def announce(self, url: str) -> None:
        """Let the others know where the door is."""
        # For the next epoch, too.
        self._joining = replace(self._joining, url=url)
        self._say(lambda record: msgspec.structs.replace(record, url=url))

    def stop(self) -> None:
        """Leave the others: what this one hosted is theirs at once. Call it when nothing of that runs any more."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        with self._lock:
            record, self._record = self._record, None
        try:
            if record is not None:
                self._catalog.servers.end(record)
        except TilthError as error:
            # The others see it by themselves, a little later.
            _log.warning("server_not_left", server=record and record.id, reason=error)
        if self._presence is not None:
            self._presence.hide()

    # --- inside ---

    def _run(self) -> None:
        while not self._clock.wait(self._stopping, LOOK_SECONDS):
            try:
                self.step()
                self._trouble = ""
            except TilthError as error:
                if str(error) != self._trouble:
                    _log.warning("server_not_proved", reason=error)
                self._trouble = str(error)
            # The outermost loop of a service: it goes on whatever happened.
            except Exception as error:
                _log.error("members_failed", error=error)

    def step(self) -> None:
        """Prove that this server lives where that is due, and look at the others. The thread calls it; tests may."""
        if self._clock.monotonic() - self._proved_at >= self._gone_seconds / PROOFS:
            try:
                self._say(lambda record: self._with_draining(self._with_clock(record)))
            except FencedError as error:
                _log.warning("server_ended_by_others", server=self._now.me, reason=error)
                self._forget()
        if self._record is None:
            self._join_anew()
        self._look()
        if self._presence is not None:
            self._unheard |= self._presence.news()
        if self._unheard:
            # Kept until it has been taken in.
            self._heard(self._unheard)
            self._unheard = frozenset()

    def _join_anew(self) -> None:
        """Join under the next epoch. Raises as `join`, except that nobody is waited for: it is tried again."""
        try:
            self._take(self._catalog.servers.join(self._joining))
        except ServerVersionError as error:
            # What the other version has written is not to be written anew by this one.
            self._catalog.transactions.refuse(error)
            # The other one may be gone.
            self._look()
            raise
        if isinstance(self._catalog.transactions.refusal, ServerVersionError):
            self._catalog.transactions.refuse(None)
        self._say(self._with_draining)

    def _say(self, step: Callable[[ServerRecord], ServerRecord]) -> None:
        """Write the own record, changed or not, which proves that the server lives."""
        with self._lock:
            if self._record is None:
                return
            proved = self._clock.monotonic()
            self._record = self._catalog.servers.renew(step(self._record))
            self._proved_at = proved
            if self._presence is not None:
                self._presence.show(self._record.id)

    def _with_draining(self, record: ServerRecord) -> ServerRecord:
        """Say whether this server hosts tables, and why not."""
        drained = self._catalog.servers.drains().get(record.name)
        asked = "" if drained is None else f"ALTER SERVER .. DRAIN{': ' if drained else ''}{drained}"
        own = LEAVING if self._is_leaving else STARTING if self._is_starting else self._clock_fault
        return msgspec.structs.replace(record, draining=own or asked)

    def _with_clock(self, record: ServerRecord) -> ServerRecord:
        """Compare the clock with the database's: this server drains while it is too wrong, and commits nothing."""
        measured = None if self._presence is None else self._presence.clock_offset()
        if measured is None:
            return record
        offset, doubt = measured
        check = self._catalog.clock_check
        if check.compared(offset, doubt_ms=doubt, bound_ms=self._skew_ms_max) is not None:
            where = "ahead of" if offset > 0 else "behind"
            self._clock_fault = f"its clock is wrong: {abs(offset) / 1000:.1f} s {where} the catalog's database"
            _log.warning("clock_is_wrong", server=record.id, offset_ms=round(offset))
        elif self._clock_fault:
            # Times of the wrong clock are forgotten: none of them was used.
            self._catalog.transactions.follow_clock()
            self._clock_fault = ""
        return msgspec.structs.replace(record, clock_offset_ms=round(offset, 1))

    def _take(self, record: ServerRecord) -> None:
        with self._lock:
            self._record, self._proved_at = record, self._clock.monotonic()
        self._catalog.serve_as(record)
        if self._presence is not None:
            self._presence.show(record.id)
        _log.info("server_joined", server=record.id, number=record.number)

    def _forget(self) -> None:
        """Host nothing: what this process held may be others' by now."""
        with self._lock:
            self._record = None
        self._now = Membership(me="", servers=self._now.servers)
        self._changed()

    def _look(self) -> None:
        records, own = self._catalog.servers.all(), self._record
        looked, self._looked_at = self._looked_at, self._clock.monotonic()
        if self._looked_at - looked > GONE_SECONDS:
            # This process stood still itself: what it has not seen is no sign of anything.
            self._watch = Watch()
        silent = self._watch.silent_seconds(records, self._clock.monotonic())
        gone = [each for each in records if each.lives and self._is_gone(each, silent[each.id])]
        for record in gone:
            if self._catalog.servers.end(record):
                _log.warning("server_gone", server=record.id, silent_seconds=round(silent[record.id], 2))
        ended = {each.id for each in gone}
        servers = tuple(each for each in records if each.lives and each.id not in ended)
        placed = {} if self._presence is None else {each.thing: each.server for each in self._catalog.placements.all()}
        found = Membership(me="" if own is None else own.id, servers=servers, placed=placed)
        has_changed = _who(found) != _who(self._now)
        self._now = found
        if has_changed:
            _log.info("servers_changed", servers=[each.id for each in servers], me=found.me)
            self._changed()

    def _is_gone(self, record: ServerRecord, silent: float) -> bool:
        own = self._record
        if own is not None and record.id == own.id:
            return False
        if silent > self._gone_seconds:
            return True
        return silent > GONE_SECONDS and self._presence is not None and self._presence.is_gone(record.id)

    def _joined(self) -> ServerRecord:
        while True:
            try:
                return self._catalog.servers.join(self._joining)
            except (ServerNameTakenError, ServerVersionError) as error:
                other = error.facts["server"]
            if self._proves(other):
                # Raises with its address of now, unless it has left meanwhile.
                return self._catalog.servers.join(self._joining)

    def _proves(self, name: str) -> bool:
        """Look at the process that has the name until it proves that it lives, or is gone and ended."""
        watch, first = Watch(), self._catalog.servers.get(name)
        while first is not None and first.lives:
            record = self._catalog.servers.get(name)
            if record is None or not record.lives:
                return False
            if record.renewed_ms != first.renewed_ms:
                return True
            silent = watch.silent_seconds([record], self._clock.monotonic())[record.id]
            if self._is_gone(record, silent):
                self._catalog.servers.end(record)
                return False
            self._clock.wait(self._stopping, LOOK_SECONDS)
        return False


def _who(found: Membership) -> tuple[str, frozenset[tuple[str, str, str]], Mapping[str, str]]:
    return found.me, frozenset((each.id, each.url, each.draining) for each in found.servers), found.placed
