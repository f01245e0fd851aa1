"""Panels of Grafana's dashboard: titles, queries, units, descriptions, pages.

Covers: which panels there are. Does not cover: the file (make_dashboard.py). Always holds: every panel has a title, a
unit, a description and a page of the documentation; every query names the job, so that series of other programs stay
out.
See also: docs/operate/dashboard.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tools.make_rules import JOB

#: Interval of a rate, which Grafana chooses by the zoom and the interval of scrapes.
RATE = "$__rate_interval"
OPERATE = "docs/operate"


class PanelKind(StrEnum):
    """Grafana's names of types of panels."""

    TIMES = "timeseries"
    STAT = "stat"


class PanelUnit(StrEnum):
    """Grafana's names of units."""

    COUNT = "short"
    PER_SECOND = "cps"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    SECONDS = "s"
    MILLISECONDS = "ms"
    SHARE = "percentunit"


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelQuery:
    """A query and the name of each of its series."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel as it is declared."""

    title: str
    description: str
    unit: PanelUnit
    queries: tuple[PanelQuery, ...]
    #: Page and heading with more about it.
    page: str
    kind: PanelKind = PanelKind.TIMES
    #: True if any number above zero is bad.
    is_fault: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelRow:
    """Panels below one heading."""

    title: str
    panels: tuple[Panel, ...]


# --- queries ----------------------------------------------------------------------------------------------------------

_ALL = f'job="{JOB}", instance=~"$instance"'
_TABLES = f'{_ALL}, database=~"$database", table=~"$table"'


def _of(metric: str, *labels: str, among: str = _ALL) -> str:
    return f"{metric}{{{', '.join((among, *labels))}}}"


def _rate(metric: str, *labels: str, among: str = _ALL) -> str:
    return f"rate({_of(metric, *labels, among=among)}[{RATE}])"


def _sum(inner: str, by: str = "") -> str:
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


def _series(expression: str, legend: str) -> tuple[PanelQuery, ...]:
    return (PanelQuery(expression=expression, legend=legend),)


def _by_table(metric: str, *, sums: str = "sum") -> tuple[PanelQuery, ...]:
    """A gauge by table. Only the host of a table reports it, so that servers are not counted twice."""
    return _series(f"{sums} by (database, table) ({_of(metric, among=_TABLES)})", "{{database}}.{{table}}")


def _rate_by_table(metric: str) -> tuple[PanelQuery, ...]:
    return _series(_sum(_rate(metric, among=_TABLES), "database, table"), "{{database}}.{{table}}")


def _quantiles(metric: str, *labels: str, by: str) -> tuple[PanelQuery, ...]:
    buckets = _sum(_rate(f"{metric}_bucket", *labels), f"le, {by}")
    return tuple(
        PanelQuery(expression=f"histogram_quantile({share}, {buckets})", legend=f"p{share[2:]:0<2} {{{{{by}}}}}")
        for share in ("0.5", "0.99")
    )


def _findings(*alarms: str) -> tuple[PanelQuery, ...]:
    return _series(_sum(_of("tilth_alarms", f'alarm=~"{"|".join(alarms)}"'), "alarm"), "{{alarm}}")


# --- panels -----------------------------------------------------------------------------------------------------------

_ALARMS_PAGE = f"{OPERATE}/alarms.md"
_QUESTIONS = f"{OPERATE}/questions.md"

NOW = PanelRow(
    title="What needs a person now",
    panels=(
        Panel(
            title="Critical alarms",
            description="Findings by which rows are not read, not stored or at risk: act at once.",
            unit=PanelUnit.COUNT,
            queries=_series(_sum(_of("tilth_alarms", 'severity="critical"')), "critical"),
            page=f"{_ALARMS_PAGE}#critical",
            kind=PanelKind.STAT,
            is_fault=True,
        ),
        Panel(
            title="Warnings",
            description="Findings that become critical unless somebody acts within hours.",
            unit=PanelUnit.COUNT,
            queries=_series(_sum(_of("tilth_alarms", 'severity="warning"')), "warning"),
            page=f"{_ALARMS_PAGE}#warning",
            kind=PanelKind.STAT,
            is_fault=True,
        ),
        Panel(
            title="Servers that do not answer",
            description="Targets of the job that Prometheus cannot read.",
            unit=PanelUnit.COUNT,
            queries=_series(f'count(up{{job="{JOB}"}} == 0) or vector(0)', "away"),
            page=f"{_ALARMS_PAGE}#seen-from-outside",
            kind=PanelKind.STAT,
            is_fault=True,
        ),
        Panel(
            title="Rooms that cannot be read",
            description="Parts of servers whose numbers are missing, so that alarms and lines of this board may be "
            "missing, too.",
            unit=PanelUnit.COUNT,
            queries=_series(f"count({_of('tilth_metrics_source_up')} == 0) or vector(0)", "unread"),
            page=f"{OPERATE}/recovery.md#when-something-is-wrong",
            kind=PanelKind.STAT,
            is_fault=True,
        ),
        Panel(
            title="Alarms",
            description="Findings of each alarm; the table system.alarms has their sentences and what to do.",
            unit=PanelUnit.COUNT,
            queries=_series(f"{_sum(_of('tilth_alarms'), 'alarm, severity')} > 0", "{{alarm}} ({{severity}})"),
            page=f"{_ALARMS_PAGE}#prometheus",
        ),
        Panel(
            title="Gaps, clock, hosts",
            description="Messages that the broker no longer has, clocks that are off, tables and servers without a "
            "host. Everything here is 0 while all is well.",
            unit=PanelUnit.COUNT,
            queries=_findings("ingest_gap", "clock_off", "table_without_host", "server_away", "catalog_away"),
            page=f"{_ALARMS_PAGE}#critical",
        ),
        Panel(
            title="Stuck tasks and failing services",
            description="Streams, tasks and ALTERs that make no progress, services that fail again and again.",
            unit=PanelUnit.COUNT,
            queries=_findings("task_stuck", "stream_stuck", "stream_failed", "mutation_stuck", "service_failed"),
            page=f"{OPERATE}/background-tasks.md#common-errors",
        ),
    ),
)

STREAMS = PanelRow(
    title="Streams",
    panels=(
        Panel(
            title="Lag",
            description="Messages of the topic that are not stored yet, by Kafka table.",
            unit=PanelUnit.COUNT,
            queries=_by_table("tilth_ingest_lag_messages"),
            page=f"{_QUESTIONS}#14-how-long-until-the-lag-is-gone-and-what-bounds-the-rate",
        ),
        Panel(
            title="Age of the oldest unread message",
            description="Time for which it has waited, at most; 0 where all are read, no line where it is not known.",
            unit=PanelUnit.SECONDS,
            queries=_by_table("tilth_ingest_oldest_unread_seconds", sums="max"),
            page=f"{_QUESTIONS}#4-why-is-a-topic-not-read",
        ),
        Panel(
            title="Messages read",
            description="Messages that rounds have committed, in a second.",
            unit=PanelUnit.PER_SECOND,
            queries=_rate_by_table("tilth_ingest_messages_total"),
            page=f"{_QUESTIONS}#15-is-the-topic-idle-or-is-its-consumer-stuck",
        ),
        Panel(
            title="Rows stored",
            description="Rows that rounds have committed, in a second, over all views of the Kafka table.",
            unit=PanelUnit.PER_SECOND,
            queries=_rate_by_table("tilth_ingest_rows_total"),
            page=f"{_QUESTIONS}#5-why-does-a-topic-that-is-read-give-no-rows",
        ),
        Panel(
            title="Bytes read",
            description="Bytes of the messages that rounds have committed, in a second.",
            unit=PanelUnit.BYTES_PER_SECOND,
            queries=_rate_by_table("tilth_ingest_bytes_total"),
            page=f"{OPERATE}/sizing.md#what-one-node-does",
        ),
        Panel(
            title="Dead letters",
            description="Messages that could not be decoded, or that a view has refused, in a second.",
            unit=PanelUnit.PER_SECOND,
            queries=(
                PanelQuery(
                    expression=_sum(_rate("tilth_ingest_dead_letters_total", among=_TABLES), "database, table"),
                    legend="{{database}}.{{table}} not decoded",
                ),
                PanelQuery(
                    expression=_sum(_rate("tilth_ingest_refused_total", among=_TABLES), "database, table"),
                    legend="{{database}}.{{table}} refused by a view",
                ),
            ),
            page=f"{_QUESTIONS}#5-why-does-a-topic-that-is-read-give-no-rows",
            is_fault=True,
        ),
    ),
)

TABLES = PanelRow(
    title="Tables",
    panels=(
        Panel(
            title="Freshness",
            description="Time since the last commit of each table, also that of a merge.",
            unit=PanelUnit.SECONDS,
            queries=_series(
                f"time() - max by (database, table) "
                f"({_of('tilth_table_last_commit_timestamp_seconds', among=_TABLES)} > 0)",
                "{{database}}.{{table}}",
            ),
            page=f"{_QUESTIONS}#5-why-does-a-topic-that-is-read-give-no-rows",
        ),
        Panel(
            title="Parts",
            description="Visible parts of each table, which merges keep few.",
            unit=PanelUnit.COUNT,
            queries=_by_table("tilth_table_parts"),
            page=f"{_QUESTIONS}#18-why-are-these-parts-not-merged",
        ),
        Panel(
            title="Row segments",
            description="Row segments of tables with a memory buffer: rows that a flush has not sorted into parts yet.",
            unit=PanelUnit.COUNT,
            queries=_by_table("tilth_table_segments"),
            page="docs/policies/flush.md",
        ),
        Panel(
            title="Rows inserted",
            description="Rows of all inserts and rounds, in a second.",
            unit=PanelUnit.PER_SECOND,
            queries=_rate_by_table("tilth_table_inserted_rows_total"),
            page=f"{OPERATE}/sizing.md#what-one-node-does",
        ),
        Panel(
            title="Backlog",
            description="Kinds of maintenance that each table has work for.",
            unit=PanelUnit.COUNT,
            queries=_by_table("tilth_table_waiting_ops"),
            page=f"{OPERATE}/background-tasks.md#see-them",
        ),
        Panel(
            title="Hosted tables",
            description="Tables that each server hosts, and those without lines of their own on this board, because "
            "they are more than the setting server.metrics-tables-max.",
            unit=PanelUnit.COUNT,
            queries=(
                *_series(_sum(_of("tilth_tables_hosted"), "instance"), "{{instance}}"),
                *_series(_sum(_of("tilth_metrics_tables_left_out"), "instance"), "{{instance}} without lines"),
            ),
            page=f"{OPERATE}/servers.md#who-hosts-what",
        ),
    ),
)

QUERIES = PanelRow(
    title="Queries and INSERTs",
    panels=(
        Panel(
            title="Duration of statements",
            description="From the first byte of a request to the last of its answer, at half of the statements and at "
            "99 of 100.",
            unit=PanelUnit.SECONDS,
            queries=_quantiles("tilth_http_request_seconds", 'route="/v1/sql"', by="route"),
            page=f"{OPERATE}/sizing.md#tuning",
        ),
        Panel(
            title="Duration of INSERTs with rows in the body",
            description="From the first byte of a request to its answer, which comes after the commit.",
            unit=PanelUnit.SECONDS,
            queries=_quantiles("tilth_http_request_seconds", 'route=~"/v1/insert/.*"', by="route"),
            page=f"{_QUESTIONS}#9-why-are-inserts-slow-or-refused",
        ),
        Panel(
            title="Requests",
            description="Requests that were answered, in a second, by route and status.",
            unit=PanelUnit.PER_SECOND,
            queries=_series(_sum(_rate("tilth_http_requests_total"), "route, status"), "{{route}} {{status}}"),
            page="docs/reference/http.md",
        ),
        Panel(
            title="INSERTs slowed and refused",
            description="Writes that waited or were refused, because a partition has too many parts or memory is "
            "scarce, in a second.",
            unit=PanelUnit.PER_SECOND,
            queries=(
                PanelQuery(expression=_sum(_rate("tilth_inserts_delayed_total")), legend="slowed"),
                PanelQuery(expression=_sum(_rate("tilth_inserts_rejected_total")), legend="refused, too many parts"),
                PanelQuery(
                    expression=_sum(_rate("tilth_leader_memory_pressure_rejections_total")),
                    legend="refused, scarce memory",
                ),
            ),
            page=f"{_QUESTIONS}#9-why-are-inserts-slow-or-refused",
            is_fault=True,
        ),
        Panel(
            title="Transactions",
            description="Commits of INSERTs, rounds and background tasks, in a second, and commits that were refused "
            "or whose outcome nobody knows.",
            unit=PanelUnit.PER_SECOND,
            queries=(
                PanelQuery(expression=_sum(_rate("tilth_transactions_committed_total")), legend="committed"),
                PanelQuery(expression=_sum(_rate("tilth_transactions_refused_total")), legend="refused"),
                PanelQuery(expression=_sum(_rate("tilth_transactions_unknown_total")), legend="unknown"),
            ),
            page="docs/design/0002-transactions.md",
        ),
        Panel(
            title="Duration of a commit",
            description="Mean time of a commit in the catalog.",
            unit=PanelUnit.SECONDS,
            queries=_series(
                f"{_sum(_rate('tilth_commit_seconds_total'), 'instance')} / "
                f"{_sum(_rate('tilth_transactions_committed_total'), 'instance')}",
                "{{instance}}",
            ),
            page=f"{OPERATE}/servers.md#the-database",
        ),
    ),
)

MAINTENANCE = PanelRow(
    title="Merges and other background tasks",
    panels=(
        Panel(
            title="Backlog by kind of work",
            description="Estimated bytes that wait for background work.",
            unit=PanelUnit.BYTES,
            queries=_series(_sum(_of("tilth_maintenance_waiting_bytes"), "op"), "{{op}}"),
            page=f"{OPERATE}/background-tasks.md#see-them",
        ),
        Panel(
            title="Running now",
            description="Runs of background work under way.",
            unit=PanelUnit.COUNT,
            queries=_series(_sum(_of("tilth_maintenance_running"), "op"), "{{op}}"),
            page=f"{OPERATE}/background-tasks.md#which-there-are",
        ),
        Panel(
            title="Duration of runs",
            description="Duration of runs of background work, at half of them and at 99 of 100.",
            unit=PanelUnit.MILLISECONDS,
            queries=_quantiles("tilth_maintenance_milliseconds", by="op"),
            page=f"{OPERATE}/background-tasks.md#see-them",
        ),
        Panel(
            title="Merges and flushes",
            description="Merges and flushes that ended, in a second.",
            unit=PanelUnit.PER_SECOND,
            queries=_series(_sum(_rate("tilth_maintenance_milliseconds_count", 'op=~"merge|flush"'), "op"), "{{op}}"),
            page=f"{_QUESTIONS}#18-why-are-these-parts-not-merged",
        ),
        Panel(
            title="Bytes removed",
            description="Bytes of files that garbage collection has removed, in a second.",
            unit=PanelUnit.BYTES_PER_SECOND,
            queries=_series(_sum(_rate("tilth_gc_removed_bytes_total")), "removed"),
            page=f"{OPERATE}/recovery.md#what-keeps-old-files",
        ),
        Panel(
            title="Tasks that ended",
            description="Tasks on workers that ended, in a second, by how they ended.",
            unit=PanelUnit.PER_SECOND,
            queries=_series(_sum(_rate("tilth_tasks_ended_total"), "result"), "{{result}}"),
            page=f"{OPERATE}/workers.md#when-something-goes-wrong",
        ),
    ),
)

CLUSTER = PanelRow(
    title="Servers, workers, disks",
    panels=(
        Panel(
            title="Tasks by warehouse",
            description="Tasks that run, wait and stay (consumers), beside the number that may run at once.",
            unit=PanelUnit.COUNT,
            queries=(
                *_series(_sum(_of("tilth_warehouse_tasks"), "warehouse, state"), "{{warehouse}} {{state}}"),
                *_series(_sum(_of("tilth_warehouse_slots"), "warehouse"), "{{warehouse}} slots"),
            ),
            page=f"{OPERATE}/workers.md#start-one",
        ),
        Panel(
            title="Workers that answer",
            description="1 while a worker answers its server.",
            unit=PanelUnit.COUNT,
            queries=_series(_of("tilth_worker_up"), "{{instance}} {{worker}}"),
            page=f"{_QUESTIONS}#22-does-spark-still-answer",
        ),
        Panel(
            title="Free disk",
            description="Free share of the disks that servers and their workers write to.",
            unit=PanelUnit.SHARE,
            queries=_series(f"{_of('tilth_disk_free_bytes')} / {_of('tilth_disk_bytes')}", "{{instance}} {{disk}}"),
            page=f"{OPERATE}/sizing.md#disk",
        ),
        Panel(
            title="Disks and replicas in trouble",
            description="Disks that are nearly full, storages and replicas that do not answer or lack copies. "
            "Everything here is 0 while all is well.",
            unit=PanelUnit.COUNT,
            queries=_findings("disk_full", "disk_low", "storage_away", "replica_away", "replica_behind"),
            page=f"{OPERATE}/storages.md#replicas",
        ),
        Panel(
            title="Memory of servers",
            description="Memory of the node's own process; Spark's JVM is another process.",
            unit=PanelUnit.BYTES,
            queries=_series(_of("process_resident_memory_bytes"), "{{instance}}"),
            page=f"{OPERATE}/sizing.md#memory",
        ),
        Panel(
            title="Processor time of servers",
            description="Cores that the node's own process uses, without Spark's JVM.",
            unit=PanelUnit.COUNT,
            queries=_series(_rate("process_cpu_seconds_total"), "{{instance}}"),
            page=f"{OPERATE}/sizing.md#what-one-node-does",
        ),
    ),
)

ROWS = (NOW, STREAMS, TABLES, QUERIES, MAINTENANCE, CLUSTER)


def panels() -> list[Panel]:
    """Return all panels in their order."""
    return [panel for row in ROWS for panel in row.panels]
