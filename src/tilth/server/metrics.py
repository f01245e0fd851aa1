"""Metrics for Prometheus: the rooms' numbers, read when they are asked for.

Covers: names, labels and texts of all metrics, and the samples made of the rooms' stats. Does not cover: counting,
which each room does. Always holds: METRICS is complete, beside `process_*`; a room whose numbers cannot be read costs
its own metrics only, and says so by `tilth_metrics_source_up`. See also: docs/reference/metrics.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client import Metric as Family
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from tilth.base.logs import Log
from tilth.catalog import CatalogStats
from tilth.ingest import ConsumerStats
from tilth.maintenance import RUN_MILLISECONDS
from tilth.model.service import ServiceStats
from tilth.model.task import TaskInfo
from tilth.server.stats import SECONDS, HttpCounters, HttpStats
from tilth.sql import InsertStats
from tilth.warehouse import WarehouseStats

_log = Log("server")

T = TypeVar("T")


class MetricType(StrEnum):
    """Prometheus' own words."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    #: How many, and their sum.
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as it is declared."""

    name: str
    type: MetricType
    labels: tuple[str, ...]
    #: One sentence, for the reference and for Prometheus.
    help: str


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
_PLACE = (*_TABLE, "topic", "partition")
_CONSUMER = (*_TABLE, "consumer")

SOURCE_UP = Metric("tilth_metrics_source_up", _GAUGE, ("source",), "1 if the room's numbers could be read, else 0.")

SERVICE_STATE = Metric(
    "tilth_service_state", _GAUGE, (*_SERVICE, "state"), "1 for the state that the background service is in, else 0."
)
SERVICE_WAKEUPS = Metric("tilth_service_wakeups_total", _COUNTER, _SERVICE, "How often the service looked for work.")
SERVICE_FAILURES = Metric("tilth_service_failures", _GAUGE, _SERVICE, "Failures, as in system.bg_threads.")
SERVICE_TASKS = Metric("tilth_service_running_tasks", _GAUGE, _SERVICE, "Tasks of the service on workers now.")

INGEST_LAG = Metric("tilth_ingest_lag_messages", _GAUGE, _PLACE, "Messages behind the stored offset.")
INGEST_OFFSET = Metric("tilth_ingest_offset", _GAUGE, _PLACE, "The stored offset: the next message to read.")
INGEST_ROUNDS = Metric("tilth_ingest_rounds_total", _COUNTER, _CONSUMER, "Rounds that were committed.")
INGEST_MESSAGES = Metric("tilth_ingest_messages_total", _COUNTER, _CONSUMER, "Messages that were read and committed.")
INGEST_ROWS = Metric("tilth_ingest_rows_total", _COUNTER, _CONSUMER, "Rows that were stored.")
INGEST_BYTES = Metric("tilth_ingest_bytes_total", _COUNTER, _CONSUMER, "Bytes of the messages.")
INGEST_DEAD = Metric("tilth_ingest_dead_letters_total", _COUNTER, _CONSUMER, "Messages that could not be decoded.")
INGEST_REFUSED = Metric(
    "tilth_ingest_refused_total", _COUNTER, _CONSUMER, "Messages that a view could not take, once for each such view."
)

COMMITS = Metric("tilth_transactions_committed_total", _COUNTER, (), "Transactions that landed.")
REFUSED = Metric("tilth_transactions_refused_total", _COUNTER, (), "Transactions that were refused, fenced ones too.")
FENCED = Metric("tilth_transactions_fenced_total", _COUNTER, (), "Refused because another actor had taken over.")
CROWDED = Metric(
    "tilth_inserts_rejected_total", _COUNTER, (), "Writes that were refused because there were too many parts."
)
DELAYED = Metric(
    "tilth_inserts_delayed_total", _COUNTER, (), "Writes that were slowed because a partition had many parts."
)
DELAY_TIME = Metric("tilth_inserts_delay_seconds_total", _COUNTER, (), "By how much they were slowed, in all.")
GROUPED = Metric("tilth_inserts_grouped_total", _COUNTER, (), "INSERTs that shared a commit, or might have.")
GROUPS = Metric("tilth_insert_groups_total", _COUNTER, (), "Commits of such INSERTs.")
MEMORY_REJECTIONS = Metric(
    "tilth_leader_memory_pressure_rejections_total", _COUNTER, (), "Writes that were refused because memory was scarce."
)
UNKNOWN = Metric("tilth_transactions_unknown_total", _COUNTER, (), "Transactions whose outcome could not be found out.")
CONFLICTS = Metric("tilth_commit_conflicts_total", _COUNTER, (), "Commits folded again after another's commit.")
COMMIT_TIME = Metric("tilth_commit_seconds_total", _COUNTER, (), "Time spent in commits.")
COMMIT_LONGEST = Metric("tilth_commit_seconds_max", _GAUGE, (), "The longest commit since the start.")

TASKS_ENDED = Metric("tilth_tasks_ended_total", _COUNTER, ("result",), "Tasks that ended, by how.")
TASKS = Metric("tilth_tasks", _GAUGE, ("kind", "state"), "Tasks known now: live ones and the last that ended.")
WORKER_UP = Metric("tilth_worker_up", _GAUGE, ("worker",), "1 while the worker answers.")
WAREHOUSE_SLOTS = Metric("tilth_warehouse_slots", _GAUGE, ("warehouse",), "Tasks that may run at once.")
WAREHOUSE_TASKS = Metric("tilth_warehouse_tasks", _GAUGE, ("warehouse", "state"), "Tasks running, waiting, resident.")

MERGE_RUNNING = Metric("compact_rs_running", _GAUGE, (), "Merges under way.")
MERGE_DURATION = Metric("compact_rs_duration", MetricType.HISTOGRAM, (), "How long merges took, in milliseconds.")
MUTATE_RUNNING = Metric("mutate_running", _GAUGE, (), "Rewrites of parts for mutations under way.")
MUTATE_DURATION = Metric("mutate_duration", MetricType.HISTOGRAM, (), "How long such rewrites took, in milliseconds.")
GC_RUNNING = Metric("part_gc_running", _GAUGE, (), "Collections of parts under way.")
GC_DURATION = Metric("part_gc_duration", MetricType.HISTOGRAM, (), "How long collections took, in milliseconds.")
FLUSH_RUNNING = Metric("flush_mrs_running", _GAUGE, (), "Flushes of row segments under way.")
FLUSH_DURATION = Metric("flush_mrs_duration", MetricType.HISTOGRAM, (), "How long flushes took, in milliseconds.")
DELTA_FLUSH_RUNNING = Metric("flush_dms_running", _GAUGE, (), "Flushes of change segments under way.")
DELTA_FLUSH_DURATION = Metric(
    "flush_dms_duration", MetricType.HISTOGRAM, (), "How long flushes of change segments took, in milliseconds."
)
MINOR_RUNNING = Metric("delta_minor_compact_rs_running", _GAUGE, (), "Compactions of a part's deltas under way.")
MINOR_DURATION = Metric(
    "delta_minor_compact_rs_duration", MetricType.HISTOGRAM, (), "How long such compactions took, in milliseconds."
)
MAJOR_RUNNING = Metric("delta_major_compact_rs_running", _GAUGE, (), "Rewrites of updated columns under way.")
MAJOR_DURATION = Metric(
    "delta_major_compact_rs_duration", MetricType.HISTOGRAM, (), "How long such rewrites took, in milliseconds."
)
LOG_GC_RUNNING = Metric("log_gc_running", _GAUGE, (), "Collections of flushed segments under way.")
LOG_GC_DURATION = Metric(
    "log_gc_duration", MetricType.HISTOGRAM, (), "How long such collections took, in milliseconds."
)
HISTORY_GC_RUNNING = Metric("undo_delta_block_gc_running", _GAUGE, (), "Collections of ended deltas under way.")
HISTORY_GC_DURATION = Metric(
    "undo_delta_block_gc_perform_duration",
    MetricType.HISTOGRAM,
    (),
    "How long collections of ended deltas took, in milliseconds.",
)
HISTORY_GC_BYTES = Metric("undo_delta_block_gc_bytes_deleted_total", _COUNTER, (), "Bytes of deltas that were removed.")
HISTORY_WAITING = Metric(
    "undo_delta_block_estimated_retained_bytes",
    _GAUGE,
    (),
    "Bytes of ended deltas that a collection which is due would remove, as far as known.",
)
DELETED_GC_RUNNING = Metric("deleted_rowset_gc_running", _GAUGE, (), "Collections of parts without rows under way.")
DELETED_GC_DURATION = Metric(
    "deleted_rowset_gc_duration",
    MetricType.HISTOGRAM,
    (),
    "How long collections of parts without rows took, in milliseconds.",
)
DELETED_GC_BYTES = Metric(
    "deleted_rowset_gc_bytes_deleted_total", _COUNTER, (), "Bytes of parts that were hidden because no row was left."
)
DELETED_WAITING = Metric(
    "deleted_rowset_estimated_retained_bytes",
    _GAUGE,
    (),
    "Bytes of parts without rows that a collection which is due would hide, as far as known.",
)
SEGMENT_BYTES = Metric("memrowset_size", _GAUGE, (), "Bytes of row segments that are not flushed yet.")
FLUSHED_BYTES = Metric("bytes_flushed_total", _COUNTER, (), "Bytes of the parts that flushes made.")
GC_EXPIRED = Metric(
    "tilth_gc_expired_partitions_total",
    _COUNTER,
    (),
    "Partitions that were dropped because all their rows had expired.",
)
GC_MOVED = Metric("tilth_gc_moved_total", _COUNTER, (), "Records that were moved to the trash.")
GC_REMOVED = Metric("tilth_gc_removed_files_total", _COUNTER, (), "Files that were removed.")
GC_BYTES = Metric("tilth_gc_removed_bytes_total", _COUNTER, (), "Bytes of the files that were removed.")
PREPARE_FAILED = Metric(
    "maintenance_op_prepare_failed_total", _COUNTER, (), "Ops that were chosen and then had nothing to do."
)
FIND_BEST = Metric(
    "maintenance_op_find_best_candidate_duration",
    MetricType.SUMMARY,
    (),
    "How long choosing an op took, in microseconds.",
)

HTTP_REQUESTS = Metric(
    "tilth_http_requests_total", _COUNTER, ("method", "route", "status"), "Requests answered; `-` is none of ours."
)
HTTP_SECONDS = Metric(
    "tilth_http_request_seconds", MetricType.HISTOGRAM, ("route",), "From a request's begin to its answer's end."
)
HTTP_RUNNING = Metric("tilth_http_requests_running", _GAUGE, (), "Requests that are being answered now.")

METRICS = (
    SOURCE_UP,
    *(SERVICE_STATE, SERVICE_WAKEUPS, SERVICE_FAILURES, SERVICE_TASKS),
    *(
        INGEST_LAG,
        INGEST_OFFSET,
        INGEST_ROUNDS,
        INGEST_MESSAGES,
        INGEST_ROWS,
        INGEST_BYTES,
        INGEST_DEAD,
        INGEST_REFUSED,
    ),
    *(COMMITS, REFUSED, FENCED, UNKNOWN, CONFLICTS, COMMIT_TIME, COMMIT_LONGEST, CROWDED, DELAYED, DELAY_TIME),
    *(GROUPED, GROUPS, MEMORY_REJECTIONS),
    *(TASKS_ENDED, TASKS, WORKER_UP, WAREHOUSE_SLOTS, WAREHOUSE_TASKS),
    *(
        MERGE_RUNNING,
        MERGE_DURATION,
        MUTATE_RUNNING,
        MUTATE_DURATION,
        GC_RUNNING,
        GC_DURATION,
        FLUSH_RUNNING,
        FLUSH_DURATION,
        DELTA_FLUSH_RUNNING,
        DELTA_FLUSH_DURATION,
        MINOR_RUNNING,
        MINOR_DURATION,
        MAJOR_RUNNING,
        MAJOR_DURATION,
        LOG_GC_RUNNING,
        LOG_GC_DURATION,
        HISTORY_GC_RUNNING,
        HISTORY_GC_DURATION,
        HISTORY_GC_BYTES,
        HISTORY_WAITING,
        DELETED_GC_RUNNING,
        DELETED_GC_DURATION,
        DELETED_GC_BYTES,
        DELETED_WAITING,
        SEGMENT_BYTES,
        FLUSHED_BYTES,
        GC_EXPIRED,
        GC_MOVED,
        GC_REMOVED,
        GC_BYTES,
        PREPARE_FAILED,
        FIND_BEST,
    ),
    *(HTTP_REQUESTS, HTTP_SECONDS, HTTP_RUNNING),
)

SERVICE_STATES = ("running", "idle", "waiting", "stopped", "failed")


class OpNumbers(Protocol):
    """Counters of one kind of maintenance op."""

    @property
    def running(self) -> int: ...

    @property
    def ended(self) -> int: ...

    @property
    def milliseconds(self) -> float: ...

    @property
    def counts(self) -> Sequence[int]: ...


class MaintenanceNumbers(Protocol):
    """Counters of maintenance since the start."""

    @property
    def merges(self) -> OpNumbers: ...

    @property
    def mutations(self) -> OpNumbers: ...

    @property
    def collections(self) -> OpNumbers: ...

    @property
    def flushes(self) -> OpNumbers: ...

    @property
    def delta_flushes(self) -> OpNumbers: ...

    @property
    def minor_compactions(self) -> OpNumbers: ...

    @property
    def major_compactions(self) -> OpNumbers: ...

    @property
    def log_collections(self) -> OpNumbers: ...

    @property
    def history_collections(self) -> OpNumbers: ...

    @property
    def deleted_part_collections(self) -> OpNumbers: ...

    @property
    def flushed_bytes(self) -> int: ...

    @property
    def history_bytes(self) -> int: ...

    @property
    def deleted_part_bytes(self) -> int: ...

    @property
    def segment_bytes(self) -> int: ...

    @property
    def history_waiting_bytes(self) -> int: ...

    @property
    def deleted_part_waiting_bytes(self) -> int: ...

    @property
    def expired(self) -> int: ...

    @property
    def moved(self) -> int: ...

    @property
    def removed(self) -> int: ...

    @property
    def removed_bytes(self) -> int: ...

    @property
    def prepare_failed(self) -> int: ...

    @property
    def choices(self) -> int: ...

    @property
    def choosing_microseconds(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSources:
    """Sources of the rooms' numbers; one that is None has no numbers."""

    catalog: Callable[[], CatalogStats]
    warehouse: Callable[[], WarehouseStats]
    services: Callable[[], Sequence[ServiceStats]]
    consumers: Callable[[], Sequence[ConsumerStats]] | None = None
    tasks: Callable[[], Sequence[TaskInfo]] | None = None
    maintenance: Callable[[], MaintenanceNumbers] | None = None
    inserts: Callable[[], InsertStats] | None = None


class Metrics(Collector):
    """All metrics of one node, in a registry of their own."""

    def __init__(self, sources: MetricSources) -> None:
        #: Where the doors count requests.
        self.http = HttpCounters()
        self._sources = sources
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Family]:
        families = {metric: _family(metric) for metric in METRICS}
        for metric, labels, value in self._samples():
            _add(families[metric], labels, value)
        return iter(families.values())

    def _samples(self) -> Iterator[Sample]:
        sources = self._sources
        yield from _of("catalog", sources.catalog, _catalog)
        yield from _of("warehouse", sources.warehouse, _warehouse)
        yield from _of("services", sources.services, _services)
        yield from _of("consumers", sources.consumers, _consumers)
        yield from _of("tasks", sources.tasks, _tasks)
        yield from _of("maintenance", sources.maintenance, _maintenance)
        yield from _of("inserts", sources.inserts, _inserts)
        yield from _of("http", self.http.stats, _http)


def _of(source: str, look: Callable[[], T] | None, samples: Callable[[T], Iterable[Sample]]) -> Iterator[Sample]:
    """The samples of one room; a room that fails must not hide the others, least of all then."""
    if look is None:
        return
    try:
        found = list(samples(look()))
    except Exception as error:
        _log.error("metrics_failed", cause_id=source, error=error)
        yield SOURCE_UP, (source,), 0
        return
    yield SOURCE_UP, (source,), 1
    yield from found


def _catalog(stats: CatalogStats) -> Iterator[Sample]:
    yield COMMITS, (), stats.commits
    yield REFUSED, (), stats.refused
    yield FENCED, (), stats.fenced
    yield CROWDED, (), stats.crowded
    yield DELAYED, (), stats.delayed
    yield DELAY_TIME, (), stats.delay_seconds
    yield UNKNOWN, (), stats.unknown
    yield CONFLICTS, (), stats.conflicts
    yield COMMIT_TIME, (), stats.commit_seconds
    yield COMMIT_LONGEST, (), stats.commit_seconds_max


def _inserts(stats: InsertStats) -> Iterator[Sample]:
    yield GROUPED, (), stats.grouped
    yield GROUPS, (), stats.groups
    yield MEMORY_REJECTIONS, (), stats.memory_rejections


def _warehouse(stats: WarehouseStats) -> Iterator[Sample]:
    ended = {"done": stats.done, "failed": stats.failed, "cancelled": stats.cancelled, "lost": stats.lost}
    yield from ((TASKS_ENDED, (result,), count) for result, count in ended.items())
    for worker in stats.workers:
        yield WORKER_UP, (worker.name,), worker.state == "alive"
    for warehouse in stats.warehouses:
        yield WAREHOUSE_SLOTS, (warehouse.name,), warehouse.slots
        yield WAREHOUSE_TASKS, (warehouse.name, "running"), warehouse.running
        yield WAREHOUSE_TASKS, (warehouse.name, "waiting"), warehouse.waiting
        yield WAREHOUSE_TASKS, (warehouse.name, "resident"), warehouse.resident


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
        yield INGEST_ROUNDS, labels, one.rounds
        yield INGEST_MESSAGES, labels, one.messages
        yield INGEST_ROWS, labels, one.rows
        yield INGEST_BYTES, labels, one.bytes
        yield INGEST_DEAD, labels, one.dead
        yield INGEST_REFUSED, labels, one.refused
        for partition in one.partitions:
            place = (one.database, one.table, partition.place.topic, str(partition.place.partition))
            yield INGEST_LAG, place, partition.lag
            if partition.offset >= 0:
                yield INGEST_OFFSET, place, partition.offset


def _tasks(tasks: Sequence[TaskInfo]) -> Iterator[Sample]:
    counted = Counter((task.kind.value, task.state.value) for task in tasks)
    yield from ((TASKS, labels, count) for labels, count in counted.items())


def _maintenance(numbers: MaintenanceNumbers) -> Iterator[Sample]:
    for running, duration, of_kind in (
        (MERGE_RUNNING, MERGE_DURATION, numbers.merges),
        (MUTATE_RUNNING, MUTATE_DURATION, numbers.mutations),
        (GC_RUNNING, GC_DURATION, numbers.collections),
        (FLUSH_RUNNING, FLUSH_DURATION, numbers.flushes),
        (DELTA_FLUSH_RUNNING, DELTA_FLUSH_DURATION, numbers.delta_flushes),
        (MINOR_RUNNING, MINOR_DURATION, numbers.minor_compactions),
        (MAJOR_RUNNING, MAJOR_DURATION, numbers.major_compactions),
        (LOG_GC_RUNNING, LOG_GC_DURATION, numbers.log_collections),
        (HISTORY_GC_RUNNING, HISTORY_GC_DURATION, numbers.history_collections),
        (DELETED_GC_RUNNING, DELETED_GC_DURATION, numbers.deleted_part_collections),
    ):
        yield running, (), of_kind.running
        yield duration, (), _runs(of_kind)
    yield FLUSHED_BYTES, (), numbers.flushed_bytes
    yield SEGMENT_BYTES, (), numbers.segment_bytes
    yield HISTORY_GC_BYTES, (), numbers.history_bytes
    yield HISTORY_WAITING, (), numbers.history_waiting_bytes
    yield DELETED_GC_BYTES, (), numbers.deleted_part_bytes
    yield DELETED_WAITING, (), numbers.deleted_part_waiting_bytes
    yield GC_EXPIRED, (), numbers.expired
    yield GC_MOVED, (), numbers.moved
    yield GC_REMOVED, (), numbers.removed
    yield GC_BYTES, (), numbers.removed_bytes
    yield PREPARE_FAILED, (), numbers.prepare_failed
    yield FIND_BEST, (), TotalAndCount(numbers.choices, numbers.choosing_microseconds)


def _runs(numbers: OpNumbers) -> Buckets:
    return Buckets(RUN_MILLISECONDS, numbers.counts, numbers.milliseconds)


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
