"""A collector of traces: OTLP over HTTP on a port of this machine, which can be slow, refuse, or be gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True)
class SpanSeen:
    """A span as it came over the wire."""

    name: str
    trace: str
    id: str
    #: Empty: it is the first of its trace, or its parent is elsewhere.
    parent: str
    attributes: dict[str, object]
    is_failed: bool
    #: Attributes of the process.
    resource: dict[str, object]


class Collector:
    """Use it as a context manager."""

    def __init__(self) -> None:
        self.spans: list[SpanSeen] = []
        self.paths: set[str] = set()
        #: Status of answers, and seconds before each.
        self.status, self.delay = 200, 0.0
        self._over = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector._over.wait(collector.delay)
                if collector.status == 200:
                    collector._add(self.path, self.headers.get("content-encoding", ""), body)
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def wait_for(self, is_there: Callable[[list[SpanSeen]], bool], *, seconds: float = 20.0) -> list[SpanSeen]:
        """The spans, as soon as they are enough."""
        deadline = time.monotonic() + seconds  # noqa: TID251 - it waits for a thread of a library
        while not is_there(self.spans):
            assert time.monotonic() < deadline, [span.name for span in self.spans]  # noqa: TID251 - as above
            self._over.wait(0.02)
        return list(self.spans)

    def _add(self, path: str, encoding: str, body: bytes) -> None:
        assert encoding in ("", "identity"), encoding
        self.paths.add(path)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = _values(resource.resource.attributes)
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        SpanSeen(
                            name=span.name,
                            trace=span.trace_id.hex(),
                            id=span.span_id.hex(),
                            parent=span.parent_span_id.hex(),
                            attributes=_values(span.attributes),
                            is_failed=span.status.code == 2,
                            resource=names,
                        )
                    )


# Any: messages of protobuf.
def _values(attributes: Any) -> dict[str, object]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
