"""A node whose catalog is lost while it works: it is made again of what lies beside the tables' files. Real nodes, real
Spark, a real broker."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tilth.client.cli.catalog import NOT_SURE
from tools.broker import Broker
from tools.flights import produce
from tools.node_process import NodeProcess
from tools.postgres import Postgres

pytestmark = pytest.mark.acceptance

SECONDS_MAX = 180.0
TOPIC = "lost-catalog"
#: Time limit for the end of a node that refuses to start, in seconds.
START_SECONDS_MAX = 60.0
MESSAGES = 6_000
CREATES = (
    "CREATE TABLE plain (n BIGINT, s STRING, d DATE) ENGINE = MergeTree PARTITION BY d ORDER BY n",
    "CREATE TABLE kept (k BIGINT, v STRING) ENGINE = MergeTree UNIQUE KEY k",
    "CREATE TABLE old (n BIGINT, at TIMESTAMP) ENGINE = MergeTree PARTITION BY toDate(at) ORDER BY n "
    "TTL at + INTERVAL 1 DAY",
    "CREATE TABLE target (n BIGINT) ENGINE = MergeTree ORDER BY n",
)
#: Merges, changes of rows, expired rows, other columns, a drop.
WORK = (
    *(
        f"INSERT INTO plain SELECT id, concat('it''s ', id), DATE'2026-01-0{1 + n % 3}' FROM range({n}00, {n}50)"
        for n in range(5)
    ),
    "OPTIMIZE TABLE plain FINAL",
    "INSERT INTO plain VALUES (-1, NULL, '2026-01-01'), (-2, 'drop me', '2026-01-09')",
    "DELETE FROM plain WHERE n % 7 = 0",
    "UPDATE plain SET s = 'changed' WHERE n % 5 = 0",
    "ALTER TABLE plain DROP PARTITION '2026-01-09'",
    "ALTER TABLE plain ADD COLUMN extra STRING DEFAULT 'new'",
    "INSERT INTO plain VALUES (7, 'after', '2026-01-02', 'e')",
    *(f"INSERT INTO kept SELECT id % 40, 'of {n}' FROM range({n}, {n} + 30)" for n in range(4)),
    "INSERT INTO old VALUES (1, TIMESTAMP'2001-01-01 00:00:00'), (2, TIMESTAMP'2999-01-01 00:00:00')",
    "OPTIMIZE TABLE old FINAL",
)
QUESTIONS = tuple(f"SELECT * FROM {table} ORDER BY ALL" for table in ("plain", "kept", "old"))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path / "node")
    yield node
    node.stop()


def rebuilt(node: NodeProcess, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tilth.client.cli", "catalog", "rebuild", "--root", str(node.data / "tables")]
    command += ["--data", str(node.data), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def answers(node: NodeProcess) -> list[list[tuple[object, ...]]]:
    return [node.connection.sql(text).rows for text in QUESTIONS]


def wait_for_rows(node: NodeProcess, rows: int) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while node.value("SELECT count(*) FROM target") < rows:
        assert time.monotonic() < deadline, node.log_tail()
        time.sleep(0.1)


def start_work(node: NodeProcess, broker: Broker) -> None:
    node.start()
    node.wait_ready()
    for text in CREATES:
        node.connection.sql(text)
    node.connection.sql(
        f"CREATE TABLE topic (n BIGINT) ENGINE = Kafka SETTINGS kafka_broker_list = '{broker.bootstrap}', "
        f"kafka_topic_list = '{TOPIC}', kafka_group_name = 'g', kafka_format = 'JSONEachRow', "
        "kafka_max_block_size = 200"
    )
    for text in WORK:
        node.connection.sql(text)
    node.connection.sql("CREATE MATERIALIZED VIEW view TO target AS SELECT n FROM topic")


def test_a_lost_catalog_is_made_again_and_everything_goes_on(broker: Broker, node: NodeProcess) -> None:
    broker.create_topic(TOPIC, 2)
    messages = [(number % 2, json.dumps({"n": number}).encode()) for number in range(MESSAGES)]
    produce(broker.bootstrap, TOPIC, messages[: MESSAGES // 2])
    start_work(node, broker)
    before = answers(node)
    assert [len(rows) for rows in before] == [sum(1 for _ in before[0]), 33, 1]
    wait_for_rows(node, 500)
    produce(broker.bootstrap, TOPIC, messages[MESSAGES // 2 :])
    assert "CATALOG_EXISTS" in rebuilt(node).stderr
    # In the middle of rounds: some of them are committed and are not in the journal yet.
    node.kill()
    shutil.rmtree(node.data / "catalog")
    journal = sorted((node.data / "tables" / "catalog-journal").iterdir())
    # If it started, it would begin an empty catalog, whose journal a rebuild would take for the newest.
    node.start()
    assert node.wait_end(START_SECONDS_MAX)
    assert "CATALOG_LOST" in node.log_tail()
    assert "tilth catalog rebuild" in node.log_tail()
    assert sorted((node.data / "tables" / "catalog-journal").iterdir()) == journal
    trial = rebuilt(node, "--dry-run", "--json")
    assert not any((node.data / "catalog").iterdir())
    report = json.loads(trial.stdout)
    assert {each["name"] for each in report["tables"]} >= {"default.plain", "default.kept", "default.target"}
    found = {each["kind"] for each in report["findings"]}
    assert found <= {"unknown", "leftover"}
    done = rebuilt(node)
    assert trial.returncode == done.returncode == (NOT_SURE if "unknown" in found else 0), done.stderr
    assert "rebuilt      default.plain" in done.stdout
    node.start()
    node.wait_ready()
    assert answers(node) == before
    wait_for_rows(node, MESSAGES)
    assert node.connection.sql("SELECT count(*), count(DISTINCT n), min(n), max(n) FROM target").rows == [
        (MESSAGES, MESSAGES, 0, MESSAGES - 1)
    ]
    check_work_goes_on(node)


@pytest.mark.long
def test_without_a_journal_the_files_alone_make_the_tables(tmp_path: Path, node: NodeProcess) -> None:
    node.start()
    node.wait_ready()
    # Drops and updates are not in files.
    for text in (*CREATES[:2], *(each for each in WORK[:-2] if "DROP PART" not in each and not each.startswith("UP"))):
        node.connection.sql(text)
    check_an_idle_node_writes_nothing(node)
    before = [node.connection.sql(text).rows for text in QUESTIONS[:2]]
    node.stop()
    assert any((node.data / "tables" / "catalog-transactions").iterdir())
    shutil.rmtree(node.data / "catalog")
    shutil.rmtree(node.data / "tables" / "catalog-journal")
    left = json.loads(rebuilt(node, "--dry-run", "--json").stdout)
    # All was written within the last minutes: what was merged was committed for sure, not all rows and deletes were.
    unsure = [each["rows"] for each in left["findings"] if each["kind"] == "unknown"]
    assert any(unsure)
    assert None in unsure
    done = rebuilt(node, "--uncommitted", "keep")
    assert (done.returncode, done.stdout.count("not_in_files")) == (NOT_SURE, 5), done.stderr
    assert "without a journal" in done.stdout
    node.start()
    node.wait_ready()
    assert [node.connection.sql(text).rows for text in QUESTIONS[:2]] == before
    node.connection.sql("INSERT INTO plain VALUES (1000, 'more', '2026-01-01', NULL)")
    node.connection.sql("INSERT INTO kept VALUES (1, 'last')")
    for table, rows in (("plain", len(before[0]) + 1), ("kept", len(before[1]))):
        node.connection.sql(f"OPTIMIZE TABLE {table} FINAL")
        assert node.value(f"SELECT count(*) FROM {table}") == rows
        assert all(row[2] for row in node.connection.sql(f"SYSTEM VERIFY {table}").rows)


@pytest.mark.long
def test_a_lost_database_is_made_again_of_the_files(postgres: Postgres, tmp_path: Path) -> None:
    folder, made = tmp_path / "node", tmp_path / "made"
    first, last = postgres.address(schema="lost"), postgres.address(schema="again")
    node, later = (NodeProcess(folder, settings={"catalog.url": each}) for each in (first, last))
    try:
        node.start()
        node.wait_ready()
        # New values of updates cannot be rebuilt from files.
        for text in (*CREATES[:2], *WORK[:8], *WORK[-6:-2]):
            node.connection.sql(text)
        before = [node.connection.sql(text).rows for text in QUESTIONS[:2]]
        node.stop()
        with closing(postgres.connect()) as connection:
            connection.execute("DROP SCHEMA lost CASCADE")
        node.start()
        assert node.wait_end(START_SECONDS_MAX)
        assert "CATALOG_LOST" in node.log_tail()
        command = [sys.executable, "-m", "tilth.client.cli", "catalog"]
        rebuild = ["rebuild", "--root", str(node.data / "tables"), "--data", str(made), "--uncommitted", "keep"]
        for words in (rebuild, ["copy", str(made), last]):
            done = subprocess.run([*command, *words], capture_output=True, text=True, check=False, timeout=120)
            assert done.returncode in (0, NOT_SURE), done.stderr
        later.start()
        later.wait_ready()
        assert [later.connection.sql(text).rows for text in QUESTIONS[:2]] == before
        later.connection.sql("INSERT INTO kept VALUES (1, 'last')")
        assert all(row[2] for row in later.connection.sql("SYSTEM VERIFY kept").rows)
    finally:
        node.stop()
        later.stop()


def check_an_idle_node_writes_nothing(node: NodeProcess) -> None:
    """What work was under way is over soon; then the journal stays as it is."""
    folder = node.data / "tables" / "catalog-journal"
    deadline = time.monotonic() + SECONDS_MAX
    names: list[set[str]] = []
    # The same for five seconds, in which it would have been written five times.
    while len(names) < 11 or any(each != names[-1] for each in names[-11:]):
        assert time.monotonic() < deadline, sorted(names[-1])
        names.append({path.name for path in folder.iterdir()})
        time.sleep(0.5)


def check_work_goes_on(node: NodeProcess) -> None:
    """Rows come in, are replaced and merged, and each table verifies."""
    rows = node.value("SELECT count(*) FROM plain")
    node.connection.sql("INSERT INTO plain VALUES (1000, 'more', '2026-01-01', NULL)")
    node.connection.sql("INSERT INTO kept VALUES (1, 'last')")
    node.connection.sql("ALTER TABLE plain UNDROP PARTITION '2026-01-09'")
    node.connection.sql("OPTIMIZE TABLE plain FINAL")
    node.connection.sql("OPTIMIZE TABLE kept FINAL")
    assert node.value("SELECT count(*) FROM plain") == rows + 2
    assert node.connection.sql("SELECT v FROM kept WHERE k = 1").rows == [("last",)]
    for table in ("plain", "kept", "old", "target", "topic"):
        node.connection.sql(f"SYSTEM VERIFY {table}")
