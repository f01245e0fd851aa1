"""Alarms of Kafka tables: what is not read, not stored or late.

Covers: their declarations and thresholds. Does not cover: consumers (tilth.ingest).
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.base.units import show_count, show_time
from tilth.ingest import ActivityKind, StreamState, dead_letter_name, open_transaction_bound
from tilth.introspection.alarms.alarm import Alarm, AlarmFinding, Severity
from tilth.introspection.alarms.observation import Observation
from tilth.model.service import ServiceKind, ServiceState
from tilth.model.table import KafkaDef, full_name

#: Failures in a row: the first attempts are repeated within a second, and most failures end with them.
FAILURES_MIN = 3
#: Time to read what is behind at the present rate: after ten minutes the backlog of a restart or a burst is gone.
LAG_SECONDS_MAX = 600
#: Duration of a round: a round takes seconds, and one without progress is cancelled after a minute, by default of
#: `warehouse.round-stall-bound`. One of two minutes makes progress, and everything behind it waits.
ROUND_SECONDS_MAX = 120
#: Time from the start of a consumer to its first poll of the broker, which takes a second.
START_SECONDS_MAX = 120


def _finding(stream: StreamState, sentence: str, *, since_ms: int = 0) -> AlarmFinding:
    return AlarmFinding(
        database=stream.database,
        table=stream.table,
        sentence=f"{stream.database}.{stream.table} {sentence}",
        since_ms=since_ms,
    )


def _failed(seen: Observation) -> Iterator[AlarmFinding]:
    # A gap is an alarm of its own.
    with_gap = {each.kafka_table for each in seen.open_gaps}
    for stream in seen.streams:
        is_failing = stream.state is ServiceState.FAILED and stream.failures >= FAILURES_MIN
        if is_failing and stream.uuid not in with_gap:
            yield _finding(stream, f"is not read, after {stream.failures} failures in a row: {stream.reason}")


def _waiting(seen: Observation) -> Iterator[AlarmFinding]:
    for stream in seen.streams:
        if stream.missing and stream.state is ServiceState.WAITING:
            yield _finding(stream, f"is not read until something else is there: {stream.reason}")


def _stuck(seen: Observation) -> Iterator[AlarmFinding]:
    for stream in seen.streams:
        reading = [each for each in stream.doings if each.kind is ActivityKind.READING]
        longest = max(reading, key=lambda each: each.round_seconds, default=None)
        starting = [each.since_ms for each in stream.doings if each.kind is ActivityKind.STARTING]
        if longest is not None and longest.round_seconds > ROUND_SECONDS_MAX:
            view = f", view {longest.view} for {longest.view_seconds:.0f} s of it" if longest.view else ""
            text = f"has had one round under way for {longest.round_seconds:.0f} s{view}"
            yield _finding(stream, text, since_ms=longest.since_ms)
        elif starting and seen.now_ms - min(starting) > START_SECONDS_MAX * 1000:
            text = f"has a consumer that has not polled the broker since its start at {show_time(min(starting))}"
            yield _finding(stream, text, since_ms=min(starting))


def _late(seen: Observation) -> Iterator[AlarmFinding]:
    for stream in seen.streams:
        reading = [each for each in stream.doings if each.kind is ActivityKind.READING]
        rate, behind = sum(each.rate for each in reading), sum(each.behind for each in reading)
        if rate and behind / rate > LAG_SECONDS_MAX:
            bounds = sorted({each.bounded_by for each in reading if each.bounded_by})
            bounded = f", bounded by {' and '.join(bounds)}" if bounds else ""
            text = f"is {show_count(behind)} messages behind, {behind / rate / 60:.0f} minutes at its present rate"
            yield _finding(stream, f"{text} of {show_count(round(rate))} messages/s{bounded}")


def _blocked(seen: Observation) -> Iterator[AlarmFinding]:
    for stream in seen.streams:
        blocked = [each for each in stream.doings if each.kind is ActivityKind.OPEN_TRANSACTION]
        since_ms = min((each.since_ms for each in blocked), default=seen.now_ms)
        kafka = seen.relations.get(stream.uuid) if blocked else None
        if isinstance(kafka, KafkaDef) and seen.now_ms - since_ms > open_transaction_bound(kafka) * 1000:
            count = show_count(sum(each.uncommitted for each in blocked))
            text = f"is behind an open transaction since {show_time(since_ms)}: {count} messages are not committed"
            yield _finding(stream, text, since_ms=since_ms)


def _gaps(seen: Observation) -> Iterator[AlarmFinding]:
    for gap in seen.open_gaps:
        kafka = seen.relations.get(gap.kafka_table)
        if kafka is None or not seen.is_mine(kafka.uuid) or seen.is_stopped(kafka.uuid, ServiceKind.CONSUME):
            continue
        partition = f"{gap.topic}/{gap.partition}"
        end = f" to {gap.end - 1}" if gap.end >= 0 else ""
        yield AlarmFinding(
            database=kafka.database,
            table=kafka.name,
            subject=partition,
            sentence=f"{full_name(kafka)} does not read {partition}, because offsets from {gap.start}{end} are "
            f"missing: {gap.reason}",
            since_ms=gap.at_ms,
        )


def _dead_letters(seen: Observation) -> Iterator[AlarmFinding]:
    tables = {(each.database, each.name): each for each in seen.tables}
    for kafka in seen.relations.values():
        if not isinstance(kafka, KafkaDef):
            continue
        table = tables.get((kafka.database, dead_letter_name(kafka)))
        version = None if table is None else seen.versions.get(table.uuid)
        letters = 0 if version is None else version.inserted_rows - version.removed_rows
        if table is not None and letters > 0 and seen.is_mine(kafka.uuid):
            yield AlarmFinding(
                database=kafka.database,
                table=kafka.name,
                subject=table.name,
                sentence=f"{show_count(letters)} dead letters of {full_name(kafka)} wait in {full_name(table)}: "
                "messages that could not be decoded, or that a view could not take",
            )


STREAM_ALARMS = (
    Alarm(
        name="ingest_gap",
        severity=Severity.CRITICAL,
        meaning="The broker no longer has messages that were not read, and their topic partition is not read until "
        "somebody decides.",
        todo="Find out from system.ingest_gaps which offsets are missing, and decide with SYSTEM RESET CONSUME OFFSET.",
        page="docs/operate/background-tasks.md#common-errors",
        minutes=0,
        find=_gaps,
    ),
    Alarm(
        name="stream_failed",
        severity=Severity.CRITICAL,
        meaning="A Kafka table is not read, because its consumers fail again and again.",
        todo="Repair what the sentence names: the broker, its address, the topic, a view or a table; reading goes on "
        "by itself.",
        page="docs/operate/questions.md#4-why-is-a-topic-not-read",
        minutes=2,
        find=_failed,
    ),
    Alarm(
        name="stream_stuck",
        severity=Severity.CRITICAL,
        meaning="A consumer makes no progress: one round lasts for minutes, or the broker was never polled.",
        todo="Make the view faster that the sentence names, or SYSTEM RESTART CONSUME; see what the worker does in "
        "system.workers.",
        page="docs/operate/questions.md#15-is-the-topic-idle-or-is-its-consumer-stuck",
        minutes=2,
        find=_stuck,
    ),
    Alarm(
        name="stream_lags",
        severity=Severity.WARNING,
        meaning="A Kafka table is so much behind its topic that it needs more than ten minutes to read the rest.",
        todo="Raise the setting that bounds its rounds, add consumers (kafka_num_consumers) or workers, or make its "
        "slowest view faster.",
        page="docs/operate/questions.md#14-how-long-until-the-lag-is-gone-and-what-bounds-the-rate",
        minutes=10,
        find=_late,
    ),
    Alarm(
        name="stream_blocked",
        severity=Severity.WARNING,
        meaning="The next messages of a topic are in a transaction that its producer neither commits nor aborts.",
        todo="End the transaction of the producer, or SYSTEM RESET CONSUME OFFSET behind it.",
        page="docs/operate/questions.md#21-why-are-messages-that-were-sent-not-read",
        minutes=5,
        find=_blocked,
    ),
    Alarm(
        name="stream_waits",
        severity=Severity.WARNING,
        meaning="A Kafka table cannot be read, because a view, a setting, a secret or its consumer group is missing.",
        todo="Create or set what the sentence names.",
        page="docs/operate/recovery.md#when-something-is-wrong",
        minutes=10,
        find=_waiting,
    ),
    Alarm(
        name="dead_letters",
        severity=Severity.WARNING,
        meaning="Messages could not be decoded, or a view could not take them, and wait as dead letters.",
        todo="Read the column reason of the dead letters, repair the producer or the view, then SYSTEM REPLAY DEAD "
        "LETTERS; delete those that nobody needs.",
        page="docs/operate/questions.md#5-why-does-a-topic-that-is-read-give-no-rows",
        minutes=5,
        find=_dead_letters,
    ),
)
