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
    from tilth.maintenance.copies.task_spark import copy_runner
    from tilth.maintenance.deltas.task_spark import delta_runner
    from tilth.maintenance.manager.manager import MaintenanceManager
    from tilth.maintenance.mutate.task_spark import mutate_runner
    from tilth.maintenance.policy.expiry import is_expired, ttl_of
    from tilth.maintenance.policy.settings import TABLE_SETTINGS, GcSettings, gc_settings, table_settings
    from tilth.maintenance.settings import NODE_SETTINGS, ManagerSettings
    from tilth.maintenance.stats import (
        RUN_MILLISECONDS,
        ChoiceRow,
        FlushReport,
        GcReport,
        GcRow,
        MaintenanceNumbers,
        ManagerStatus,
        MergeCandidateRow,
        MutationProgress,
        OpNumbers,
        OpRow,
        OpRun,
        OptimizeReport,
        ScrubRow,
    )
    from tilth.maintenance.work.damage import CURE, DamageBook, DamagedFile, unreadable
    from tilth.maintenance.work.left_files import sweep_transaction
    from tilth.maintenance.work.sweeper import Sweeper
    from tilth.maintenance.work.task_spark import flush_runner, merge_runner
else:
    __getattr__ = door(__name__)

__all__ = [
    "CURE",
    "NODE_SETTINGS",
    "RUN_MILLISECONDS",
    "TABLE_SETTINGS",
    "ChoiceRow",
    "DamageBook",
    "DamagedFile",
    "FlushReport",
    "GcReport",
    "GcRow",
    "GcSettings",
    "MaintenanceManager",
    "MaintenanceNumbers",
    "ManagerSettings",
    "ManagerStatus",
    "MergeCandidateRow",
    "MutationProgress",
    "OpNumbers",
    "OpRow",
    "OpRun",
    "OptimizeReport",
    "ScrubRow",
    "Sweeper",
    "copy_runner",
    "delta_runner",
    "flush_runner",
    "gc_settings",
    "is_expired",
    "merge_runner",
    "mutate_runner",
    "sweep_transaction",
    "table_settings",
    "ttl_of",
    "unreadable",
]
