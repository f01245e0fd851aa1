"""Settings of the warehouse room: where Spark comes from, how big it is, how much runs at once.

Tests: tests/unit/warehouse/session/test_conf.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilth.base.secret_source import REFERENCE, REFERENCE_FORM
from tilth.base.secrets import HIDDEN
from tilth.base.settings import (
    LogSettings,
    SettingCheck,
    SettingGroup,
    contained,
    node_setting,
    read_settings,
    settings_of,
    within,
)
from tilth.base.units import parse_bytes, parse_seconds
from tilth.model.warehouse import QUERY_WAREHOUSE, WRITE_WAREHOUSE
from tilth.warehouse.parallelism import cores_of, write_slots_of

#: Cancelled work that goes on is stopped after this share of `warehouse.hang-bound`, so that it ends before its JVM.
STOP_SHARE = 0.25
#: The value of `warehouse.master` that means this machine, with room for long tasks beside short ones.
MASTER_AUTO = "auto"

_MEMORY = re.compile(r"\d+[kmgtKMGT]")

#: Pattern of names of properties of Spark and of Hadoop's file systems that may be secrets; valid in Java too.
SECRET_PROPERTIES = (
    "(?i)secret|passw|passphrase|token|credential|jaas|[.]pem|[.]sas|"
    "(access|account|private|encryption|signing)[._-]?key"
)
_SECRET = re.compile(SECRET_PROPERTIES)


def _shown_conf(text: str) -> str:
    """An item that is no pair may be the value of a secret with blanks around its sign."""
    pairs = (item.partition("=") for item in text.split())
    return " ".join(
        f"{name}={HIDDEN if is_secret_property(name) else value}" if equals else HIDDEN for name, equals, value in pairs
    )


def _shown_reference(text: str) -> str:
    return text if not text or REFERENCE.fullmatch(text.strip()) else HIDDEN


def is_secret_property(name: str) -> bool:
    """Return whether a property of Spark may be a secret, by its name."""
    return _SECRET.search(name) is not None


def _conf_pairs(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [item.partition("=") for item in text.split()]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError(text)
    return tuple((name, value) for name, _, value in pairs)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseSettings:
    """The values, read once when the node starts."""

    master: str = node_setting(
        "warehouse.master",
        MASTER_AUTO,
        SettingCheck(str, "auto, local[N], local[*], spark://.., yarn, k8s://..", lambda text: bool(text)),
        "Where Spark computes. `auto`: this process's machine, all cores, with twice as many task slots as cores so "
        "that a long merge never keeps a query waiting. `local[N]`: exactly N task slots. Anything else: that cluster.",
    )
    jars: str = node_setting(
        "warehouse.jars",
        "",
        SettingCheck(str, "a folder"),
        "A folder with further jars for Spark, as those with which it reads S3. Spark sends them to its executors.",
    )
    python: str = node_setting(
        "warehouse.python",
        "",
        SettingCheck(str, "a path, or a name on the path"),
        "The Python of executors on a cluster, with the same libraries as the server. Empty: this process's own, at "
        "the same path on every machine.",
    )
    driver_host: str = node_setting(
        "warehouse.driver-host",
        "127.0.0.1",
        SettingCheck(str.strip, "a name or an address of this machine", lambda text: bool(text)),
        "Where executors on a cluster reach this process. The default is for executors on this machine.",
    )
    cluster_secret: str = node_setting(
        "warehouse.cluster-secret",
        "",
        SettingCheck(
            str.strip, f"{REFERENCE_FORM}; empty: none", lambda text: not text or REFERENCE.fullmatch(text) is not None
        ),
        "Where the secret of a standalone Spark cluster is: the `spark.authenticate.secret` of its master and workers. "
        "Without one, a session on such a cluster does not start. YARN and Kubernetes need none: Spark draws one for "
        "each session.",
        shown=_shown_reference,
    )
    driver_memory: str = node_setting(
        "warehouse.driver-memory",
        "2g",
        SettingCheck(str.strip, "a number and one of k, m, g, t", lambda text: _MEMORY.fullmatch(text) is not None),
        "Java heap of the embedded Spark. More: larger joins and aggregations stay in memory. Less: more is left for "
        "the Python kernels and the page cache.",
    )
    java_home: str = node_setting(
        "warehouse.java-home",
        "",
        SettingCheck(str, "the folder of a full Java 17 or 21"),
        "The Java that runs Spark. Empty: JAVA_HOME of the environment, else the `java` on the path.",
    )
    class_data: str = node_setting(
        "warehouse.class-data",
        "",
        SettingCheck(str, "a folder, or `off`"),
        "Where Spark's classes are kept in the form that Java maps into memory: with them Spark starts in half the "
        "time. Made once for each version, in the background, two minutes after a start; 190 MB. Empty: `class-data` "
        "in the data folder. Nodes of one user may share a folder.",
    )
    query_slots: int = node_setting(
        "warehouse.query-slots",
        16,
        within(int, 1, 1024),
        "Queries that run at once. More: short ones do not wait for long ones. Fewer: each gets more of the machine.",
        unit="tasks",
    )
    write_slots: int = node_setting(
        "warehouse.write-slots",
        0,
        within(int, 0, 1024),
        "Inserts and merges that run at once, consumers not counted; merges take half of them at most. More: small "
        "parts fold sooner. Fewer: queries keep the machine. 0: one and a half for each core, on a cluster those of "
        "the executors that are there; at least 4.",
        unit="tasks",
    )
    memory_bytes: int = node_setting(
        "warehouse.memory",
        0,
        SettingCheck(parse_bytes, "bytes, as in 4 GiB"),
        "What the tasks of a worker may take together outside Java, by their estimates. More: more runs at once. Less: "
        "safer beside other programs. 0: half of the machine's memory.",
        unit="bytes",
    )
    embedded: tuple[str, ...] = node_setting(
        "warehouse.embedded",
        (QUERY_WAREHOUSE, WRITE_WAREHOUSE),
        SettingCheck(_names, "names of warehouses, with commas between; empty: none", separator=","),
        "The warehouses whose tasks the server's own Spark runs, beside workers in other processes. Fewer: the server "
        "keeps its cores for the catalog and small inserts, and their tasks wait for workers (`tilth worker`).",
    )
    empty_seconds_max: float = node_setting(
        "warehouse.wait-for-worker",
        30.0,
        within(parse_seconds, 0, 3600, "0 s to 1 h"),
        "So long a statement waits where its warehouse has no worker; then it fails with WAREHOUSE_EMPTY. So long a "
        "query waits, too, for a Spark that is started again, before it fails with SPARK_AWAY. Longer: a worker or a "
        "Spark that is started again finds its queries waiting. Shorter: clients learn sooner. Imports and maintenance "
        "always wait.",
        unit="seconds",
    )
    nice: int = node_setting(
        "warehouse.nice",
        5,
        within(int, 0, 19),
        "By how much Spark and its Python workers yield the processor to the node's own process, as in `nice`. More: "
        "small inserts, system tables and KILL answer sooner beside queries that use the whole machine. Less: Spark "
        "keeps its share beside other programs of the machine.",
    )
    spark_conf: tuple[tuple[str, str], ...] = node_setting(
        "warehouse.spark-conf",
        (),
        SettingCheck(_conf_pairs, "key=value pairs with blanks between", separator=" "),
        "Further Spark properties, laid over Tilth's own. For what this page does not offer; nothing checks them. "
        "Values of properties that look like secrets are not shown, and stand in no command line of Spark.",
        shown=_shown_conf,
    )
    heartbeat_seconds: float = node_setting(
        "warehouse.heartbeat-interval",
        2.0,
        within(parse_seconds, 0.5, 600, "0.5 s to 10 min"),
        "How often Spark's JVM gets a call to see whether it answers; every sixth time it runs a job of one task too. "
        "Shorter: a hung JVM is shown sooner. Longer: fewer calls.",
        unit="seconds",
    )
    hang_seconds: float = node_setting(
        "warehouse.hang-bound",
        10.0,
        within(parse_seconds, 2, 3600, "2 s to 1 h"),
        "A JVM that does not answer for so long is killed and started again; one that uses the processor meanwhile, "
        "as in a long garbage collection, and one whose executors do not answer, after four times as long. Cancelled "
        "work that goes on, as in a regular expression that backtracks, is stopped after a quarter of it; on a "
        "cluster, its executor is. Where that ends nothing (Java 20 and later cannot do it), a JVM whose task slots "
        "the same work holds for so long is killed; where it holds half of the slots, after twice as long, and where "
        "it gets little of the processor, on a crowded machine or before a store that is silent, after four times as "
        "long. Shorter: statements wait less for a hung JVM. Longer: a slow machine restarts a JVM that would have "
        "answered less often.",
        unit="seconds",
    )
    stall_seconds: float = node_setting(
        "warehouse.stall-bound",
        600.0,
        within(parse_seconds, 5, 86_400, "5 s to 1 day"),
        "A task whose Spark job finishes no task, reads and writes no byte and computes nothing for so long is "
        "cancelled; its service tries again. Shorter: a hung Python worker is noticed sooner. Longer: tasks that wait "
        "for a slow disk or broker are left alone.",
        unit="seconds",
    )
    round_stall_seconds: float = node_setting(
        "warehouse.round-stall-bound",
        60.0,
        within(parse_seconds, 5, 86_400, "5 s to 1 day"),
        "The same for the rounds of consumers, which are short: a consumer whose round makes no progress for so long "
        "is cancelled, and its round is done again from the same offsets. One that waits for so long for something "
        "other than Spark, as a commit or a broker, is given up, and another takes over. Shorter: rows go on sooner "
        "after a Python worker has hung. Longer: a store that is away for a while holds up rounds without ending them.",
        unit="seconds",
    )

    logs: LogSettings = contained(LogSettings)
    #: The slots of warehouses that write are those that were set; else they follow the executors of a cluster.
    are_write_slots_given: bool = False

    @property
    def slots(self) -> dict[str, int]:
        """Slots by warehouse."""
        return {QUERY_WAREHOUSE: self.query_slots, WRITE_WAREHOUSE: self.write_slots}


SETTINGS = SettingGroup(settings_of(WarehouseSettings))


def warehouse_settings(given: Mapping[str, str]) -> WarehouseSettings:
    """The settings among the node's texts; what is left to this machine is filled in. Raises BadSettingError."""
    read = read_settings(WarehouseSettings, given)
    return replace(
        read,
        write_slots=read.write_slots or write_slots_of(cores_of(read.master, machine_cores=os.cpu_count() or 1)),
        are_write_slots_given=read.write_slots > 0,
        memory_bytes=read.memory_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2,
    )
