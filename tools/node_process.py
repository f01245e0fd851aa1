"""A `tilth serve` process of one's own: started, waited for, killed, stopped. For the demo and for tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import tilth
from tilth.base.errors import TilthError
from tilth.base.failpoints import VARIABLE as FAILPOINTS
from tools.class_data import CLASS_DATA
from tools.hosts import HERE, Host

READY_SECONDS_MAX = 180.0
STOP_SECONDS_MAX = 30.0
LOG_TAIL_CHARACTERS = 4_000


class NodeProcess:
    """A node with its data in `folder/data` and its log in `folder/node.log`; keeps its address over restarts."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        config: str = "",
        environment: Mapping[str, str] | None = None,
        host: Host = HERE,
        program: Sequence[str] = (sys.executable, "-m", "tilth.client.cli"),
    ) -> None:
        """`config`: text of a config file. `environment`: variables beside those of this process. `host`: where it
        runs. `program`: the command `tilth` of an installation.
        """
        self._folder = folder
        self._config = config
        self._settings = CLASS_DATA | dict(settings or {})
        self._environment = dict(environment or {})
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._host, self._program = host, [*program]
        self.url = f"http://{host.address}:{self._port}"
        self.connection = tilth.connect(self.url, timeout_seconds=180)

    @property
    def data(self) -> Path:
        return self._folder / "data"

    @property
    def pid(self) -> int:
        """Id of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    def change_settings(self, settings: Mapping[str, str]) -> None:
        """Add settings for the next start."""
        self._settings |= settings

    def change_environment(self, environment: Mapping[str, str]) -> None:
        """Add variables for the next start."""
        self._environment |= environment

    @contextmanager
    def serving(self) -> Iterator[Self]:
        """Start it and wait until it is ready; it stops with the block."""
        try:
            self.start()
            self.wait_ready()
            yield self
        finally:
            self.stop()

    def start(self, *, failpoints: str = "") -> None:
        """Starts the process and returns at once; see base/failpoints.py for where it can be made to die."""
        assert self._process is None or self._process.poll() is not None
        command = [*self._host.begin, *self._program, "serve"]
        command += ["--data", str(self.data), "--listen", f"{self._host.address}:{self._port}"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._config:
            (self._folder / "tilth.toml").write_text(self._config)
            command += ["--config", str(self._folder / "tilth.toml")]
        with (self._folder / "node.log").open("ab") as log:
            # Variables for the tests are no settings of a node.
            others = {name: value for name, value in os.environ.items() if not name.startswith("TILTH_")}
            tests = {name: value for name, value in os.environ.items() if name.startswith("TILTH_TEST_")}
            environment = others | tests | {FAILPOINTS: failpoints} | self._environment
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def wait_ready(self) -> None:
        """Returns when every component is well; raises when the process ends or takes too long."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self.has_ended:
            try:
                self.connection.wait_ready(1.0)
                return
            except TilthError:
                if time.monotonic() > deadline:
                    break
        raise RuntimeError(f"the node is not ready: exit={self.exit_code} log:\n{self.log_tail()}")

    def wait_end(self, seconds: float) -> bool:
        """True when the process has ended by itself within the time."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    def kill(self) -> None:
        """SIGKILL: no farewell."""
        assert self._process is not None
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for one that does not obey."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            if not self.wait_end(STOP_SECONDS_MAX):
                self.kill()

    def value(self, query: str) -> int:
        """The single number that the query gives; 0 for NULL."""
        return int(self.connection.sql(query).rows[0][0] or 0)

    def log_tail(self) -> str:
        return (self._folder / "node.log").read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
