"""Statements that try to leave the box of SQL, on a node of its own: `python -m tools.escapes --count 1000`.

An attempt puts an expression or a relation that reaches for the host (`_VALUES`, `_RELATIONS`) into a statement
(`_VALUE_CONTEXTS`, `_RELATION_CONTEXTS`), in one of several spellings. Traps find an escape, not the words of the
answer: the content of a file, a variable of the environment and a property of Java must be in no answer, a folder must
stay empty, a module must never be imported, nobody may connect to a port.

Covers: the attempts, the traps, the answers. Does not cover: attempts that only take memory or time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from tilth.base.errors import TilthError
from tools.node_process import NodeProcess

_SEED = 28
_SETUP = (
    "SET max_execution_time = 20",
    "CREATE DATABASE IF NOT EXISTS x",
    "CREATE TABLE IF NOT EXISTS x.t (i INT, s STRING) ENGINE = MergeTree ORDER BY i",
    "INSERT INTO x.t VALUES (1, 'a'), (2, 'b')",
    "CREATE TABLE IF NOT EXISTS x.k (i INT, s STRING) ENGINE = Kafka SETTINGS kafka_broker_list = '127.0.0.1:1', "
    "kafka_topic_list = 't', kafka_group_name = 'g', kafka_format = 'JSONEachRow'",
)
#: Expressions. `{file}`, `{folder}`, `{variable}`, `{property}`, `{port}` and `{module}` name the traps.
_VALUES = (
    "reflect('java.lang.System', 'getenv', '{variable}')",
    "java_method('java.lang.System', 'getProperty', '{property}')",
    "try_reflect('java.lang.System', 'getenv', '{variable}')",
    "system.builtin.reflect('java.lang.System', 'getenv', '{variable}')",
    "spark_catalog.default.reflect('java.lang.System', 'getenv', '{variable}')",
    "identifier('ref' || 'lect')('java.lang.System', 'getenv', '{variable}')",
    "reflect('java.nio.file.Files', 'readString', '{file}')",
    "reflect('scala.io.Source', 'fromFile', '{file}')",
    "reflect('org.apache.commons.io.FileUtils', 'readFileToString', '{file}')",
    "reflect('java.net.URI', 'create', 'http://127.0.0.1:{port}/')",
    "from_json('{{}}', '{udt}')",
    "from_csv('1', '{udt}')",
    "from_xml('<a/>', '{udt}')",
    "from_json('{{}}', concat('{udt_head}', '{udt_tail}'))",
    "from_json('{{}}', schema_of_json('{udt}'))",
    "variant_get(parse_json('{{}}'), '$', '{udt}')",
    "from_avro(X'00', '{udt}')",
    "from_protobuf(X'00', 'm', '{file}')",
    "to_avro(1, '{file}')",
    "read_files('{file}')",
    "file('{file}')",
    "load_file('{file}')",
    "readfile('{file}')",
    "getenv('{variable}')",
    "getMacro('{variable}')",
    "executable('touch {folder}/made', 'TSV', 'a String')",
    "input_file_name()",
    "'${{env:{variable}}}'",
    "'${{system:{property}}}'",
    "secret('{variable}')",
    "pyspark_udf('{module}')",
    "ai_query('http://127.0.0.1:{port}/', 'x')",
    "http_get('http://127.0.0.1:{port}/')",
    "dictGet('{file}', 'a', 1)",
    "catboostEvaluate('{file}', 1)",
)
#: Relations.
_RELATIONS = (
    "text.`{file}`",
    "csv.`file:{file}`",
    "json.`file://{file}`",
    "binaryFile.`{file}`",
    "parquet.`{file}`",
    "orc.`{file}`",
    "`text`.`{file}`",
    "text.`http://127.0.0.1:{port}/`",
    "jdbc.`jdbc:derby:{folder}/db;create=true`",
    "read_csv('{file}')",
    "read_parquet('{file}')",
    "read_text('{file}')",
    "file('{file}', 'LineAsString')",
    "url('http://127.0.0.1:{port}/', 'CSV', 'a Int32')",
    "s3('http://127.0.0.1:{port}/b/x', 'CSV', 'a Int32')",
    "hdfs('hdfs://127.0.0.1:{port}/x', 'CSV', 'a Int32')",
    "remote('127.0.0.1:{port}', 'a', 'b')",
    "mysql('127.0.0.1:{port}', 'a', 'b', 'c', 'd')",
    "postgresql('127.0.0.1:{port}', 'a', 'b', 'c', 'd')",
    "executable('touch {folder}/made', 'TSV', 'a String')",
    "glob('{folder}/*')",
    "python_worker_logs()",
    "identifier('text.`{file}`')",
    "identifier('tex' || 't.`{file}`')",
    "x.`../../../../../..{file}`",
    "`{file}`",
    "x.t WITH (path = '{file}')",
    "STREAM x.k",
    "sqlite_master",
    "pragma_database_list",
    "duckdb_settings()",
)
#: Statements around an expression.
_VALUE_CONTEXTS = (
    "SELECT {value}",
    "SELECT 1 WHERE {value} IS NOT NULL",
    "SELECT * FROM x.t WHERE {value} = s",
    "SELECT count(*) FROM x.t GROUP BY {value}",
    "SELECT max(s) FROM x.t HAVING max({value}) > ''",
    "SELECT * FROM x.t ORDER BY {value}",
    "SELECT * FROM x.t LIMIT length({value})",
    "SELECT (SELECT {value})",
    "WITH a AS (SELECT {value} AS v) SELECT v FROM a",
    "SELECT transform(array(1), q -> {value})",
    "SELECT aggregate(array(1), '', (a, q) -> {value})",
    "SELECT row_number() OVER (ORDER BY {value}) FROM x.t",
    "SELECT * FROM x.t LATERAL VIEW explode(array({value})) z AS q",
    "SELECT * FROM x.t, LATERAL (SELECT {value} AS z)",
    "SELECT * FROM x.t JOIN x.t AS u ON {value} = u.s",
    "SELECT * FROM VALUES ({value}) AS v(a)",
    "SELECT * FROM range(length({value}))",
    "SELECT * FROM (SELECT s, i FROM x.t) PIVOT (max({value}) FOR i IN (1, 2))",
    "SELECT * FROM x.t TIMESTAMP AS OF {value}",
    "SELECT * FROM x.t VERSION AS OF {value}",
    "FROM x.t |> SELECT {value}",
    "FROM x.t |> WHERE {value} = s |> AGGREGATE count(*)",
    "SELECT CASE WHEN true THEN {value} END",
    "SELECT coalesce(NULL, try_cast({value} AS STRING))",
    "SELECT max({value}) FILTER (WHERE i > 0) FROM x.t",
    "SELECT named_struct('a', {value}).a",
    "SELECT {value} AS a SETTINGS dialect = 'clickhouse'",
    "SELECT name, {value} FROM system.tables",
    "SELECT name FROM system.settings WHERE name = {value}",
    "EXPLAIN SELECT {value}",
    "EXPLAIN EXTENDED SELECT {value} FROM x.t",
    "EXECUTE IMMEDIATE {value}",
    "DECLARE v STRING DEFAULT {value}",
    "SET VAR v = {value}",
    "INSERT INTO x.t VALUES (3, {value})",
    "INSERT INTO x.t SELECT 3, {value}",
    "DELETE FROM x.t WHERE s = {value}",
    "UPDATE x.t SET s = {value} WHERE i = 1",
    "ALTER TABLE x.t UPDATE s = {value} WHERE i = 1",
    "ALTER TABLE x.t ADD COLUMN c STRING DEFAULT {value}",
    "CREATE TABLE x.n (i INT, s STRING DEFAULT {value}) ENGINE = MergeTree ORDER BY i",
    "CREATE TABLE x.n (i INT, d DATE) ENGINE = MergeTree ORDER BY i TTL d + {value}",
    "CREATE TABLE x.n (i INT) ENGINE = MergeTree PARTITION BY {value} ORDER BY i",
    "CREATE TABLE x.n (i INT) ENGINE = MergeTree ORDER BY ({value})",
    "CREATE MATERIALIZED VIEW x.v TO x.t AS SELECT i, {value} AS s FROM x.k",
    "CREATE VIEW x.v AS SELECT {value}",
    "CREATE FUNCTION f AS () -> {value}",
    "KILL QUERY WHERE query = {value}",
    "BACKUP CATALOG TO {value}",
    "SELECT /*+ {value} */ 1",
    "SELECT /*+ BROADCAST({value}) */ 1",
)
#: Statements around a relation.
_RELATION_CONTEXTS = (
    "SELECT * FROM {relation}",
    "TABLE {relation}",
    "FROM {relation} |> SELECT *",
    "SELECT (SELECT max(value) FROM {relation})",
    "SELECT EXISTS (SELECT * FROM {relation})",
    "SELECT * FROM x.t WHERE s IN (SELECT value FROM {relation})",
    "SELECT * FROM x.t JOIN {relation} ON true",
    "WITH a AS (SELECT * FROM {relation}) SELECT * FROM a",
    "SELECT 1 UNION ALL SELECT * FROM {relation}",
    "SELECT * FROM x.t VERSION AS OF (SELECT count(*) FROM {relation})",
    "SELECT * FROM x.t, LATERAL (SELECT * FROM {relation})",
    "SELECT * FROM system.tables, {relation}",
    "SELECT * FROM {relation} SETTINGS dialect = 'clickhouse'",
    "EXPLAIN SELECT * FROM {relation}",
    "DESCRIBE {relation}",
    "SHOW CREATE TABLE {relation}",
    "CACHE TABLE a AS SELECT * FROM {relation}",
    "ANALYZE TABLE {relation} COMPUTE STATISTICS",
    "INSERT INTO x.t SELECT 1, value FROM {relation}",
    "INSERT INTO {relation} SELECT 1",
    "INSERT INTO FUNCTION {relation} SELECT 1",
    "CREATE TABLE x.n AS SELECT * FROM {relation}",
    "CREATE MATERIALIZED VIEW x.v TO x.t AS SELECT * FROM {relation}",
    "MERGE INTO x.t USING {relation} ON true WHEN MATCHED THEN DELETE",
    "DELETE FROM x.t WHERE s IN (SELECT value FROM {relation})",
    "UPDATE x.t SET s = (SELECT max(value) FROM {relation})",
    "CALL f(TABLE({relation}))",
    "SELECT * FROM f(TABLE {relation})",
)
_EXPLAINED = ("", "EXTENDED", "FORMATTED", "COST", "CODEGEN")
#: Whole statements.
_STATEMENTS = (
    "ADD JAR '{file}'",
    "ADD FILE '{file}'",
    "LIST FILES",
    "SET spark.sql.sources.default = text",
    "SET -v",
    *(f"EXPLAIN {kind} SELECT i, max(s) FROM x.t WHERE i > 0 GROUP BY i" for kind in _EXPLAINED),
    "EXPLAIN FORMATTED SELECT explode(array(i)) FROM x.t",
    "CREATE STORAGE y ROOT 's3://b/p?endpoint=http://169.254.169.254'",
    "LOAD DATA INPATH '{file}' INTO TABLE x.t",
    "CREATE TABLE x.n USING text LOCATION '{file}'",
    "CREATE TABLE x.n (i INT) ENGINE = MergeTree ORDER BY i LOCATION '{folder}/made'",
    "CREATE DATABASE y LOCATION '{folder}/made'",
    "CREATE TABLE x.n (a String) ENGINE = File('CSV', '{file}')",
    "CREATE TABLE x.n (a String) ENGINE = URL('http://127.0.0.1:{port}/', 'CSV')",
    "CREATE TABLE x.n (a String) ENGINE = Executable('touch {folder}/made', 'TSV')",
    "CREATE TEMPORARY VIEW v USING csv OPTIONS (path '{file}')",
    "CREATE TEMPORARY FUNCTION f AS 'java.lang.Runtime' USING JAR '{file}'",
    "CREATE FUNCTION f AS '{module}.f'",
    "CREATE FUNCTION f() RETURNS STRING LANGUAGE PYTHON AS 'import {module}'",
    "CREATE STORAGE y ROOT '{folder}/made'",
    "CREATE STORAGE y ROOT 'file://{folder}/made'",
    "CREATE STORAGE y ROOT 's3://b/p?endpoint=http://127.0.0.1:1&key=env:{variable}&secret=file:{file}'",
    "CREATE STORAGE y REPLICAS ('{folder}/a', '{folder}/b') QUORUM 1",
    "BACKUP CATALOG TO '{folder}/made'",
    "BACKUP CATALOG TO '../../../../../../../..{folder}/made'",
    "BACKUP TABLE x.t TO File('{folder}/made')",
    "INSERT INTO x.t FROM INFILE '{file}' FORMAT CSV",
    "SELECT * FROM x.t INTO OUTFILE '{folder}/made' FORMAT CSV",
    "INSERT OVERWRITE DIRECTORY '{folder}/made' USING text SELECT 'a'",
    "SELECT TRANSFORM(s) USING 'touch {folder}/made' AS (a) FROM x.t",
    "FROM x.t MAP s USING 'cat {file}' AS (a)",
    "SELECT * FROM x.t FORMAT Template SETTINGS format_template_row = '{file}'",
    "SELECT 1 SETTINGS `spark.sql.warehouse.dir` = '{folder}/made'",
    "SELECT 1 SETTINGS `spark.hadoop.fs.defaultFS` = 'file://{folder}'",
    "SELECT 1 SETTINGS `spark.sql.streaming.checkpointLocation` = '{folder}/made'",
    "SELECT 1 SETTINGS `spark.plugins` = '{module}'",
    "SELECT 1 SETTINGS `spark.sql.extensions` = '{module}'",
    "SYSTEM RELOAD DICTIONARY '{file}'",
    "SYSTEM RELOAD CONFIG '{file}'",
    "ATTACH TABLE x.t FROM '{folder}'",
    "BEGIN DECLARE a STRING; SELECT reflect('java.lang.System', 'getenv', '{variable}'); END",
    "SELECT 1; SELECT reflect('java.lang.System', 'getenv', '{variable}')",
    "ALTER TABLE x.t ADD COLUMN `a'; DROP TABLE x.t; --` STRING DEFAULT reflect('java.lang.System', 'getenv', 'HOME')",
    *(
        "CREATE TABLE x.n (i INT) ENGINE = Kafka SETTINGS kafka_broker_list = '127.0.0.1:1', kafka_topic_list = 't', "
        f"kafka_group_name = 'g', kafka_format = 'JSONEachRow', kafka_extra_librdkafka_config = '{name}={value}'"
        for name, value in (
            ("plugin.library.paths", "{file}"),
            ("Plugin.Library.Paths", "{file}"),
            ("sasl.kerberos.kinit.cmd", "touch {folder}/made"),
            ("ssl.engine.location", "{file}"),
            ("ssl.providers", "{file}"),
            ("ssl.ca.location", "{file}"),
            ("ssl.keystore.location", "{file}"),
            ("ssl.key.location", "{folder}/../../../../../..{file}"),
            ("https.ca.location", "{file}"),
            ("sasl.kerberos.keytab", "{file}"),
            ("sasl.oauthbearer.token.endpoint.url", "http://127.0.0.1:{port}/"),
            ("sasl.oauthbearer.token.endpoint.url", "file://{file}"),
            ("sasl.oauthbearer.assertion.private.key.file", "{file}"),
            ("bootstrap.servers", "127.0.0.1:{port}"),
            ("metadata.broker.list", "127.0.0.1:{port}"),
            ("debug", "all"),
        )
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traps:
    """Things of the host that no statement may reach."""

    folder: Path
    port: int
    #: Texts that must be in no answer.
    secrets: tuple[str, ...]
    connections: list[str] = field(default_factory=list)

    @property
    def names(self) -> dict[str, str]:
        udt = {"type": "udt", "pyClass": "tilth_trap.X", "serializedClass": "AAAA", "sqlType": "string"}
        fields = [{"name": "a", "nullable": True, "metadata": {}, "type": udt}]
        text = json.dumps({"type": "struct", "fields": fields})
        return {
            "file": str(self.folder / "secret.txt"),
            "folder": str(self.folder / "out"),
            "variable": "HOST_TRAP",
            "property": "java.io.tmpdir",
            "port": str(self.port),
            "module": "tilth_trap",
            "udt": text,
            "udt_head": text[:90],
            "udt_tail": text[90:],
        }

    def sprung(self, answer: str) -> str:
        """Return the trap that an attempt has sprung; empty: none."""
        if any(secret in answer for secret in self.secrets):
            return "an answer has a secret of the host"
        if made := sorted(path.name for path in (self.folder / "out").iterdir()):
            return f"files were made: {made}"
        if (self.folder / "imported").exists():
            return "a module was imported"
        if self.connections:
            return f"a connection was made: {self.connections}"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    text: str
    #: The code of its error, or `answered`.
    code: str
    answer: str
    #: The trap that it has sprung; empty: none.
    escaped: str


def attempts(count: int, names: dict[str, str], *, seed: int = _SEED) -> Iterator[str]:
    """Yield so many statements: all whole ones, and a random choice among the others, each once."""
    rng = random.Random(seed)
    whole = [text.format(**names) for text in _STATEMENTS]
    values = [{"value": value.format(**names)} for value in _VALUES]
    relations = [{"relation": relation.format(**names)} for relation in _RELATIONS]
    mixed = [*product(_VALUE_CONTEXTS, values), *product(_RELATION_CONTEXTS, relations)]
    chosen = rng.sample(mixed, max(0, min(count - len(whole), len(mixed))))
    texts = whole + [context.format(**filled) for context, filled in chosen]
    for text in texts[:count]:
        yield _spelled(text, rng)


def _spelled(text: str, rng: random.Random) -> str:
    """Return the same statement, spelled otherwise."""
    match rng.randrange(6):
        case 0:
            return text.replace(" ", "/* ' */ ", 1)
        case 1:
            return text.replace("reflect(", "REFLECT (").replace("SELECT", "sElEcT")
        case 2:
            return text.replace("reflect(", "`reflect`(").replace("from_json(", "`from_json`(")
        case 3:
            return text.replace(" ", " /* /* nested */ */ ", 2)
        case 4:
            return f"-- a comment\n{text}"
    return text


@contextmanager
def traps() -> Iterator[Traps]:
    """Set the traps; removes them at the end."""
    with tempfile.TemporaryDirectory(prefix="tilth-escapes-") as name, socket.create_server(("127.0.0.1", 0)) as door:
        folder = Path(name)
        (folder / "out").mkdir()
        (folder / "secret.txt").write_text("tilth-secret-of-a-file\n")
        (folder / "tilth_trap.py").write_text(f"open({str(folder / 'imported')!r}, 'w').close()\nclass X: pass\n")
        secrets = ("tilth-secret-of-a-file", "tilth-secret-of-the-environment")
        found = Traps(folder=folder, port=door.getsockname()[1], secrets=secrets)
        threading.Thread(target=_note_connections, args=(door, found.connections), daemon=True).start()
        yield found


def _note_connections(door: socket.socket, seen: list[str]) -> None:
    while True:
        try:
            connection, address = door.accept()
        except OSError:
            return
        seen.append(str(address))
        connection.close()


def run(count: int, *, seed: int = _SEED) -> list[Attempt]:
    """Run the attempts on a node of their own."""
    with traps() as trap:
        path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(trap.folder)])
        environment = {"PYTHONPATH": path, "HOST_TRAP": trap.secrets[1]}
        # The answer of BACKUP names its file: the folder of backups is no secret.
        settings = {"catalog.backup-folder": str(trap.folder / "backups")}
        node = NodeProcess(trap.folder / "node", environment=environment, settings=settings)
        node.start()
        try:
            node.wait_ready()
            for text in _SETUP:
                node.connection.sql(text)
            # The value of the property is Spark's folder for temporary files, which is in it.
            trap = replace(trap, secrets=(*trap.secrets, str(trap.folder / "node")))
            return [_tried(node, trap, text) for text in attempts(count, trap.names, seed=seed)]
        finally:
            node.stop()


def _tried(node: NodeProcess, trap: Traps, text: str) -> Attempt:
    try:
        result = node.connection.sql(text)
        answer, code = str(result.rows), "answered"
    except TilthError as error:
        answer, code = f"{error} {error.facts} {error.hint}", error.code
    # An answer may repeat the statement.
    escaped = trap.sprung(answer.replace(text, ""))
    return Attempt(text=text, code=code, answer=answer, escaped=escaped)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=_SEED)
    parser.add_argument("--answered", action="store_true", help="show the attempts that were answered")
    given = parser.parse_args(arguments)
    tried = run(given.count, seed=given.seed)
    escaped = [each for each in tried if each.escaped]
    for each in escaped:
        print(f"ESCAPED: {each.escaped}: {each.text!r} -> {each.answer}")
    if given.answered:
        for each in tried:
            if each.code == "answered":
                print(f"answered: {each.text!r} -> {each.answer[:200]}")
    print(f"{len(tried)} attempts, {len(escaped)} escapes; {dict(Counter(each.code for each in tried).most_common())}")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
