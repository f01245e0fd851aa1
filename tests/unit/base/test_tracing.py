"""Spans reach a collector, and one that hangs, refuses or is away holds up nobody."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from timeit import timeit

import pytest

from tests.otlp_collector import Collector
from tests.waiting import wait_until
from tilth.base import logs, opentelemetry_spans, tracing
from tilth.base.clock import SystemClock
from tilth.base.errors import InvalidInputError, UnavailableError
from tilth.base.logs import Log
from tilth.base.opentelemetry_spans import BATCH_MAX, QUEUE_MAX, url_of
from tilth.base.settings import BadSettingError, LogFormat, LogSettings, TraceSettings, read_settings
from tilth.base.tracing import NO_SPAN, UNTRACED, TraceStats

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOT_SAMPLED = f"{PARENT[:-2]}00"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setattr(opentelemetry_spans, "SEND_SECONDS", 0.05)
    with Collector() as made:
        tracing.set_up(TraceSettings(endpoint=made.url), server="a")
        yield made
        made.delay = 0.0
        tracing.stop()


def check_stats(expected: TraceStats) -> None:
    """Spans are counted when the answer of the collector is there."""
    wait_until(lambda: tracing.stats() == expected, lambda: str(tracing.stats()))


def test_parts_belong_to_the_span_that_is_current(collector: Collector) -> None:
    with tracing.span("statement", parent=PARENT, db__namespace="shop") as statement:
        with tracing.part("parse", tilth__rows=3):
            assert tracing.traceparent() != statement.traceparent
        assert tracing.traceparent() == statement.traceparent
    parse, outer = collector.wait_for(lambda spans: len(spans) == 2)
    assert (outer.name, outer.trace, outer.parent) == ("statement", PARENT[3:35], PARENT[36:52])
    assert (parse.name, parse.trace, parse.parent) == ("parse", outer.trace, outer.id)
    assert (outer.attributes, parse.attributes) == ({"db.namespace": "shop"}, {"tilth.rows": 3})
    assert statement.traceparent == f"00-{outer.trace}-{outer.id}-01"
    assert outer.resource["service.name"] == "tilth"
    assert outer.resource["service.instance.id"] == outer.resource["tilth.server"] == "a"
    assert collector.paths == {"/v1/traces"}
    check_stats(TraceStats(sent=2, dropped=0))


def test_a_span_goes_on_in_another_thread_and_process(collector: Collector) -> None:
    with tracing.span("statement"):
        sent = tracing.traceparent()
    thread = threading.Thread(target=lambda: tracing.begin("task", parent=sent).end())
    thread.start()
    thread.join()
    statement, task = collector.wait_for(lambda spans: len(spans) == 2)
    assert (task.trace, task.parent) == (statement.trace, statement.id)


def test_an_error_has_its_code_and_no_message(collector: Collector) -> None:
    with pytest.raises(InvalidInputError), tracing.span("statement"), tracing.part("parse"):
        raise InvalidInputError("the card 4711 is not a number")
    with pytest.raises(ZeroDivisionError), tracing.span("other"):
        _ = 1 / 0
    spans = collector.wait_for(lambda spans: len(spans) == 3)
    assert all(each.is_failed for each in spans)
    assert [each.attributes["error.type"] for each in spans] == ["INVALID_INPUT", "INVALID_INPUT", "ZeroDivisionError"]
    assert "4711" not in str(spans)


def test_hostile_parents_and_values(collector: Collector) -> None:
    for parent in ("nonsense", "00-\ud800", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 1_000_000, "\n"):
        tracing.begin("odd", parent=parent).end()
    tracing.begin("values", text="\ud800\n\x00" + "x" * 1_000_000, large=2**80, nan=float("nan")).end()
    spans = collector.wait_for(lambda spans: len(spans) == 6)
    assert {each.parent for each in spans} == {""}
    text = str(spans[-1].attributes["text"])
    assert text.startswith("\\ud800\n\x00x")
    assert len(text) < 11_000
    assert spans[-1].attributes["large"] == str(2**80)


def test_a_parent_decides_whether_its_parts_are_sent(collector: Collector) -> None:
    with tracing.span("not sampled", parent=NOT_SAMPLED), tracing.part("nor its part"):
        assert tracing.traceparent().endswith("-00")
    with tracing.span("untraced", parent=UNTRACED), tracing.part("nor its part"):
        assert tracing.traceparent() == ""
    with tracing.part("without a span"):
        pass
    tracing.begin("sent").end()
    [sent] = collector.wait_for(lambda spans: bool(spans))
    assert sent.name == "sent"


def test_a_share_of_traces_is_sent(collector: Collector) -> None:
    tracing.set_up(TraceSettings(endpoint=collector.url, sample_ratio=0.0))
    tracing.begin("left out").end()
    tracing.begin("asked for", parent=PARENT).end()
    [sent] = collector.wait_for(lambda spans: bool(spans))
    assert sent.name == "asked for"


def test_lines_of_the_log_name_the_trace(collector: Collector, tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    logs.set_up(level="info", path=str(path), settings=LogSettings(format=LogFormat.JSON))
    try:
        with tracing.span("statement", parent=PARENT):
            Log("test").info("inside")
        Log("test").info("outside")
    finally:
        logs.set_up(level="info", path=None)
    inside, outside = (json.loads(line) for line in path.read_text().splitlines())
    assert inside["trace_id"] == PARENT[3:35]
    assert "trace_id" not in outside


def test_a_collector_that_hangs_holds_up_nobody(collector: Collector) -> None:
    collector.delay = 30.0
    clock = SystemClock()
    begun = clock.monotonic()
    for _ in range(QUEUE_MAX + 2 * BATCH_MAX):
        with tracing.span("statement"):
            pass
    assert clock.monotonic() - begun < 5.0
    dropped = tracing.stats().dropped
    # One request is under way, and the queue is full.
    assert BATCH_MAX <= dropped <= 2 * BATCH_MAX
    begun = clock.monotonic()
    tracing.stop()
    assert clock.monotonic() - begun < 4.0


def test_spans_that_are_refused_are_counted_and_the_next_ones_are_sent(collector: Collector) -> None:
    collector.status = 400
    tracing.begin("refused").end()
    check_stats(TraceStats(sent=0, dropped=1))
    collector.status = 200
    tracing.begin("sent").end()
    collector.wait_for(lambda spans: [each.name for each in spans] == ["sent"])


def test_nothing_is_done_while_traces_are_off() -> None:
    assert tracing.begin("statement") is NO_SPAN
    nothing: list[object] = [tracing.span("statement"), tracing.part("parse")]
    assert nothing == [NO_SPAN, NO_SPAN]
    with tracing.span("statement") as span, tracing.using(span):
        span.set(rows=1)
        span.fail(ValueError())
        span.end()
        assert tracing.traceparent() == ""
    assert tracing.stats() == TraceStats()

    def off() -> None:
        with tracing.part("parse"):
            pass

    # Microseconds at most, on a machine that does much else, too.
    assert min(timeit(off, number=1_000) for _ in range(5)) < 0.02


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(UnavailableError) as refused:
        tracing.set_up(TraceSettings(endpoint="http://localhost:4318"))
    assert refused.value.code == "NOT_INSTALLED"
    assert "tilth[otel]" in refused.value.hint
    assert "opentelemetry.sdk" in refused.value.message
    assert tracing.begin("statement") is NO_SPAN


def test_settings_are_checked() -> None:
    assert read_settings(TraceSettings, {}) == TraceSettings(endpoint="", sample_ratio=1.0)
    assert read_settings(TraceSettings, {"trace.endpoint": " http://c:4318/ "}).endpoint == "http://c:4318"
    for name, text in (("trace.endpoint", "c:4318"), ("trace.sample-ratio", "1.1"), ("trace.sample-ratio", "nan")):
        with pytest.raises(BadSettingError, match=name):
            read_settings(TraceSettings, {name: text})
    assert url_of("http://c:4318") == "http://c:4318/v1/traces"
    assert url_of("https://c/custom/path") == "https://c/custom/path"


def test_the_service_is_named_by_opentelemetrys_variables(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "lake")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    tracing.set_up(TraceSettings(endpoint=collector.url), worker="w1")
    tracing.begin("named").end()
    [span] = collector.wait_for(lambda spans: bool(spans))
    assert span.resource["service.name"] == "lake"
    assert span.resource["deployment.environment"] == "test"
    assert span.resource["tilth.worker"] == "w1"
