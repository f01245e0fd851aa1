"""Load of a table: scans and rows a second, and the score made of them. Pure.

Rule: docs/policies/scheduling.md#workload.

Always holds: rates are those since the last baseline, made anew when a minute is over; the baseline moves on after
five.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilth.maintenance.kinds import LoadScore
from tilth.maintenance.settings import WorkloadSettings

#: Rates are computed anew after this, and counted from a later start after that.
RATE_MIN_MS = 60_000
BASELINE_MS = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates of the time since the baseline."""

    scans_per_second: float = 0.0
    rows_per_second: float = 0.0


class Workload:
    """The counts of one table. Hold the table's lock."""

    def __init__(self) -> None:
        self._scans = 0
        self._rows = 0
        #: Time, scans and rows.
        self._baseline: tuple[int, int, int] | None = None
        self._computed_ms = 0
        self._rates = Rates()

    def add(self, *, scans: int = 0, rows: int = 0) -> None:
        self._scans += scans
        self._rows += rows

    def rates(self, now_ms: int) -> Rates:
        """Return the rates that are known; they change once a minute at most."""
        if self._baseline is None:
            self._baseline = (now_ms, self._scans, self._rows)
            self._computed_ms = now_ms
        if now_ms - self._computed_ms > RATE_MIN_MS:
            began_ms, scans, rows = self._baseline
            seconds = (now_ms - began_ms) / 1000
            self._rates = Rates(
                scans_per_second=(self._scans - scans) / seconds, rows_per_second=(self._rows - rows) / seconds
            )
            self._computed_ms = now_ms
            if now_ms - began_ms > BASELINE_MS:
                self._baseline = (now_ms, self._scans, self._rows)
        return self._rates


def load_score(load: LoadScore | None, rates: Rates, settings: WorkloadSettings) -> float:
    """Return what the load of a table adds to the gain of an op for which such a load counts."""
    if not settings.is_enabled or load is None:
        return 0.0
    read = min(1.0, rates.scans_per_second / settings.hot_scans_per_second) * settings.upper_bound
    if load is LoadScore.READ:
        return read
    written = min(1.0, rates.rows_per_second / settings.hot_rows_per_second) * settings.upper_bound
    return min(settings.upper_bound, read + written)
