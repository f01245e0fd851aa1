"""CREATE, ALTER, DROP, SHOW and EXPLAIN PIPE: texts, refusals, answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.copy_world import CopyWorld
from tests.sql_world import refused, table_of
from tilth.grammar.errors import SqlSyntaxError
from tilth.model.service import ServiceKind
from tilth.statements.files import pipes
from tilth.statements.files.pipes import EVERY_MS, CreatePipe
from tilth.statements.operate.system import SwitchService
from tilth.statements.registry import parse


@pytest.fixture
def world(tmp_path: Path) -> CopyWorld:
    return CopyWorld(tmp_path)


def create(world: CopyWorld, name: str = "p", more: str = "FORMAT JSON", head: str = "") -> str:
    return f"CREATE PIPE {head}{name} AS COPY INTO t FROM '{world.files}' {more}"


def test_a_pipe_is_read() -> None:
    copy = "COPY INTO db.t (a) FROM '/in' FORMAT CSV PATTERN '*'"
    found = parse(f"CREATE PIPE IF NOT EXISTS `a p` EVERY 2 minutes AS {copy}")
    assert isinstance(found, CreatePipe)
    assert (found.pipe, found.if_not_exists, found.every_ms) == ("a p", True, 120_000)
    assert (str(found.copy.name), found.copy.columns, found.copy.pattern) == ("db.t", ("a",), "*")
    plain = parse("create pipe p as copy into t from '/in' format json;")
    assert isinstance(plain, CreatePipe)
    assert plain.every_ms == EVERY_MS
    stopped = parse("SYSTEM STOP COPY ON db.t BECAUSE 'x'")
    assert isinstance(stopped, SwitchService)
    assert (stopped.service, str(stopped.name)) == (ServiceKind.COPY, "db.t")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("CREATE PIPE p AUTO_INGEST = TRUE AS COPY INTO t FROM '/in' FORMAT JSON", "EVERY"),
        ("CREATE PIPE p EVERY SECOND AS COPY INTO t FROM '/in' FORMAT JSON", "number"),
        ("CREATE PIPE p EVERY 10 AS COPY INTO t FROM '/in' FORMAT JSON", "unit"),
        ("CREATE PIPE p EVERY 10 parsecs AS COPY INTO t FROM '/in' FORMAT JSON", "not a time"),
        ("CREATE PIPE p EVERY 0 SECONDS AS COPY INTO t FROM '/in' FORMAT JSON", "from 1 second"),
        ("CREATE PIPE p EVERY 2 DAYS AS COPY INTO t FROM '/in' FORMAT JSON", "to 1 day"),
        ("CREATE PIPE p AS COPY INTO t FROM '/in' FORMAT JSON VALIDATE ONLY", "VALIDATE"),
        ("CREATE PIPE p AS SELECT 1", "COPY"),
        ("CREATE OR REPLACE PIPE p AS COPY INTO t FROM '/in' FORMAT JSON", "DROP"),
        ("DROP PIPE p", "ON"),
        ("ALTER PIPE p ON t SET EVERY = 1", "CREATE PIPE"),
        ("ALTER PIPE p ON t", "REFRESH"),
        ("SYSTEM STOP COPY ON", "table"),
        ("SYSTEM RESTART COPY t", "CONSUME"),
    ],
)
def test_other_texts_are_refused(text: str, told: str) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse(text)
    assert told in f"{caught.value} {caught.value.hint}"


def test_a_pipe_is_created_shown_and_dropped(world: CopyWorld) -> None:
    more = "FORMAT CSV PATTERN '*.csv' OPTIONS (HEADER = true) SETTINGS max_insert_tasks = 2"
    text = f"CREATE PIPE p EVERY 30 SECONDS AS COPY INTO `default`.t (a) FROM '{world.files}' "
    text += "FORMAT CSV PATTERN '*.csv' OPTIONS (HEADER = 'true') SETTINGS max_insert_tasks = 2"
    assert world.run(f"CREATE PIPE p AS COPY INTO t (a) FROM '{world.files}' {more}").message == (
        "pipe p created on default.t"
    )
    assert world.rows("SHOW CREATE PIPE p ON t") == [(text,)]
    listed = world.rows("SHOW PIPES")
    assert listed == world.rows("SHOW PIPES ON t") == world.rows("SHOW PIPES FROM default")
    assert [row[:7] for row in listed] == [("default", "t", "p", 30.0, str(world.files), "CSV", "*.csv")]
    world.run("CREATE DATABASE other")
    assert world.rows("SHOW PIPES FROM other") == []
    assert world.rows("SELECT table, name, state FROM system.pipes") == [("t", "p", "waiting")]
    assert world.run("DROP PIPE p ON t").message == "pipe p dropped from default.t"
    world.run(text)
    assert world.rows("SHOW CREATE PIPE p ON t") == [(text,)]
    world.run("DROP PIPE IF EXISTS p ON t")
    assert world.run("DROP PIPE IF EXISTS p ON t").message == "there is no pipe p on default.t"
    assert world.rows("SHOW PIPES") == []


def test_names_are_one_of_a_kind(world: CopyWorld) -> None:
    world.run(create(world))
    error = refused(world, create(world, more="FORMAT CSV"))
    assert (error.code, error.facts["pipe"]) == ("PIPE_EXISTS", "p")
    assert "exists" in world.run(create(world, head="IF NOT EXISTS ")).message
    for text in ("DROP PIPE q ON t", "SHOW CREATE PIPE q ON t", "ALTER PIPE q ON t REFRESH", "EXPLAIN PIPE q ON t"):
        error = refused(world, text)
        assert (error.code, error.hint) == ("PIPE_NOT_FOUND", "its pipes are p")


def test_a_table_has_so_many_pipes_at_most(world: CopyWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "PIPES_MAX", 1)
    world.run(create(world))
    assert refused(world, create(world, "q")).code == "TOO_MANY_PIPES"
    assert refused(world, create(world)).code == "PIPE_EXISTS"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ("FORMAT JSON OPTIONS (FORCE = true)", "BAD_COPY_OPTION"),
        ("FORMAT JSON OPTIONS (NOPE = 1)", "BAD_COPY_OPTION"),
        ("FORMAT JSON PATTERN '../*'", "BAD_FILE_LOCATION"),
        ("FORMAT JSON SETTINGS max_insert_tasks = 'x'", "BAD_SETTING"),
        ("FORMAT JSON SETTINGS `spark.sql.session.timeZone` = 'Europe/Berlin'", "COPY_ZONE"),
    ],
)
def test_what_a_poll_would_refuse_is_refused_at_once(world: CopyWorld, more: str, code: str) -> None:
    assert refused(world, create(world, more=more)).code == code
    assert world.catalog.pipes.all() == []


def test_tables_columns_and_locations_are_checked(world: CopyWorld) -> None:
    files = world.files
    world.run("CREATE TABLE k (a Int64) ENGINE = Kafka('b:9092', 'topic', 'g', 'JSONEachRow')")
    for text, code in (
        (f"CREATE PIPE p AS COPY INTO none FROM '{files}' FORMAT JSON", "TABLE_NOT_FOUND"),
        (f"CREATE PIPE p AS COPY INTO k FROM '{files}' FORMAT JSON", "WRONG_KIND_OF_TABLE"),
        (f"CREATE PIPE p AS COPY INTO t (b) FROM '{files}' FORMAT JSON", "UNKNOWN_COLUMN"),
        ("CREATE PIPE p AS COPY INTO t FROM '/etc' FORMAT JSON", "BAD_FILE_LOCATION"),
        ("CREATE PIPE p AS COPY INTO t FROM 's3://b/x?key=a' FORMAT JSON", "BAD_FILE_LOCATION"),
    ):
        assert refused(world, text).code == code
    assert world.catalog.pipes.all() == []


def test_pipes_are_audited(world: CopyWorld) -> None:
    world.run(create(world))
    world.run("ALTER PIPE p ON t REFRESH")
    world.run("DROP PIPE p ON t")
    verbs = world.rows("SELECT verb, table FROM system.audit_log WHERE verb LIKE '%PIPE%' ORDER BY time")
    assert {*verbs} == {(verb, "default.t") for verb in ("CREATE PIPE", "ALTER PIPE .. REFRESH", "DROP PIPE")}


def test_a_read_only_session_makes_no_pipe_and_sees_them(world: CopyWorld) -> None:
    for text in (create(world), "DROP PIPE p ON t", "ALTER PIPE p ON t REFRESH"):
        assert refused(world, text, {"readonly": "1"}).code == "READONLY_SETTING"
    world.run(create(world))
    world.run("SHOW PIPES", settings={"readonly": "1"})
    world.run("EXPLAIN PIPE p ON t", settings={"readonly": "1"})


def test_explain_says_what_the_next_poll_does_with_each_file(world: CopyWorld) -> None:
    seconds = world.clock.now_ms() / 1000
    for name, age in (("a.json", 60), ("b.json", 60), ("c.json", 0), ("d.txt", 60)):
        path = world.put(name)
        os.utime(path, (seconds - age, seconds - age))
    world.run(f"COPY INTO t FROM '{world.files}/a.json' FORMAT JSON")
    world.run(create(world, more="FORMAT JSON PATTERN '*.json'"))
    rows = world.rows("EXPLAIN PIPE p ON t")
    assert [(str(row[0]).rpartition("/")[2], row[1], row[3]) for row in rows] == [
        ("a.json", 1, "loaded"),
        ("b.json", 1, "load"),
        ("c.json", 1, "settling"),
    ]
    assert [row[4] is None for row in rows] == [True, True, False]
    assert len(world.tasks) == 1


def test_hostile_names_are_names(world: CopyWorld) -> None:
    name = "a`b.c'\"\\ é;--"
    quoted = "`" + name.replace("`", "``") + "`"
    world.run(create(world, quoted))
    assert world.rows("SELECT name FROM system.pipes") == [(name,)]
    world.run(f"DROP PIPE {quoted} ON t")
    assert world.catalog.pipes.of(table_of(world).uuid) == []
