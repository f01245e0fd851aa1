"""Hosts of their own (tools/hosts.py), real ones: what each sees of the others and of the machine, and lost packets.

Takes two seconds. A process that is not root cannot make hosts, and gets the reason instead.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tools.hosts import HERE, ROOT, Host, OwnHosts, why_no_hosts

pytestmark = pytest.mark.simulation

SECONDS_MAX = 20
#: A host that is there accepts within milliseconds.
CONNECT_SECONDS = 0.5
PORT = 7000
TARGET = re.compile(r"--target=(\d+)")
LISTENER = f"import socket; s = socket.create_server(('', {PORT})); print('up', flush=True)\nwhile True: s.accept()"


def run(host: Host, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*host.begin, *command], capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def said(host: Host, *command: str) -> str:
    done = run(host, *command)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def accepts(host: Host) -> bool:
    with suppress(OSError):
        socket.create_connection((host.address, PORT), timeout=CONNECT_SECONDS).close()
        return True
    return False


@contextmanager
def listener(host: Host) -> Iterator[None]:
    process = subprocess.Popen([*host.begin, sys.executable, "-c", LISTENER], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield
    finally:
        process.kill()
        process.communicate()


@contextmanager
def two_hosts(folder: Path) -> Iterator[OwnHosts | None]:
    """Yield hosts `a` and `b` with a folder each; None where they cannot be made."""
    reason = why_no_hosts()
    if os.geteuid() != 0:
        assert reason == "it needs root"
        yield None
        return
    assert reason == ""
    with OwnHosts(folder, {"a": [folder / "data-a"], "b": [folder / "data-b"]}) as hosts:
        processes = [int(found[1]) for name in "ab" if (found := TARGET.search(" ".join(hosts.named(name).begin)))]
        assert all(map(psutil.pid_exists, processes))
        yield hosts
    assert len(processes) == len({*processes}) == 2
    assert not any(map(psutil.pid_exists, processes))
    left = {hosts.bridge, *(f"{hosts.host(number).name}a" for number in (0, 1))} & {*psutil.net_if_addrs()}
    assert left == set()


def test_the_reason_why_there_are_no_hosts_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert why_no_hosts() == "it needs root"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    assert why_no_hosts() == "there is no program ip"


def test_hosts_share_no_folder_that_can_be_written(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as hosts:
        if hosts is None:
            return
        a, b = hosts.named("a"), hosts.named("b")
        own, temporary = tmp_path / "data-a" / "file", Path(f"/tmp/{os.getpid()}-of-a-host")
        said(a, "sh", "-c", f"echo mine > {own}; echo hidden > {temporary}")
        assert own.read_text() == "mine\n"
        assert not temporary.exists()
        for other in (own, own.parent, temporary):
            assert run(b, "ls", str(other)).returncode != 0
        # Installed programs are there, and cannot be written.
        assert said(b, "cat", str(ROOT / "pyproject.toml")) == (ROOT / "pyproject.toml").read_text().strip()
        for folder in (ROOT, Path("/usr"), Path("/etc"), Path.home(), Path(sys.prefix)):
            done = run(b, "touch", str(folder / "written-by-a-host"))
            assert "Read-only file system" in done.stderr, folder
        assert not (tmp_path / "data-b" / "file").exists()
        key = tmp_path / "secrets" / "key"
        key.parent.mkdir()
        key.write_text("of the machine")
        hosts.copy(key)
        said(a, "sh", "-c", f"echo other > {key}")
        assert said(b, "cat", str(key)) == key.read_text() == "of the machine"
        assert said(b, "stat", "-c", "%a", str(key)) == "600"


def test_a_host_has_a_name_and_an_address_and_can_be_cut_off(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as hosts:
        if hosts is None:
            return
        a, b = hosts.named("a"), hosts.named("b")
        assert [said(each, "hostname") for each in (a, b)] == ["a", "b"]
        assert said(a, "getent", "hosts", "b").split() == [b.address, "b"]
        assert HERE.address not in (a.address, b.address)
        with listener(b):
            assert accepts(b)
            assert not accepts(a)
            hosts.cut(hosts.number("b"))
            assert not accepts(b)
            hosts.heal(hosts.number("b"))
            deadline = time.monotonic() + SECONDS_MAX
            while not accepts(b):
                assert time.monotonic() < deadline
