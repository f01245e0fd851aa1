"""Data in: Kafka topics into tables, exactly once.

Covers: Kafka tables and their settings, consumers, rounds, views, dead letters, gaps, resets.
Does not cover: proving that all is in (tilth.verify), merging what was written (tilth.maintenance), DDL and INSERT
(tilth.statements).
Always holds: rows, offsets, ledger and dead letters of a round become true in one commit; one consumer reads a
partition at a time, and an older one's commits are refused; a broken message never costs its neighbours; an offset
that went lost stops its consumer and is reported. See also: docs/journey.md, tilth.model.offset.
"""

from typing import TYPE_CHECKING

from tilth.base.doors import door

if TYPE_CHECKING:
    from tilth.ingest.consumer.calls import ConsumerCalls
    from tilth.ingest.consumer.task import consume_runner
    from tilth.ingest.errors import (
        BrokerUnavailableError,
        FormatError,
        GroupInUseError,
        NoDeadLettersError,
        OffsetGapError,
        ResetError,
        UnknownTopicError,
        ViewError,
    )
    from tilth.ingest.kafka.broker import BrokerClient
    from tilth.ingest.kafka.metadata import Offset, PartitionEnd
    from tilth.ingest.library import secrets_in
    from tilth.ingest.messages.dead import DEAD_LETTER_SCHEMA, accepts_dead_letters, dead_letter_table
    from tilth.ingest.messages.decode import VIRTUAL_COLUMNS
    from tilth.ingest.messages.objects import ObjectReader
    from tilth.ingest.offsets.reset import GONE, MOVED, OffsetMark, OffsetReset, ToMark, ToOffsets, ToTime
    from tilth.ingest.offsets.subscriptions import describe_group_offsets
    from tilth.ingest.policy.groups import check_group, pinned_group, reads_elsewhere
    from tilth.ingest.replay.spark import replay_letters
    from tilth.ingest.service.activity import ActivityKind, Doing
    from tilth.ingest.service.context import ConsumeContext
    from tilth.ingest.service.definitions import DependencyMissingError, check_allowed, check_kafka
    from tilth.ingest.service.letter_replay import ReplayReport, ReplayStats, RunReplay
    from tilth.ingest.service.manager import ConsumeManager
    from tilth.ingest.service.stats import (
        ConsumeEvent,
        ConsumeEventKind,
        ConsumerStats,
        StreamState,
        TopicPartitionStats,
        partition_skew,
    )
    from tilth.ingest.settings import (
        INGEST_SETTINGS,
        KAFKA_SETTINGS,
        IngestSettings,
        KafkaConfig,
        dead_letter_name,
        group_of,
        open_transaction_bound,
        read_config,
    )
    from tilth.ingest.views.plans import FusedPlan, SqlPlan, ViewPlan
    from tilth.ingest.views.views import BadDefaultError, check_view, constant_defaults
else:
    __getattr__ = door(__name__)
