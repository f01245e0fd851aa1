"""A node on a real Spark standalone cluster, whose executors know nothing of this project but what Spark brings them:
ingestion, queries and changes while executors, workers and the master are killed, and processes without the secret.
Executors share the tables' folder with the node, and see nothing of the node's own."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from tests.long import cases
from tests.waiting import wait_until
from tilth.base.errors import TilthError
from tilth.introspection.registry import system_table_names
from tools.broker import Broker
from tools.node_process import NodeProcess
from tools.spark_cluster import SparkCluster

pytestmark = pytest.mark.integration
SECONDS_MAX = 120.0
#: Environment variable by which a worker of Spark gives the secret to its executors.
SECRET_VARIABLE = "_SPARK_AUTH_SECRET"
REGISTERED = "Successfully registered with driver"
ROUNDS = "SELECT count(*) FROM system.ingest_ledger WHERE table = 'k'"
CONSUMED = "SELECT sum(messages) FROM system.ingest_ledger WHERE table = 'k'"
HOSTILE = "it''s \\\\ \"q\" \U0001f680 naïve\u2028"


@dataclass
class Source:
    """Messages with numbers, into a topic of two partitions, until it is told to end."""

    bootstrap: str
    topic: str
    sent: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 20})
        while not self.over.wait(0.2):
            for _ in range(200):
                value = b'{"id": %d, "v": "value %d"}' % (self.sent, self.sent)
                producer.produce(self.topic, value, partition=self.sent % 2)
                self.sent += 1
            producer.poll(0)
        producer.flush(30)


@pytest.fixture(scope="module")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the node, which executors do not see."""
    return tmp_path_factory.mktemp("node")


@pytest.fixture(scope="module")
def cluster(java_home: Path, node_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=2, hidden=[node_folder])
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def node(cluster: SparkCluster, node_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = cluster.settings | {
        "storage.root": str(tmp_path_factory.mktemp("tables")),
        "warehouse.driver-memory": "1g",
        "warehouse.spark-conf": "spark.cores.max=2 spark.executor.cores=1 spark.executor.memory=600m",
    }
    with NodeProcess(node_folder, settings=settings).serving() as node:
        yield node


@pytest.fixture(scope="module")
def tables(node: NodeProcess, broker: Broker) -> str:
    """The tables; returns the topic's name."""
    topic = f"cluster-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, 2)
    for statement in (
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id BIGINT, v STRING) ENGINE = MergeTree ORDER BY id",
        f"CREATE TABLE d.k (id BIGINT, v STRING) ENGINE = Kafka SETTINGS kafka_broker_list = '{broker.bootstrap}', "
        f"kafka_topic_list = '{topic}', kafka_group_name = '{topic}', kafka_format = 'JSONEachRow', "
        "kafka_num_consumers = 1, stream_flush_interval_ms = 300",
        # One that Spark computes: the facts of the tasks that read come beside their rows.
        "CREATE MATERIALIZED VIEW d.m TO d.t AS SELECT id, concat(v, '') AS v FROM d.k WHERE id >= 0",
        "CREATE TABLE d.u (id BIGINT, v STRING) ENGINE = MergeTree ORDER BY id UNIQUE KEY id",
    ):
        node.connection.sql(statement)
    return topic


@contextmanager
def streaming(broker: Broker, topic: str, sent: int) -> Iterator[Source]:
    """`sent`: messages that are in the topic already."""
    source = Source(broker.bootstrap, topic, sent)
    thread = threading.Thread(target=source.run)
    thread.start()
    try:
        yield source
    finally:
        source.over.set()
        thread.join()


@pytest.fixture(scope="module")
def stranger(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with another secret; Spark gives it up after a minute, in which other tests run."""
    folder = tmp_path_factory.mktemp("stranger")
    (folder / "secret").write_text("no-secret-of-this-cluster")
    settings = cluster.settings | {"warehouse.cluster-secret": f"file:{folder / 'secret'}"}
    node = NodeProcess(folder, settings=settings | {"warehouse.driver-memory": "600m"})
    try:
        node.start()
        yield node
    finally:
        node.stop()


def test_queries_and_changes_run_on_executors(node: NodeProcess, tables: str) -> None:
    sql = node.connection.sql
    sql(f"INSERT INTO d.u SELECT id, '{HOSTILE}' FROM range(20000)")
    sql("INSERT INTO d.u SELECT id, 'new' FROM range(10000, 10100)")
    assert sql("SELECT count(*), count(DISTINCT v) FROM d.u WHERE id >= 0").rows == [(20000, 2)]
    sql("DELETE FROM d.u WHERE id < 10")
    sql("OPTIMIZE TABLE d.u FINAL")
    # A result of this size comes as files that executors write, beside those of the table.
    large = sql("SELECT u.id, repeat(u.v, 60) AS v FROM d.u u ORDER BY u.id").arrow()
    assert large.column("id").to_pylist() == list(range(10, 20000))
    wait_until(lambda: results_of(node) == [], "files of the result to go")
    numbers = sql("SELECT tasks, cores, tasks_reason FROM system.workers").rows
    assert numbers == [(2, 2, "2 cores of 2 executors")]
    assert sql("SELECT slots FROM system.warehouses WHERE name = 'write'").rows == [(4,)]
    plan = sql("EXPLAIN SELECT count(*) FROM d.u GROUP BY v").rows[0][0]
    assert plan.endswith("\n== Tasks ==\n2: 2 cores of 2 executors\n"), plan
    assert "hashpartitioning" in plan
    assert ", 2)" in plan
    assert all(row[2] for row in sql("SYSTEM VERIFY d.u").rows)


def tasks_of(node: NodeProcess) -> tuple[int, str]:
    [(tasks, reason)] = node.connection.sql("SELECT tasks, tasks_reason FROM system.workers").rows
    return tasks, reason


@pytest.mark.parametrize("dies", cases(["an executor", "everything"]))
def test_rounds_lose_and_double_nothing_while_executors_workers_and_the_master_die(
    cluster: SparkCluster, node: NodeProcess, tables: str, broker: Broker, dies: str
) -> None:
    def commits_go_on(what: str) -> None:
        rounds = node.value(ROUNDS)
        wait_until(lambda: node.value(ROUNDS) >= rounds + 2, f"rounds after {what}")

    with streaming(broker, tables, node.value(CONSUMED)) as source:
        commits_go_on("the start")
        cluster.kill_executor()
        commits_go_on("an executor was killed")
        if dies == "everything":
            stopped = cluster.signal_executor(signal.SIGSTOP)
            time.sleep(2)
            stopped.send_signal(signal.SIGCONT)
            commits_go_on("an executor was stopped and went on")
            cluster.kill_worker(0)
            commits_go_on("a worker of Spark was killed")
            cluster.start_worker(0)
            cluster.kill_master()
            commits_go_on("the master was killed")
            cluster.start_master()
            cluster.kill_worker(0)
            cluster.kill_worker(1)
            wait_until(lambda: tasks_of(node) == (1, "0 cores of 0 executors"), "no executors")
            cluster.start_worker(0)
            cluster.start_worker(1)
            wait_until(lambda: tasks_of(node) == (2, "2 cores of 2 executors"), "executors that are counted")
        wait_until(lambda: len(cluster.executors()) == 2, "two executors")
    wait_until(lambda: node.value(CONSUMED) >= source.sent, "the rest of the topic")
    assert node.connection.sql("SELECT count(*), count(DISTINCT id) FROM d.t WHERE id >= 0").rows == [
        (source.sent, source.sent)
    ]
    assert all(row[2] for row in node.connection.sql("SYSTEM VERIFY d.t").rows)
    wait_until(lambda: unnamed(node) == set(), f"files of failed attempts to go: {unnamed(node)}")


@pytest.mark.usefixtures("stranger")
@pytest.mark.long
def test_merges_and_changes_lose_and_double_nothing_while_executors_die(
    cluster: SparkCluster, node: NodeProcess, tables: str
) -> None:
    sql = node.connection.sql
    sql("CREATE TABLE d.big (id BIGINT, v STRING, w STRING) ENGINE = MergeTree ORDER BY v")
    sql("SYSTEM STOP MERGES d.big")
    for first in range(0, 1_200_000, 300_000):
        ids = f"range({first}, {first + 300_000})"
        sql(f"INSERT INTO d.big SELECT id, sha2(CAST(id AS STRING), 256) AS v, 'old' AS w FROM {ids}")

    def struck(statement: str, kind: str) -> None:
        """Run the statement, and kill the executor that works while a task of this kind runs."""
        begun = f"SELECT count(*) FROM system.tasks WHERE kind = '{kind}' AND table = 'd.big'"
        running = f"{begun} AND state = 'running'"
        before = node.value(begun)
        with ThreadPoolExecutor(1) as pool:
            said = pool.submit(sql, statement)
            wait_until(lambda: said.done() or node.value(running) > 0, f"{kind} to run")
            cluster.kill_executor()
            # It was in the middle.
            assert node.value(running) > 0 or node.value(begun) > before + 1
            said.result()

    struck("OPTIMIZE TABLE d.big FINAL", "merge")
    assert node.value("SELECT count(*) FROM system.parts WHERE table = 'big' AND active") == 1
    wait_until(lambda: len(cluster.executors()) == 2, "two executors")
    # Mutations are stopped with merges.
    sql("SYSTEM START MERGES d.big")
    struck("ALTER TABLE d.big UPDATE w = concat('new ', v) WHERE id % 3 = 0 SETTINGS mutations_sync = 1", "mutate")
    found = sql("SELECT count(*), count(DISTINCT id), count_if(w LIKE 'new %'), sum(id) FROM d.big").rows
    assert found == [(1_200_000, 1_200_000, 400_000, 1_200_000 * 1_199_999 // 2)]
    assert all(row[2] for row in sql("SYSTEM VERIFY d.big").rows)
    wait_until(lambda: unnamed(node) == set(), f"files of failed attempts to go: {unnamed(node)}")


def test_an_executor_without_the_secret_is_not_heard(
    cluster: SparkCluster, node: NodeProcess, tables: str, tmp_path: Path
) -> None:
    """Start the command of a real executor under other ids: the driver registers only the one with the secret."""
    wait_until(lambda: len(cluster.executors()) == 2, "two executors")
    real = cluster.executors()[0]
    command, environment = real.cmdline(), real.environ()
    assert environment.pop(SECRET_VARIABLE) == cluster.secret
    # With the worker's address the executor would end when that worker, which does not know it, is asked.
    worker = command.index("--worker-url")
    del command[worker : worker + 2]
    silent = [word for word in command if not word.startswith(("-Dspark.authenticate", "-Dspark.network"))]
    assert len(silent) < len(command)
    foreign = {
        "taken": (command, environment | {SECRET_VARIABLE: cluster.secret}),
        "wrong": (command, environment | {SECRET_VARIABLE: "another"}),
        "silent": (silent, environment),
    }
    started = {}
    try:
        for number, (name, (words, variables)) in enumerate(foreign.items()):
            words[words.index("--executor-id") + 1] = str(1000 + number)
            with (tmp_path / name).open("wb") as log:
                started[name] = subprocess.Popen(words, env=variables, stdout=log, stderr=log, cwd=tmp_path)
        wait_until(lambda: REGISTERED in (tmp_path / "taken").read_text(), "the executor with the secret to be taken")
        for name in ("wrong", "silent"):
            assert started[name].wait(SECONDS_MAX) != 0
            assert REGISTERED not in (tmp_path / name).read_text()
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    assert node.value("SELECT count(*) FROM range(0, 1000, 1, 8)") == 1000


def test_the_secret_shows_nowhere(cluster: SparkCluster, node: NodeProcess, tables: str) -> None:
    commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert any("org.apache.spark" in each for each in commands)
    assert not any(cluster.secret in each for each in commands)
    sql = node.connection.sql
    asked = [f"SELECT * FROM system.{name}" for name in system_table_names()]
    asked += ["EXPLAIN SELECT * FROM d.u", "SHOW SETTINGS", "SET", "SET spark.authenticate.secret", "SET -v"]
    asked += [f"SELECT '{text}'" for text in ("${spark.authenticate.secret}", "${env:_SPARK_AUTH_SECRET}")]
    asked += ["SELECT java_method('java.lang.System', 'getenv', '_SPARK_AUTH_SECRET')", "SELECT 1 / 0 FROM d.u"]
    for statement in asked:
        try:
            text = str(sql(statement).rows)
        except TilthError as error:
            text = f"{error} {error.facts}"
        assert cluster.secret not in text, statement
    own = {folder / "conf" / "spark-defaults.conf" for folder in (cluster.master_folder, cluster.workers_folder)}
    assert files_with(cluster.secret, cluster.folder) == {cluster.secret_file, *own}
    assert files_with(cluster.secret, node.data.parent) == set()


def files_with(text: str, folder: Path) -> set[Path]:
    found = set()
    for path in folder.rglob("*"):
        # Spark and the catalog remove files meanwhile.
        with suppress(FileNotFoundError):
            if path.is_file() and text.encode() in path.read_bytes():
                found.add(path)
    return found


def tables_folder(node: NodeProcess) -> Path:
    """Return the folder that executors share with the node."""
    return Path(node.connection.sql("SELECT root FROM system.storages WHERE name = 'default'").rows[0][0])


def results_of(node: NodeProcess) -> list[Path]:
    """Return what is there of large results."""
    return list(tables_folder(node).glob("results/*"))


def unnamed(node: NodeProcess) -> set[str]:
    """Return the data files that the catalog does not name."""
    files = {path.name for path in tables_folder(node).glob("*/data/*.parquet")}
    named = {
        row[0] for table in ("parts", "trash") for row in node.connection.sql(f"SELECT file FROM system.{table}").rows
    }
    return files - named


def test_a_master_that_is_away_is_named_at_the_start(java_home: Path, tmp_path: Path) -> None:
    node = NodeProcess(tmp_path, settings={"warehouse.master": "spark://127.0.0.1:9"})
    node.start()
    assert node.wait_end(SECONDS_MAX)
    assert node.exit_code == 1
    assert "no Spark master answers: master=spark://127.0.0.1:9" in node.log_tail()


@pytest.mark.long
def test_a_node_with_another_secret_is_not_heard(stranger: NodeProcess) -> None:
    assert stranger.wait_end(SECONDS_MAX)
    assert stranger.exit_code == 1
    assert "the master of the Spark cluster does not accept this session" in stranger.log_tail()
    assert "warehouse.cluster-secret" in stranger.log_tail()
    assert files_with("no-secret-of-this-cluster", stranger.data.parent) == {stranger.data.parent / "secret"}


@pytest.mark.long
def test_executors_with_another_python_are_refused(cluster: SparkCluster, java_home: Path, tmp_path: Path) -> None:
    settings = cluster.settings | {
        "warehouse.python": "/usr/bin/python3",
        "warehouse.spark-conf": "spark.cores.max=1 spark.executor.memory=600m",
    }
    node = NodeProcess(tmp_path, settings=settings)
    node.start()
    assert node.wait_end(SECONDS_MAX)
    assert "SPARK_START_FAILED an executor" in node.log_tail()
    assert "warehouse.python" in node.log_tail()
    with pytest.raises(TilthError):
        node.connection.sql("SELECT 1")
