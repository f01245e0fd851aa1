"""Writes of a program with a Spark of its own, without Spark: its tasks are calls in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tests.sql_world import SqlWorld, table_of
from tilth.datasource.task_files import TaskFacts, TaskWrite, write_task
from tilth.model.outside_write import OpenWrite, WriteOutcome, WriteRequest, WrittenFiles
from tilth.model.part import WrittenPart
from tilth.storage import iter_source, layout_of, local_root, sources_of


class OutsideWorld(SqlWorld):
    """A server with shorthands for writes from outside."""

    def __init__(self, root: Path, *, table: str = "", **options: Any) -> None:
        super().__init__(root, **options)
        self.folder = root
        if table:
            self.run(f"CREATE TABLE t {table}")

    def begin(self, *columns: str, table: str = "t", **request: Any) -> OpenWrite:
        # Few tasks, because an abort tries the names of each.
        asked = WriteRequest(columns=columns or ("a",), **{"tasks": 8, **request})
        return self.engine.begin_write("default", table, asked)

    def write(
        self, opened: OpenWrite, rows: Sequence[dict[str, Any]] | pa.Table, *, task: int = 0, attempt: int = 0
    ) -> TaskFacts:
        """The files of one task."""
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows))
        writing = TaskWrite(opened=opened, names=tuple(table.column_names))
        # The value is encoded and decoded, as it travels.
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(writing), type=TaskWrite)
        return write_task(sent, iter(table.to_batches()), task=task, attempt=attempt)

    def commit(self, opened: OpenWrite, *facts: TaskFacts, **more: Any) -> WriteOutcome:
        return self.commit_parts(opened, [part for each in facts for part in each.parts], **more)

    def commit_parts(self, opened: OpenWrite, parts: Sequence[WrittenPart], **more: Any) -> WriteOutcome:
        files = WrittenFiles(txn=opened.txn, parts=tuple(parts), **{"tasks": 4, **more})
        return self.engine.commit_write(opened.id, files)

    def values(self, column: str = "a", table: str = "t") -> list[Any]:
        """The column of all rows that a reader sees, sorted."""
        snapshot = self.catalog.parts.snapshot(table_of(self, table).uuid)
        folder = layout_of(snapshot.table, local_root(self.folder)).folder
        found: list[Any] = []
        for source in sources_of(snapshot.table, snapshot.parts, snapshot.deltas):
            for rows, _ in iter_source(folder, source, block_rows=1000):
                found += rows.column(column).to_pylist()
        return sorted(found)

    def files(self) -> list[str]:
        """Names of all files of tables."""
        return sorted(path.name for path in self.folder.rglob("data/*") if path.is_file())
