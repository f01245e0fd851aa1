"""Writes the dashboard of Grafana from a list of panels.

    python -m tools.make_dashboard            writes deploy/grafana/tilth.json
    python -m tools.make_dashboard --check    writes nothing; exit code 1 if the file is stale

Covers: the file of Grafana. Does not cover: which panels there are (dashboard_panels.py); whether Grafana's schema and
Prometheus accept them (tests/unit/tools/test_make_dashboard.py, tests/acceptance/test_prometheus_rules.py).
See also: docs/operate/dashboard.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from tools.dashboard_panels import ROWS, Panel, PanelKind
from tools.make_rules import JOB

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD = ROOT / "deploy" / "grafana" / "tilth.json"

#: Width of Grafana's grid.
COLUMNS = 24
#: Height of a panel, and of the numbers at the top.
HEIGHT, STAT_HEIGHT = 8, 4
PANELS_IN_A_ROW = 3
#: Version of Grafana's schema that the file is written in.
SCHEMA_VERSION = 39
#: Variable with the address below which the pages are.
DOCS = "${docs}"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

# JSON of Grafana.
Json = dict[str, object]


def dashboard() -> Json:
    """Return the dashboard as Grafana's JSON."""
    return {
        "uid": "tilth",
        "title": "Tilth",
        "description": "Streams, tables, queries, background work and servers of Tilth.",
        "tags": ["tilth"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_grid()),
    }


def _variables() -> Iterator[Json]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}
    for name, label, query in (
        ("instance", "Server", f'label_values(up{{job="{JOB}"}}, instance)'),
        ("database", "Database", f'label_values(tilth_service_state{{job="{JOB}"}}, database)'),
        ("table", "Table", f'label_values(tilth_service_state{{job="{JOB}", database=~"$database"}}, table)'),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": DATASOURCE,
            "query": query,
            "refresh": 2,
            "sort": 1,
            "includeAll": True,
            "multi": True,
            # Series without the label are among all of them.
            "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
            "hide": 0,
        }
    yield {
        "name": "docs",
        "label": "Documentation at",
        "description": "Address below which the folder docs of Tilth's repository is, for the links of panels.",
        "type": "textbox",
        "query": "https://docs.example.org/tilth",
        "current": {
            "selected": True,
            "text": "https://docs.example.org/tilth",
            "value": "https://docs.example.org/tilth",
        },
        "hide": 0,
    }


def _grid() -> Iterator[Json]:
    """Yield headings and panels with their positions: numbers in one line, charts in lines of three."""
    ids, top = count(1), 0
    for row in ROWS:
        yield {
            "id": next(ids),
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            **_at(top, 0, COLUMNS, 1),
        }
        top += 1
        stats = [panel for panel in row.panels if panel.kind is PanelKind.STAT]
        charts = [panel for panel in row.panels if panel.kind is PanelKind.TIMES]
        for line, height in [(stats, STAT_HEIGHT)] * bool(stats) + [
            (charts[begin : begin + PANELS_IN_A_ROW], HEIGHT) for begin in range(0, len(charts), PANELS_IN_A_ROW)
        ]:
            width = COLUMNS // len(line)
            for column, panel in enumerate(line):
                yield {"id": next(ids), **_panel(panel), **_at(top, column * width, width, height)}
            top += height


def _at(top: int, left: int, width: int, height: int) -> Json:
    return {"gridPos": {"x": left, "y": top, "w": width, "h": height}}


def _panel(panel: Panel) -> Json:
    return {
        "type": panel.kind.value,
        "title": panel.title,
        "description": f"{panel.description} See {panel.page}.",
        "datasource": DATASOURCE,
        "links": [{"title": "What it means, and what to do", "url": f"{DOCS}/{panel.page}", "targetBlank": True}],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
                "instant": panel.kind is PanelKind.STAT,
                "range": panel.kind is not PanelKind.STAT,
            }
            for number, query in enumerate(panel.queries)
        ],
    }


def _defaults(panel: Panel) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    if panel.is_fault:
        steps.append({"color": "red", "value": 1})
    defaults: Json = {
        "unit": panel.unit.value,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.kind is PanelKind.TIMES:
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": False}
    return defaults


def _options(panel: Panel) -> Json:
    if panel.kind is PanelKind.STAT:
        return {
            "colorMode": "background",
            "graphMode": "none",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def text() -> str:
    """Return the text of the file."""
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Writes or checks; returns the exit code."""
    is_current = DASHBOARD.exists() and DASHBOARD.read_text() == text()
    if "--check" in arguments:
        print("the dashboard is current" if is_current else f"{DASHBOARD.name} is stale")
        return 0 if is_current else 1
    if not is_current:
        DASHBOARD.write_text(text())
    print(f"written: {DASHBOARD.name}" if not is_current else "nothing, the file was current")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
