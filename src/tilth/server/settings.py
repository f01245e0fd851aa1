"""The knobs of the doors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilth.base.settings import Scope, Setting, SettingGroup, value_of
from tilth.base.units import KIB, MIB, parse_bytes

BODY_BYTES_MAX = Setting(
    name="server.body-max",
    scope=Scope.NODE,
    default=256 * MIB,
    parse=parse_bytes,
    check=lambda size: size >= 1 * KIB,
    allowed="1 KiB and up",
    unit="bytes",
    doc="A request whose body is larger is refused before it is read to its end. More: larger inserts and statements, "
    "held in the node's memory. Less: the node is safe from a file sent by mistake.",
)
STATEMENTS_MAX = Setting(
    name="server.statements-max",
    scope=Scope.NODE,
    default=64,
    parse=int,
    check=lambda count: 1 <= count <= 10_000,
    allowed="1 to 10000",
    unit="statements",
    doc="Statements and inserts over HTTP that run at once; others wait for their turn. More: more clients are served "
    "side by side, each with a thread and its result in memory. Fewer: less memory under load. Health, metrics and "
    "readers never wait for them.",
)

#: The settings of this room.
SETTINGS = SettingGroup((BODY_BYTES_MAX, STATEMENTS_MAX))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings of the doors, read and checked."""

    body_bytes_max: int = BODY_BYTES_MAX.default
    statements_max: int = STATEMENTS_MAX.default


def server_settings(given: Mapping[str, str]) -> ServerSettings:
    """The settings of the node's texts; raises BadSettingError and UnknownSettingError."""
    values = SETTINGS.read(given)
    return ServerSettings(
        body_bytes_max=value_of(values, BODY_BYTES_MAX), statements_max=value_of(values, STATEMENTS_MAX)
    )
