"""SYSTEM RESET CONSUME OFFSET: where a Kafka table goes on reading, in the readable form and in ByConity's JSON.

Covers: both forms, the answer. Does not cover: stored offsets (ingest/offsets/reset.py).

Tests: tests/unit/statements/operate/test_system.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, assert_never

from tilth import ingest
from tilth.control.context.audit import audited
from tilth.control.context.names import kafka_of
from tilth.control.context.services import Call, Services
from tilth.control.kinds import StatementKind
from tilth.grammar.errors import SqlSyntaxError
from tilth.grammar.parse import Form
from tilth.grammar.phrases import parse_name
from tilth.grammar.statements import Name, Statement
from tilth.grammar.text.cursor import Cursor
from tilth.grammar.text.tokens import Token
from tilth.model.offset import TopicPartition
from tilth.model.table import full_name
from tilth.query.results.answer import Outcome, done


class OffsetKeyword(IntEnum):
    """The positions of a topic that have a name; the numbers are ByConity's and librdkafka's."""

    BEGIN = -2
    END = -1
    #: Offset that the broker has stored for the consumer group.
    STORED = -1000
    #: No offset: `auto_offset_reset` decides.
    INVALID = -1001


@dataclass(frozen=True, slots=True)
class ResetToMark:
    mark: OffsetKeyword


@dataclass(frozen=True, slots=True)
class ResetToTimestamp:
    """The first message at or after a time."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    topic: str
    partition: int
    #: The next one to read.
    offset: int


@dataclass(frozen=True, slots=True)
class ResetToOffsets:
    """Partitions that are not named keep their offsets."""

    offsets: tuple[PartitionOffset, ...]


ResetTarget = ResetToMark | ResetToTimestamp | ResetToOffsets


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetConsumeOffset(Statement):
    name: Name
    target: ResetTarget


_MARKS = ", ".join(f"{mark.value} {mark.name.lower()}" for mark in OffsetKeyword)
_JSON_HINT = (
    '\'{"database_name": "db", "table_name": "t", "offset_value": -2}\', or "timestamp": ms, or "topic_name": "x" and '
    '"offset_values": [{"partition": 0, "offset": 1}]'
)


def reset_offset(services: Services, call: Call, statement: ResetConsumeOffset) -> Outcome:
    kafka = kafka_of(services, call, statement.name, what="SYSTEM RESET CONSUME OFFSET")
    with audited(services, call, verb="SYSTEM RESET CONSUME OFFSET", table=full_name(kafka)):
        offsets = services.consume.reset_offsets(kafka.uuid, _wanted(statement))
    positions = ", ".join(
        f"{partition.topic}/{partition.partition} at {offset}" for partition, offset in sorted(offsets.items())
    )
    return done(f"{full_name(kafka)} continues at {positions or 'no topic partition'}")


def _wanted(statement: ResetConsumeOffset) -> ingest.OffsetReset:
    match statement.target:
        case ResetToMark(mark=mark):
            return ingest.ToMark(ingest.OffsetMark(mark.value))
        case ResetToTimestamp(milliseconds=milliseconds):
            return ingest.ToTime(milliseconds)
        case ResetToOffsets(offsets=offsets):
            return ingest.ToOffsets({TopicPartition(one.topic, one.partition): one.offset for one in offsets})
    assert_never(statement.target)


def _parse(cursor: Cursor) -> ResetConsumeOffset:
    cursor.expect("CONSUME", "OFFSET")
    if cursor.is_string():
        token = cursor.peek()
        given = _json_of_string(cursor)
        name = _json_name(cursor, given, token)
        if name is None:
            raise cursor.error('the JSON has no "table_name"', at=token, hint=_JSON_HINT)
        return ResetConsumeOffset(name=name, target=_json_target(cursor, given, token))
    name = parse_name(cursor)
    if cursor.accept("TO"):
        return ResetConsumeOffset(name=name, target=_target(cursor))
    token = cursor.peek()
    if cursor.is_string():
        given = _json_of_string(cursor)
    elif cursor.is_symbol("{"):
        given = _json_of_text(cursor)
    else:
        raise cursor.expected("TO, or the JSON", hint="write TO BEGIN, END, STORED, TIMESTAMP ms or OFFSETS (..)")
    named = _json_name(cursor, given, token)
    if named is not None and (named.table != name.table or (named.database and named.database != name.database)):
        raise cursor.error(f"the JSON names another table: {named}", at=token, hint="leave one of the names out")
    return ResetConsumeOffset(name=name, target=_json_target(cursor, given, token))


def _target(cursor: Cursor) -> ResetTarget:
    word = cursor.choose(*(mark.name for mark in OffsetKeyword), "TIMESTAMP", "OFFSETS")
    if word == "TIMESTAMP":
        return ResetToTimestamp(cursor.integer("milliseconds since 1970"))
    if word != "OFFSETS":
        return ResetToMark(OffsetKeyword[word])
    offsets: list[PartitionOffset] = []
    while True:
        token = cursor.peek()
        cursor.expect_symbol("(")
        topic = cursor.string("a topic") if cursor.is_string() else cursor.name("a topic")
        cursor.expect_symbol(",")
        partition = cursor.integer("a partition")
        cursor.expect_symbol(",")
        offsets.append(PartitionOffset(topic, partition, cursor.integer("an offset")))
        cursor.expect_symbol(")")
        _check_once(cursor, offsets, token)
        if not cursor.accept_symbol(","):
            return ResetToOffsets(tuple(offsets))


def _check_once(cursor: Cursor, offsets: list[PartitionOffset], token: Token) -> None:
    last = offsets[-1]
    if any((other.topic, other.partition) == (last.topic, last.partition) for other in offsets[:-1]):
        raise cursor.error(f"partition {last.partition} of topic {last.topic} is there twice", at=token)


# Any below: JSON that a user wrote.


def _json_of_string(cursor: Cursor) -> dict[str, Any]:
    token = cursor.peek()
    text = cursor.string("the JSON")
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise _bad_json(cursor, error, token) from error
    return _json_object(cursor, given, token)


def _json_of_text(cursor: Cursor) -> dict[str, Any]:
    """JSON that is not in quotes ends where its bracket does."""
    token = cursor.peek()
    try:
        given, end = json.JSONDecoder().raw_decode(cursor.text, token.start)
    except json.JSONDecodeError as error:
        raise _bad_json(cursor, error, token) from error
    cursor.jump(end)
    return _json_object(cursor, given, token)


def _bad_json(cursor: Cursor, error: json.JSONDecodeError, token: Token) -> SqlSyntaxError:
    return cursor.error(f"this is not JSON: {error.msg.lower()}", at=token, hint=_JSON_HINT)


def _json_object(cursor: Cursor, given: object, token: Token) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise cursor.error("the JSON is not an object", at=token, hint=_JSON_HINT)
    return given


def _json_name(cursor: Cursor, given: dict[str, Any], token: Token) -> Name | None:
    database, table = given.get("database_name") or None, given.get("table_name") or None
    for key, value in (("database_name", database), ("table_name", table)):
        if not isinstance(value, str | None):
            raise cursor.error(f'"{key}" is not a text', at=token, hint=_JSON_HINT)
    return None if table is None else Name(database, table)


def _json_target(cursor: Cursor, given: dict[str, Any], token: Token) -> ResetTarget:
    """Read the first of the keys that is there, as in ByConity."""
    if "offset_value" in given:
        value = given["offset_value"]
        if value not in list(OffsetKeyword) or isinstance(value, bool | float):
            hint = f'"offset_value" is one of {_MARKS}; for others use "topic_name" and "offset_values"'
            raise cursor.error(f'not an "offset_value": {value}', at=token, hint=hint)
        return ResetToMark(OffsetKeyword(value))
    if "timestamp" in given:
        return ResetToTimestamp(_json_integer(cursor, given, "timestamp", token))
    topic, values = given.get("topic_name"), given.get("offset_values")
    if values and not topic:
        raise cursor.refused('"offset_values" without "topic_name" is not supported', at=token, hint=_JSON_HINT)
    if not (isinstance(topic, str) and topic and isinstance(values, list) and values):
        raise cursor.error("the JSON does not name a position", at=token, hint=_JSON_HINT)
    offsets: list[PartitionOffset] = []
    for item in values:
        pair = _json_object(cursor, item, token)
        partition = _json_integer(cursor, pair, "partition", token)
        offsets.append(PartitionOffset(topic, partition, _json_integer(cursor, pair, "offset", token)))
        _check_once(cursor, offsets, token)
    return ResetToOffsets(tuple(offsets))


def _json_integer(cursor: Cursor, given: dict[str, Any], key: str, token: Token) -> int:
    value = given.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise cursor.error(f'"{key}" is not a whole number of at least 0', at=token, hint=_JSON_HINT)
    return value


KINDS = (
    StatementKind(value=ResetConsumeOffset, forms=(Form(words="SYSTEM RESET", parse=_parse),), perform=reset_offset),
)
