"""A table, a folder that statements may name, and a fake of Spark's job that loads files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa

from tests.sql_world import SqlWorld
from tilth.catalog import KeyValue
from tilth.model.loaded_file import SkippedRow
from tilth.model.task import TaskSpec
from tilth.query.snapshots.protocol import FileRows, LoadFilesResult, LoadFilesTask
from tilth.storage import layout_of, local_root, write_parts


class CopyWorld(SqlWorld):
    """A table `t (a)`, a folder that statements may name, and a job that finds a row in each file: its size."""

    def __init__(self, folder: Path, *, kv: KeyValue | None = None) -> None:
        """`kv`: the catalog of a world that was made before."""
        self.files = folder / "in"
        self.files.mkdir(exist_ok=True)
        super().__init__(folder / "tables", kv=kv, settings={"storage.file-locations": str(self.files)})
        self.tasks: list[LoadFilesTask] = []
        #: Function that is called while the job runs.
        self.meanwhile: Callable[[], object] = lambda: None
        self.skipped: tuple[SkippedRow, ...] = ()
        self.dispatch.answer = self._answer
        self.run("CREATE TABLE IF NOT EXISTS t (a Int64) ENGINE = MergeTree ORDER BY a")
        self.table_root = folder / "tables"

    def put(self, name: str, size: int = 1) -> Path:
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
        return path

    def copy(self, more: str = "", *, table: str = "t", form: str = "JSON") -> str:
        return self.run(f"COPY INTO {table} FROM '{self.files}' FORMAT {form} {more}").message

    def loaded(self) -> dict[str, int]:
        rows = self.rows("SELECT file, rows FROM system.loaded_files ORDER BY file")
        return {str(file).removeprefix(f"{self.files}/"): int(str(count)) for file, count in rows}

    def _answer(self, spec: TaskSpec) -> bytes:
        task = msgspec.msgpack.decode(spec.payload, type=LoadFilesTask)
        self.tasks.append(task)
        sizes = [(Path(task.root.uri) / path).stat().st_size for path in task.paths]
        layout = layout_of(task.insert.target, local_root(self.table_root))
        rows = pa.table({"a": pa.array(sizes, pa.int64())})
        parts = [] if task.is_check else write_parts(layout, rows, txn=task.insert.txn, task=0, attempt=0)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        found = tuple(FileRows(rows=1, skipped=self.skipped) for _ in task.paths)
        return msgspec.msgpack.encode(LoadFilesResult(parts=tuple(parts), files=found))
