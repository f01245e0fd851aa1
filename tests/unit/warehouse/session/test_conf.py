"""Settings and the Spark properties made of them."""

from __future__ import annotations

import pytest

from tilth.base.settings import BadSettingError
from tilth.warehouse import SETTINGS, WarehouseSettings, warehouse_settings
from tilth.warehouse.parallelism import Parallelism, cores_of
from tilth.warehouse.session.conf import session_conf, spark_conf


def test_defaults_are_read() -> None:
    settings = warehouse_settings({})
    assert settings.driver_memory == "2g"
    assert settings.write_slots >= 4
    assert settings.memory_bytes > 0
    assert set(settings.slots) == {"default", "write"}


def test_texts_are_checked_by_name() -> None:
    with pytest.raises(BadSettingError, match=r"warehouse\.driver-memory"):
        warehouse_settings({"warehouse.driver-memory": "lots"})
    with pytest.raises(BadSettingError, match=r"warehouse\.query-slots"):
        warehouse_settings({"warehouse.query-slots": "0"})
    assert all(setting.doc for setting in SETTINGS.all)


def test_a_users_properties_win() -> None:
    settings = warehouse_settings({"warehouse.spark-conf": "spark.a=1 spark.ui.enabled=true"})
    conf = spark_conf(settings, folder="/d", socket_folder="/s", package_folder="/p")
    assert (conf["spark.a"], conf["spark.ui.enabled"]) == ("1", "true")


def test_what_double_quotes_mean_is_no_property_of_a_node() -> None:
    name = "spark.sql.ansi.doubleQuotedIdentifiers"
    settings = warehouse_settings({"warehouse.spark-conf": f"{name}=false"})
    conf = spark_conf(settings, folder="/d", socket_folder="/s", package_folder="/p")
    assert conf[name] == "true"


def test_pages_of_parts_are_verified() -> None:
    conf = spark_conf(WarehouseSettings(), folder="/d", socket_folder="/s", package_folder="/p")
    assert conf["spark.hadoop.parquet.page.verify-checksum.enabled"] == "true"


def test_auto_gives_twice_as_many_task_slots_as_cores() -> None:
    conf = spark_conf(WarehouseSettings(), folder="/d", socket_folder="/s", package_folder="/p")
    slots = int(conf["spark.master"].removeprefix("local[").removesuffix("]"))
    assert slots == 2 * int(conf["spark.sql.shuffle.partitions"])


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[3,4]", 3), ("local[*]", 8), ("auto", 8), ("yarn", 8)]
)
def test_cores_of_a_master(master: str, cores: int) -> None:
    assert cores_of(master, machine_cores=8) == cores


def test_a_cluster_decides_its_tasks_while_it_runs() -> None:
    names = ("spark.default.parallelism", "spark.sql.shuffle.partitions", "spark.sql.files.minPartitionNum")
    conf = spark_conf(WarehouseSettings(master="spark://a:1"), folder="/d", socket_folder="/s", package_folder="/p")
    assert not set(names) & set(conf)
    local = spark_conf(WarehouseSettings(master="local[3]"), folder="/d", socket_folder="/s", package_folder="/p")
    assert {local[name] for name in names} == {"3"}
    parallelism = Parallelism(tasks=16, cores=16, reason="")
    assert set(session_conf(parallelism, {}).values()) == {"16"}
    assert "spark.sql.shuffle.partitions" not in session_conf(parallelism, {"spark.sql.shuffle.partitions": "5"})


def test_slots_of_writers_follow_a_cluster_unless_they_were_set() -> None:
    assert not warehouse_settings({"warehouse.master": "spark://a:1"}).are_write_slots_given
    given = warehouse_settings({"warehouse.write-slots": "7"})
    assert (given.write_slots, given.are_write_slots_given) == (7, True)
    assert warehouse_settings({"warehouse.master": "local[8]"}).write_slots == 12
