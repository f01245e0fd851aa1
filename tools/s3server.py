"""A real S3-compatible server (s3proxy over a folder) on a loopback port, for tests, demo and benchmarks.

    python -m tools.s3server start --folder DIR [--port N]    prints the endpoint
    python -m tools.s3server stop|kill --folder DIR

Covers: starting and ending one server, its buckets, the requests that it was asked. Does not cover: what is in them.
Always holds: objects outlive the process; a process is ended by its recorded pid, and only if it still is the one that
was started.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import psutil

from tools.broker import CREATED_SECONDS_TOLERANCE, JAVA_HOME, ROOT, free_port

JARS = ROOT / ".cache" / "s3"
#: Where another folder with the jars is named.
JARS_VARIABLE = "TILTH_TEST_S3_JARS"
KEY, SECRET = "tilthkey", "tilthsecret"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
POLL_SECONDS = 0.1

JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError")
#: One line a request, all else from WARN on: at DEBUG the server writes thousands of lines a second.
LOGGING = """<configuration>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>{log}</file>
    <encoder><pattern>%msg%n</pattern></encoder>
  </appender>
  <logger name="org.gaul.s3proxy.S3ProxyHandler" level="DEBUG"/>
  <root level="WARN"><appender-ref ref="FILE"/></root>
</configuration>
"""
_REQUEST = re.compile(r"\{(GET|HEAD|PUT|POST|DELETE)@\w+ \w+://[^/]+/([^}\s?,]*)")


class S3ServerError(RuntimeError):
    """the server did not start, or is not there"""


class S3Server:
    """One server in one folder: `buckets/` holds its buckets, `requests.log` what it was asked."""

    def __init__(self, folder: Path, jars: Path | None = None, java_home: Path | None = None) -> None:
        """`jars` defaults to what `make s3-jars` fetched, `java_home` to what `make java` chose."""
        self.folder = folder
        self._jars = jars or Path(os.environ.get(JARS_VARIABLE) or JARS)
        self._java_home = java_home
        self._process: subprocess.Popen[bytes] | None = None
        self._seen = 0

    @property
    def endpoint(self) -> str:
        """Address of the server, running or not; raises S3ServerError if it has never been started."""
        return f"http://127.0.0.1:{self._recorded()['port']:.0f}"

    @property
    def pid(self) -> int | None:
        """The process's id while it lives."""
        process = self._running()
        return None if process is None else process.pid

    def start(self, port: int = 0) -> str:
        """Start it on the port (0: a free one), wait until it answers, return `endpoint`."""
        if self._running() is not None:
            raise S3ServerError(f"a server is running already: folder={self.folder}")
        if not any(self._jars.glob("s3proxy-*.jar")):
            raise S3ServerError(f"the server's jars are missing, run `make s3-jars`: folder={self._jars}")
        (self.folder / "buckets").mkdir(parents=True, exist_ok=True)
        port = port or free_port()
        (self.folder / "logback.xml").write_text(LOGGING.format(log=self._requests))
        properties = {
            "s3proxy.endpoint": f"http://127.0.0.1:{port}",
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": KEY,
            "s3proxy.credential": SECRET,
            "s3proxy.ignore-unknown-headers": "true",
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": self.folder / "buckets",
        }
        path = self.folder / "s3proxy.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        java_home = self._java_home or Path(JAVA_HOME.read_text().strip())
        with (self.folder / "server.log").open("ab") as log:
            # A session of its own: an interrupt typed at a terminal must not end the server before its owner does.
            self._process = subprocess.Popen(
                [
                    *(str(java_home / "bin" / "java"), *JVM_OPTIONS),
                    *(f"-Dlogback.configurationFile={self.folder / 'logback.xml'}", "-cp", f"{self._jars}/*"),
                    *("org.gaul.s3proxy.Main", "--properties", str(path)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        created = psutil.Process(self._process.pid).create_time()
        self._record.write_text(json.dumps({"pid": self._process.pid, "created": created, "port": port}))
        try:
            self._wait_ready()
        except BaseException:
            self.kill()
            raise
        return self.endpoint

    def stop(self) -> None:
        """End it in order, by its pid; kill it if it does not obey. No server, no effect."""
        self._end(psutil.Process.terminate)

    def kill(self) -> None:
        """`kill -9`, by its pid; objects that were answered for are there after the next start."""
        self._end(psutil.Process.kill)

    def create_bucket(self, name: str) -> None:
        (self.folder / "buckets" / name).mkdir(exist_ok=True)

    def requests(self) -> list[tuple[str, str]]:
        """Return verbs and paths of the requests since the last call."""
        if not self._requests.exists():
            return []
        with self._requests.open() as log:
            log.seek(self._seen)
            text = log.read()
            self._seen = log.tell()
        return [(found[1], found[2]) for found in _REQUEST.finditer(text)]

    @property
    def _requests(self) -> Path:
        return self.folder / "requests.log"

    @property
    def _record(self) -> Path:
        return self.folder / "server.json"

    def _recorded(self) -> dict[str, float]:
        if not self._record.exists():
            raise S3ServerError(f"no server has been started here: folder={self.folder}")
        recorded: dict[str, float] = json.loads(self._record.read_text())
        return recorded

    def _running(self) -> psutil.Process | None:
        if not self._record.exists():
            return None
        recorded = self._recorded()
        try:
            process = psutil.Process(int(recorded["pid"]))
            is_same = abs(process.create_time() - recorded["created"]) < CREATED_SECONDS_TOLERANCE
            is_alive = process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return None
        return process if is_same and is_alive else None

    def _end(self, how: Callable[[psutil.Process], None]) -> None:
        process = self._running()
        if process is not None:
            how(process)
            try:
                process.wait(STOP_SECONDS_MAX)
            except psutil.TimeoutExpired:
                process.kill()
                process.wait(STOP_SECONDS_MAX)
        if self._process is not None:
            self._process.wait(STOP_SECONDS_MAX)
            self._process = None

    def _wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise S3ServerError(f"the server ended while starting: folder={self.folder}")
            try:
                urlopen(self.endpoint, timeout=1).close()
            except HTTPError:
                # It refuses who has no key: it is there.
                return
            except (URLError, OSError):
                time.sleep(POLL_SECONDS)
                continue
            return
        raise S3ServerError(f"the server does not answer: seconds={START_SECONDS_MAX} folder={self.folder}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.s3server", description="An S3-compatible server.")
    parser.add_argument("command", choices=("start", "stop", "kill"))
    parser.add_argument("--folder", type=Path, required=True, help="where its buckets, log and pid are")
    parser.add_argument("--port", type=int, default=0, help="loopback port for start; 0 takes a free one")
    arguments = parser.parse_args()
    server = S3Server(arguments.folder.resolve())
    try:
        match arguments.command:
            case "start":
                print(server.start(arguments.port))
            case "stop":
                server.stop()
            case "kill":
                server.kill()
    except S3ServerError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
