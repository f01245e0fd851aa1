"""Catalogs made of tables' files alone: each row once where files say so, and a line for what they do not say."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.codes import WithCode
from tests.unit.recovery.test_rebuild import World, kinds, opened, rows_of
from tilth.base.errors import InvalidInputError
from tilth.catalog import ReplaceParts
from tilth.model.part import Part
from tilth.model.table import Column, Schema, SchemaVersion, TableDef
from tilth.model.txn import TxnOutput
from tilth.model.types import Kind, Simple
from tilth.recovery import FindingKind, RebuildReport
from tilth.recovery.attach import NotedFile, choose
from tilth.recovery.found import written_by
from tilth.recovery.txn_notes import NotedTxns, TxnNote, TxnNotes, TxnVerdict
from tilth.storage import DeltaWriter, NewPart, PartNote, data_folder, layout_of, merge_parts, sources_of
from tilth.verify import verify

UNKNOWN_TO_FILES = ["not_in_files"] * 5


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def settle(world: World) -> None:
    """Let time pass, and write a file that is newer than all others: what was before is over."""
    world.sql.clock.advance(3600)
    world.insert_later(is_committed=False)


def merge(world: World, parts: Sequence[Part], *, is_committed: bool = True) -> str:
    """Merge parts of a partition of `t`; return the name of the new file."""
    table, catalog = world.table(), world.sql.catalog
    txn = catalog.transactions.begin("merge", outputs=[TxnOutput(table=table.uuid, tasks=1)])
    new = NewPart(
        layout=layout_of(table, world.root), partition=parts[0].name.partition, values=parts[0].values, txn=txn.id
    )
    written = merge_parts(new, sources_of(table, parts, ()), task=0, attempt=0).written
    assert written is not None
    if is_committed:
        update = ReplaceParts(table=table.uuid, sources=tuple(part.name for part in parts), written=written)
        catalog.transactions.commit(txn.id, [update])
    return written.file.name


def parts_of(world: World) -> list[Part]:
    """The parts of the first partition of `t`."""
    parts = world.sql.catalog.parts.snapshot(world.table().uuid).parts
    return [part for part in parts if part.name.partition == parts[0].name.partition]


def path_of(world: World, name: str) -> Path:
    return Path(str(data_folder(world.root, world.table().uuid))) / name


def names_by_kind(report: RebuildReport, kind: FindingKind) -> set[str]:
    return {each.file.rpartition("/")[2] for each in report.findings if each.kind is kind}


def test_tables_and_rows_come_back_with_columns_of_all_versions(world: World) -> None:
    world.fill()
    world.sql.run("ALTER TABLE t ADD COLUMN extra STRING DEFAULT 'new'")
    world.sql.run("INSERT INTO t VALUES (77, 'x', '2026-01-01', 'e')")
    world.sql.run("CREATE TABLE empty (n BIGINT) ENGINE = MergeTree ORDER BY n")
    before = rows_of(world.sql.catalog, world.root)
    settle(world)
    report = world.rebuild()
    assert (report.known_until_ms, report.is_sure) == (0, False)
    assert kinds(report) == sorted([*UNKNOWN_TO_FILES, "unknown"])
    with opened(world) as catalog:
        found = rows_of(catalog, world.root)
        # One row of `u` was replaced three times.
        assert found == {name: rows for name, rows in before.items() if name != "default.empty"}
        table = catalog.tables.get("default", "t")
        assert isinstance(table, TableDef)
        assert (table.uuid, table.schema, table.partition_by) == (
            world.table().uuid,
            world.table().schema,
            world.table().partition_by,
        )
        assert {part.schema_version for part in catalog.parts.snapshot(table.uuid).parts} == {1, 2}
        assert verify(catalog, world.root, table).is_ok
        # And it goes on, with ids that no file has.
        assert catalog.clock.now() > max(int(path.name.partition("-")[0]) for path in path_of(world, "").iterdir())
    assert {each.name: each.rows for each in report.tables}["default.t"] == len(before["default.t"])


def test_what_a_merge_replaced_is_hidden_and_can_be_removed(world: World) -> None:
    world.fill()
    parts = parts_of(world)
    before = rows_of(world.sql.catalog, world.root)["default.t"]
    first = merge(world, parts[:2])
    second = merge(world, parts_of(world))
    settle(world)
    report = world.rebuild()
    gone = {part.file.name for part in parts} | {first}
    assert names_by_kind(report, FindingKind.LEFTOVER) == gone
    with opened(world) as catalog:
        assert rows_of(catalog, world.root)["default.t"] == before
        assert second in {part.file.name for part in catalog.parts.snapshot(world.table().uuid).parts}


@pytest.mark.parametrize("is_collected", [False, True])
def test_a_merge_just_before_the_end_counts_where_its_sources_are_gone(world: World, is_collected: bool) -> None:
    world.fill()
    world.sql.clock.advance(3600)
    parts = parts_of(world)
    before = rows_of(world.sql.catalog, world.root)["default.t"]
    merged = merge(world, parts, is_committed=is_collected)
    if is_collected:
        path_of(world, parts[0].file.name).unlink()
    report = world.rebuild()
    left = {part.file.name for part in parts[1:]} if is_collected else {merged}
    assert names_by_kind(report, FindingKind.LEFTOVER) == left
    with opened(world) as catalog:
        assert rows_of(catalog, world.root)["default.t"] == before


def test_what_may_never_have_been_committed_is_listed_and_taken_if_asked_for(world: World) -> None:
    world.fill()
    world.sql.clock.advance(3600)
    late = [world.insert_later(5), world.insert_later(7, is_committed=False)]
    report = world.rebuild()
    assert names_by_kind(report, FindingKind.UNKNOWN) == set(late)
    assert {each.rows for each in report.findings if each.kind is FindingKind.UNKNOWN} == {5, 7}
    with opened(world) as catalog:
        assert catalog.parts.snapshot(world.table().uuid).rows == 12
    kept = world.rebuild("kept", keeps_uncommitted=True)
    assert names_by_kind(kept, FindingKind.UNKNOWN) == set()
    with opened(world, "kept") as catalog:
        assert catalog.parts.snapshot(world.table().uuid).rows == 24


def test_damaged_files_and_files_of_others_are_left_out(world: World) -> None:
    world.fill()
    settle(world)
    parts = parts_of(world)
    data = path_of(world, parts[0].file.name).read_bytes()
    path_of(world, parts[0].file.name).write_bytes(data[:-10])
    path_of(world, "12-0.0-0.parquet").write_bytes(b"")
    path_of(world, "12-0.0-0.arrow").write_bytes(data)
    path_of(world, "14-0.0-0.filter").write_bytes(b"x")
    other = world.sql.catalog.tables.get("d-1 名", "a b.c")
    [whole] = world.sql.catalog.parts.snapshot(other.uuid).parts
    shutil.copy(
        path_of(world, "").parent.parent / other.uuid / "data" / whole.file.name, path_of(world, "13-0.0-0.parquet")
    )
    # A file of another program has no note.
    old = path_of(world, parts[1].file.name)
    pq.write_table(pq.read_table(old).replace_schema_metadata(), old)
    report = world.rebuild()
    assert names_by_kind(report, FindingKind.LEFT_OUT) == {
        *(part.file.name for part in parts[:2]),
        "12-0.0-0.parquet",
        "12-0.0-0.arrow",
    }
    assert names_by_kind(report, FindingKind.LEFTOVER) == {"14-0.0-0.filter"}
    assert names_by_kind(report, FindingKind.FOREIGN) == {"13-0.0-0.parquet"}
    with opened(world) as catalog:
        assert catalog.parts.snapshot(world.table().uuid).rows == 12 - parts[0].rows - parts[1].rows
        assert verify(catalog, world.root, world.table()).is_ok


def test_deletes_are_applied_and_new_values_are_reported(world: World) -> None:
    world.fill()
    table, catalog = world.table(), world.sql.catalog
    parts = parts_of(world)
    deletes = [np.array([0]), np.array([0, 1])]
    for number, rows in enumerate([*deletes, None]):
        txn = catalog.transactions.begin("delete", outputs=[TxnOutput(table=table.uuid, tasks=1)])
        out = DeltaWriter(layout_of(table, world.root), txn=txn.id, task=0, attempt=0)
        if rows is None:
            values = pa.table({"row": [0], "c2": ["changed"], "p2": [True]})
            out.updates(parts[0].name.partition, parts[1].file.name, values)
        else:
            out.deletes(parts[0].name.partition, parts[0].file.name, rows)
        if number == 1:
            world.sql.clock.advance(3600)
            # Transactions as late as the end are not known.
            settle(world)
    report = world.rebuild(is_dry_run=True)
    assert {each.name: each.rows for each in report.tables}["default.t"] == 10
    files = set(path_of(world, "").iterdir())
    assert world.rebuild().tables == report.tables
    assert len(set(path_of(world, "").iterdir()) - files) == 1
    assert names_by_kind(report, FindingKind.CHANGES) == set()
    assert kinds(report).count("unknown") == 2
    with opened(world) as catalog:
        assert len(rows_of(catalog, world.root)["default.t"]) == 10
        assert verify(catalog, world.root, table).is_ok
    late = world.rebuild("kept", keeps_uncommitted=True)
    assert len(names_by_kind(late, FindingKind.CHANGES)) == 1


def test_of_two_tables_with_one_name_the_later_one_has_it(world: World) -> None:
    world.fill()
    former = world.table().uuid
    world.sql.run("DROP TABLE t")
    world.sql.clock.advance(5)
    world.sql.run("CREATE TABLE t (n BIGINT, s STRING, d DATE) ENGINE = MergeTree PARTITION BY d ORDER BY n")
    world.sql.run("INSERT INTO t VALUES (1, 'later', '2026-01-01')")
    settle(world)
    report = world.rebuild()
    assert {each.name: each.rows for each in report.tables} | {"default.u": 0, "d-1 名.a b.c": 0} == {
        "default.t": 1,
        f"default.t_{former[:8]}": 12,
        "default.u": 0,
        "d-1 名.a b.c": 0,
    }
    assert kinds(report).count("not_in_files") == 6


def test_a_journal_is_passed_over_if_asked_for(world: World) -> None:
    world.journal.write()
    world.fill()
    settle(world)
    assert world.rebuild().tables == ()
    report = world.rebuild("files", is_files_only=True)
    assert {each.name for each in report.tables} == {"default.t", "default.u", "d-1 名.a b.c"}


def test_a_folder_without_notes_makes_a_catalog_without_tables(world: World) -> None:
    with pytest.raises(InvalidInputError, check=WithCode("NOTHING_TO_REBUILD")):
        world.rebuild(is_files_only=True)
    stray = world.folder / "tables" / ("f" * 32) / "data"
    stray.mkdir(parents=True)
    (stray / "123-0.0-0.parquet").write_text("whose")
    report = world.rebuild()
    assert (report.tables, names_by_kind(report, FindingKind.LEFT_OUT)) == ((), {"123-0.0-0.parquet"})


def note_transactions(world: World) -> None:
    """As the thread does a minute later."""
    world.sql.clock.advance(61)
    TxnNotes(world.sql.clock, world.sql.catalog, world.root, server="s/1 名").write()


def test_rows_of_failed_work_are_not_taken_however_old_they_are(world: World) -> None:
    world.fill()
    before = rows_of(world.sql.catalog, world.root)
    catalog = world.sql.catalog
    failed, swept, running, changed = (world.insert_later(5, is_committed=False) for _ in range(4))
    part = parts_of(world)[0]
    for name in (failed, swept, changed):
        catalog.transactions.abort(txn_id(name), "it failed")
    deletes = DeltaWriter(layout_of(world.table(), world.root), txn=txn_id(changed), task=1, attempt=0)
    deletes.deletes(part.name.partition, part.file.name, np.array([0]))
    buried = next(txn for txn in catalog.transactions.unfinished() if txn.id == txn_id(swept))
    catalog.transactions.add_tombstone(buried)
    catalog.transactions.forget(buried.id)
    note_transactions(world)
    settle(world)
    report = world.rebuild()
    # The one that ran was over an hour later, committed or not; nobody noted it.
    assert names_by_kind(report, FindingKind.LEFTOVER) >= {failed, swept, changed}
    with opened(world) as found:
        rows = rows_of(found, world.root)
        assert len(rows["default.t"]) == len(before["default.t"]) + 5
        assert {name: each for name, each in rows.items() if name != "default.t"} == {
            name: each for name, each in before.items() if name != "default.t"
        }
    kept = world.rebuild("kept", keeps_uncommitted=True)
    assert names_by_kind(kept, FindingKind.LEFTOVER) >= {failed, swept, changed}
    assert running not in names_by_kind(kept, FindingKind.UNKNOWN)


def test_long_work_that_ran_at_the_end_is_not_taken_for_committed(world: World) -> None:
    world.fill()
    long = world.insert_later(5, is_committed=False)
    world.sql.clock.advance(3600)
    landed = world.insert_later(3)
    note_transactions(world)
    late = world.insert_later(2)
    report = world.rebuild()
    # A transaction that a note shows to be committed is certain, although it is new.
    assert names_by_kind(report, FindingKind.UNKNOWN) == {long, late}
    with opened(world) as catalog:
        assert catalog.parts.snapshot(world.table().uuid).rows == 12 + 3
    assert landed


def test_notes_of_transactions_are_written_when_one_begins_or_ends_and_a_damaged_one_says_nothing(world: World) -> None:
    world.fill()
    folder = Path(world.root.uri) / "catalog-transactions"
    notes = TxnNotes(world.sql.clock, world.sql.catalog, world.root, server="s1")
    stamps = []
    for is_new in (True, True, False, True):
        if is_new:
            world.insert_later()
        world.sql.clock.advance(61)
        notes.write()
        stamps.append(sum(path.stat().st_mtime_ns for path in folder.iterdir()))
    assert (stamps[1] != stamps[0], stamps[2] == stamps[1], stamps[3] != stamps[2]) == (True, True, True)
    assert {path.name for path in folder.iterdir()} == {"s1-0", "s1-1"}
    newest = max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:3])
    assert "foreign" not in kinds(world.rebuild())


def test_a_clock_that_is_ahead_vouches_for_nothing(world: World) -> None:
    world.fill()
    notes = TxnNotes(world.sql.clock, world.sql.catalog, world.root, server="s1")
    world.sql.clock.set_now_ms(world.sql.clock.now_ms() + 86_400_000)
    assert notes.write()
    assert not (Path(world.root.uri) / "catalog-transactions").exists()


@pytest.mark.parametrize(
    ("txn", "verdict"),
    [
        # Not listed, and of a time that the last note covers.
        (60, TxnVerdict.COMMITTED),
        # It ran an hour before the newest file, and nobody noted since what became of it.
        (70, TxnVerdict.UNKNOWN),
        # An earlier note has it.
        (20, TxnVerdict.ABORTED),
        (61, TxnVerdict.ABORTED),
        # Older than the oldest that the note may list: by age.
        (40, TxnVerdict.COMMITTED),
        # Later than the note.
        (80, TxnVerdict.UNKNOWN),
    ],
)
def test_what_notes_show_of_a_transaction(txn: int, verdict: TxnVerdict) -> None:
    notes = [
        TxnNote(as_of=80, first=50, running=(70,), aborted=(61,)),
        TxnNote(as_of=30, first=0, running=(60,), aborted=(20,)),
    ]
    assert NotedTxns(notes).verdict(txn, settled_before=75) is verdict
    # Without a fresh note age decides.
    assert NotedTxns(notes).verdict(70, settled_before=90) is TxnVerdict.COMMITTED
    assert NotedTxns().verdict(txn, settled_before=75) is (TxnVerdict.COMMITTED if txn < 75 else TxnVerdict.UNKNOWN)


def test_notes_are_short(world: World) -> None:
    world.fill()
    [part, *_] = parts_of(world)
    metadata = pq.read_metadata(path_of(world, part.file.name)).metadata
    assert len(metadata[b"tilth.part"]) < 1000


def txn_id(name: str) -> int:
    by = written_by(name)
    assert by is not None
    return by.txn


def settled(before: int, *notes: TxnNote) -> Callable[[int], TxnVerdict]:
    return partial(NotedTxns(notes).verdict, settled_before=before)


def noted(name: str, *sources: str, pieces: int = 1) -> NotedFile:
    by = written_by(name)
    assert by is not None
    shape = SchemaVersion(version=1, schema=Schema(columns=(Column(id=1, name="n", type=Simple(Kind.INT64)),)))
    note = PartNote(
        table=TableDef(uuid="u", database="d", name="t", schema=shape.schema),
        shape=shape,
        partition="all",
        values=(),
        rows=1,
        ranges={},
        is_filterable=True,
        sources=sources,
        pieces=pieces,
    )
    return NotedFile(name=name, size=1, by=by, note=note)


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        # Two attempts of a task: the one with more files, else the later one.
        (("1-0.0-0.parquet", "1-0.1-0.parquet", "1-1.0-0.parquet"), {"1-0.1-0.parquet", "1-1.0-0.parquet"}),
        (("1-0.0-0.parquet", "1-0.0-1.parquet", "1-0.1-0.parquet"), {"1-0.0-0.parquet", "1-0.0-1.parquet"}),
        (("1-0.0-0.arrow", "9-0.0-0.parquet"), {"1-0.0-0.arrow"}),
    ],
)
def test_which_files_make_a_table(names: Sequence[str], taken: set[str]) -> None:
    choice = choose([noted(name) for name in names], verdict=settled(5))
    assert {file.name for file in choice.chosen} == taken
    assert choice.left.keys() == set(names) - taken


@pytest.mark.parametrize("changed", [(), ("1-0.1-2.parquet",)])
def test_the_attempt_of_which_others_read_files_is_the_one_that_was_committed(changed: Sequence[str]) -> None:
    lost = [noted(f"1-0.0-{n}.parquet") for n in range(3)]
    landed = noted("1-0.1-2.parquet")
    # Two of its three files were merged and collected since.
    merged = noted("2-0.0-0.parquet", "1-0.1-0.parquet", "1-0.1-1.parquet")
    files = [*lost, landed] if changed else [*lost, landed, merged]
    choice = choose(files, verdict=settled(5), changed=changed)
    assert [file.name for file in choice.chosen] == [file.name for file in files[3:]]
    # A file that was read was committed, however late, and so was all of its transaction.
    choice = choose([*files, noted("1-1.0-0.parquet")], verdict=settled(0), changed=changed)
    assert {"1-0.1-2.parquet", "1-1.0-0.parquet"} <= {file.name for file in choice.chosen}


def test_rows_that_work_deletes_of_its_own_files_show_no_commit(world: World) -> None:
    world.fill()
    world.sql.clock.advance(3600)
    late = world.insert_later(5, is_committed=False)
    txn = written_by(late)
    assert txn is not None
    out = DeltaWriter(layout_of(world.table(), world.root), txn=txn.txn, task=0, attempt=0)
    out.deletes(parts_of(world)[0].name.partition, late, np.array([0]))
    assert late in names_by_kind(world.rebuild(), FindingKind.UNKNOWN)
    txn_later = world.sql.catalog.transactions.begin("delete", outputs=[TxnOutput(table=world.table().uuid, tasks=1)])
    out = DeltaWriter(layout_of(world.table(), world.root), txn=txn_later.id, task=0, attempt=0)
    out.deletes(parts_of(world)[0].name.partition, late, np.array([0]))
    assert late not in names_by_kind(world.rebuild("other"), FindingKind.UNKNOWN)


def test_a_late_file_that_another_one_replaced_was_committed() -> None:
    files = [noted("8-0.0-0.parquet"), noted("9-0.0-0.parquet", "8-0.0-0.parquet", "1-0.0-0.parquet")]
    # One of its sources is gone: it was committed.
    assert [file.name for file in choose(files, verdict=settled(5)).chosen] == ["9-0.0-0.parquet"]
    # All are there: they have the same rows, and were committed, or nobody would have read them.
    files.append(noted("1-0.0-0.parquet"))
    choice = choose(files, verdict=settled(5))
    assert [file.name for file in choice.chosen] == ["1-0.0-0.parquet", "8-0.0-0.parquet"]
    assert choice.left["9-0.0-0.parquet"][0] is FindingKind.LEFTOVER


@pytest.mark.parametrize("keeps", [False, True])
def test_of_several_files_that_replace_one_only_one_counts(keeps: bool) -> None:
    sources = ("1-0.0-0.parquet", "2-0.0-0.parquet")
    files = [noted("3-0.0-0.parquet", *sources), noted("4-0.0-0.parquet", *sources), noted("1-0.0-0.parquet")]
    choice = choose(files, verdict=settled(3), keeps_uncommitted=keeps)
    assert [file.name for file in choice.chosen] == ["4-0.0-0.parquet"]
    # Somebody read the earlier one: it was that which landed.
    files.append(noted("9-0.0-0.parquet", "3-0.0-0.parquet", "5-0.0-0.parquet"))
    choice = choose(files, verdict=settled(3), keeps_uncommitted=keeps)
    assert [file.name for file in choice.chosen] == ["9-0.0-0.parquet"]
    assert choice.left.keys() == {"1-0.0-0.parquet", "3-0.0-0.parquet", "4-0.0-0.parquet"}


def test_key_ranges_of_one_merge_count_together() -> None:
    sources = ("1-0.0-0.parquet", "2-0.0-0.parquet")
    ranges = [noted(f"4-{task}.0-0.parquet", *sources, pieces=3) for task in range(3)]
    olds = [noted(name) for name in sources]
    names = [file.name for file in ranges]
    # Committed long ago.
    choice = choose([*olds, *ranges], verdict=settled(5))
    assert [file.name for file in choice.chosen] == names
    assert choice.left.keys() == set(sources)
    # Perhaps not committed: the sources have the same rows.
    assert [file.name for file in choose([*olds, *ranges], verdict=settled(3)).chosen] == list(sources)
    # A source was removed, or somebody read one of the ranges: it was committed.
    assert [file.name for file in choose([olds[0], *ranges], verdict=settled(3)).chosen] == names
    choice = choose([*olds, *ranges, noted("9-0.0-0.parquet", names[1])], verdict=settled(3))
    assert [file.name for file in choice.chosen] == names


@pytest.mark.parametrize("tasks", [[0, 1, 2], [0, 2], [1]])
def test_ranges_of_a_merge_that_broke_off_never_stand_for_its_sources(tasks: Sequence[int]) -> None:
    sources = ("1-0.0-0.parquet", "2-0.0-0.parquet")
    ranges = [noted(f"4-{task}.0-0.parquet", *sources, pieces=3) for task in tasks]
    files = [*(noted(name) for name in sources), *ranges]
    choice = choose(files, verdict=settled(3), keeps_uncommitted=True)
    taken = ranges if len(tasks) == 3 else files[:2]
    assert [file.name for file in choice.chosen] == [file.name for file in taken]
