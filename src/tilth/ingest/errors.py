"""Errors of ingestion. Always holds: each error names the Kafka table, topic or view that it is about."""

from __future__ import annotations

from collections.abc import Mapping

from tilth.base.errors import ConflictError, InvalidInputError, NotFoundError, RetryError, UnavailableError


class BrokerUnavailableError(UnavailableError):
    """the Kafka broker does not answer"""

    code = "KAFKA_UNAVAILABLE"


class UnknownTopicError(NotFoundError):
    """the broker has no such topic"""

    code = "UNKNOWN_TOPIC"


class GroupInUseError(ConflictError):
    """another Kafka table reads this topic for the same consumer group"""

    code = "GROUP_IN_USE"


class LeaderChangedError(RetryError):
    """the leader of a topic partition changed while it was read"""

    code = "LEADER_CHANGED"


class OffsetGapError(ConflictError):
    """offsets that were to be read are not there"""

    code = "OFFSET_GAP"


class UnreadRangesError(RetryError):
    """not all messages of a round were read"""

    code = "RANGES_NOT_READ"


class ViewError(InvalidInputError):
    """a materialized view does not fit"""

    code = "BAD_VIEW"


class ViewFailedError(RetryError):
    """a round was given up because views cannot take its messages"""

    code = "VIEW_FAILED"

    @classmethod
    def of(cls, failures: Mapping[str, str]) -> ViewFailedError:
        """Make the error from the reasons by view; they are its facts."""
        return cls(**failures)


class KernelUnfitError(RetryError):
    """a round was given up because the kernels of a view do not compute its rows as Spark does"""

    code = "KERNEL_UNFIT"


class FormatError(InvalidInputError):
    """the columns of a Kafka table do not fit its format"""

    code = "BAD_FORMAT"


class ResetError(InvalidInputError):
    """the offsets to reset to are not valid"""

    code = "BAD_OFFSET_RESET"


class NoDeadLettersError(InvalidInputError):
    """a Kafka table has no dead letters that could be replayed"""

    code = "NO_DEAD_LETTER_TABLE"
