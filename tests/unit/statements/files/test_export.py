"""EXPORT: its text, its folder, what a killed one has left; a fake replaces Spark's job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.sql_world import SqlWorld, refused
from tilth.base.errors import UnavailableError
from tilth.grammar.errors import SqlSyntaxError
from tilth.model.task import TaskSpec
from tilth.query.snapshots.protocol import EXPORT_MARKER, ExportedFile, ExportTask, FileFormat
from tilth.statements.files.export import Export
from tilth.statements.registry import parse


class ExportWorld(SqlWorld):
    """A folder that statements may name, and a job that writes two files, one of them by an attempt that is lost."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "out"
        super().__init__(folder / "tables", settings={"storage.file-locations": str(self.files)})
        self.tasks: list[ExportTask] = []
        self.meanwhile: Callable[[ExportTask], object] = lambda task: None
        self.dispatch.answer = self._answer
        self.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")

    def names(self, folder: str = "x") -> list[str]:
        return sorted(path.name for path in (self.files / folder).iterdir())

    def export(self, more: str = "FORMAT PARQUET", folder: str = "x") -> str:
        return self.run(f"EXPORT SELECT a FROM t TO '{self.files}/{folder}' {more}").message

    def _answer(self, spec: TaskSpec) -> bytes:
        task = msgspec.msgpack.decode(spec.payload, type=ExportTask)
        self.tasks.append(task)
        assert (Path(str(task.folder)) / EXPORT_MARKER).read_text() == task.id
        for attempt in (1, 2):
            (Path(str(task.folder)) / f"part-{task.id}-0-{attempt}.parquet").write_bytes(b"x")
        self.meanwhile(task)
        return msgspec.msgpack.encode([ExportedFile(name=f"part-{task.id}-0-2.parquet", rows=3, size=1)])


@pytest.fixture
def world(tmp_path: Path) -> ExportWorld:
    return ExportWorld(tmp_path)


def test_statements_are_read() -> None:
    found = parse(
        "EXPORT SELECT a AS `TO`, 'TO ''x''' FROM t WHERE b IN (1) TO 's3://b/x' FORMAT CSV OPTIONS (HEADER = 0)"
    )
    assert isinstance(found, Export)
    assert (found.query, found.address) == ("SELECT a AS `TO`, 'TO ''x''' FROM t WHERE b IN (1)", "s3://b/x")
    assert (found.format, found.options) == (FileFormat.CSV, (("HEADER", "0"),))
    found = parse("EXPORT TABLE db.t TO '/x' FORMAT JSON SETTINGS max_insert_tasks = 1")
    assert isinstance(found, Export)
    assert (str(found.name), found.query, found.settings) == ("db.t", "", (("max_insert_tasks", "1"),))
    for text in ("EXPORT t TO '/x' FORMAT JSON", "EXPORT SELECT 1 FORMAT JSON", "EXPORT TABLE t TO '/x' FORMAT XML"):
        with pytest.raises(SqlSyntaxError):
            parse(text)


def test_files_come_first_and_success_last(world: ExportWorld) -> None:
    assert world.export() == f"exported to {world.files}/x: 3 rows in 1 files"
    [task] = world.tasks
    assert task.tasks_max > 0
    name = f"part-{task.id}-0-2.parquet"
    assert world.names() == ["_SUCCESS", "_manifest.json", name]
    manifest = json.loads((world.files / "x" / "_manifest.json").read_text())
    assert manifest["files"] == [{"name": name, "rows": 3, "size": 1}]
    error = refused(world, f"EXPORT TABLE t TO '{world.files}/x' FORMAT PARQUET")
    assert (error.code, len(world.tasks)) == ("EXPORT_NOT_EMPTY", 1)
    world.run(f"EXPORT TABLE t TO '{world.files}/y' FORMAT CSV")
    assert (world.tasks[1].query.text, world.tasks[1].has_header) == ("SELECT * FROM `default`.`t`", True)


def test_files_that_are_there_stay(world: ExportWorld) -> None:
    (world.files / "x" / "deep").mkdir(parents=True)
    (world.files / "x" / "deep" / "a.parquet").write_bytes(b"mine")
    assert refused(world, f"EXPORT TABLE t TO '{world.files}/x' FORMAT PARQUET").code == "EXPORT_NOT_EMPTY"
    assert refused(world, f"EXPORT TABLE t TO '{world.files}/x/deep/a.parquet' FORMAT CSV").code == "EXPORT_NOT_EMPTY"
    assert (world.files / "x" / "deep" / "a.parquet").read_bytes() == b"mine"
    assert not world.tasks


def test_what_a_killed_export_left_is_removed_by_the_next(world: ExportWorld) -> None:
    folder = world.files / "x"
    folder.mkdir(parents=True)
    (folder / EXPORT_MARKER).write_text("old")
    for name in ("part-old-0-1.parquet", "part-old-1-2.parquet", "_manifest.json"):
        (folder / name).write_bytes(b"x")
    assert "3 rows" in world.export()
    assert world.names() == ["_SUCCESS", "_manifest.json", f"part-{world.tasks[0].id}-0-2.parquet"]
    # A marker does not make files of others its own.
    other = world.files / "y"
    other.mkdir()
    (other / EXPORT_MARKER).write_text("old")
    (other / "part-older-0-1.parquet").write_bytes(b"x")
    assert refused(world, f"EXPORT TABLE t TO '{other}' FORMAT PARQUET").code == "EXPORT_NOT_EMPTY"
    assert world.names("y") == [EXPORT_MARKER, "part-older-0-1.parquet"]


def test_an_export_that_fails_leaves_nothing(world: ExportWorld) -> None:
    def fail(task: ExportTask) -> None:
        raise UnavailableError("Spark is away")

    world.meanwhile = fail
    assert refused(world, f"EXPORT TABLE t TO '{world.files}/x' FORMAT PARQUET").code == "UNAVAILABLE"
    assert world.names() == []
    world.meanwhile = lambda task: None
    assert "3 rows" in world.export()


def test_two_at_once_do_not_share_a_folder(world: ExportWorld) -> None:
    codes: list[str] = []

    def second(task: ExportTask) -> None:
        codes.append(refused(world, f"EXPORT TABLE t TO '{world.files}/x' FORMAT PARQUET").code)

    world.meanwhile = second
    assert "3 rows" in world.export()
    assert codes == ["EXPORT_RUNS"]
    assert not [lease for lease in world.catalog.leases.list() if lease.name.startswith("export/")]


def test_other_locations_and_options_are_refused(world: ExportWorld, tmp_path: Path) -> None:
    for address in (str(tmp_path), "/etc", f"{world.files}/../tables", "s3://b/x?key=a"):
        assert refused(world, f"EXPORT TABLE t TO '{address}' FORMAT PARQUET").code == "BAD_FILE_LOCATION"
    for more in ("JSON OPTIONS (HEADER = true)", "CSV OPTIONS (FORCE = true)", "CSV OPTIONS (HEADER = 'maybe')"):
        assert refused(world, f"EXPORT TABLE t TO '{world.files}/x' FORMAT {more}").code == "BAD_COPY_OPTION"
    assert refused(world, f"EXPORT TABLE none TO '{world.files}/x' FORMAT CSV").code == "TABLE_NOT_FOUND"
    assert not world.tasks
