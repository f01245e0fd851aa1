"""Statements: one frozen value for each. Pure.

Covers: the nouns that `parse` returns and `render` takes. Does not cover: what they do (statements/engine.py).
Always holds: expressions, predicates and SELECTs are kept as they were written; setting values are text, without
quotes; a missing database means the session's. See also: parse.py, render.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from tilth.grammar.literal_values import Value
from tilth.grammar.storage_statements import StorageStatement
from tilth.grammar.warehouse_statements import WarehouseStatement
from tilth.model.checks import Check, Path
from tilth.model.service import ServiceKind
from tilth.model.table import ColumnKind, Engine, Transform
from tilth.model.types import DataType

#: Names and texts of settings, in the order given; no name twice.
SettingTexts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a table, a Kafka table or a view."""

    #: None: the session's database.
    database: str | None
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}" if self.database else self.table


@dataclass(frozen=True, slots=True)
class PartitionId:
    """`PARTITION ID 'x'`: a partition by its id, as system tables show it."""

    id: str


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """`PARTITION ('eu', 202401)`: a partition by its values, one for each element of PARTITION BY."""

    values: tuple[Value, ...]


Partition = PartitionId | PartitionValues


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSpec:
    """A column as CREATE TABLE and ALTER TABLE describe it."""

    name: str
    type: DataType
    #: Type as written, then its constraints and the zones of times without one, as in Column.
    declared: str
    checks: tuple[Check, ...] = ()
    zones: tuple[tuple[Path, str], ...] = ()
    #: False only where NOT NULL is written; a ClickHouse type without Nullable is nullable too.
    nullable: bool = True
    #: A Spark SQL expression, and the word in front of it.
    default: str | None = None
    kind: ColumnKind = ColumnKind.DEFAULT
    #: Argument of CODEC(..), kept for SHOW CREATE, otherwise without effect.
    codec: str | None = None
    comment: str = ""
    #: `True` if NULL or Nullable is written: nullability is then explicit and not only the default.
    says_null: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Anything that Spark SQL answers."""

    #: Text from its beginning, so that positions in Spark's messages fit.
    text: str
    format: str | None = None
    #: Values in a trailing SETTINGS.
    settings: SettingTexts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDatabase:
    database: str
    if_not_exists: bool = False
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDatabase:
    database: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UseDatabase:
    database: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowDatabases:
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTables:
    database: str | None = None
    like: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowPartitions:
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowFunctions:
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSettings:
    """SET: for the statements of this connection that follow."""

    settings: SettingTexts


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingToDo:
    """A statement whose purpose is always fulfilled here."""

    #: Statement as written, in upper case.
    words: str
    #: Reason why there is nothing to do.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSettings:
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreate:
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistsTable:
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """A table or a Kafka table."""

    name: Name
    columns: tuple[ColumnSpec, ...]
    #: MERGE_TREE or KAFKA; other systems' names of them are read as these.
    engine: Engine
    if_not_exists: bool = False
    partition_by: tuple[Transform, ...] = ()
    #: Not written: the primary key, or else the unique key.
    order_by: tuple[str, ...] = ()
    #: Prefix of the sort key, as written.
    primary_key: tuple[str, ...] = ()
    unique_key: tuple[str, ...] = ()
    #: Column in `MergeTree(column)`: its greater value makes a row the newer of two with one key.
    version_column: str | None = None
    ttl: str | None = None
    #: Settings, with those in `Kafka('brokers', ..)`.
    settings: SettingTexts = ()
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView:
    """A materialized view."""

    name: Name
    target: Name
    #: A SELECT, exactly as written.
    select: str
    #: Names for the SELECT's columns; empty: its own.
    columns: tuple[str, ...] = ()
    if_not_exists: bool = False
    comment: str = ""
    #: Settings of this statement; only `dialect` has a meaning.
    settings: SettingTexts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable:
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropView:
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UndropTable:
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateTable:
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTable:
    old: Name
    new: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifySetting:
    settings: SettingTexts


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetSetting:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumn:
    column: ColumnSpec
    if_not_exists: bool = False
    #: The column that it follows; None: the last one, unless `first`.
    after: str | None = None
    first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumn:
    column: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyColumn:
    column: ColumnSpec
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeColumn:
    """MODIFY COLUMN without a type, COMMENT COLUMN: what is not said stays; at least one thing is said."""

    column: str
    default: str | None = None
    kind: ColumnKind = ColumnKind.DEFAULT
    #: REMOVE and the kind; then it says nothing else.
    no_default: bool = False
    comment: str | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn:
    old: str
    new: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyTtl:
    ttl: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTtl:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class MutateUpdate:
    """ALTER TABLE .. UPDATE: a mutation that runs in the background."""

    assignments: tuple[tuple[str, str], ...]
    predicate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MutateDelete:
    """ALTER TABLE .. DELETE: a mutation that runs in the background."""

    predicate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPartition:
    partition: Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class UndropPartition:
    """Brings back what the newest DROP PARTITION or TRUNCATE hid."""

    partition: Partition


ColumnOperation = AddColumn | DropColumn | ModifyColumn | DescribeColumn | RenameColumn
AlterOperation = (
    ColumnOperation
    | ModifySetting
    | ResetSetting
    | ModifyTtl
    | RemoveTtl
    | MutateUpdate
    | MutateDelete
    | DropPartition
    | UndropPartition
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTable:
    name: Name
    #: One operation of any kind, or several on columns.
    operations: tuple[AlterOperation, ...]
    #: Settings of this statement, not of the table.
    settings: SettingTexts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertValues:
    name: Name
    rows: tuple[tuple[Value, ...], ...]
    #: Empty: all columns of the table in their order.
    columns: tuple[str, ...] = ()
    settings: SettingTexts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertQuery:
    name: Name
    query: str
    columns: tuple[str, ...] = ()
    settings: SettingTexts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertData:
    name: Name
    format: str
    #: Text after the line of FORMAT, unchanged.
    data: str
    columns: tuple[str, ...] = ()
    settings: SettingTexts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRows:
    name: Name
    predicate: str
    settings: SettingTexts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRows:
    name: Name
    #: Column and Spark SQL expression.
    assignments: tuple[tuple[str, str], ...]
    predicate: str
    settings: SettingTexts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeTable:
    name: Name
    partition: Partition | None = None
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KillMutation:
    """Exactly one of id and predicate over `system.mutations` is given; the other one is None."""

    mutation: str | None = None
    predicate: str | None = None


class KillMode(StrEnum):
    #: Returns when they are asked to end.
    ASYNC = "ASYNC"
    #: Returns when they have ended.
    SYNC = "SYNC"
    #: Ends nothing, and says which ones it would.
    TEST = "TEST"


@dataclass(frozen=True, slots=True, kw_only=True)
class KillQuery:
    """Exactly one of id and predicate over `system.processes` is given; the other one is None."""

    query_id: str | None = None
    predicate: str | None = None
    mode: KillMode = KillMode.ASYNC


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupCatalog:
    """BACKUP CATALOG TO 'path'."""

    #: Path of the file in the node's backup folder.
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillFailover:
    """DRILL FAILOVER t [FOR SECONDS n]."""

    name: Name
    #: None: the statement does not say.
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class ShowProcesses:
    """SHOW PROCESSLIST."""


class SwitchVerb(StrEnum):
    START = "START"
    STOP = "STOP"
    #: Valid for CONSUME only.
    RESTART = "RESTART"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchService:
    """SYSTEM START | STOP | RESTART of a background service."""

    verb: SwitchVerb
    service: ServiceKind
    #: None: of every table, those that come later too. Never None for RESTART.
    name: Name | None = None
    #: Time after which the switch reverts; None: never.
    duration_ms: int | None = None
    because: str = ""


class RunVerb(StrEnum):
    FLUSH = "FLUSH"
    VERIFY = "VERIFY"
    SCRUB = "SCRUB"
    GC = "GC"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunService:
    """SYSTEM FLUSH | VERIFY | SCRUB | GC: once, now."""

    verb: RunVerb
    name: Name
    partition: Partition | None = None
    #: `True` for GC that ignores the retention time of old parts.
    is_forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFiles:
    """SYSTEM CHECK FILES: compares the files of a table's storage with the catalog."""

    name: Name
    #: `True` if old orphans are removed.
    is_repair: bool = False


class OffsetKeyword(IntEnum):
    """The places of a topic that have a name; the numbers are ByConity's and librdkafka's."""

    BEGIN = -2
    END = -1
    #: Offset that the broker has stored for the consumer group.
    STORED = -1000
    #: No offset: `auto_offset_reset` decides.
    INVALID = -1001


@dataclass(frozen=True, slots=True)
class ResetToMark:
    mark: OffsetKeyword


@dataclass(frozen=True, slots=True)
class ResetToTimestamp:
    """The first message at or after a time."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    topic: str
    partition: int
    #: The next one to read.
    offset: int


@dataclass(frozen=True, slots=True)
class ResetToOffsets:
    """Partitions that are not named keep their offsets."""

    offsets: tuple[PartitionOffset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetConsumeOffset:
    name: Name
    target: ResetToMark | ResetToTimestamp | ResetToOffsets


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDeadLetters:
    """SYSTEM REPLAY DEAD LETTERS: those of a Kafka table go through their views again."""

    name: Name
    #: Predicate over the columns of its dead-letter table; empty: all dead letters.
    predicate: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainMerge:
    """Explains the plans of the merge policy."""

    name: Name
    #: None: the table's own.
    policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainGc:
    """Explains which records garbage collection would take or leave."""

    name: Name


Statement = (
    Query
    | CreateDatabase
    | DropDatabase
    | UseDatabase
    | ShowDatabases
    | ShowTables
    | ShowSettings
    | ShowPartitions
    | ShowFunctions
    | ShowCreate
    | SetSettings
    | NothingToDo
    | Describe
    | ExistsTable
    | CreateTable
    | CreateView
    | DropTable
    | DropView
    | UndropTable
    | TruncateTable
    | RenameTable
    | AlterTable
    | InsertValues
    | InsertQuery
    | InsertData
    | DeleteRows
    | UpdateRows
    | OptimizeTable
    | KillMutation
    | KillQuery
    | BackupCatalog
    | DrillFailover
    | StorageStatement
    | WarehouseStatement
    | ShowProcesses
    | SwitchService
    | RunService
    | CheckFiles
    | ResetConsumeOffset
    | ReplayDeadLetters
    | ExplainMerge
    | ExplainGc
)
