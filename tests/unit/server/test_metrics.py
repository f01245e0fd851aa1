"""The rooms' numbers as Prometheus reads them."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.consumer_rows import NEW_CONSUMER
from tilth.base.clock import SystemClock
from tilth.base.tracing import TraceStats
from tilth.catalog import CatalogStats
from tilth.control.insert_batches import InsertStats
from tilth.control.pipe_stats import PipeStats
from tilth.control.resends import StatementStats
from tilth.ingest import ActivityKind, Doing, Offset, PartitionEnd, ReplayStats, TopicPartitionStats
from tilth.introspection.alarms.alarms import ALARMS
from tilth.introspection.alarms.stores import Disk
from tilth.introspection.numbers import ServerNumbers, TableNumbers
from tilth.maintenance import MaintenanceNumbers, OpKind, OpNumbers
from tilth.model.offset import TopicPartition
from tilth.model.service import ServiceKind, ServiceStats, SwitchState
from tilth.model.task import Cost, TaskInfo, TaskKind, TaskState
from tilth.query.worker.query_cache import QueryCacheStats
from tilth.server import METRICS, Metrics, MetricSources
from tilth.server.metrics import SERVICE_STATES
from tilth.server.stats import SECONDS, Answered
from tilth.warehouse import WarehouseInfo, WarehouseStats, WorkerInfo
from tilth.warehouse.stats import WorkerLoad, WorkerProcess

SERVICE = ServiceStats(
    database="shop",
    table='or"ders\n',
    uuid="u",
    service=ServiceKind.MERGE,
    switch=SwitchState.RUNNING,
    because="",
    state="waiting",
    reason="",
    wakeups=7,
    last_wakeup_ms=0,
    running_tasks=2,
    failures=3,
    last_exception="",
    last_exception_ms=0,
    server="s",
)
CONSUMER = replace(
    NEW_CONSUMER,
    database="shop",
    table="topic",
    uuid="u",
    consumer=1,
    task="",
    partitions=(
        TopicPartitionStats(
            topic_partition=TopicPartition("orders", 3), offset=10, end=PartitionEnd(stable=Offset(20), high=Offset(25))
        ),
        TopicPartitionStats(
            topic_partition=TopicPartition("orders", 4), offset=-1, end=PartitionEnd(stable=Offset(5), high=Offset(5))
        ),
    ),
    rounds=4,
    messages=40,
    rows=39,
    dead=1,
    bytes=4000,
    doing=Doing(kind=ActivityKind.READING, since_ms=0, oldest_unread_age=1.5),
)
TASK = TaskInfo(
    id="t",
    kind=TaskKind.MERGE,
    warehouse="write",
    worker="w",
    table="t",
    txn=0,
    state=TaskState.RUNNING,
    reason="",
    created_ms=0,
    started_ms=0,
    ended_ms=0,
    estimate=Cost(),
    actual=Cost(),
)
WORKER = WorkerInfo(
    name="w",
    warehouses=("write",),
    state="silent",
    reason="",
    last_answer_ms=0,
    running=0,
    resident=0,
    memory_bytes=0,
    load=WorkerLoad(cores=4, free_cores=2.5, memory_bytes=9, disk_bytes=9, free_disk_bytes=7),
    process=WorkerProcess(host="h", pid=1, version="1"),
)
WAREHOUSE = WarehouseInfo(name="write", workers=1, slots=4, running=1, waiting=2, resident=3)


def op(running: int = 1) -> OpNumbers:
    return OpNumbers(running=running, ended=5, milliseconds=250.0, counts=[2, 0, 3] + [0] * 12)


def maintenance() -> MaintenanceNumbers:
    ops = {kind: op() for kind in OpKind}
    ops |= {OpKind.MUTATE: op(2), OpKind.FLUSH_DELTAS: op(3), OpKind.MAJOR_DELTA: op(6)}
    ops[OpKind.HISTORY_GC].removed_bytes, ops[OpKind.DELETED_PART_GC].removed_bytes = 13, 14
    ops[OpKind.FLUSH].waiting_bytes = 15
    ops[OpKind.HISTORY_GC].waiting_bytes, ops[OpKind.DELETED_PART_GC].waiting_bytes = 16, 17
    return MaintenanceNumbers(
        ops=ops,
        flushed_bytes=12,
        expired=4,
        moved=6,
        removed=7,
        removed_bytes=8,
        prepare_failed=9,
        choices=10,
        choosing_microseconds=11.0,
    )


def warehouse() -> WarehouseStats:
    return WarehouseStats(done=1, failed=2, cancelled=3, lost=4, workers=(WORKER,), warehouses=(WAREHOUSE,))


NUMBERS = ServerNumbers(
    hosted=25,
    left_out=26,
    tables=(
        TableNumbers(
            database="db", table="t", parts=27, segments=28, inserted=29, removed=30, last_commit=31.5, waiting=32
        ),
    ),
    disks=(Disk("/data", "", 33, 34),),
)


@pytest.fixture
def metrics() -> Metrics:
    sources = MetricSources(
        catalog=lambda: CatalogStats(commits=11, refused=2, conflicts=1, commit_seconds=0.5, commit_seconds_max=0.25),
        warehouse=warehouse,
        services=lambda: [SERVICE],
        consumers=lambda: [CONSUMER],
        replays=lambda: [ReplayStats(database="db", table="k", letters=21)],
        tasks=lambda: [TASK, TASK],
        maintenance=maintenance,
        alarms=lambda: {alarm: int(alarm.name == "disk_full") for alarm in ALARMS},
        pipes=lambda: PipeStats(pipes=1, files=25),
        inserts=lambda: InsertStats(batched=18, batches=19, memory_rejections=20),
        statements=lambda: StatementStats(sent_again=22),
        queries=lambda: QueryCacheStats(plans_reused=23, plans=24),
        traces=lambda: TraceStats(sent=23, dropped=24),
        numbers=lambda: NUMBERS,
    )
    return Metrics(SystemClock(), sources)


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(metrics)[name, tuple(sorted(labels.items()))]


def test_services(metrics: Metrics) -> None:
    labels = {"database": "shop", "table": 'or"ders\n', "service": "merge"}
    states = {state: value(metrics, "tilth_service_state", **labels, state=state) for state in SERVICE_STATES}
    assert states == {"running": 0, "idle": 0, "waiting": 1, "stopped": 0, "failed": 0}
    assert value(metrics, "tilth_service_wakeups_total", **labels) == 7
    assert value(metrics, "tilth_service_failures", **labels) == 3


def test_every_alarm_has_the_number_of_its_findings(metrics: Metrics) -> None:
    found = {dict(labels)["alarm"]: one for (name, labels), one in samples(metrics).items() if name == "tilth_alarms"}
    assert found == {alarm.name: float(alarm.name == "disk_full") for alarm in ALARMS}
    assert value(metrics, "tilth_alarms", alarm="disk_full", severity="critical") == 1


def test_consumers(metrics: Metrics) -> None:
    place = {"database": "shop", "table": "topic", "topic": "orders"}
    assert value(metrics, "tilth_ingest_lag_messages", **place, partition="3") == 15
    # Nothing is stored of it: nobody knows how much is left to read.
    assert math.isnan(value(metrics, "tilth_ingest_lag_messages", **place, partition="4"))
    assert value(metrics, "tilth_ingest_lag_age_seconds", **place, partition="4") == 0
    assert value(metrics, "tilth_ingest_offset", **place, partition="3") == 10
    assert value(metrics, "tilth_ingest_rows_total", database="shop", table="topic", consumer="1") == 39
    assert value(metrics, "tilth_ingest_oldest_unread_seconds", database="shop", table="topic", consumer="1") == 1.5
    assert value(metrics, "tilth_ingest_replayed_total", database="db", table="k") == 21
    stored = [labels for name, labels in samples(metrics) if name == "tilth_ingest_offset"]
    assert len(stored) == 1, "no offset is stored for the other partition"


def test_transactions_tasks_and_warehouses(metrics: Metrics) -> None:
    assert value(metrics, "tilth_transactions_committed_total") == 11
    assert value(metrics, "tilth_commit_conflicts_total") == 1
    assert value(metrics, "tilth_tasks_ended_total", result="lost") == 4
    assert value(metrics, "tilth_tasks", kind="merge", state="running") == 2
    assert value(metrics, "tilth_worker_up", worker="w") == 0
    assert value(metrics, "tilth_worker_free_cores", worker="w") == 2.5
    assert value(metrics, "tilth_worker_free_disk_bytes", worker="w") == 7
    assert value(metrics, "tilth_warehouse_tasks", warehouse="write", state="waiting") == 2


def test_tables_disks_and_traces(metrics: Metrics) -> None:
    table = {"database": "db", "table": "t"}
    assert value(metrics, "tilth_table_parts", **table) == 27
    assert value(metrics, "tilth_table_inserted_rows_total", **table) == 29
    assert value(metrics, "tilth_table_last_commit_timestamp_seconds", **table) == 31.5
    assert value(metrics, "tilth_metrics_tables_left_out") == 26
    assert value(metrics, "tilth_disk_free_bytes", disk="/data") == 34
    assert value(metrics, "tilth_trace_spans_dropped_total") == 24


def test_maintenance_keeps_the_seeds_names(metrics: Metrics) -> None:
    assert value(metrics, "compact_rs_running") == 1
    assert value(metrics, "compact_rs_duration_count") == 5
    assert value(metrics, "compact_rs_duration_sum") == 250
    assert value(metrics, "compact_rs_duration_bucket", le="50") == 2
    assert value(metrics, "compact_rs_duration_bucket", le="100") == 5
    assert value(metrics, "mutate_running") == 2
    assert value(metrics, "part_gc_duration_count") == 5
    assert value(metrics, "flush_dms_running") == 3
    assert value(metrics, "delta_major_compact_rs_running") == 6
    assert value(metrics, "memrowset_size") == 15
    assert value(metrics, "bytes_flushed_total") == 12
    assert value(metrics, "undo_delta_block_gc_bytes_deleted_total") == 13
    assert value(metrics, "undo_delta_block_estimated_retained_bytes") == 16
    assert value(metrics, "deleted_rowset_gc_bytes_deleted_total") == 14
    assert value(metrics, "deleted_rowset_estimated_retained_bytes") == 17
    assert value(metrics, "maintenance_op_prepare_failed_total") == 9
    assert value(metrics, "maintenance_op_find_best_candidate_duration_count") == 10
    assert value(metrics, "tilth_gc_expired_partitions_total") == 4
    assert value(metrics, "tilth_gc_removed_files_total") == 7


def test_requests(metrics: Metrics) -> None:
    for seconds in (0.001, 0.2, 1000.0):
        metrics.http.begin()
        metrics.http.end(Answered("POST", "/v1/sql", 200), seconds)
    metrics.http.begin()
    assert value(metrics, "tilth_http_requests_total", method="POST", route="/v1/sql", status="200") == 3
    assert value(metrics, "tilth_http_request_seconds_bucket", route="/v1/sql", le="0.005") == 1
    assert value(metrics, "tilth_http_request_seconds_bucket", route="/v1/sql", le=str(SECONDS[-1])) == 2
    assert value(metrics, "tilth_http_request_seconds_bucket", route="/v1/sql", le="+Inf") == 3
    assert value(metrics, "tilth_http_request_seconds_count", route="/v1/sql") == 3
    assert value(metrics, "tilth_http_requests_running") == 1


def test_a_room_that_fails_hides_no_other() -> None:
    def gone() -> CatalogStats:
        raise OSError("closed")

    metrics = Metrics(SystemClock(), MetricSources(catalog=gone, warehouse=warehouse, services=lambda: [SERVICE]))
    assert value(metrics, "tilth_metrics_source_up", source="catalog") == 0
    assert value(metrics, "tilth_metrics_source_up", source="warehouse") == 1
    assert value(metrics, "tilth_tasks_ended_total", result="done") == 1
    assert ("tilth_transactions_committed_total", ()) not in samples(metrics)


def test_a_room_that_hangs_hides_no_other() -> None:
    goes_on = threading.Event()

    def hangs() -> list[ServiceStats]:
        goes_on.wait(30)
        return []

    metrics = Metrics(SystemClock(), MetricSources(catalog=CatalogStats, warehouse=warehouse, services=hangs))
    found = samples(metrics)
    goes_on.set()
    assert found["tilth_metrics_source_up", (("source", "services"),)] == 0
    assert found["tilth_metrics_source_up", (("source", "warehouse"),)] == 1


def test_every_metric_is_given_and_declared_once(metrics: Metrics) -> None:
    metrics.http.begin()
    metrics.http.end(Answered("GET", "/", 200), 0.1)
    endings = ("_bucket", "_count", "_sum")
    given = {name for name, _ in samples(metrics) if not name.startswith("process_")}
    plain = {next((name.removesuffix(end) for end in endings if name.endswith(end)), name) for name in given}
    declared = [metric.name for metric in METRICS]
    assert len(declared) == len(set(declared))
    assert plain == set(declared)
