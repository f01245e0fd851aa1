"""The checks of a server that runs, by its public API: what every user can read.

Covers: components, alarms, services, leases, versions, clocks. Does not cover: calls (client/http.py), what alarms find
(tilth.introspection).
Always holds: statements only read and leave no line in `system.query_log`; a server that does not answer is one
finding, not one for each check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from tilth.base.clock import Clock
from tilth.base.errors import TilthError, UnknownOutcomeError
from tilth.base.units import parse_seconds
from tilth.doctor.checkup import PAGE, Checkup, failed, ok, run_checks
from tilth.model.diagnosis import Diagnosis, Grade
from tilth.model.wire import Health

#: Settings of each statement.
READ_ONLY: Mapping[str, str] = {"readonly": "1", "log_queries": "0", "max_execution_time": "30"}
#: Difference of this machine's clock and the server's that is worth a finding, in milliseconds: nothing depends on the
#: clocks of clients but times that people compare.
CLIENT_CLOCK_MS_MAX = 2_000
#: A service that should have polled longer ago than this is stuck, in seconds.
LATE_SECONDS_MAX = 120
#: Share of the time of all checks after which a call is given up, so that the check can say so.
CALL_SHARE = 0.8
#: Findings of one check that are shown; more of them would say the same.
SHOWN_MAX = 20


class ServerCalls(Protocol):
    """A connection to the server."""

    @property
    def url(self) -> str: ...

    def health(self) -> Health: ...

    def ready(self) -> Health: ...

    # Any: a cell is whatever the column's type is in Python.
    def rows(self, statement: str, settings: Mapping[str, str]) -> list[tuple[Any, ...]]: ...


def check_server(clock: Clock, calls: ServerCalls, own_version: str, *, seconds_max: float) -> list[Diagnosis]:
    """Check the server; `own_version`: that of this program."""
    first = Checkup(name="server", heading="server", run=lambda own: _check_health(own, calls, seconds_max))
    found = run_checks(clock, [first], seconds_max=seconds_max)
    if any(each.page == first.page for each in found):
        # It does not answer: every other check would say the same.
        return found
    checks = [
        Checkup(name="statements", heading="statements", run=lambda own: _check_ready(own, calls)),
        Checkup(name="alarms", heading="alarms", run=lambda own: _check_alarms(own, calls)),
        Checkup(name="services", heading="services", run=lambda own: _check_services(own, calls)),
        Checkup(name="leases", heading="leases", run=lambda own: _check_leases(own, calls)),
        Checkup(name="versions", heading="versions", run=lambda own: _check_versions(own, calls, own_version)),
        Checkup(name="clocks", heading="clock", run=lambda own: _check_clocks(own, calls, clock)),
    ]
    return [*found, *run_checks(clock, checks, seconds_max=seconds_max)]


# Any: as in `rows`.
def _read(calls: ServerCalls, statement: str) -> list[tuple[Any, ...]]:
    return calls.rows(statement, READ_ONLY)


def _check_health(own: Checkup, calls: ServerCalls, seconds_max: float) -> list[Diagnosis]:
    try:
        health = calls.health()
    except UnknownOutcomeError as error:
        if "in time" not in error.message:
            return [failed(own.name, error, own.page)]
        sentence = f"{calls.url} accepts the connection and has not answered within {seconds_max * CALL_SHARE:g} s"
        todo = "read the server's log, or see whether another program has this port; if the server hangs, start it anew"
        return [own.found(Grade.ERROR, sentence, todo)]
    except TilthError as error:
        return [failed(own.name, error, own.page)]
    page = f"{PAGE}#components"
    todo = "repair what the sentence names; the server goes on by itself"
    found = [
        Diagnosis(check=own.name, grade=Grade.ERROR, sentence=f"{name}: {state}", todo=todo, page=page)
        for name, state in health.components.items()
        if state != "ok"
    ]
    todo = "see on the page what can be lost, and whether that is meant"
    found += [
        Diagnosis(check=own.name, grade=Grade.WARNING, sentence=f"{name}: {note}", todo=todo, page=page)
        for name, note in health.notes.items()
    ]
    if health.status == "ok":
        sentence = f"{calls.url} answers as server {health.server}, and its {len(health.components)} components work"
        found.insert(0, ok(own.name, sentence))
    return found


def _check_ready(own: Checkup, calls: ServerCalls) -> list[Diagnosis]:
    state = calls.ready().components.get("statements", "ok")
    if state == "ok":
        return [ok(own.name, "statements work: Spark has run a first query")]
    todo = "wait while the server starts; if it lasts for minutes, read the server's log and its folder log"
    return [own.found(Grade.ERROR, f"statements do not work yet: {state}", todo)]


def _check_alarms(own: Checkup, calls: ServerCalls) -> list[Diagnosis]:
    rows = _read(calls, "SELECT severity, sentence, since, todo, page FROM system.alarms LIMIT 1000")
    if not rows:
        return [ok(own.name, "no alarm: nothing needs a person now")]
    found = [
        Diagnosis(
            check=own.name,
            grade=Grade.ERROR if severity == "critical" else Grade.WARNING,
            sentence=sentence,
            todo=todo,
            page=page,
            since=_shown_time(since),
        )
        for severity, sentence, since, todo, page in rows[:SHOWN_MAX]
    ]
    if len(rows) > SHOWN_MAX:
        found.append(own.found(Grade.ERROR, f"there are {len(rows) - SHOWN_MAX} more alarms", "see system.alarms"))
    return found


def _check_services(own: Checkup, calls: ServerCalls) -> list[Diagnosis]:
    """Find services that fail, that have missed their poll, and that somebody has stopped on purpose."""
    rows = _read(
        calls,
        'SELECT database, "table", service, switch, state, reason, failures, next_wakeup, now() AS now, because '
        "FROM system.bg_threads WHERE state = 'failed' OR switch <> 'running' "
        "OR (state <> 'running' AND next_wakeup < now()) "
        'ORDER BY database, "table", service LIMIT 1000',
    )
    found, stopped = list[Diagnosis](), Counter[str]()
    for database, table, service, switch, state, reason, failures, next_wakeup, now, because in rows:
        name = f"{service} of {database}.{table}"
        if switch != "running":
            stopped[f"{service}{f' because {because}' if because else ''}"] += 1
        elif state == "failed":
            sentence = f"{name} has failed {failures} times in a row: {reason}"
            todo = "repair what the sentence names; the service tries again by itself"
            found.append(own.found(Grade.WARNING, sentence, todo))
        elif (now - next_wakeup).total_seconds() > LATE_SECONDS_MAX:
            sentence = f"{name} should have polled {(now - next_wakeup).total_seconds():.0f} s ago, and has not"
            todo = "see in system.tasks and system.processes what the server does, and SYSTEM RESTART the service"
            found.append(own.found(Grade.ERROR, sentence, todo))
    if len(found) > SHOWN_MAX:
        more = own.found(
            Grade.WARNING, f"{len(found) - SHOWN_MAX} more services fail or are late", "see system.bg_threads"
        )
        found = [*found[:SHOWN_MAX], more]
    if stopped:
        names = "; ".join(f"{service} of {count} tables" for service, count in stopped.items())
        found.append(ok(own.name, f"stopped on purpose: {names}"))
    return found or [ok(own.name, "no service fails or is late")]


def _check_leases(own: Checkup, calls: ServerCalls) -> list[Diagnosis]:
    rows = _read(calls, "SELECT name, holder FROM system.leases WHERE NOT is_valid ORDER BY name LIMIT 1000")
    if not rows:
        return [ok(own.name, "every lease is held by a process that lives")]
    names = ", ".join(f"{name} of {holder}" for name, holder in rows[:3])
    sentence = f"{len(rows)} leases are held by processes that do not live any more: {names}"
    todo = "check again in a minute, when others have taken them over; if they stay, see system.servers"
    return [own.found(Grade.WARNING, sentence, todo)]


def _check_versions(own: Checkup, calls: ServerCalls, own_version: str) -> list[Diagnosis]:
    servers = _read(calls, "SELECT name, version FROM system.servers WHERE version IS NOT NULL ORDER BY name")
    workers = _read(calls, "SELECT name, version FROM system.workers WHERE version IS NOT NULL ORDER BY name")
    named = [
        *((f"server {name}", each) for name, each in servers),
        *((f"worker {name}", each) for name, each in workers),
    ]
    if own_version:
        named.append(("this client", own_version))
    versions = {each for _, each in named}
    if len(versions) <= 1:
        who = f"{len(workers)} workers and this client" if own_version else f"{len(workers)} workers"
        version = next(iter(versions), "unknown")
        return [ok(own.name, f"{len(servers)} servers, {who} have version {version}")]
    listed = ", ".join(f"{name} {each}" for name, each in named[:SHOWN_MAX])
    todo = "upgrade the older ones: servers one after the other, then workers, then clients"
    return [own.found(Grade.WARNING, f"versions differ: {listed}", todo)]


def _check_clocks(own: Checkup, calls: ServerCalls, clock: Clock) -> list[Diagnosis]:
    before = clock.now_ms()
    rows = _read(calls, "SELECT name, clock_offset_ms, is_self, now() AS now FROM system.servers ORDER BY name")
    after = clock.now_ms()
    bound = _read(calls, "SELECT value FROM system.settings WHERE name = 'server.clock-bound'")
    bound_ms = 1000 * parse_seconds(str(bound[0][0])) if bound else 500.0
    found = []
    for name, offset_ms, is_self, now in rows:
        if offset_ms is not None and abs(offset_ms) > bound_ms / 2:
            grade = Grade.ERROR if abs(offset_ms) > bound_ms else Grade.WARNING
            sentence = (
                f"the clock of server {name} is {abs(offset_ms):.0f} ms {_side(offset_ms)} the catalog's database, "
                f"{bound_ms:.0f} ms is the bound"
            )
            found.append(own.found(grade, sentence, "set the clock of the server's machine right, as by NTP"))
        if is_self:
            found += _own_clock(own, (before + after) / 2 - now.timestamp() * 1000, (after - before) / 2, name)
    return found or [ok(own.name, "the clocks of servers, database and this machine agree")]


def _own_clock(own: Checkup, ahead_ms: float, error_ms: float, server: str) -> list[Diagnosis]:
    if abs(ahead_ms) - error_ms <= CLIENT_CLOCK_MS_MAX:
        return []
    sentence = f"the clock of this machine is {abs(ahead_ms) / 1000:.1f} s {_side(ahead_ms)} that of server {server}"
    return [own.found(Grade.WARNING, sentence, "set the clock that is wrong right, as by NTP")]


def _side(ahead: float) -> str:
    return "ahead of" if ahead > 0 else "behind"


def _shown_time(since: datetime | None) -> str:
    return "" if since is None else f"{since:%Y-%m-%d %H:%M:%S} UTC"
