"""The command `tilth doctor`: its output, `--json`, exit codes, a server that is away, one that hangs. Cost: 2 s."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.doctor.test_broken_setups import make_java, modules
from tilth.client.cli.doctor import DoctorReport, show_report, worst
from tilth.client.cli.main import app
from tilth.client.output import console_of
from tilth.model.diagnosis import Diagnosis, Grade


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "jdk", modules("21.0.4"))))


@pytest.mark.usefixtures("java")
def test_a_machine_that_is_well(tmp_path: Path) -> None:
    node = tmp_path / "node"
    ran = CliRunner().invoke(app, ["doctor", "--data", str(node), "--listen", "127.0.0.1:0", "--json"])
    report = json.loads(ran.stdout)
    checks = {each["check"]: each["grade"] for each in report["findings"]}
    # Disk and memory of the machine that runs the test may be scarce.
    assert {name: grade for name, grade in checks.items() if name not in ("disk", "memory", "temporary files")} == {
        **dict.fromkeys(("settings", "java", "libraries", "spark", "open files", "port"), "ok"),
        **dict.fromkeys(("data folder", "storage", "catalog", "clock", "service token"), "ok"),
    }
    assert ran.exit_code == (0 if report["status"] == "ok" else 1)
    assert not node.exists()


@pytest.mark.usefixtures("java")
def test_what_is_wrong_comes_last_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    given = ["doctor", "--data", str(file / "node"), "--listen", "nowhere", "--set", "warehouse.python=/nowhere/python"]
    ran = CliRunner().invoke(app, given)
    assert ran.exit_code == 1
    assert ran.stdout.splitlines()[0].startswith("ok ")
    assert (
        f"error    data folder      the data folder {file}/node cannot be made, because {file} is no folder\n"
        "                         what to do: give this user the right to write there, or choose another folder\n"
        "                         page: docs/operate/doctor.md#disks-and-folders\n"
    ) in ran.stdout
    assert "error    port             not an address to listen on: listen=nowhere\n" in ran.stdout
    assert "warehouse.python to a Python, or leave it out" in ran.stdout


def test_a_wrong_command_line() -> None:
    for given in (["--set", "x"], ["--url", "ftp://x"], ["--seconds", "0"]):
        assert CliRunner().invoke(app, ["doctor", *given]).exit_code == 2


@pytest.mark.usefixtures("java")
def test_a_path_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "a\udcffb\n\x1b[2J"
    file.write_text("")
    for given in ([], ["--json"]):
        ran = CliRunner().invoke(app, ["doctor", "--data", str(file / "node"), "--seconds", "5", *given])
        assert ran.exit_code == 1, ran.output
        assert "a\\udcffb\\n" in ran.stdout
        assert "\x1b[2J" not in ran.stdout


def test_a_server_that_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        url = f"http://127.0.0.1:{door.getsockname()[1]}"
    ran = CliRunner().invoke(app, ["doctor", "--url", url])
    assert ran.exit_code == 1
    assert ran.stdout.startswith(f"error    server  the Tilth server does not answer: url={url} reason=")
    assert "what to do: check that `tilth serve` runs and that this is its address\n" in ran.stdout
    assert ran.stdout.endswith("1 error, 0 warnings; 0 findings without fault\n")


def test_a_server_that_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        url = f"http://127.0.0.1:{door.getsockname()[1]}"
        ran = CliRunner().invoke(app, ["doctor", "--url", url, "--seconds", "1"])
    assert ran.exit_code == 1
    assert ran.stdout.startswith(f"error    server  {url} accepts the connection and has not answered within 0.8 s\n")


def test_what_others_have_named_cannot_move_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    finding = Diagnosis(check="alarms", grade=Grade.ERROR, sentence="a\x1b[2Jb\nc\udc80 [red]", todo="\x9bx", since="t")
    show_report(console_of(), DoctorReport(status=worst([finding]), version="", findings=[finding]))
    out = capsys.readouterr().out
    assert "a\\x1b[2Jb\\nc\\udc80 [red]\n" in out
    assert "what to do: \\x9bx\n" in out
