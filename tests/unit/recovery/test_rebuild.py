"""Catalogs made again of a journal and of tables' files: the same rows, and a line for each thing that is not known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.codes import WithCode
from tests.sql_world import SqlWorld, table_of
from tilth.base.clock import SystemClock
from tilth.base.errors import ConflictError, InvalidInputError, TilthError
from tilth.base.ids import random_id
from tilth.catalog import (
    Catalog,
    CatalogExistsError,
    DumpHeader,
    FollowedKV,
    HidePartition,
    InsertPart,
    Joining,
    MemoryKV,
    ReplaceParts,
    RocksKV,
    TxnHandle,
    Unknown,
    is_journaled,
)
from tilth.joining import check_not_lost
from tilth.model.table import TableDef
from tilth.model.txn import TxnOutput, TxnState
from tilth.recovery import (
    FindingKind,
    Journal,
    RebuildOptions,
    RebuildReport,
    rebuild_catalog,
)
from tilth.storage import (
    StoreRoot,
    data_folder,
    layout_of,
    local_root,
    read_source,
    reserve_location,
    sources_of,
    write_parts,
    write_probe,
)
from tilth.testing import FakeBucket
from tilth.verify import verify

HOSTILE = "it''s `x` \\n 名 ''; DROP"
CREATES = (
    "CREATE DATABASE `d-1 名`",
    "CREATE TABLE t (n BIGINT, s STRING, d DATE) ENGINE = MergeTree PARTITION BY d ORDER BY n",
    "CREATE TABLE `d-1 名`.`a b.c` (k STRING, v BIGINT) ENGINE = MergeTree ORDER BY k",
    "CREATE TABLE u (k BIGINT, v STRING) ENGINE = MergeTree UNIQUE KEY k",
)


class World:
    """A world with a journal that is written when a test says so."""

    def __init__(self, folder: Path, *, root: StoreRoot | None = None) -> None:
        self.folder = folder
        self.root = root or local_root(folder / "tables")
        self.kv = FollowedKV(MemoryKV(), is_journaled)
        self.sql = SqlWorld(folder / "tables", kv=self.kv)
        self.journal = self.new_journal()

    def new_journal(self) -> Journal:
        """As after a start."""
        clock = self.sql.clock
        return Journal(
            clock,
            self.sql.catalog,
            self.kv,
            self.root,
            header=lambda: DumpHeader(version="1", server="s1", created_ms=clock.now_ms()),
            seconds=1.0,
        )

    def fill(self) -> None:
        for text in CREATES:
            self.sql.run(text)
        for day in ("2026-01-01", "2026-01-02"):
            for number in range(3):
                self.sql.run(f"INSERT INTO t VALUES ({number}, '{HOSTILE}', '{day}'), ({number + 10}, NULL, '{day}')")
        self.sql.run("INSERT INTO `d-1 名`.`a b.c` VALUES ('x', 1)")
        for number in range(4):
            self.sql.run(f"INSERT INTO u VALUES (1, 'of {number}'), ({number + 5}, 'once')")

    def table(self, name: str = "t") -> TableDef:
        return table_of(self.sql, name)

    def insert_later(self, rows: int = 1, *, is_committed: bool = True) -> str:
        """Write a part as tasks do; return the file's name."""
        table, catalog = self.table(), self.sql.catalog
        txn = catalog.transactions.begin("insert q", outputs=[TxnOutput(table=table.uuid, tasks=1)])
        layout = layout_of(table, self.root)
        values = pa.table({"n": range(rows), "s": ["late"] * rows, "d": pa.array([0] * rows, pa.date32())})
        [written] = write_parts(layout, values, txn=txn.id, task=0, attempt=0)
        if is_committed:
            catalog.transactions.commit(txn.id, [InsertPart(table=table.uuid, written=written)])
        return written.file.name

    def rebuild(self, name: str = "new", **options: bool) -> RebuildReport:
        return rebuild_catalog([self.root.uri], self.folder / name, RebuildOptions(**options))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@contextmanager
def opened(world: World, name: str = "new") -> Iterator[Catalog]:
    with closing(RocksKV(str(world.folder / name / "catalog"))) as store:
        yield Catalog(store, SystemClock(), "s2", random_id, is_checking=True)


def rows_of(catalog: Catalog, root: StoreRoot) -> dict[str, list[object]]:
    """All rows of all tables, and what the catalog counts of them."""
    found: dict[str, list[object]] = {}
    for relation in catalog.tables.all():
        if isinstance(relation, TableDef):
            snapshot = catalog.parts.snapshot(relation.uuid)
            sources = sources_of(snapshot.table, snapshot.parts, snapshot.deltas)
            rows = [
                row for each in sources for row in read_source(data_folder(root, relation.uuid), each)[0].to_pylist()
            ]
            assert len(rows) == snapshot.rows
            found[f"{relation.database}.{relation.name}"] = sorted(rows, key=str)
    return found


def kinds(report: RebuildReport) -> list[str]:
    return sorted(each.kind for each in report.findings)


def test_the_same_tables_and_rows_come_back(world: World) -> None:
    world.journal.write()
    world.fill()
    world.journal.write()
    world.sql.run("ALTER TABLE t DROP PARTITION '2026-01-02'")
    world.sql.run("ALTER TABLE t RENAME COLUMN s TO text")
    world.journal.write()
    before = rows_of(world.sql.catalog, world.root)
    assert sum(map(len, before.values())) == 12
    report = world.rebuild()
    assert report.findings == ()
    assert {each.name: each.rows for each in report.tables} == {name: len(rows) for name, rows in before.items()}
    with opened(world) as catalog:
        assert rows_of(catalog, world.root) == before
        assert catalog.tables.all() == world.sql.catalog.tables.all()
        for relation in catalog.tables.all():
            assert isinstance(relation, TableDef)
            assert verify(catalog, world.root, relation).is_ok
        # And it goes on: parts are replaced, rows come in, a drop is undone.
        table = catalog.tables.get("default", "t")
        parts = catalog.parts.snapshot(table.uuid).parts
        catalog.transactions.apply(
            "merge", [ReplaceParts(table=table.uuid, sources=tuple(each.name for each in parts), written=None)]
        )
        assert catalog.parts.snapshot(table.uuid).rows == 0


def test_labels_and_offsets_are_of_the_same_time(world: World) -> None:
    world.fill()
    world.sql.run("INSERT INTO t SETTINGS insert_deduplication_token = 'l1' VALUES (1, 'x', '2026-01-01')")
    world.journal.write()
    world.rebuild()
    with opened(world) as catalog:
        assert catalog.labels.find(world.table().uuid, "l1") is not None


def test_work_that_may_have_landed_later_is_not_in_the_table_and_is_reported(world: World) -> None:
    world.fill()
    running = world.insert_later(is_committed=False)
    world.journal.write()
    world.sql.clock.advance(5)
    later = world.insert_later()
    report = world.rebuild()
    assert kinds(report) == ["unknown", "unknown"]
    assert sorted(each.file.rpartition("/")[2] for each in report.findings) == sorted([running, later])
    assert any("insert q" in each.text for each in report.findings)
    with opened(world) as catalog:
        # Nobody removes its file as one of a lost transaction, and its id is never used again.
        assert catalog.transactions.unfinished() == []
        assert catalog.clock.now() > int(later.partition("-")[0])
        assert catalog.parts.snapshot(world.table().uuid).rows == 12


def test_aborted_work_stays_aborted(world: World) -> None:
    world.fill()
    name = world.insert_later(is_committed=False)
    [txn] = world.sql.catalog.transactions.unfinished()
    world.sql.catalog.transactions.abort(txn.id, "it failed")
    world.journal.write()
    world.rebuild()
    with opened(world) as catalog:
        assert [each.state for each in catalog.transactions.unfinished()] == [TxnState.ABORTED]
    assert (Path(str(data_folder(world.root, world.table().uuid))) / name).exists()


def test_notes_of_files_that_failed_tries_may_have_left_come_along(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = world.sql.catalog.transactions
    begin = transactions.open

    def on_a_cluster(actor: str, **given: Any) -> TxnHandle:
        handle = begin(actor, **given)
        handle.tasks_ended(may_have_retried=True)
        return handle

    monkeypatch.setattr(transactions, "open", on_a_cluster)
    world.fill()
    noted = transactions.leftover_notes()
    assert len(noted) >= 4
    world.journal.write()
    world.rebuild()
    with opened(world) as catalog:
        assert catalog.transactions.leftover_notes() == noted


@pytest.mark.parametrize("harm", ["gone", "short", "other bytes"])
def test_a_damaged_part_is_left_out_and_the_rest_verifies(world: World, harm: str) -> None:
    world.fill()
    world.journal.write()
    table = world.table()
    part = world.sql.catalog.parts.snapshot(table.uuid).parts[0]
    path = Path(str(data_folder(world.root, table.uuid))) / part.file.name
    data = path.read_bytes()
    path.unlink()
    if harm != "gone":
        path.write_bytes(data[:-1] if harm == "short" else b"x" + data[1:])
    report = world.rebuild()
    [finding] = report.findings
    assert (finding.kind, finding.table, finding.rows) == (FindingKind.LEFT_OUT, "default.t", 2)
    with opened(world) as catalog:
        assert catalog.parts.snapshot(table.uuid).rows == 10
        assert verify(catalog, world.root, table).is_ok
    if harm == "other bytes":
        assert world.rebuild("quick", is_quick=True).findings == ()


def test_a_damaged_file_of_changes_brings_no_deleted_row_back(world: World) -> None:
    world.fill()
    world.journal.write()
    table = world.table("u")
    snapshot = world.sql.catalog.parts.snapshot(table.uuid)
    file = snapshot.deltas[0].file.name
    (Path(str(data_folder(world.root, table.uuid))) / file).unlink()
    report = world.rebuild()
    assert kinds(report) == ["unreadable"]
    with opened(world) as catalog:
        assert catalog.parts.snapshot(table.uuid).rows == snapshot.rows
        with pytest.raises(TilthError, match="missing"):
            rows_of(catalog, world.root)


def test_foreign_files_and_unknown_tables_are_left_alone_and_reported(world: World) -> None:
    world.fill()
    world.journal.write()
    tables = world.folder / "tables"
    (tables / "notes.txt").write_text("mine")
    (tables / world.table().uuid / "data" / "copy of 1-0.0-0.parquet").write_text("mine")
    # An id that would use up all that there are.
    (tables / world.table().uuid / "data" / f"{(1 << 63) - 1}-0.0-0.parquet").write_text("mine")
    stray = tables / ("f" * 32) / "data"
    stray.mkdir(parents=True)
    (stray / "123-0.0-0.parquet").write_text("whose")
    (tables / ".server-probe").write_text("x")
    (tables / ".server-probe-a").write_text("x")
    before = {path: path.read_bytes() for path in tables.rglob("*") if path.is_file()}
    report = world.rebuild()
    assert kinds(report) == ["foreign", "foreign", "foreign", "unknown_table"]
    with opened(world) as catalog:
        assert catalog.clock.now() < 1 << 62
    assert {path: path.read_bytes() for path in tables.rglob("*") if path.is_file()} == before


def test_secrets_are_not_in_the_journal(world: World) -> None:
    world.sql.run(
        "CREATE TABLE k (n BIGINT) ENGINE = Kafka SETTINGS kafka_broker_list = 'nobody:9092', kafka_topic_list = 'x', "
        "kafka_group_name = 'g', kafka_format = 'JSONEachRow', kafka_sasl_password = 'very-hidden'"
    )
    world.journal.write()
    written = b"".join(path.read_bytes() for path in (world.folder / "tables" / "catalog-journal").iterdir())
    assert b"very-hidden" not in written
    report = world.rebuild()
    [finding] = report.findings
    assert (finding.kind, finding.table) == (FindingKind.SECRETS, "default.k")
    assert "kafka_sasl_password" in finding.text
    with opened(world) as catalog, catalog._kv.view() as view:
        assert not any(b"very-hidden" in found.value for _, found in view.scan(b"\x01", None))


def test_a_dropped_table_can_be_brought_back(world: World) -> None:
    world.fill()
    world.sql.run("DROP TABLE u")
    world.journal.write()
    assert world.rebuild().findings == ()
    with opened(world) as catalog:
        assert catalog.tables.undrop("default", "u").name == "u"
        assert len(rows_of(catalog, world.root)["default.u"]) == 5


def test_a_trial_keeps_nothing_and_nothing_is_written_over(world: World) -> None:
    world.fill()
    world.journal.write()
    report = world.rebuild(is_dry_run=True)
    assert (report.is_dry_run, len(report.tables)) == (True, 3)
    assert not (world.folder / "new").exists()
    world.rebuild()
    with pytest.raises(CatalogExistsError):
        world.rebuild()


def test_without_a_journal_and_files_nothing_is_made(world: World) -> None:
    with pytest.raises(InvalidInputError, check=WithCode("NOTHING_TO_REBUILD")) as caught:
        world.rebuild()
    assert "tilth catalog restore" in caught.value.hint
    assert not (world.folder / "new").exists()


@pytest.mark.parametrize("harm", ["hole", "cut", "other bytes"])
def test_behind_a_hole_of_the_journal_nothing_is_believed(world: World, harm: str) -> None:
    world.journal.write()
    world.fill()
    world.journal.write()
    world.sql.run("CREATE TABLE later (n BIGINT) ENGINE = MergeTree ORDER BY n")
    world.journal.write()
    world.sql.run("CREATE TABLE last (n BIGINT) ENGINE = MergeTree ORDER BY n")
    world.journal.write()
    [path] = (world.folder / "tables" / "catalog-journal").glob("*-2")
    data = path.read_bytes()
    path.unlink()
    if harm != "hole":
        path.write_bytes(data[:-3] if harm == "cut" else data[:-9] + b"z" + data[-8:])
    report = world.rebuild()
    assert kinds(report) == ["journal"]
    assert sorted(each.name for each in report.tables) == ["d-1 名.a b.c", "default.t", "default.u"]


def test_a_beginning_that_was_cut_off_is_passed_over(world: World) -> None:
    world.fill()
    world.journal.write()
    folder = world.folder / "tables" / "catalog-journal"
    [whole] = folder.iterdir()
    generation, _, _ = whole.name.partition("-")
    (folder / f"{int(generation) + 1}-0").write_bytes(whole.read_bytes()[:-30])
    (folder / f"{int(generation) + 2}-0").write_bytes(b"")
    (folder / f"{int(generation) + 3}-1").write_bytes(b"without its beginning")
    report = world.rebuild()
    assert kinds(report) == ["journal", "journal"]
    assert len(report.tables) == 3


def test_a_new_generation_replaces_the_former(world: World) -> None:
    folder = world.folder / "tables" / "catalog-journal"
    world.journal.write()
    world.fill()
    for _ in range(3):
        world.sql.run("INSERT INTO t VALUES (1, 'x', '2026-01-01')")
        world.journal.write()
    former = set(os.listdir(folder))
    assert len(former) == 4
    world.sql.clock.set_now_ms(world.sql.clock.now_ms() - 3_600_000)
    world.new_journal().write()
    [first] = os.listdir(folder)
    assert first not in former
    assert first > max(former)
    assert world.rebuild().findings == ()


def test_a_long_journal_begins_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilth.recovery.journal.CHANGES_FILES_MAX", 2)
    world.journal.write()
    for number in range(5):
        world.sql.run(f"CREATE TABLE t{number} (n BIGINT) ENGINE = MergeTree ORDER BY n")
        world.journal.write()
        assert len(os.listdir(world.folder / "tables" / "catalog-journal")) <= 3
    assert len(world.rebuild().tables) == 5


def test_an_outcome_that_is_not_known_begins_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.journal.write()
    inner, is_lost = world.kv._inner, [True]
    commit = inner.commit

    def lost(*arguments: object) -> object:
        outcome = commit(*arguments)  # type: ignore[arg-type]
        if is_lost:
            is_lost.clear()
            return Unknown("the answer was lost")
        return outcome

    monkeypatch.setattr(inner, "commit", lost)
    world.fill()
    world.journal.write()
    assert world.rebuild().findings == ()
    with opened(world) as catalog:
        assert rows_of(catalog, world.root) == rows_of(world.sql.catalog, world.root)


def test_changes_that_are_too_many_to_hold_begin_anew(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kv._held_max = 1000
    world.journal.write()
    world.fill()
    assert world.kv.drain() is None
    world.journal.write()
    assert len(world.rebuild().tables) == 3


def test_a_store_that_is_away_loses_nothing_of_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J_KEY", "tilthkey")
    monkeypatch.setenv("J_SECRET", "s")
    with FakeBucket() as bucket:
        address = f"s3://tilth/p?endpoint={bucket.endpoint}&key=env:J_KEY&secret=env:J_SECRET"
        root = StoreRoot(
            "s3://tilth/p",
            tuple(sorted({"endpoint": bucket.endpoint, "key": "env:J_KEY", "secret": "env:J_SECRET"}.items())),
        )
        world = World(tmp_path, root=root)
        assert world.journal.write()
        good = dict(bucket.objects)
        world.sql.run("CREATE TABLE a (n BIGINT) ENGINE = MergeTree ORDER BY n")
        monkeypatch.setenv("J_KEY", "another")
        monkeypatch.setattr("tilth.recovery.journal.new_whole_file", away)
        for _ in range(3):
            assert not world.journal.write()
        assert bucket.objects == good
        monkeypatch.undo()
        monkeypatch.setenv("J_KEY", "tilthkey")
        monkeypatch.setenv("J_SECRET", "s")
        assert world.journal.write()
        report = rebuild_catalog([address], tmp_path / "new", RebuildOptions())
        assert [each.name for each in report.tables] == ["default.a"]
        # Nothing is left of the tries.
        assert len(bucket.objects) == 1


def away(*_: object, **__: object) -> None:
    raise OSError("the store is away")


def test_a_drop_of_the_past_stays_hidden(world: World) -> None:
    world.fill()
    table = world.table()
    partition = world.sql.catalog.parts.partitions(table.uuid)[0]
    world.sql.catalog.transactions.apply("drop", [HidePartition(table=table.uuid, partition=partition)])
    world.journal.write()
    assert world.rebuild().findings == ()
    with opened(world) as catalog:
        assert catalog.parts.snapshot(table.uuid).rows == 6


def test_an_empty_catalog_beside_files_of_tables_is_refused(world: World, tmp_path: Path) -> None:
    root, empty = world.root, local_root(tmp_path / "empty")
    # A location that was reserved, and that workers have probed, counts as new.
    reserve_location(empty)
    write_probe(empty, b"probe", server="s")
    check_not_lost(empty, is_empty=True)
    check_not_lost(root, is_empty=True)
    world.fill()
    check_not_lost(root, is_empty=False)
    with pytest.raises(ConflictError, check=WithCode("CATALOG_LOST"), match="tilth catalog rebuild"):
        check_not_lost(root, is_empty=True)


def test_a_catalog_is_used_as_soon_as_a_server_or_a_table_was_there(world: World) -> None:
    kv = MemoryKV()
    catalog = Catalog(kv, SystemClock(), "s", random_id)
    assert catalog.is_unused()
    catalog.servers.end(catalog.servers.join(Joining(name="a", run="1", version="1")))
    assert not catalog.is_unused()
    world.fill()
    assert not world.sql.catalog.is_unused()
