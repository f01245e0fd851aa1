"""The knobs of a statement or a connection, and all knobs of all rooms in one list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilth.base.secrets import HIDDEN
from tilth.base.settings import (
    LOG_SETTINGS,
    BadSettingError,
    Scope,
    Setting,
    SettingGroup,
    UnknownSettingError,
    parse_bool,
    value_of,
)
from tilth.base.units import MIB, parse_bytes, parse_seconds
from tilth.catalog import NODE_SETTINGS as CATALOG_SETTINGS
from tilth.catalog import PRESSURE_SETTINGS, pressure_settings
from tilth.ingest import INGEST_SETTINGS, KAFKA_SETTINGS
from tilth.maintenance import NODE_SETTINGS as MAINTENANCE_NODE_SETTINGS
from tilth.maintenance import TABLE_SETTINGS as MAINTENANCE_TABLE_SETTINGS
from tilth.maintenance import check_table_settings
from tilth.sql.spark_settings import SPARK_PREFIX, check_spark_settings
from tilth.storage import TABLE_SETTINGS as STORAGE_TABLE_SETTINGS
from tilth.warehouse import SETTINGS as WAREHOUSE_SETTINGS

MAX_RESULT_BYTES = Setting(
    name="max_result_bytes",
    scope=Scope.SESSION,
    default=0,
    parse=parse_bytes,
    check=lambda size: size >= 0,
    allowed="0 bytes and up",
    unit="bytes",
    doc="A query whose result is larger fails. More: large results reach the client; they are streamed, and wait for "
    "their client on the node's disk. Less: disk and network are safe from a forgotten LIMIT. 0: no limit.",
)
MAX_EXECUTION_TIME = Setting(
    name="max_execution_time",
    scope=Scope.SESSION,
    default=3600.0,
    parse=parse_seconds,
    check=lambda seconds: seconds >= 0,
    allowed="0 and up",
    unit="seconds",
    doc="A statement that takes longer, waiting included, is cancelled: its Spark jobs end, it fails with "
    "TIMEOUT_EXCEEDED, and nothing of it is applied. More: long reports and loads finish. Less: a query that was a "
    "mistake leaves the machine sooner. 0: no limit.",
)
MAX_INSERT_BYTES = Setting(
    name="max_insert_bytes",
    scope=Scope.SESSION,
    default=64 * MIB,
    parse=parse_bytes,
    check=lambda size: size >= 1,
    allowed="1 byte and up",
    unit="bytes",
    doc="An INSERT whose rows, as text or as Arrow, are larger fails. More: fewer, larger inserts, held in the "
    "server's memory. Less: large loads are sent through INSERT .. SELECT or Kafka, which need none of it.",
)
MAX_INSERT_TASKS = Setting(
    name="max_insert_tasks",
    scope=Scope.SESSION,
    default=32,
    parse=int,
    check=lambda tasks: 1 <= tasks <= 10_000,
    allowed="1 to 10000",
    unit="tasks",
    doc="Spark tasks in which an INSERT .. SELECT computes its last stage and writes. More: more cores at work, more "
    "and smaller parts. Fewer: larger parts.",
)
PRUNE_PARTS = Setting(
    name="prune_parts",
    scope=Scope.SESSION,
    default=True,
    parse=parse_bool,
    allowed="true or false",
    doc="Off: a query reads every part of its tables. For a comparison only; answers are the same.",
)
SKIP_DAMAGED_PARTS = Setting(
    name="skip_damaged_parts",
    scope=Scope.SESSION,
    default=False,
    parse=parse_bool,
    allowed="true or false",
    doc="On: a SELECT leaves out parts that cannot be read (a file is missing, cut or damaged), and a notice names "
    "them and says how many rows are missing. The rows of such a query come when it has ended. DELETE, UPDATE, "
    "OPTIMIZE and INSERT .. SELECT are refused. Off: the query fails and its error names the part.",
)

MUTATIONS_SYNC = Setting(
    name="mutations_sync",
    scope=Scope.SESSION,
    default=0,
    parse=int,
    check=lambda level: 0 <= level <= 2,
    allowed="0, 1 or 2",
    doc="0: an ALTER returns when it is committed, and parts are rewritten in the background. 1 or 2: it waits until "
    "every part is rewritten. `DELETE FROM` and `UPDATE` rewrite no part: they change the rows at once.",
)
MUTATIONS_WAIT_TIMEOUT_SECONDS = Setting(
    name="mutations_wait_timeout_seconds",
    scope=Scope.SESSION,
    default=600.0,
    parse=parse_seconds,
    check=lambda seconds: seconds >= 0,
    allowed="0 and up",
    unit="seconds",
    doc="How long a statement waits for its mutation before it fails with MUTATION_NOT_DONE; the mutation goes on. It "
    "fails sooner with MUTATION_FAILED when a part fails in a way that waiting does not heal, and at once while "
    "mutations of the table are stopped for longer. "
    "More: large tables finish within the statement. Less: a client learns sooner that something hinders it.",
)
FORCE_ALTER_CONFLICT_CHECK = Setting(
    name="force_alter_conflict_check",
    scope=Scope.SESSION,
    default=True,
    parse=parse_bool,
    allowed="true or false",
    doc="On: a column that an unfinished mutation names is not modified or renamed. Off: it is, and the mutation that "
    "is under way still does what it was told, with the columns as they were then.",
)

INSERT_LABEL_CHARACTERS_MAX = 256
#: What `async_insert` says where nobody decides: tables with a memory table, yes; others, no.
AUTO = "auto"


def _parse_async(text: str) -> str:
    return AUTO if text.strip().lower() == AUTO else str(int(parse_bool(text)))


_ASYNC_DOC = (
    "1: an INSERT shares its files and its commit with others that come at about the same time; it is answered when "
    "they are committed, as otherwise. More inserts a second and fewer small files; a lone insert waits a moment "
    "longer. 0: each INSERT has files and a commit of its own. auto: 1 for tables with `memory_buffer` or UNIQUE KEY."
)
ASYNC_INSERT = Setting(
    name="async_insert",
    scope=Scope.SESSION,
    default=AUTO,
    parse=_parse_async,
    allowed="auto, 0 or 1",
    doc=f"{_ASYNC_DOC} What a statement says counts more than what its table says.",
)
ASYNC_INSERT_OF_TABLE = Setting(
    name="async_insert", scope=Scope.TABLE, default=AUTO, parse=_parse_async, allowed="auto, 0 or 1", doc=_ASYNC_DOC
)
ASYNC_INSERT_BUSY_TIMEOUT_MS = Setting(
    name="async_insert_busy_timeout_ms",
    scope=Scope.SESSION,
    default=5,
    parse=int,
    check=lambda wait: 0 <= wait <= 60_000,
    allowed="0 to 60000",
    unit="ms",
    doc="How long the first INSERT of a group waits for others. While a commit is under way the next group gathers "
    "anyway, so that a few milliseconds are enough: they let inserts that are sent at once share the first commit, and "
    "a lone client hardly notices. More: fewer commits and fewer, larger segments. Less: a lone insert is faster.",
)
ASYNC_INSERT_MAX_DATA_SIZE = Setting(
    name="async_insert_max_data_size",
    scope=Scope.SESSION,
    default=10 * MIB,
    parse=parse_bytes,
    check=lambda size: size >= 1,
    allowed="1 byte and up",
    unit="bytes",
    doc="A group of INSERTs that has so many bytes does not wait for more; an INSERT with more is none of a group. "
    "More: fewer commits under load. Less: memory and the wait for the commit stay small.",
)
ASYNC_INSERT_MAX_ROWS = Setting(
    name="async_insert_max_rows",
    scope=Scope.SESSION,
    default=100_000,
    parse=int,
    check=lambda rows: rows >= 1,
    allowed="1 and up",
    unit="rows",
    doc="The same as async_insert_max_data_size, in rows.",
)
INSERTION_LABEL = Setting(
    name="insertion_label",
    scope=Scope.SESSION,
    default="",
    parse=str.strip,
    check=lambda label: len(label) <= INSERT_LABEL_CHARACTERS_MAX,
    allowed=f"a text of at most {INSERT_LABEL_CHARACTERS_MAX} characters",
    aliases=("insert_deduplication_token",),
    doc="A name for this INSERT, unique in its table: a second INSERT with it writes nothing and is told how many rows "
    "the first one wrote, so that a client whose answer was lost may simply try again. Empty: it has none. A label is "
    "remembered for a few hours.",
)

DIALECT = Setting(
    name="dialect",
    scope=Scope.SESSION,
    default="spark",
    parse=lambda text: text.strip().lower(),
    check=lambda name: name in ("spark", "clickhouse"),
    allowed="spark or clickhouse",
    doc="clickhouse: a SELECT, also that of an INSERT or of a materialized view, is read in ClickHouse's dialect and "
    "written for Spark; a notice shows the result, and what has no counterpart is refused by name. ClickHouse's "
    "functions exist in both.",
)
#: Settings of ClickHouse's sessions for which Tilth has no use.
_SESSION_WITHOUT_EFFECT = (
    "max_threads",
    "max_insert_threads",
    "max_block_size",
    "max_insert_block_size",
    "max_memory_usage",
    "max_bytes_before_external_group_by",
    "max_bytes_before_external_sort",
    "enable_optimizer",
    "allow_experimental_analyzer",
    "allow_experimental_live_view",
    "distributed_product_mode",
    "distributed_ddl_task_timeout",
    "insert_quorum",
    "insert_distributed_sync",
    "wait_for_async_insert",
    "wait_for_async_insert_timeout",
    "optimize_move_to_prewhere",
    "use_uncompressed_cache",
    "send_logs_level",
    "log_queries",
    "load_balancing",
    "prefer_localhost_replica",
    "virtual_warehouse",
    "virtual_warehouse_write",
    "dialect_type",
    "join_use_nulls",
)
SESSION_ACCEPTED = tuple(
    Setting(
        name=name,
        scope=Scope.SESSION,
        default="",
        parse=str,
        doc="Accepted so that existing statements run; has no effect, which a notice says.",
    )
    for name in _SESSION_WITHOUT_EFFECT
)

#: Whose a setting is, in words.
_WHOSE = {
    Scope.NODE: "of the node: `tilth serve` takes it when it starts",
    Scope.TABLE: "of a MergeTree table: ALTER TABLE t MODIFY SETTING",
    Scope.KAFKA: "of a Kafka table: ALTER TABLE k MODIFY SETTING",
    Scope.SESSION: "of a statement: .. SETTINGS name = value at its end",
}


class _KnownGroup(SettingGroup):
    """Says of a setting of another scope whose it is."""

    def find(self, name: str) -> Setting[Any]:
        try:
            return super().find(name)
        except UnknownSettingError as error:
            plain = _plain(name)
            for setting in all_settings():
                if plain in (_plain(known) for known in (setting.name, *setting.aliases)):
                    hint = f"it is a setting {_WHOSE[setting.scope]}"
                    raise UnknownSettingError(setting=name, hint=hint) from error
            raise


def _plain(name: str) -> str:
    return name.lower().replace(".", "_").replace("-", "_")


SESSION_SETTINGS = _KnownGroup(
    (
        MAX_RESULT_BYTES,
        MAX_EXECUTION_TIME,
        MAX_INSERT_BYTES,
        MAX_INSERT_TASKS,
        PRUNE_PARTS,
        SKIP_DAMAGED_PARTS,
        MUTATIONS_SYNC,
        MUTATIONS_WAIT_TIMEOUT_SECONDS,
        FORCE_ALTER_CONFLICT_CHECK,
        ASYNC_INSERT,
        ASYNC_INSERT_BUSY_TIMEOUT_MS,
        ASYNC_INSERT_MAX_DATA_SIZE,
        ASYNC_INSERT_MAX_ROWS,
        INSERTION_LABEL,
        DIALECT,
        *SESSION_ACCEPTED,
    )
)
#: The session's time zone, and the names that mean UTC.
ZONE = "spark.sql.session.timeZone"
UTC_NAMES = ("UTC", "Z", "GMT", "Etc/UTC", "+00:00")
#: What double quotes mean is the same in every session.
_QUOTES = "spark.sql.ansi.doubleQuotedIdentifiers"

#: Of ClickHouse's and ByConity's tables; Tilth has no use for them.
_WITHOUT_EFFECT = (
    "index_granularity",
    "index_granularity_bytes",
    "min_bytes_for_wide_part",
    "min_rows_for_wide_part",
    "storage_policy",
    "cnch_vw_default",
    "cnch_vw_read",
    "cnch_vw_write",
    "cnch_vw_task",
    "enable_mixed_granularity_parts",
    "replicated_deduplication_window",
    "ttl_only_drop_parts",
    "allow_nullable_key",
)
ACCEPTED = tuple(
    Setting(
        name=name,
        scope=Scope.TABLE,
        default="",
        parse=str,
        doc="Accepted so that an existing DDL runs; has no effect, which a notice says.",
    )
    for name in _WITHOUT_EFFECT
)

#: What CREATE TABLE and ALTER TABLE .. MODIFY SETTING take, for tables that store rows.
TABLE_SETTINGS = _KnownGroup(
    (
        *STORAGE_TABLE_SETTINGS.all,
        *MAINTENANCE_TABLE_SETTINGS.all,
        *PRESSURE_SETTINGS.all,
        ASYNC_INSERT_OF_TABLE,
        *ACCEPTED,
    )
)
#: The same for Kafka tables.
KAFKA_TABLE_SETTINGS = _KnownGroup(KAFKA_SETTINGS.all)


def settings_without_effect(names: Iterable[str]) -> tuple[str, ...]:
    """Return a notice for each of these settings that is accepted and has no effect."""
    known = {one.name for one in (*ACCEPTED, *SESSION_ACCEPTED, *KAFKA_SETTINGS.all) if " has no effect" in one.doc}
    return tuple(f"the setting {name} has no effect" for name in names if name in known)


def check_typed(given: Mapping[str, str]) -> None:
    """Raises BadSettingError for the sign of a redacted secret in place of a secret."""
    for name, text in given.items():
        if HIDDEN in text and KAFKA_TABLE_SETTINGS.find(name).has_secrets:
            hint = "write the secret itself; SHOW CREATE and system tables do not show it"
            raise BadSettingError(f"{HIDDEN} is not a secret but stands for one", setting=name, hint=hint)


def check_together(settings: Mapping[str, str]) -> None:
    """What settings of a table must satisfy together; raises BadSettingError."""
    pressure_settings(settings)
    check_table_settings(settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """The settings of one statement."""

    max_result_bytes: int = MAX_RESULT_BYTES.default
    max_execution_time: float = MAX_EXECUTION_TIME.default
    max_insert_bytes: int = MAX_INSERT_BYTES.default
    max_insert_tasks: int = MAX_INSERT_TASKS.default
    prune_parts: bool = PRUNE_PARTS.default
    skip_damaged_parts: bool = SKIP_DAMAGED_PARTS.default
    mutations_sync: int = MUTATIONS_SYNC.default
    mutations_wait_timeout_seconds: float = MUTATIONS_WAIT_TIMEOUT_SECONDS.default
    force_alter_conflict_check: bool = FORCE_ALTER_CONFLICT_CHECK.default
    #: `auto`, `0` or `1`.
    async_insert: str = ASYNC_INSERT.default
    async_insert_busy_timeout_ms: int = ASYNC_INSERT_BUSY_TIMEOUT_MS.default
    async_insert_max_data_size: int = ASYNC_INSERT_MAX_DATA_SIZE.default
    async_insert_max_rows: int = ASYNC_INSERT_MAX_ROWS.default
    insertion_label: str = INSERTION_LABEL.default
    dialect: str = DIALECT.default
    #: For the session of the query.
    spark: Mapping[str, str]


def session_settings(given: Mapping[str, str]) -> SessionSettings:
    """Raises UnknownSettingError, BadSettingError, and NotAllowedError for a setting of Spark that is not for it."""
    spark = {name: text for name, text in given.items() if name.startswith(SPARK_PREFIX)}
    if spark.get(_QUOTES, "true").strip().lower() != "true":
        hint = "double quotes name columns and tables everywhere: put texts in single quotes"
        raise BadSettingError(setting=_QUOTES, value=spark[_QUOTES], allowed="true", hint=hint)
    check_spark_settings(name for name in spark if name != _QUOTES)
    values = SESSION_SETTINGS.read({name: text for name, text in given.items() if name not in spark})
    return SessionSettings(
        max_result_bytes=value_of(values, MAX_RESULT_BYTES),
        max_execution_time=value_of(values, MAX_EXECUTION_TIME),
        max_insert_bytes=value_of(values, MAX_INSERT_BYTES),
        max_insert_tasks=value_of(values, MAX_INSERT_TASKS),
        prune_parts=value_of(values, PRUNE_PARTS),
        skip_damaged_parts=value_of(values, SKIP_DAMAGED_PARTS),
        mutations_sync=value_of(values, MUTATIONS_SYNC),
        mutations_wait_timeout_seconds=value_of(values, MUTATIONS_WAIT_TIMEOUT_SECONDS),
        force_alter_conflict_check=value_of(values, FORCE_ALTER_CONFLICT_CHECK),
        async_insert=value_of(values, ASYNC_INSERT),
        async_insert_busy_timeout_ms=value_of(values, ASYNC_INSERT_BUSY_TIMEOUT_MS),
        async_insert_max_data_size=value_of(values, ASYNC_INSERT_MAX_DATA_SIZE),
        async_insert_max_rows=value_of(values, ASYNC_INSERT_MAX_ROWS),
        insertion_label=value_of(values, INSERTION_LABEL),
        dialect=value_of(values, DIALECT),
        spark=spark,
    )


# Any: settings of every type stand in one list.
def all_settings(upper: Iterable[Setting[Any]] = ()) -> list[Setting[Any]]:
    """Every setting of this room and those below it, and those handed in, by scope and name."""
    groups = (
        SESSION_SETTINGS,
        TABLE_SETTINGS,
        KAFKA_SETTINGS,
        CATALOG_SETTINGS,
        INGEST_SETTINGS,
        MAINTENANCE_NODE_SETTINGS,
        WAREHOUSE_SETTINGS,
        LOG_SETTINGS,
    )
    found = [*upper, *(setting for group in groups for setting in group.all)]
    return sorted(found, key=lambda setting: (setting.scope, setting.name))
