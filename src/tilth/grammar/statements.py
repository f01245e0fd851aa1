"""Statements with texts of users that several rooms read: one frozen value for each. Pure.

Covers: queries, definitions, ALTER, rows in and changed. Does not cover: all other statements, whose values stand
beside what they do (tilth.statements, tilth.introspection). Always holds: expressions, predicates and SELECTs are kept
as they were written; setting values are text, without quotes; a missing database means the session's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilth.model.checks import Check, Path
from tilth.model.literal import Value
from tilth.model.table import ColumnKind, Engine, Transform
from tilth.model.types import DataType

#: Names and texts of settings, in the order given; no name twice.
SettingTexts = tuple[tuple[str, str], ...]


class Statement:
    """A statement as a value; what it does is found by its class (statements/registry.py)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WithSettings(Statement):
    """A statement that can have settings of its own, which hold for it alone."""

    settings: SettingTexts = ()


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
    states_null: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(WithSettings):
    """Anything that Spark SQL answers."""

    #: Text from its beginning, so that positions in Spark's messages fit.
    text: str
    format: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable(Statement):
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
class CreateView(WithSettings):
    """A materialized view."""

    name: Name
    target: Name
    #: A SELECT, exactly as written.
    select: str
    #: Names for the SELECT's columns; empty: its own.
    columns: tuple[str, ...] = ()
    if_not_exists: bool = False
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTable(Statement):
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
class AlterTable(WithSettings):
    name: Name
    #: One operation of any kind, or several on columns.
    operations: tuple[AlterOperation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertValues(WithSettings):
    name: Name
    rows: tuple[tuple[Value, ...], ...]
    #: Empty: all columns of the table in their order.
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertQuery(WithSettings):
    name: Name
    query: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertData(WithSettings):
    name: Name
    format: str
    #: Text after the line of FORMAT, unchanged.
    data: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRows(WithSettings):
    name: Name
    predicate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRows(WithSettings):
    name: Name
    #: Column and Spark SQL expression.
    assignments: tuple[tuple[str, str], ...]
    predicate: str
