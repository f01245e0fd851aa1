"""The rules of Prometheus, their unit tests and the page of alarms are those that the declarations make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import anchors_of
from tests.tidy.sources import ROOT
from tilth.introspection.alarms.alarms import ALARMS
from tilth.server import METRICS
from tools import make_rules


@pytest.mark.parametrize("path", sorted(make_rules.files()), ids=lambda path: path.name)
def test_a_generated_file_is_current(path: Path) -> None:
    assert path.read_text() == make_rules.files()[path], "run `make docs`"


def test_every_alarm_has_a_rule_a_test_and_a_line_on_the_page() -> None:
    rules, tests, page = (path.read_text() for path in make_rules.files())
    for alarm in ALARMS:
        rule = make_rules.rule_of(alarm)
        assert f"- alert: {rule.alert}\n" in rules
        assert f"alertname: {rule.alert}\n        exp_alerts: []" in tests
        assert f"alertname: {rule.alert}\n        exp_alerts:\n" in tests
        assert f"| [`{alarm.name}`](" in page
        assert alarm.meaning in rules.replace('\\"', '"')
        assert alarm.todo in page


def test_rules_name_metrics_and_pages_that_are_there() -> None:
    names = {name for rule in make_rules.rules() for name in re.findall(r"\btilth_\w+", rule.expression)}
    assert names <= {metric.name for metric in METRICS}
    for rule in make_rules.rules():
        page, _, anchor = rule.page.partition("#")
        assert anchor in anchors_of(ROOT / page), rule.alert


def test_no_two_rules_have_one_name() -> None:
    names = [rule.alert for rule in make_rules.rules()]
    assert len(names) == len(set(names))
