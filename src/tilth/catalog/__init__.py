"""Catalog: tables, parts, offsets, leases, transactions, in one ordered key-value store.

Covers: definitions, snapshots, GC end times, transactions with three outcomes, mutations, leases and fences, trash,
part log, audit log.
Does not cover: bytes of files (tilth.storage), who decides to act (tilth.ingest, tilth.maintenance).
Always holds: a transaction's changes become true in one batch or never; a fenced actor commits nothing; a table's
timestamps rise; what the past showed it still shows until it is moved to the trash. See also: catalog/records/keys.py,
kv/.
"""

from typing import TYPE_CHECKING

from tilth.base.doors import door

if TYPE_CHECKING:
    from tilth.catalog.catalog import Catalog, KnownFiles
    from tilth.catalog.commit.commit import CommitOutcome, Committed, Conflicted
    from tilth.catalog.commit.tombstones import TxnTrace
    from tilth.catalog.commit.txn_handle import Sweep, TxnHandle, rebase
    from tilth.catalog.errors import (
        BadMergeError,
        BatchLandedError,
        CatalogAwayError,
        CatalogExistsError,
        CatalogMovedError,
        ClockSkewError,
        ColumnsPendingError,
        DatabaseNotFoundError,
        DeltasGoneError,
        FileTakenError,
        InvariantError,
        LabelTakenError,
        LeaseHeldError,
        MutationEndedError,
        MutationNotFoundError,
        NewerFormatError,
        NothingToUndropError,
        NotHostedError,
        OffsetsMovedError,
        PartsChangedError,
        PartsGoneError,
        ReplicaNeededError,
        ReservedNameError,
        SchemaChangedError,
        ServerNameTakenError,
        ServerVersionError,
        StorageChangedError,
        StoreClosedError,
        StoreIOError,
        StoreLockedError,
        SubscriptionMovedError,
        TableExistsError,
        TableInUseError,
        TableNotFoundError,
        TooManyConflictsError,
        TooManyPartsError,
        TxnAbortedError,
        TxnFinishedError,
        TxnNotFoundError,
        WrongEngineError,
    )
    from tilth.catalog.kv import KeyValue, Unknown
    from tilth.catalog.kv.delegating import DelegatingKV
    from tilth.catalog.kv.dump import (
        BadDumpError,
        ByteSink,
        ByteSource,
        DumpHeader,
        load_dump,
        read_dump,
        read_key_changes,
        write_key_changes,
        write_view,
    )
    from tilth.catalog.kv.followed import FollowedKV, KeyChanges
    from tilth.catalog.kv.grouped import GroupedKV
    from tilth.catalog.kv.memory import MemoryKV
    from tilth.catalog.kv.postgres import PostgresKV
    from tilth.catalog.kv.postgres_address import parse_postgres
    from tilth.catalog.kv.postgres_inspect import DatabaseFacts, inspect_postgres
    from tilth.catalog.kv.postgres_watch import PostgresWatch
    from tilth.catalog.kv.protocol import ALL_NEWS
    from tilth.catalog.kv.rocksdb import RocksKV, inspect_rocks
    from tilth.catalog.parts.parts import Leftovers, PartitionParts
    from tilth.catalog.parts.totals import NO_ROWS, TableTotals
    from tilth.catalog.parts.trash import TrashedPart
    from tilth.catalog.records.hybrid_clock import HybridClock
    from tilth.catalog.records.keys import is_journaled, news_of
    from tilth.catalog.records.living import check_upgrade
    from tilth.catalog.records.nouns import DroppedTable, FormerKafkaTable, LabelRecord, StreamRecord, TableVersion
    from tilth.catalog.rules import visibility
    from tilth.catalog.rules.pressure import InsertDelay, insert_delay_ms, pressure_settings, worst_delay
    from tilth.catalog.rules.requirements import (
        NoRowsSince,
        PartsBelow,
        Requirement,
        SchemaIs,
    )
    from tilth.catalog.rules.updates import (
        AcceptMutation,
        AddDelta,
        AddGap,
        AddLedger,
        AdvanceOffsets,
        ExpirePartition,
        HideEverything,
        HidePartition,
        InsertBatch,
        InsertLabel,
        InsertPart,
        LoadFile,
        Release,
        ReplaceDeltas,
        ReplaceParts,
        ResolveGaps,
        RestorePartition,
        RewritePart,
        SetOffsets,
        StartMutation,
        Subscribe,
        Unsubscribe,
        Update,
    )
    from tilth.catalog.services.placements import Placements
    from tilth.catalog.services.results import ResultFolder, ResultFolders
    from tilth.catalog.services.servers import Joining, Servers
    from tilth.catalog.services.switches import MOVED
    from tilth.catalog.services.table_leases import TableLeases
    from tilth.catalog.services.throttle import InsertPressure
    from tilth.catalog.settings import (
        NODE_SETTINGS,
        PRESSURE_SETTINGS,
        AuditSettings,
        CatalogSettings,
        PressureSettings,
    )
    from tilth.catalog.stats import CatalogStats
    from tilth.catalog.tables.names import DEFAULT_DATABASE, SYSTEM_DATABASE
else:
    __getattr__ = door(__name__)
