"""The share of both routines about copies: the table, its files and locations, a task and its answer.

Tests: tests/unit/maintenance/copies/test_replicate.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from tilth.base.cancel import reaching
from tilth.catalog import KnownFiles
from tilth.maintenance.copies.task_spark import CopyFact, CopyItem, CopyTask
from tilth.maintenance.work.context import TableContext
from tilth.model.copy_note import CopyNote
from tilth.model.part import DataFile
from tilth.model.task import TaskKind
from tilth.storage import Folder, StoreRoot, data_folder
from tilth.warehouse import table_warehouses


@dataclass(frozen=True, slots=True)
class TableCopies(TableContext):
    """The copies of one table's files."""

    @property
    def root(self) -> StoreRoot:
        return self.server.root.of(self.uuid)

    @property
    def folder(self) -> Folder:
        return data_folder(self.server.root, self.uuid)

    def files(self) -> KnownFiles:
        return self.catalog.files_of(self.uuid)

    def note(self, file: DataFile | None, replica: int, reason: str) -> CopyNote:
        """Return the note that a replica lacks a file, or with None any file."""
        now_ms = self.clock.now_ms()
        return CopyNote(table=self.uuid, replica=replica, file=file, since_ms=now_ms, reason=reason)

    def settle(self, made: Iterable[CopyNote], folder: Folder) -> None:
        """Remove notes whose copies were made or found in this folder; those of replicas replaced since then stay."""
        root = folder.root
        self.catalog.copies.settle(made, storage=root.storage, replica_ids=root.replica_ids)

    def run(self, items: Sequence[CopyItem], folder: Folder) -> tuple[CopyFact, ...]:
        """Let a worker do it; return what became of each, in their order. Raises what the task failed with."""
        dispatcher, watch = self.server.dispatcher, self.watch
        task = CopyTask(folder=folder, items=tuple(items))
        handle = dispatcher.submit(
            dispatcher.new_spec(
                TaskKind.COPY,
                warehouse=table_warehouses(watch.definition.settings).maintenance,
                table=watch.name,
                payload=msgspec.msgpack.encode(task),
                input_bytes=sum(item.file.size for item in items),
            )
        )
        with reaching(handle):
            return msgspec.msgpack.decode(handle.wait().payload, type=tuple[CopyFact, ...])


def batches(files: Sequence[DataFile], *, bytes_max: int, files_max: int) -> list[list[DataFile]]:
    """Return the files in runs of about so many bytes, each of one file at least."""
    found: list[list[DataFile]] = []
    size = bytes_max
    for file in files:
        if size >= bytes_max or len(found[-1]) >= files_max:
            found.append([])
            size = 0
        found[-1].append(file)
        size += file.size
    return found
