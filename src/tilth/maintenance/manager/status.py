"""Status of ops: the row of one among the ops, and the row of a service. Values in, rows out.

Tests: tests/unit/maintenance/gc/test_log_gc.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilth.maintenance.manager.ranking import adjusted_score
from tilth.maintenance.settings import SchedulerSettings
from tilth.maintenance.state import NEVER_MS, newest
from tilth.maintenance.stats import OpRow
from tilth.maintenance.table.watch import TableWatch
from tilth.maintenance.work.op import Op
from tilth.model.service import ServiceState, ServiceStats, running_switch

#: The state of a service is the first of these that one of its ops has.
_ORDER = (
    ServiceState.STOPPED,
    ServiceState.RUNNING,
    ServiceState.FAILED,
    ServiceState.WAITING,
    ServiceState.IDLE,
)


def op_row(op: Op, settings: SchedulerSettings) -> OpRow:
    watch = op.watch
    return OpRow(
        name=op.name,
        kind=op.kind,
        database=watch.definition.database,
        table=watch.definition.name,
        uuid=watch.uuid,
        running=op.running,
        stats=op.observed,
        priority=watch.settings.priority,
        score=adjusted_score(op.observed, settings),
        damaged=watch.damaged.about() if op.kind.traits.skips_damaged else "",
    )


def service_stats(watch: TableWatch, ops: Sequence[Op], now_ms: int, *, server: str) -> ServiceStats:
    """Return the statistics of the ops of one service."""
    states = [op.state(now_ms) for op in ops]
    # It is stopped where all its ops are: a setting may turn off one of them.
    going = [each for each in states if each[0] is not ServiceState.STOPPED]
    state, reason, _ = min(going or states, key=lambda each: _ORDER.index(each[0]))
    if state is ServiceState.IDLE and len(states) > 1:
        reason = "; ".join(f"{op.kind}: {why}" for op, (_, why, _) in zip(ops, states, strict=True) if why)
    failures = [failure for _, _, failure in states if failure is not None]
    last = newest(failures)
    service = ops[0].kind.traits.service
    switch = watch.switch(service, now_ms)
    said = switch or running_switch(service)
    # A service that is stopped neither polls nor tries before its switch is over.
    starts_ms = 0 if watch.is_on(service, now_ms) else NEVER_MS if switch is None else switch.until_ms or NEVER_MS
    wakeup_ms = max(now_ms, starts_ms, min(op.due_ms for op in ops))
    retries_ms = [failure.until_ms for failure in failures if failure.until_ms > now_ms]
    attempt_ms = max(starts_ms, min(retries_ms, default=NEVER_MS))
    return ServiceStats(
        database=watch.definition.database,
        table=watch.definition.name,
        uuid=watch.uuid,
        service=service,
        switch=said.state,
        because=said.because,
        state=state.value,
        reason=reason,
        wakeups=sum(op.wakeups for op in ops),
        last_wakeup_ms=max(op.last_wakeup_ms for op in ops),
        running_tasks=sum(op.running for op in ops),
        failures=sum(failure.count for failure in failures),
        last_exception="" if last is None else last.reason,
        last_exception_ms=0 if last is None else last.at_ms,
        server=server,
        until_ms=said.until_ms,
        asked_by=said.query_id,
        asked_from=said.client,
        next_wakeup_ms=0 if wakeup_ms >= NEVER_MS else wakeup_ms,
        next_attempt_ms=0 if attempt_ms >= NEVER_MS else attempt_ms,
    )
