"""Counters and gauges, declared once: as fields of the dataclass that holds the numbers.

Covers: how a metric is declared, and the metrics of a dataclass. Does not cover: Prometheus (server/metrics.py).

    commits: int = counter("tilth_transactions_committed_total", "Transactions that landed.")

The metric, its line in docs/reference/metrics.md and the row of `system.metrics` follow from the field.

Tests: tests/unit/server/test_metrics.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any


class MetricType(StrEnum):
    """Prometheus' own words."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    #: Count and sum.
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as it is declared."""

    name: str
    type: MetricType
    labels: tuple[str, ...]
    #: One sentence, for the reference and for Prometheus.
    help: str


#: Metadata key of a field's metrics.
_METRICS = "metrics"


def counter(name: str, about: str, *, labels: tuple[str, ...] = (), twin: str = "") -> int:
    """Declare a number that only grows; typed as its value, as `dataclasses.field` is. `twin`: a second name of it."""
    metrics = [Metric(each, MetricType.COUNTER, labels, about) for each in (name, twin) if each]
    number: int = measured(0, *metrics)
    return number


def gauge(name: str, about: str, *, labels: tuple[str, ...] = ()) -> int:
    """Declare a number as it is now."""
    number: int = measured(0, Metric(name, MetricType.GAUGE, labels, about))
    return number


# Any: the field's type is known where it is declared.
def measured(default: Any, *metrics: Metric, **metadata: object) -> Any:
    """Declare a field whose value these metrics show; a default that is a class is called."""
    marked = {_METRICS: metrics, **metadata}
    if isinstance(default, type):
        return field(default_factory=default, metadata=marked)
    return field(default=default, metadata=marked)


# Any: as above.
def metrics_of(kind: Any) -> Iterator[tuple[str, tuple[Metric, ...]]]:
    """Yield the fields of a dataclass, or of one of its values, that have metrics, in order."""
    for each in fields(kind):
        if _METRICS in each.metadata:
            yield each.name, each.metadata[_METRICS]
