"""A catalog that is backed up to a bucket while rows come in, and restored beside a copy of the files: real nodes, real
Spark, a real server of S3's."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.node_process import NodeProcess
from tools.s3server import KEY, SECRET, S3Server

pytestmark = pytest.mark.acceptance

CREATES = (
    "CREATE DATABASE sales",
    "CREATE TABLE sales.t (n BIGINT, s STRING) ENGINE = MergeTree ORDER BY n",
    "CREATE TABLE sales.k (n BIGINT) ENGINE = Kafka SETTINGS kafka_broker_list = 'nobody:9092', "
    "kafka_topic_list = 'x', kafka_group_name = 'g', kafka_format = 'JSONEachRow', kafka_sasl_password = 'hunter2'",
    "SYSTEM STOP MERGES sales.t BECAUSE 'it is kept'",
)


@dataclass(frozen=True)
class Taken:
    """A backup that was taken while rows were inserted one by one."""

    #: Its address, without options.
    file: str
    records: int
    #: The rows that were there before it was asked for, and those that may have been there when it was answered.
    before: int
    after: int


def taken(node: NodeProcess) -> Taken:
    inserted = 0
    is_over = threading.Event()

    def insert() -> None:
        nonlocal inserted
        while not is_over.is_set():
            node.connection.sql(f"INSERT INTO sales.t VALUES ({inserted}, 'it''s n{inserted}')")
            inserted += 1

    def wait_for(rows: int) -> None:
        while writer.is_alive() and inserted < rows:
            writer.join(0.05)

    writer = threading.Thread(target=insert)
    writer.start()
    try:
        wait_for(20)
        before = inserted
        [(file, size, records, _)] = node.connection.sql("BACKUP CATALOG TO 'nightly/one'").rows
        after = inserted + 1
        wait_for(after + 20)
    finally:
        is_over.set()
        writer.join(60)
    assert inserted > after
    assert size > 0
    return Taken(file, records, before, after)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server with a bucket, whose keys all processes of the test know."""
    monkeypatch.setenv("TILTH_TEST_S3_KEY", KEY)
    monkeypatch.setenv("TILTH_TEST_S3_SECRET", SECRET)
    server = S3Server(tmp_path / "s3")
    server.start()
    server.create_bucket("backups")
    yield server
    server.stop()


def restored(file: Path | str, data: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tilth.client.cli", "catalog", "restore", str(file), "--data", str(data)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def refused(file: Path | str, data: Path) -> str:
    done = restored(file, data)
    assert done.returncode == 1
    return done.stderr


def test_a_node_comes_back_as_it_was_at_the_backup(tmp_path: Path, server: S3Server) -> None:
    options = f"?endpoint={server.endpoint}&key=env:TILTH_TEST_S3_KEY&secret=env:TILTH_TEST_S3_SECRET"
    folder = {"catalog.backup-folder": f"s3://backups/of/first{options}"}
    first, second = NodeProcess(tmp_path / "first", settings=folder), NodeProcess(tmp_path / "second")
    first.start()
    try:
        first.wait_ready()
        for statement in CREATES:
            first.connection.sql(statement)
        backup = taken(first)
        assert backup.file == "s3://backups/of/first/nightly/one"
        shutil.copytree(first.data / "tables", second.data / "tables")
        # Not over a catalog that is there, least of all one that is in use.
        assert "CATALOG_EXISTS" in refused(f"{backup.file}{options}", first.data)
        assert SECRET not in (tmp_path / "first" / "node.log").read_text()
    finally:
        first.stop()
    assert "the backup cannot be read" in refused(f"{backup.file}-not{options}", tmp_path / "third")
    assert "the backup cannot be read" in refused(tmp_path / "nothing", tmp_path / "third")
    assert not (tmp_path / "third").exists()
    whole = (server.folder / "buckets/backups/of/first/nightly/one").read_bytes()
    broken = tmp_path / "broken"
    broken.write_bytes(whole[:-20])
    assert "BAD_BACKUP" in refused(broken, second.data)
    assert sorted(each.name for each in second.data.iterdir()) == ["tables"]
    done = restored(f"{backup.file}{options}", second.data)
    assert done.returncode == 0, done.stderr
    assert f"{backup.records} records" in done.stdout
    second.start()
    try:
        second.wait_ready()
        check(second, backup)
    finally:
        second.stop()


def check(node: NodeProcess, backup: Taken) -> None:
    """All rows of one moment, once; switches and secrets as they were; and it goes on from there."""
    numbers = [row[0] for row in node.connection.sql("SELECT n FROM sales.t ORDER BY n").rows]
    assert numbers == list(range(len(numbers)))
    assert backup.before <= len(numbers) <= backup.after
    assert node.value("SELECT count(*) FROM sales.t WHERE s = concat('it''s n', n)") == len(numbers)
    [(state,)] = node.connection.sql(
        "SELECT state FROM system.bg_threads WHERE database = 'sales' AND table = 't' AND service = 'merge'"
    ).rows
    assert state == "stopped"
    assert "hunter2" not in str(node.connection.sql("SHOW CREATE TABLE sales.k").rows)
    node.connection.sql("SYSTEM VERIFY sales.t")
    node.connection.sql("INSERT INTO sales.t VALUES (-1, 'new')")
    assert node.value("SELECT count(*) FROM sales.t") == len(numbers) + 1
