"""Data in: Kafka topics into tables, exactly once.

Covers: Kafka tables and their settings, consumers, rounds, views, dead letters, gaps, resets, VERIFY.
Does not cover: merging what was written (tilth.maintenance), DDL (tilth.sql), other ways in (tilth.sql's INSERT).
Always holds: rows, offsets, ledger and dead letters of a round become true in one commit; one consumer reads a
partition at a time, and an older one's commits are refused; a broken message never costs its neighbours; an offset
that went lost stops its consumer and is told. See also: docs/journey.md, tilth.model.offset.
"""

from tilth.ingest.calls import ConsumerCalls
from tilth.ingest.dead import DEAD_LETTER_SCHEMA, dead_letter_table, takes_dead_letters
from tilth.ingest.decode import VIRTUAL_COLUMNS
from tilth.ingest.definitions import DependencyMissingError, check_kafka
from tilth.ingest.errors import (
    BrokenMessageError,
    BrokerUnavailableError,
    FormatError,
    OffsetGapError,
    ResetError,
    UnknownTopicError,
    ViewError,
)
from tilth.ingest.kafka import BrokerClient
from tilth.ingest.manager import ConsumeManager
from tilth.ingest.reset import OffsetMark, OffsetReset, ToMark, ToOffsets, ToTime
from tilth.ingest.settings import (
    INGEST_SETTINGS,
    KAFKA_SETTINGS,
    IngestSettings,
    KafkaConfig,
    MissingSettingError,
    ingest_settings,
    read_config,
)
from tilth.ingest.stats import ConsumeEvent, ConsumeEventKind, ConsumerStats, PartitionStats
from tilth.ingest.task import consume_runner
from tilth.ingest.verify import Check, VerifyReport
from tilth.ingest.view_plans import FusedPlan, SqlPlan, ViewPlan
from tilth.ingest.views import BadDefaultError, check_view

__all__ = [
    "DEAD_LETTER_SCHEMA",
    "INGEST_SETTINGS",
    "KAFKA_SETTINGS",
    "VIRTUAL_COLUMNS",
    "BadDefaultError",
    "BrokenMessageError",
    "BrokerClient",
    "BrokerUnavailableError",
    "Check",
    "ConsumeEvent",
    "ConsumeEventKind",
    "ConsumeManager",
    "ConsumerCalls",
    "ConsumerStats",
    "DependencyMissingError",
    "FormatError",
    "FusedPlan",
    "IngestSettings",
    "KafkaConfig",
    "MissingSettingError",
    "OffsetGapError",
    "OffsetMark",
    "OffsetReset",
    "PartitionStats",
    "ResetError",
    "SqlPlan",
    "ToMark",
    "ToOffsets",
    "ToTime",
    "UnknownTopicError",
    "VerifyReport",
    "ViewError",
    "ViewPlan",
    "check_kafka",
    "check_view",
    "consume_runner",
    "dead_letter_table",
    "ingest_settings",
    "read_config",
    "takes_dead_letters",
]
