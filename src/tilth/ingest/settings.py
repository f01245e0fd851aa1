"""The knobs of ingestion: those of one Kafka table and those of the node.

Covers: declarations, and the typed value that the rest of the room takes. Does not cover: how settings are stored.
Always holds: a KafkaConfig is complete and checked. See also: docs/policies/consumers.md#settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from tilth.base.errors import InvalidInputError
from tilth.base.secrets import HIDDEN
from tilth.base.settings import Scope, Setting, SettingGroup, hidden, parse_bool, value_of
from tilth.base.units import MIB, parse_bytes, parse_seconds
from tilth.ingest.library import is_secret, read_pairs, shown_pairs
from tilth.model.table import KafkaDef, full_name


class MissingSettingError(InvalidInputError):
    """a Kafka table lacks a setting that it cannot do without"""

    code = "MISSING_SETTING"


class Format(StrEnum):
    """What a message holds; the value is ClickHouse's name."""

    #: One or several JSON objects, each a row.
    JSON = "JSONEachRow"
    #: Lines of values in the order of the columns.
    CSV = "CSV"
    #: The whole message is the value of the one column.
    RAW = "RawBLOB"
    #: Each line of the message is a row of the one column.
    LINES = "LineAsString"


class ErrorMode(StrEnum):
    """What becomes of a message that cannot be decoded."""

    DEAD_LETTER = "dead_letter"
    STREAM = "stream"
    THROW = "throw"


class Envelope(StrEnum):
    """What is around the row of a message."""

    NONE = "none"
    #: A change event of Debezium: `before`, `after`, `op`.
    DEBEZIUM = "debezium"


class OffsetStart(StrEnum):
    """Where the first round starts on a partition that has no stored offset."""

    EARLIEST = "earliest"
    LATEST = "latest"


_FORMATS = {name.value.lower(): name for name in Format} | {
    "raw": Format.RAW,
    "json": Format.JSON,
    "jsonasstring": Format.RAW,
}
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


def _milliseconds(text: str) -> int:
    """A bare number is milliseconds; `2 s` is two seconds."""
    return int(text) if text.strip().isdigit() else int(parse_seconds(text) * 1000)


def _pairs(text: str) -> str:
    read_pairs(text)
    return text


def _text(name: str, doc: str, *aliases: str, default: str = "", shown: Callable[[str], str] = str) -> Setting[str]:
    return Setting(
        name=name, scope=Scope.KAFKA, default=default, parse=str.strip, doc=doc, aliases=aliases, shown=shown
    )


BROKERS = _text("kafka_broker_list", "Addresses of brokers, host:port, with commas between. Required.", "broker_list")
TOPICS = _text("kafka_topic_list", "Topics to read, with commas between. Required.", "topic_list")
GROUP = _text(
    "kafka_group_name",
    "The consumer group that reads the topics. The offsets in Tilth's catalog belong to it: a Kafka table that is made "
    "anew with the same brokers, topic and group goes on where the group stood, and no second one may read a topic for "
    "it. The broker is given the offsets too, so that lag monitors see them, but they are never read back. Empty: "
    "`tilth.DATABASE.TABLE`, which a RENAME does not change.",
    "group_name",
)
FORMAT: Setting[Format] = Setting(
    name="kafka_format",
    scope=Scope.KAFKA,
    default=Format.JSON,
    parse=_one_of(_FORMATS),
    allowed="JSONEachRow, CSV, Raw, RawBLOB, LineAsString, JSONAsString",
    doc="What a message holds. JSONAsString is read as Raw: the message as it is, unchecked. Required.",
    aliases=("format",),
)
ENVELOPE: Setting[Envelope] = Setting(
    name="kafka_envelope",
    scope=Scope.KAFKA,
    default=Envelope.NONE,
    parse=_one_of({name.value: name for name in Envelope}),
    allowed="none, debezium",
    doc="debezium: a message is a change event of Debezium in JSON, with its schema or without. A row is its `after`, "
    "or of a delete its `before`; the virtual columns `_op`, `_ts_ms` and `_source` tell the rest. A view into a table "
    "with a UNIQUE KEY applies the changes: `_op` goes with the row. Messages without a value (tombstones) are passed "
    "over.",
)
CONSUMERS: Setting[int] = Setting(
    name="kafka_num_consumers",
    scope=Scope.KAFKA,
    default=1,
    parse=int,
    check=lambda n: 1 <= n <= 256,
    allowed="1 to 256",
    doc="Consumers that share the partitions; no more than the largest topic has partitions are started. "
    "More: rounds of different partitions run side by side. Fewer: larger rounds and larger parts.",
    aliases=("num_consumers",),
)
BLOCK_ROWS: Setting[int] = Setting(
    name="kafka_max_block_size",
    scope=Scope.KAFKA,
    default=1_000_000,
    parse=int,
    check=lambda n: 1 <= n <= 100_000_000,
    allowed="1 to 100000000",
    unit="messages",
    doc="Messages of one round at most. More: higher throughput with backlog, larger parts. Fewer: less "
    "memory, sooner visible. ByConity's default is 65536; a round of Tilth costs about 0.2 s however small, "
    "so its default is larger.",
    aliases=("max_block_size",),
)
BLOCK_BYTES: Setting[int] = Setting(
    name="kafka_max_block_bytes",
    scope=Scope.KAFKA,
    default=256 * MIB,
    parse=parse_bytes,
    check=lambda n: n >= 1 * MIB,
    allowed="at least 1 MiB",
    unit="bytes",
    doc="Bytes of one round at most, foreseen from the sizes of the messages before. More: as "
    "kafka_max_block_size. Fewer: less memory.",
    aliases=("max_block_bytes_size", "kafka_max_block_bytes_size"),
)
FLUSH_INTERVAL: Setting[int] = Setting(
    name="stream_flush_interval_ms",
    scope=Scope.KAFKA,
    default=8000,
    parse=_milliseconds,
    check=lambda n: n >= 0,
    allowed="0 or more",
    unit="milliseconds",
    doc="How long messages wait at most for a round of their own. Longer: fewer and larger parts. Shorter: "
    "sooner visible.",
    aliases=("kafka_flush_interval_ms", "kafka_max_poll_interval_ms", "max_poll_interval_ms"),
)
POLL_INTERVAL: Setting[int] = Setting(
    name="kafka_poll_timeout_ms",
    scope=Scope.KAFKA,
    default=500,
    parse=_milliseconds,
    check=lambda n: 10 <= n <= 60_000,
    allowed="10 to 60000",
    unit="milliseconds",
    doc="How often an idle consumer asks the broker for new messages. Longer: fewer requests. Shorter: sooner seen.",
    aliases=("poll_timeout", "kafka_poll_timeout"),
)
FETCH_BYTES: Setting[int] = Setting(
    name="kafka_max_partition_fetch_bytes",
    scope=Scope.KAFKA,
    default=1 * MIB,
    parse=parse_bytes,
    check=lambda n: 1024 <= n <= 1_000_000_000,
    allowed="1024 to 1000000000",
    unit="bytes",
    doc="Bytes that one fetch brings. Larger: a new consumer waits longer for its first message (50 MB: up "
    "to a second). Smaller: more requests. Larger messages arrive all the same, one a fetch.",
    aliases=("max_partition_fetch_bytes",),
)
ERROR_MODE: Setting[ErrorMode] = Setting(
    name="kafka_handle_error_mode",
    scope=Scope.KAFKA,
    default=ErrorMode.DEAD_LETTER,
    parse=_one_of(_ERROR_MODES),
    allowed="dead_letter, stream, throw (also: default)",
    doc="What becomes of a message that cannot be decoded. dead_letter: it goes to the dead-letter table with its "
    "reason. stream: it becomes a row whose `_error` and `_raw_message` are filled. throw (ClickHouse's `default`): "
    "the round fails, nothing of it is stored. A message that is decoded and that one view cannot take (a cast "
    "fails, its target has no room for a value) costs that view this message, and the other views get it: with "
    "dead_letter and with stream it goes to the dead-letter table with the view's name, with throw the round fails.",
    aliases=("handle_error_mode",),
)
DEAD_LETTERS = _text(
    "kafka_dead_letter_table",
    "The table of the same database that takes dead letters: topic, partition, offset, key and bytes of a message, "
    "the reason, and the view that could not take it (NULL: it cannot be decoded). Made when it is missing; it may "
    "have more columns. Empty: `TABLE_dead_letters`.",
    "dead_letter_table",
)
SKIP_BROKEN: Setting[int] = Setting(
    name="kafka_skip_broken_messages",
    scope=Scope.KAFKA,
    default=0,
    parse=int,
    check=lambda n: n >= 0,
    allowed="0 or more",
    unit="messages",
    doc="With kafka_handle_error_mode = throw: messages of one round that are dropped before it fails, because they "
    "cannot be decoded or a view cannot take them.",
    aliases=("skip_broken_messages",),
)
START: Setting[OffsetStart] = Setting(
    name="kafka_auto_offset_reset",
    scope=Scope.KAFKA,
    default=OffsetStart.EARLIEST,
    parse=_one_of(_STARTS),
    allowed="earliest, latest",
    doc="Where reading starts when the group has no offset on the topic: earliest (the default of Tilth; the client "
    "library's is latest) takes what the topic holds, latest only what comes from now on. Looked up once, then stored; "
    "an offset that went lost later is a gap, never a reset. Partitions that are added later are always "
    "read from their first message.",
    aliases=("auto_offset_reset",),
)
ISOLATION: Setting[str] = Setting(
    name="kafka_isolation_level",
    scope=Scope.KAFKA,
    default="read_committed",
    parse=_one_of({"read_committed": "read_committed", "read_uncommitted": "read_uncommitted"}),
    allowed="read_committed, read_uncommitted",
    doc="read_committed: messages of open and aborted Kafka transactions are not read.",
    aliases=("isolation_level",),
)
SKIP_HOLES: Setting[bool] = Setting(
    name="kafka_enable_skip_offsets_hole",
    scope=Scope.KAFKA,
    default=False,
    parse=parse_bool,
    allowed="0, 1",
    doc="1: messages that the broker deleted before they were read are passed over and noted in "
    "system.ingest_gaps. 0: the consumer stops there until SYSTEM RESET CONSUME OFFSET decides.",
    aliases=("enable_skip_offsets_hole",),
)
ROUND_TASKS: Setting[int] = Setting(
    name="kafka_round_tasks_max",
    scope=Scope.KAFKA,
    default=0,
    parse=int,
    check=lambda n: 0 <= n <= 256,
    allowed="0 to 256",
    doc="Spark tasks that share one large round; 0: one for each core. More: faster rounds. Fewer: fewer "
    "and larger parts.",
)
CLIENT_ID = _text("kafka_client_id", "The name under which the broker sees the client. Empty: `tilth`.", "client_id")
LIBRARY: Setting[str] = Setting(
    name="kafka_extra_librdkafka_config",
    scope=Scope.KAFKA,
    default="",
    parse=_pairs,
    allowed="a JSON object, or a=1;b=2",
    doc="Further settings of librdkafka, which override Tilth's own; this page lists the allowed ones. Passwords and "
    "keys among them are stored apart and never shown.",
    aliases=("extra_librdkafka_config",),
    shown=shown_pairs,
)
SECURITY_PROTOCOL = _text("kafka_security_protocol", "plaintext, ssl, sasl_plaintext, sasl_ssl; empty: plaintext.")
SASL_MECHANISM = _text("kafka_sasl_mechanism", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, GSSAPI, OAUTHBEARER.")
SASL_USER = _text("kafka_sasl_username", "The name for SASL.")
SASL_PASSWORD = _text(
    "kafka_sasl_password",
    f"The password for SASL. It is stored apart from the table's definition and shown as `{HIDDEN}`.",
    shown=hidden,
)
SKIP_UNKNOWN: Setting[bool] = Setting(
    name="input_format_skip_unknown_fields",
    scope=Scope.KAFKA,
    default=True,
    parse=parse_bool,
    allowed="0, 1",
    doc="1: fields that are no columns are passed over. 0: they make a message broken.",
)
NUMBERS_IN_STRINGS: Setting[bool] = Setting(
    name="input_format_json_read_numbers_from_strings",
    scope=Scope.KAFKA,
    default=False,
    parse=parse_bool,
    allowed="0, 1",
    doc='1: "12" is read as 12 where a number is expected, and "true" as true. 0: it makes a message broken.',
)
CSV_DELIMITER: Setting[str] = Setting(
    name="format_csv_delimiter",
    scope=Scope.KAFKA,
    default=",",
    parse=str,
    check=lambda text: len(text) == 1,
    allowed="one character",
    doc="What stands between the values of a CSV line.",
)

#: Of ClickHouse and ByConity; an existing DDL may carry them.
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
    "kafka_cnch_schedule_mode",
    "cnch_vw_write",
)
ACCEPTED = tuple(
    _text(
        name,
        "Accepted so that an existing DDL runs; has no effect, which a notice says.",
        *([name[6:]] if name.startswith("kafka_") else []),
    )
    for name in _WITHOUT_EFFECT
)

#: Settings of one Kafka table.
KAFKA_SETTINGS = SettingGroup(
    (
        *(
            BROKERS,
            TOPICS,
            GROUP,
            FORMAT,
            ENVELOPE,
            CONSUMERS,
            BLOCK_ROWS,
            BLOCK_BYTES,
            FLUSH_INTERVAL,
            POLL_INTERVAL,
            FETCH_BYTES,
        ),
        *(ERROR_MODE, DEAD_LETTERS, SKIP_BROKEN, START, ISOLATION, SKIP_HOLES, ROUND_TASKS, CLIENT_ID, LIBRARY),
        *(SECURITY_PROTOCOL, SASL_MECHANISM, SASL_USER, SASL_PASSWORD, SKIP_UNKNOWN, NUMBERS_IN_STRINGS, CSV_DELIMITER),
        *ACCEPTED,
    )
)

MANAGER_INTERVAL: Setting[float] = Setting(
    name="ingest.manager-interval",
    scope=Scope.NODE,
    default=7.0,
    parse=parse_seconds,
    check=lambda n: 0.05 <= n <= 3600,
    allowed="0.05 to 3600 seconds",
    unit="seconds",
    doc="How often the topics' metadata and the consumers are looked at. Longer: fewer requests. Shorter: "
    "new partitions are found sooner. A consumer that ends, and a changed definition, are seen at once in any case.",
    aliases=("kafka_manager_interval",),
)
LOG_EVENTS: Setting[int] = Setting(
    name="ingest.log-events-max",
    scope=Scope.NODE,
    default=10_000,
    parse=int,
    check=lambda n: n >= 1,
    allowed="1 or more",
    doc="Lines that system.kafka_log keeps. More: a longer look back. Fewer: less memory.",
)
CERTIFICATES_FOLDER: Setting[str] = Setting(
    name="ingest.certificates-folder",
    scope=Scope.NODE,
    default="",
    parse=str.strip,
    check=lambda folder: not folder or folder.startswith("/"),
    allowed="the absolute path of a folder",
    doc="Kafka tables can name files with certificates and keys below this folder (`ssl.ca.location` and the like), "
    "and no other files. Every Spark executor reads them there. Empty: no files; certificates are PEM text "
    "(`ssl.ca.pem`).",
)
#: Settings of the node.
INGEST_SETTINGS = SettingGroup((MANAGER_INTERVAL, LOG_EVENTS, CERTIFICATES_FOLDER))


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """The node's values, read once when it starts."""

    #: Seconds.
    manager_interval: float = MANAGER_INTERVAL.default
    log_events_max: int = LOG_EVENTS.default
    #: Empty: Kafka tables name no files.
    certificates_folder: str = CERTIFICATES_FOLDER.default


def ingest_settings(given: Mapping[str, str]) -> IngestSettings:
    """The settings of the node's texts; raises BadSettingError and UnknownSettingError."""
    values = INGEST_SETTINGS.read(given)
    return IngestSettings(
        manager_interval=value_of(values, MANAGER_INTERVAL),
        log_events_max=value_of(values, LOG_EVENTS),
        certificates_folder=value_of(values, CERTIFICATES_FOLDER),
    )


def certificates_folder(given: Mapping[str, str]) -> str:
    """Return the folder below which Kafka tables can name files, from the node's texts; empty: no files."""
    return given.get(CERTIFICATES_FOLDER.name, CERTIFICATES_FOLDER.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """All settings of one Kafka table, read and checked. Goes to the executors."""

    #: `database.table`, for messages.
    table: str
    brokers: str
    topics: tuple[str, ...]
    group: str
    format: Format
    envelope: Envelope
    consumers: int
    block_rows: int
    block_bytes: int
    flush_interval_ms: int
    poll_interval_ms: int
    fetch_bytes: int
    error_mode: ErrorMode
    dead_letter_table: str
    skip_broken: int
    start: OffsetStart
    isolation: str
    skip_holes: bool
    round_tasks_max: int
    #: For librdkafka, in addition to what the room sets itself; includes passwords.
    library: tuple[tuple[str, str], ...] = field(repr=False)
    skip_unknown: bool
    numbers_in_strings: bool
    csv_delimiter: str

    @property
    def secrets(self) -> list[str]:
        """Passwords and keys."""
        return [value for name, value in self.library if is_secret(name)]


def read_config(kafka: KafkaDef, secrets: Mapping[str, str] | None = None) -> KafkaConfig:
    """The settings of a Kafka table; raises UnknownSettingError, BadSettingError or MissingSettingError.

    `secrets`: full texts of the settings that its definition has redacted; needed only to connect to a broker.
    """
    settings = kafka.settings | dict(secrets or {})
    values = KAFKA_SETTINGS.read(settings)
    given = KAFKA_SETTINGS.canonical(settings)
    for setting in (BROKERS, TOPICS, FORMAT):
        if not given.get(setting.name):
            hint = f"add SETTINGS {setting.name} = '...'"
            raise MissingSettingError(table=full_name(kafka), setting=setting.name, hint=hint)
    topics = tuple(dict.fromkeys(name.strip() for name in value_of(values, TOPICS).split(",") if name.strip()))
    return KafkaConfig(
        table=full_name(kafka),
        brokers=value_of(values, BROKERS),
        topics=topics,
        group=group_of(kafka),
        format=value_of(values, FORMAT),
        envelope=value_of(values, ENVELOPE),
        consumers=value_of(values, CONSUMERS),
        block_rows=value_of(values, BLOCK_ROWS),
        block_bytes=value_of(values, BLOCK_BYTES),
        flush_interval_ms=value_of(values, FLUSH_INTERVAL),
        poll_interval_ms=value_of(values, POLL_INTERVAL),
        fetch_bytes=value_of(values, FETCH_BYTES),
        error_mode=value_of(values, ERROR_MODE),
        dead_letter_table=value_of(values, DEAD_LETTERS) or f"{kafka.name}_dead_letters",
        skip_broken=value_of(values, SKIP_BROKEN),
        start=value_of(values, START),
        isolation=value_of(values, ISOLATION),
        skip_holes=value_of(values, SKIP_HOLES),
        round_tasks_max=value_of(values, ROUND_TASKS),
        library=_library(values),
        skip_unknown=value_of(values, SKIP_UNKNOWN),
        numbers_in_strings=value_of(values, NUMBERS_IN_STRINGS),
        csv_delimiter=value_of(values, CSV_DELIMITER),
    )


def group_of(kafka: KafkaDef) -> str:
    """The consumer group that a Kafka table reads for, whatever its other settings are."""
    given = KAFKA_SETTINGS.canonical(kafka.settings).get(GROUP.name, "").strip()
    return given or f"tilth.{full_name(kafka)}"


def _library(values: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """What goes to librdkafka as it is."""
    named = {
        "client.id": value_of(values, CLIENT_ID) or "tilth",
        "security.protocol": value_of(values, SECURITY_PROTOCOL),
        "sasl.mechanism": value_of(values, SASL_MECHANISM),
        "sasl.username": value_of(values, SASL_USER),
        "sasl.password": value_of(values, SASL_PASSWORD),
    }
    given = {name: text for name, text in named.items() if text}
    return tuple((given | read_pairs(value_of(values, LIBRARY))).items())
