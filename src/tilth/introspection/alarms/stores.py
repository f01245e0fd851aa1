"""Alarms of the bytes: disks, storages, their replicas.

Covers: their declarations and thresholds. Does not cover: probing storages (tilth.storage), damaged files (tables.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilth.base.full import DiskSpace, disk_space, is_low, is_nearly_full
from tilth.base.settings import read_settings
from tilth.base.units import show_bytes, show_count, show_time
from tilth.introspection.alarms.alarm import Alarm, AlarmFinding, Severity
from tilth.introspection.alarms.observation import Observation
from tilth.model.service import ServiceKind
from tilth.model.table import TableDef, full_name
from tilth.storage import StorageSettings, health_of

#: Time for which a replica may lack a copy: a restart of its machine and the copies of that time are over then.
BEHIND_SECONDS_MAX = 900
#: Tables and replicas that are found to lack copies: a read of the catalog for each.
LACKING_MAX = 100
#: Notes that are read of each of these, to count them and to find the oldest.
NOTES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk that this server or one of its workers writes to."""

    folder: str
    #: The worker that reports it; empty: this server.
    worker: str
    size: int
    free: int

    @property
    def name(self) -> str:
        return self.worker or self.folder

    @property
    def is_full(self) -> bool:
        return is_nearly_full(free=self.free, size=self.size)

    @property
    def is_low(self) -> bool:
        return is_low(free=self.free, size=self.size)

    def finding(self, effect: str) -> AlarmFinding:
        where = f"the disk of worker {self.worker}" if self.worker else f"the disk with {self.folder}"
        share = 100 * self.free / self.size
        return AlarmFinding(
            subject=self.name,
            sentence=f"{where} has {show_bytes(self.free)} free, {share:.0f} % of {show_bytes(self.size)}{effect}",
        )


def disks(seen: Observation) -> Iterator[Disk]:
    """Yield each disk of this machine once, and those that workers in other processes report."""
    services, devices = seen.services, set[int]()
    default = services.root.default
    for folder in filter(None, (default.uri if default.is_local else "", services.results)):
        found: DiskSpace | None = disk_space(folder)
        if found is not None and found.size and found.device not in devices:
            devices.add(found.device)
            yield Disk(folder, "", found.size, found.free)
    for worker in seen.workers:
        if worker.process is not None and worker.load.disk_bytes:
            yield Disk("", worker.name, worker.load.disk_bytes, worker.load.free_disk_bytes)


def _full(seen: Observation) -> Iterator[AlarmFinding]:
    yield from (each.finding(": writes fail soon, or fail already") for each in disks(seen) if each.is_full)


def _low(seen: Observation) -> Iterator[AlarmFinding]:
    yield from (each.finding("") for each in disks(seen) if each.is_low and not each.is_full)


def _away(seen: Observation) -> Iterator[AlarmFinding]:
    roots = seen.services.root.all()
    for name, state in seen.services.root.last_states().items():
        if state.trouble and name in roots:
            yield AlarmFinding(
                subject=name,
                sentence=f"storage {name} at {roots[name].uri} cannot be used: {state.trouble}",
                since_ms=state.since_ms,
            )


def _replicas_away(seen: Observation) -> Iterator[AlarmFinding]:
    for name, root in seen.services.root.all().items():
        for number, replica in enumerate(root.replicas):
            trouble = health_of(replica).trouble
            if trouble:
                yield AlarmFinding(
                    subject=f"{name}/{number}",
                    sentence=f"replica {number} of storage {name} at {replica.uri} cannot be used: {trouble}",
                )


def _replicas_behind(seen: Observation) -> Iterator[AlarmFinding]:
    for uuid, number in seen.read(lambda catalog: catalog.copies.lacking(LACKING_MAX)):
        table = seen.relations.get(uuid)
        if not isinstance(table, TableDef) or not seen.is_mine(uuid) or seen.is_stopped(uuid, ServiceKind.REPLICATE):
            continue
        storage = read_settings(StorageSettings, table.settings).storage_policy
        root = seen.services.root.all().get(storage)
        # A replica that is away is an alarm of its own.
        if root is None or number >= len(root.replicas) or health_of(root.replicas[number]).trouble:
            continue
        yield from _behind(seen, table, number, storage)


def _behind(seen: Observation, table: TableDef, number: int, storage: str) -> Iterator[AlarmFinding]:
    notes = seen.read(lambda catalog: catalog.copies.of(table.uuid, replica=number, limit=NOTES_MAX))
    since_ms = min((each.since_ms for each in notes), default=seen.now_ms)
    if seen.now_ms - since_ms > BEHIND_SECONDS_MAX * 1000:
        count = show_count(len(notes)) if len(notes) < NOTES_MAX else f"{show_count(NOTES_MAX)} or more"
        error = next((f": {each.error}" for each in notes if each.error), "")
        yield AlarmFinding(
            database=table.database,
            table=table.name,
            subject=f"{storage}/{number}",
            sentence=f"replica {number} of storage {storage} lacks {count} files of {full_name(table)}, the oldest "
            f"since {show_time(since_ms)}{error}",
            since_ms=since_ms,
        )


STORE_ALARMS = (
    Alarm(
        name="disk_full",
        severity=Severity.CRITICAL,
        meaning="A disk is full or nearly full, so that commits, rounds and merges fail.",
        todo="Make room on the disk that the sentence names; EXPLAIN GC shows what tables keep, and services go on by "
        "themselves.",
        page="docs/operate/questions.md#3-is-the-disk-full",
        minutes=0,
        find=_full,
    ),
    Alarm(
        name="storage_away",
        severity=Severity.CRITICAL,
        meaning="A storage does not answer a server, or is not what it was: its tables can be neither read nor "
        "written.",
        todo="Mount the folder, or repair the address, the key or the service that the sentence names.",
        page="docs/operate/recovery.md#when-something-is-wrong",
        minutes=1,
        find=_away,
    ),
    Alarm(
        name="disk_low",
        severity=Severity.WARNING,
        meaning="Less than a tenth of a disk is free.",
        todo="Make room or add a larger disk; EXPLAIN GC shows what tables keep, and dropped tables are in "
        "system.dropped_tables.",
        page="docs/operate/sizing.md#disk",
        minutes=10,
        find=_low,
    ),
    Alarm(
        name="replica_away",
        severity=Severity.WARNING,
        meaning="A replica of a storage does not answer, so that files have fewer copies than they should.",
        todo="Bring it back, or replace it by ALTER STORAGE; missing copies are then made by themselves.",
        page="docs/operate/storages.md#replicas",
        minutes=5,
        find=_replicas_away,
    ),
    Alarm(
        name="replica_behind",
        severity=Severity.WARNING,
        meaning="A replica that answers has lacked copies of files for more than a quarter of an hour.",
        todo="See in system.replicas why copies fail, and in system.workers whether workers have time for them.",
        page="docs/operate/storages.md#replicas",
        minutes=10,
        find=_replicas_behind,
    ),
)
