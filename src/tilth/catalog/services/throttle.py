"""Back-pressure on the writers of a table: its limits, its present counts, and totals of what was slowed.

Covers: the wait of one write, the requirement of its commit. Does not cover: the formula (rules/pressure.py), the
waiting.

Tests: tests/unit/catalog/rules/test_pressure.py.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import nlargest
from operator import itemgetter

from tilth.base.clock import Clock
from tilth.base.settings import setting_of, settings_of
from tilth.catalog.errors import TooManyPartsError
from tilth.catalog.parts.parts import Parts
from tilth.catalog.records.nouns import TableVersion
from tilth.catalog.rules.pressure import InsertDelay, check_counts, pressure_settings, round_delay_ms, worst_delay
from tilth.catalog.rules.requirements import PartsBelow
from tilth.catalog.services.switches import ServiceSwitches
from tilth.catalog.settings import PressureSettings
from tilth.catalog.stats import Counters
from tilth.model.service import ALL_TABLES, ServiceKind, Switch, SwitchState, switches_in_force
from tilth.model.table import TableDef, full_name

_DEFAULTS = PressureSettings()
_SETTINGS = frozenset(each.name for each in settings_of(PressureSettings))
#: Facts of a refusal that are settings.
_LIMITS = frozenset(setting_of(PressureSettings, name).name for name in ("throw", "total"))


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertPressure:
    """Effect of the number of parts on INSERTs into a partition."""

    #: `False`: they wait.
    is_refused: bool
    #: The effect, the number of parts and the setting.
    text: str


class Throttle:
    """`catalog.throttle`."""

    def __init__(self, clock: Clock, parts: Parts, services: ServiceSwitches, counters: Counters) -> None:
        self._clock = clock
        self._parts = parts
        self._services = services
        self._counters = counters

    def judge(self, table: TableDef) -> dict[str, InsertPressure]:
        """Describe by partition why INSERTs into it wait or are refused; only partitions where they do.

        Nothing is counted: this is for queries of users.
        """
        settings, counts = pressure_settings(table.settings), self._parts.counts(table.uuid)
        found: dict[str, InsertPressure] = {}
        for partition in counts:
            try:
                check_counts(counts, [partition], settings)
            except TooManyPartsError as error:
                limit = "; ".join(f"{name} = {value}" for name, value in error.facts.items() if name in _LIMITS)
                text = f"refused: {error.facts['parts']} parts, {limit}"
                found[partition] = InsertPressure(is_refused=True, text=text)
                continue
            delay = worst_delay(counts, [partition], settings)
            if delay is not None:
                wait = f"{delay.milliseconds:.0f} ms: {delay.parts} parts, parts_to_delay_insert = {settings.delay}"
                found[partition] = InsertPressure(is_refused=False, text=f"wait {wait}")
        why = self._why_unmerged(table) if found else ""
        return {name: replace(each, text=f"{each.text}; {why}") if why else each for name, each in found.items()}

    def crowded(
        self, tables: Iterable[TableDef], versions: Mapping[str, TableVersion], *, limit: int
    ) -> Iterator[tuple[TableDef, dict[str, InsertPressure]]]:
        """Yield the tables in which INSERTs wait or are refused, judged. Parts are counted, by a read for each table,
        where a table has as many as its first limit by its version: of `limit` tables, the largest ones first.
        """
        large = [
            (version.counted_parts, table)
            for table in tables
            if (version := versions.get(table.uuid)) is not None and version.counted_parts >= _first_limit(table)
        ]
        for _, table in nlargest(limit, large, key=itemgetter(0)):
            if judged := self.judge(table):
                yield table, judged

    def is_calm(self, table: TableDef) -> bool:
        """True when no partition of the table slows or refuses anybody."""
        settings = pressure_settings(table.settings)
        first = settings.delay or settings.throw
        # No partition has more parts than the table: mostly one record is enough.
        if self._parts.version(table.uuid).parts < _least(settings):
            return True
        counts = self._parts.counts(table.uuid)
        is_low = not first or max(counts.values(), default=0) < first
        return is_low and (not settings.total or sum(counts.values()) < settings.total)

    def delay(self, table: TableDef, partitions: Collection[str] | None = None) -> InsertDelay | None:
        """Return how long a write waits before it begins, and count the wait; None: not at all.

        The wait follows from the partitions that the write goes to, or from the fullest of the table where these are
        not known.
        """
        settings = pressure_settings(table.settings)
        counts = self._parts.counts(table.uuid)
        found = worst_delay(counts, counts if partitions is None else partitions, settings)
        if found is not None:
            self._counters.count_delay(found.milliseconds / 1000)
        return found

    def round_delay(self, table: TableDef, partitions: Collection[str]) -> InsertDelay | None:
        """Return how long a consumer's round waits that writes into these partitions, and count the wait; None: not at
        all.

        Beyond the wait of every write, a round waits for merges that fall behind, unless the user has stopped them.
        """
        found = self.delay(table, partitions)
        settings = pressure_settings(table.settings)
        if not settings.rounds or self._are_merges_stopped(table):
            return found
        for partition in partitions:
            unmerged = sum(
                part.name.level == 0 and not part.is_segment for part in self._parts.visible(table.uuid, partition)
            )
            wait = round_delay_ms(unmerged, rounds=settings.rounds, max_delay_seconds=settings.max_delay_seconds)
            if wait > (0.0 if found is None else found.milliseconds):
                noun = "parts that wait for a merge"
                found = InsertDelay(milliseconds=wait, partition=partition, parts=unmerged, noun=noun)
        return found

    def check(self, table: TableDef, partitions: Collection[str]) -> None:
        """Refuse before anything is written what the commit would refuse. Raises TooManyPartsError."""
        try:
            check_counts(self._parts.counts(table.uuid), partitions, pressure_settings(table.settings))
        except TooManyPartsError as error:
            self._counters.count_crowded()
            hint = self._why_unmerged(table) or error.hint
            raise TooManyPartsError(error.message, hint=hint, table=full_name(table)) from error

    def requirement(self, table: TableDef) -> PartsBelow:
        """Return the requirement that the commit of an insert carries."""
        settings = pressure_settings(table.settings)
        return PartsBelow(table=table.uuid, per_partition=settings.throw, total=settings.total)

    def _are_merges_stopped(self, table: TableDef) -> bool:
        return self._stopped_by(table) is not None

    def _stopped_by(self, table: TableDef) -> Switch | None:
        """Return the switch by which the user has stopped the table's merges; None: they may run."""
        switches = [each for each in self._services.all() if each.table in (table.uuid, ALL_TABLES)]
        switch = switches_in_force(switches, now_ms=self._clock.now_ms()).get(ServiceKind.MERGE)
        return None if switch is None or switch.state is SwitchState.RUNNING else switch

    def _why_unmerged(self, table: TableDef) -> str:
        """Hint that the user has stopped the merges that would make room; empty: the user has not."""
        now_ms = self._clock.now_ms()
        switch = self._stopped_by(table)
        if switch is None:
            return ""
        rest = f" for {(switch.until_ms - now_ms) / 1000:.0f} s more" if switch.until_ms else ""
        because = f" ({switch.because})" if switch.because else ""
        return f"merges of the table are stopped{rest}{because}: SYSTEM START MERGES {full_name(table)}"


def _first_limit(table: TableDef) -> float:
    """Return the number of parts of a table from which on a partition may be slowed; infinite: never."""
    # Few tables have such settings: those of ten thousand need not be read each time.
    given = pressure_settings(table.settings) if _SETTINGS & table.settings.keys() else _DEFAULTS
    return _least(given)


def _least(settings: PressureSettings) -> float:
    limits = (settings.delay or settings.throw, settings.total)
    return min((limit for limit in limits if limit), default=math.inf)
