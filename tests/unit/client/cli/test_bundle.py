"""The command `tilth bundle` over a node's folder while the server is down. Cost: 3 s, for the doctor's checks."""

from __future__ import annotations

import socket
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.doctor.test_broken_setups import make_java, modules
from tilth.client.cli.main import app


def test_a_bundle_of_a_server_that_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "jdk", modules("21.0.4"))))
    monkeypatch.setenv("LAKE_SECRET", "wJalrXUtnFEMI")
    node, path = tmp_path / "node", tmp_path / "b.tar.gz"
    (node / "log").mkdir(parents=True)
    (node / "log" / "spark.log").write_text("\x1b[2Jsigned with wJalrXUtnFEMI\nsasl_password=hunter2\n")
    with socket.create_server(("127.0.0.1", 0)) as door:
        url = f"http://127.0.0.1:{door.getsockname()[1]}"
    given = ["bundle", "--url", url, "--data", str(node), "-o", str(path), "--show", "--yes"]
    ran = CliRunner().invoke(app, given)
    assert ran.exit_code == 0, ran.output
    assert "\\x1b[2Jsigned with [HIDDEN]\n" in ran.stdout
    assert "\x1b[2J" not in ran.stdout
    assert f"written: {path}" in ran.stdout
    with tarfile.open(path) as archive:
        texts = {each.name.partition("/")[2]: archive.extractfile(each) for each in archive}
        whole = {name: file.read().decode() for name, file in texts.items() if file is not None}
    assert list(whole) == [
        *("README.txt", "versions.json", "settings.json", "doctor.json", "server/away.txt"),
        *("node/files.txt", "node/log/spark.log"),
    ]
    assert not [name for name, text in whole.items() if "wJalr" in text or "hunter2" in text]
    # A second one does not replace the first.
    again = CliRunner().invoke(app, given)
    assert again.exit_code == 1
    assert f"the bundle cannot be written: {path}: File exists" in again.output


def test_nothing_is_written_without_a_yes(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["bundle", "-o", str(tmp_path / "b.tar.gz")])
    assert ran.exit_code == 2
    assert list(tmp_path.iterdir()) == []
    assert CliRunner().invoke(app, ["bundle", "--yes", "--url", "ftp://x"]).exit_code == 2
