"""SQL that is refused, and queries that pass the same check as they should. One session for all tests."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.spark_world import SparkWorld
from tilth.ingest import ViewError, check_view
from tilth.model.table import Column, KafkaDef, Schema, TableDef
from tilth.model.types import Kind, Simple
from tilth.warehouse import NotAllowedError, check_plan, parse_plan, read_plan, schema_of

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def world(world: SparkWorld) -> SparkWorld:
    world.run(
        "CREATE TABLE t (id Int64, day Date, ts DateTime, s String, a Array(Int64), m Map(String, Int64), j String, "
        "x Float64) ENGINE = MergeTree ORDER BY id"
    )
    world.run(
        "INSERT INTO t VALUES (1, '2026-01-01', '2026-01-01 10:00:00', 'one', [1, 2], {'k': 1}, '{\"a\": 1}', 1.5), "
        "(2, '2026-01-02', '2026-01-02 11:00:00', 'two', [3], {'k': 2}, '{\"a\": 2}', 2.5), "
        "(3, '2026-02-01', '2026-02-01 12:00:00', NULL, [], {}, '[]', 3.5)"
    )
    world.run("CREATE TABLE u (id Int64, name String) ENGINE = MergeTree ORDER BY id")
    world.run("INSERT INTO u VALUES (1, 'Ann'), (2, 'Bob')")
    return world


#: Calls a method of Java.
_RUN = "reflect('java.lang.System', 'getProperty', 'user.home')"


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT {_RUN}",
        "SELECT java_method('java.lang.System', 'getenv')",
        "SELECT try_reflect('java.lang.System', 'getenv')",
        "SELECT `Reflect`('java.lang.System', 'getenv')",
        "SELECT system.builtin.reflect('java.lang.System', 'getenv')",
        "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'getenv')",
        "SELECT IDENTIFIER('reflect')('java.lang.System', 'getenv')",
        f"SELECT id FROM t WHERE s = {_RUN}",
        f"SELECT (SELECT max({_RUN}) FROM u) FROM t",
        f"SELECT id FROM t WHERE id IN (SELECT length({_RUN}) FROM u)",
        f"SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE name = {_RUN})",
        f"WITH c AS (SELECT {_RUN} AS v) SELECT 1",
        f"WITH RECURSIVE c(v) AS (VALUES ({_RUN}) UNION ALL SELECT v FROM c WHERE false) SELECT v FROM c",
        f"VALUES ({_RUN})",
        f"VALUES (1), ((SELECT {_RUN}))",
        f"SELECT * FROM VALUES ({_RUN}) AS v(x)",
        f"SELECT transform(a, e -> {_RUN}) FROM t",
        f"SELECT id FROM t ORDER BY {_RUN}",
        f"SELECT count(*) FROM t GROUP BY {_RUN}",
        f"SELECT count(*) FILTER (WHERE s = {_RUN}) FROM t",
        f"SELECT row_number() OVER (PARTITION BY {_RUN} ORDER BY id) FROM t",
        f"SELECT row_number() OVER w FROM t WINDOW w AS (ORDER BY {_RUN})",
        f"SELECT t.id FROM t JOIN u ON t.id = u.id AND u.name = {_RUN}",
        f"SELECT * FROM t LATERAL VIEW explode(array({_RUN})) v AS e",
        f"SELECT * FROM t, LATERAL (SELECT {_RUN})",
        f"SELECT * FROM explode(array({_RUN}))",
        f"SELECT * FROM t PIVOT (max({_RUN}) FOR id IN (1, 2))",
        f"SELECT CASE WHEN true THEN {_RUN} END",
        f"FROM t |> EXTEND {_RUN} AS r |> SELECT r",
        f"SELECT id FROM t LIMIT length({_RUN})",
        f"SELECT id FROM t TIMESTAMP AS OF {_RUN}",
        f"EXPLAIN SELECT {_RUN}",
        f"SELECT 1 UNION ALL SELECT {_RUN}",
        f"INSERT INTO u SELECT 1, {_RUN}",
        f"INSERT INTO u WITH c AS (SELECT {_RUN} AS v) SELECT 1, v FROM c",
        f"DELETE FROM u WHERE name = {_RUN}",
        f"UPDATE u SET name = {_RUN} WHERE true",
        f"ALTER TABLE u UPDATE name = {_RUN} WHERE true",
        f"ALTER TABLE u DELETE WHERE name = {_RUN}",
        f"ALTER TABLE u ADD COLUMN c String DEFAULT {_RUN}",
        f"CREATE TABLE c (k Int64, v String DEFAULT {_RUN}) ENGINE = MergeTree ORDER BY k",
        "CREATE TABLE c (k Int64, v String DEFAULT input_file_name()) ENGINE = MergeTree ORDER BY k",
        "SELECT TRANSFORM(s) USING 'sh' FROM t",
        "SELECT * FROM (FROM t MAP s USING 'sh' AS x)",
        "SELECT * FROM (SELECT TRANSFORM(s) USING 'sh' AS (x STRING) FROM t)",
        "SELECT (SELECT max(x) FROM (SELECT TRANSFORM(name) USING 'sh' AS (x STRING) FROM u))",
        "WITH c AS (SELECT TRANSFORM(name) USING 'sh' AS (x STRING) FROM u) SELECT * FROM c",
        "INSERT INTO u SELECT 1, x FROM (SELECT TRANSFORM(name) USING 'sh' AS (x STRING) FROM u)",
        "EXPLAIN SELECT TRANSFORM(s) USING 'sh' FROM t",
        "FROM t INSERT OVERWRITE DIRECTORY '/tmp/x' USING parquet SELECT *",
        "WITH c AS (SELECT 1) INSERT OVERWRITE LOCAL DIRECTORY '/tmp/x' USING csv SELECT * FROM c",
        "EXPLAIN INSERT OVERWRITE DIRECTORY '/tmp/x' USING parquet SELECT 1",
        "EXPLAIN CREATE TEMPORARY FUNCTION f AS 'org.example.F'",
        "EXPLAIN CREATE TABLE x USING csv OPTIONS (path '/etc/passwd')",
        "EXPLAIN CREATE TEMPORARY VIEW x USING csv OPTIONS (path '/etc/passwd')",
        "EXPLAIN SET spark.sql.ansi.enabled = false",
        "EXPLAIN CODEGEN SELECT 1",
        "EXPLAIN SET VAR v = 1",
        "SELECT * FROM parquet.`/etc/passwd`",
        "SELECT * FROM csv.`/etc/passwd`",
        "SELECT * FROM text.`/etc/passwd`",
        "SELECT * FROM binaryFile.`/etc/passwd`",
        "SELECT (SELECT max(value) FROM text.`/etc/passwd`)",
        "WITH text AS (SELECT 1) SELECT * FROM text.`/etc/passwd`",
        "VALUES ((SELECT max(value) FROM text.`/etc/passwd`))",
        "SELECT * FROM IDENTIFIER('text.`/etc/passwd`')",
        "SELECT * FROM IDENTIFIER('text.' || '`/etc/passwd`')",
        "SELECT * FROM t WITH (path = '/etc/passwd')",
        "SELECT * FROM STREAM t",
        "SELECT * FROM python_worker_logs()",
        "SELECT input_file_name() FROM t",
        "SELECT version()",
        "SELECT xpath('<a/>', 'a')",
        "SELECT xpath_string('<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a/>', 'a')",
        "SELECT from_xml('<p/>', 'a INT', map('rowValidationXSDPath', '/etc/passwd'))",
        "SELECT schema_of_xml('<p/>')",
        "SELECT from_protobuf(s, 'M', '/etc/passwd') FROM t",
        "SELECT from_avro(s, '{}') FROM t",
        "SELECT to_protobuf(named_struct('a', 1), 'M', '/etc/passwd')",
        "SELECT /*+ no_such_hint(t) */ id FROM t",
        "SELECT :name",
        "SELECT ?",
    ],
)
def test_what_executes_reads_files_or_shows_the_node_is_refused(world: SparkWorld, text: str) -> None:
    error = world.refused(text)
    assert error.code == "NOT_ALLOWED", str(error)
    assert error.hint, str(error)
    assert "java." not in error.message
    assert world.catalog.tables.find("shop", "c") is None


@pytest.mark.parametrize(
    "text",
    [
        "EXPLAIN ADD JAR '/tmp/x.jar'",
        "EXPLAIN CACHE TABLE x AS SELECT 1",
        "EXPLAIN CALL p()",
        "EXPLAIN EXECUTE IMMEDIATE 'SELECT 1'",
        "EXPLAIN DECLARE v INT",
    ],
)
def test_commands_behind_explain_do_not_reach_spark(world: SparkWorld, text: str) -> None:
    error = world.refused(text)
    assert (error.code, error.message.split()[0]) == ("UNSUPPORTED_SYNTAX", "EXPLAIN"), str(error)


def test_a_refusal_names_the_function_the_place_and_what_to_do(world: SparkWorld) -> None:
    error = world.refused("SELECT id,\n  input_file_name() FROM t")
    assert "name=input_file_name" in error.message
    assert "at=2:3" in error.message
    assert "system.parts" in error.hint


def test_files_do_not_show_through_hidden_columns(world: SparkWorld) -> None:
    assert world.refused("SELECT _metadata.file_path FROM t").code == "UNKNOWN_COLUMN"
    assert world.refused("SELECT t._metadata FROM t").code == "UNKNOWN_COLUMN"


def test_a_schema_in_json_loads_no_class(world: SparkWorld) -> None:
    schema = '{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":'
    schema += '{"type":"udt","class":"org.apache.spark.ml.linalg.VectorUDT","pyClass":null,"sqlType":"string"}}]}'
    error = world.refused(f"SELECT from_json('{{}}', '{schema}')")
    assert error.code == "NOT_ALLOWED"
    assert "name=from_json" in error.message


_MODULE = "tilth_loads_no_such_module"
_CLASS_TYPE = f'{{"type":"udt","pyClass":"{_MODULE}.X","serializedClass":"AAAA","sqlType":"string"}}'
_STRUCT = f'{{"type":"struct","fields":[{{"name":"a","nullable":true,"metadata":{{}},"type":{_CLASS_TYPE}}}]}}'


@pytest.mark.parametrize(
    "text",
    [
        f"from_json('{{}}', '{_STRUCT}')",
        f"from_json('{{}}', ' \\n{_STRUCT}')",
        f"FROM_JSON('[]', '{_CLASS_TYPE}')",
        "from_json('{}', '\"integer\"')",
        f"from_json('{{}}', concat('{_STRUCT[:9]}', '{_STRUCT[9:]}'))",
        f"from_json('{{}}', CAST('{_STRUCT}' AS STRING))",
        f"from_json('{{}}', (SELECT '{_STRUCT}'))",
        f"from_json('{{}}', unhex('{_STRUCT.encode().hex()}'))",
        f"from_json(schema => '{_STRUCT}', json => '{{}}')",
        f"from_csv('1', '{_STRUCT}')",
        f"from_csv('1', '{_STRUCT}', map('sep', ','))",
        f"variant_get(parse_json('1'), '$', '{_CLASS_TYPE}')",
        f"try_variant_get(parse_json('1'), '$', upper('{_CLASS_TYPE}'))",
    ],
)
def test_a_type_in_a_text_imports_no_module(world: SparkWorld, text: str) -> None:
    for statement in (f"SELECT {text}", f"SELECT id FROM t WHERE {text} IS NULL", f"INSERT INTO u SELECT 1, {text}.a"):
        error = world.refused(statement)
        assert _MODULE not in str(error), str(error)
        assert error.code in ("NOT_ALLOWED", "SYNTAX_ERROR", "BAD_QUERY"), str(error)


def test_a_type_of_a_class_is_not_read_even_where_no_list_has_seen_it(world: SparkWorld) -> None:
    session = world.session.new_session(pool="default")
    with pytest.raises(NotAllowedError, match="only a program can read"):
        schema_of(session.sql(f"SELECT from_json('{{}}', '{_STRUCT}') AS a"))
    assert schema_of(session.sql('SELECT \'"type":"udt"\' AS `"type":"udt"`')).names


@pytest.mark.parametrize(
    "text",
    [
        "from_json('{\"a\": 1}', 'a INT')",
        "from_json('[1]', 'ARRAY<INT>')",
        "from_json('{}', ' `x y` STRING')",
        "from_json('{\"a\": 1}', schema_of_json('{\"a\": 1}'))",
        "from_csv('1,2', 'a INT, b INT')",
        "from_csv('1', schema_of_csv('1'))",
        "variant_get(parse_json('1'), '$', 'int')",
    ],
)
def test_a_type_in_the_words_of_sql_is_taken(world: SparkWorld, text: str) -> None:
    assert world.rows(f"SELECT {text} IS NULL OR true") == [(True,)]


def test_a_cte_shadows_no_table_by_the_name_of_a_view(world: SparkWorld) -> None:
    """Names of views are drawn for each statement."""
    for name in ("__tilth_0", "__tilth_", "__tilth_0_0"):
        text = f"WITH {name} AS (SELECT 99 AS id, 'forged' AS name) SELECT name FROM u WHERE id = 1"
        assert world.rows(text) == [("Ann",)]
        assert world.rows(f"WITH {name} AS (SELECT 99 AS id) SELECT count(*) FROM u JOIN {name} USING (id)") == [(0,)]


@pytest.mark.parametrize("default", [_RUN, "(SELECT max(x) FROM (SELECT TRANSFORM(1) USING 'sh' AS (x STRING)))"])
def test_a_definition_from_before_the_list_computes_nothing(world: SparkWorld, default: str) -> None:
    """The list may become stricter: it is checked where a definition is used, too."""
    name = "old" if default == _RUN else "older"
    columns = (
        Column(id=1, name="id", type=Simple(Kind.INT64)),
        Column(id=2, name="v", type=Simple(Kind.STRING), default=default),
    )
    table = TableDef(uuid="", database="shop", name=name, schema=Schema(columns=columns), next_column_id=3)
    world.catalog.tables.create(table)
    assert world.refused(f"INSERT INTO {name} (id) SELECT 1").code == "NOT_ALLOWED"
    assert world.rows(f"SELECT count(*) FROM {name}") == [(0,)]


@pytest.mark.parametrize(
    "select",
    [
        f"SELECT id, {_RUN} AS name FROM shop.k",
        "SELECT id, x AS name FROM (SELECT TRANSFORM(id, name) USING 'sh' AS (id BIGINT, x STRING) FROM shop.k)",
        "SELECT id, (SELECT max(value) FROM text.`/etc/passwd`) AS name FROM shop.k",
    ],
)
def test_a_view_computes_and_nothing_else_however_old_it_is(world: SparkWorld, select: str) -> None:
    if world.catalog.tables.find("shop", "k") is None:
        world.run(
            "CREATE TABLE k (id Int64, name String) ENGINE = Kafka SETTINGS kafka_broker_list = '127.0.0.1:1', "
            "kafka_topic_list = 'k', kafka_format = 'JSONEachRow', kafka_handle_error_mode = 'throw'"
        )
    error = world.refused(f"CREATE MATERIALIZED VIEW v TO u AS {select}")
    assert error.code in ("NOT_ALLOWED", "BAD_DEFINITION"), str(error)
    assert world.catalog.tables.find("shop", "v") is None
    # A consumer asks for the plan of a view anew, whoever stored it.
    kafka, target = world.catalog.tables.get("shop", "k"), world.catalog.tables.get("shop", "u")
    assert isinstance(kafka, KafkaDef)
    assert isinstance(target, TableDef)
    with pytest.raises(ViewError):
        check_view(world.session.new_session(pool="write"), kafka, target, select, view="shop.v")


def test_behind_the_list_spark_itself_is_closed(world: SparkWorld, tmp_path: Path) -> None:
    """What no check has seen finds nothing to call."""
    session = world.session.new_session(pool="default")
    made = tmp_path / "made"
    for text in (
        f"SELECT {_RUN}",
        "SELECT version()",
        "SELECT * FROM python_worker_logs()",
        f"SELECT TRANSFORM(1) USING 'touch {made}' AS (x STRING)",
        "SELECT * FROM text.`/etc/passwd`",
        "BEGIN SELECT 1; END",
    ):
        with pytest.raises(Exception, match=r"\[[A-Z_]+"):
            session.sql(text).collect()
    assert not made.exists()
    assert session.sql("SELECT '${env:HOME}', current_user()").collect()[0] == ("${env:HOME}", "tilth")


@pytest.mark.parametrize(
    "name",
    [
        "spark.sql.variable.substitute",
        "spark.sql.restrictedMode.enabled",
        "spark.sql.runSQLOnFiles",
        "spark.sql.udt.allowCreatingUDTFromString",
        "spark.sql.parquet.filterPushdown",
        "spark.sql.parquet.datetimeRebaseModeInRead",
        "spark.sql.files.ignoreCorruptFiles",
        "spark.sql.extensions",
        "spark.sql.execution.pyspark.python",
        "spark.sql.optimizer.excludedRules",
        "spark.sql.caseSensitive",
        "spark.sql.session.timezone",
        "spark.sql.no.such",
    ],
)
def test_settings_that_load_things_or_take_guarantees_away_are_refused(world: SparkWorld, name: str) -> None:
    error = world.refused(f"SELECT 1 SETTINGS `{name}` = 'true'")
    assert (error.code, name in error.message) == ("NOT_ALLOWED", True), str(error)


def test_settings_of_speed_and_documented_meaning_are_taken(world: SparkWorld) -> None:
    settings = {"spark__sql__session__timeZone": "+02:00", "spark__sql__shuffle__partitions": "3"}
    assert world.rows("SELECT hour(TIMESTAMP '2026-01-01 00:00:00Z')", **settings) == [(2,)]
    assert world.refused("SELECT CAST('x' AS INT)").code == "BAD_QUERY"
    assert world.rows("SELECT CAST('x' AS INT)", spark__sql__ansi__enabled="false") == [(None,)]


#: Each has an answer.
_QUERIES = (Path(__file__).parent / "queries_as_written.sql").read_text().splitlines()[1:]


@pytest.mark.parametrize("text", _QUERIES)
def test_what_people_write_is_answered(world: SparkWorld, text: str) -> None:
    assert world.run(text).columns


def test_the_check_of_a_long_query_takes_little_and_rises_with_its_length(world: SparkWorld) -> None:
    """One call to the JVM for a whole plan: before, a call for each node took a second for 500 expressions."""
    session = world.session.new_session(pool="default")
    parser = session._jsparkSession.sessionState().sqlParser()

    def seconds(text: str) -> float:
        tree = parser.parsePlan(text)
        times = []
        for _ in range(5):
            started = time.perf_counter()
            check_plan(read_plan(session, tree), text)
            times.append(time.perf_counter() - started)
        return min(times)

    expressions = "SELECT " + ", ".join(f"c{n} + {n} * 2 AS x{n}" for n in range(500)) + " FROM t"
    assert seconds(expressions) < 0.2
    short, long = (seconds(f"SELECT 1 FROM t WHERE id IN ({', '.join(map(str, range(n)))})") for n in (1_500, 15_000))
    assert long < 0.5
    assert long < 40 * max(short, 0.005), (short, long)
    plan = parse_plan(session, expressions)
    assert len([node for node in plan.nodes if node.kind == "Alias"]) == 500
