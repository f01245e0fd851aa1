"""Spans by the libraries of OpenTelemetry, sent as OTLP over HTTP; imported only where traces are on.

Covers: the one module that knows the library: spans, their context, sampling, a bounded queue on its way to the
collector. Does not cover: which spans there are (tracing.py and its callers).
Always holds: ending a span never waits: where the queue is full, or the collector is slow, away or refuses, spans are
dropped and counted; the collector is called on one thread of its own, within `SEND_SECONDS_MAX`.

Tests: tests/unit/base/test_tracing.py.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from urllib.parse import urlsplit

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tilth.base.errors import TilthError
from tilth.base.json_lines import unicode_text
from tilth.base.logs import Log
from tilth.base.tracing import TRACE_HEADER, Attribute, Span, TraceStats

#: Spans that wait for the collector, and those of one request.
QUEUE_MAX, BATCH_MAX = 4_096, 512
#: Interval of requests, and the time limit of each.
SEND_SECONDS, SEND_SECONDS_MAX = 1.0, 5.0
#: Time for the last request when the process ends.
STOP_SECONDS_MAX = 2.0
#: Characters of a text; a statement may have megabytes.
TEXT_MAX = 10_000

_PATH = "/v1/traces"
_SERVICE = "service.name"

_log = Log("trace")
_propagator = TraceContextTextMapPropagator()


class OpenTelemetryTracer:
    """Spans of this process on their way to a collector."""

    def __init__(
        self, endpoint: str, sample_ratio: float, names: Mapping[str, str], *, exporter: SpanExporter | None = None
    ) -> None:
        """`exporter`: another one than OTLP's."""
        self._queue = _SpanQueue(exporter or OTLPSpanExporter(url_of(endpoint), timeout=SEND_SECONDS_MAX), endpoint)
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(sample_ratio)), resource=_resource(names), shutdown_on_exit=False
        )
        self._provider.add_span_processor(self._queue)
        self._tracer = self._provider.get_tracer("tilth", version("tilth"))
        self._key = contexts.create_key("tilth-span")

    def begin(self, name: str, *, parent: str, attributes: Mapping[str, Attribute]) -> Span:
        # A header that is not valid gives no parent.
        context: Context | None = _propagator.extract({TRACE_HEADER: parent}, Context()) if parent else None
        begun = _OpenTelemetrySpan(self._tracer.start_span(name, context))
        begun.set(**attributes)
        return begun

    def current(self) -> Span | None:
        found = contexts.get_value(self._key)
        return found if isinstance(found, _OpenTelemetrySpan) else None

    @contextmanager
    def using(self, span: Span) -> Iterator[None]:
        assert isinstance(span, _OpenTelemetrySpan)
        token = contexts.attach(contexts.set_value(self._key, span, trace.set_span_in_context(span.inner)))
        try:
            yield
        finally:
            contexts.detach(token)

    def stats(self) -> TraceStats:
        return self._queue.stats()

    def stop(self) -> None:
        self._queue.stop()


class _OpenTelemetrySpan:
    """A span of the library."""

    def __init__(self, inner: trace.Span) -> None:
        self.inner = inner

    @property
    def traceparent(self) -> str:
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, trace.set_span_in_context(self.inner, Context()))
        return carrier.get(TRACE_HEADER, "")

    @property
    def trace_id(self) -> str:
        return trace.format_trace_id(self.inner.get_span_context().trace_id)

    def set(self, **attributes: Attribute) -> None:
        for name, value in attributes.items():
            self.inner.set_attribute(name.replace("__", "."), _valid(value))

    def fail(self, error: BaseException) -> None:
        code = error.code if isinstance(error, TilthError) else type(error).__name__
        self.inner.set_attribute("error.type", code)
        # The message may quote values of rows.
        self.inner.set_status(trace.Status(trace.StatusCode.ERROR, code))

    def end(self) -> None:
        if self.inner.is_recording():
            self.inner.end()


class _SpanQueue(SpanProcessor):
    """Spans that have ended, until a thread has sent them."""

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        # The library logs each failure with its traceback; here one line reports it.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._exporter = exporter
        self._endpoint = endpoint
        self._spans = queue.Queue[ReadableSpan](QUEUE_MAX)
        self._lock = threading.Lock()
        self._sent = self._dropped = 0
        self._is_failing = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tilth-traces", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        try:
            self._spans.put_nowait(span)
        except queue.Full:
            with self._lock:
                self._dropped += 1

    def stats(self) -> TraceStats:
        with self._lock:
            return TraceStats(sent=self._sent, dropped=self._dropped)

    def stop(self) -> None:
        """Send the spans that wait; give up on a collector that hangs."""
        self._stopping.set()
        self._thread.join(STOP_SECONDS_MAX)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._stopping.wait(SEND_SECONDS)
            while batch := self._batch():
                self._send(batch)
        self._exporter.shutdown()

    def _batch(self) -> list[ReadableSpan]:
        batch: list[ReadableSpan] = []
        while len(batch) < BATCH_MAX:
            try:
                batch.append(self._spans.get_nowait())
            except queue.Empty:
                break
        return batch

    def _send(self, batch: list[ReadableSpan]) -> None:
        reason = "it has refused them, or did not answer in time"
        try:
            is_sent = self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception as error:
            # A library's own: the thread has to go on.
            is_sent, reason = False, f"{type(error).__name__}: {error}"
        with self._lock:
            self._sent += len(batch) * is_sent
            self._dropped += len(batch) * (not is_sent)
        if not is_sent and not self._is_failing:
            _log.warning("traces_not_sent", endpoint=self._endpoint, spans=len(batch), reason=reason)
        if is_sent and self._is_failing:
            _log.info("traces_sent_again", endpoint=self._endpoint)
        self._is_failing = not is_sent


def url_of(endpoint: str) -> str:
    """Return the URL of a collector's traces."""
    return endpoint if urlsplit(endpoint).path.strip("/") else f"{endpoint}{_PATH}"


def _resource(names: Mapping[str, str]) -> Resource:
    """Describe the process; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES count before what Tilth would say."""
    given = OTELResourceDetector().detect()
    own = {_SERVICE: "tilth", "service.version": version("tilth")}
    for name, text in names.items():
        own |= {f"tilth.{name}": text, "service.instance.id": text}
    return Resource.create(own).merge(given)


def _valid(value: Attribute) -> Attribute:
    """Return the value as OTLP can carry it: UTF-8 of bounded length, integers of 64 bits."""
    if isinstance(value, str):
        return unicode_text(value[:TEXT_MAX])
    if isinstance(value, int) and abs(value) >= 2**63:
        return str(value)
    return value
