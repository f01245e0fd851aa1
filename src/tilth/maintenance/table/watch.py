"""Shared knowledge of one table between two observations: settings, switches, mutations, statistics, parts at work.

Covers: the memory that the ops of a table share, and the part log as the way by which news come in.
Does not cover: what is true (catalog). Always holds: all of it can be lost and is found again from the catalog.

Tests: tests/unit/maintenance/merge/test_op.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from tilth.catalog import TableVersion
from tilth.maintenance.damage.left_out import DamagedParts
from tilth.maintenance.state import is_on
from tilth.maintenance.table.partition_counts import PartitionStats
from tilth.maintenance.table.reserve import ReservedParts
from tilth.maintenance.table.settings import TABLE_SETTINGS, TableSettings, table_settings
from tilth.maintenance.table.workload import Workload
from tilth.model.mutation import Mutation
from tilth.model.part import PartEvent, parse_part_name
from tilth.model.service import ServiceKind, Switch, switches_in_force
from tilth.model.table import TableDef, full_name

#: Events of so long before a version was read are in it.
LATE_MS = 10_000
#: Version of a table without commits.
_UNUSED = TableVersion()
_NAMES = frozenset(setting.name for setting in TABLE_SETTINGS.all)


def settings_of_table(definition: TableDef) -> TableSettings:
    """Return the table's settings for maintenance. Raises BadSettingError; settings of other rooms are left to them."""
    return _parsed(frozenset((name, text) for name, text in definition.settings.items() if name in _NAMES))


@lru_cache(maxsize=1024)
def _parsed(given: frozenset[tuple[str, str]]) -> TableSettings:
    """Remembered: of ten thousand tables most have the same settings."""
    return table_settings(dict(given))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLeftovers:
    """The kinds of records that a table had when it was registered; the part log reports those that come later."""

    has_deltas: bool
    has_ended_deltas: bool
    has_trash: bool


class TableWatch:
    """The shared memory of one table's ops. Hold `lock` for all but `definition`, `settings`, `uuid`, `reserved`,
    `damaged`, `mutations`, `version` and `leftovers`."""

    def __init__(self, definition: TableDef, *, version: TableVersion = _UNUSED, read_ms: int = 0) -> None:
        """`version`, as it was read at `read_ms`; 0: not known."""
        self.uuid = definition.uuid
        self.definition = definition
        self.settings = settings_of_table(definition)
        self.lock = threading.RLock()
        #: Set when the table is gone or the server stops.
        self.is_cancelled = threading.Event()
        #: The parts that waiting or running work has for itself.
        self.reserved = ReservedParts(self.lock)
        #: Parts that merges and compactions of deltas leave out.
        self.damaged = DamagedParts(self.lock)
        #: Entries that some part may still need, oldest first; replaced as a whole.
        self.mutations: tuple[Mutation, ...] = ()
        self.stats: dict[str, PartitionStats] = {}
        self.workload = Workload()
        #: Callback when `is_woken` is set, on any thread.
        self.woken: Callable[[str], None] | None = None
        #: Version of the table when the versions of all tables were read last.
        self.version = version
        #: Time of that reading; 0: something was reported since, or the version is not known.
        self._current_ms = read_ms
        #: None: not known, so that each op reads what it needs to know.
        self.leftovers: TableLeftovers | None = None
        #: Number of explanations of changes: up to now, up to the last reading of versions, and up to the reading
        #: before a change that nothing has explained yet.
        self._explanations = self._explanations_read = 0
        self._unexplained_at: int | None = None
        self._is_woken = True
        #: Time of the next poll if `is_woken` is not set, milliseconds since 1970.
        self.due_ms = 0
        self._switches: tuple[Switch, ...] = ()

    @property
    def is_woken(self) -> bool:
        """Set when something has changed; the ops are polled in the next turn."""
        return self._is_woken

    @is_woken.setter
    def is_woken(self, is_woken: bool) -> None:
        was_woken, self._is_woken = self._is_woken, is_woken
        if is_woken and not was_woken and self.woken is not None:
            self.woken(self.uuid)

    @property
    def name(self) -> str:
        """`database.table`."""
        return full_name(self.definition)

    def redefine(self, definition: TableDef) -> None:
        """The table was renamed, or its columns or settings have changed."""
        if definition != self.definition:
            self.settings = settings_of_table(definition)
            self.definition = definition
            self.explain_change()
            self.is_woken = True

    def set_mutations(self, pending: Iterable[Mutation]) -> bool:
        """Note what is pending now, oldest first; True if that is something else than before."""
        before, self.mutations = self.mutations, tuple(pending)
        # The progress of one of them is no news.
        if [entry.id for entry in before] == [entry.id for entry in self.mutations]:
            return False
        self.explain_change()
        self.is_woken = True
        return True

    def set_version(self, version: TableVersion, *, read_ms: int) -> bool:
        """Note the version as it was read at that time; True if it has changed before the last reading, and the part
        log has reported nothing of the table since then: an event may have been missed.
        """
        is_missed = self._unexplained_at == self._explanations
        self._unexplained_at = None if version is self.version or version == self.version else self._explanations_read
        self._explanations_read, self.version = self._explanations, version
        self._current_ms = read_ms
        return is_missed

    @property
    def explanations(self) -> int:
        """Number of changes of the table that were reported or made by its own work."""
        return self._explanations

    @property
    def has_no_segments(self) -> bool:
        """True if the table had no row segments when its version was read, and nothing has been reported since."""
        return self._current_ms > 0 and not self.version.segments

    def doubt_version(self) -> None:
        """Note that changes of the table may not have been reported."""
        self._current_ms = 0
        self.explain_change()

    def explain_change(self) -> None:
        """Note that a change of the version is known otherwise: reported, or made by the table's own work."""
        self._explanations += 1

    def set_switches(self, switches: Iterable[Switch]) -> None:
        """Note the switches of this table and those of all tables."""
        switched = tuple(switches)
        if switched != self._switches:
            self._switches = switched
            self.is_woken = True

    @property
    def has_switches(self) -> bool:
        """`True` if a user has ever switched a service of this table, or of all tables."""
        return bool(self._switches)

    def switch(self, service: ServiceKind, now_ms: int = 0) -> Switch | None:
        """Return the user's last switch of the service, unless that is over at `now_ms`."""
        return switches_in_force(self._switches, now_ms=now_ms).get(service) if self._switches else None

    def is_on(self, service: ServiceKind, now_ms: int) -> bool:
        """True if the user lets the service run."""
        return is_on(self.switch(service, now_ms), now_ms=now_ms)

    def observe(self, event: PartEvent) -> str:
        """Count an event of the part log; return the partition it is about."""
        partition = parse_part_name(event.part).partition
        self.explain_change()
        # Clocks of servers differ a little, and commits land a little after their time.
        if event.at_ms > self._current_ms - LATE_MS:
            self._current_ms = 0
        with self.lock:
            known = self.stats.get(partition, PartitionStats(partition=partition))
            self.stats[partition] = _counted(known, event)
            if event.event == "new":
                self.workload.add(rows=event.rows)
        return partition


def _counted(stats: PartitionStats, event: PartEvent) -> PartitionStats:
    now = event.at_ms / 1000
    match event.event:
        case "new":
            return stats.with_insert(now=now, parts=1, size=event.bytes)
        case "merge":
            return stats.with_merge(now=now, parts=event.sources, size=event.bytes)
        case "trash":
            return stats.with_removal(parts=1, size=event.bytes)
        case "mutate" | "hide" | "remove_deleted":
            return stats.with_end(parts=max(1, event.sources), size=event.bytes)
        case "undrop":
            return stats.with_end(parts=-max(1, event.sources), size=-event.bytes)
        case _:
            return stats
