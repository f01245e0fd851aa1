"""A server whose rooms are as a test makes them, and what its alarms find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.sql_world import SqlWorld
from tilth.catalog import KeyValue
from tilth.control.context.services import Services
from tilth.introspection.alarms.alarm import AlarmFinding
from tilth.introspection.alarms.alarms import ALARMS
from tilth.introspection.alarms.observation import Observation
from tilth.membership.peers import NoPeers
from tilth.model.server import ServerRecord
from tilth.model.service import ServiceKind, Switch, SwitchState


class FakePeers(NoPeers):
    """Servers as a test says; the first that does not drain hosts everything."""

    def __init__(self, *servers: ServerRecord) -> None:
        self.records = servers

    def servers(self) -> tuple[ServerRecord, ...]:
        return self.records

    def hosts(self, thing: str) -> str:
        return next((each.name for each in self.records if not each.draining), "")


class AlarmWorld(SqlWorld):
    """A server where all is well until a test changes that."""

    def __init__(self, root: Path, *, kv: KeyValue | None = None, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(root, kv=kv, settings=settings)
        self.consume.states = []
        self.services: Services = self.engine._services

    def change(self, **rooms: object) -> None:
        """Give the server other rooms."""
        self.services = replace(self.services, **rooms)  # type: ignore[arg-type]  # rooms by name

    def found(self, name: str) -> list[AlarmFinding]:
        """What the alarm finds now."""
        (alarm,) = (each for each in ALARMS if each.name == name)
        return list(alarm.find(Observation(self.services)))

    def stop(self, service: ServiceKind, table: str = "") -> None:
        """Somebody stops the service on purpose."""
        now_ms = self.clock.now_ms()
        self.catalog.services.set(Switch(table=table, service=service, state=SwitchState.STOPPED, since_ms=now_ms))
