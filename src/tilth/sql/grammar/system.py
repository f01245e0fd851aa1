"""SYSTEM, KILL, OPTIMIZE and our EXPLAIN: words to the background. Pure.

Covers: switches, single runs, offsets in the readable form and in ByConity's JSON. Does not cover: what they do.
"""

from __future__ import annotations

import json
from typing import Any

from tilth.base.units import parse_seconds
from tilth.model.service import ServiceKind
from tilth.sql.grammar.cursor import Cursor
from tilth.sql.grammar.errors import SqlSyntaxError
from tilth.sql.grammar.literals import parse_partition
from tilth.sql.grammar.phrases import parse_name, skip_on_cluster
from tilth.sql.grammar.statements import (
    KillMode,
    KillMutation,
    KillQuery,
    Name,
    OffsetMark,
    OptimizeTable,
    PartitionOffset,
    ResetConsumeOffset,
    RunService,
    RunVerb,
    Statement,
    SwitchService,
    SwitchVerb,
    ToMark,
    ToOffsets,
    ToTimestamp,
)
from tilth.sql.grammar.tokens import Token, TokenKind

#: How a user calls the services that can be switched.
SERVICE_WORDS = {
    "CONSUME": ServiceKind.CONSUME,
    "MERGES": ServiceKind.MERGE,
    "MUTATIONS": ServiceKind.MUTATE,
    "GC": ServiceKind.GC,
    "FLUSH": ServiceKind.FLUSH,
    "DELTAS": ServiceKind.DELTA,
}
#: A switch that turns back later than this was not meant to.
_DURATION_SECONDS_MAX = 3650 * 86400
_MARKS = ", ".join(f"{mark.value} {mark.name.lower()}" for mark in OffsetMark)
_JSON_HINT = (
    '\'{"database_name": "db", "table_name": "t", "offset_value": -2}\', or "timestamp": ms, or "topic_name": "x" and '
    '"offset_values": [{"partition": 0, "offset": 1}]'
)

ResetTarget = ToMark | ToTimestamp | ToOffsets


def parse_system(cursor: Cursor) -> Statement:
    cursor.expect("SYSTEM")
    verb = cursor.choose("START", "STOP", "RESTART", "RESET", "FLUSH", "VERIFY", "GC", "FORCE")
    if verb == "RESET":
        cursor.expect("CONSUME", "OFFSET")
        return _reset(cursor)
    if verb == "FORCE":
        cursor.expect("GC")
        return _run(cursor, RunVerb.GC, is_forced=True)
    if verb in tuple(RunVerb):
        return _run(cursor, RunVerb(verb))
    return _switch(cursor, SwitchVerb(verb))


def _run(cursor: Cursor, verb: RunVerb, *, is_forced: bool = False) -> RunService:
    name = parse_name(cursor)
    partition = parse_partition(cursor) if cursor.take("PARTITION") else None
    return RunService(verb=verb, name=name, partition=partition, is_forced=is_forced)


def _switch(cursor: Cursor, verb: SwitchVerb) -> SwitchService:
    words = ("CONSUME",) if verb is SwitchVerb.RESTART else tuple(SERVICE_WORDS)
    service = SERVICE_WORDS[cursor.choose(*words)]
    name = None
    if verb is SwitchVerb.RESTART or not (cursor.at_end or cursor.at("FOR") or cursor.at("BECAUSE")):
        name = parse_name(cursor)
    duration_ms: int | None = None
    because: str | None = None
    while True:
        if duration_ms is None and verb is not SwitchVerb.RESTART and cursor.take("FOR"):
            duration_ms = _duration(cursor)
        elif because is None and cursor.take("BECAUSE"):
            because = _reason(cursor)
        else:
            break
    return SwitchService(verb=verb, service=service, name=name, duration_ms=duration_ms, because=because or "")


def _reason(cursor: Cursor) -> str:
    if not cursor.is_string():
        raise cursor.expected("the reason", hint="put it in single quotes: BECAUSE 'a benchmark runs'")
    return cursor.string("the reason")


def _duration(cursor: Cursor) -> int:
    """`10 minutes` or `INTERVAL 10 MINUTE`, in milliseconds."""
    cursor.take("INTERVAL")
    token = cursor.peek()
    hint = "write FOR 10 minutes; units: ms, seconds, minutes, hours, days"
    if token.kind is not TokenKind.NUMBER:
        raise cursor.expected("a number and a unit", hint=hint)
    cursor.number("a number")
    if not cursor.is_name():
        raise cursor.expected("a unit", hint=hint)
    unit = cursor.name("a unit")
    try:
        seconds = parse_seconds(f"{token.text} {unit}")
    except ValueError as error:
        raise cursor.error(f"not a duration: {token.text} {unit}", at=token, hint=hint) from error
    if not 0.001 <= seconds <= _DURATION_SECONDS_MAX:
        raise cursor.error(f"not a useful duration: {token.text} {unit}", at=token, hint="from 1 ms to 10 years")
    return round(seconds * 1000)


# RESET CONSUME OFFSET


def _reset(cursor: Cursor) -> ResetConsumeOffset:
    if cursor.is_string():
        token = cursor.peek()
        given = _json_of_string(cursor)
        name = _json_name(cursor, given, token)
        if name is None:
            raise cursor.error('the JSON has no "table_name"', at=token, hint=_JSON_HINT)
        return ResetConsumeOffset(name=name, target=_json_target(cursor, given, token))
    name = parse_name(cursor)
    if cursor.take("TO"):
        return ResetConsumeOffset(name=name, target=_target(cursor))
    token = cursor.peek()
    if cursor.is_string():
        given = _json_of_string(cursor)
    elif cursor.is_symbol("{"):
        given = _json_of_text(cursor)
    else:
        raise cursor.expected("TO, or the JSON", hint="write TO BEGIN, END, STORED, TIMESTAMP ms or OFFSETS (..)")
    told = _json_name(cursor, given, token)
    if told is not None and (told.table != name.table or (told.database and told.database != name.database)):
        raise cursor.error(f"the JSON names another table: {told}", at=token, hint="leave one of the names out")
    return ResetConsumeOffset(name=name, target=_json_target(cursor, given, token))


def _target(cursor: Cursor) -> ResetTarget:
    word = cursor.choose(*(mark.name for mark in OffsetMark), "TIMESTAMP", "OFFSETS")
    if word == "TIMESTAMP":
        return ToTimestamp(cursor.integer("milliseconds since 1970"))
    if word != "OFFSETS":
        return ToMark(OffsetMark[word])
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
        if not cursor.take_symbol(","):
            return ToOffsets(tuple(offsets))


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
    """By the first of the keys that is there, as in ByConity."""
    if "offset_value" in given:
        value = given["offset_value"]
        if value not in list(OffsetMark) or isinstance(value, bool | float):
            hint = f'"offset_value" is one of {_MARKS}; for others use "topic_name" and "offset_values"'
            raise cursor.error(f'not an "offset_value": {value}', at=token, hint=hint)
        return ToMark(OffsetMark(value))
    if "timestamp" in given:
        return ToTimestamp(_json_integer(cursor, given, "timestamp", token))
    topic, values = given.get("topic_name"), given.get("offset_values")
    if not (isinstance(topic, str) and topic and isinstance(values, list) and values):
        raise cursor.error("the JSON does not say where to", at=token, hint=_JSON_HINT)
    offsets: list[PartitionOffset] = []
    for item in values:
        pair = _json_object(cursor, item, token)
        partition = _json_integer(cursor, pair, "partition", token)
        offsets.append(PartitionOffset(topic, partition, _json_integer(cursor, pair, "offset", token)))
        _check_once(cursor, offsets, token)
    return ToOffsets(tuple(offsets))


def _json_integer(cursor: Cursor, given: dict[str, Any], key: str, token: Token) -> int:
    value = given.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise cursor.error(f'"{key}" is not a whole number of at least 0', at=token, hint=_JSON_HINT)
    return value


# Others


def parse_optimize(cursor: Cursor) -> OptimizeTable:
    cursor.expect("OPTIMIZE", "TABLE")
    name = parse_name(cursor)
    partition = parse_partition(cursor) if cursor.take("PARTITION") else None
    final = cursor.take("FINAL")
    if cursor.at("DEDUPLICATE"):
        raise cursor.refused("DEDUPLICATE is not supported", hint="give the table a UNIQUE KEY")
    return OptimizeTable(name=name, partition=partition, final=final)


def parse_kill(cursor: Cursor) -> KillMutation | KillQuery:
    cursor.expect("KILL")
    if cursor.take("QUERY"):
        return _kill_query(cursor)
    cursor.expect("MUTATION")
    if cursor.take("WHERE"):
        return KillMutation(predicate=cursor.expression("a predicate"))
    if cursor.is_string():
        return KillMutation(mutation=cursor.string("the id of a mutation"))
    if cursor.peek().kind is TokenKind.NUMBER:
        return KillMutation(mutation=cursor.number("the id of a mutation").text)
    raise cursor.expected("the id of a mutation, or WHERE", words=("WHERE",), hint="ids are in system.mutations")


def _kill_query(cursor: Cursor) -> KillQuery:
    skip_on_cluster(cursor)
    if cursor.take("WHERE"):
        predicate = cursor.expression("a predicate", stop=_at_kill_mode)
        return KillQuery(predicate=predicate, mode=_kill_mode(cursor))
    if cursor.is_string():
        return KillQuery(query_id=cursor.string("the id of a query"), mode=_kill_mode(cursor))
    hint = "ids are in system.processes: KILL QUERY WHERE query_id = '..'"
    raise cursor.expected("the id of a query, or WHERE", words=("WHERE",), hint=hint)


def _at_kill_mode(cursor: Cursor) -> bool:
    return any(cursor.at(mode.value) for mode in KillMode)


def _kill_mode(cursor: Cursor) -> KillMode:
    return KillMode(cursor.choose(*KillMode)) if _at_kill_mode(cursor) else KillMode.ASYNC
