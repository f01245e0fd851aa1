"""Metrics for Prometheus: the rooms' numbers, read at each scrape.

Covers: names, labels and texts of all metrics, and the samples made of the rooms' stats. Does not cover: counting,
which each room does. Always holds: METRICS is complete, beside `process_*`; a room whose numbers cannot be read in time
loses only its own metrics, and `tilth_metrics_source_up` is 0 for it.
See also: docs/reference/metrics.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, assert_never

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client import Metric as Family
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from tilth.base.bounded_calls import BoundedCalls, CallAnswered, CallFailed, CallSilent
from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.base.metrics import Metric, MetricType, metrics_of
from tilth.base.tracing import TraceStats
from tilth.base.units import show_time
from tilth.catalog import CatalogStats
from tilth.control.insert_batches import InsertStats
from tilth.control.pipe_stats import PipeStats
from tilth.control.resends import StatementStats
from tilth.ingest import ConsumerStats, ReplayStats
from tilth.introspection.alarms.alarm import Alarm
from tilth.introspection.numbers import ServerNumbers, TableNumbers
from tilth.maintenance import RUN_MILLISECONDS, MaintenanceNumbers, OpKind, OpNumbers
from tilth.model.service import ServiceStats
from tilth.model.task import TaskInfo
from tilth.query.worker.query_cache import QueryCacheStats
from tilth.server.stats import SECONDS, HttpCounters, HttpStats
from tilth.warehouse import WarehouseStats

#: Time limit for reading all rooms together, so that a request is answered within a second even if a room hangs.
SOURCE_SECONDS_MAX = 0.7

_log = Log("server")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TotalAndCount:
    """The value of a summary."""

    count: int
    total: float


@dataclass(frozen=True, slots=True)
class Buckets:
    """The value of a histogram."""

    ends: Sequence[float]
    #: One more than ends.
    counts: Sequence[int]
    total: float


Value = float | Buckets | TotalAndCount
#: A metric, its labels' values, and what it is now.
Sample = tuple[Metric, tuple[str, ...], Value]

_GAUGE, _COUNTER = MetricType.GAUGE, MetricType.COUNTER
_TABLE = ("database", "table")
_SERVICE = (*_TABLE, "service")
_TOPIC_PARTITION = (*_TABLE, "topic", "partition")
_CONSUMER = (*_TABLE, "consumer")

SOURCE_UP = Metric("tilth_metrics_source_up", _GAUGE, ("source",), "1 if the room's numbers could be read, else 0.")

FINDINGS = Metric(
    "tilth_alarms",
    _GAUGE,
    ("alarm", "severity"),
    "Findings of the alarm, as in system.alarms, that this server reports; 0: all is well. An alarm is left out while "
    "the catalog that it needs is away.",
)

SERVICE_STATE = Metric(
    "tilth_service_state", _GAUGE, (*_SERVICE, "state"), "1 for the state that the background service is in, else 0."
)
SERVICE_WAKEUPS = Metric("tilth_service_wakeups_total", _COUNTER, _SERVICE, "How often the service checked for work.")
SERVICE_FAILURES = Metric("tilth_service_failures", _GAUGE, _SERVICE, "Failures, as in system.bg_threads.")
SERVICE_TASKS = Metric("tilth_service_running_tasks", _GAUGE, _SERVICE, "Tasks of the service on workers now.")

INGEST_LAG = Metric(
    "tilth_ingest_lag_messages",
    _GAUGE,
    _TOPIC_PARTITION,
    "Messages behind the stored offset; NaN: the end is not known now.",
)
INGEST_LAG_AGE = Metric(
    "tilth_ingest_lag_age_seconds",
    _GAUGE,
    _TOPIC_PARTITION,
    "Time since the end of the topic partition was seen; NaN: never, as of a topic that was never found.",
)
INGEST_UNREAD = Metric(
    "tilth_ingest_oldest_unread_seconds",
    _GAUGE,
    _CONSUMER,
    "Time for which the oldest message that is not read has waited, at most; 0: all are read; NaN: not known.",
)
INGEST_OFFSET = Metric("tilth_ingest_offset", _GAUGE, _TOPIC_PARTITION, "The stored offset: the next message to read.")
TASKS_ENDED = Metric("tilth_tasks_ended_total", _COUNTER, ("result",), "Tasks that ended, by how.")
TASKS = Metric("tilth_tasks", _GAUGE, ("kind", "state"), "Tasks known now: live ones and the last that ended.")
WORKER_UP = Metric("tilth_worker_up", _GAUGE, ("worker",), "1 while the worker answers.")
WORKER_FREE_CORES = Metric(
    "tilth_worker_free_cores", _GAUGE, ("worker",), "Cores that a worker in another process does not use."
)
WORKER_FREE_MEMORY = Metric(
    "tilth_worker_free_memory_bytes", _GAUGE, ("worker",), "Memory that is free on such a worker's machine."
)
WORKER_FREE_DISK = Metric(
    "tilth_worker_free_disk_bytes", _GAUGE, ("worker",), "Free disk for a worker's temporary files, where it is known."
)
WAREHOUSE_SLOTS = Metric("tilth_warehouse_slots", _GAUGE, ("warehouse",), "Tasks that may run at once.")
WAREHOUSE_TASKS = Metric("tilth_warehouse_tasks", _GAUGE, ("warehouse", "state"), "Tasks running, waiting, resident.")

#: Metrics of maintenance: Kudu's names, of each kind of op, and families of all kinds in plain words.
_OP = ("op",)
OPS_RUNNING = Metric("tilth_maintenance_running", _GAUGE, _OP, "Runs of maintenance ops under way.")
OPS_DURATION = Metric(
    "tilth_maintenance_milliseconds", MetricType.HISTOGRAM, _OP, "Duration of runs of maintenance ops."
)
OPS_WAITING = Metric("tilth_maintenance_waiting_bytes", _GAUGE, _OP, "Estimated bytes that wait for an op.")
OPS_REMOVED = Metric("tilth_maintenance_removed_bytes_total", _COUNTER, _OP, "Bytes that an op has removed or hidden.")
_KUDU_RUNS = {
    kind: (
        Metric(kind.traits.running, _GAUGE, (), f"Number of {kind.traits.runs} under way."),
        Metric(kind.traits.duration, MetricType.HISTOGRAM, (), f"Duration of {kind.traits.runs}, in milliseconds."),
    )
    for kind in OpKind
}
_KUDU_WAITING = {
    kind: Metric(shown[0], _GAUGE, (), shown[1]) for kind in OpKind if (shown := kind.traits.waiting) is not None
}
_KUDU_REMOVED = {
    kind: Metric(shown[0], _COUNTER, (), shown[1]) for kind in OpKind if (shown := kind.traits.removed) is not None
}

FIND_BEST = tuple(
    Metric(name, MetricType.SUMMARY, (), "Duration of choosing an op, in microseconds.")
    for name in ("tilth_maintenance_choice_microseconds", "maintenance_op_find_best_candidate_duration")
)

HTTP_REQUESTS = Metric(
    "tilth_http_requests_total", _COUNTER, ("method", "route", "status"), "Requests answered; `-` is none of ours."
)
HTTP_SECONDS = Metric(
    "tilth_http_request_seconds", MetricType.HISTOGRAM, ("route",), "From a request's begin to its answer's end."
)
HTTP_RUNNING = Metric("tilth_http_requests_running", _GAUGE, (), "Requests that are being answered now.")


DISK_BYTES = Metric(
    "tilth_disk_bytes",
    _GAUGE,
    ("disk",),
    "Size of a disk that this server writes to, by folder, or that a worker in another process reports, by its name.",
)
DISK_FREE = Metric("tilth_disk_free_bytes", _GAUGE, ("disk",), "Bytes that are free there.")


# Any: dataclasses of the rooms.
def _declared(*kinds: Any) -> tuple[Metric, ...]:
    return tuple(metric for kind in kinds for _, metrics in metrics_of(kind) for metric in metrics)


#: Beside those that are declared here, the fields of the rooms' stats.
METRICS = (
    SOURCE_UP,
    FINDINGS,
    *(SERVICE_STATE, SERVICE_WAKEUPS, SERVICE_FAILURES, SERVICE_TASKS),
    *(INGEST_LAG, INGEST_LAG_AGE, INGEST_UNREAD, INGEST_OFFSET),
    *_declared(ConsumerStats, ReplayStats, CatalogStats, InsertStats, PipeStats, StatementStats, QueryCacheStats),
    *(TASKS_ENDED, TASKS, WORKER_UP, WORKER_FREE_CORES, WORKER_FREE_MEMORY, WORKER_FREE_DISK),
    *(WAREHOUSE_SLOTS, WAREHOUSE_TASKS),
    *(metric for metrics in _KUDU_RUNS.values() for metric in metrics),
    *(*_KUDU_WAITING.values(), *_KUDU_REMOVED.values()),
    *(OPS_RUNNING, OPS_DURATION, OPS_WAITING, OPS_REMOVED),
    *_declared(MaintenanceNumbers),
    *FIND_BEST,
    *(HTTP_REQUESTS, HTTP_SECONDS, HTTP_RUNNING),
    *_declared(TraceStats, ServerNumbers, TableNumbers),
    *(DISK_BYTES, DISK_FREE),
)

SERVICE_STATES = ("running", "idle", "waiting", "stopped", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSources:
    """Sources of the rooms' numbers; one that is None has no numbers."""

    catalog: Callable[[], CatalogStats]
    warehouse: Callable[[], WarehouseStats]
    services: Callable[[], Sequence[ServiceStats]]
    consumers: Callable[[], Sequence[ConsumerStats]] | None = None
    replays: Callable[[], Sequence[ReplayStats]] | None = None
    tasks: Callable[[], Sequence[TaskInfo]] | None = None
    maintenance: Callable[[], MaintenanceNumbers] | None = None
    #: Findings by alarm.
    alarms: Callable[[], Mapping[Alarm, int]] | None = None
    inserts: Callable[[], InsertStats] | None = None
    pipes: Callable[[], PipeStats] | None = None
    statements: Callable[[], StatementStats] | None = None
    queries: Callable[[], QueryCacheStats] | None = None
    traces: Callable[[], TraceStats] | None = None
    numbers: Callable[[], ServerNumbers] | None = None


class Metrics(Collector):
    """All metrics of one node, in a registry of their own."""

    def __init__(self, clock: Clock, sources: MetricSources) -> None:
        #: Counters of HTTP requests.
        self.http = HttpCounters()
        self._sources = sources
        self._rooms = BoundedCalls[list[Sample]](clock, seconds_max=SOURCE_SECONDS_MAX)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Family]:
        families = {metric: _family(metric) for metric in METRICS}
        for metric, labels, value in self._samples():
            _add(families[metric], labels, value)
        return iter(families.values())

    def _samples(self) -> Iterator[Sample]:
        """Yield the samples of all rooms; a room that fails or hangs must not hide the others."""
        sources = self._sources
        calls: dict[str, Callable[[], list[Sample]]] = {
            **_call("catalog", sources.catalog, _fields),
            **_call("warehouse", sources.warehouse, _warehouse),
            **_call("services", sources.services, _services),
            **_call("consumers", sources.consumers, _consumers),
            **_call("replays", sources.replays, _replays),
            **_call("tasks", sources.tasks, _tasks),
            **_call("maintenance", sources.maintenance, _maintenance),
            **_call("alarms", sources.alarms, _alarms),
            **_call("inserts", sources.inserts, _fields),
            **_call("pipes", sources.pipes, _fields),
            **_call("statements", sources.statements, _fields),
            **_call("queries", sources.queries, _fields),
            **_call("traces", sources.traces, _fields),
            **_call("numbers", sources.numbers, _numbers),
            **_call("http", self.http.stats, _http),
        }
        for source, reading in self._rooms.read(calls).items():
            match reading:
                case CallAnswered(value=found):
                    yield SOURCE_UP, (source,), 1
                    yield from found
                case CallFailed(error=error):
                    _log.error("metrics_failed", cause_id=source, error=error)
                    yield SOURCE_UP, (source,), 0
                case CallSilent(since_ms=since_ms):
                    _log.warning("metrics_silent", cause_id=source, since=show_time(since_ms))
                    yield SOURCE_UP, (source,), 0
                case _:
                    assert_never(reading)


def _call(
    source: str, read: Callable[[], T] | None, samples: Callable[[T], Iterable[Sample]]
) -> dict[str, Callable[[], list[Sample]]]:
    """Return the call that makes the samples of one room; nothing if the room has no numbers."""
    return {} if read is None else {source: lambda: list(samples(read()))}


# Any: a dataclass of a room.
def _fields(stats: Any, labels: tuple[str, ...] = ()) -> Iterator[Sample]:
    for name, metrics in metrics_of(stats):
        yield from ((metric, labels, getattr(stats, name)) for metric in metrics)


def _warehouse(stats: WarehouseStats) -> Iterator[Sample]:
    ended = {"done": stats.done, "failed": stats.failed, "cancelled": stats.cancelled, "lost": stats.lost}
    yield from ((TASKS_ENDED, (result,), count) for result, count in ended.items())
    for worker in stats.workers:
        yield WORKER_UP, (worker.name,), worker.state == "alive"
        load = worker.load
        if load.cores:
            yield WORKER_FREE_CORES, (worker.name,), load.free_cores
        if load.memory_bytes:
            yield WORKER_FREE_MEMORY, (worker.name,), load.free_memory_bytes
        if load.disk_bytes:
            yield WORKER_FREE_DISK, (worker.name,), load.free_disk_bytes
    for warehouse in stats.warehouses:
        yield WAREHOUSE_SLOTS, (warehouse.name,), warehouse.slots
        yield WAREHOUSE_TASKS, (warehouse.name, "running"), warehouse.running
        yield WAREHOUSE_TASKS, (warehouse.name, "waiting"), warehouse.waiting
        yield WAREHOUSE_TASKS, (warehouse.name, "resident"), warehouse.resident


def _alarms(counts: Mapping[Alarm, int]) -> Iterator[Sample]:
    yield from ((FINDINGS, (alarm.name, alarm.severity.value), count) for alarm, count in counts.items())


def _numbers(numbers: ServerNumbers) -> Iterator[Sample]:
    yield from _fields(numbers)
    for table in numbers.tables:
        yield from _fields(table, (table.database, table.table))
    for disk in numbers.disks:
        yield DISK_BYTES, (disk.name,), disk.size
        yield DISK_FREE, (disk.name,), disk.free


def _services(services: Sequence[ServiceStats]) -> Iterator[Sample]:
    for one in services:
        labels = (one.database, one.table, one.service.value)
        for state in SERVICE_STATES:
            yield SERVICE_STATE, (*labels, state), one.state == state
        yield SERVICE_WAKEUPS, labels, one.wakeups
        yield SERVICE_FAILURES, labels, one.failures
        yield SERVICE_TASKS, labels, one.running_tasks


def _consumers(consumers: Sequence[ConsumerStats]) -> Iterator[Sample]:
    for one in consumers:
        labels = (one.database, one.table, str(one.consumer))
        yield from _fields(one, labels)
        age = None if one.doing is None else one.doing.oldest_unread_age
        yield INGEST_UNREAD, labels, math.nan if age is None else age
        for partition in one.partitions:
            partition_labels = (
                one.database,
                one.table,
                partition.topic_partition.topic,
                str(partition.topic_partition.partition),
            )
            yield INGEST_LAG, partition_labels, math.nan if partition.lag is None else partition.lag
            yield INGEST_LAG_AGE, partition_labels, math.nan if partition.end_age is None else partition.end_age
            if partition.offset >= 0:
                yield INGEST_OFFSET, partition_labels, partition.offset


def _replays(replays: Sequence[ReplayStats]) -> Iterator[Sample]:
    for one in replays:
        yield from _fields(one, (one.database, one.table))


def _tasks(tasks: Sequence[TaskInfo]) -> Iterator[Sample]:
    counted = Counter((task.kind.value, task.state.value) for task in tasks)
    yield from ((TASKS, labels, count) for labels, count in counted.items())


def _maintenance(numbers: MaintenanceNumbers) -> Iterator[Sample]:
    yield from _fields(numbers)
    for kind, op in numbers.ops.items():
        yield from _op(kind, op)
    choosing = TotalAndCount(numbers.choices, numbers.choosing_microseconds)
    yield from ((metric, (), choosing) for metric in FIND_BEST)


def _op(kind: OpKind, numbers: OpNumbers) -> Iterator[Sample]:
    """Each number under Kudu's name and in a family of all kinds."""
    label = (kind.value.lower(),)
    durations = Buckets(RUN_MILLISECONDS, numbers.counts, numbers.milliseconds)
    running, duration = _KUDU_RUNS[kind]
    yield from ((running, (), numbers.running), (duration, (), durations))
    yield from ((OPS_RUNNING, label, numbers.running), (OPS_DURATION, label, durations))
    if kind in _KUDU_WAITING:
        yield from ((_KUDU_WAITING[kind], (), numbers.waiting_bytes), (OPS_WAITING, label, numbers.waiting_bytes))
    if kind in _KUDU_REMOVED:
        yield from ((_KUDU_REMOVED[kind], (), numbers.removed_bytes), (OPS_REMOVED, label, numbers.removed_bytes))


def _http(stats: HttpStats) -> Iterator[Sample]:
    for answered, count in stats.requests.items():
        yield HTTP_REQUESTS, (answered.method, answered.route, str(answered.status)), count
    for route, durations in stats.durations.items():
        yield HTTP_SECONDS, (route,), Buckets(SECONDS, durations.counts, durations.seconds)
    yield HTTP_RUNNING, (), stats.running


_Families = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily | SummaryMetricFamily
_FAMILIES: Mapping[MetricType, type[_Families]] = {
    MetricType.GAUGE: GaugeMetricFamily,
    MetricType.COUNTER: CounterMetricFamily,
    MetricType.HISTOGRAM: HistogramMetricFamily,
    MetricType.SUMMARY: SummaryMetricFamily,
}


def _family(metric: Metric) -> _Families:
    return _FAMILIES[metric.type](metric.name, metric.help, labels=metric.labels)


def _add(family: _Families, labels: tuple[str, ...], value: Value) -> None:
    match value:
        case Buckets():
            assert isinstance(family, HistogramMetricFamily)
            family.add_metric(labels, _cumulative(value), value.total)
        case TotalAndCount():
            assert isinstance(family, SummaryMetricFamily)
            family.add_metric(labels, value.count, value.total)
        case _:
            assert isinstance(family, GaugeMetricFamily | CounterMetricFamily)
            family.add_metric(labels, value)


def _cumulative(value: Buckets) -> list[tuple[str, float]]:
    """Return the cumulative counts that Prometheus expects."""
    ends = [*(str(end) for end in value.ends), "+Inf"]
    return [(end, float(sum(value.counts[: index + 1]))) for index, end in enumerate(ends)]
