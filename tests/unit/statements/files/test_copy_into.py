"""COPY INTO: its text, which files are loaded, what a commit requires; a fake replaces Spark's job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.codes import WithCode
from tests.copy_world import CopyWorld
from tests.sql_world import refused, table_of
from tilth.base.errors import ErrorKind, InvalidInputError
from tilth.catalog import LoadFile
from tilth.catalog.offsets.loaded_files import LoadedFiles
from tilth.grammar.errors import SqlSyntaxError
from tilth.model.loaded_file import LoadedFile, SkippedRow
from tilth.model.task import TaskSpec
from tilth.query.snapshots.protocol import FileFormat, FileRows, LoadFilesResult, LoadFilesTask
from tilth.statements.files.copy_into import CopyInto, CopyOptions, copy_options
from tilth.statements.registry import parse


@pytest.fixture
def world(tmp_path: Path) -> CopyWorld:
    return CopyWorld(tmp_path)


# --- the text ---


def test_a_statement_is_read() -> None:
    found = parse(
        "COPY INTO TABLE db.t (a, b) FROM 's3://b/in' FORMAT CSV PATTERN '**/*.csv' OPTIONS (header = true, "
        "ON_ERROR = 'skip', SKIPPED_MAX = 7) VALIDATE ONLY SETTINGS max_insert_tasks = 2;"
    )
    assert isinstance(found, CopyInto)
    assert (str(found.name), found.columns, found.address) == ("db.t", ("a", "b"), "s3://b/in")
    assert (found.format, found.pattern, found.is_check) == (FileFormat.CSV, "**/*.csv", True)
    assert found.options == (("HEADER", "true"), ("ON_ERROR", "skip"), ("SKIPPED_MAX", "7"))
    assert found.settings == (("max_insert_tasks", "2"),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("COPY INTO t FROM '/in' FORMAT XML", "PARQUET"),
        ("COPY INTO t FROM '/in'", "FORMAT"),
        ("COPY INTO t FROM '/in' FILEFORMAT = PARQUET", "write FORMAT PARQUET"),
        ("COPY INTO t FROM '/in' FORMAT JSON COPY_OPTIONS ('force' = 'true')", "OPTIONS"),
        ("COPY INTO t FROM (SELECT a FROM '/in') FORMAT JSON", "address"),
        ("COPY INTO t FROM /in FORMAT JSON", "address"),
        ("COPY INTO t FROM '/in' FORMAT JSON OPTIONS (FORCE = true, FORCE = true)", "twice"),
        ("COPY INTO t FROM '/in' FORMAT JSON OPTIONS ()", "option"),
        ("COPY INTO t FROM '/in' FORMAT JSON VALIDATE", "ONLY"),
        ("COPY INTO t (a, A) FROM '/in' FORMAT JSON", "twice"),
    ],
)
def test_other_texts_are_refused(text: str, told: str) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse(text)
    assert told in f"{caught.value} {caught.value.hint}"


def test_options_have_the_words_of_others() -> None:
    assert copy_options((), FileFormat.JSON) == CopyOptions()
    assert copy_options((("ON_ERROR", "CONTINUE"),), FileFormat.JSON).skipped_max == 1000
    assert copy_options((("ON_ERROR", "abort_statement"),), FileFormat.PARQUET).skipped_max == 0
    both = (("SKIPPED_MAX", "5"), ("ON_ERROR", "skip"))
    assert copy_options(both, FileFormat.CSV).skipped_max == 5


@pytest.mark.parametrize(
    ("name", "value", "form"),
    [
        ("NOPE", "1", "JSON"),
        ("FORCE", "maybe", "JSON"),
        ("ON_ERROR", "ignore", "JSON"),
        ("SKIPPED_MAX", "5", "JSON"),
        ("CHANGED", "yes", "JSON"),
        ("HEADER", "true", "JSON"),
    ],
)
def test_wrong_options_are_refused(world: CopyWorld, name: str, value: str, form: str) -> None:
    world.put("a")
    error = refused(world, f"COPY INTO t FROM '{world.files}' FORMAT {form} OPTIONS ({name} = '{value}')")
    assert (error.code, error.facts["option"]) == ("BAD_COPY_OPTION", name)
    assert not world.tasks


def test_so_many_rows_are_skipped_at_most() -> None:
    for count in ("0", "10001", "-1", "x"):
        with pytest.raises(InvalidInputError, check=WithCode("BAD_COPY_OPTION")):
            copy_options((("ON_ERROR", "skip"), ("SKIPPED_MAX", count)), FileFormat.JSON)


# --- which files ---


def test_each_file_is_loaded_once(world: CopyWorld) -> None:
    for name, size in (("a.json", 1), ("x/b c'%20.json", 2), ("_SUCCESS", 3), (".a.crc", 4)):
        world.put(name, size)
    assert world.copy() == "copied into default.t: 2 rows of 2 files"
    assert world.loaded() == {"a.json": 1, "x/b c'%20.json": 1}
    assert world.copy() == "nothing to copy into default.t; 2 files loaded before"
    world.put("c.json")
    answer = world.run(f"COPY INTO t FROM '{world.files}' FORMAT JSON")
    assert (answer.message, answer.rows_written) == (
        "copied into default.t: 1 rows of 1 files; 2 files loaded before",
        1,
    )
    assert all(task.insert.tasks_max > 0 for task in world.tasks)
    assert [task.paths for task in world.tasks] == [("a.json", "x/b c'%20.json"), ("c.json",)]
    [(txn,)] = world.rows("SELECT DISTINCT txn FROM system.loaded_files WHERE file LIKE '%a.json'")
    assert txn
    world.run("CREATE TABLE other (a Int64) ENGINE = MergeTree ORDER BY a")
    assert "1 rows of 1 files" in world.run(f"COPY INTO other FROM '{world.files}/a.json' FORMAT JSON").message


def test_a_pattern_chooses_files(world: CopyWorld) -> None:
    for name in ("day=1/a.json", "day=2/a.json", "b.json"):
        world.put(name)
    assert "1 rows" in world.copy("PATTERN 'day=1/*'")
    assert "2 rows of 2 files; 1 files" in world.copy("PATTERN '**/*.json'")
    assert refused(world, f"COPY INTO t FROM '{world.files}' FORMAT JSON PATTERN '../*'").code == "BAD_FILE_LOCATION"


def test_files_that_are_not_there_are_said(world: CopyWorld) -> None:
    for address, more in ((world.files, ""), (world.files / "no", ""), (world.files, "PATTERN '*.x'")):
        assert refused(world, f"COPY INTO t FROM '{address}' FORMAT JSON {more}").code == "NO_FILES"
    world.put("a[1].json")
    assert refused(world, f"COPY INTO t FROM '{world.files}/a*' FORMAT JSON").code == "NO_FILES"


def test_other_locations_are_refused(world: CopyWorld, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    for address in (str(secret), f"{world.files}/../secret.json", "s3://bucket/x", str(tmp_path), "/etc/passwd"):
        assert refused(world, f"COPY INTO t FROM '{address}' FORMAT JSON").code == "BAD_FILE_LOCATION"
    (world.files / "link.json").symlink_to(secret)
    assert refused(world, f"COPY INTO t FROM '{world.files}/link.json' FORMAT JSON").code == "BAD_FILE_LOCATION"
    assert refused(world, f"COPY INTO t FROM '{world.files}' FORMAT JSON").code == "NO_FILES"
    assert not world.tasks


def test_each_storage_has_a_folder_for_files(world: CopyWorld) -> None:
    folder = world.table_root / "files"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text("{}")
    assert "1 rows of 1 files" in world.run(f"COPY INTO t FROM '{folder}' FORMAT JSON").message
    uuid = table_of(world).uuid
    assert refused(world, f"COPY INTO t FROM '{world.table_root}/{uuid}' FORMAT PARQUET").code == "BAD_FILE_LOCATION"


def test_a_file_that_changed_is_refused_or_chosen(world: CopyWorld) -> None:
    world.put("a.json")
    world.copy()
    world.put("a.json", 5)
    error = refused(world, f"COPY INTO t FROM '{world.files}' FORMAT JSON")
    assert (error.code, error.kind) == ("FILE_CHANGED", ErrorKind.CONFLICT)
    assert error.facts["file"] == f"{world.files}/a.json"
    assert "1 files changed since" in world.copy("OPTIONS (CHANGED = 'skip')")
    assert "1 rows of 1 files" in world.copy("OPTIONS (CHANGED = 'load')")
    assert "1 files loaded before" in world.copy()
    assert "1 rows of 1 files" in world.copy("OPTIONS (FORCE = true)")


def test_what_may_have_been_forgotten_is_not_loaded(world: CopyWorld) -> None:
    path = world.put("a.json")
    world.copy()
    world.clock.advance(1)
    commit_ts = world.catalog.parts.version(table_of(world).uuid).last_commit_ts
    os.utime(path, (1, 1))
    world.copy("OPTIONS (FORCE = true)")
    world.catalog.loaded_files.trim(2 * commit_ts)
    assert world.copy() == "nothing to copy into default.t; 1 files older than the ledger of files"
    assert "1 rows of 1 files" in world.copy("OPTIONS (FORCE = true)")


# --- the commit ---


def test_two_at_once_load_no_file_twice(world: CopyWorld) -> None:
    world.put("a.json")
    world.put("b.json")
    world.meanwhile = lambda: world.run(f"COPY INTO t FROM '{world.files}/a.json' FORMAT JSON")
    assert world.copy() == "copied into default.t: 1 rows of 1 files; 1 files loaded before"
    assert world.loaded() == {"a.json": 1, "b.json": 1}
    assert sum(part.rows for part in world.catalog.parts.snapshot(table_of(world).uuid).parts) == 2
    assert [task.paths for task in world.tasks] == [("a.json", "b.json"), ("a.json",), ("b.json",)]


def test_a_file_that_changes_while_it_is_read_refuses_all(world: CopyWorld) -> None:
    world.put("a.json")
    world.put("b.json")
    world.meanwhile = lambda: world.put("a.json", 9)
    error = refused(world, f"COPY INTO t FROM '{world.files}' FORMAT JSON")
    assert (error.code, world.loaded()) == ("FILE_CHANGED", {})
    assert not world.catalog.parts.snapshot(table_of(world).uuid).parts
    assert {state for (state,) in world.rows("SELECT state FROM system.transactions")} <= {"aborted"}
    files = [path.name for path in world.table_root.rglob("*.parquet")]
    assert files == []
    assert world.copy() == "copied into default.t: 2 rows of 2 files"


def test_a_table_that_is_dropped_meanwhile_refuses(world: CopyWorld) -> None:
    world.put("a.json")
    world.meanwhile = lambda: world.run("DROP TABLE t")
    assert refused(world, f"COPY INTO t FROM '{world.files}' FORMAT JSON").code == "TABLE_NOT_FOUND"


def test_columns_that_change_meanwhile_refuse(world: CopyWorld) -> None:
    world.put("a.json")
    world.meanwhile = lambda: world.run("ALTER TABLE t ADD COLUMN b Int64")
    assert refused(world, f"COPY INTO t FROM '{world.files}' FORMAT JSON").code == "SCHEMA_CHANGED"
    assert world.loaded() == {}


def test_a_check_stores_nothing(world: CopyWorld) -> None:
    world.put("a.json")
    assert world.copy("VALIDATE ONLY") == "can be copied into default.t: 1 rows of 1 files"
    assert (world.tasks[0].is_check, world.tasks[0].insert.txn) == (True, 0)
    assert world.loaded() == {}
    assert "1 rows of 1 files" in world.copy()


def test_skipped_rows_are_in_the_ledger(world: CopyWorld) -> None:
    world.put("a.json")
    world.skipped = (SkippedRow(line=3, reason="column `a`: no", raw=b'{"a":\xff'),)
    assert "1 rows skipped" in world.copy("OPTIONS (ON_ERROR = 'skip')")
    rows = world.rows("SELECT line, block_start, reason, raw FROM system.skipped_rows")
    assert rows == [(3, 0, "column `a`: no", '{"a":\\xff')]
    assert world.rows("SELECT skipped_rows FROM system.loaded_files") == [(1,)]


def test_a_query_about_one_table_reads_no_other_ledger(world: CopyWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put("a.json")
    world.skipped = (SkippedRow(line=3, reason="no"),)
    world.copy("OPTIONS (ON_ERROR = 'skip')")
    world.run("CREATE TABLE other (a Int64) ENGINE = MergeTree ORDER BY a")
    read: list[str] = []
    ledger = LoadedFiles.all

    def noted(self: LoadedFiles, table: str) -> Iterator[LoadedFile]:
        read.append(table)
        return ledger(self, table)

    monkeypatch.setattr(LoadedFiles, "all", noted)
    for name in ("loaded_files", "skipped_rows"):
        read.clear()
        assert len(world.rows(f"SELECT file FROM system.{name} WHERE database = 'default' AND table = 't'")) == 1
        assert len(read) == 1
        assert len(world.rows(f"SELECT file FROM system.{name}")) == 1
        assert len(read) == 3


def test_a_task_knows_what_the_statement_says(world: CopyWorld) -> None:
    world.put("a.csv")
    world.run("CREATE TABLE u (k Int64, v String) ENGINE = MergeTree UNIQUE KEY k")
    world.dispatch.answer = lambda spec: _nothing(world, spec)
    world.copy("OPTIONS (HEADER = true) SETTINGS format_csv_delimiter = ';'", table="u", form="CSV")
    world.copy("OPTIONS (FORCE = true)", table="u", form="CSV")
    more = "OPTIONS (FORCE = true) SETTINGS input_format_skip_unknown_fields = 1"
    world.copy(more, table="u (k)", form="JSON")
    first, second, third = world.tasks
    assert (first.has_header, first.delimiter, first.insert.columns) == (True, ";", ("k", "v", "_op"))
    assert second.insert.columns == ("k", "v")
    assert (third.insert.columns, third.skip_unknown) == (("k",), True)


def _nothing(world: CopyWorld, spec: TaskSpec) -> bytes:
    """A job that finds no rows."""
    task = msgspec.msgpack.decode(spec.payload, type=LoadFilesTask)
    world.tasks.append(task)
    return msgspec.msgpack.encode(LoadFilesResult(parts=(), files=tuple(FileRows() for _ in task.paths)))


def test_times_of_another_zone_are_refused(world: CopyWorld) -> None:
    world.put("a.json")
    settings = {"spark.sql.session.timeZone": "Europe/Berlin"}
    assert refused(world, f"COPY INTO t FROM '{world.files}' FORMAT JSON", settings).code == "COPY_ZONE"
    assert "1 rows" in world.run(f"COPY INTO t FROM '{world.files}' FORMAT PARQUET", settings=settings).message


def test_a_ledger_of_another_server_counts(world: CopyWorld) -> None:
    world.put("a.json")
    status = (world.files / "a.json").stat()
    loaded = LoadedFile(
        file=f"{world.files}/a.json",
        size=status.st_size,
        modified_ms=status.st_mtime_ns // 1_000_000,
        rows=1,
        query_id="q",
    )
    table = table_of(world).uuid
    world.catalog.transactions.open("copy").commit([LoadFile(table=table, loaded=loaded)])
    assert "nothing to copy" in world.copy()


def test_copies_are_audited_without_secrets(world: CopyWorld) -> None:
    world.put("a.json")
    world.copy()
    refused(world, "COPY INTO t FROM 's3://b/in?key=AKIAIOSFODNN7&secret=wJalrXUtnFEMI' FORMAT JSON")
    lines = world.rows("SELECT outcome, statement FROM system.audit_log WHERE verb = 'COPY INTO'")
    assert sorted(str(line[0])[:20] for line in lines) == ["BAD_FILE_LOCATION: a", "copied into default."]
    assert "wJalrXUtnFEMI" not in str(lines)
    assert "AKIAIOSFODNN7" not in str(lines)
    assert "wJalrXUtnFEMI" not in str(world.rows("SELECT text, error FROM system.query_log"))
