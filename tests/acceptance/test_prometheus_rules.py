"""Prometheus itself takes the rules, each of which fires when it should, and the queries of the dashboard; `make
promtool` fetches its tool. Milliseconds.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tools.dashboard_panels import RATE, panels
from tools.make_rules import ROOT, RULES, TESTS, rules

pytestmark = pytest.mark.acceptance

PROMTOOL = ROOT / ".cache" / "promtool" / "promtool"
SECONDS_MAX = 60


def promtool(*arguments: str) -> str:
    """What promtool says; a failure shows it."""
    assert PROMTOOL.exists(), "run `make promtool`"
    command = [str(PROMTOOL), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_prometheus_takes_every_rule() -> None:
    assert f"SUCCESS: {len(rules())} rules found" in promtool("check", "rules", str(RULES))


def test_every_rule_fires_in_time_and_not_while_all_is_well() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(TESTS))


def rules_of(expressions: list[str]) -> str:
    """A file of rules, one for each expression, with an interval where Grafana puts one."""
    lines = [
        f"      - record: query_{index}\n        expr: {json.dumps(each.replace(RATE, '1m'))}\n"
        for index, each in enumerate(expressions)
    ]
    return "groups:\n  - name: dashboard\n    rules:\n" + "".join(lines)


def test_prometheus_parses_every_query_of_the_dashboard(tmp_path: Path) -> None:
    expressions = [query.expression for panel in panels() for query in panel.queries]
    file = tmp_path / "queries.yml"
    file.write_text(rules_of(expressions))
    assert f"SUCCESS: {len(expressions)} rules found" in promtool("check", "rules", str(file))
    file.write_text(rules_of([expressions[0].replace("(", "((", 1)]))
    with pytest.raises(AssertionError, match="could not parse expression"):
        promtool("check", "rules", str(file))
