"""Prometheus itself takes the rules, and each fires when it should; `make promtool` fetches its tool."""

from __future__ import annotations

import subprocess

import pytest

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
