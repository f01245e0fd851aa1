"""Warehouses as they are defined: their settings, their names, which one a table's work goes to. Pure.

Covers: the settings of warehouses, those of tables that name one, the names that users of ByConity know. Does not
cover: where definitions are kept (catalog), which workers there are (tasks/state.py).

Tests: tests/unit/warehouse/tasks/test_residents.py, tests/unit/statements/definitions/test_warehouses.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tilth.base.settings import (
    TEXT,
    SettingCheck,
    SettingGroup,
    read_settings,
    settings_of,
    table_setting,
    warehouse_setting,
    within,
)
from tilth.base.units import parse_bytes, show_time
from tilth.model.task import TaskKind, WorkKind
from tilth.model.warehouse import QUERY_WAREHOUSE, WRITE_WAREHOUSE, Drain, Warehouse

#: They are there, defined or not, and stay.
BUILT_IN = (QUERY_WAREHOUSE, WRITE_WAREHOUSE)
#: ByConity's names of warehouses that every installation of it has.
_KNOWN_AS = {
    "vw_default": QUERY_WAREHOUSE,
    "vw_read": QUERY_WAREHOUSE,
    "vw_write": WRITE_WAREHOUSE,
    "vw_task": WRITE_WAREHOUSE,
}


#: ByConity's types of warehouses.
_TYPES: Mapping[str, tuple[WorkKind, ...]] = {
    "read": (WorkKind.QUERIES,),
    "write": (WorkKind.IMPORTS, WorkKind.MAINTENANCE),
    "task": (WorkKind.MAINTENANCE,),
    "default": tuple(WorkKind),
}


def _work(text: str) -> tuple[WorkKind, ...]:
    if text.strip().lower() in _TYPES:
        return _TYPES[text.strip().lower()]
    found = tuple(dict.fromkeys(WorkKind(each.strip().lower()) for each in text.split(",")))
    return tuple(sorted(found, key=list(WorkKind).index))


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseConfig:
    """The settings of one warehouse, read and checked."""

    workers: int = warehouse_setting(
        "num_workers",
        0,
        within(int, 0, 10_000),
        "Workers that it should have. Nothing starts them: where there are fewer, `system.warehouses` says so.",
        aliases=("workers",),
    )
    work: tuple[WorkKind, ...] = warehouse_setting(
        "work",
        tuple(WorkKind),
        SettingCheck(_work, "queries, imports, maintenance, with commas between; or Read, Write, Task, Default"),
        "What it may be used for; anything else is refused. `Read` is queries, `Write` imports and maintenance. There "
        "are no accounts, so that this is all that keeps work away from it.",
        aliases=("type",),
    )
    master: str = warehouse_setting(
        "master",
        "",
        TEXT,
        "The Spark master that its workers must run on, as they name it with `--master`; a worker with another one is "
        "refused. Empty: any.",
    )
    cores: int = warehouse_setting(
        "cores",
        0,
        within(int, 0, 100_000),
        "Cores that each of its workers must have; one with fewer is refused. More: tasks find what they were sized "
        "for. Fewer: small machines may help.",
        aliases=("worker_cores",),
    )
    memory_bytes: int = warehouse_setting(
        "memory",
        0,
        within(parse_bytes, 0, words="bytes, as in 4 GiB"),
        "Memory that the tasks of each of its workers must have together (`warehouse.memory` of the worker); one with "
        "less is refused.",
        unit="bytes",
        aliases=("worker_memory",),
    )

    @property
    def kinds(self) -> frozenset[TaskKind]:
        """Kinds of tasks that it takes."""
        return frozenset(kind for kind in TaskKind if not set(self.work).isdisjoint(kind.traits.work))


WAREHOUSE_SETTINGS = SettingGroup(settings_of(WarehouseConfig))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWarehouses:
    """The warehouses that a MergeTree table names."""

    default: str = table_setting(
        "cnch_vw_default",
        "",
        TEXT,
        "The warehouse of queries that read the table, where the statement names none (`SET warehouse`). A query over "
        "several tables takes that of the first that names one. Empty: `default`.",
    )
    read: str = table_setting("cnch_vw_read", "", TEXT, "As `cnch_vw_default`, and goes before it.")
    write: str = table_setting(
        "cnch_vw_write",
        "",
        TEXT,
        "The warehouse of INSERTs into the table, where the statement names none, and of its flushes, merges, "
        "mutations and compactions. Empty: `default` for INSERTs, `write` for the rest.",
    )
    task: str = table_setting(
        "cnch_vw_task",
        "",
        TEXT,
        "The warehouse of the table's flushes, merges, mutations and compactions; goes before `cnch_vw_write`.",
    )

    @property
    def queries(self) -> str:
        """The warehouse of queries; empty: it names none."""
        return self.read or self.default

    @property
    def maintenance(self) -> str:
        return self.task or self.write or WRITE_WAREHOUSE

    @property
    def named(self) -> tuple[str, ...]:
        """All that it names."""
        return tuple(each for each in (self.default, self.read, self.write, self.task) if each)


TABLE_SETTINGS = SettingGroup(settings_of(TableWarehouses))


def table_warehouses(settings: Mapping[str, str]) -> TableWarehouses:
    """Read the warehouses that a table's settings name."""
    return read_settings(TableWarehouses, settings)


def known_name(name: str, known: Collection[str]) -> str:
    """Return the warehouse that a name means: itself, or what ByConity's name stands for; else the name."""
    return name if name in known else _KNOWN_AS.get(name.lower(), name)


def warehouse_configs(defined: Iterable[Warehouse]) -> dict[str, WarehouseConfig]:
    """Return the settings of all warehouses by name, those that are always there included."""
    configs = {name: WarehouseConfig() for name in BUILT_IN}
    return configs | {each.name: read_settings(WarehouseConfig, each.settings) for each in defined}


def drain_reason(drain: Drain) -> str:
    """Describe for people why a worker takes no tasks."""
    because = f" because {drain.because}" if drain.because else ""
    return f"drained since {show_time(drain.since_ms)}{because}; ALTER WORKER {drain.worker} RESUME ends it"
