"""The knobs of the doors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tilth.base.settings import Scope, Setting, SettingGroup, value_of
from tilth.base.units import GIB, KIB, MIB, parse_bytes, parse_seconds
from tilth.sql import DEFAULT_SLOTS, Queue, ResultLimits
from tilth.sql import STATEMENTS_MAX as WAITING_MAX

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
    default=WAITING_MAX,
    parse=int,
    check=lambda count: 1 <= count <= 10_000,
    allowed="1 to 10000",
    unit="statements",
    doc="Statements that may wait for a slot, of queries, of INSERTs and of the other kinds each; further ones are "
    "refused with TOO_MANY_STATEMENTS and a hint to try again. More: more clients wait instead, each with a thread. "
    "Fewer: clients learn sooner that the node is busy.",
)
INSERT_SLOTS = Setting(
    name="server.insert-slots",
    scope=Scope.NODE,
    default=DEFAULT_SLOTS[Queue.INSERT],
    parse=int,
    check=lambda count: 1 <= count <= 10_000,
    allowed="1 to 10000",
    unit="statements",
    doc="INSERTs of rows that run at once; queries, INSERT .. SELECT and other statements have slots of their own. "
    "More: more small INSERTs share a commit. Fewer: less memory for their rows.",
)
INSERT_MEMORY = Setting(
    name="server.insert-memory",
    scope=Scope.NODE,
    default=1 * GIB,
    parse=parse_bytes,
    check=lambda size: size >= 1 * MIB,
    allowed="1 MiB and up",
    unit="bytes",
    doc="What the bodies of requests may hold together while they are read and stored; further requests are refused "
    "with MEMORY_PRESSURE and a hint to try again, those of 64 KiB and less never. Parsed rows take more than that. "
    "More: more large INSERTs at once. Less: the node is safe from many of them.",
)

RESULTS_BYTES_MAX = Setting(
    name="server.results-disk-max",
    scope=Scope.NODE,
    default=ResultLimits().bytes_max,
    parse=parse_bytes,
    check=lambda size: size >= 0,
    allowed="0 bytes and up",
    unit="bytes",
    doc="What large results that wait for their clients may have on the node's disk together; where they have more, "
    "the largest one ends with RESULT_NOT_READ. More: clients that read slower than Spark computes get their rows. "
    "Less: disk is left for tables. 0: no limit.",
)
RESULT_READ_SECONDS_MAX = Setting(
    name="server.result-read-timeout",
    scope=Scope.NODE,
    default=ResultLimits().read_seconds_max,
    parse=parse_seconds,
    check=lambda seconds: seconds >= 0,
    allowed="0 and up",
    unit="seconds",
    doc="A large result whose client reads nothing for so long ends with RESULT_NOT_READ. More: clients may think "
    "between two rows. Less: their files and the parts that the query holds are free sooner. 0: no limit.",
)

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def _list(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))


def _origins(text: str) -> tuple[str, ...]:
    """Return origins as browsers write them. Raises ValueError for anything else."""
    found = []
    for item in _list(text):
        parts = urlsplit(item)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError(text)
        # Browsers omit the default port.
        port = "" if parts.port in (None, {"http": 80, "https": 443}[parts.scheme]) else f":{parts.port}"
        name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        found.append(f"{parts.scheme}://{name}{port}")
    return tuple(found)


def _hosts(text: str) -> tuple[str, ...]:
    """Raises ValueError for anything but names of hosts."""
    found = _list(text)
    if any(not _HOST.fullmatch(item) for item in found):
        raise ValueError(text)
    return found


ALLOWED_HOSTS: Setting[tuple[str, ...]] = Setting(
    name="server.allowed-hosts",
    scope=Scope.NODE,
    default=(),
    parse=_hosts,
    allowed="names of hosts without ports, with commas between",
    doc="Further names of the node in `Host` headers: that of a proxy in front of it, or its name in DNS. Requests "
    "with other names are refused, as protection against DNS rebinding. Always accepted: `localhost`, the address or "
    "name of `--listen`, and for `0.0.0.0` and `::` every address and the name of the machine.",
)
ALLOWED_ORIGINS: Setting[tuple[str, ...]] = Setting(
    name="server.allowed-origins",
    scope=Scope.NODE,
    default=(),
    parse=_origins,
    allowed="as in https://dash.example.com, with commas between",
    doc="Origins of web pages that can call the node from a browser, without any restriction. Pages of other origins "
    "are refused. Programs send no `Origin` and need no entry.",
)

#: The settings of this room.
SETTINGS = SettingGroup(
    (
        BODY_BYTES_MAX,
        STATEMENTS_MAX,
        INSERT_SLOTS,
        INSERT_MEMORY,
        RESULTS_BYTES_MAX,
        RESULT_READ_SECONDS_MAX,
        ALLOWED_HOSTS,
        ALLOWED_ORIGINS,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings of the doors, read and checked."""

    body_bytes_max: int = BODY_BYTES_MAX.default
    statements_max: int = STATEMENTS_MAX.default
    insert_slots: int = INSERT_SLOTS.default
    insert_memory: int = INSERT_MEMORY.default
    result_limits: ResultLimits = field(default_factory=ResultLimits)
    allowed_hosts: tuple[str, ...] = ()
    #: As browsers write them.
    allowed_origins: tuple[str, ...] = ()


def server_settings(given: Mapping[str, str]) -> ServerSettings:
    """The settings of the node's texts; raises BadSettingError and UnknownSettingError."""
    values = SETTINGS.read(given)
    return ServerSettings(
        body_bytes_max=value_of(values, BODY_BYTES_MAX),
        statements_max=value_of(values, STATEMENTS_MAX),
        insert_slots=value_of(values, INSERT_SLOTS),
        insert_memory=value_of(values, INSERT_MEMORY),
        result_limits=ResultLimits(
            bytes_max=value_of(values, RESULTS_BYTES_MAX),
            read_seconds_max=value_of(values, RESULT_READ_SECONDS_MAX),
        ),
        allowed_hosts=value_of(values, ALLOWED_HOSTS),
        allowed_origins=value_of(values, ALLOWED_ORIGINS),
    )
