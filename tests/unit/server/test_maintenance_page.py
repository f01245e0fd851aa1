"""The page of the maintenance manager. See docs/policies/scheduling.md#the-loop."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.app_transport import client_of
from tests.unit.fake_rooms import IDLE, FakeRooms, context_of
from tilth.maintenance import OpRun
from tilth.server import build_app
from tilth.server.maintenance_page import maintenance_html, maintenance_text

RUNNING = OpRun(name="MERGE(shop.orders)", about="p: 3 parts", thread_id=7, started_ms=9_000, ended_ms=0, error="")
BUSY = replace(
    IDLE,
    busy=2,
    running=(RUNNING, replace(RUNNING, thread_id=8, started_ms=9_500)),
    completed=(replace(RUNNING, ended_ms=9_250, error="no\tspace left\non device"),),
)


def test_three_tables_running_completed_and_all_registered() -> None:
    lines = maintenance_text(BUSY, now_ms=10_000).splitlines()
    assert lines == [
        "on; 2 of 4 threads busy; memory 1000 bytes, no limit",
        "",
        "Running operations",
        "op\tinstances\tthread_id\tmillis_since_start\tabout",
        "MERGE(shop.orders)\t2\t7\t1000\tp: 3 parts",
        "MERGE(shop.orders)\t2\t8\t500\tp: 3 parts",
        "",
        "Recently completed operations",
        "op\tthread_id\tduration_millis\tmillis_since_start\tabout\terror",
        "MERGE(shop.orders)\t7\t250\t1000\tp: 3 parts\tno space left on device",
        "",
        "Registered operations",
        "name\trunnable\trunning\tram_anchored_bytes\tlogs_retained_bytes\tdata_retained_bytes\tperf_improvement\t"
        "workload_score\tabout",
        "MERGE(shop.orders)\tfalse\t0\t0\t0\t0\t0\t0\tnothing <worth> merging",
    ]


def test_what_comes_from_tables_cannot_become_markup() -> None:
    page = maintenance_html(IDLE, now_ms=10_000)
    assert "nothing &lt;worth&gt; merging" in page
    assert "<worth>" not in page


def test_the_route_answers_a_page_or_text() -> None:
    with client_of(build_app(context_of(FakeRooms()))) as client:
        assert client.get("/maintenance-manager").headers["content-type"].startswith("text/html")
        raw = client.get("/maintenance-manager?raw")
    assert raw.headers["content-type"].startswith("text/plain")
    assert "Registered operations" in raw.text
