"""Temporary folders of dead processes go, those of living ones stay; options of the JVM survive odd paths."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tilth.warehouse import WarehouseSettings
from tilth.warehouse.session.conf import java_options, spark_conf
from tilth.warehouse.session.folders import (
    make_result_folder,
    make_run_folder,
    make_socket_folder,
    remove_left_behind,
    remove_result_folder,
)


def test_a_folder_of_this_process_is_its_alone(tmp_path: Path) -> None:
    folder = make_run_folder(tmp_path / "spark", 1)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert str(os.getpid()) in folder.name


def test_folders_go_with_their_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = tmp_path / "short"
    short.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = int(psutil.Process(other.pid).create_time())
    own_start = int(psutil.Process().create_time())
    alive = f"{other.pid}-{started:x}"
    now, earlier, sockets = make_run_folder(tmp_path, 2), make_run_folder(tmp_path, 1), make_socket_folder()
    kept = [
        now,
        sockets,
        tmp_path / f"run-{alive}-1",
        tmp_path / f"result-{alive}-abc",
        # Its client still reads, though Spark was started anew.
        make_result_folder(tmp_path, "0a-b"),
        short / f"tilth-{alive}-abc",
        tmp_path / "tables",
        tmp_path / "run-x",
    ]
    # A number that another process has by now, one that nobody has.
    gone = [
        earlier,
        tmp_path / f"run-{other.pid}-{started - 60:x}-1",
        tmp_path / f"run-{os.getpid()}-{own_start - 60:x}-1",
        tmp_path / "run-4194304-65000000-1",
        tmp_path / "result-4194304-65000000-0a",
        short / "tilth-4194304-65000000-abc",
    ]
    for folder in (*kept, *gone):
        (folder / "local").mkdir(parents=True, exist_ok=True)
        (folder / "local" / "file").write_text("x")
    link = tmp_path / "run-4194304-65000000-2"
    link.symlink_to(tmp_path / "tables")
    try:
        assert remove_left_behind(tmp_path, but=now) == len(gone)
        assert [folder.name for folder in kept if not folder.exists()] == []
        assert [folder.name for folder in gone if folder.exists()] == []
        assert (tmp_path / "tables" / "local" / "file").exists()
        other.communicate(b"\n")
        assert remove_left_behind(tmp_path, but=now) == 3
        assert remove_left_behind(tmp_path, but=now) == 0
    finally:
        other.kill()
        other.wait()


def test_a_result_that_is_still_written_leaves_nothing(tmp_path: Path) -> None:
    for _ in range(20):
        folder = make_result_folder(tmp_path, "q")
        written = threading.Event()

        def write(folder: Path = folder, written: threading.Event = written) -> None:
            with suppress(FileNotFoundError):
                for number in range(1_000_000):
                    (folder / str(number)).write_bytes(b"rows")
                    if number == 50:
                        written.set()

        writer = threading.Thread(target=write)
        writer.start()
        assert written.wait(60)
        remove_result_folder(folder)
        writer.join(60)
        assert list(tmp_path.iterdir()) == []


def test_options_of_the_jvm_keep_blanks_and_quotes() -> None:
    folder = '/data of "mine"/it\'s\\here'
    options = shlex.split(java_options(folder=folder, log_folder=folder))
    assert f"-Djava.io.tmpdir={folder}/tmp" in options
    assert f"-XX:ErrorFile={folder}/jvm-crash.log" in options


def test_nothing_of_a_session_is_outside_of_its_folder() -> None:
    conf = spark_conf(WarehouseSettings(), folder="/d", socket_folder="/s", package_folder="/p", log_folder="/l")
    assert "-Djava.io.tmpdir=/d/tmp" in conf["spark.driver.extraJavaOptions"]
    assert conf["spark.eventLog.enabled"] == "false"
    assert conf["spark.sql.restrictedMode.enabled"] == "true"
