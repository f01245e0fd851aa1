"""A catalog that is backed up while rows come in, and restored beside a copy of the files: real nodes, real Spark."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.node_process import NodeProcess

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

    file: Path
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
    assert size == Path(file).stat().st_size
    return Taken(Path(file), records, before, after)


def restored(file: Path, data: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tilth.client.cli", "catalog", "restore", str(file), "--data", str(data)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def refused(file: Path, data: Path) -> str:
    done = restored(file, data)
    assert done.returncode == 1
    return done.stderr


def test_a_node_comes_back_as_it_was_at_the_backup(tmp_path: Path) -> None:
    first, second = NodeProcess(tmp_path / "first"), NodeProcess(tmp_path / "second")
    first.start()
    try:
        first.wait_ready()
        for statement in CREATES:
            first.connection.sql(statement)
        backup = taken(first)
        assert backup.file == first.data.resolve() / "backups" / "nightly" / "one"
        shutil.copytree(first.data / "tables", second.data / "tables")
        # Not over a catalog that is there, least of all one that is in use.
        assert "CATALOG_EXISTS" in refused(backup.file, first.data)
    finally:
        first.stop()
    assert "the backup cannot be read" in refused(tmp_path / "nothing", tmp_path / "third")
    assert not (tmp_path / "third").exists()
    broken = tmp_path / "broken"
    broken.write_bytes(backup.file.read_bytes()[:-20])
    assert "BAD_BACKUP" in refused(broken, second.data)
    assert sorted(each.name for each in second.data.iterdir()) == ["tables"]
    done = restored(backup.file, second.data)
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
