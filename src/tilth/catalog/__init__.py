"""What is true: tables, parts, offsets, leases, transactions, in one ordered key-value store.

Covers: definitions, snapshots, GC end times, transactions with three outcomes, mutations, leases and fences, trash,
part log, audit log.
Does not cover: bytes of files (tilth.storage), who decides to act (tilth.ingest, tilth.maintenance).
Always holds: a transaction's changes become true in one batch or never; a fenced actor commits nothing; a table's
timestamps rise; what the past showed it still shows until it is moved to the trash. See also: catalog/keys.py, kv/.
"""

from tilth.catalog import visibility
from tilth.catalog.catalog import Catalog
from tilth.catalog.clock import HybridClock
from tilth.catalog.commit import CommitOutcome, Committed, Conflicted
from tilth.catalog.errors import (
    BadMergeError,
    DatabaseExistsError,
    DatabaseNotEmptyError,
    DatabaseNotFoundError,
    InvariantError,
    LeaseHeldError,
    MutationEndedError,
    MutationNotFoundError,
    NewerFormatError,
    NothingToUndropError,
    OffsetsMovedError,
    PartsGoneError,
    ReservedNameError,
    SchemaChangedError,
    StoreClosedError,
    StoreIOError,
    StoreLockedError,
    TableExistsError,
    TableInUseError,
    TableNotFoundError,
    TooManyConflictsError,
    TooManyPartsError,
    TxnAbortedError,
    TxnFinishedError,
    TxnNotFoundError,
    TxnRunningError,
    WrongEngineError,
)
from tilth.catalog.kv import KeyValue, Unknown
from tilth.catalog.kv.memory import MemoryKV
from tilth.catalog.kv.rocksdb import RocksKV
from tilth.catalog.names import DEFAULT_DATABASE, SYSTEM_DATABASE
from tilth.catalog.pressure import InsertDelay, PressureSettings, insert_delay_ms, pressure_settings, worst_delay
from tilth.catalog.records import DroppedTable, TableVersion
from tilth.catalog.requirements import FenceHeld, PartsBelow, PartsVisible, Requirement, SchemaIs, TableExists
from tilth.catalog.settings import CACHE_BYTES, COMMIT_ATTEMPTS_MAX, NODE_SETTINGS, PRESSURE_SETTINGS
from tilth.catalog.stats import CatalogStats
from tilth.catalog.trash import TrashedPart
from tilth.catalog.updates import (
    AcceptMutation,
    AddGap,
    AddLedger,
    AdvanceOffsets,
    ClearOffsets,
    DropPartition,
    ExpirePartition,
    InsertPart,
    ReplaceParts,
    ResolveGaps,
    RewritePart,
    SetOffsets,
    StartMutation,
    TruncateTable,
    UndropPartition,
    Update,
)

__all__ = [
    "CACHE_BYTES",
    "COMMIT_ATTEMPTS_MAX",
    "DEFAULT_DATABASE",
    "NODE_SETTINGS",
    "PRESSURE_SETTINGS",
    "SYSTEM_DATABASE",
    "AcceptMutation",
    "AddGap",
    "AddLedger",
    "AdvanceOffsets",
    "BadMergeError",
    "Catalog",
    "CatalogStats",
    "ClearOffsets",
    "CommitOutcome",
    "Committed",
    "Conflicted",
    "DatabaseExistsError",
    "DatabaseNotEmptyError",
    "DatabaseNotFoundError",
    "DropPartition",
    "DroppedTable",
    "ExpirePartition",
    "FenceHeld",
    "HybridClock",
    "InsertDelay",
    "InsertPart",
    "InvariantError",
    "KeyValue",
    "LeaseHeldError",
    "MemoryKV",
    "MutationEndedError",
    "MutationNotFoundError",
    "NewerFormatError",
    "NothingToUndropError",
    "OffsetsMovedError",
    "PartsBelow",
    "PartsGoneError",
    "PartsVisible",
    "PressureSettings",
    "ReplaceParts",
    "Requirement",
    "ReservedNameError",
    "ResolveGaps",
    "RewritePart",
    "RocksKV",
    "SchemaChangedError",
    "SchemaIs",
    "SetOffsets",
    "StartMutation",
    "StoreClosedError",
    "StoreIOError",
    "StoreLockedError",
    "TableExists",
    "TableExistsError",
    "TableInUseError",
    "TableNotFoundError",
    "TableVersion",
    "TooManyConflictsError",
    "TooManyPartsError",
    "TrashedPart",
    "TruncateTable",
    "TxnAbortedError",
    "TxnFinishedError",
    "TxnNotFoundError",
    "TxnRunningError",
    "UndropPartition",
    "Unknown",
    "Update",
    "WrongEngineError",
    "insert_delay_ms",
    "pressure_settings",
    "visibility",
    "worst_delay",
]
