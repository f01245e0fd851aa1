"""What a node leaves on the disk when it, or its JVM, is killed: nothing that the next start does not remove; and whose
its folders are.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from tools.node_process import NodeProcess

pytestmark = pytest.mark.acceptance
LARGE = "SELECT id, repeat('x', 100) AS s FROM range(4000000)"


def files_below(*folders: Path) -> int:
    """Files that are not the tables', the catalog's or a log's."""
    return sum(1 for folder in folders for each in folder.rglob("*") if not each.is_dir())


def kill_jvm(node: NodeProcess) -> None:
    """Returns when the node has started another one."""

    def jvms() -> list[psutil.Process]:
        children = psutil.Process(node.pid).children(recursive=True)
        return [child for child in children if child.name() == "java"]

    (killed,) = jvms()
    killed.send_signal(signal.SIGKILL)
    wait_until(lambda: any(jvm.pid != killed.pid for jvm in jvms()), "no other JVM")


def work(node: NodeProcess) -> None:
    """Makes Spark unpack its libraries, shuffle, and start Python workers."""
    sql = node.connection.sql
    sql("INSERT INTO t SELECT DISTINCT id % 100, CAST(id AS STRING) FROM range(1000)")
    assert sql("SELECT count(DISTINCT k) FROM t").rows == [(100,)]


def make_folders(node: NodeProcess) -> None:
    """As somebody made them by hand."""
    node.data.mkdir(parents=True)
    node.data.chmod(0o755)
    (node.data / "catalog").mkdir(mode=0o755)


def check_folders(node: NodeProcess) -> None:
    """They are the node's alone."""
    modes = {each.name: oct(each.stat().st_mode & 0o777) for each in [node.data, *node.data.iterdir()]}
    assert modes == {
        "data": "0o750",
        "catalog": "0o700",
        "tables": "0o700",
        "spark": "0o700",
        "log": "0o700",
    }


def test_kills_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Sockets have short paths.
    temporary = Path(tempfile.mkdtemp(prefix="left-"))
    monkeypatch.setenv("TMPDIR", str(temporary))
    node = NodeProcess(tmp_path / "with a long name so that sockets need a folder of their own")
    spark = node.data / "spark"
    counts: list[int] = []
    make_folders(node)
    try:
        node.start()
        node.wait_ready()
        check_folders(node)
        node.connection.sql("CREATE TABLE t (k BIGINT, s STRING) ENGINE = MergeTree ORDER BY k")
        work(node)
        counts.append(files_below(spark, temporary))
        # The JVM alone dies; the node starts another one.
        kill_jvm(node)
        node.wait_ready()
        work(node)
        counts.append(files_below(spark, temporary))
        folders = len(list(spark.iterdir()))
        # Everything dies, with rows on their way to a client; the next node finds it.
        with node.connection.stream(LARGE) as rows:
            next(iter(rows))
            assert len(list(spark.glob("result-*"))) == 1
            node.kill()
        node.start()
        node.wait_ready()
        work(node)
        counts.append(files_below(spark, temporary))
        # The JVM of the node that was killed has ended by now, and a start has seen that.
        wait_until(lambda: len(list(spark.iterdir())) == 1, "folders of the dead are still there")
        assert folders == 1
        assert max(counts) <= 2 * min(counts), counts
        assert stray(spark) == []
        node.stop()
        assert files_below(spark, temporary) == 0
    finally:
        node.stop()
        shutil.rmtree(temporary)


def stray(spark: Path) -> list[str]:
    """What is in the folder beside those of runs."""
    return [each.name for each in spark.iterdir() if not each.name.startswith("run-")]
