"""Reads of files that are said to be damaged: few bytes by the server, more by a task of the table's warehouse.

Covers: the choice, the task, the finding where nobody could read. Does not cover: what is read
(task_spark.py), what a finding means (book.py).
Always holds: the end of a statement ends its task; without Spark a check ends after a while, and nothing is known then.

Tests: tests/integration/sql/test_damaged_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tilth.base.cancel import raise_if_cancelled
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.base.units import MIB
from tilth.catalog import Catalog, TableNotFoundError
from tilth.maintenance.damage.task_spark import CheckedFile, CheckFilesTask, FileFinding, states_of
from tilth.model.table import TableDef, full_name
from tilth.model.task import TaskKind
from tilth.storage import Folder, are_there
from tilth.warehouse import Dispatcher, table_warehouses

#: Bytes up to which a server reads files itself: a Spark job is slower then.
HERE_BYTES_MAX = 64 * MIB

_log = Log("maintenance")


class FileChecks(Protocol):
    """Reads files of a table."""

    def states(self, table: str, folder: Folder, files: Sequence[CheckedFile]) -> list[FileFinding]:
        """Return the finding about each file, in their order."""


class ChecksHere:
    """Reads all files in this process."""

    def states(self, table: str, folder: Folder, files: Sequence[CheckedFile]) -> list[FileFinding]:
        return states_of(folder, files)


class TaskChecks:
    """Reads many bytes in tasks. For any thread, which waits."""

    def __init__(self, catalog: Catalog, dispatcher: Dispatcher) -> None:
        self._catalog = catalog
        self._dispatcher = dispatcher

    def states(self, table: str, folder: Folder, files: Sequence[CheckedFile]) -> list[FileFinding]:
        try:
            there = are_there(folder, [each.file.name for each in files])
            size = sum(each.file.size for each, is_there in zip(files, there, strict=True) if is_there)
            if size <= HERE_BYTES_MAX:
                return states_of(folder, files)
            return self._in_tasks(table, folder, files, size)
        except TilthError as error:
            raise_if_cancelled()
            _log.warning("files_not_checked", table=table, files=len(files), reason=error)
            return [FileFinding(unknown=str(error)) for _ in files]

    def _in_tasks(self, table: str, folder: Folder, files: Sequence[CheckedFile], size: int) -> list[FileFinding]:
        definition = self._catalog.tables.by_id(table)
        if not isinstance(definition, TableDef):
            raise TableNotFoundError(table=table)
        spec = self._dispatcher.new_spec(
            TaskKind.CHECK,
            warehouse=table_warehouses(definition.settings).maintenance,
            table=full_name(definition),
            payload=msgspec.msgpack.encode(CheckFilesTask(folder=folder, files=tuple(files))),
            input_bytes=size,
        )
        result = self._dispatcher.run(msgspec.structs.replace(spec, waits_for_spark=True))
        return msgspec.msgpack.decode(result.payload, type=list[FileFinding])
