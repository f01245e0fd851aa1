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
    from tilth.maintenance.manager.manager import MaintenanceManager
    from tilth.maintenance.op import OpKind
    from tilth.maintenance.policy.expiry import is_expired, ttl_of
    from tilth.maintenance.policy.settings import TABLE_SETTINGS, GcSettings, gc_settings, table_settings
    from tilth.maintenance.runners import maintenance_runners
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
    "OpKind",
    "OpNumbers",
    "OpRow",
    "OpRun",
    "OptimizeReport",
    "ScrubRow",
    "Sweeper",
    "gc_settings",
    "is_expired",
    "maintenance_runners",
    "sweep_transaction",
    "table_settings",
    "ttl_of",
    "unreadable",
]
