"""The page of the maintenance manager: what runs, what ran last, and every op as it was weighed last.

Covers: the page as HTML and as text. Does not cover: where the numbers come from (maintenance's `status`).
Source: docs/policies/scheduling.md#the-loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from tilth.maintenance import ManagerStatus, OpRun

_OPS = (
    "name",
    "runnable",
    "running",
    "ram_anchored_bytes",
    "logs_retained_bytes",
    "data_retained_bytes",
    "perf_improvement",
    "workload_score",
    "about",
)
_RUNNING = ("op", "instances", "thread_id", "millis_since_start", "about")
_COMPLETED = ("op", "thread_id", "duration_millis", "millis_since_start", "about", "error")
_STYLE = "body{font-family:sans-serif} table{border-collapse:collapse} td,th{border:1px solid #ccc;padding:2px 6px}"


@dataclass(frozen=True, slots=True)
class _Section:
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def maintenance_text(status: ManagerStatus, now_ms: int) -> str:
    """Format the page as lines of text with tabs between fields."""
    return "\n".join(_text_lines(status, now_ms)) + "\n"


def maintenance_html(status: ManagerStatus, now_ms: int) -> str:
    tables = "".join(
        f"<h2>{escape(each.title)}</h2><table>{_row('th', each.columns)}"
        f"{''.join(_row('td', row) for row in each.rows)}</table>"
        for each in _sections(status, now_ms)
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Maintenance manager</title>'
        f"<style>{_STYLE}</style></head><body><h1>Maintenance manager</h1><p>{escape(_summary(status))}</p>{tables}"
        "</body></html>"
    )


def _text_lines(status: ManagerStatus, now_ms: int) -> Iterator[str]:
    yield _summary(status)
    for section in _sections(status, now_ms):
        yield ""
        yield section.title
        yield "\t".join(section.columns)
        for row in section.rows:
            yield "\t".join(" ".join(value.split()) for value in row)


def _summary(status: ManagerStatus) -> str:
    switch = "on" if status.is_enabled else "off"
    limit = "no limit" if status.memory_limit is None else f"of {status.memory_limit} bytes"
    return f"{switch}; {status.busy} of {status.threads} threads busy; memory {status.memory_used} bytes, {limit}"


def _sections(status: ManagerStatus, now_ms: int) -> tuple[_Section, ...]:
    return (
        _Section("Running operations", _RUNNING, [_running_row(run, status, now_ms) for run in status.running]),
        _Section(
            "Recently completed operations", _COMPLETED, [_completed_row(run, now_ms) for run in status.completed]
        ),
        _Section(
            "Registered operations",
            _OPS,
            [
                (
                    op.name,
                    str(op.stats.is_runnable).lower(),
                    str(op.running),
                    str(op.stats.ram_anchored_bytes),
                    str(op.stats.logs_retained_bytes),
                    str(op.stats.data_retained_bytes),
                    f"{op.stats.perf_improvement:.6g}",
                    f"{op.stats.workload_score:.6g}",
                    op.stats.about,
                )
                for op in status.registered
            ],
        ),
    )


def _running_row(run: OpRun, status: ManagerStatus, now_ms: int) -> tuple[str, ...]:
    instances = sum(other.name == run.name for other in status.running)
    return (run.name, str(instances), str(run.thread_id), str(now_ms - run.started_ms), run.about)


def _completed_row(run: OpRun, now_ms: int) -> tuple[str, ...]:
    return (
        run.name,
        str(run.thread_id),
        str(run.ended_ms - run.started_ms),
        str(now_ms - run.started_ms),
        run.about,
        run.error,
    )


def _row(tag: str, values: Sequence[str]) -> str:
    cells = "".join(f"<{tag}>{escape(value)}</{tag}>" for value in values)
    return f"<tr>{cells}</tr>"
