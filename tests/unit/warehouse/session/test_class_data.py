"""Class data: which archive fits, who may have written it, what a making that fails leaves."""

from __future__ import annotations

import dataclasses
import os
import threading
from pathlib import Path

import psutil
import pytest

from tilth.warehouse import WarehouseSettings, warehouse_settings
from tilth.warehouse.session import class_data as module
from tilth.warehouse.session.class_data import (
    ClassData,
    MadeClassData,
    UsedClassData,
    archive_key,
    class_data,
    replace_archive,
)
from tilth.warehouse.session.conf import spark_conf
from tilth.warehouse.session.java import Java

JAVA = Java(home="/java", version=17, release="17.0.15")


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    (jars / "a.jar").write_bytes(b"a")
    (jars / "b.jar").write_bytes(b"b")
    return jars.parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "class data"
    made.mkdir(mode=0o700)
    return made


def settings(**given: str) -> WarehouseSettings:
    return warehouse_settings({f"warehouse.{name.replace('_', '-')}": text for name, text in given.items()})


def archive(folder: Path, spark_home: Path) -> Path:
    path = UsedClassData(folder, settings()).path(JAVA, spark_home)
    path.write_bytes(b"classes")
    path.chmod(0o600)
    return path


def test_the_key_follows_all_that_an_archive_depends_on(spark_home: Path) -> None:
    def key(java: Java = JAVA, given: WarehouseSettings | None = None) -> str:
        return archive_key(java, spark_home, given or settings())

    first = key()
    assert first == key()
    keys = {
        first,
        key(java=dataclasses.replace(JAVA, release="17.0.16")),
        key(java=dataclasses.replace(JAVA, home="/other")),
        key(given=settings(spark_conf="spark.driver.extraClassPath=/x.jar")),
        key(given=settings(driver_memory="64g")),
    }
    (spark_home / "jars" / "a.jar").write_bytes(b"aa")
    keys.add(key())
    (spark_home / "jars" / "c.jar").write_bytes(b"c")
    keys.add(key())
    os.utime(spark_home / "jars" / "b.jar", ns=(1, 1))
    keys.add(key())
    assert len(keys) == 8


def test_the_key_is_the_same_for_nodes_of_other_sizes(spark_home: Path) -> None:
    keys = {
        archive_key(JAVA, spark_home, given)
        for given in (settings(), settings(driver_memory="512m"), settings(spark_conf="spark.sql.ansi.enabled=false"))
    }
    assert len(keys) == 1


def test_an_archive_is_used_where_it_fits(folder: Path, spark_home: Path) -> None:
    used = UsedClassData(folder, settings())
    assert used.options(JAVA, spark_home) == ()
    path = archive(folder, spark_home)
    assert f"-XX:SharedArchiveFile={path}" in used.options(JAVA, spark_home)
    assert used.options(dataclasses.replace(JAVA, release="21"), spark_home) == ()


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_what_others_can_write_is_not_used(folder: Path, spark_home: Path, mode: int) -> None:
    path = archive(folder, spark_home)
    path.chmod(mode)
    assert UsedClassData(folder, settings()).options(JAVA, spark_home) == ()
    path.chmod(0o600)
    folder.chmod(0o700 | mode & 0o022)
    assert UsedClassData(folder, settings()).options(JAVA, spark_home) == ()
    folder.chmod(0o700)
    assert UsedClassData(folder, settings()).options(JAVA, spark_home) != ()


def test_what_another_user_has_written_is_not_used(
    folder: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(folder, spark_home)
    monkeypatch.setattr(os, "getuid", lambda: 1_234_567)
    assert UsedClassData(folder, settings()).options(JAVA, spark_home) == ()


def test_the_setting_chooses_the_folder(tmp_path: Path) -> None:
    assert type(class_data(settings(class_data="off"), default=tmp_path)) is ClassData
    of_node, shared = (
        class_data(given, default=tmp_path / "d") for given in (settings(), settings(class_data=str(tmp_path / "s")))
    )
    assert isinstance(of_node, UsedClassData)
    assert isinstance(shared, UsedClassData)
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    assert of_node.path(JAVA, tmp_path / "spark").parent == tmp_path / "d"
    assert shared.path(JAVA, tmp_path / "spark").parent == tmp_path / "s"


def test_a_new_archive_takes_the_place_of_older_ones(folder: Path, spark_home: Path) -> None:
    (folder / "old.jsa").write_bytes(b"old")
    (folder / "log").mkdir()
    path = archive(folder, spark_home)
    made = path.with_suffix(".tmp")
    made.write_bytes(b"new")
    replace_archive(made, path)
    assert path.read_bytes() == b"new"
    assert sorted(each.name for each in folder.iterdir()) == sorted([path.name, "log"])


def test_a_making_that_fails_leaves_no_archive_and_says_where_its_log_is(
    tmp_path: Path, spark_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    used = UsedClassData(tmp_path / "d", settings(java_home=str(tmp_path / "nothing")))
    path = used.path(JAVA, spark_home)
    assert not used.make(path, nice=0)
    assert not path.exists()
    assert "class_data_not_made" in caplog.text
    assert "WrongJavaError" in (tmp_path / "d" / "log" / "maker.out").read_text()


@pytest.mark.parametrize("what", ["_FREE_MEMORY_MIN", "_FREE_DISK_MIN"])
def test_nothing_is_made_where_room_is_short(
    tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(module, what, 1 << 60)
    used = UsedClassData(tmp_path / "d", settings())
    assert not used.make(used.path(JAVA, spark_home), nice=0)
    assert not any((tmp_path / "d" / "log").iterdir())


def test_a_folder_that_cannot_be_made_is_said_in_the_log(
    tmp_path: Path, spark_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    used = UsedClassData(tmp_path / "file" / "d", settings())
    assert not used.make(used.path(JAVA, spark_home), nice=0)
    assert "class_data_not_made" in caplog.text


def test_a_path_with_a_colon_is_two_paths_to_java(tmp_path: Path, spark_home: Path) -> None:
    folder = tmp_path / "a:b"
    folder.mkdir(mode=0o700)
    archive(folder, spark_home)
    assert UsedClassData(folder, settings()).options(JAVA, spark_home) == ()


def test_a_stop_ends_the_process_that_makes_one(
    tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexec sleep 600\n")
    java.chmod(0o755)
    monkeypatch.setattr(module, "MAKE_AFTER_SECONDS", 0.0)
    used = UsedClassData(tmp_path / "d", settings(java_home=str(tmp_path / "java")))
    used.started(JAVA, spark_home)
    for _ in range(1_000):
        if any("sleep" in each.cmdline() for each in psutil.Process().children(recursive=True)):
            break
        threading.Event().wait(0.01)
    used.stop()
    assert not [each for each in psutil.Process().children(recursive=True) if "sleep" in each.name()]
    # Nothing is begun after the end.
    used.started(JAVA, spark_home)
    assert not used.make(used.path(JAVA, spark_home), nice=0)


def test_options_of_users_stand_behind_those_of_the_node() -> None:
    given = settings(spark_conf="spark.driver.extraJavaOptions=-Dmine=1")
    options = [*MadeClassData(Path("/d/a.tmp")).options(JAVA, Path("/spark"))]
    conf = spark_conf(given, folder="/d", socket_folder="/s", package_folder="/p", jvm_options=options)
    text = conf["spark.driver.extraJavaOptions"]
    assert text.endswith(" -Dmine=1")
    assert "-Djava.io.tmpdir=/d/tmp" in text
    assert "-XX:ArchiveClassesAtExit=/d/a.tmp" in text
