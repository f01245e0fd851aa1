"""A TCP proxy in front of a Kafka broker that loses, delays, cuts or changes answers to requests of one kind, by rules.

    proxy = KafkaProxy()
    broker.start(proxy_port=proxy.port)        the broker advertises the proxy's port to those who come through it
    proxy.connect(broker.proxied_port)
    rule = proxy.add(Rule(Api.LIST_OFFSETS, Fate.DROP, client="k1"))
    ...
    proxy.remove(rule)

Covers: request kinds by the header of the protocol (api key, correlation id, client id), brokers named by metadata.
Does not cover: other bodies of requests and answers, TLS. Always holds: without a rule every byte passes unchanged and
in order; a request always reaches the broker, a rule is about its answer.
"""

from __future__ import annotations

import socket
import struct
import threading
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto

from tools.broker import free_port

CONNECT_SECONDS_MAX = 5.0
_ACCEPT_SECONDS = 0.2
_SIZE = struct.Struct(">i")
#: Api key, api version, correlation id, length of the client id (-1: none).
_REQUEST = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")
#: Versions of METADATA from here on have compact arrays and tagged fields.
_COMPACT_METADATA = 9


class Api(IntEnum):
    """Kinds of requests; the values are those of the protocol."""

    FETCH = 1
    LIST_OFFSETS = 2
    #: Metadata of topics and brokers; describe_topics uses it too.
    METADATA = 3
    OFFSET_COMMIT = 8
    FIND_COORDINATOR = 10
    API_VERSIONS = 18
    OFFSET_FOR_LEADER_EPOCH = 23


class Fate(Enum):
    """Fate of an answer."""

    #: It never arrives; those behind it do.
    DROP = auto()
    #: It arrives late, and with it all that follow on its connection.
    DELAY = auto()
    #: Half of it arrives, then the connection ends.
    CUT = auto()
    #: Of METADATA alone: it names no broker, as that of a broker that waits for its controller.
    NO_BROKERS = auto()


@dataclass(slots=True)
class Rule:
    """Fate of the answers to one kind of request."""

    api: Api
    fate: Fate
    #: Id of the only client that it concerns; empty: all clients.
    client: str = ""
    #: Duration of a DELAY.
    seconds: float = 0.0
    #: Number of answers that met this fate.
    hits: int = 0


@dataclass(slots=True)
class _Link:
    """One connection of a client, and the one to the broker behind it."""

    client: socket.socket
    broker: socket.socket
    #: Api key, its version and client id of the requests that wait for their answers, by correlation id.
    pending: dict[int, tuple[int, int, str]] = field(default_factory=dict)

    def close(self) -> None:
        for each in (self.client, self.broker):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                # It has ended already.
                each.close()
            each.close()


class KafkaProxy:
    """Listens on a loopback port; use it as a context manager, or close it."""

    def __init__(self) -> None:
        self.port = free_port()
        self._target = 0
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._links: list[_Link] = []
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listener.settimeout(_ACCEPT_SECONDS)
        self._start(self._accept)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def connect(self, port: int) -> None:
        """Lead connections to the broker's listener on this port, from now on."""
        self._target = port

    def add(self, rule: Rule) -> Rule:
        """The rule holds until it is removed; the first rule that fits an answer decides."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def remove(self, *rules: Rule) -> None:
        with self._lock:
            self._rules = [each for each in self._rules if all(each is not rule for rule in rules)]

    def close(self) -> None:
        """Ends all connections and threads."""
        self._closing.set()
        self._listener.close()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()
        for thread in self._threads:
            thread.join(CONNECT_SECONDS_MAX)

    def __enter__(self) -> KafkaProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- connections -------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(("127.0.0.1", self._target), CONNECT_SECONDS_MAX)
        except OSError:
            client.close()
            return
        client.settimeout(None)
        broker.settimeout(None)
        for each in (client, broker):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(client, broker)
        with self._lock:
            self._links.append(link)
        self._start(self._answers, link)
        try:
            self._requests(link)
        finally:
            link.close()
            with self._lock:
                self._links.remove(link)

    def _requests(self, link: _Link) -> None:
        while (frame := _frame(link.client)) is not None:
            api, version, correlation, length = _REQUEST.unpack_from(frame)
            name = frame[_REQUEST.size : _REQUEST.size + max(0, length)].decode()
            link.pending[correlation] = (api, version, name)
            if not _send(link.broker, frame):
                return

    def _answers(self, link: _Link) -> None:
        while (frame := _frame(link.broker)) is not None:
            api, version, client = link.pending.pop(_CORRELATION.unpack_from(frame)[0], (-1, -1, ""))
            rule = self._rule(api, client)
            match None if rule is None else rule.fate:
                case Fate.DROP:
                    continue
                case Fate.DELAY:
                    assert rule is not None
                    self._closing.wait(rule.seconds)
                case Fate.CUT:
                    _send(link.client, frame, sent=len(frame) // 2)
                    break
                case Fate.NO_BROKERS:
                    frame = _without_brokers(frame, version)
            if not _send(link.client, frame):
                break
        link.close()

    def _rule(self, api: int, client: str) -> Rule | None:
        with self._lock:
            for rule in self._rules:
                if rule.api == api and rule.client in ("", client):
                    rule.hits += 1
                    return rule
        return None

    def _start(self, act: object, *args: object) -> None:
        assert callable(act)
        thread = threading.Thread(target=act, args=args, name="kafka-proxy", daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()


def _without_brokers(frame: bytes, version: int) -> bytes:
    """The answer METADATA without its brokers: correlation id, tags, throttling, then their compact array."""
    assert version >= _COMPACT_METADATA, version
    begin = _CORRELATION.size + 1 + _CORRELATION.size
    position, count = begin + 1, frame[begin] - 1
    for _ in range(count):
        # Node id, host, port, rack (0: none), no tags; texts and lists of fewer than 127 have lengths of one byte.
        position += _CORRELATION.size
        position += frame[position] + _CORRELATION.size
        position += max(1, frame[position]) + 1
    return frame[:begin] + b"\x01" + frame[position:]


def _frame(source: socket.socket) -> bytes | None:
    """The next request or answer without its size; None at the connection's end."""
    size = _exactly(source, _SIZE.size)
    return None if size is None else _exactly(source, _SIZE.unpack(size)[0])


def _exactly(source: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            more = source.recv(min(1 << 16, size - len(data)))
        except OSError:
            return None
        if not more:
            return None
        data += more
    return bytes(data)


def _send(target: socket.socket, frame: bytes, *, sent: int | None = None) -> bool:
    """Sends a frame, or its beginning; False where the connection has ended."""
    try:
        target.sendall(_SIZE.pack(len(frame)) + frame[:sent])
    except OSError:
        return False
    return True
