"""Spans of what this process does, for OpenTelemetry; off unless `trace.endpoint` is set.

Covers: what code calls to begin and end a span, its settings, its counters. Does not cover: the library
(opentelemetry_spans.py, which is imported only where traces are on), attributes' names beyond those of spans here.
Always holds: while traces are off, a span costs one comparison; a span never fails, waits for, or changes what it
describes.

    with tracing.span("commit", tables=2):          a span of its own, or a part of the span that is current
    with tracing.part("parse"):                     a part of the span that is current; nothing where there is none

See also: docs/operate/traces.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from tilth.base.installed import require
from tilth.base.logs import log_context
from tilth.base.metrics import counter
from tilth.base.settings import TraceSettings

# Values of OpenTelemetry.
Attribute = str | bool | int | float

#: Modules of the libraries in the extra `otel`.
_LIBRARIES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
#: Parent of a span that is not recorded, nor are its parts.
UNTRACED = "-"
#: W3C's header with the span that a request is a part of.
TRACE_HEADER = "traceparent"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStats:
    """Numbers of spans that were sent and dropped. A frozen snapshot."""

    sent: int = counter("tilth_trace_spans_sent_total", "Spans that the collector of traces has accepted.")
    dropped: int = counter(
        "tilth_trace_spans_dropped_total",
        "Spans that were dropped, because the collector of traces is slow, away or refuses them.",
    )


class Span(Protocol):
    """Work under way, timed from its begin to its end."""

    @property
    def traceparent(self) -> str:
        """Id for other processes, as W3C's header has it; empty: there is none."""

    @property
    def trace_id(self) -> str: ...

    def set(self, **attributes: Attribute) -> None:
        """Add attributes; a name with two underscores has a dot there."""

    def fail(self, error: BaseException) -> None:
        """Note that it failed, and with which code."""

    def end(self) -> None:
        """End it; a second call does nothing."""


class Tracer(Protocol):
    """Begins spans."""

    def begin(self, name: str, *, parent: str, attributes: Mapping[str, Attribute]) -> Span: ...

    def current(self) -> Span | None:
        """Return the span that this thread works for."""

    @contextmanager
    def using(self, span: Span) -> Iterator[None]:
        """Make the span current on this thread."""

    def stats(self) -> TraceStats: ...

    def stop(self) -> None:
        """Send the spans that wait, within two seconds, and end."""


class _NoSpan:
    """Span while traces are off."""

    traceparent = ""
    trace_id = ""

    def set(self, **attributes: Attribute) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        pass

    def end(self) -> None:
        pass

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *error: object) -> None:
        pass


NO_SPAN = _NoSpan()

_tracer: Tracer | None = None


def set_up(settings: TraceSettings, **names: str) -> None:
    """Begin to trace if the settings have a collector; `names`: the process, as `server` or `worker`. Raises
    UnavailableError (NOT_INSTALLED).
    """
    global _tracer
    stop()
    if not settings.endpoint:
        return
    require(_LIBRARIES, extra="otel", purpose="the setting trace.endpoint")
    from tilth.base.opentelemetry_spans import OpenTelemetryTracer

    _tracer = OpenTelemetryTracer(settings.endpoint, settings.sample_ratio, names)


def stop() -> None:
    """End traces; does nothing where they are off."""
    global _tracer
    tracer, _tracer = _tracer, None
    if tracer is not None:
        tracer.stop()


def stats() -> TraceStats:
    return TraceStats() if _tracer is None else _tracer.stats()


def begin(name: str, *, parent: str = "", **attributes: Attribute) -> Span:
    """Begin a span that `end` ends, perhaps on another thread. `parent`: the traceparent of another process or thread;
    empty: the span that is current, if there is one.
    """
    if _tracer is None or parent == UNTRACED:
        return NO_SPAN
    return _tracer.begin(name, parent=parent, attributes=attributes)


@contextmanager
def using(span: Span) -> Iterator[None]:
    """Make the span current on this thread: its lines of the log name it, and its parts belong to it."""
    tracer = _tracer
    if tracer is None or span is NO_SPAN:
        yield
        return
    with tracer.using(span), log_context(trace_id=span.trace_id):
        yield


@contextmanager
def _within(span: Span) -> Iterator[Span]:
    try:
        with using(span):
            yield span
    except BaseException as error:
        span.fail(error)
        raise
    finally:
        span.end()


def span(name: str, *, parent: str = "", **attributes: Attribute) -> AbstractContextManager[Span]:
    """Return the context of a span: it is current inside, and fails with what is raised."""
    if _tracer is None or parent == UNTRACED:
        return NO_SPAN
    return _within(_tracer.begin(name, parent=parent, attributes=attributes))


def part(name: str, **attributes: Attribute) -> AbstractContextManager[Span]:
    """Return the context of a part of the current span; nothing is recorded where there is none."""
    if _tracer is None or _tracer.current() is None:
        return NO_SPAN
    return _within(_tracer.begin(name, parent="", attributes=attributes))


def traceparent() -> str:
    """Return the id of the current span for another process; empty: there is none."""
    if _tracer is None:
        return ""
    current = _tracer.current()
    return "" if current is None else current.traceparent
