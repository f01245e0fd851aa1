"""Data kept in shape: parts are merged, what was replaced is collected, what did not land is cleaned up.

Covers: the maintenance manager, its ops, their policies and settings. Does not cover: how files are merged (storage),
where tasks run (warehouse), what is true (catalog).
Always holds: maintenance never aborts ingestion and is never aborted by it, unless its inputs were dropped; nothing is
deleted that a reader or a running transaction may need; every choice and every refusal has its reason.
See also: docs/policies; docs/operate for tuning.
"""

from typing import TYPE_CHECKING

from tilth.base.doors import door

if TYPE_CHECKING:
    from tilth.maintenance.cleaner.left_files import sweep_transaction
    from tilth.maintenance.cleaner.sweeper import Sweeper
    from tilth.maintenance.copies.op import ScrubRow
    from tilth.maintenance.damage.book import CURE, DamageBook, DamagedFile, unreadable
    from tilth.maintenance.flush.commands import FlushReport
    from tilth.maintenance.gc.explain_gc import GcRow
    from tilth.maintenance.gc.round import GcReport
    from tilth.maintenance.kinds import OpKind
    from tilth.maintenance.manager.manager import MaintenanceManager
    from tilth.maintenance.manager.optimize import OptimizeReport
    from tilth.maintenance.merge.explain_merge import MergeCandidateRow
    from tilth.maintenance.mutate.commands import MutationProgress
    from tilth.maintenance.runners import maintenance_runners
    from tilth.maintenance.settings import NODE_SETTINGS, ManagerSettings
    from tilth.maintenance.stats import (
        RUN_MILLISECONDS,
        ChoiceRow,
        MaintenanceNumbers,
        ManagerStatus,
        OpNumbers,
        OpRow,
        OpRun,
    )
    from tilth.maintenance.table.settings import TABLE_SETTINGS, GcSettings, gc_settings, table_settings
    from tilth.maintenance.table.ttl import is_expired, ttl_of
else:
    __getattr__ = door(__name__)
