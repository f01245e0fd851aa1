"""A maintenance world whose worker compacts deltas by counting: what becomes of them is as many rows as they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tests.maintenance_world import MaintenanceWorld, MergeWorker
from tilth.base.errors import TilthError
from tilth.base.settings import read_settings
from tilth.catalog import AddDelta, InsertPart, ReplaceParts
from tilth.maintenance import MaintenanceManager, ManagerSettings, OpRow
from tilth.maintenance.deltas.task_spark import DeltaFacts, DeltaTask, DeltaWay
from tilth.maintenance.kinds import OpKind
from tilth.model.delta import Delta, DeltaKind, Target, WrittenDelta, by_file
from tilth.model.part import DataFile, Part
from tilth.model.service import ServiceKind, Switch, SwitchState
from tilth.model.task import Cost, TaskKind, TaskSpec
from tilth.storage import file_name
from tilth.warehouse import Dispatcher, TaskResult

#: Size of each delta that the worker writes.
DELTA_BYTES = 40
_EXTENSIONS = {DeltaKind.CHANGES: "arrow", DeltaKind.DELETE: "puffin"}


class DeltaWorker(MergeWorker):
    """Compacts at once, unless it is told to fail or to hold the tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.compactions: list[DeltaTask] = []
        #: Called with each compaction before it is done.
        self.on_compact: Callable[[DeltaTask], None] = lambda _: None

    def _perform(self, spec: TaskSpec) -> None:
        if spec.kind is not TaskKind.DELTA:
            super()._perform(spec)
            return
        assert self.reports is not None
        task = msgspec.msgpack.decode(spec.payload, type=DeltaTask)
        try:
            self.on_compact(task)
            if self.errors:
                raise self.errors.pop(0)
        except TilthError as error:
            self.reports.failed(spec.id, error)
            return
        self.compactions.append(task)
        facts = DeltaFacts(written=tuple(_written(task)), bytes_in=sum(delta.bytes for delta in task.sources))
        self.reports.finished(spec.id, TaskResult(payload=msgspec.msgpack.encode(facts), actual=Cost(seconds=1.0)))


class DeltaWorld(MaintenanceWorld):
    """Deletes and updates are counts; `deltas` tells what is open of a part."""

    def __init__(self, table_settings: Mapping[str, str] | None = None, **settings: str) -> None:
        """The settings of its tables, and those of the node."""
        self._given = settings
        self._table_settings = dict(table_settings or {})
        super().__init__()
        self.compactor = DeltaWorker()
        self.worker = self.compactor
        self.dispatcher = Dispatcher(self.clock, self.new_id, {"write": [self.worker]}, slots={"write": 8})
        self.manager = self.new_manager()
        # The table is merged where a test says so only.
        self.stop(ServiceKind.MERGE)

    def table(self, name: str, database: str = "default", *, settings: Mapping[str, str] | None = None) -> str:
        return super().table(name, database, settings=settings or self._table_settings)

    def new_manager(self, *, settings: ManagerSettings | None = None) -> MaintenanceManager:
        given = settings or read_settings(ManagerSettings, self._given)
        return super().new_manager(settings=given)

    def stop(self, service: ServiceKind) -> None:
        self.switch(service, SwitchState.STOPPED)

    def switch(self, service: ServiceKind, state: SwitchState) -> None:
        self.clock.advance(0.001)
        self.catalog.services.set(
            Switch(table=self.t, service=service, state=state, since_ms=self.clock.now_ms(), because="a test")
        )
        self.manager.wake(self.t)

    def row_segment(self, partition: str = "all", *, rows: int = 10) -> Part:
        return self.commit(InsertPart(table=self.t, written=self.segment(partition, rows=rows)))[0]

    def change(self, *targets: tuple[Part, int], columns: tuple[int, ...] = ()) -> Delta:
        """A change segment that deletes so many rows of these parts and, with columns, gives a row of each values."""
        written = self.delta(*targets, columns=columns)
        changes = by_file(self.catalog.parts.deltas(self.t))
        seen = tuple(
            (target.file, changes[target.file][-1].change_ts) for target in written.targets if target.file in changes
        )
        self.clock.advance(0.001)
        self.commit(AddDelta(table=self.t, written=written, seen=seen))
        [delta] = [each for each in self.catalog.parts.deltas(self.t) if each.file == written.file]
        return delta

    def merged(self, *sources: Part) -> Part:
        """What merges or rewrites these parts with all that changed them, as of now."""
        changes = by_file(self.catalog.parts.deltas(self.t))
        rows = sum(part.rows - _deleted(changes.get(part.file.name, ()), part) for part in sources)
        seen = tuple(
            (part.file.name, changes[part.file.name][-1].change_ts) for part in sources if part.file.name in changes
        )
        update = ReplaceParts(
            table=self.t,
            sources=tuple(part.name for part in sources),
            written=self.written(sources[0].name.partition, rows=rows),
            seen=seen,
            event="flush" if sources[0].is_segment else "merge",
        )
        return self.commit(update)[0]

    def open(self, part: Part | None = None) -> list[tuple[str, int, int]]:
        """Kind, deleted and updated rows of the open deltas, of one part or of all together."""
        found = []
        for delta in self.catalog.parts.deltas(self.t):
            targets = [each for each in delta.targets if part is None or each.file == part.file.name]
            if targets:
                found.append(
                    (delta.kind.value, sum(each.deleted for each in targets), sum(each.updated for each in targets))
                )
        return sorted(found)

    def all_deltas(self) -> list[Delta]:
        return self.catalog.parts.deltas(self.t, is_all=True)

    def row(self, kind: OpKind) -> OpRow:
        return next(row for row in self.manager.ops() if row.kind is kind and row.uuid == self.t)

    def live_rows(self) -> int:
        return self.catalog.parts.snapshot(self.t).rows

    def events(self) -> list[str]:
        """Of the part log, oldest first."""
        return [event.event for event in self.catalog.part_log.recent(limit=1000)]


def _deleted(deltas: tuple[Delta, ...], part: Part) -> int:
    return sum(target.deleted for delta in deltas for target in delta.targets if target.file == part.file.name)


def _written(task: DeltaTask) -> list[WrittenDelta]:
    numbers: dict[str, int] = {}

    def written(kind: DeltaKind, targets: list[Target], columns: set[int], change_ts: int) -> WrittenDelta:
        extension = _EXTENSIONS.get(kind, "parquet")
        n = numbers.setdefault(extension, 0)
        numbers[extension] += 1
        name = file_name(txn=task.txn, task=0, attempt=0, n=n, extension=extension)
        return WrittenDelta(
            kind=kind,
            partition=task.partition,
            file=DataFile(name=name, size=DELTA_BYTES, checksum=1),
            targets=tuple(targets),
            columns=tuple(sorted(columns)),
            change_ts=change_ts,
        )

    if task.way is DeltaWay.MAJOR:
        [part] = task.targets
        columns = {column for delta in task.sources for column in delta.columns}
        assert columns == {column for group in task.columns for column in group}
        whole = [Target(file=part.file.name, updated=part.rows)]
        newest = max(delta.change_ts for delta in task.sources)
        return [written(DeltaKind.COLUMN, whole, set(group), newest) for group in task.columns]
    found: list[WrittenDelta] = []
    kept: list[Target] = []
    kept_columns: set[int] = set()
    for target in task.targets:
        file = target.file.name
        mine = [(delta, each) for delta in task.sources for each in delta.targets if each.file == file]
        deleted, updated = sum(each.deleted for _, each in mine), sum(each.updated for _, each in mine)
        columns = {column for delta, _ in mine for column in delta.columns}
        change_ts = max(delta.change_ts for delta, _ in mine)
        if file in task.kept:
            kept.append(Target(file=file, deleted=deleted, updated=updated))
            kept_columns |= columns
            continue
        if deleted:
            found.append(written(DeltaKind.DELETE, [Target(file=file, deleted=deleted)], set(), change_ts))
        if updated:
            found.append(written(DeltaKind.UPDATE, [Target(file=file, updated=updated)], columns, change_ts))
    if kept:
        newest = max(delta.change_ts for delta in task.sources)
        found.append(written(DeltaKind.CHANGES, kept, kept_columns, newest))
    return found
