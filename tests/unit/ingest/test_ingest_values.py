"""Settings, resets, gaps, the ledger, joined facts, types of views: the pure parts."""

from __future__ import annotations

import pytest

from tests.codes import WithCode
from tilth.base.errors import TilthError
from tilth.ingest import OffsetMark, ResetError, read_config
from tilth.ingest.kafka.metadata import Offset, PartitionEnd
from tilth.ingest.offsets.reset import MOVED, check_offsets, moved
from tilth.ingest.rounds.round import joined_ranges
from tilth.ingest.settings import ErrorMode, OffsetStart
from tilth.ingest.views.views import fits
from tilth.model.offset import LedgerEntry, LedgerRange, StoredOffset, TopicPartition
from tilth.model.table import KafkaDef, Schema
from tilth.model.types import Array, DataType, Decimal, Kind, Simple
from tilth.verify.ledgers import follow_ledger

REQUIRED = {"kafka_broker_list": "h:9092", "kafka_topic_list": " a , b,a ", "kafka_format": "jsoneachrow"}
A, B = TopicPartition("a", 0), TopicPartition("b", 1)


def kafka(**settings: str) -> KafkaDef:
    return KafkaDef(uuid="k", database="db", name="k", schema=Schema(columns=()), settings=settings)


def test_defaults_are_those_of_tilth() -> None:
    config = read_config(kafka(**REQUIRED))
    assert config.topics == ("a", "b")
    assert (config.format, config.error_mode, config.start) == (
        "JSONEachRow",
        ErrorMode.DEAD_LETTER,
        OffsetStart.EARLIEST,
    )
    assert config.group == "tilth.db.k"
    assert config.dead_letter_table == "k_dead_letters"
    assert config.flush_interval_ms == 8000


def test_names_of_clickhouse_and_byconity_are_known() -> None:
    given = {"broker_list": "h:1", "topic_list": "a", "format": "CSV", "group_name": "g", "num_consumers": "4"}
    given |= {
        "dead_letter_table": "letters",
        "kafka_max_poll_interval_ms": "7500",
        "max_block_bytes_size": "5 MiB",
        "kafka_row_delimiter": "\n",
    }
    config = read_config(kafka(**given, kafka_handle_error_mode="default", kafka_auto_offset_reset=""))
    assert (config.group, config.consumers, config.flush_interval_ms, config.block_bytes) == ("g", 4, 7500, 5 << 20)
    assert (config.error_mode, config.start) == (ErrorMode.THROW, OffsetStart.EARLIEST)
    assert config.dead_letter_table == "letters"


@pytest.mark.parametrize("text", ['{"socket.keepalive.enable": true, "x": 5}', "socket.keepalive.enable=true; x=5"])
def test_settings_of_the_library_are_passed_on(text: str) -> None:
    config = read_config(kafka(**REQUIRED, kafka_extra_librdkafka_config=text, kafka_sasl_username="me"))
    assert dict(config.library) == {
        "client.id": "tilth",
        "sasl.username": "me",
        "socket.keepalive.enable": "true",
        "x": "5",
    }


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"kafka_topic_list": ""}, "MISSING_SETTING"),
        ({"kafka_num_consumers": "0"}, "BAD_SETTING"),
        ({"kafka_num_consumers": "many"}, "BAD_SETTING"),
        ({"kafka_format": "Parquet"}, "BAD_SETTING"),
        ({"kafka_extra_librdkafka_config": "nonsense"}, "BAD_SETTING"),
        ({"kafka_num_consumer": "1"}, "UNKNOWN_SETTING"),
    ],
)
def test_bad_settings_are_named(changed: dict[str, str], code: str) -> None:
    with pytest.raises(TilthError, check=WithCode(code), match=next(iter(changed))):
        read_config(kafka(**(REQUIRED | changed)))


def test_reset_fills_in_marks_and_checks_the_reach() -> None:
    earliest = {A: Offset(5), B: Offset(0)}
    ends = {
        A: PartitionEnd(stable=Offset(10), high=Offset(12)),
        B: PartitionEnd(stable=Offset(7), high=Offset(7)),
    }
    wanted = {A: int(OffsetMark.BEGIN), B: int(OffsetMark.END)}
    assert check_offsets(wanted, earliest=earliest, ends=ends, table="db.k") == {A: 5, B: 7}
    # Behind an open transaction, too: a user may give up waiting for it.
    assert check_offsets({A: 12}, earliest=earliest, ends=ends, table="db.k") == {A: 12}
    for wrong in ({A: 4}, {A: 13}, {TopicPartition("a", 9): 0}):
        with pytest.raises(ResetError):
            check_offsets(wrong, earliest=earliest, ends=ends, table="db.k")


def test_ledger_is_followed_over_rounds_and_moves() -> None:
    line = moved("k", stored={A: StoredOffset(10, "")}, wanted={A: StoredOffset(3, ""), B: StoredOffset(5, "")})
    assert line is not None
    assert line.consumer == MOVED
    assert [(r.topic, r.start, r.end) for r in line.ranges] == [("a", 10, 3)]
    assert moved("k", stored={A: StoredOffset(10, "")}, wanted={A: StoredOffset(10, "", 3)}) is None
    assert moved("k", stored={A: StoredOffset(10, "x")}, wanted={A: StoredOffset(10, "y")}) is not None
    reached, wrong = follow_ledger([round_of(A, 0, 10), line, round_of(A, 3, 12), round_of(B, 5, 6)])
    assert (reached, wrong) == ({A: 12, B: 6}, [])


def test_ledger_tells_what_is_missing_and_what_is_twice() -> None:
    _, wrong = follow_ledger([round_of(A, 0, 10), round_of(A, 12, 15), round_of(A, 14, 20)])
    assert wrong == ["a/0: 10 to 12 missing, at txn 1", "a/0: 15 to 14 twice, at txn 1"]


def test_the_ledger_of_a_partition_that_is_gone_begins_again() -> None:
    line = moved("k", stored={A: StoredOffset(10, ""), B: StoredOffset(4, "")}, wanted={}, gone=[A])
    assert line is not None
    assert follow_ledger([round_of(A, 0, 10), line]) == ({}, [])
    assert follow_ledger([round_of(A, 0, 10), line, round_of(A, 0, 3)]) == ({A: 3}, [])


def test_facts_of_tasks_are_joined_by_partition() -> None:
    parts = (range_of(A, 5, 9), range_of(B, 0, 2), range_of(A, 0, 5))
    assert [(r.topic, r.start, r.end, r.messages) for r in joined_ranges(parts)] == [("a", 0, 9, 9), ("b", 0, 2, 2)]


@pytest.mark.parametrize(
    ("given", "wanted", "is_fit"),
    [
        ("int", Simple(Kind.INT64), True),
        ("bigint", Simple(Kind.INT32), False),
        ("int", Simple(Kind.FLOAT64), True),
        ("bigint", Simple(Kind.FLOAT64), False),
        ("void", Simple(Kind.DATE), True),
        ("string", Simple(Kind.INT64), False),
        ("date", Simple(Kind.TIMESTAMP), True),
        ("decimal(10,2)", Decimal(12, 2), True),
        ("decimal(10,2)", Decimal(12, 1), False),
        ("bigint", Decimal(19, 0), True),
        ("bigint", Decimal(19, 1), False),
        ("array<int>", Array(Simple(Kind.INT32)), True),
        ("array<int>", Array(Simple(Kind.INT64)), False),
    ],
)
def test_types_that_fit(given: str, wanted: DataType, is_fit: bool) -> None:
    assert fits(given, wanted) is is_fit


def range_of(partition: TopicPartition, start: int, end: int) -> LedgerRange:
    count = end - start
    return LedgerRange(
        topic=partition.topic, partition=partition.partition, start=start, end=end, messages=count, rows=count, dead=0
    )


def round_of(partition: TopicPartition, start: int, end: int) -> LedgerEntry:
    return LedgerEntry(txn=1, kafka_table="k", consumer=0, ranges=(range_of(partition, start, end),), stored={})
