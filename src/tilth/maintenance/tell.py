"""What is told of one op: its row among the ops, and its service's row. Values in, rows out."""

from __future__ import annotations

from tilth.maintenance.op import Op, OpStats
from tilth.maintenance.scheduler import SchedulerSettings, adjusted_score
from tilth.maintenance.state import Failure, ServiceState
from tilth.maintenance.stats import OpRow
from tilth.maintenance.watch import TableWatch
from tilth.model.service import ServiceStats, SwitchState


def op_row(watch: TableWatch, op: Op, stats: OpStats, settings: SchedulerSettings) -> OpRow:
    """With what the op said of itself last."""
    return OpRow(
        name=op.name,
        kind=op.kind,
        database=watch.definition.database,
        table=watch.definition.name,
        uuid=watch.uuid,
        is_runnable=stats.is_runnable,
        running=op.running,
        logs_retained_bytes=stats.logs_retained_bytes,
        ram_anchored_bytes=stats.ram_anchored_bytes,
        data_retained_bytes=stats.data_retained_bytes,
        perf_improvement=stats.perf_improvement,
        workload_score=stats.workload_score,
        priority=watch.knobs.priority,
        score=adjusted_score(stats, settings),
        about=stats.about,
    )


def service_stats(watch: TableWatch, op: Op, now_ms: int, *, server: str, unseen: Failure | None) -> ServiceStats:
    """`unseen`: a failure to look at the op, of which the op itself does not know."""
    state, reason, failure = op.state(now_ms)
    if unseen is not None and state is not ServiceState.STOPPED:
        wait = max(0, unseen.until_ms - now_ms) / 1000
        state, failure = ServiceState.FAILED, unseen
        reason = f"{unseen.reason}; failed {unseen.count} times, next try in {wait:.0f} s"
    switch = watch.switch(op.service, now_ms)
    return ServiceStats(
        database=watch.definition.database,
        table=watch.definition.name,
        uuid=watch.uuid,
        service=op.service,
        switch=SwitchState.RUNNING if switch is None else switch.state,
        because="" if switch is None else switch.because,
        state=state.value,
        reason=reason,
        wakeups=op.wakeups,
        last_wakeup_ms=op.last_wakeup_ms,
        running_tasks=op.running,
        failures=0 if failure is None else failure.count,
        last_exception="" if failure is None else failure.reason,
        last_exception_ms=0 if failure is None else failure.at_ms,
        server=server,
        until_ms=0 if switch is None else switch.until_ms,
        asked_by="" if switch is None else switch.query_id,
    )
