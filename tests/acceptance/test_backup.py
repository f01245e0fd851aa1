"""A catalog that is backed up while rows come in, and restored beside a copy of the files: real nodes, real Spark."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tools.node_process import NodeProcess

pytestmark = pytest.mark.acceptance


def restored(file: Path, data: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tilth.client.cli", "catalog", "restore", str(file), "--data", str(data)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_node_comes_back_as_it_was_at_the_backup(tmp_path: Path) -> None:
    first, second = NodeProcess(tmp_path / "first"), NodeProcess(tmp_path / "second")
    inserted = 0
    is_over = threading.Event()

    def insert() -> None:
        nonlocal inserted
        while not is_over.is_set():
            first.connection.sql(f"INSERT INTO sales.t VALUES ({inserted}, 'it''s n{inserted}')")
            inserted += 1

    first.start()
    try:
        first.wait_ready()
        for statement in (
            "CREATE DATABASE sales",
            "CREATE TABLE sales.t (n BIGINT, s STRING) ENGINE = MergeTree ORDER BY n",
            "CREATE TABLE sales.k (n BIGINT) ENGINE = Kafka SETTINGS kafka_broker_list = 'nobody:9092', "
            "kafka_topic_list = 'x', kafka_group_name = 'g', kafka_format = 'JSONEachRow', "
            "kafka_sasl_password = 'hunter2'",
            "SYSTEM STOP MERGES sales.t BECAUSE 'it is kept'",
        ):
            first.connection.sql(statement)
        writer = threading.Thread(target=insert)
        writer.start()
        while inserted < 20:
            is_over.wait(0.05)
        before = inserted
        [(file, size, records, _)] = first.connection.sql("BACKUP CATALOG TO 'nightly/one'").rows
        after = inserted + 1
        while inserted < after + 20:
            is_over.wait(0.05)
        is_over.set()
        writer.join(60)
        shutil.copytree(first.data / "tables", second.data / "tables")
        assert Path(file) == first.data.resolve() / "backups" / "nightly" / "one"
        assert size == Path(file).stat().st_size
        # Not over a catalog that is there, least of all one that is in use.
        refused = restored(Path(file), first.data)
        assert (refused.returncode, "CATALOG_EXISTS" in refused.stderr) == (1, True)
    finally:
        is_over.set()
        first.stop()

    broken = tmp_path / "broken"
    broken.write_bytes(Path(file).read_bytes()[:-20])
    refused = restored(broken, second.data)
    assert (refused.returncode, "BAD_BACKUP" in refused.stderr) == (1, True)
    assert sorted(each.name for each in second.data.iterdir()) == ["tables"]

    done = restored(Path(file), second.data)
    assert done.returncode == 0, done.stderr
    assert f"{records} records" in done.stdout
    second.start()
    try:
        second.wait_ready()
        numbers = [row[0] for row in second.connection.sql("SELECT n FROM sales.t ORDER BY n").rows]
        assert numbers == list(range(len(numbers)))
        assert before <= len(numbers) <= after
        assert second.value("SELECT count(*) FROM sales.t WHERE s = concat('it''s n', n)") == len(numbers)
        [(state,)] = second.connection.sql(
            "SELECT state FROM system.bg_threads WHERE database = 'sales' AND table = 't' AND service = 'merge'"
        ).rows
        assert state == "stopped"
        assert "hunter2" not in str(second.connection.sql("SHOW CREATE TABLE sales.k").rows)
        second.connection.sql("SYSTEM VERIFY sales.t")
        # It goes on from there.
        second.connection.sql("INSERT INTO sales.t VALUES (-1, 'new')")
        assert second.value("SELECT count(*) FROM sales.t") == len(numbers) + 1
    finally:
        second.stop()
