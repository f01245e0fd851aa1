"""The dashboard of Grafana is the one that the list of panels makes, and each panel is complete."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.docs.pages import anchors_of
from tests.tidy.sources import ROOT
from tilth.server import METRICS
from tools import make_dashboard
from tools.dashboard_panels import Panel, panels

#: Metrics of Prometheus' own, and of its client library.
OF_PROMETHEUS = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total"}
#: Words before the labels of an expression.
SELECTOR = re.compile(r"\b([a-z_]\w*)\{")
#: Series of a histogram, beside its name.
OF_A_HISTOGRAM = re.compile(r"_(bucket|sum|count)$")


def test_the_file_is_current() -> None:
    assert make_dashboard.DASHBOARD.read_text() == make_dashboard.text(), "run `make docs`"


# Any: JSON.
def shown() -> list[dict[str, Any]]:
    return [each for each in json.loads(make_dashboard.DASHBOARD.read_text())["panels"] if each["type"] != "row"]


def test_each_panel_has_what_its_reader_needs() -> None:
    assert len(shown()) == len(panels()) > 20
    assert len({each["title"] for each in shown()}) == len(shown())
    for each in shown():
        assert each["type"] in ("timeseries", "stat")
        assert each["title"]
        assert each["description"].endswith(".")
        assert each["fieldConfig"]["defaults"]["unit"]
        assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert each["targets"]
        assert [link["url"].startswith("${docs}/docs/") for link in each["links"]] == [True]


def test_no_two_panels_overlap_and_none_leaves_the_grid() -> None:
    cells = set[tuple[int, int]]()
    for each in json.loads(make_dashboard.DASHBOARD.read_text())["panels"]:
        at = each["gridPos"]
        covered = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not covered & cells, each["title"]
        assert at["x"] + at["w"] <= make_dashboard.COLUMNS
        cells |= covered


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel.title)
def test_a_panel_names_metrics_and_a_page_that_are_there(panel: Panel) -> None:
    known = {metric.name: set(metric.labels) for metric in METRICS}
    for query in panel.queries:
        names = SELECTOR.findall(query.expression)
        assert names
        for name in set(names) - OF_PROMETHEUS:
            metric = name if name in known else OF_A_HISTOGRAM.sub("", name)
            assert metric in known, name
            for label in labels_of(query.expression) | set(re.findall(r"\{\{(\w+)\}\}", query.legend)):
                assert label in known[metric] | {"job", "instance", "le"}, (name, label)
    page, _, anchor = panel.page.partition("#")
    assert (ROOT / page).is_file()
    assert not anchor or anchor in anchors_of(ROOT / page)


def labels_of(expression: str) -> set[str]:
    """Labels that an expression compares, and those by which it sums."""
    by = {label for labels in re.findall(r"\bby \(([^)]*)\)", expression) for label in labels.split(", ")}
    return by | set(re.findall(r"[{,] ?(\w+)=", expression))
