"""SYSTEM, KILL, OPTIMIZE and our EXPLAIN: words to the background. Pure.

Covers: switches, single runs, dead letters, offsets in the readable form and in ByConity's JSON. Does not cover: what
they do.
"""

from __future__ import annotations

import json
from typing import Any

from tilth.base.units import parse_seconds
from tilth.grammar.errors import SqlSyntaxError
from tilth.grammar.literals import parse_partition, take_settings
from tilth.grammar.phrases import parse_name, parse_table_name, parse_where, skip_on_cluster
from tilth.grammar.statements import (
    CheckFiles,
    KillMode,
    KillMutation,
    KillQuery,
    Name,
    NothingToDo,
    OffsetKeyword,
    OptimizeTable,
    PartitionOffset,
    ReplayDeadLetters,
    ResetConsumeOffset,
    ResetToMark,
    ResetToOffsets,
    ResetToTimestamp,
    RunService,
    RunVerb,
    Statement,
    SwitchService,
    SwitchVerb,
)
from tilth.grammar.text.cursor import Cursor
from tilth.grammar.text.tokens import Token, TokenKind
from tilth.model.service import ServiceKind

#: Names of the services that can be switched.
_SERVICES = {service.word: service for service in ServiceKind}
#: A switch that turns back later than this was not meant to.
_DURATION_SECONDS_MAX = 3650 * 86400
_MARKS = ", ".join(f"{mark.value} {mark.name.lower()}" for mark in OffsetKeyword)
_JSON_HINT = (
    '\'{"database_name": "db", "table_name": "t", "offset_value": -2}\', or "timestamp": ms, or "topic_name": "x" and '
    '"offset_values": [{"partition": 0, "offset": 1}]'
)

ResetTarget = ResetToMark | ResetToTimestamp | ResetToOffsets


#: Statements that are always fulfilled, with the reason.
_NOTHING_TO_DO = {
    ("FLUSH", "LOGS"): "system tables are always up to date",
    ("FLUSH", "ASYNC", "INSERT", "QUEUE"): "an INSERT is answered when its rows are stored",
    ("FLUSH", "DISTRIBUTED"): "an INSERT is answered when its rows are stored",
    ("SYNC", "REPLICA"): "every server sees the one catalog",
    ("SYNC", "DATABASE", "REPLICA"): "every server sees the one catalog",
    ("RESTART", "REPLICA"): "every server sees the one catalog",
    ("RESTART", "REPLICAS"): "every server sees the one catalog",
}
#: Maximum number of words between DROP and CACHE in the name of a cache.
_CACHE_WORDS_MAX = 4
_SYSTEM_REFUSED = {
    "CLEAN": "leave it out: what a transaction left behind is removed in the background",
    "CALCULATE": "leave it out: system.parts and system.tables have the numbers, always up to date",
    "RELOAD": "settings of the node are read when it starts: restart it",
    "RESUME": "write SYSTEM START MERGES, or SYSTEM START MERGES t",
    "SUSPEND": "write SYSTEM STOP MERGES, or SYSTEM STOP MERGES t",
    "REMOVE": "write SYSTEM START MERGES, or SYSTEM START MERGES t",
    "SYNC": "leave it out: there is one catalog",
    "DROP": "SYSTEM RESET CONSUME OFFSET changes offsets, DROP TABLE drops tables",
    "SHUTDOWN": "stop the process of `tilth serve` by SIGTERM",
    "KILL": "stop the process of `tilth serve` by SIGTERM",
    "RESTORE": "ALTER STORAGE name RESTORE REPLICA 'address' fills one that has lost its files",
    "UNFREEZE": "files of parts never change: nothing is frozen",
    "DEDUP": "keys of a table with UNIQUE KEY are unique at once; no service works on it",
}
_SYSTEM_VERBS = (
    *("START", "STOP", "RESTART", "RESET", "REPLAY"),
    *("FLUSH", "VERIFY", "SCRUB", "CHECK", "GC", "FORCE"),
)
#: START and STOP targets of ClickHouse and ByConity that are no services here.
_SWITCHES_REFUSED = {
    "DEDUP": "keys of a table with UNIQUE KEY are unique at once; no service works on it",
    "TTL": "rows expire by SYSTEM STOP | START GC and MERGES",
    "MOVES": "parts do not move: there is one store",
    "FETCHES": "SYSTEM STOP | START REPLICATION says whether missing copies are made",
    "REPLICATED": "SYSTEM STOP | START REPLICATION says whether missing copies are made",
    "DISTRIBUTED": "there is nothing to send: SYSTEM STOP CONSUME stops ingestion",
    "CLUSTERING": "there is no such service",
    "MATERIALIZEDMYSQL": "there is no such service",
    "LISTEN": "stop the node to close its port",
    "VIEW": "SYSTEM STOP CONSUME k stops all views of a Kafka table",
    "VIEWS": "SYSTEM STOP CONSUME stops all views",
}


def parse_system(cursor: Cursor) -> Statement:
    cursor.expect("SYSTEM")
    nothing = _nothing_to_do(cursor)
    if nothing is not None:
        return nothing
    for word, hint in _SYSTEM_REFUSED.items():
        if cursor.at(word):
            raise cursor.refused(f"SYSTEM {word} is not supported", hint=hint)
    verb = cursor.choose(*_SYSTEM_VERBS)
    if verb == "RESET":
        cursor.expect("CONSUME", "OFFSET")
        return _reset(cursor)
    if verb == "REPLAY":
        return _replay(cursor)
    if verb == "FORCE":
        cursor.expect("GC")
        return _run(cursor, RunVerb.GC, is_forced=True)
    if verb == "CHECK":
        cursor.expect("FILES")
        return CheckFiles(name=parse_name(cursor), is_repair=cursor.take("REPAIR"))
    if verb in tuple(RunVerb):
        return _run(cursor, RunVerb(verb))
    return _switch(cursor, SwitchVerb(verb))


def _nothing_to_do(cursor: Cursor) -> NothingToDo | None:
    for words, reason in _NOTHING_TO_DO.items():
        # A table may be called so: its name stands alone.
        if cursor.take(*words):
            if words[-1] in ("REPLICA", "DISTRIBUTED") and cursor.is_name():
                parse_name(cursor)
            return NothingToDo(words=f"SYSTEM {' '.join(words)}", reason=reason)
    return _drop_cache(cursor)


def _drop_cache(cursor: Cursor) -> NothingToDo | None:
    """`DROP MARK CACHE`, `DROP CNCH PART CACHE t` and their kin."""
    count = next((at for at in range(2, _CACHE_WORDS_MAX + 2) if cursor.is_word("CACHE", at)), 0)
    if not cursor.at("DROP") or not count or not all(cursor.is_name(at) for at in range(1, count)):
        return None
    words = " ".join(cursor.advance().text.upper() for _ in range(count + 1))
    if cursor.is_name():
        parse_name(cursor)
    return NothingToDo(words=f"SYSTEM {words}", reason="there is no such cache")


def _run(cursor: Cursor, verb: RunVerb, *, is_forced: bool = False) -> RunService:
    name = parse_name(cursor)
    partition = parse_partition(cursor) if cursor.take("PARTITION") else None
    return RunService(verb=verb, name=name, partition=partition, is_forced=is_forced)


def _switch(cursor: Cursor, verb: SwitchVerb) -> SwitchService:
    words = ("CONSUME",) if verb is SwitchVerb.RESTART else tuple(_SERVICES)
    for word, hint in _SWITCHES_REFUSED.items():
        if cursor.at(word):
            raise cursor.refused(f"SYSTEM {verb.value} {word} is not supported", hint=hint)
    service = _SERVICES[cursor.choose(*words)]
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


def _replay(cursor: Cursor) -> ReplayDeadLetters:
    cursor.expect("DEAD", "LETTERS")
    name = parse_name(cursor)
    predicate = parse_where(cursor) if cursor.at("WHERE") else ""
    return ReplayDeadLetters(name=name, predicate=predicate)


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
        if not cursor.take_symbol(","):
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


# Others


def parse_optimize(cursor: Cursor) -> OptimizeTable:
    cursor.expect("OPTIMIZE", "TABLE")
    name = parse_table_name(cursor)
    partition = parse_partition(cursor) if cursor.take("PARTITION") else None
    final = cursor.take("FINAL")
    if cursor.at("DEDUPLICATE"):
        raise cursor.refused("DEDUPLICATE is not supported", hint="give the table a UNIQUE KEY")
    for name_of_setting, _ in take_settings(cursor):
        cursor.notice(f"{name_of_setting} has no effect on OPTIMIZE, which returns when its merges are done")
    return OptimizeTable(name=name, partition=partition, final=final)


def parse_kill(cursor: Cursor) -> KillMutation | KillQuery:
    cursor.expect("KILL")
    if cursor.take("QUERY"):
        return _kill_query(cursor)
    cursor.expect("MUTATION")
    if cursor.take("WHERE"):
        predicate = cursor.expression("a predicate", lambda at: any(at.at(word) for word in _KILL_ENDS))
        _skip_kill_end(cursor)
        return KillMutation(predicate=predicate)
    if cursor.is_string():
        mutation = cursor.string("the id of a mutation")
    elif cursor.peek().kind is TokenKind.NUMBER:
        mutation = cursor.number("the id of a mutation").text
    else:
        hint = "ids are in system.mutations"
        raise cursor.expected("the id of a mutation, or WHERE", words=("WHERE",), hint=hint)
    _skip_kill_end(cursor)
    return KillMutation(mutation=mutation)


#: Last word of a KILL in ClickHouse.
_KILL_ENDS = ("SYNC", "ASYNC", "TEST")


def _skip_kill_end(cursor: Cursor) -> None:
    if cursor.at("TEST"):
        hint = "SELECT .. FROM system.mutations WHERE .. shows what would be killed"
        raise cursor.refused("KILL MUTATION .. TEST is not supported", hint=hint)
    for word in ("SYNC", "ASYNC"):
        if cursor.take(word):
            cursor.notice(f"{word} has no effect: KILL MUTATION returns when the mutations are killed")


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
