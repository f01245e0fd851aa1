"""The knobs of the warehouse room: where Spark comes from, how big it is, how much runs at once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tilth.base.secrets import HIDDEN
from tilth.base.settings import LogSettings, Scope, Setting, SettingGroup, value_of
from tilth.base.units import MIB, parse_bytes, parse_seconds

#: The warehouse that answers queries, and the one that imports and maintains.
QUERY_WAREHOUSE = "default"
WRITE_WAREHOUSE = "write"
#: The value of `warehouse.master` that means this machine, with room for long tasks beside short ones.
MASTER_AUTO = "auto"

_MEMORY = re.compile(r"\d+[kmgtKMGT]")

#: Names of properties that are secrets.
_SECRET = re.compile(r"secret|password|token|access[.]?key|credential", re.IGNORECASE)


def _shown_conf(text: str) -> str:
    pairs = (item.partition("=") for item in text.split())
    return " ".join(f"{name}={HIDDEN if _SECRET.search(name) else value}" for name, _, value in pairs)


MASTER = Setting(
    name="warehouse.master",
    scope=Scope.NODE,
    default=MASTER_AUTO,
    parse=str,
    check=lambda text: bool(text),
    allowed="auto, local[N], local[*], spark://.., yarn, k8s://..",
    doc="Where Spark computes. `auto`: this process's machine, all cores, with twice as many task slots as cores so "
    "that a long merge never keeps a query waiting. `local[N]`: exactly N task slots. Anything else: that cluster.",
)
DRIVER_MEMORY = Setting(
    name="warehouse.driver-memory",
    scope=Scope.NODE,
    default="2g",
    parse=str.strip,
    check=lambda text: _MEMORY.fullmatch(text) is not None,
    allowed="a number and one of k, m, g, t",
    doc="Java heap of the embedded Spark. More: larger joins and aggregations stay in memory. Less: more is left for "
    "the Python kernels and the page cache.",
)
JAVA_HOME = Setting(
    name="warehouse.java-home",
    scope=Scope.NODE,
    default="",
    parse=str,
    allowed="the folder of a full Java 17 or 21",
    doc="The Java that runs Spark. Empty: JAVA_HOME of the environment, else the `java` on the path.",
)
QUERY_SLOTS = Setting(
    name="warehouse.query-slots",
    scope=Scope.NODE,
    default=16,
    parse=int,
    check=lambda slots: 1 <= slots <= 1024,
    allowed="1 to 1024",
    doc="Queries that run at once. More: short ones do not wait for long ones. Fewer: each gets more of the machine.",
    unit="tasks",
)
WRITE_SLOTS = Setting(
    name="warehouse.write-slots",
    scope=Scope.NODE,
    default=0,
    parse=int,
    check=lambda slots: 0 <= slots <= 1024,
    allowed="0 to 1024",
    doc="Inserts and merges that run at once, consumers not counted; merges take half of them at most. More: small "
    "parts fold sooner. Fewer: queries keep the machine. 0: one and a half for each core, at least 4.",
    unit="tasks",
)
MEMORY = Setting(
    name="warehouse.memory",
    scope=Scope.NODE,
    default=0,
    parse=parse_bytes,
    allowed="bytes, as in 4 GiB",
    doc="What the tasks of a worker may take together outside Java, by their estimates. More: more runs at once. Less: "
    "safer beside other programs. 0: half of the machine's memory.",
    unit="bytes",
)
NICE = Setting(
    name="warehouse.nice",
    scope=Scope.NODE,
    default=5,
    parse=int,
    check=lambda nice: 0 <= nice <= 19,
    allowed="0 to 19",
    doc="By how much Spark and its Python workers yield the processor to the node's own process, as in `nice`. More: "
    "small inserts, system tables and KILL answer sooner beside queries that use the whole machine. Less: Spark keeps "
    "its share beside other programs of the machine.",
)
SPARK_CONF = Setting(
    name="warehouse.spark-conf",
    scope=Scope.NODE,
    default="",
    parse=str,
    check=lambda text: all("=" in item for item in text.split()),
    allowed="key=value pairs with blanks between",
    doc="Further Spark properties, laid over Tilth's own. For what this page does not offer; nothing checks them. "
    "Values of properties that look like secrets are not shown.",
    shown=_shown_conf,
)

HEARTBEAT_INTERVAL = Setting(
    name="warehouse.heartbeat-interval",
    scope=Scope.NODE,
    default=5.0,
    parse=parse_seconds,
    check=lambda seconds: 0.5 <= seconds <= 600,
    allowed="0.5 s to 10 min",
    doc="How often Spark's JVM is asked whether it answers; every sixth time it runs a job of one task too. Shorter: a "
    "hung JVM is shown sooner. Longer: fewer calls.",
    unit="seconds",
)
HANG_BOUND = Setting(
    name="warehouse.hang-bound",
    scope=Scope.NODE,
    default=30.0,
    parse=parse_seconds,
    check=lambda seconds: 2 <= seconds <= 3600,
    allowed="2 s to 1 h",
    doc="A JVM that does not answer for so long is killed and started again; one that uses the processor meanwhile, as "
    "in a long garbage collection, after four times as long. So is one whose task slots are held by cancelled tasks "
    "that do not end, as in a regular expression that backtracks; where they hold half of the slots, after twice as "
    "long. Shorter: statements wait less for a hung JVM. Longer: a slow machine restarts a JVM that would have "
    "answered less often.",
    unit="seconds",
)
STALL_BOUND = Setting(
    name="warehouse.stall-bound",
    scope=Scope.NODE,
    default=600.0,
    parse=parse_seconds,
    check=lambda seconds: 5 <= seconds <= 86_400,
    allowed="5 s to 1 day",
    doc="A task whose Spark job finishes no task, reads and writes no byte and computes nothing for so long is "
    "cancelled; its service tries again. Shorter: a hung Python worker is noticed sooner. Longer: tasks that wait for "
    "a slow disk or broker are left alone.",
    unit="seconds",
)

SETTINGS = SettingGroup(
    (
        MASTER,
        DRIVER_MEMORY,
        JAVA_HOME,
        QUERY_SLOTS,
        WRITE_SLOTS,
        MEMORY,
        NICE,
        SPARK_CONF,
        HEARTBEAT_INTERVAL,
        HANG_BOUND,
        STALL_BOUND,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseSettings:
    """The values, read once when the node starts."""

    master: str = MASTER.default
    driver_memory: str = DRIVER_MEMORY.default
    #: Empty: found by itself.
    java_home: str = JAVA_HOME.default
    query_slots: int = QUERY_SLOTS.default
    write_slots: int = max(4, (os.cpu_count() or 1) * 3 // 2)
    memory_bytes: int = 1024 * MIB
    nice: int = NICE.default
    #: Laid over Tilth's own properties.
    spark_conf: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    #: Of the JVM and of tasks: when they are asked, and after which silence they are ended.
    heartbeat_seconds: float = HEARTBEAT_INTERVAL.default
    hang_seconds: float = HANG_BOUND.default
    stall_seconds: float = STALL_BOUND.default
    #: Of Spark's logs.
    logs: LogSettings = field(default_factory=LogSettings)

    @property
    def slots(self) -> dict[str, int]:
        """By warehouse."""
        return {QUERY_WAREHOUSE: self.query_slots, WRITE_WAREHOUSE: self.write_slots}


def warehouse_settings(given: Mapping[str, str]) -> WarehouseSettings:
    """The settings of the node's texts; raises BadSettingError and UnknownSettingError."""
    values = SETTINGS.read(given)
    pairs = (item.partition("=") for item in value_of(values, SPARK_CONF).split())
    return WarehouseSettings(
        master=value_of(values, MASTER),
        driver_memory=value_of(values, DRIVER_MEMORY),
        java_home=value_of(values, JAVA_HOME),
        query_slots=value_of(values, QUERY_SLOTS),
        write_slots=value_of(values, WRITE_SLOTS) or max(4, (os.cpu_count() or 1) * 3 // 2),
        memory_bytes=value_of(values, MEMORY) or _half_of_memory(),
        nice=value_of(values, NICE),
        spark_conf=tuple((key, value) for key, _, value in pairs),
        heartbeat_seconds=value_of(values, HEARTBEAT_INTERVAL),
        hang_seconds=value_of(values, HANG_BOUND),
        stall_seconds=value_of(values, STALL_BOUND),
    )


def _half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
