"""A served node as its users meet it: a real process, real HTTP, real Spark; wrong things typed, the plug pulled.

The node is that of a wheel, installed beside its libraries and started in an empty folder. It serves all tests of this
file; each test has a database of its own.
"""

from __future__ import annotations

import io
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

import tilth
from tests.acceptance.installed import Installed
from tests.acceptance.terminal import shell
from tilth.base.errors import ErrorKind
from tilth.client import ServerError
from tilth.client.exit_codes import EXIT_CODES
from tools.node_process import NodeProcess

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).resolve().parents[2]
#: Until the shell knows names, and until a statement that it cancelled is gone.
SHELL_SECONDS_MAX = 30
CONFIG = """
dropped_table_keep_seconds = "2 h"

[warehouse]
write-slots = 3
spark-conf = ["spark.my.password=hunter2"]
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The command of a new environment into which the wheels were installed; takes seconds."""
    return Installed(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, installed: Installed) -> Iterator[NodeProcess]:
    made = NodeProcess(
        tmp_path_factory.mktemp("node"),
        settings={"warehouse.write-slots": "5"},
        config=CONFIG,
        program=[*installed.begin, installed.tilth],
    )
    with made.serving() as node:
        yield node


def test_the_wheels_have_the_package_its_licences_and_no_more(installed: Installed) -> None:
    package = ROOT / "src"
    files = [each for each in package.rglob("*") if each.is_file() and "__pycache__" not in each.parts]
    ours = {each.relative_to(package).as_posix() for each in files if each.is_relative_to(package / "tilth")}
    made = ("METADATA", "RECORD", "WHEEL", "top_level.txt")
    about = f"tilth-{installed.version}.dist-info"
    vendored = "tilth/console/static/vendor/LICENSES.txt"
    names = (*made, "entry_points.txt", "licenses/LICENSE", f"licenses/src/{vendored}")
    assert installed.files("tilth") == ours | {f"{about}/{name}" for name in names}
    about = f"tilth_server-{installed.version}.dist-info"
    assert installed.files("tilth_server") == {f"{about}/{name}" for name in (*made, "licenses/LICENSE")}
    for ending in ("/py.typed", ".java", ".toml", "/static/index.html", vendored):
        assert any(name.endswith(ending) for name in ours), ending


def test_an_installed_command_serves_in_an_empty_folder(installed: Installed, node: NodeProcess) -> None:
    assert installed.run(installed.tilth, "--version") == f"tilth {installed.version}\n"
    [place] = installed.run(str(installed.python), "-c", "import tilth; print(*tilth.__path__)").splitlines()
    assert Path(place).is_relative_to(installed.python.parents[1])
    health = httpx.get(f"{node.url}/v1/health").json()
    assert (health["status"], health["version"]) == ("ok", installed.version)
    statements = """
        CREATE DATABASE wheel; CREATE TABLE wheel.t (a BIGINT) ENGINE = MergeTree ORDER BY a;
        INSERT INTO wheel.t VALUES (1), (41); SELECT sum(a) AS total FROM wheel.t"""
    answer = installed.run(installed.tilth, "sql", "--url", node.url, "--format", "csv", "-c", statements)
    assert answer.split()[-2:] == ['"total"', "42"]
    vendored = "vendor/LICENSES.txt"
    of_console = httpx.get(f"{node.url}/console/{vendored}").text
    assert of_console == (ROOT / "src" / "tilth" / "console" / "static" / vendored).read_text()
    assert [*installed.empty.iterdir()] == []


def test_settings_say_where_they_come_from(node: NodeProcess) -> None:
    found = node.connection.sql(
        "SELECT name, value, source FROM system.settings "
        "WHERE scope = 'node' AND (is_set OR name = 'catalog.cache-bytes') AND name <> 'warehouse.class-data' "
        "ORDER BY name"
    )
    assert found.rows == [
        ("catalog.cache-bytes", "67108864", "default"),
        ("dropped_table_keep_seconds", "2 h", "file"),
        ("warehouse.spark-conf", "spark.my.password=[HIDDEN]", "file"),
        ("warehouse.write-slots", "5", "flag"),
    ]
    assert "hunter2" not in (node.data.parent / "node.log").read_text()


def test_rows_inserted_in_every_way_are_read_back(node: NodeProcess) -> None:
    sql = node.connection.sql
    sql("CREATE DATABASE ways")
    sql("CREATE TABLE ways.t (k BIGINT, s STRING) ENGINE = MergeTree PARTITION BY bucket(3, k) ORDER BY k")
    sql("INSERT INTO ways.t VALUES (1, 'one'), (2, NULL)")
    sql('INSERT INTO ways.t FORMAT JSONEachRow {"k": 3, "s": "three"}\n{"k": 4}')
    sql("INSERT INTO ways.t SELECT k + 10, s FROM ways.t")
    node.connection.insert("ways.t", pa.table({"k": [100], "s": ["hundred"]}))
    expected = [(1, "one"), (2, None), (3, "three"), (4, None), (11, "one"), (12, None), (13, "three"), (14, None)]
    assert sql("SELECT k, s FROM ways.t ORDER BY k").rows == [*expected, (100, "hundred")]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("SELEC 1", "SYNTAX_ERROR"),
        ("SELECT * FROM nowhere.t", "DATABASE_NOT_FOUND"),
        ("SELECT * FROM wrong.nothing", "TABLE_NOT_FOUND"),
        ("SELECT colour FROM wrong.t", "UNKNOWN_COLUMN"),
        ("CREATE TABLE wrong.t2 (a BIGINT) ENGINE = MergeTree ORDER BY b", "UNKNOWN_COLUMN"),
        ("CREATE TABLE wrong.t2 (a IPv4) ENGINE = MergeTree ORDER BY a", "UNSUPPORTED_SYNTAX"),
        (
            "CREATE TABLE wrong.t2 (a BIGINT) ENGINE = MergeTree ORDER BY a SETTINGS old_part_lifetime = 1",
            "UNKNOWN_SETTING",
        ),
        ("ALTER TABLE wrong.t MODIFY SETTING old_parts_lifetime = 'soon'", "BAD_SETTING"),
        ("CREATE TABLE wrong.t (a BIGINT) ENGINE = MergeTree ORDER BY a", "TABLE_EXISTS"),
        ("DROP DATABASE wrong", "DATABASE_NOT_EMPTY"),
    ],
)
def test_a_wrong_statement_is_refused_by_a_stable_code_and_changes_nothing(
    node: NodeProcess, statement: str, code: str
) -> None:
    sql = node.connection.sql
    sql("CREATE DATABASE IF NOT EXISTS wrong")
    sql("CREATE TABLE IF NOT EXISTS wrong.t (a BIGINT) ENGINE = MergeTree ORDER BY a")
    before = sql("SHOW TABLES FROM wrong").rows
    with pytest.raises(ServerError) as refused:
        sql(statement)
    assert refused.value.code == code, refused.value
    assert refused.value.id
    assert sql("SHOW TABLES FROM wrong").rows == before


def test_switches_and_tables_survive_a_sigkill(node: NodeProcess) -> None:
    sql = node.connection.sql
    sql("CREATE DATABASE kept")
    sql("CREATE TABLE kept.t (a BIGINT) ENGINE = MergeTree ORDER BY a")
    sql("INSERT INTO kept.t VALUES (1), (2)")
    sql("SYSTEM STOP MERGES kept.t BECAUSE 'a test'")
    node.kill()
    node.start()
    node.wait_ready()
    assert sql("SELECT sum(a) FROM kept.t").rows == [(3,)]
    switch = "SELECT switch, because FROM system.bg_threads WHERE database = 'kept' AND service = 'merge'"
    assert sql(switch).rows == [("stopped", "a test")]
    sql("SYSTEM START MERGES kept.t")
    assert sql(switch).rows[0][0] == "running"


def test_a_second_node_on_the_same_folder_is_refused_by_name(node: NodeProcess) -> None:
    command = [sys.executable, "-m", "tilth.client.cli", "serve", "--data", str(node.data), "--listen", "127.0.0.1:0"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert second.returncode == 1
    assert "STORE_LOCKED" in second.stderr
    assert "catalog" in second.stderr


def test_the_command_line_prints_rows_and_fails_with_the_code(node: NodeProcess) -> None:
    command = [sys.executable, "-m", "tilth.client.cli", "sql", "--url", node.url, "--format", "csv", "-c"]
    good = subprocess.run([*command, "SELECT 1 AS one"], capture_output=True, text=True, timeout=180, check=False)
    assert (good.returncode, good.stdout.split()) == (0, ['"one"', "1"])
    bad = subprocess.run([*command, "SELECT"], capture_output=True, text=True, timeout=180, check=False)
    assert bad.returncode == EXIT_CODES[ErrorKind.INVALID]
    assert "SYNTAX_ERROR" in bad.stderr or "BAD_QUERY" in bad.stderr


def test_the_shell_completes_and_shows_how_much_is_done(node: NodeProcess, tmp_path: Path) -> None:
    """It costs a second, and one more for the query that Ctrl-C ends."""
    sql = node.connection.sql
    sql("CREATE DATABASE shelled")
    sql("CREATE TABLE shelled.trips (fare BIGINT, note STRING) ENGINE = MergeTree ORDER BY fare")
    sql("INSERT INTO shelled.trips VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    endless = (
        "SELECT count(*) FROM trips CROSS JOIN range(1000000) b CROSS JOIN range(1000000) c WHERE fare + b.id < c.id"
    )
    with shell(node.url, tmp_path, "-d", "shelled") as terminal:
        terminal.expect("shelled>")
        terminal.type("SELECT note FROM trip")
        # Names are read in the background; a key later they are there.
        deadline = time.monotonic() + SHELL_SECONDS_MAX
        while not terminal.shows("MergeTree"):
            assert time.monotonic() < deadline
            terminal.type("\x7fp")
        terminal.type("\t\r;\r")
        terminal.expect("3 rows, ")
        terminal.expect("shelled>")
        terminal.type(f"{endless};\r")
        terminal.expect(" of 3 rows")
        terminal.type("\x03")
        terminal.expect("cancelled: the server ends the statement")
        terminal.expect("shelled>")
        terminal.type("SELECT * FROM system.tables WHERE database = 'shelled';\r")
        terminal.expect("── row 1 ──")
        terminal.expect("1 row, ")
        terminal.expect("shelled>")
        terminal.type("\\q\r")
        assert terminal.end() == 0
    deadline = time.monotonic() + SHELL_SECONDS_MAX
    while node.value("SELECT count(*) FROM system.processes WHERE queue = 'query'"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(tilth.base.errors.TilthError, match=r"http://127\.0\.0\.1:9"):
        tilth.connect("http://127.0.0.1:9").sql("SELECT 1")


@pytest.mark.parametrize("example", ["quickstart.py"])
def test_examples_run(node: NodeProcess, example: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / example), node.url]
    subprocess.run(command, check=True, timeout=120, capture_output=True)


def test_a_whole_node_runs_inside_a_program(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "notebook.py"), str(tmp_path / "data")]
    done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
    assert "998001" in done.stdout


#: Statements that somebody may send, none of which is the server's fault.
HOSTILE_STATEMENTS = [
    f"SELECT {'(' * 5000}1{')' * 5000}",
    f"SELECT {'NOT ' * 5000}true",
    f"SELECT {'1+' * 5000}1",
    f"SELECT name FROM system.tables WHERE {'(' * 5000}true{')' * 5000}",
    f"SELECT name FROM system.tables WHERE name = '' {'OR true ' * 3000}",
    f"DELETE FROM hostile.t WHERE {'(' * 5000}true{')' * 5000}",
    f"CREATE TABLE hostile.u (a Int32 DEFAULT {'(' * 5000}1{')' * 5000}) ENGINE = MergeTree ORDER BY a",
    f"INSERT INTO hostile.t (l) VALUES ({'[' * 5000}{']' * 5000})",
    f"INSERT INTO hostile.t (a) VALUES ({'9' * 400})",
    "INSERT INTO hostile.t (f) VALUES (1e99999999)",
    "INSERT INTO hostile.t (m) VALUES (1e-99999999)",
    "INSERT INTO hostile.t (at) VALUES ('9999-12-31 23:59:59-14:00'), ('+294247-01-10T04:00:54.775807-18:00')",
    "SELECT array(), map(), struct(NULL), array(NULL), NULL",
    "SELECT explode(array())",
    "SELECT CAST(X'ff' AS STRING), map(CAST(X'ff' AS STRING), X'ff')",
    "SELECT DATE '+10000-01-01', TIMESTAMP '-0044-03-15 00:00:00Z', CAST('NaN' AS DOUBLE)",
    "SELECT transform(array(1), x -> x) FROM system.mutations",
    "SELECT make_interval(1, 2, 3), INTERVAL 1 MONTH",
    "SELECT parse_json('{}'), TIME '10:00:00'",
    "SELECT 'a' LIKE 'a\\\\'",
    "SELECT * FROM hostile.t SETTINGS `spark.sql.shuffle.partitions` = 'x'",
]
HOSTILE_ROWS = [
    (b'{"s": "\\ud800"}', "application/x-ndjson"),
    (b'{"\\udfff": 1}', "application/x-ndjson"),
    (b'{"x": {"\\ud800": 1}}', "application/x-ndjson"),
    (b'{"l": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "application/x-ndjson"),
    (b'{"a": ' + b"1" * 5_000 + b"}", "application/x-ndjson"),
    (b'{"f": 1e400, "m": 1e99999999}', "application/x-ndjson"),
    (b'{"bin": "%%%"}', "application/x-ndjson"),
    (b'{"at": 1e30}', "application/x-ndjson"),
    (b"\xff\xfe", "application/x-ndjson"),
    (b'"', "text/csv"),
    (b'1,"', "text/csv; header=present"),
    (b"\x00", "text/csv"),
    (b"a,a\n1,2\n", "text/csv; header=present"),
    (b",".join([b"[" * 5_000] * 10), "text/csv"),
]


def test_no_statement_is_a_defect_of_the_server(node: NodeProcess) -> None:
    hostile_tables(node)
    with httpx.Client(base_url=node.url, timeout=180) as client:
        for statement in HOSTILE_STATEMENTS:
            answer = client.post("/v1/sql", content=statement.encode())
            assert answer.status_code < 500, (statement[:80], answer.text)
        answer = client.post("/v1/sql", content=HOSTILE_STATEMENTS[0].encode())
        assert answer.json()["error"]["code"] == "TOO_COMPLEX"
        assert "nested too deep" in answer.json()["error"]["message"]


def hostile_tables(node: NodeProcess) -> None:
    node.connection.sql("CREATE DATABASE IF NOT EXISTS hostile")
    for table, key in (("t", "ORDER BY a"), ("k", "UNIQUE KEY a")):
        node.connection.sql(
            f"CREATE TABLE IF NOT EXISTS hostile.{table} (a Int32, s String, f Float64, m Decimal(10, 2), "
            f"at DateTime64(3), l Array(Int8), x Map(String, Int64), bin Binary, e Enum('a'), "
            f"id UUID) ENGINE = MergeTree {key}"
        )


def test_no_rows_are_a_defect_of_the_server(node: NodeProcess) -> None:
    """Those above, and rows that chance has bent; the seed is told."""
    hostile_tables(node)
    chance = random.Random(seed := 20_261_122)  # for bytes of a test
    sink = io.BytesIO()
    rows = pa.table({"a": [1], "_op": [[1]], "at": pa.array([1], pa.timestamp("ns"))})
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    arrow = (sink.getvalue(), "application/vnd.apache.arrow.stream")
    good = (b'{"a": 1, "s": "x", "l": [1], "x": {"k": 1}, "bin": "AA==", "e": "a"}', "application/x-ndjson")
    table = (b'1,"x",1.5,2.25,2026-01-01 00:00:00,[1],"{""k"": 1}",AA==,a,\\N\n', "text/csv")
    bodies = [*HOSTILE_ROWS, arrow, good, table]
    for _ in range(150):
        body, kind = chance.choice([arrow, good, table])
        bent = bytearray(body)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(bent))
            bent[place : place + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
        bodies.append((bytes(bent), kind))
    with httpx.Client(base_url=node.url, timeout=180) as client:
        for body, kind in bodies:
            for name in ("t", "k"):
                answer = client.post(f"/v1/insert/hostile/{name}", content=body, headers={"Content-Type": kind})
                assert answer.status_code < 500, (seed, body[:200], answer.text)
        assert client.post("/v1/sql", content=b"SELECT count(*) FROM hostile.t").status_code == 200
        assert client.post("/v1/sql", content=b"SELECT * FROM system.query_log").status_code == 200
