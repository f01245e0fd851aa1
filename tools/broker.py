"""A real single-node Kafka broker (KRaft) on loopback ports or on a host of its own, for tests, demo and benchmarks.

    python -m tools.broker start --folder DIR [--port N]    prints the bootstrap address
    python -m tools.broker stop|kill|restart --folder DIR

Covers: starting, stopping, killing and restarting one broker, and its topics. Does not cover: clusters, security.
Always holds: topics outlive the process, `kill` included.
"""

from __future__ import annotations

import argparse
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tools.hosts import HERE, Host
from tools.own_process import OwnProcess

ROOT = Path(__file__).resolve().parent.parent
JARS = ROOT / ".cache" / "kafka"
JAVA_HOME = ROOT / ".cache" / "java_home"

#: Any id does; a fixed one lets the next start find the same data.
CLUSTER_ID = "dGlsdGh0aWx0aHRpbHRoMQ"
START_SECONDS_MAX = 90.0
ADMIN_SECONDS_MAX = 30.0
POLL_SECONDS = 0.1
#: Below the range from which systems take the ports of outgoing connections, so a restart finds its port free.
PORT_MIN, PORT_MAX = 20_000, 32_000
PORT_TRIES_MAX = 200

JVM_OPTIONS = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true")

SERVER_PROPERTIES: Mapping[str, object] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    # Nothing goes by age, so that whoever wants a record gone says so.
    "log.retention.ms": -1,
    # A test that deletes records or lowers a topic's retention sees the effect within a second.
    "log.retention.check.interval.ms": 1_000,
    "log.segment.delete.delay.ms": 500,
    "log.initial.task.delay.ms": 500,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    # After `kill` a new process may register only when the old one's session is over.
    "broker.session.timeout.ms": 4_000,
    "broker.heartbeat.interval.ms": 500,
    "num.network.threads": 2,
    "num.io.threads": 4,
}


class BrokerError(RuntimeError):
    """the broker did not start, or is not there"""


class Broker:
    """One broker in one folder: `data/` holds its topics, `broker.log` its words, `broker.json` which process it is."""

    def __init__(self, folder: Path, jars: Path = JARS, java_home: Path | None = None, *, host: Host = HERE) -> None:
        """`java_home` defaults to what `make java` chose; `jars` to what `make broker-jars` fetched."""
        self.folder = folder
        self._jars = jars
        self._java_home = java_home
        self._process = OwnProcess(folder / "broker.json")
        self._host = host
        self._proxy_host = "127.0.0.1"

    @property
    def bootstrap(self) -> str:
        """`host:port` of the broker, running or not; raises BrokerError if it has never been started."""
        return f"{self._host.address}:{self._recorded()['port']}"

    @property
    def pid(self) -> int | None:
        """The process's id while it lives."""
        process = self._process.running()
        return None if process is None else process.pid

    @property
    def proxied_port(self) -> int:
        """The port of the listener that a proxy leads to; 0: there is none."""
        return int(self._recorded().get("proxied_port", 0))

    def start(self, port: int = 0, *, proxy_port: int = 0, proxy_host: str = "") -> str:
        """Starts it on the port (0: a free one), waits until it answers, returns `bootstrap`.

        With `proxy_port` a second listener advertises that port, of loopback or of `proxy_host`: clients that come
        through a proxy stay behind it.
        """
        self._proxy_host = proxy_host or self._proxy_host
        if self._process.running() is not None:
            raise BrokerError(f"a broker is running already: folder={self.folder}")
        if not any(self._jars.glob("kafka_*.jar")):
            raise BrokerError(f"the broker's jars are missing, run `make broker-jars`: folder={self._jars}")
        self.folder.mkdir(parents=True, exist_ok=True)
        port = port or free_port()
        proxied_port = free_port(besides=port) if proxy_port else 0
        properties = self._write_properties(port, proxied_port, proxy_port)
        java = self._java_command()
        formatting = ("kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--ignore-formatted", "--config")
        if not (self._data / "meta.properties").exists():
            with self._log.open("ab") as log:
                subprocess.run([*java, *formatting, str(properties)], stdout=log, stderr=log, check=True)
        proxy = {"proxied_port": proxied_port, "proxy_port": proxy_port} if proxy_port else {}
        self._process.start([*java, "kafka.Kafka", str(properties)], self._log, port=port, **proxy)
        try:
            self._wait_ready()
        except BaseException:
            self.kill()
            raise
        return self.bootstrap

    def stop(self) -> None:
        """Ends it in order, by its pid; kills it if it does not obey. No broker, no effect."""
        self._process.stop()

    def kill(self) -> None:
        """`kill -9`, by its pid; what was acknowledged is there after the next start."""
        self._process.kill()

    def restart(self) -> str:
        """Stops it if it runs, starts it on the port that it had."""
        record = self._recorded()
        self.stop()
        return self.start(int(record["port"]), proxy_port=int(record.get("proxy_port", 0)))

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Returns once every partition has a leader; raises BrokerError if the topic exists."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin = self._admin()
        _wait_done(admin.create_topics([topic], operation_timeout=ADMIN_SECONDS_MAX)[name])
        _wait_topic(admin, name, lambda leaders: len(leaders) == partitions and all(leader >= 0 for leader in leaders))

    def delete_topic(self, name: str) -> None:
        """Returns once the broker does not list it any more."""
        admin = self._admin()
        _wait_done(admin.delete_topics([name], operation_timeout=ADMIN_SECONDS_MAX)[name])
        _wait_topic(admin, name, lambda leaders: not leaders)

    def add_partitions(self, name: str, total: int) -> None:
        """Raises the topic's number of partitions to `total`."""
        admin = self._admin()
        _wait_done(admin.create_partitions([NewPartitions(name, total)])[name])
        _wait_topic(admin, name, lambda leaders: len(leaders) == total and all(leader >= 0 for leader in leaders))

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _log(self) -> Path:
        return self.folder / "broker.log"

    def _recorded(self) -> dict[str, float]:
        recorded = self._process.recorded
        if not recorded:
            raise BrokerError(f"no broker has been started here: folder={self.folder}")
        return recorded

    def _java_command(self) -> list[str]:
        java_home = self._java_home or Path(JAVA_HOME.read_text().strip())
        return [*self._host.begin, str(java_home / "bin" / "java"), *JVM_OPTIONS, "-cp", f"{self._jars}/*"]

    def _write_properties(self, port: int, proxied_port: int, proxy_port: int) -> Path:
        controller_port = free_port(besides=port)
        listeners = [f"PLAINTEXT://{self._host.address}:{port}", f"CONTROLLER://127.0.0.1:{controller_port}"]
        advertised = [f"PLAINTEXT://{self._host.address}:{port}"]
        if proxied_port:
            listeners.append(f"PROXIED://127.0.0.1:{proxied_port}")
            advertised.append(f"PROXIED://{self._proxy_host}:{proxy_port}")
        own = {
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(advertised),
            "log.dirs": self._data.resolve(),
        }
        path = self.folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in {**SERVER_PROPERTIES, **own}.items()))
        return path

    def _admin(self) -> AdminClient:
        return AdminClient(
            {"bootstrap.servers": self.bootstrap, "log_level": 0, "topic.metadata.refresh.interval.ms": -1}
        )

    def _wait_ready(self) -> None:
        admin = self._admin()
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            code = self._process.exit_code
            if code is not None:
                raise BrokerError(f"the broker ended while starting: exit={code} log={self._log}")
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                time.sleep(POLL_SECONDS)
        raise BrokerError(f"the broker does not answer: seconds={START_SECONDS_MAX} log={self._log}")


def free_port(*, besides: int = 0) -> int:
    """A loopback port that nobody listens on."""
    for _ in range(PORT_TRIES_MAX):
        port = PORT_MIN + secrets.randbelow(PORT_MAX - PORT_MIN)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port != besides:
            return port
    raise BrokerError(f"no free port: from={PORT_MIN} to={PORT_MAX} tries={PORT_TRIES_MAX}")


def _wait_done(done: Future[None]) -> None:
    try:
        done.result(ADMIN_SECONDS_MAX)
    except KafkaException as error:
        raise _broker_error(error) from error
    except TimeoutError as error:
        raise BrokerError(f"the broker does not answer: seconds={ADMIN_SECONDS_MAX}") from error


def _broker_error(error: KafkaException) -> BrokerError:
    cause = error.args[0]
    return BrokerError(cause.str() if isinstance(cause, KafkaError) else str(cause))


def _wait_topic(admin: AdminClient, name: str, is_right: Callable[[list[int]], bool]) -> None:
    """Waits until the leaders of the topic's partitions (none: no such topic) are as wanted."""
    deadline = time.monotonic() + ADMIN_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            topic = admin.list_topics(timeout=ADMIN_SECONDS_MAX).topics.get(name)
        except KafkaException as error:
            raise _broker_error(error) from error
        leaders = [] if topic is None else [partition.leader for partition in topic.partitions.values()]
        if is_right(leaders):
            return
        time.sleep(POLL_SECONDS)
    raise BrokerError(f"the topic did not get ready: topic={name} seconds={ADMIN_SECONDS_MAX}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.broker", description="A single-node Kafka broker.")
    parser.add_argument("command", choices=("start", "stop", "kill", "restart"))
    parser.add_argument("--folder", type=Path, required=True, help="where its data, log and pid are")
    parser.add_argument("--port", type=int, default=0, help="loopback port for start; 0 takes a free one")
    arguments = parser.parse_args()
    broker = Broker(arguments.folder)
    try:
        match arguments.command:
            case "start":
                print(broker.start(arguments.port))
            case "restart":
                print(broker.restart())
            case "stop":
                broker.stop()
            case "kill":
                broker.kill()
    except BrokerError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
