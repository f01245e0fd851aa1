"""What a session on a cluster is made of, without a cluster."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tilth.warehouse import SparkStartError, WarehouseSettings, warehouse_settings
from tilth.warehouse.session.cluster import (
    EXECUTOR_SILENCE_SECONDS_MAX,
    check_master,
    cluster_conf,
    pack,
    tries_tasks_again,
)
from tilth.warehouse.session.conf import is_cluster, spark_conf
from tilth.warehouse.worker.pulse import BUSY_FACTOR


def test_files_of_failed_attempts_are_looked_for_where_tasks_are_tried_again() -> None:
    once = ("auto", "local", "local[8]", "local[*]")
    again = ("local[4,3]", "local-cluster[2,1,1024]", "spark://a:7077", "yarn", "k8s://https://a")
    assert [master for master in (*once, *again) if tries_tasks_again(master)] == [*again]


@pytest.mark.parametrize("master", ["yarn", "k8s://https://10.0.0.1:6443", "spark://a:7077,b:7077"])
def test_every_kind_of_cluster_gets_the_code_and_tries_tasks_again(master: str) -> None:
    package = Path("/run/tilth-0123.zip")
    cluster = cluster_conf(master, package=package, python="/opt/python", driver_host="10.0.0.7", end_seconds=2.5)
    given = {"warehouse.master": master, "warehouse.spark-conf": "spark.cores.max=4 spark.task.maxFailures=2"}
    conf = spark_conf(warehouse_settings(given), folder="/d", socket_folder="/s", package_folder="/p", further=cluster)
    assert is_cluster(master)
    assert conf["spark.master"] == master
    assert (conf["spark.files"], conf["spark.executorEnv.PYTHONPATH"]) == (str(package), package.name)
    assert (conf["spark.driver.host"], conf["spark.pyspark.python"]) == ("10.0.0.7", "/opt/python")
    # A user's setting counts, here too.
    assert (conf["spark.cores.max"], conf["spark.task.maxFailures"]) == ("4", "2")
    assert cluster["spark.task.maxFailures"] == "4"
    # An executor that is cut off is given up before the driver counts as hung.
    assert BUSY_FACTOR * WarehouseSettings().hang_seconds > EXECUTOR_SILENCE_SECONDS_MAX
    assert (cluster["spark.task.reaper.enabled"], cluster["spark.task.reaper.killTimeout"]) == ("true", "2500ms")


@pytest.mark.parametrize("master", ["auto", "local", "local[*]", "local[3]"])
def test_a_local_spark_stays_as_it_is(master: str) -> None:
    assert not is_cluster(master)
    assert cluster_conf(master, package=Path("x"), python="p", driver_host="h", end_seconds=2.5) == {}
    check_master(master)


def test_the_package_runs_from_its_zip_and_is_named_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    package = pack(tmp_path / "a")
    assert pack(tmp_path / "b").name == package.name
    assert "tilth/daemon.py" in zipfile.ZipFile(package).namelist()
    code = "import tilth.storage, tilth; from tilth.storage import layout_of; print(tilth.__file__)"
    environment = {"PYTHONPATH": package.name}
    shown = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {package.name!r}); {code}"],
        cwd=package.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert package.name in shown.stdout


@pytest.mark.parametrize(
    ("master", "words"),
    [("spark://127.0.0.1:9", "127.0.0.1:9: Connection refused"), ("spark://nowhere", "no address of a Spark master")],
)
def test_a_master_that_is_away_is_named(master: str, words: str) -> None:
    with pytest.raises(SparkStartError, match=words):
        check_master(master)
