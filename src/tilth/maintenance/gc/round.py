"""State that the phases of collecting share: the table, and the results of the present round.

Tests: tests/unit/maintenance/gc/test_history_gc.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tilth.base.errors import UnknownOutcomeError
from tilth.base.failpoints import hit
from tilth.base.hybrid import pack
from tilth.base.rand import Rng
from tilth.catalog import TableLeases, Update
from tilth.maintenance.gc.policy import Cutoff, cutoff
from tilth.maintenance.table.settings import GcSettings
from tilth.maintenance.work.context import TableContext
from tilth.model.history import ancient_mark
from tilth.model.lease import ReaderLease
from tilth.storage import Roots


@dataclass(frozen=True, slots=True)
class GcTable(TableContext):
    """One table as collecting sees it."""

    @property
    def root(self) -> Roots:
        return self.server.root

    @property
    def rng(self) -> Rng:
        return self.server.rng

    @property
    def table_leases(self) -> TableLeases:
        return self.server.table_leases

    @property
    def settings(self) -> GcSettings:
        return self.watch.settings.gc

    def leases(self, now_ms: int) -> list[ReaderLease]:
        """Return the leases that hold snapshots of the table now."""
        everything = self.catalog.readers.list()
        return [lease for lease in everything if lease.table == self.uuid and lease.expires_ms > now_ms]

    def limit(self, settings: GcSettings, *, is_background: bool = False) -> Cutoff:
        """Return the limit of phase 1 now; in the background as of shortly before, when another table's was needed."""
        holds = self.server.holds.lately() if is_background else self.server.holds.now()
        return cutoff(
            now_ms=holds.now_ms,
            oldest_txn=holds.oldest_txn,
            oldest_reader=holds.oldest_reader(self.uuid),
            oldest_named=holds.oldest_reader(self.uuid, is_named=True),
            ahm=ancient_mark(pack(holds.now_ms), settings.history),
            settings=settings,
        )

    def ancient_limit(self, settings: GcSettings, *, is_background: bool = False) -> Cutoff:
        """Return the limit of files that nobody brings back: no lifetime holds them where history is retained."""
        if settings.history >= 0:
            settings = replace(settings, old_parts_lifetime=0.0)
        return self.limit(settings, is_background=is_background)

    def commit(self, verb: str, failpoint: str, updates: Sequence[Update]) -> int:
        """Commit updates without files; return the transaction. `failpoint` begins the failpoints around it."""
        with self.begin(verb) as work:
            hit(f"{failpoint}.before_commit")
            try:
                work.commit(updates)
            except UnknownOutcomeError as error:
                # It wrote no files; where it cannot be aborted now, the cleaner does it.
                work.give_up(str(error), is_settled=True)
                raise
            hit(f"{failpoint}.after_commit")
        return work.id

    def forget_versions(self, ends: Sequence[int]) -> None:
        """Before files go that readers needed until these times: from then on no read finds the versions before."""
        if ends:
            self.catalog.history.trim(self.uuid, max(ends))


def promised_ms(settings: GcSettings) -> int:
    """Return how long after its end reads of the past may need a file at least."""
    return round((settings.old_parts_lifetime if settings.history < 0 else settings.history) * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class GcReport:
    """Report of one round of collecting; for SYSTEM GC, of the whole table."""

    partitions: int = 0
    #: Partitions whose rows had all expired, and that were dropped.
    expired: int = 0
    #: Records that left the table.
    moved: int = 0
    #: Ended records that stay for now.
    kept: int = 0
    #: Files that are gone, and their bytes.
    removed: int = 0
    removed_bytes: int = 0
    #: Items that the round has read and that stay in the trash for now.
    in_trash: int = 0
    #: Reason why the first item that stays does so.
    reason: str = ""


@dataclass(slots=True, kw_only=True)
class Round:
    """The results of the present round."""

    #: Settings in force for the round, and the only partition of a command; none: all.
    settings: GcSettings
    partition: str | None = None
    is_command: bool = False
    partitions: int = 0
    expired: int = 0
    moved: int = 0
    kept: int = 0
    removed: int = 0
    removed_bytes: int = 0
    in_trash: int = 0
    reason: str = ""
    #: Errors of items that stay; the rest of the round went on.
    failures: list[Exception] = field(default_factory=list)

    def report(self) -> GcReport:
        return GcReport(
            partitions=self.partitions,
            expired=self.expired,
            moved=self.moved,
            kept=self.kept,
            removed=self.removed,
            removed_bytes=self.removed_bytes,
            in_trash=self.in_trash,
            reason=self.reason,
        )


def joined(reports: Iterable[GcReport]) -> GcReport:
    """Return one report of several rounds."""
    found = list(reports)
    return GcReport(
        partitions=max((report.partitions for report in found), default=0),
        expired=sum(report.expired for report in found),
        moved=sum(report.moved for report in found),
        kept=sum(report.kept for report in found),
        removed=sum(report.removed for report in found),
        removed_bytes=sum(report.removed_bytes for report in found),
        in_trash=sum(report.in_trash for report in found),
        reason=next((report.reason for report in found if report.reason), ""),
    )
