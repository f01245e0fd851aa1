"""Settings of the HTTP server.

Tests: tests/unit/server/test_origin.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from tilth.base.settings import SettingCheck, SettingGroup, node_setting, settings_of, within
from tilth.base.units import GIB, KIB, MIB, parse_bytes, parse_seconds
from tilth.control.running import DEFAULT_SLOTS
from tilth.control.running import STATEMENTS_MAX as WAITING_MAX
from tilth.control.slots import Queue
from tilth.query.results.waiting import ResultLimits
from tilth.warehouse.remote.workers import GONE_SECONDS

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings of the HTTP server, read and checked."""

    body_bytes_max: int = node_setting(
        "server.body-max",
        256 * MIB,
        within(parse_bytes, 1 * KIB, words="1 KiB and up"),
        "A request whose body is larger is refused before it is read to its end. More: larger inserts and statements, "
        "held in the node's memory. Less: the node is safe from a file sent by mistake.",
        unit="bytes",
    )
    spark_above: int = node_setting(
        "insert.spark-above",
        8 * MIB,
        within(parse_bytes, 64 * KIB, 1 * GIB, "64 KiB to 1 GiB"),
        "An INSERT whose body is larger passes through the node into a file of the table's storage, and Spark tasks of "
        "the table's warehouse read and write its rows. More: larger bodies are read by the node itself, in its "
        "memory, and need no Spark. Less: the node's memory and cores are left for others.",
        unit="bytes",
    )
    streamed_bytes_max: int = node_setting(
        "insert.body-max",
        256 * GIB,
        within(parse_bytes, 1 * MIB, words="1 MiB and up"),
        "An INSERT above insert.spark-above whose body, unpacked, is larger is refused; until then its file takes as "
        "much of the table's storage beside the rows. `max_insert_bytes` counts instead where a statement gives it. "
        "More: larger loads in one transaction. Less: storage is safe from a file sent by mistake.",
        unit="bytes",
    )
    statements_max: int = node_setting(
        "server.statements-max",
        WAITING_MAX,
        within(int, 1, 10_000),
        "Statements that may wait for a slot, of queries, of INSERTs and of the other kinds each; further ones are "
        "refused with TOO_MANY_STATEMENTS and a hint to try again. More: more clients wait instead, each with a "
        "thread. Fewer: clients learn sooner that the node is busy.",
        unit="statements",
    )
    insert_slots: int = node_setting(
        "server.insert-slots",
        DEFAULT_SLOTS[Queue.INSERT],
        within(int, 1, 10_000),
        "INSERTs of rows that run at once; queries, INSERT .. SELECT and other statements have slots of their own. "
        "More: more small INSERTs share a commit. Fewer: less memory for their rows.",
        unit="statements",
    )
    insert_memory: int = node_setting(
        "server.insert-memory",
        1 * GIB,
        within(parse_bytes, 1 * MIB, words="1 MiB and up"),
        "What the bodies of requests may hold together while they are read and stored; further requests are refused "
        "with MEMORY_PRESSURE and a hint to try again, those of 64 KiB and less never. Parsed rows take more than "
        "that. More: more large INSERTs at once. Less: the node is safe from many of them.",
        unit="bytes",
    )
    results_bytes_max: int = node_setting(
        "server.results-disk-max",
        ResultLimits().bytes_max,
        within(parse_bytes, 0, words="0 bytes and up"),
        "What large results that wait for their clients may have on the node's disk together; where they have more, "
        "the largest one ends with RESULT_NOT_READ. More: clients that read slower than Spark computes get their rows. "
        "Less: disk is left for tables. 0: no limit.",
        unit="bytes",
    )
    result_read_seconds_max: float = node_setting(
        "server.result-read-timeout",
        ResultLimits().read_seconds_max,
        within(parse_seconds, 0),
        "A large result whose client reads nothing for so long ends with RESULT_NOT_READ. More: clients may think "
        "between two rows. Less: their files and the parts that the query holds are free sooner. 0: no limit.",
        unit="seconds",
    )
    allowed_hosts: tuple[str, ...] = node_setting(
        "server.allowed-hosts",
        (),
        SettingCheck(_hosts, "names of hosts without ports, with commas between", separator=","),
        "Further names of the node in `Host` headers: that of a proxy in front of it, or its name in DNS. Requests "
        "with other names are refused, as protection against DNS rebinding. Always accepted: `localhost`, the address "
        "or name of `--listen`, and for `0.0.0.0` and `::` every address and the name of the machine.",
    )
    allowed_origins: tuple[str, ...] = node_setting(
        "server.allowed-origins",
        (),
        SettingCheck(_origins, "as in https://dash.example.com, with commas between", separator=","),
        "Origins of web pages that can call the node from a browser, without any restriction. Pages of other origins "
        "are refused. Programs send no `Origin` and need no entry.",
    )
    token_file: str = node_setting(
        "server.token-file",
        "",
        SettingCheck(str, "the path of a file"),
        "A file with the service token, which workers in other processes show with every call and are refused without; "
        "16 to 1024 visible characters. Empty: the environment's TILTH_SERVICE_TOKEN. Without a token the node takes "
        "no such workers.",
    )
    metrics_tables_max: int = node_setting(
        "server.metrics-tables-max",
        200,
        within(int, 0, 100_000),
        "Tables up to which each one that the server hosts has series of its own among the metrics (`tilth_table_*`); "
        "with more of them none has, and `tilth_metrics_tables_left_out` says how many they are. More: charts of each "
        "table. Fewer: less work for Prometheus.",
        unit="tables",
    )
    worker_gone_seconds: float = node_setting(
        "server.worker-gone-bound",
        GONE_SECONDS,
        within(parse_seconds, 1.0, 600, "1 s to 10 min"),
        "A worker in another process that has not reported for so long is gone: its tasks end as lost and run "
        "elsewhere. It reports each second. Shorter: they run elsewhere sooner. Longer: a slow network or a crowded "
        "machine loses fewer tasks.",
        unit="seconds",
    )

    @property
    def result_limits(self) -> ResultLimits:
        return ResultLimits(bytes_max=self.results_bytes_max, read_seconds_max=self.result_read_seconds_max)


#: The settings of this room.
SETTINGS = SettingGroup(settings_of(ServerSettings))
