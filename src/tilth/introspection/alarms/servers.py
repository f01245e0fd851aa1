"""Alarms of the processes: servers, the catalog, workers, clocks, memory.

Covers: their declarations and thresholds. Does not cover: liveness (tilth.membership, tilth.warehouse).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilth.base.errors import UnavailableError
from tilth.base.pressure import describe_pressure
from tilth.base.units import show_time
from tilth.introspection.alarms.alarm import Alarm, AlarmFinding, Severity
from tilth.introspection.alarms.observation import Observation
from tilth.membership.member import LEAVING
from tilth.model.server import ServerRecord
from tilth.warehouse import QUERY_WAREHOUSE, WRITE_WAREHOUSE

#: A server that has not come back within a day was given up on purpose.
GONE_SECONDS_MAX = 86_400
#: States of a worker to which nobody has brought it.
_AWAY = ("silent", "without spark")


def _catalog_away(seen: Observation) -> Iterator[AlarmFinding]:
    try:
        _ = seen.relations
    except UnavailableError as error:
        yield AlarmFinding(subject=seen.services.server, sentence=f"the catalog does not answer: {error}")


def _servers_away(seen: Observation) -> Iterator[AlarmFinding]:
    if not seen.is_mine() or not seen.servers:
        return
    ended = [each for each in seen.ended_servers if _was_found_gone(each, seen.servers)]
    drained = seen.read(lambda catalog: catalog.servers.drains()) if ended else {}
    for record in ended:
        if record.name not in drained and seen.now_ms - record.ended_ms < GONE_SECONDS_MAX * 1000:
            yield AlarmFinding(
                subject=record.name,
                sentence=f"server {record.name} has been gone since {show_time(record.ended_ms)}, others host its "
                "tables",
                since_ms=record.ended_ms,
            )


def _was_found_gone(record: ServerRecord, living: Iterable[ServerRecord]) -> bool:
    """Return whether others have found that the server is gone: it had not begun to leave, and one of those that live
    has been there before. A server alone ends the record of its former process when it starts.
    """
    has_left = record.draining == LEAVING
    return not has_left and any(each.name != record.name and each.started_ms < record.ended_ms for each in living)


def _without_host(seen: Observation) -> Iterator[AlarmFinding]:
    servers = seen.servers
    if not servers or not all(each.draining for each in servers) or not seen.is_mine():
        return
    reasons = "; ".join(f"{each.name}: {each.draining}" for each in servers)
    count = len(seen.tables)
    yield AlarmFinding(sentence=f"no server hosts tables, so that {count} tables have no services: {reasons}")


def _clock_off(seen: Observation) -> Iterator[AlarmFinding]:
    error = seen.services.catalog.clock_check.removal_error()
    if error is not None:
        server = seen.services.server
        yield AlarmFinding(subject=server, sentence=f"the clock of server {server} is wrong or in doubt: {error}")


def _memory(seen: Observation) -> Iterator[AlarmFinding]:
    pressure = describe_pressure(seen.services.memory.read())
    if pressure:
        server = seen.services.server
        yield AlarmFinding(subject=server, sentence=f"memory of server {server} is scarce: {pressure}")


def _without_worker(seen: Observation) -> Iterator[AlarmFinding]:
    for one in seen.warehouses:
        is_needed = one.waiting or one.workers_wanted or one.name in (QUERY_WAREHOUSE, WRITE_WAREHOUSE)
        if not one.workers and is_needed:
            yield AlarmFinding(
                subject=one.name,
                sentence=f"warehouse {one.name} has no worker, {one.waiting} tasks wait: "
                f"`tilth worker --warehouse {one.name}` starts one",
            )


def _workers_missing(seen: Observation) -> Iterator[AlarmFinding]:
    for one in seen.warehouses:
        if 0 < one.workers < one.workers_wanted:
            yield AlarmFinding(
                subject=one.name,
                sentence=f"warehouse {one.name} has {one.workers} of {one.workers_wanted} workers, {one.waiting} tasks "
                "wait",
            )


def _workers_away(seen: Observation) -> Iterator[AlarmFinding]:
    for worker in seen.workers:
        if worker.state in _AWAY:
            yield AlarmFinding(
                subject=worker.name,
                sentence=f"worker {worker.name} is {worker.state}: {worker.reason}",
                since_ms=worker.last_answer_ms if worker.state == "silent" else 0,
            )


SERVER_ALARMS = (
    Alarm(
        name="catalog_away",
        severity=Severity.CRITICAL,
        meaning="A server cannot read the catalog, so that statements fail and services wait.",
        todo="Bring the catalog's database back, or the disk with the catalog's folder; everything goes on by itself.",
        page="docs/operate/servers.md#when-something-goes-wrong",
        minutes=1,
        find=_catalog_away,
    ),
    Alarm(
        name="table_without_host",
        severity=Severity.CRITICAL,
        meaning="No server hosts tables, because all of them drain or start: nothing is read, merged or removed.",
        todo="Let a server host tables again by ALTER SERVER .. RESUME, or start one.",
        page="docs/operate/servers.md#who-hosts-what",
        minutes=2,
        find=_without_host,
    ),
    Alarm(
        name="clock_off",
        severity=Severity.CRITICAL,
        meaning="The clock of a server is wrong or in doubt, so that it commits nothing, or removes nothing for "
        "its age.",
        todo="Set the clock of the machine right, and let NTP keep it so.",
        page="docs/operate/servers.md#when-something-goes-wrong",
        minutes=1,
        find=_clock_off,
    ),
    Alarm(
        name="no_worker",
        severity=Severity.CRITICAL,
        meaning="A warehouse has no worker, and its tasks wait.",
        todo="Start a worker for it with `tilth worker`.",
        page="docs/operate/workers.md#start-one",
        minutes=2,
        find=_without_worker,
    ),
    Alarm(
        name="worker_away",
        severity=Severity.WARNING,
        meaning="A worker does not answer, or its Spark does not.",
        todo="See its log and its machine; a Spark that hangs is started again by itself.",
        page="docs/operate/questions.md#22-does-spark-still-answer",
        minutes=2,
        find=_workers_away,
    ),
    Alarm(
        name="workers_missing",
        severity=Severity.WARNING,
        meaning="A warehouse has fewer workers than it should have.",
        todo="Start the missing workers, or change the number by ALTER WAREHOUSE.",
        page="docs/operate/workers.md#when-something-goes-wrong",
        minutes=10,
        find=_workers_missing,
    ),
    Alarm(
        name="server_away",
        severity=Severity.WARNING,
        meaning="A server has ended without leaving the others, which host its tables now.",
        todo="Start it again; ALTER SERVER .. DRAIN says that it does not come back.",
        page="docs/operate/servers.md#when-something-goes-wrong",
        minutes=1,
        find=_servers_away,
    ),
    Alarm(
        name="memory_pressure",
        severity=Severity.WARNING,
        meaning="Memory of a server is so scarce that writes are slowed or refused.",
        todo="Give the server more memory, or less to Spark; see which statements and tasks run.",
        page="docs/operate/questions.md#10-is-memory-scarce",
        minutes=2,
        find=_memory,
    ),
)
