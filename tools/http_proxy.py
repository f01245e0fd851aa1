"""A proxy in front of an HTTP server that loses, delays or repeats calls, by rules.

    with HttpProxy(target) as proxy:
        rule = proxy.add(Fate.LOSE_ANSWER, "consumer/commit", times=3)

Covers: POST requests with a body, by the end of their path. Does not cover: streams, TLS. Always holds: without a rule
every request is passed on once; what a rule has done is counted.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

import httpx

DELAY_SECONDS = 1.0
_PASSED_ON = ("authorization", "content-type", "x-tilth-worker", "x-tilth-call", "origin")


class Fate(Enum):
    """Fate of a call."""

    #: It never arrives; its connection ends.
    LOSE_REQUEST = auto()
    #: It arrives and is done; its connection ends without the answer.
    LOSE_ANSWER = auto()
    #: It arrives late.
    DELAY = auto()
    #: It arrives twice at once; the caller gets the later answer.
    REPEAT = auto()


@dataclass(slots=True)
class Rule:
    """A fate for the next calls of one kind."""

    fate: Fate
    #: The end of the path.
    call: str
    left: int
    #: Calls that it has met.
    met: int = 0


class HttpProxy:
    """Listens on a free port until it is closed."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._client = httpx.Client(timeout=60, trust_env=False)
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                proxy._handle(self)

            def handle(self) -> None:
                # Clients close their connections as they like.
                with suppress(ConnectionError):
                    super().handle()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def add(self, fate: Fate, call: str, *, times: int = 1) -> Rule:
        """Give this fate to the next calls whose path ends so."""
        rule = Rule(fate, call, times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._client.close()
        self._thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("content-length", "0")))
        rule = self._rule_for(request.path)
        fate = None if rule is None else rule.fate
        if fate is Fate.LOSE_REQUEST:
            request.close_connection = True
            return
        if fate is Fate.DELAY:
            time.sleep(DELAY_SECONDS)
        try:
            if fate is Fate.REPEAT:
                other = threading.Thread(target=self._pass_on, args=(request, body), daemon=True)
                other.start()
                answer = self._pass_on(request, body)
                other.join()
            else:
                answer = self._pass_on(request, body)
        except httpx.HTTPError:
            request.close_connection = True
            return
        if fate is Fate.LOSE_ANSWER:
            request.close_connection = True
            return
        request.send_response(answer.status_code)
        request.send_header("content-type", answer.headers.get("content-type", ""))
        request.send_header("content-length", str(len(answer.content)))
        request.end_headers()
        request.wfile.write(answer.content)

    def _pass_on(self, request: BaseHTTPRequestHandler, body: bytes) -> httpx.Response:
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        return self._client.post(f"{self._target}{request.path}", content=body, headers=headers)

    def _rule_for(self, path: str) -> Rule | None:
        with self._lock:
            for rule in self._rules:
                if rule.left and path.endswith(rule.call):
                    rule.left -= 1
                    rule.met += 1
                    return rule
        return None
