"""Tables, Kafka tables and materialized views, as the catalog keeps them.

Covers: definitions, the secrets of a relation, the words for what a row does to a table with a UNIQUE KEY. Does not
cover: rows and files (part.py), offsets (offset.py), the form of these words in files (storage/parts/segments.py).
Always holds: a column's id is never used again, so that a rename keeps its data and a new column never finds old data;
`repr` of secrets shows names only, so that no message, log line or traceback shows a value.

Tests: tests/unit/statements/alter/test_alter_columns.py.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cached_property, lru_cache

import msgspec

from tilth.base.identity import by_identity
from tilth.model.checks import Check, Path
from tilth.model.types import DataType, quoted, spark_name

#: Schemas that a process which unpickles them retains.
_UNPACKED_MAX = 64


class Engine(StrEnum):
    """Kind of a relation; the value is what SHOW CREATE prints."""

    MERGE_TREE = "MergeTree"
    KAFKA = "Kafka"
    VIEW = "MaterializedView"


class TransformKind(StrEnum):
    """The partition functions; the value is how a user writes them."""

    IDENTITY = "identity"
    TO_DATE = "toDate"
    TO_YYYYMM = "toYYYYMM"
    TO_YYYYMMDD = "toYYYYMMDD"
    TO_START_OF_HOUR = "toStartOfHour"
    #: The first day of the week, of the month.
    TO_MONDAY = "toMonday"
    TO_START_OF_MONTH = "toStartOfMonth"
    TO_YEAR = "toYear"
    #: The hour of the day, whichever day it is.
    TO_HOUR = "toHour"
    #: The rest of a division by the argument; that of a number below zero is below zero.
    MODULO = "modulo"
    #: Numbers: down to a multiple of the argument. Strings: the first characters.
    TRUNCATE = "truncate"
    #: Hash modulo the argument.
    BUCKET = "bucket"


class Transform(msgspec.Struct, frozen=True, kw_only=True):
    """One element of PARTITION BY."""

    kind: TransformKind
    column: str
    #: Argument of TRUNCATE, BUCKET and MODULO: the width, the number of buckets, the divisor.
    argument: int | None = None


class ColumnKind(StrEnum):
    """Source of a column's values; the value is the word in front of its expression."""

    #: An INSERT brings them; the expression is for rows that do not.
    DEFAULT = "DEFAULT"
    #: Computed when a row is written, and stored.
    MATERIALIZED = "MATERIALIZED"
    #: Computed when a row is read.
    ALIAS = "ALIAS"


#: Spark SQL over the columns of a row: texts, and ids of columns between them.
Expression = tuple[str | int, ...]


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column of a table or of a Kafka table's messages."""

    #: The Parquet field id; 1 and up, never used again. Of an ALIAS column, which is not stored: -1 and down.
    id: int
    name: str
    type: DataType
    nullable: bool = True
    #: Value for rows that do not contain the column, as Spark SQL: a typed literal, or an expression that is computed
    #: for each INSERT.
    default: str | None = None
    comment: str = ""
    #: The type as it was written; empty: in Spark's words.
    declared: str = ""
    #: Constraints on its values beyond the type.
    checks: tuple[Check, ...] = ()
    #: Time zones of times that come without one, by path in the type.
    zones: tuple[tuple[Path, str], ...] = ()
    #: The default as it was written.
    written_default: str | None = None
    #: `True` if the default is computed for each INSERT; None: there is none, or it was not read yet.
    is_default_computed: bool | None = None
    #: Value for rows that are older than the column, a literal as in `default`; None: the default that it came with.
    older_default: str | None = None
    kind: ColumnKind = ColumnKind.DEFAULT
    #: Value where it is made of other columns, and of each ALIAS column; then there is no `default`. Empty: it is not.
    expression: Expression = ()

    @property
    def declared_type(self) -> str:
        """Type as it was written, else Spark's name of it."""
        return self.declared or spark_name(self.type)


class Schema(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Columns in their order."""

    #: The columns that are stored.
    columns: tuple[Column, ...]
    #: The columns that are computed when they are read; no file has them.
    aliases: tuple[Column, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """The columns that a query can name."""
        return (*self.columns, *self.aliases)

    @property
    def inserted(self) -> tuple[Column, ...]:
        """The columns that an INSERT brings, and that `*` stands for."""
        return tuple(column for column in self.columns if column.kind is ColumnKind.DEFAULT)

    def find(self, name: str) -> Column | None:
        """The column of that name; names are compared without regard to case, as Spark does."""
        return _by_name(self.columns).get(name.lower())

    def find_any(self, name: str) -> Column | None:
        """The column of that name, stored or not."""
        return self.find(name) or _by_name(self.aliases).get(name.lower())

    @cached_property
    def _packed(self) -> bytes:
        return msgspec.msgpack.encode(self)

    def __reduce__(self) -> tuple[Callable[[bytes], Schema], tuple[bytes]]:
        # A round sends its schemas to tasks: pickling hundreds of columns one by one would take milliseconds.
        return _unpacked, (self._packed,)

    def is_stored_as(self, other: Schema) -> bool:
        """True if both schemas are stored alike: at most defaults, checks and comments differ."""
        return [_as_stored(column) for column in self.columns] == [_as_stored(column) for column in other.columns]

    @property
    def spark_ddl(self) -> str:
        """The schema in Spark's words."""
        return ", ".join(
            f"{quoted(c.name)} {spark_name(c.type)}{'' if c.nullable else ' NOT NULL'}" for c in self.columns
        )


@by_identity(2_000)
def _by_name(columns: tuple[Column, ...]) -> dict[str, Column]:
    """Columns by their names in lower case; of two with one name the first."""
    return {column.name.lower(): column for column in reversed(columns)}


@lru_cache(_UNPACKED_MAX)
def _unpacked(packed: bytes) -> Schema:
    return msgspec.msgpack.decode(packed, type=Schema)


def _as_stored(column: Column) -> tuple[int, str, DataType, bool]:
    return column.id, column.name, column.type, column.nullable


class SchemaVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The columns that a table had from one commit to the next; parts written then still have them."""

    version: int
    schema: Schema
    #: Hybrid time of the commit since which files have these columns; 0 for the first.
    columns_commit_ts: int = 0


class TableDef(msgspec.Struct, frozen=True, kw_only=True, tag="table"):
    """A table that stores rows: ENGINE = MergeTree."""

    #: 32 hexadecimal digits; names files and keys, survives a rename.
    uuid: str
    database: str
    name: str
    schema: Schema
    #: Raised by each change of columns.
    schema_version: int = 1
    #: Hybrid time of the commit since which new files have these columns; 0 before the first. New defaults and
    #: comments make a new schema version, but do not raise it.
    columns_commit_ts: int = 0
    partition_by: tuple[Transform, ...] = ()
    #: The sort key; may be empty.
    order_by: tuple[str, ...] = ()
    #: Unique key: of rows with equal values only the newest is left; empty: all rows remain.
    unique_key: tuple[str, ...] = ()
    #: Version column of a unique key: of two rows the one with the greater value is the newer; None: the later one.
    version_column: str | None = None
    ttl: str | None = None
    #: Settings as given, by canonical name.
    settings: dict[str, str] = {}
    comment: str = ""
    created_ms: int = 0
    #: The id that the next new column gets.
    next_column_id: int = 1
    #: Earlier shapes that parts may still have, oldest first.
    older_schemas: tuple[SchemaVersion, ...] = ()
    #: Commit of the newest UPDATE or DELETE mutation: parts made after it do not need it.
    mutation_ts: int = 0
    #: Commit of the newest UPDATE or DELETE mutation that was killed: whether a part has it or not keeps nobody apart.
    killed_mutation_ts: int = 0

    engine = Engine.MERGE_TREE

    @property
    def schema_now(self) -> SchemaVersion:
        """The present columns with their version."""
        return SchemaVersion(version=self.schema_version, schema=self.schema, columns_commit_ts=self.columns_commit_ts)

    def schema_of(self, version: int) -> Schema | None:
        """The columns of a version; None where no part may have it any more."""
        if version == self.schema_version:
            return self.schema
        return next((each.schema for each in self.older_schemas if each.version == version), None)


class KafkaDef(msgspec.Struct, frozen=True, kw_only=True, tag="kafka"):
    """A Kafka table: the format of a topic's messages and how they are read. Stores nothing itself."""

    uuid: str
    database: str
    name: str
    schema: Schema
    #: `kafka_broker_list`, `kafka_topic_list`, ... as given, by canonical name.
    settings: dict[str, str] = {}
    comment: str = ""
    created_ms: int = 0
    #: The id that the next new column gets; 0: no column was ever added or dropped.
    next_column_id: int = 0

    engine = Engine.KAFKA

    @property
    def free_column_id(self) -> int:
        """An id that no column of the table ever had."""
        return self.next_column_id or max((column.id for column in self.schema.columns), default=0) + 1


class ViewDef(msgspec.Struct, frozen=True, kw_only=True, tag="view"):
    """A materialized view: makes rows of one table from rows of one Kafka table."""

    uuid: str
    database: str
    name: str
    #: The Kafka table's uuid.
    source: str
    #: The table's uuid.
    target: str
    #: Spark SQL, exactly as written.
    select: str
    #: Name of each of its columns with the id of the target's column that it fills; empty: those of the same names.
    target_columns: tuple[tuple[str, int], ...] = ()
    comment: str = ""
    created_ms: int = 0

    engine = Engine.VIEW


Relation = TableDef | KafkaDef | ViewDef


def full_name(relation: Relation) -> str:
    """`database.name`, as in messages and logs."""
    return f"{relation.database}.{relation.name}"


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets of one relation; its definition holds the redacted texts."""

    #: Full texts of settings, by canonical name.
    settings: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Secrets({', '.join(sorted(self.settings))})"


#: A hidden column of what is inserted: what each row does.
OP_COLUMN = "_op"
#: The same as a flag: 1 deletes. ByteHouse's name.
DELETE_FLAG_COLUMN = "_delete_flag_"
OP_UPSERT = 0
OP_DELETE = 1
#: Words and numbers that users and change streams write, in lower case.
UPSERT_WORDS = ("0", "false", "c", "r", "u", "i", "insert", "update", "upsert")
DELETE_WORDS = ("1", "true", "d", "delete")

_OPS = dict.fromkeys(UPSERT_WORDS, OP_UPSERT) | dict.fromkeys(DELETE_WORDS, OP_DELETE)


def is_op_name(name: str) -> bool:
    """True if a column of this name holds operations of rows."""
    return name.lower() in (OP_COLUMN, DELETE_FLAG_COLUMN)


def op_of(value: object) -> int:
    """OP_UPSERT or OP_DELETE; raises ValueError with what was expected."""
    found = _OPS.get(str(value).lower())
    if found is None:
        raise ValueError("expected 0, c, r, u, i, insert, update or upsert; or 1, d or delete")
    return found
