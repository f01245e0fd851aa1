"""SYSTEM and the other words to the background."""

from __future__ import annotations

import pytest

from tilth.grammar.errors import SqlSyntaxError, UnsupportedSqlError
from tilth.grammar.statements import Name, PartitionId, PartitionValues, Statement
from tilth.introspection.statements.explain import ExplainGc, ExplainMerge
from tilth.introspection.statements.show import ShowProcesses
from tilth.model.service import ServiceKind
from tilth.statements.operate.check_files import CheckFiles
from tilth.statements.operate.kill import KillMode, KillMutation, KillQuery
from tilth.statements.operate.replay import ReplayDeadLetters
from tilth.statements.operate.reset_offset import (
    OffsetKeyword,
    PartitionOffset,
    ResetConsumeOffset,
    ResetToMark,
    ResetToOffsets,
    ResetToTimestamp,
)
from tilth.statements.operate.system import OptimizeTable, RunService, RunVerb, SwitchService, SwitchVerb
from tilth.statements.registry import parse

T = Name(None, "t")
K = Name("db", "k")
START, STOP, RESTART = SwitchVerb.START, SwitchVerb.STOP, SwitchVerb.RESTART


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("SYSTEM START CONSUME db.k", SwitchService(verb=START, service=ServiceKind.CONSUME, name=K)),
        ("system restart consume db.k;", SwitchService(verb=RESTART, service=ServiceKind.CONSUME, name=K)),
        (
            "SYSTEM STOP CONSUME db.k FOR 10 minutes BECAUSE 'broker moves'",
            SwitchService(verb=STOP, service=ServiceKind.CONSUME, name=K, duration_ms=600_000, because="broker moves"),
        ),
        ("SYSTEM STOP MERGES", SwitchService(verb=STOP, service=ServiceKind.MERGE)),
        ("SYSTEM START MUTATIONS t", SwitchService(verb=START, service=ServiceKind.MUTATE, name=T)),
        (
            "SYSTEM STOP GC FOR INTERVAL 1 HOUR",
            SwitchService(verb=STOP, service=ServiceKind.GC, duration_ms=3_600_000),
        ),
        (
            "SYSTEM STOP FLUSH t BECAUSE 'test'",
            SwitchService(verb=STOP, service=ServiceKind.FLUSH, name=T, because="test"),
        ),
        ("SYSTEM STOP DELTAS `for`", SwitchService(verb=STOP, service=ServiceKind.DELTA, name=Name(None, "for"))),
        ("SYSTEM FLUSH t", RunService(verb=RunVerb.FLUSH, name=T)),
        ("SYSTEM VERIFY db.k", RunService(verb=RunVerb.VERIFY, name=K)),
        ("SYSTEM REPLAY DEAD LETTERS db.k", ReplayDeadLetters(name=K)),
        (
            "system replay dead letters t where view = 'db.v' AND offset IN (1, 2);",
            ReplayDeadLetters(name=T, predicate="view = 'db.v' AND offset IN (1, 2)"),
        ),
        ("SYSTEM CHECK FILES db.k", CheckFiles(name=K)),
        ("system check files t repair", CheckFiles(name=T, is_repair=True)),
        (
            "SYSTEM GC t PARTITION ('eu', 1)",
            RunService(verb=RunVerb.GC, name=T, partition=PartitionValues(("eu", 1))),
        ),
        ("SYSTEM FORCE GC t", RunService(verb=RunVerb.GC, name=T, is_forced=True)),
        (
            "SYSTEM FORCE GC t PARTITION 'eu'",
            RunService(verb=RunVerb.GC, name=T, partition=PartitionValues(("eu",)), is_forced=True),
        ),
        ("EXPLAIN MERGE t", ExplainMerge(name=T)),
        ("EXPLAIN MERGE db.k POLICY key_range", ExplainMerge(name=K, policy="key_range")),
        ("EXPLAIN GC t", ExplainGc(name=T)),
        ("OPTIMIZE TABLE t", OptimizeTable(name=T)),
        (
            "OPTIMIZE TABLE t PARTITION ID 'all' FINAL",
            OptimizeTable(name=T, partition=PartitionId("all"), final=True),
        ),
        ("KILL MUTATION 'abc'", KillMutation(mutation="abc")),
        ("KILL QUERY 'abc'", KillQuery(query_id="abc")),
        ("KILL QUERY 'abc' SYNC;", KillQuery(query_id="abc", mode=KillMode.SYNC)),
        (
            "KILL QUERY ON CLUSTER '{c}' WHERE query_id = 'x' AND user IN ('a') TEST",
            KillQuery(predicate="query_id = 'x' AND user IN ('a')", mode=KillMode.TEST),
        ),
        ("kill query on cluster c where elapsed > 60 async", KillQuery(predicate="elapsed > 60")),
        ("SHOW PROCESSLIST", ShowProcesses()),
        ("KILL MUTATION 42", KillMutation(mutation="42")),
        (
            "KILL MUTATION WHERE database = 'db' AND table = 't'",
            KillMutation(predicate="database = 'db' AND table = 't'"),
        ),
    ],
)
def test_statements(text: str, statement: Statement) -> None:
    assert parse(text) == statement


BOTH = ResetToOffsets((PartitionOffset("x", 0, 100), PartitionOffset("x", 1, 200)))
JSON_OFFSETS = '"topic_name": "x", "offset_values": [{"partition": 0, "offset": 100}, {"partition": 1, "offset": 200}]'


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ('\'{"database_name":"db","table_name":"k","offset_value":-2}\'', ResetToMark(OffsetKeyword.BEGIN)),
        ('\'{"database_name":"db","table_name":"k","offset_value":-1}\'', ResetToMark(OffsetKeyword.END)),
        ('\'{"database_name":"db","table_name":"k","offset_value":-1000}\'', ResetToMark(OffsetKeyword.STORED)),
        ('\'{"database_name":"db","table_name":"k","offset_value":-1001}\'', ResetToMark(OffsetKeyword.INVALID)),
        ('\'{"database_name":"db","table_name":"k","timestamp":1700000000000}\'', ResetToTimestamp(1_700_000_000_000)),
        (f'\'{{"database_name":"db","table_name":"k",{JSON_OFFSETS}}}\'', BOTH),
        # The first of the three keys counts.
        (
            f'\'{{"database_name":"db","table_name":"k",{JSON_OFFSETS},"timestamp":5,"offset_value":-1}}\'',
            ResetToMark(OffsetKeyword.END),
        ),
        ('db.k {"offset_value": -2};', ResetToMark(OffsetKeyword.BEGIN)),
        (f"db.k {{{JSON_OFFSETS}}}", BOTH),
        ('db.k \'{"table_name": "k", "timestamp": 5}\'', ResetToTimestamp(5)),
        ("db.k TO BEGIN", ResetToMark(OffsetKeyword.BEGIN)),
        ("db.k TO END", ResetToMark(OffsetKeyword.END)),
        ("db.k TO TIMESTAMP 123", ResetToTimestamp(123)),
        ("db.k TO OFFSETS (x, 0, 100), ('x', 1, 200)", BOTH),
    ],
)
def test_reset_of_offsets(text: str, target: ResetToMark | ResetToTimestamp | ResetToOffsets) -> None:
    assert parse(f"SYSTEM RESET CONSUME OFFSET {text}") == ResetConsumeOffset(name=K, target=target)


@pytest.mark.parametrize(
    ("text", "message", "column", "hint"),
    [
        ("SYSTEM STRAT MERGES t", "found 'STRAT'", 8, "did you mean START?"),
        ("SYSTEM STOP MERGE t", "found 'MERGE'", 13, "did you mean MERGES?"),
        ("SYSTEM RESTART MERGES t", "expected CONSUME", 16, ""),
        ("SYSTEM RESTART CONSUME", "expected the name of a table", 23, ""),
        ("SYSTEM STOP MERGES t FOR 10 parsecs", "not a duration: 10 parsecs", 26, "FOR 10 minutes"),
        ("SYSTEM STOP MERGES t FOR ever", "expected a number and a unit", 26, "FOR 10 minutes"),
        ("SYSTEM STOP MERGES t FOR 10", "expected a unit", 28, "FOR 10 minutes"),
        ("SYSTEM STOP MERGES t FOR 0 s", "not a useful duration", 26, "from 1 ms"),
        ("SYSTEM STOP MERGES t BECAUSE maintenance", "expected the reason", 30, ""),
        ("SYSTEM FLUSH", "expected the name of a table", 13, ""),
        ("SYSTEM GC t PARTITION x", "expected a literal", 23, "PARTITION ID"),
        ("EXPLAIN MERGE t POLICE x", "POLICE is not supported", 17, ""),
        ("EXPLAIN GC", "expected the name of a table", 11, ""),
        ("OPTIMIZE t", "expected TABLE, found 't'", 10, ""),
        ("KILL MUTATION", "expected the id of a mutation, or WHERE", 14, "system.mutations"),
        ("KILL QUERY 7", "expected the id of a query, or WHERE", 12, "system.processes"),
        ("KILL QUERY WHERE a = 1 SYNC TEST", "SYNC TEST is not supported", 29, ""),
        ("SYSTEM REPLAY DEAD t", "expected LETTERS", 20, ""),
        ("SYSTEM REPLAY DEAD LETTERS", "expected", 27, ""),
        ("SYSTEM REPLAY DEAD LETTERS t WHERE", "expected a predicate", 35, ""),
        ("SYSTEM REPLAY DEAD LETTERS t WHERE a = 1 LIMIT 3", "LIMIT behind WHERE", 42, "leave it out"),
        ("SYSTEM RESET CONSUME OFFSETS t", "expected OFFSET", 22, "did you mean OFFSET?"),
        ("SYSTEM RESET CONSUME OFFSET t", "expected TO, or the JSON", 30, "TO BEGIN"),
        ("SYSTEM RESET CONSUME OFFSET t TO MIDDLE", "TO MIDDLE is not supported", 34, "write BEGIN, END"),
        ("SYSTEM RESET CONSUME OFFSET t TO OFFSETS (x, 0)", "expected ','", 47, ""),
        (
            "SYSTEM RESET CONSUME OFFSET t TO OFFSETS (x, 0, 1), (x, 0, 2)",
            "partition 0 of topic x is there twice",
            53,
            "",
        ),
        ("SYSTEM RESET CONSUME OFFSET t TO TIMESTAMP -1", "expected milliseconds", 44, ""),
        ("SYSTEM RESET CONSUME OFFSET '{\"offset_value\":-1}'", 'no "table_name"', 29, "table_name"),
        ('SYSTEM RESET CONSUME OFFSET t {"offset_value":5}', 'not an "offset_value": 5', 31, "-2 begin"),
        ('SYSTEM RESET CONSUME OFFSET t {"offset_value":-1', "this is not JSON", 31, "offset_values"),
        ('SYSTEM RESET CONSUME OFFSET t {"timestamp":"x"}', '"timestamp" is not a whole number', 31, ""),
        ("SYSTEM RESET CONSUME OFFSET t {}", "does not name a position", 31, ""),
        ("SYSTEM RESET CONSUME OFFSET t '[]'", "not an object", 31, ""),
        ('SYSTEM RESET CONSUME OFFSET t {"table_name":"u","timestamp":1}', "names another table: u", 31, ""),
        ('SYSTEM RESET CONSUME OFFSET t {"table_name":5,"timestamp":1}', '"table_name" is not a text', 31, ""),
        (
            'SYSTEM RESET CONSUME OFFSET t {"topic_name":"x","offset_values":[{"partition":0}]}',
            '"offset" is not a whole number',
            31,
            "",
        ),
    ],
)
def test_errors_point_at_the_culprit(text: str, message: str, column: int, hint: str) -> None:
    with pytest.raises(SqlSyntaxError, match=message) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "culprit"),
    [("OPTIMIZE TABLE t FINAL DEDUPLICATE", "DEDUPLICATE")],
)
def test_what_is_not_there_is_refused_by_name(text: str, culprit: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=culprit):
        parse(text)
