"""Settings of ingestion: those of one Kafka table and those of the node.

Covers: declarations, and the typed value that the rest of the room uses. Does not cover: how settings are stored.
Always holds: a KafkaConfig is complete and checked. See also: docs/policies/consumers.md#settings.

Tests: tests/unit/ingest/test_ingest_values.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from tilth.base.errors import InvalidInputError
from tilth.base.hosts import HOSTS
from tilth.base.secrets import HIDDEN
from tilth.base.settings import (
    TEXT,
    Setting,
    SettingCheck,
    SettingGroup,
    SettingScope,
    hidden,
    kafka_setting,
    node_setting,
    parse_bool,
    read_settings,
    setting_of,
    settings_of,
    within,
)
from tilth.base.units import MIB, parse_bytes, parse_seconds
from tilth.formats import format_names, rows_format
from tilth.ingest.library import is_secret, read_pairs, shown_pairs
from tilth.model.table import KafkaDef, full_name
from tilth.model.task import ScheduleMode
from tilth.model.warehouse import WRITE_WAREHOUSE


class ErrorMode(StrEnum):
    """Handling of a message that cannot be decoded."""

    DEAD_LETTER = "dead_letter"
    STREAM = "stream"
    THROW = "throw"


class Envelope(StrEnum):
    """Envelope around the row of a message."""

    NONE = "none"
    #: A change event of Debezium: `before`, `after`, `op`.
    DEBEZIUM = "debezium"


class OffsetStart(StrEnum):
    """Start of the first round on a partition that has no stored offset."""

    EARLIEST = "earliest"
    LATEST = "latest"


#: Most tasks that share one round, whatever the size of a cluster.
ROUND_TASKS_MAX = 256
_ERROR_MODES = {name.value: name for name in ErrorMode} | {"default": ErrorMode.THROW}
_STARTS = {"": OffsetStart.EARLIEST, "smallest": OffsetStart.EARLIEST, "largest": OffsetStart.LATEST}
_STARTS |= {name.value: name for name in OffsetStart}


T = TypeVar("T")


def _one_of(known: Mapping[str, T]) -> Callable[[str], T]:
    """A parser that knows these words."""

    def parse(text: str) -> T:
        if text.strip().lower() not in known:
            raise ValueError(text)
        return known[text.strip().lower()]

    return parse


def _format_name(text: str) -> str:
    """The name of a format that reads rows, as it is listed."""
    found = rows_format(text)
    if found is None:
        raise ValueError(text)
    return found.name


def _milliseconds(text: str) -> int:
    """A bare number is milliseconds; `2 s` is two seconds."""
    return int(text) if text.strip().isdigit() else int(parse_seconds(text) * 1000)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _LibrarySettings:
    """Settings that go to librdkafka as they are."""

    client_id: str = kafka_setting(
        "kafka_client_id",
        "",
        TEXT,
        "The name under which the broker sees the client. Empty: `tilth`.",
        aliases=("client_id",),
    )
    security_protocol: str = kafka_setting(
        "kafka_security_protocol", "", TEXT, "plaintext, ssl, sasl_plaintext, sasl_ssl; empty: plaintext."
    )
    sasl_mechanism: str = kafka_setting(
        "kafka_sasl_mechanism", "", TEXT, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, GSSAPI, OAUTHBEARER."
    )
    sasl_username: str = kafka_setting("kafka_sasl_username", "", TEXT, "The name for SASL.")
    sasl_password: str = kafka_setting(
        "kafka_sasl_password",
        "",
        TEXT,
        f"The password for SASL. It is stored apart from the table's definition and shown as `{HIDDEN}`.",
        shown=hidden,
    )
    further: tuple[tuple[str, str], ...] = kafka_setting(
        "kafka_extra_librdkafka_config",
        (),
        SettingCheck(lambda text: tuple(read_pairs(text).items()), "a JSON object, or a=1;b=2"),
        "Further settings of librdkafka, which override Tilth's own; this page lists the allowed ones. Passwords and "
        "keys among them are stored apart and never shown.",
        aliases=("extra_librdkafka_config",),
        shown=shown_pairs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """All settings of one Kafka table, read and checked. Goes to the executors."""

    #: `database.table`, for messages.
    table: str
    brokers: str = kafka_setting(
        "kafka_broker_list",
        "",
        SettingCheck(str, "host:port without user and password, see kafka_sasl_username", lambda text: "@" not in text),
        "Addresses of brokers, host:port, with commas between. Required.",
        aliases=("broker_list",),
    )
    topics: tuple[str, ...] = kafka_setting(
        "kafka_topic_list",
        (),
        SettingCheck(_names, "str"),
        "Topics to read, with commas between. Required.",
        aliases=("topic_list",),
    )
    #: Filled in by `read_config` where it is empty, as is dead_letter_table.
    group: str = kafka_setting(
        "kafka_group_name",
        "",
        TEXT,
        "The consumer group that reads the topics. The offsets in Tilth's catalog belong to it: a Kafka table that is "
        "made anew with the same brokers, topic and group goes on where the group stood, and no second one may read a "
        "topic for it. The broker is given the offsets too, so that lag monitors see them, but they are never read "
        "back. Empty: `tilth.DATABASE.TABLE`, which a RENAME does not change.",
        aliases=("group_name",),
    )
    format: str = kafka_setting(
        "kafka_format",
        "JSONEachRow",
        SettingCheck(_format_name, ", ".join(format_names(lambda each: each.read))),
        "What a message holds. JSON is read as JSONEachRow: one object, or several; Raw and JSONAsString as RawBLOB: "
        "the message as it is, unchecked. LineAsString: each line of it is a row. Required.",
        aliases=("format",),
    )
    envelope: Envelope = kafka_setting(
        "kafka_envelope",
        Envelope.NONE,
        SettingCheck(_one_of({name.value: name for name in Envelope}), "none, debezium"),
        "debezium: a message is a change event of Debezium in JSON, with its schema or without. A row is its `after`, "
        "or of a delete its `before`; the virtual columns `_op`, `_ts_ms` and `_source` give the rest. A view into a "
        "table with a UNIQUE KEY applies the changes: `_op` goes with the row. Messages without a value (tombstones) "
        "are passed over.",
    )
    warehouse: str = kafka_setting(
        "cnch_vw_write",
        WRITE_WAREHOUSE,
        TEXT,
        "The warehouse whose workers run the consumers; SHOW WAREHOUSES lists them.",
    )
    schedule: ScheduleMode = kafka_setting(
        "kafka_cnch_schedule_mode",
        ScheduleMode.LEAST_CONSUMERS,
        SettingCheck(_one_of({mode.value: mode for mode in ScheduleMode}), ", ".join(ScheduleMode)),
        "How consumers find their workers. `least_consumers`: the worker that has the fewest, and consumers move when "
        "one has many more than others, as when one has joined. `hash`: the same worker for the same consumer as "
        "long as it is there, so that what it has in memory helps. `random`: any; none moves.",
        aliases=("cnch_schedule_mode",),
    )
    consumers: int = kafka_setting(
        "kafka_num_consumers",
        1,
        within(int, 1, 256),
        "Consumers that share the partitions; no more than the largest topic has partitions are started. More: rounds "
        "of different partitions run side by side. Fewer: larger rounds and larger parts.",
        aliases=("num_consumers",),
    )
    block_rows: int = kafka_setting(
        "kafka_max_block_size",
        1_000_000,
        within(int, 1, 100_000_000),
        "Messages of one round at most. More: higher throughput with backlog, larger parts. Fewer: less memory, sooner "
        "visible. ByConity's default is 65536; a round of Tilth costs about 0.2 s however small, so its default is "
        "larger.",
        unit="messages",
        aliases=("max_block_size",),
    )
    block_bytes: int = kafka_setting(
        "kafka_max_block_bytes",
        256 * MIB,
        within(parse_bytes, 1 * MIB, words="at least 1 MiB"),
        "Bytes of one round at most, foreseen from the sizes of the messages before. More: as kafka_max_block_size. "
        "Fewer: less memory.",
        unit="bytes",
        aliases=("max_block_bytes_size", "kafka_max_block_bytes_size"),
    )
    flush_interval_ms: int = kafka_setting(
        "stream_flush_interval_ms",
        8000,
        within(_milliseconds, 0),
        "How long messages wait at most for a round of their own. Longer: fewer and larger parts. Shorter: sooner "
        "visible.",
        unit="milliseconds",
        aliases=("kafka_flush_interval_ms", "kafka_max_poll_interval_ms", "max_poll_interval_ms"),
    )
    poll_interval_ms: int = kafka_setting(
        "kafka_poll_timeout_ms",
        500,
        within(_milliseconds, 10, 60_000),
        "How often an idle consumer polls the broker for new messages. Longer: fewer requests. Shorter: sooner seen.",
        unit="milliseconds",
        aliases=("poll_timeout", "kafka_poll_timeout"),
    )
    fetch_bytes: int = kafka_setting(
        "kafka_max_partition_fetch_bytes",
        1 * MIB,
        within(parse_bytes, 1024, 1_000_000_000),
        "Bytes that one fetch brings. Larger: a new consumer waits longer for its first message (50 MB: up to a "
        "second). Smaller: more requests. Larger messages arrive all the same, one a fetch.",
        unit="bytes",
        aliases=("max_partition_fetch_bytes",),
    )
    error_mode: ErrorMode = kafka_setting(
        "kafka_handle_error_mode",
        ErrorMode.DEAD_LETTER,
        SettingCheck(_one_of(_ERROR_MODES), "dead_letter, stream, throw (also: default)"),
        "What becomes of a message that cannot be decoded. dead_letter: it goes to the dead-letter table with its "
        "reason. stream: it becomes a row whose `_error` and `_raw_message` are filled. throw (ClickHouse's "
        "`default`): the round fails, nothing of it is stored. A message that is decoded and that one view cannot take "
        "(a cast fails, its target has no room for a value) costs that view this message, and the other views get it: "
        "with dead_letter and with stream it goes to the dead-letter table with the view's name, with throw the round "
        "fails.",
        aliases=("handle_error_mode",),
    )
    dead_letter_table: str = kafka_setting(
        "kafka_dead_letter_table",
        "",
        TEXT,
        "The table of the same database that takes dead letters: topic, partition, offset, key and bytes of a message, "
        "the reason, and the view that could not take it (NULL: it cannot be decoded). Made when it is missing; it may "
        "have more columns. Empty: `TABLE_dead_letters`.",
        aliases=("dead_letter_table",),
    )
    skip_broken: int = kafka_setting(
        "kafka_skip_broken_messages",
        0,
        within(int, 0),
        "With kafka_handle_error_mode = throw: messages of one round that are dropped before it fails, because they "
        "cannot be decoded or a view cannot take them.",
        unit="messages",
        aliases=("skip_broken_messages",),
    )
    start: OffsetStart = kafka_setting(
        "kafka_auto_offset_reset",
        OffsetStart.EARLIEST,
        SettingCheck(_one_of(_STARTS), "earliest, latest"),
        "Where reading starts when the group has no offset on the topic: earliest (the default of Tilth; the client "
        "library's is latest) takes what the topic holds, latest only what comes from now on. Looked up once, then "
        "stored; an offset that went lost later is a gap, never a reset. Partitions that are added later are always "
        "read from their first message.",
        aliases=("auto_offset_reset",),
    )
    isolation: str = kafka_setting(
        "kafka_isolation_level",
        "read_committed",
        SettingCheck(
            _one_of({"read_committed": "read_committed", "read_uncommitted": "read_uncommitted"}),
            "read_committed, read_uncommitted",
        ),
        "read_committed: messages of open and aborted Kafka transactions are not read.",
        aliases=("isolation_level",),
    )
    open_transaction_seconds: float = kafka_setting(
        "kafka_open_transaction_bound",
        120.0,
        within(parse_seconds, 1.0, 604_800, "1 s to 7 days"),
        "How long reading may wait for a transaction that its producer has left open, before the alarm "
        "`stream_blocked` reports it. Longer: no alarm for producers whose transactions last for minutes, such as "
        "those that commit with a checkpoint. Shorter: a producer that is gone is seen sooner.",
        unit="seconds",
    )
    skip_holes: bool = kafka_setting(
        "kafka_enable_skip_offsets_hole",
        False,
        SettingCheck(parse_bool, "0, 1"),
        "1: messages that the broker deleted before they were read are passed over and noted in system.ingest_gaps. 0: "
        "the consumer stops there until SYSTEM RESET CONSUME OFFSET decides.",
        aliases=("enable_skip_offsets_hole",),
    )
    round_tasks_max: int = kafka_setting(
        "kafka_round_tasks_max",
        0,
        within(int, 0, ROUND_TASKS_MAX),
        "Spark tasks that share one large round; 0: one for each core of its Spark, on a cluster of the executors that "
        "are there when it begins. More: faster rounds. Fewer: fewer and larger parts.",
    )
    skip_unknown: bool = kafka_setting(
        "input_format_skip_unknown_fields",
        True,
        SettingCheck(parse_bool, "0, 1"),
        "1: fields that are no columns are passed over. 0: they make a message broken.",
    )
    csv_delimiter: str = kafka_setting(
        "format_csv_delimiter",
        ",",
        SettingCheck(str, "one character", lambda text: len(text) == 1),
        "What stands between the values of a CSV line.",
    )
    #: Settings of librdkafka besides those that the code sets itself; includes passwords.
    library: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def secrets(self) -> list[str]:
        """Passwords and keys."""
        return [value for name, value in self.library if is_secret(name)]


#: Settings of ClickHouse and ByConity that an existing DDL may carry.
_WITHOUT_EFFECT = (
    "kafka_row_delimiter",
    "kafka_schema",
    "kafka_commit_every_batch",
    "kafka_commit_on_select",
    "kafka_thread_per_consumer",
    "kafka_poll_max_batch_size",
    "kafka_max_rows_per_message",
    "kafka_unique_group_prefix",
    "kafka_sample_consuming_params",
    "kafka_max_write_execution_second",
    "date_time_input_format",
    "input_format_json_read_numbers_from_strings",
)
#: Settings of one Kafka table.
KAFKA_SETTINGS = SettingGroup(
    (
        *settings_of(KafkaConfig, _LibrarySettings),
        *(
            Setting(
                name,
                SettingScope.KAFKA,
                "",
                TEXT,
                "Accepted so that an existing DDL runs; has no effect, which a notice says.",
                aliases=(name[6:],) if name.startswith("kafka_") else (),
            )
            for name in _WITHOUT_EFFECT
        ),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """The node's values, read once when it starts."""

    manager_interval: float = node_setting(
        "ingest.manager-interval",
        7.0,
        within(parse_seconds, 0.05, 3600, "0.05 to 3600 seconds"),
        "How often the topics' metadata and the consumers are polled. Longer: fewer requests. Shorter: new "
        "partitions are found sooner. A consumer that ends, and a changed definition, are seen at once in any case.",
        unit="seconds",
        aliases=("kafka_manager_interval",),
    )
    log_events_max: int = node_setting(
        "ingest.log-events-max",
        10_000,
        within(int, 1),
        "Lines that system.kafka_log keeps. More: a longer history. Fewer: less memory.",
    )
    certificates_folder: str = node_setting(
        "ingest.certificates-folder",
        "",
        SettingCheck(str.strip, "the absolute path of a folder", lambda folder: not folder or folder.startswith("/")),
        "Kafka tables can name files with certificates and keys below this folder (`ssl.ca.location` and the like), "
        "and no other files. Every Spark executor reads them there. Empty: no files; certificates are PEM text "
        "(`ssl.ca.pem`).",
    )
    hosts: tuple[str, ...] = node_setting(
        "ingest.hosts",
        (),
        HOSTS,
        "Hosts that Kafka tables may name: brokers, and where tokens come from "
        "(`sasl.oauthbearer.token.endpoint.url`), as in `*.example.com, 10.0.0.0/8`. Brokers that these brokers name "
        "are not checked. Empty: all but link-local addresses and those of the metadata services of clouds.",
    )


#: Settings of the node.
INGEST_SETTINGS = SettingGroup(settings_of(IngestSettings))
_DEAD_LETTERS = setting_of(KafkaConfig, "dead_letter_table")
_OPEN_TRANSACTION = setting_of(KafkaConfig, "open_transaction_seconds")


def read_config(kafka: KafkaDef, secrets: Mapping[str, str] | None = None) -> KafkaConfig:
    """The settings of a Kafka table; raises UnknownSettingError, BadSettingError or InvalidInputError
    (MISSING_SETTING).

    `secrets`: full texts of the settings that its definition has redacted; needed only to connect to a broker.
    """
    given = KAFKA_SETTINGS.canonical(kafka.settings | dict(secrets or {}))
    for needed in ("brokers", "topics", "format"):
        setting = setting_of(KafkaConfig, needed)
        if not given.get(setting.name):
            hint = f"add SETTINGS {setting.name} = '...'"
            raise InvalidInputError.coded(
                "MISSING_SETTING",
                "a Kafka table lacks a setting that it cannot do without",
                table=full_name(kafka),
                setting=setting.name,
                hint=hint,
            )
    read = read_settings(KafkaConfig, given, table=full_name(kafka), library=_library(given))
    return replace(
        read,
        group=group_of(kafka),
        dead_letter_table=dead_letter_name(kafka),
    )


def group_of(kafka: KafkaDef) -> str:
    """The consumer group that a Kafka table reads for, whatever its other settings are."""
    given = KAFKA_SETTINGS.canonical(kafka.settings).get(setting_of(KafkaConfig, "group").name, "").strip()
    return given or f"tilth.{full_name(kafka)}"


def dead_letter_name(kafka: KafkaDef) -> str:
    """Return the name of the dead-letter table of a Kafka table, whatever its other settings are."""
    names = (_DEAD_LETTERS.name, *_DEAD_LETTERS.aliases)
    given = next((text for name, text in kafka.settings.items() if name in names), "")
    return _DEAD_LETTERS.read(given) or f"{kafka.name}_dead_letters"


def open_transaction_bound(kafka: KafkaDef) -> float:
    """Return how many seconds a transaction of a producer may stay open, whatever the other settings are."""
    text = kafka.settings.get(_OPEN_TRANSACTION.name)
    seconds: float = _OPEN_TRANSACTION.default if text is None else _OPEN_TRANSACTION.read(text)
    return seconds


def _library(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Settings that go to librdkafka as they are."""
    read = read_settings(_LibrarySettings, given)
    named = {
        "client.id": read.client_id or "tilth",
        "security.protocol": read.security_protocol,
        "sasl.mechanism": read.sasl_mechanism,
        "sasl.username": read.sasl_username,
        "sasl.password": read.sasl_password,
    }
    return tuple(({name: text for name, text in named.items() if text} | dict(read.further)).items())
