"""A real S3-compatible server (s3proxy over a folder) on a loopback port or on a host of its own, for tests.

Covers: starting and ending one server, its buckets, the requests that it got. Does not cover: what is in them.
Always holds: objects outlive the process.
"""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from tools.broker import JAVA_HOME, ROOT, free_port
from tools.hosts import HERE, Host
from tools.own_process import OwnProcess

JARS = ROOT / ".cache" / "s3"
KEY, SECRET = "tilthkey", "tilthsecret"
START_SECONDS_MAX = 60.0
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
    """One server in one folder: `buckets/` holds its buckets, `requests.log` its requests."""

    def __init__(self, folder: Path, *, host: Host = HERE) -> None:
        self.folder = folder
        self._host = host
        self._process = OwnProcess(folder / "server.json")
        self._seen = 0

    @property
    def port(self) -> int:
        """Port of the server, running or not; raises S3ServerError if it has never been started."""
        recorded = self._process.recorded
        if not recorded:
            raise S3ServerError(f"no server has been started here: folder={self.folder}")
        return int(recorded["port"])

    @property
    def endpoint(self) -> str:
        """Address of the server, running or not; raises S3ServerError if it has never been started."""
        return f"http://{self._host.address}:{self.port}"

    def start(self, port: int = 0) -> str:
        """Start it on the port (0: a free one), wait until it answers, return `endpoint`."""
        if self._process.running() is not None:
            raise S3ServerError(f"a server is running already: folder={self.folder}")
        if not any(JARS.glob("s3proxy-*.jar")):
            raise S3ServerError(f"the server's jars are missing, run `make s3-jars`: folder={JARS}")
        (self.folder / "buckets").mkdir(parents=True, exist_ok=True)
        port = port or free_port()
        (self.folder / "logback.xml").write_text(LOGGING.format(log=self._requests))
        properties = {
            "s3proxy.endpoint": f"http://{self._host.address}:{port}",
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": KEY,
            "s3proxy.credential": SECRET,
            "s3proxy.ignore-unknown-headers": "true",
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": self.folder / "buckets",
        }
        path = self.folder / "s3proxy.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = [
            *(*self._host.begin, f"{JAVA_HOME.read_text().strip()}/bin/java", *JVM_OPTIONS),
            *(f"-Dlogback.configurationFile={self.folder / 'logback.xml'}", "-cp", f"{JARS}/*"),
            *("org.gaul.s3proxy.Main", "--properties", str(path)),
        ]
        self._process.start(command, self.folder / "server.log", port=port)
        try:
            self._wait_ready()
        except BaseException:
            self.kill()
            raise
        return self.endpoint

    def stop(self) -> None:
        """End it in order, by its pid; kill it if it does not obey. No server, no effect."""
        self._process.stop()

    def kill(self) -> None:
        """`kill -9`, by its pid; objects that were answered for are there after the next start."""
        self._process.kill()

    def pause(self) -> None:
        """SIGSTOP: it takes connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        process = self._process.running()
        assert process is not None
        process.send_signal(number)

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

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._process.exit_code is not None:
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
