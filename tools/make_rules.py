"""Writes Prometheus' alert rules, their unit tests and the list of alarms of the documentation from the declarations.

    python -m tools.make_rules            writes the files
    python -m tools.make_rules --check    writes nothing; names the files that are stale, exit code 1 if there are any

Covers: a rule for each alarm of `tilth.introspection.alarms`; rules for what no server can report of itself. Does not
cover: whether Prometheus accepts them (tests/acceptance/test_prometheus_rules.py). Always holds: a rule's summary is
the alarm's meaning, its description what to do, its link the alarm's page; every rule has a test that it fires when its
time is over, that it does not fire before, and that it does not fire while all is well.
See also: docs/operate/alarms.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilth.introspection.alarms.alarm import Alarm, Severity
from tilth.introspection.alarms.alarms import ALARMS
from tools.prose import wrapped

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "deploy" / "prometheus" / "tilth.rules.yml"
TESTS = ROOT / "deploy" / "prometheus" / "tilth.tests.yml"
PAGE = ROOT / "docs" / "operate" / "alarms.md"

#: Label `job` of Tilth's servers in the configuration of Prometheus.
JOB = "tilth"
MADE = "Made from the code by `python -m tools.make_rules`; do not edit."
#: Lines of the page between which the list of alarms is.
BEGIN, END = f"<!-- {MADE} -->", "<!-- The end of what is made. -->"
#: Minute of a test at which something begins to be wrong.
WRONG_AT = 5
#: A server that is well, as the tests see it.
SERVER = {"job": JOB, "instance": "a:7411"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An alert rule and the series of its unit test."""

    #: In snake case.
    name: str
    severity: Severity
    meaning: str
    todo: str
    page: str
    #: Minutes for which the expression has to hold.
    minutes: int
    expression: str
    #: Series with their value while all is well and their values from when something is wrong; the last one stays.
    series: tuple[tuple[str, str, str], ...]
    #: Labels of the alert, beside its severity.
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def alert(self) -> str:
        return "Tilth" + "".join(word.capitalize() for word in self.name.split("_"))


def rule_of(alarm: Alarm) -> Rule:
    """Return the rule of an alarm. Servers are added up: what concerns all is reported by one of them, and after a
    failover by another one.
    """
    labels = {"alarm": alarm.name, "severity": alarm.severity.value}
    return Rule(
        name=alarm.name,
        severity=alarm.severity,
        meaning=alarm.meaning,
        todo=alarm.todo,
        page=alarm.page,
        minutes=alarm.minutes,
        expression=f'sum without (instance) (tilth_alarms{{alarm="{alarm.name}"}}) > 0',
        series=((_series("tilth_alarms", **SERVER, **labels), "0", "2"),),
        labels=(("alarm", alarm.name), ("job", JOB)),
    )


def _series(name: str, **labels: str) -> str:
    return f"{name}{{{', '.join(f'{key}={json.dumps(value)}' for key, value in labels.items())}}}"


#: What only a view from outside shows.
OUTSIDE = (
    Rule(
        name="server_down",
        severity=Severity.CRITICAL,
        meaning="A server does not answer Prometheus.",
        todo="See whether its process runs and its log, then start it; other servers of its catalog host its tables "
        "meanwhile.",
        page="docs/operate/servers.md#when-something-goes-wrong",
        minutes=1,
        expression=f'up{{job="{JOB}"}} == 0',
        series=((_series("up", **SERVER), "1", "0"),),
        labels=tuple(SERVER.items()),
    ),
    Rule(
        name="no_server",
        severity=Severity.CRITICAL,
        meaning="No server answers Prometheus, so that no table has a host: nothing is read, stored or merged.",
        todo="Start a server; see the catalog's database, the disk with the catalog's folder and the network.",
        page="docs/operate/servers.md#when-something-goes-wrong",
        minutes=1,
        expression=f'sum by (job) (up{{job="{JOB}"}}) == 0',
        series=((_series("up", **SERVER), "1", "0"), (_series("up", job=JOB, instance="b:7411"), "0", "0")),
        labels=(("job", JOB),),
    ),
    Rule(
        name="not_scraped",
        severity=Severity.CRITICAL,
        meaning=f"Prometheus knows no server of the job {JOB}.",
        todo="Repair the scrape configuration or the discovery of targets.",
        page="docs/operate/alarms.md#prometheus",
        minutes=5,
        expression=f'absent(up{{job="{JOB}"}})',
        # Prometheus marks the series of a target that it does not know any more.
        series=((_series("up", **SERVER), "1", "stale"),),
        labels=(("job", JOB),),
    ),
    Rule(
        name="blind",
        severity=Severity.WARNING,
        meaning="A server cannot read some of its own numbers, so that alarms may be missing.",
        todo="See GET /v1/health of the server, which names what does not answer and since when.",
        page="docs/operate/recovery.md#when-something-is-wrong",
        minutes=5,
        expression=f'tilth_metrics_source_up{{job="{JOB}"}} == 0',
        series=((_series("tilth_metrics_source_up", **SERVER, source="alarms"), "1", "0"),),
        labels=(*SERVER.items(), ("source", "alarms")),
    ),
    Rule(
        name="restarts",
        severity=Severity.WARNING,
        meaning="A server has been started more than three times within an hour.",
        todo="See the end of its log before each start, and whether the machine ends it for its memory.",
        page="docs/operate/sizing.md#memory",
        minutes=0,
        expression=f'changes(process_start_time_seconds{{job="{JOB}"}}[1h]) > 3',
        # After the first sample of the new values the number of changes is 4.
        series=((_series("process_start_time_seconds", **SERVER), "100", "101 102 103 104"),),
        labels=tuple(SERVER.items()),
    ),
)


def rules() -> list[Rule]:
    """Return the rules of all alarms, and those of what is seen from outside."""
    return [*OUTSIDE, *map(rule_of, ALARMS)]


def rules_text() -> str:
    """Return the file of rules."""
    return "".join(f"{line}\n" for line in _rules_lines())


def _rules_lines() -> Iterator[str]:
    yield f"# {MADE}"
    yield f"# Alerts of Tilth; its servers are the job `{JOB}`. docs/operate/alarms.md says how to use them."
    yield "groups:"
    for group, members in (("tilth-outside", OUTSIDE), ("tilth-alarms", tuple(map(rule_of, ALARMS)))):
        yield f"  - name: {group}"
        yield "    rules:"
        for rule in members:
            yield f"      - alert: {rule.alert}"
            yield f"        expr: {_quoted(rule.expression)}"
            yield f"        for: {rule.minutes}m"
            yield "        labels:"
            yield f"          severity: {rule.severity.value}"
            yield "        annotations:"
            yield from (f"          {name}: {_quoted(text)}" for name, text in _annotations(rule))


def _annotations(rule: Rule) -> tuple[tuple[str, str], ...]:
    return (("summary", rule.meaning), ("description", rule.todo), ("runbook_url", rule.page))


def _quoted(text: str) -> str:
    """Return the text as a scalar of YAML in double quotes, which a string of JSON is."""
    return json.dumps(text, ensure_ascii=False)


def tests_text() -> str:
    """Return the file of unit tests."""
    return "".join(f"{line}\n" for line in _tests_lines())


def _tests_lines() -> Iterator[str]:
    yield f"# {MADE}"
    yield "# promtool test rules tilth.tests.yml"
    yield "rule_files:"
    yield f"  - {RULES.name}"
    yield "evaluation_interval: 1m"
    yield "tests:"
    for rule in rules():
        yield from _test_lines(rule)
    yield from _moving_lines()


def _moving_lines() -> Iterator[str]:
    """Yield the test that an alert goes on when another server reports it, as after a failover."""
    rule = next(each for each in rules() if each.minutes > 1 and each.labels[0] == ("alarm", each.name))
    labels = {"job": JOB, "alarm": rule.name, "severity": rule.severity.value}
    fires = WRONG_AT + rule.minutes
    values = {"a:7411": "1 stale", "b:7411": "0 1"}
    yield f"  - name: {rule.name}, reported by another server"
    yield "    interval: 1m"
    yield "    input_series:"
    for instance, wrong in values.items():
        yield f"      - series: {_quoted(_series('tilth_alarms', instance=instance, **labels))}"
        yield f"        values: {_quoted(_values('0', wrong, until=fires))}"
    yield "    alert_rule_test:"
    yield from _expected_lines(rule, fires - 1, is_firing=False)
    yield from _expected_lines(rule, fires, is_firing=True)


def _test_lines(rule: Rule) -> Iterator[str]:
    # With several new values, the last of them is what is wrong.
    fires = WRONG_AT + max(len(wrong.split()) for _, _, wrong in rule.series) - 1 + rule.minutes
    yield f"  - name: {rule.name}"
    yield "    interval: 1m"
    yield "    input_series:"
    for series, well, wrong in rule.series:
        yield f"      - series: {_quoted(series)}"
        yield f"        values: {_quoted(_values(well, wrong, until=fires))}"
    yield "    alert_rule_test:"
    for minute in sorted({WRONG_AT - 1, fires - 1}):
        yield from _expected_lines(rule, minute, is_firing=False)
    yield from _expected_lines(rule, fires, is_firing=True)


def _values(well: str, wrong: str, *, until: int) -> str:
    """Return a value for each minute."""
    new = wrong.split()
    return " ".join([*[well] * WRONG_AT, *new, *[new[-1]] * (until - WRONG_AT + 2 - len(new))])


def _expected_lines(rule: Rule, minute: int, *, is_firing: bool) -> Iterator[str]:
    yield f"      - eval_time: {minute}m"
    yield f"        alertname: {rule.alert}"
    if not is_firing:
        yield "        exp_alerts: []"
        return
    yield "        exp_alerts:"
    yield "          - exp_labels:"
    for name, value in (("severity", rule.severity.value), *rule.labels):
        yield f"              {name}: {_quoted(value)}"
    yield "            exp_annotations:"
    yield from (f"              {name}: {_quoted(text)}" for name, text in _annotations(rule))


def list_text() -> str:
    """Return the part of the page that lists the alarms."""
    return wrapped("\n".join(_list_lines()))


def _list_lines() -> Iterator[str]:
    for severity, text in (
        (Severity.CRITICAL, "Rows are not read, not stored or at risk: act at once."),
        (Severity.WARNING, "Act within hours, before it becomes critical."),
    ):
        yield from (f"## {severity.value.capitalize()}", "", text, "")
        yield from ("| alarm | when | what to do | minutes |", "|---|---|---|---|")
        yield from (_row(each) for each in rules() if each.severity is severity and each not in OUTSIDE)
        yield ""
    yield from (
        "## Seen from outside",
        "",
        "What no server can report of itself; these are rules of Prometheus only.",
        "",
    )
    yield from ("| rule | severity | when | what to do | minutes |", "|---|---|---|---|---|")
    yield from (_row(each, f" {each.severity.value} |") for each in OUTSIDE)


def _row(rule: Rule, severity: str = "") -> str:
    page = rule.page.removeprefix("docs/operate/")
    link = page if not page.startswith(f"{PAGE.name}#") else page.removeprefix(PAGE.name)
    name = rule.alert if severity else rule.name
    return f"| [`{name}`]({link}) |{severity} {_in_cell(rule.meaning)} | {_in_cell(rule.todo)} | {rule.minutes} |"


def _in_cell(text: str) -> str:
    return text.replace("|", "\\|")


def page_text(page: str) -> str:
    """Return the page with the list of alarms as it should be."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"{PAGE.name} has the two lines between which the list is"
    return f"{before}{BEGIN}\n\n{list_text().strip()}\n\n{END}{after}"


def files() -> dict[Path, str]:
    """Return every file with the text that it should have."""
    return {RULES: rules_text(), TESTS: tests_text(), PAGE: page_text(PAGE.read_text())}


def main(arguments: Sequence[str]) -> int:
    """Writes or checks; returns the exit code."""
    wanted = files()
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        print("\n".join(path.name for path in stale) or "the rules are current")
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path])
    print(f"written: {', '.join(path.name for path in stale) or 'nothing, all files were current'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
