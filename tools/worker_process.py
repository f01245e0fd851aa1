"""A `tilth worker` process of one's own: started, waited for, killed, stopped. For the demo, benchmarks and tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tools.class_data import CLASS_DATA
from tools.hosts import HERE, Host

READY_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 40.0
LOG_TAIL_CHARACTERS = 4_000
READY_WORDS = "(Ctrl-C stops it)"


class WorkerRun:
    """A worker with its files in `folder` and its log in `folder/worker.log`."""

    def __init__(
        self,
        folder: Path,
        *,
        server: str,
        warehouse: str,
        name: str,
        token: str,
        settings: Mapping[str, str] | None = None,
        host: Host = HERE,
    ) -> None:
        """`host`: where it runs, and listens for calls of the server."""
        self._folder = folder
        self._arguments = ["--server", server, "--warehouse", warehouse, "--name", name, "--folder", str(folder)]
        self._arguments += ["--listen", f"{host.address}:0"]
        self._begin = host.begin
        self._settings = CLASS_DATA | dict(settings or {})
        self._token = token
        self._environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self.name = name

    @property
    def pid(self) -> int:
        """Id of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    def add_options(self, *options: str) -> None:
        """Add options of the command for the next start."""
        self._arguments += options

    def change_environment(self, environment: Mapping[str, str]) -> None:
        """Set variables for the next start, beside those of this process."""
        self._environment |= environment

    def start(self) -> None:
        """Start the process and return at once."""
        self._folder.mkdir(parents=True, exist_ok=True)
        settings = [text for name, value in self._settings.items() for text in ("--set", f"{name}={value}")]
        command = [*self._begin, sys.executable, "-m", "tilth.client.cli", "worker", *self._arguments, *settings]
        others = {name: value for name, value in os.environ.items() if not name.startswith("TILTH_")}
        path = self._folder / "worker.log"
        self._log_start = path.stat().st_size if path.exists() else 0
        with path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=others | self._environment | {"TILTH_SERVICE_TOKEN": self._token},
            )

    def wait_ready(self) -> None:
        """Return when the worker has registered; raises when it ends before or takes too long."""
        assert self._process is not None
        deadline = time.monotonic() + READY_SECONDS_MAX
        while self._process.poll() is None and time.monotonic() < deadline:
            if READY_WORDS in self._output():
                return
            time.sleep(0.05)
        raise RuntimeError(f"worker {self.name} is not ready: exit={self._process.poll()} log:\n{self.log()}")

    def wait_end(self, seconds: float) -> int | None:
        """Return the exit code; None: it runs on."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL: no farewell; its JVM ends with it."""
        assert self._process is not None
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for one that does not obey."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            if self.wait_end(STOP_SECONDS_MAX) is None:
                self.kill()

    def log(self) -> str:
        """Return the end of what the process that was started last has said."""
        return self._output()[-LOG_TAIL_CHARACTERS:]

    def _output(self) -> str:
        with (self._folder / "worker.log").open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")
