"""Servers of a catalog: each sends a heartbeat, one small commit now and then, whatever it hosts.

Covers: joining under a name, renewing, leaving, ending one that is gone. Does not cover: when one is gone, which table
is whose (tilth.membership), what a server's leases guard (leases.py).
Always holds: a name is of one process at a time; all that live are of versions that fit; a process that was ended
never renews, but joins anew under the next epoch, so others may acquire whatever it held without its consent; no name
has an epoch twice, also where its record was forgotten; the key of a process's life (records/living.py) is there
exactly while its record shows that it lives. No clock of one server is compared with another's here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import ConflictError, FencedError
from tilth.catalog.errors import ServerNameTakenError
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.living import check_versions, life_key, server_key
from tilth.catalog.records.small_commit import Plan, change, read, read_all, unchanged
from tilth.catalog.services.switches import SavedState
from tilth.model.server import NUMBERS, SERVERS_BOUND, SERVERS_MAX, ServerRecord

#: Key of the Joinings, which every joining process writes, so that no two of them are assigned the same number.
_JOINED = pack(Space.STATE, "servers/joined")
#: Names of servers that are to host nothing.
_DRAINED = "servers/drained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """Facts that a process gives of itself when it joins."""

    name: str
    #: Drawn by the process.
    run: str
    version: str
    url: str = ""
    #: Servers that may live at once, this one among them.
    servers_max: int = SERVERS_MAX


class Joinings(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about all processes that have ever joined this catalog."""

    #: Number of the last process that has joined.
    number: int = -1
    #: The greatest epoch among the records that were removed.
    epoch_forgotten: int = 0


class Servers:
    """`catalog.servers`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv
        self._state = SavedState(clock, kv)

    def join(self, joining: Joining) -> ServerRecord:
        """Register the name under a new epoch. Raises ServerNameTakenError while another process lives under it,
        ServerVersionError while a server of a version that does not fit lives, and ConflictError (TOO_MANY_SERVERS).
        """
        now_ms, key = self._clock.now_ms(), server_key(joining.name)

        def plan(view: ReadView) -> Plan[ServerRecord]:
            old = read(view, key, codec.SERVERS)
            if old is not None and old.lives:
                if old.run == joining.run:
                    # An earlier try of this very call whose answer was lost.
                    return Plan(result=old)
                hint = "give this server another one by --set server.name=.., or stop the other one"
                raise ServerNameTakenError(server=old.name, url=old.url or "none", hint=hint)
            living = [each for each in read_all(view, codec.SERVERS, Space.SERVER) if each.lives]
            check_versions(living, joining.version)
            joinings = _joinings(view)
            record = ServerRecord(
                name=joining.name,
                epoch=1 + max(self._kv.incarnation.epoch_floor, joinings.epoch_forgotten if old is None else old.epoch),
                run=joining.run,
                number=_next_number(joinings, living, servers_max=joining.servers_max),
                url=joining.url,
                version=joining.version,
                started_ms=now_ms,
                renewed_ms=now_ms,
            )
            life = life_key(record.id)
            joined = msgspec.structs.replace(joinings, number=record.number)
            return Plan(
                result=record,
                preconditions=[unchanged(each, view.get(each)) for each in (key, _JOINED, life)],
                puts={key: codec.SERVERS.encode(record), life: b"", _JOINED: _encoded(joined)},
            )

        return change(self._kv, self._clock, plan)

    def renew(self, record: ServerRecord) -> ServerRecord:
        """Renew the record, which is the server's heartbeat. Raises FencedError when the server was ended."""
        renewed = msgspec.structs.replace(record, renewed_ms=max(self._clock.now_ms(), record.renewed_ms + 1))

        def step(old: ServerRecord) -> ServerRecord:
            if not old.lives or old.run != record.run or old.epoch != record.epoch:
                raise FencedError("other servers have ended this one", server=record.id, hint="it joins anew by itself")
            return renewed

        if not self._change(record.name, step):
            raise FencedError("this server is not known any more", server=record.id, hint="it joins anew by itself")
        return renewed

    def end(self, record: ServerRecord) -> bool:
        """Note that this process has left or is gone; False where it has proved meanwhile that it lives, or another
        one has the name.
        """
        now_ms = self._clock.now_ms()

        def step(old: ServerRecord) -> ServerRecord | None:
            if not old.lives or old.id != record.id or old.renewed_ms != record.renewed_ms:
                return None
            return msgspec.structs.replace(old, ended_ms=now_ms)

        self._change(record.name, step)
        now = self.get(record.name)
        return now is None or not now.lives

    def end_all(self) -> None:
        """Note that all are gone: one process alone can have this catalog's store open."""
        for record in self.live():
            self.end(record)

    def drain(self, name: str, because: str) -> None:
        """Remember that the server of this name is to host nothing, whichever process has the name."""
        self._change_drains(lambda drains: {**drains, name: because})

    def resume(self, name: str) -> None:
        """Forget it."""
        self._change_drains(lambda drains: {each: why for each, why in drains.items() if each != name})

    def drains(self) -> dict[str, str]:
        """Return the names of the servers that are to host nothing, and why."""
        return _drains(self._state.get(_DRAINED))

    def _change_drains(self, step: Callable[[dict[str, str]], dict[str, str]]) -> None:
        self._state.change(_DRAINED, lambda found: msgspec.msgpack.encode(step(_drains(found))))

    def get(self, name: str) -> ServerRecord | None:
        return read(self._kv, server_key(name), codec.SERVERS)

    def all(self) -> list[ServerRecord]:
        """Return all that have ever joined and were not forgotten, by name."""
        return list(read_all(self._kv, codec.SERVERS, Space.SERVER))

    def live(self) -> list[ServerRecord]:
        return [each for each in self.all() if each.lives]

    def forget(self, before_ms: int) -> int:
        """Remove the records of those that ended before a time; return how many."""

        def plan(view: ReadView) -> Plan[int]:
            records = read_all(view, codec.SERVERS, Space.SERVER)
            gone = [each for each in records if each.ended_ms and each.ended_ms < before_ms]
            if not gone:
                return Plan(result=0)
            keys, joinings = [server_key(each.name) for each in gone], _joinings(view)
            epoch = max(joinings.epoch_forgotten, *(each.epoch for each in gone))
            return Plan(
                result=len(gone),
                preconditions=[unchanged(key, view.get(key)) for key in (*keys, _JOINED)],
                puts={_JOINED: _encoded(msgspec.structs.replace(joinings, epoch_forgotten=epoch))},
                deletes=keys,
            )

        return change(self._kv, self._clock, plan)

    def _change(self, name: str, step: Callable[[ServerRecord], ServerRecord | None]) -> bool:
        key = server_key(name)

        def plan(view: ReadView) -> Plan[bool]:
            found = view.get(key)
            old = None if found is None else codec.SERVERS.decode(key, found.value)
            new = None if old is None else step(old)
            if new is None or new == old:
                return Plan(result=new is not None)
            return Plan(
                result=True,
                preconditions=[unchanged(key, found)],
                puts={key: codec.SERVERS.encode(new)},
                deletes=[] if new.lives else [life_key(new.id)],
            )

        return change(self._kv, self._clock, plan, keys=[key])


def _drains(found: bytes | None) -> dict[str, str]:
    return {} if found is None else msgspec.msgpack.decode(found, type=dict[str, str])


def _joinings(view: ReadView) -> Joinings:
    found = read(view, _JOINED, codec.BLOBS)
    return Joinings() if found is None else msgspec.msgpack.decode(found, type=Joinings)


def _encoded(joinings: Joinings) -> bytes:
    return codec.BLOBS.encode(msgspec.msgpack.encode(joinings))


def _next_number(joinings: Joinings, living: Sequence[ServerRecord], *, servers_max: int) -> int:
    """Return the number of the next process. Raises ConflictError (TOO_MANY_SERVERS)."""
    assert servers_max <= SERVERS_BOUND, servers_max
    if len(living) >= servers_max:
        raise ConflictError.coded(
            "TOO_MANY_SERVERS",
            "the catalog has as many servers as it can have",
            servers=servers_max,
            hint="stop one that is not needed, or raise server.servers-max of those that join",
        )
    used = {each.number for each in living}
    following = ((joinings.number + step) % NUMBERS for step in range(1, NUMBERS + 1))
    return next(number for number in following if number not in used)
