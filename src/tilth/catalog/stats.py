"""Counters of the catalog since it was opened, as one frozen snapshot.

Tests: tests/unit/catalog/commit/test_transactions.py.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from tilth.base.errors import ErrorKind, TilthError
from tilth.base.metrics import counter, gauge
from tilth.catalog.errors import TooManyPartsError


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogStats:
    """Counters of this process, from zero at its start."""

    #: A repeated one counts twice.
    commits: int = counter("tilth_transactions_committed_total", "Transactions that landed.")
    files_loaded: int = counter("tilth_files_loaded_total", "Files whose rows COPY INTO has stored.")
    refused: int = counter("tilth_transactions_refused_total", "Transactions that were refused, fenced ones too.")
    fenced: int = counter("tilth_transactions_fenced_total", "Refused because another actor had taken over.")
    unknown: int = counter("tilth_transactions_unknown_total", "Transactions whose outcome could not be found out.")
    conflicts: int = counter("tilth_commit_conflicts_total", "Commits folded again after another's commit.")
    commit_seconds: float = counter("tilth_commit_seconds_total", "Time spent in commits.")
    commit_seconds_max: float = gauge("tilth_commit_seconds_max", "The longest commit since the start.")
    crowded: int = counter(
        "tilth_inserts_rejected_total", "Writes that were refused because there were too many parts."
    )
    delayed: int = counter("tilth_inserts_delayed_total", "Writes that were slowed because a partition had many parts.")
    delay_seconds: float = counter("tilth_inserts_delay_seconds_total", "By how much they were slowed, in all.")


class Counters:
    """Counters of commits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stats = CatalogStats()

    def stats(self) -> CatalogStats:
        return self._stats

    def count_conflict(self) -> None:
        with self._lock:
            self._stats = replace(self._stats, conflicts=self._stats.conflicts + 1)

    def count_landed(self, *, files: int) -> None:
        """Count a transaction; `files`: those of users that it has loaded."""
        with self._lock:
            loaded = self._stats.files_loaded + files
            self._stats = replace(self._stats, commits=self._stats.commits + 1, files_loaded=loaded)

    def count_unknown(self) -> None:
        with self._lock:
            self._stats = replace(self._stats, unknown=self._stats.unknown + 1)

    def count_refused(self, error: TilthError) -> None:
        with self._lock:
            fenced = self._stats.fenced + (error.kind is ErrorKind.FENCED)
            crowded = self._stats.crowded + isinstance(error, TooManyPartsError)
            self._stats = replace(self._stats, refused=self._stats.refused + 1, fenced=fenced, crowded=crowded)

    def count_crowded(self) -> None:
        """Count a write that was refused before its transaction began."""
        with self._lock:
            self._stats = replace(self._stats, crowded=self._stats.crowded + 1)

    def count_delay(self, seconds: float) -> None:
        with self._lock:
            total = self._stats.delay_seconds + seconds
            self._stats = replace(self._stats, delayed=self._stats.delayed + 1, delay_seconds=total)

    def count_time(self, seconds: float) -> None:
        with self._lock:
            longest = max(self._stats.commit_seconds_max, seconds)
            total = self._stats.commit_seconds + seconds
            self._stats = replace(self._stats, commit_seconds=total, commit_seconds_max=longest)
