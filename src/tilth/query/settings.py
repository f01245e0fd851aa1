"""Settings of a statement or a connection, and all settings of all rooms in one list.

Tests: tests/unit/query/snapshots/test_snapshots.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilth.base.secrets import HIDDEN
from tilth.base.settings import (
    SWITCH,
    TEXT,
    BadSettingError,
    Setting,
    SettingCheck,
    SettingGroup,
    SettingScope,
    UnknownSettingError,
    parse_bool,
    read_settings,
    session_setting,
    settings_of,
    table_setting,
    within,
)
from tilth.base.units import MIB, parse_bytes, parse_seconds
from tilth.catalog import NODE_SETTINGS as CATALOG_SETTINGS
from tilth.catalog import PRESSURE_SETTINGS, pressure_settings
from tilth.ingest import INGEST_SETTINGS, KAFKA_SETTINGS
from tilth.maintenance import NODE_SETTINGS as MAINTENANCE_NODE_SETTINGS
from tilth.maintenance import TABLE_SETTINGS as MAINTENANCE_TABLE_SETTINGS
from tilth.maintenance import table_settings
from tilth.model.text.zones import SPARK_PREFIX
from tilth.query.language.spark_settings import check_spark_settings
from tilth.storage import NODE_SETTINGS as STORAGE_NODE_SETTINGS
from tilth.storage import REPLICAS_MAX, parse_quorum
from tilth.storage import TABLE_SETTINGS as STORAGE_TABLE_SETTINGS
from tilth.warehouse import SETTINGS as WAREHOUSE_NODE_SETTINGS
from tilth.warehouse import TABLE_SETTINGS as WAREHOUSE_TABLE_SETTINGS
from tilth.warehouse import WAREHOUSE_SETTINGS as SETTINGS_OF_WAREHOUSES

INSERT_LABEL_CHARACTERS_MAX = 256
#: Default of `async_insert`: enabled for tables with a memory table, disabled for others.
AUTO = "auto"


def _parse_async(text: str) -> str:
    return AUTO if text.strip().lower() == AUTO else str(int(parse_bool(text)))


_ASYNC_DOC = (
    "1: an INSERT shares its files and its commit with others that come at about the same time; it is answered when "
    "they are committed, as otherwise. More inserts a second and fewer small files; a batch that is being stored is "
    "waited for. 0: each INSERT has files and a commit of its own. auto: 1 for tables with `memory_buffer` or UNIQUE "
    "KEY."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """The settings of one statement."""

    warehouse: str = session_setting(
        "warehouse",
        "",
        TEXT,
        "The warehouse whose workers run the statement's Spark tasks; SHOW WAREHOUSES lists them. Empty: the one that "
        "a table of the statement names, else `default`.",
        aliases=("virtual_warehouse",),
    )
    write_warehouse: str = session_setting(
        "write_warehouse",
        "",
        TEXT,
        "The same for INSERT, DELETE and UPDATE alone. Empty: as `warehouse`.",
        aliases=("virtual_warehouse_write",),
    )
    max_result_bytes: int = session_setting(
        "max_result_bytes",
        0,
        within(parse_bytes, 0, words="0 bytes and up"),
        "A query whose result is larger fails. More: large results reach the client; they are streamed, and wait for "
        "their client on the node's disk. Less: disk and network are safe from a forgotten LIMIT. 0: no limit.",
        unit="bytes",
    )
    max_execution_time: float = session_setting(
        "max_execution_time",
        3600.0,
        within(parse_seconds, 0),
        "A statement that takes longer, waiting included, is cancelled: its Spark jobs end, it fails with "
        "TIMEOUT_EXCEEDED, and nothing of it is applied. More: long reports and loads finish. Less: a query that was a "
        "mistake leaves the machine sooner. 0: no limit.",
        unit="seconds",
    )
    max_insert_bytes: int = session_setting(
        "max_insert_bytes",
        64 * MIB,
        within(parse_bytes, 1, words="1 byte and up"),
        "An INSERT whose rows, as text or as Arrow, are larger fails. More: fewer, larger inserts, held in the "
        "server's memory. Less: the server's memory is safe from them. The default holds for rows that the server "
        "reads; for bodies above insert.spark-above, which Spark reads, `insert.body-max` is the default.",
        unit="bytes",
    )
    max_insert_tasks: int = session_setting(
        "max_insert_tasks",
        0,
        within(int, 0, 10_000),
        "Spark tasks in which an INSERT .. SELECT computes its last stage and writes. More: more cores at work, more "
        "and smaller parts. Fewer: larger parts. 0: as many as its Spark runs at once, 32 at least.",
        unit="tasks",
    )
    prune_parts: bool = session_setting(
        "prune_parts",
        True,
        SWITCH,
        "Off: a query reads every part of its tables. For a comparison only; answers are the same.",
    )
    skip_damaged_parts: bool = session_setting(
        "skip_damaged_parts",
        False,
        SWITCH,
        "On: a SELECT leaves out parts that cannot be read (a file is missing, cut or damaged), and a notice names "
        "them and says how many rows are missing. The rows of such a query come when it has ended. DELETE, UPDATE, "
        "OPTIMIZE and INSERT .. SELECT are refused. Off: the query fails and its error names the part.",
    )
    mutations_sync: int = session_setting(
        "mutations_sync",
        0,
        within(int, 0, 2, "0, 1 or 2"),
        "0: an ALTER returns when it is committed, and parts are rewritten in the background. 1 or 2: it waits until "
        "every part is rewritten. `DELETE FROM` and `UPDATE` rewrite no part: they change the rows at once.",
    )
    mutations_wait_timeout_seconds: float = session_setting(
        "mutations_wait_timeout_seconds",
        600.0,
        within(parse_seconds, 0),
        "How long a statement waits for its mutation before it fails with MUTATION_NOT_DONE; the mutation goes on. It "
        "fails sooner with MUTATION_FAILED when a part fails in a way that waiting does not heal, and at once while "
        "mutations of the table are stopped for longer. More: large tables finish within the statement. Less: a client "
        "learns sooner that something hinders it.",
        unit="seconds",
    )
    repair_files_older_than_seconds: float = session_setting(
        "repair_files_older_than_seconds",
        86_400.0,
        within(parse_seconds, 60, words="1 minute and up"),
        "SYSTEM CHECK FILES .. REPAIR removes an orphan when its file and the transaction in its name are older than "
        "this. More: files whose transactions a failover of the catalog's database has lost can still be copied away. "
        "Less: space is free sooner.",
        unit="seconds",
    )
    force_alter_conflict_check: bool = session_setting(
        "force_alter_conflict_check",
        True,
        SWITCH,
        "On: a column that an unfinished mutation names is not modified or renamed. Off: it is, and the mutation that "
        "is under way still runs as it was started, with the columns as they were then.",
    )
    async_insert: str = session_setting(
        "async_insert",
        AUTO,
        SettingCheck(_parse_async, "auto, 0 or 1"),
        f"{_ASYNC_DOC} What a statement says counts more than what its table says.",
    )
    insert_quorum: int = session_setting(
        "insert_quorum",
        0,
        SettingCheck(parse_quorum, "auto, 0, or a number of replicas", lambda n: 0 <= n <= REPLICAS_MAX),
        "Of an INSERT into a table in a storage with replicas: so many copies of its files are safe when it is "
        "answered. auto or 0: as the table's setting says. More: its rows survive the loss of more replicas. Less: it "
        "goes on while more of them are away.",
    )
    async_insert_busy_timeout_ms: int = session_setting(
        "async_insert_busy_timeout_ms",
        0,
        within(int, 0, 60_000),
        "How long the first INSERT of a batch waits for others. While a commit is under way the next batch gathers "
        "anyway, so that the busier the table is, the larger its batches are. More: fewer commits and fewer, larger "
        "segments where few clients send. Less: a lone insert is faster.",
        unit="ms",
    )
    async_insert_max_data_size: int = session_setting(
        "async_insert_max_data_size",
        10 * MIB,
        within(parse_bytes, 1, words="1 byte and up"),
        "A batch of INSERTs that has so many bytes does not wait for more; an INSERT with more is in no batch. "
        "More: fewer commits under load. Less: memory and the wait for the commit stay small.",
        unit="bytes",
    )
    async_insert_max_rows: int = session_setting(
        "async_insert_max_rows",
        100_000,
        within(int, 1),
        "The same as async_insert_max_data_size, in rows.",
        unit="rows",
    )
    insertion_label: str = session_setting(
        "insertion_label",
        "",
        SettingCheck(
            str.strip,
            f"a text of at most {INSERT_LABEL_CHARACTERS_MAX} characters",
            lambda label: len(label) <= INSERT_LABEL_CHARACTERS_MAX,
        ),
        "A name for this INSERT, unique in its table: a second INSERT with it writes nothing and returns how many rows "
        "the first one wrote, so that a client whose answer was lost may simply try again. Empty: it has none. A label "
        "is remembered for a few hours.",
        aliases=("insert_deduplication_token",),
    )
    csv_delimiter: str = session_setting(
        "format_csv_delimiter",
        ",",
        SettingCheck(str, "one character", lambda text: len(text) == 1),
        "What stands between the values of a CSV line that an INSERT brings.",
    )
    skip_unknown: bool = session_setting(
        "input_format_skip_unknown_fields",
        False,
        SettingCheck(parse_bool, "0, 1"),
        "1, ClickHouse's default: an INSERT passes over values of names that are no columns. 0: they refuse it, so "
        "that a name that is misspelled is seen. A Kafka table, which answers nobody, passes over them by default.",
    )
    data_type_default_nullable: bool = session_setting(
        "data_type_default_nullable",
        True,
        SWITCH,
        "Off, ClickHouse's default: a column of CREATE TABLE or ADD COLUMN without NULL or Nullable is NOT NULL, and a "
        "row that does not bring it has the default of its type: 0, false, an empty text or list, 1970-01-01, the "
        "first name of an Enum. On: it may be NULL, and is where a row does not bring it.",
    )
    dialect: str = session_setting(
        "dialect",
        "spark",
        SettingCheck(
            lambda text: text.strip().lower(), "spark or clickhouse", lambda name: name in ("spark", "clickhouse")
        ),
        "clickhouse: a SELECT, also that of an INSERT or of a materialized view, is read in ClickHouse's dialect and "
        "written for Spark; a notice shows the result, and what has no counterpart is refused by name. ClickHouse's "
        "functions exist in both.",
    )
    read_only: bool = session_setting(
        "readonly",
        False,
        SettingCheck(parse_bool, "0, 1"),
        "1: a statement that changes rows, definitions or what runs is refused with READONLY_SETTING, also if its "
        "SETTINGS say 0. For clients that show and never change.",
    )
    log_queries: bool = session_setting(
        "log_queries",
        True,
        SettingCheck(parse_bool, "0, 1"),
        "0: the statement has no line in `system.query_log`, as those that a page repeats each second. Statements that "
        "change something are in `system.audit_log` nevertheless.",
    )
    #: Spark properties of the query's session.
    spark: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertSettings:
    """Settings of a table for INSERTs into it."""

    async_insert: str = table_setting("async_insert", AUTO, SettingCheck(_parse_async, "auto, 0 or 1"), _ASYNC_DOC)


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
    "insert_distributed_sync",
    "wait_for_async_insert",
    "wait_for_async_insert_timeout",
    "optimize_move_to_prewhere",
    "use_uncompressed_cache",
    "send_logs_level",
    "load_balancing",
    "prefer_localhost_replica",
    "dialect_type",
    "date_time_input_format",
    "join_use_nulls",
    "final",
    "lightweight_deletes_sync",
    "alter_sync",
    "replication_alter_partitions_sync",
    "database_atomic_wait_for_drop_and_detach_synchronously",
    "allow_drop_detached",
    "describe_include_subcolumns",
    "parallel_view_processing",
    "input_format_parallel_parsing",
    "log_query_threads",
    "log_profile_events",
    "send_progress_in_http_headers",
    "enable_http_compression",
    "receive_timeout",
    "send_timeout",
    "connect_timeout",
    "priority",
    "os_thread_priority",
    "use_query_cache",
    "enable_filesystem_cache",
    "max_parallel_replicas",
    "allow_experimental_parallel_reading_from_replicas",
    "max_distributed_connections",
    "background_pool_size",
    "optimize_skip_unused_shards",
    "optimize_read_in_order",
    "optimize_aggregation_in_order",
    "compile_expressions",
    "enable_optimizer_fallback",
    "bsp_mode",
    "disk_cache_mode",
)
SESSION_ACCEPTED = tuple(
    Setting(
        name,
        SettingScope.SESSION,
        "",
        TEXT,
        "Accepted so that existing statements run; has no effect, which a notice says.",
    )
    for name in _SESSION_WITHOUT_EFFECT
)

#: Owner of a setting, in words.
_WHOSE = {
    SettingScope.NODE: "of the node: `tilth serve` takes it when it starts",
    SettingScope.TABLE: "of a MergeTree table: ALTER TABLE t MODIFY SETTING",
    SettingScope.KAFKA: "of a Kafka table: ALTER TABLE k MODIFY SETTING",
    SettingScope.WAREHOUSE: "of a warehouse: ALTER WAREHOUSE w SETTINGS name = value",
    SettingScope.SESSION: "of a statement: SET name = value before it, or .. SETTINGS name = value at a query's end",
}


#: Hints for settings of ClickHouse and ByConity.
_INSTEAD = {
    "kafka_cluster": "name its brokers: kafka_broker_list = 'host1:9092,host2:9092'",
    "kafka_compression_codec": "leave it out: compressed messages are read by themselves",
    "kafka_autodetect_client_rack": "leave it out; client_rack in kafka_extra_librdkafka_config names a rack",
    "kafka_keyspace": "leave it out",
    "disk": "CREATE STORAGE name ROOT '..', then storage_policy = 'name'",
    "storage_type": "CREATE STORAGE name ROOT '..', then storage_policy = 'name'",
    "max_rows_to_read": "use max_execution_time and max_result_bytes",
    "max_bytes_to_read": "use max_execution_time and max_result_bytes",
    "max_rows_in_set": "use max_execution_time and max_result_bytes",
    "sql_dialect": "SET dialect = 'clickhouse' or 'spark'",
    "allow_suspicious_low_cardinality_types": "leave it out: LowCardinality is always allowed",
    "join_algorithm": "leave it out: Spark chooses it; a hint /*+ BROADCAST(t) */ in the query requests one",
    "mt_dop": "leave it out: Spark chooses it",
}


class _KnownGroup(SettingGroup):
    """Says of a setting of another scope whose it is."""

    def find(self, name: str) -> Setting[Any]:
        try:
            return super().find(name)
        except UnknownSettingError as error:
            plain = _plain(name)
            if plain in _INSTEAD:
                raise UnknownSettingError(setting=name, hint=_INSTEAD[plain]) from error
            for setting in all_settings():
                if plain in (_plain(known) for known in (setting.name, *setting.aliases)):
                    hint = f"it is a setting {_WHOSE[setting.scope]}"
                    raise UnknownSettingError(setting=name, hint=hint) from error
            raise


def _plain(name: str) -> str:
    return name.lower().replace(".", "_").replace("-", "_")


SESSION_SETTINGS = _KnownGroup((*settings_of(SessionSettings), *SESSION_ACCEPTED))
#: Double quotes have the same meaning in every session.
_QUOTES = "spark.sql.ansi.doubleQuotedIdentifiers"

#: Table settings of ClickHouse and ByConity that Tilth does not use.
_WITHOUT_EFFECT = (
    "index_granularity",
    "index_granularity_bytes",
    "min_bytes_for_wide_part",
    "min_rows_for_wide_part",
    "enable_mixed_granularity_parts",
    "replicated_deduplication_window",
    "allow_nullable_key",
)
ACCEPTED = tuple(
    Setting(
        name, SettingScope.TABLE, "", TEXT, "Accepted so that an existing DDL runs; has no effect, which a notice says."
    )
    for name in _WITHOUT_EFFECT
)

#: Settings in CREATE TABLE and ALTER TABLE .. MODIFY SETTING, for tables that store rows.
TABLE_SETTINGS = _KnownGroup(
    (
        *STORAGE_TABLE_SETTINGS.all,
        *MAINTENANCE_TABLE_SETTINGS.all,
        *PRESSURE_SETTINGS.all,
        *WAREHOUSE_TABLE_SETTINGS.all,
        *settings_of(InsertSettings),
        *ACCEPTED,
    )
)
#: Settings in CREATE and ALTER WAREHOUSE.
WAREHOUSES = _KnownGroup(SETTINGS_OF_WAREHOUSES.all)
#: The same as TABLE_SETTINGS for Kafka tables.
KAFKA_TABLE_SETTINGS = _KnownGroup(KAFKA_SETTINGS.all)


def settings_without_effect(names: Iterable[str]) -> tuple[str, ...]:
    """Return a notice for each of these settings that is accepted and has no effect."""
    known = {one.name for one in (*ACCEPTED, *SESSION_ACCEPTED, *KAFKA_SETTINGS.all) if " has no effect" in one.doc}
    return tuple(f"the setting {name} has no effect" for name in names if name in known)


def check_typed(given: Mapping[str, str]) -> None:
    """Raises BadSettingError for the mark of a redacted secret instead of a secret."""
    for name, text in given.items():
        if HIDDEN in text and KAFKA_TABLE_SETTINGS.find(name).has_secrets:
            hint = "write the secret itself; SHOW CREATE and system tables do not show it"
            raise BadSettingError(f"{HIDDEN} is the sign for a hidden secret, not a secret", setting=name, hint=hint)


def check_together(settings: Mapping[str, str]) -> None:
    """Check what settings of a table must satisfy together; raises BadSettingError."""
    pressure_settings(settings)
    table_settings(settings)


def session_settings(given: Mapping[str, str]) -> SessionSettings:
    """Raises UnknownSettingError, BadSettingError, and NotAllowedError for a setting of Spark that is not for it."""
    if not given:
        return _NO_SETTINGS
    spark = {name: text for name, text in given.items() if name.startswith(SPARK_PREFIX)}
    if spark.get(_QUOTES, "true").strip().lower() != "true":
        hint = "double quotes name columns and tables everywhere: put texts in single quotes"
        raise BadSettingError(setting=_QUOTES, value=spark[_QUOTES], allowed="true", hint=hint)
    check_spark_settings(name for name in spark if name != _QUOTES)
    settings = SESSION_SETTINGS.canonical({name: text for name, text in given.items() if name not in spark})
    return read_settings(SessionSettings, settings, spark=spark)


_NO_SETTINGS = SessionSettings()


def is_given(given: Mapping[str, str], name: str) -> bool:
    """Return whether a setting of a session is among those that were given, by any of its names."""
    plain = {text for text in given if not text.startswith(SPARK_PREFIX)}
    return any(SESSION_SETTINGS.find(text).name == name for text in plain)


# Any: settings of every type stand in one list.
def all_settings(upper: Iterable[Setting[Any]] = ()) -> list[Setting[Any]]:
    """Every setting of this room and those below it, and those handed in, by scope and name."""
    groups = (
        SESSION_SETTINGS,
        TABLE_SETTINGS,
        KAFKA_SETTINGS,
        CATALOG_SETTINGS,
        STORAGE_NODE_SETTINGS,
        INGEST_SETTINGS,
        MAINTENANCE_NODE_SETTINGS,
        WAREHOUSE_NODE_SETTINGS,
        SETTINGS_OF_WAREHOUSES,
    )
    found = [*upper, *(setting for group in groups for setting in group.all)]
    return sorted(found, key=lambda setting: (setting.scope, setting.name))
