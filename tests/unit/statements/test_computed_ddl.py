"""Columns that are computed from others: what a definition says of them, and where they cannot stand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.sql_world import SqlWorld, answer_defaults, refused, table_of
from tilth.clickhouse.dialect import in_sparks_words
from tilth.grammar.statements import CreateTable
from tilth.model.table import ColumnKind
from tilth.model.task import TaskSpec
from tilth.query.snapshots.protocol import CheckTask, ComputeTask, WorkerTask, stream_of
from tilth.statements.registry import parse
from tilth.storage import data_folder, local_root, read_part

COLUMNS = "a Int32, b String, m Int32 MATERIALIZED a + 1, x Int32 ALIAS m * 2, d Int32 DEFAULT a"
OVER = {"a + 1": (1, " + 1"), "m * 2": (3, " * 2"), "a": (1,), "`a` + 1": (1, " + 1"), "a + 7": (1, " + 7")}


def worker(spec: TaskSpec) -> bytes:
    """Checks the expressions, and computes `a + 1` and `a`."""
    task = msgspec.msgpack.decode(spec.payload, type=WorkerTask)
    if isinstance(task, CheckTask):
        return msgspec.msgpack.encode([])
    if not isinstance(task, ComputeTask):
        return answer_defaults({"now()": 1_000_000}, computed=["now()"], over=OVER)(spec)
    with pa.ipc.open_stream(task.given) as reader:
        a = reader.read_all().column("a").to_pylist()
    more = {"m": 1, "d": 0}
    columns = {name: pa.array([each + more[name] for each in a], pa.int32()) for name in task.columns}
    return stream_of(pa.table(columns))


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    made = SqlWorld(tmp_path)
    made.dispatch.answer = worker
    return made


def create(world: SqlWorld, columns: str = COLUMNS, rest: str = "ORDER BY a") -> None:
    world.run(f"CREATE TABLE t ({columns}) ENGINE = MergeTree {rest}")


def stored(world: SqlWorld, folder: Path, names: list[str]) -> list[tuple[object, ...]]:
    """These columns of all rows in files."""
    table = table_of(world)
    parts = world.catalog.parts.snapshot(table.uuid).parts
    tables = [read_part(data_folder(local_root(folder), table.uuid), part.file) for part in parts]
    return sorted(tuple(row[name] for name in names) for each in tables for row in each.to_pylist())


def test_a_definition_shows_them_as_they_were_written(world: SqlWorld) -> None:
    create(world)
    made = table_of(world)
    assert made.schema.names == ("a", "b", "m", "d")
    assert [(each.id, each.name) for each in made.schema.aliases] == [(-1, "x")]
    kinds = world.rows("SELECT name, default_kind, default_expression FROM system.columns WHERE table = 't'")
    assert kinds == [
        ("a", "", None),
        ("b", "", None),
        ("m", "MATERIALIZED", "`a` + 1"),
        ("d", "DEFAULT", "`a`"),
        ("x", "ALIAS", "`m` * 2"),
    ]
    described = world.run("DESCRIBE t").table.select(["name", "default", "default_kind"]).to_pylist()
    assert described[-1] == {"name": "x", "default": "m * 2", "default_kind": "ALIAS"}
    ((shown,),) = world.rows("SHOW CREATE TABLE t")
    assert "m Int32 MATERIALIZED a + 1" in str(shown)
    assert "x Int32 ALIAS m * 2" in str(shown)


def test_a_rename_is_followed_and_a_drop_refused(world: SqlWorld) -> None:
    create(world)
    assert refused(world, "ALTER TABLE t DROP COLUMN m").code == "BAD_ALTER"
    world.run("ALTER TABLE t RENAME COLUMN m TO `m 2`, RENAME COLUMN x TO y")
    ((shown,),) = world.rows("SHOW CREATE TABLE t")
    assert "y Int32 ALIAS `m 2` * 2" in str(shown)
    world.run("ALTER TABLE t DROP COLUMN y, DROP COLUMN `m 2`")
    assert table_of(world).schema.aliases == ()


@pytest.mark.parametrize(
    ("columns", "rest", "named"),
    [
        ("a Int32, x Int32 ALIAS a", "ORDER BY x", "ORDER BY"),
        ("a Int32, x Int32 ALIAS a", "PARTITION BY x ORDER BY a", "PARTITION BY"),
        ("a Int32, x Int32 ALIAS a", "UNIQUE KEY x", "UNIQUE KEY"),
        ("a Int32, t TIMESTAMP, x TIMESTAMP ALIAS a", "ORDER BY a TTL x + INTERVAL 1 DAY", "expire"),
        ("a Int32, m Int32 MATERIALIZED a + 1", "UNIQUE KEY m", "UNIQUE KEY"),
        ("a Int32, b String, m Int32 MATERIALIZED a + 1", "PARTITION BY m UNIQUE KEY b", "PARTITION BY"),
        (
            "a Int32, m Int32 MATERIALIZED a + 1",
            "UNIQUE KEY a SETTINGS enable_unique_partial_update = 1",
            "partial updates",
        ),
        ("t TIMESTAMP MATERIALIZED now()", "", "not computed"),
    ],
)
def test_where_they_cannot_stand_they_are_refused_by_name(world: SqlWorld, columns: str, rest: str, named: str) -> None:
    error = refused(world, f"CREATE TABLE t ({columns}) ENGINE = MergeTree {rest}")
    assert named in error.message


def test_partial_updates_are_not_switched_on_beside_them(world: SqlWorld) -> None:
    create(world, "a Int32, m Int32 MATERIALIZED a + 1", "UNIQUE KEY a")
    error = refused(world, "ALTER TABLE t MODIFY SETTING enable_unique_partial_update = 1")
    assert (error.code, error.facts["column"]) == ("BAD_DEFINITION", "m")


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t (a, m) VALUES (1, 2)",
        "INSERT INTO t (x) VALUES (1)",
        "INSERT INTO t (m) SELECT 1",
        'INSERT INTO t FORMAT JSONEachRow {"a": 1, "m": 2}',
        "INSERT INTO t FORMAT CSVWithNames a,x\n1,2\n",
        "UPDATE t SET m = 1 WHERE true",
        "ALTER TABLE t UPDATE x = 1 WHERE true",
    ],
)
def test_no_statement_gives_them_values(world: SqlWorld, text: str) -> None:
    create(world)
    error = refused(world, text)
    assert error.code == "COMPUTED_COLUMN"
    assert error.facts["column"] in ("m", "x")
    assert error.hint


def test_rows_by_value_get_them_one_behind_the_other(world: SqlWorld, tmp_path: Path) -> None:
    create(world)
    world.run("INSERT INTO t VALUES (1, 'x', 5)")
    world.run('INSERT INTO t FORMAT JSONEachRow {"a": 2, "d": 7}\n{"a": 3}')
    world.engine.insert_arrow("default", "t", pa.table({"A": pa.array([4], pa.int64())}))
    assert stored(world, tmp_path, ["a", "m", "d"]) == [(1, 2, 5), (2, 3, 7), (3, 4, 3), (4, 5, 4)]


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ("ADD COLUMN x Int32", "BAD_ALTER"),
        ("ADD COLUMN m Int32 ALIAS a", "BAD_ALTER"),
        ("RENAME COLUMN b TO x", "BAD_ALTER"),
        ("MODIFY COLUMN x Int32", "BAD_ALTER"),
        ("MODIFY COLUMN x Int32 DEFAULT 1", "BAD_ALTER"),
        ("MODIFY COLUMN b ALIAS a", "BAD_ALTER"),
        ("MODIFY COLUMN b REMOVE MATERIALIZED", "BAD_ALTER"),
        ("MODIFY COLUMN m REMOVE DEFAULT", "BAD_ALTER"),
        ("MODIFY COLUMN x REMOVE ALIAS", "UNSUPPORTED_SYNTAX"),
        ("ADD COLUMN n Int32 NOT NULL MATERIALIZED a + 7", "BAD_VALUE"),
    ],
)
def test_an_alter_that_makes_no_sense_is_refused(world: SqlWorld, operation: str, code: str) -> None:
    create(world)
    assert refused(world, f"ALTER TABLE t {operation}").code == code
    assert table_of(world).schema_version == 1


def test_an_alias_comes_and_goes_without_a_mutation(world: SqlWorld) -> None:
    create(world)
    world.run("ALTER TABLE t ADD COLUMN y Int32 ALIAS a + 7, MODIFY COLUMN x ALIAS a + 1 COMMENT 'of a'")
    made = table_of(world)
    assert [(each.id, each.name, each.expression) for each in made.schema.aliases] == [
        (-1, "x", (1, " + 1")),
        (-2, "y", (1, " + 7")),
    ]
    assert world.catalog.mutations.all(made.uuid) == []
    world.run("ALTER TABLE t MODIFY COLUMN m REMOVE MATERIALIZED")
    assert [each.kind for each in table_of(world).schema.columns] == [ColumnKind.DEFAULT] * 4


def test_an_update_leaves_alone_what_files_are_laid_out_by(world: SqlWorld) -> None:
    create(world, "a Int32, b String, m Int32 MATERIALIZED a + 1", "ORDER BY m")
    error = refused(world, "UPDATE t SET a = 2 WHERE true")
    assert (error.code, error.facts["column"]) == ("BAD_ALTER", "a")
    assert "m is computed from it" in error.hint


def test_a_kafka_table_has_none(world: SqlWorld) -> None:
    kafka = (
        "CREATE TABLE k (a Int32, c Int32 {}) ENGINE = Kafka SETTINGS kafka_broker_list = 'b:9092', "
        "kafka_topic_list = 't', kafka_group_name = 'g', kafka_format = 'JSONEachRow'"
    )
    for clause in ("MATERIALIZED a + 1", "ALIAS a + 1", "DEFAULT a + 1", "MATERIALIZED 1"):
        assert refused(world, kafka.format(clause)).code == "BAD_DEFAULT"


def dialect_of(text: str) -> list[str | None]:
    statement = in_sparks_words(parse(f"CREATE TABLE t ({text}) ENGINE = MergeTree ORDER BY a"))
    assert isinstance(statement, CreateTable)
    return [column.default for column in statement.columns]


def test_the_dialect_reads_expressions_over_columns() -> None:
    found = dialect_of("a Array(Int32), m Int32 MATERIALIZED a[1], x Int32 ALIAS length(a), d Int32 DEFAULT a[2]")
    assert found == [None, "arrayElement(a, 1)", "clickhouse_length(a)", "arrayElement(a, 2)"]
    # An expression that names no column is read as before.
    assert dialect_of("a Int32, d Array(Int32) DEFAULT [1, 2], t DateTime DEFAULT now()")[1:] == ["[1, 2]", "now()"]
