"""Types and keys that are accepted and mean something else than where they come from. Pure.

Covers: tables as Tilth's grammar has read them, by the system they come from. Does not cover: parts that were left out
(clickhouse.py, lake.py, kudu.py). Always holds: one finding for each kind of difference in a table, with its columns.

Tests: tests/unit/migration/test_translate_clickhouse.py, tests/unit/migration/test_translate_lake.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tilth.base.settings import read_settings
from tilth.grammar.statements import ColumnSpec, CreateTable
from tilth.grammar.text.tokens import words_of
from tilth.migration.report import OF_CLICKHOUSE, Difference, ForeignSystem
from tilth.model.checks import IntegerRange, LengthMax, OneOf, UuidText
from tilth.model.storage import STORAGE_SETTING
from tilth.model.table import Engine
from tilth.model.types import Decimal, Kind, Map, kinds_in, leaves_of
from tilth.query.settings import KAFKA_TABLE_SETTINGS, TABLE_SETTINGS
from tilth.storage import StorageSettings

#: Columns that a finding names.
_COLUMNS_SHOWN_MAX = 5
_UINT64_MAX = (1 << 64) - 1
_ERROR_MODE = "kafka_handle_error_mode"


@dataclass(frozen=True, slots=True)
class Meaning:
    """One kind of difference, with the columns that have it."""

    kind: Difference
    what: str
    why: str
    instead: str = ""
    #: The first column that has it; empty: the table as a whole.
    column: str = ""


@dataclass(frozen=True, slots=True)
class _TypeRule:
    kind: Difference
    what: str
    why: str
    instead: str
    has: Callable[[ColumnSpec], bool]


def _has_kind(kind: Kind) -> Callable[[ColumnSpec], bool]:
    return lambda spec: kind in kinds_in(spec.type)


def _has_rule(kind: type) -> Callable[[ColumnSpec], bool]:
    return lambda spec: any(isinstance(check.rule, kind) for check in spec.checks)


def _is_word_in(*words: str) -> Callable[[ColumnSpec], bool]:
    return lambda spec: not words_of(spec.declared).isdisjoint(words)


def _is_plain_text(spec: ColumnSpec) -> bool:
    others = any(isinstance(check.rule, OneOf | UuidText | LengthMax) for check in spec.checks)
    return Kind.STRING in kinds_in(spec.type) and not others


def _is_uint64(spec: ColumnSpec) -> bool:
    return any(isinstance(check.rule, IntegerRange) and check.rule.greatest == _UINT64_MAX for check in spec.checks)


def _is_small_unsigned(spec: ColumnSpec) -> bool:
    return any(isinstance(check.rule, IntegerRange) and check.rule.greatest < _UINT64_MAX for check in spec.checks)


def _has_padding(spec: ColumnSpec) -> bool:
    return _is_word_in("char")(spec) and _has_rule(LengthMax)(spec)


_CLICKHOUSE_RULES = (
    _TypeRule(
        Difference.DIFFERS,
        "UInt64 is stored as decimal(20,0)",
        "values are the same; Spark computes with decimals, and an arithmetic overflow is an error",
        "BIGINT where values stay below 2^63",
        _is_uint64,
    ),
    _TypeRule(
        Difference.NOTE,
        "UInt8, UInt16 and UInt32 are stored in the next larger signed type",
        "values below 0 and above the declared maximum are refused, not wrapped",
        "",
        _is_small_unsigned,
    ),
    _TypeRule(
        Difference.DIFFERS,
        "String holds UTF-8 text, not any bytes",
        "bytes that are no UTF-8 are refused",
        "BINARY for bytes",
        _is_plain_text,
    ),
    _TypeRule(
        Difference.DIFFERS,
        "FixedString(n) holds text of at most n bytes",
        "shorter values are not padded with zero bytes",
        "BINARY for bytes",
        _is_word_in("fixedstring"),
    ),
    _TypeRule(
        Difference.DIFFERS,
        "times without a zone are read in the session's zone, UTC unless it is set",
        "elsewhere it is the zone of the server, also in partitions and views, which have UTC here",
        "SET spark.sql.session.timeZone, or DateTime('zone')",
        lambda spec: not spec.zones and _has_kind(Kind.TIMESTAMP)(spec),
    ),
    _TypeRule(
        Difference.DIFFERS,
        "DateTime('zone') reads texts in its zone; answers, partitions and views have UTC",
        "the zone is that of texts without an offset; what is stored is the instant",
        "from_utc_timestamp(column, 'zone') shows local time",
        lambda spec: bool(spec.zones),
    ),
    _TypeRule(
        Difference.DIFFERS,
        "an Enum is compared and sorted by its name",
        "elsewhere by its number; numbers are no values here, and a row without one has the first name, not the least",
        "a column of numbers where the order matters",
        _has_rule(OneOf),
    ),
    _TypeRule(
        Difference.NOTE,
        "LowCardinality has no effect",
        "Parquet chooses a dictionary for each column chunk",
        "",
        _is_word_in("lowcardinality"),
    ),
    _TypeRule(
        Difference.DIFFERS,
        "UUIDs are compared and sorted as text",
        "ClickHouse sorts by the second half first",
        "",
        _has_rule(UuidText),
    ),
    _TypeRule(
        Difference.DIFFERS,
        "a key is once in a Map",
        "elsewhere a Map may hold a key several times",
        "Array(Tuple(key .., value ..)) for such maps",
        lambda spec: isinstance(spec.type, Map) or _is_word_in("map")(spec),
    ),
)
_ALIAS_RULES = (
    _TypeRule(
        Difference.DIFFERS,
        "TIMESTAMP has microseconds",
        "in ClickHouse it is DateTime, which has whole seconds",
        "DateTime",
        _is_word_in("timestamp"),
    ),
    _TypeRule(
        Difference.DIFFERS,
        "VARCHAR(n) and CHAR(n) hold at most n characters, and longer values are refused",
        "in ClickHouse they are String, whatever n is",
        "String",
        lambda spec: _is_word_in("varchar", "char")(spec) and _has_rule(LengthMax)(spec),
    ),
)
_PADDING_RULES = (
    _TypeRule(
        Difference.DIFFERS,
        "CHAR(n) is not padded with blanks",
        "it holds texts of at most n characters",
        "",
        _has_padding,
    ),
)
_LAKE_RULES = (
    _TypeRule(
        Difference.DIFFERS,
        "texts for TIMESTAMP are read in the session's zone, UTC unless it is set",
        "in Spark it is the zone of the machine unless it is set",
        "SET spark.sql.session.timeZone",
        _has_kind(Kind.TIMESTAMP),
    ),
    *_PADDING_RULES,
)
_KUDU_RULES = (
    _TypeRule(
        Difference.DIFFERS,
        "TIMESTAMP is an instant",
        "Impala's has no zone; texts are read in the session's zone, UTC unless it is set",
        "TIMESTAMP_NTZ for local times",
        _has_kind(Kind.TIMESTAMP),
    ),
    _TypeRule(
        Difference.DIFFERS,
        "VARCHAR(n) refuses longer values",
        "Kudu cuts them",
        "STRING",
        lambda spec: _is_word_in("varchar")(spec) and _has_rule(LengthMax)(spec),
    ),
    _TypeRule(
        Difference.DIFFERS,
        "a default that calls a function is computed for each INSERT",
        "Kudu keeps the value that it had when the table was created",
        "a literal",
        lambda spec: "(" in (spec.default or ""),
    ),
    *_PADDING_RULES,
)
_DECIMAL_RULE = _TypeRule(
    Difference.NOTE,
    "decimals are stored with all digits; results of arithmetic have Spark's precision",
    "a sum or product may have other digits behind the point",
    "CAST the result",
    lambda spec: not _is_uint64(spec) and any(isinstance(leaf, Decimal) for leaf in leaves_of(spec.type)),
)


def meanings(table: CreateTable, source: ForeignSystem) -> list[Meaning]:
    """Return what of the table's types and keys means something else than in the system it comes from."""
    return [*meanings_of_columns(table.columns, source), *_of_keys(table, source)]


def meanings_of_columns(columns: Sequence[ColumnSpec], source: ForeignSystem) -> list[Meaning]:
    """Return the same for columns alone, as ALTER TABLE adds them."""
    return [each for rule in _rules(source) if (each := _of_columns(rule, columns)) is not None]


def _rules(source: ForeignSystem) -> Sequence[_TypeRule]:
    if source in OF_CLICKHOUSE:
        return (*_CLICKHOUSE_RULES, *_ALIAS_RULES, _DECIMAL_RULE)
    return (*_KUDU_RULES, _DECIMAL_RULE) if source is ForeignSystem.KUDU else _LAKE_RULES


def _of_columns(rule: _TypeRule, columns: Sequence[ColumnSpec]) -> Meaning | None:
    names = [spec.name for spec in columns if rule.has(spec)]
    if not names:
        return None
    more = f" and {len(names) - _COLUMNS_SHOWN_MAX} more" if len(names) > _COLUMNS_SHOWN_MAX else ""
    return Meaning(
        rule.kind, f"{rule.what}: {', '.join(names[:_COLUMNS_SHOWN_MAX])}{more}", rule.why, rule.instead, names[0]
    )


def _of_keys(table: CreateTable, source: ForeignSystem) -> Iterator[Meaning]:
    if table.engine is Engine.KAFKA:
        yield from _of_consumers(table)
        return
    policy = dict(table.settings).get(STORAGE_SETTING, "")
    if policy and not policy.startswith("cnch_default"):
        yield Meaning(
            Difference.DIFFERS,
            f"{STORAGE_SETTING} = '{policy}' names a storage of Tilth",
            "volumes and moves between them are not there",
            f"CREATE STORAGE {policy} first, or leave the setting out",
        )
    if table.unique_key and source is ForeignSystem.CLICKHOUSE:
        yield Meaning(
            Difference.DIFFERS,
            f"UNIQUE KEY ({', '.join(table.unique_key)}): a newer row replaces the older one when it is inserted",
            "elsewhere rows of one sort key are there side by side until a merge; FINAL is not needed",
            "leave Replacing out where all rows are wanted",
        )
    if table.unique_key and source is ForeignSystem.KUDU:
        yield Meaning(
            Difference.DIFFERS,
            "INSERT of a key that is there replaces its row",
            "Kudu's INSERT refuses or ignores it; here each INSERT is an UPSERT",
            "SELECT the key before an INSERT that must not replace",
        )
    if table.partition_by and table.unique_key and source in OF_CLICKHOUSE and _is_unique_by_partition(table):
        yield Meaning(
            Difference.NOTE,
            "a key is unique within its partition",
            "as elsewhere",
            "SETTINGS partition_level_unique_keys = 0 makes it unique in the table",
        )


def _is_unique_by_partition(table: CreateTable) -> bool:
    return read_settings(StorageSettings, TABLE_SETTINGS.canonical(dict(table.settings))).partition_level_unique_keys


def _of_consumers(table: CreateTable) -> Iterator[Meaning]:
    given = KAFKA_TABLE_SETTINGS.canonical(dict(table.settings))
    if _ERROR_MODE not in given:
        yield Meaning(
            Difference.DIFFERS,
            "a message that cannot be read goes into a dead-letter table",
            "elsewhere the consumer stops at it, or drops as many as kafka_skip_broken_messages says",
            f"{_ERROR_MODE} = 'throw' stops, too",
        )
    group = given.get("kafka_group_name", "")
    if group:
        yield Meaning(
            Difference.DIFFERS,
            f"kafka_group_name = '{group}': Tilth stores offsets with the rows, and reports them for this group",
            "two systems that report offsets of one group disturb each other",
            "another name while both read the topic",
        )
