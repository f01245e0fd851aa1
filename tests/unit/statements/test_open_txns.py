"""Statements that run for longer than the cleaner waits, beside a cleaner that looks all the time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.sql_world import SqlWorld
from tilth.base.errors import TilthError, UnavailableError
from tilth.maintenance.cleaner.cleaner import Cleaner
from tilth.maintenance.cleaner.ended import GRACE_MS
from tilth.model.part import WrittenPart
from tilth.model.txn import TxnOutput, TxnState
from tilth.storage import local_root, write_rows


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    world = SqlWorld(tmp_path)
    world.run("CREATE TABLE t (id BIGINT) ENGINE = MergeTree ORDER BY id")
    return world


def cleaner_of(world: SqlWorld, root: Path) -> Cleaner:
    return Cleaner(world.clock, world.catalog, local_root(root), dropped_kept_ms=86_400_000)


def test_a_statement_that_takes_an_hour_commits_beside_the_cleaner(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaner = cleaner_of(world, tmp_path)

    def slow(*given: object, **options: object) -> Sequence[WrittenPart]:
        written = write_rows(*given, **options)  # type: ignore[arg-type]  # passed on as they came
        for _ in range(6):
            world.clock.advance(600)
            cleaner.tick()
        return written

    monkeypatch.setattr("tilth.statements.inserts.commit.write_rows", slow)
    monkeypatch.setattr("tilth.statements.inserts.commit.write_parts", slow)
    world.run("INSERT INTO t VALUES (1)")
    assert world.catalog.transactions.unfinished() == []
    assert world.catalog.transactions.live() == set()
    [table] = [each for each in world.catalog.tables.all() if each.name == "t"]
    assert sum(part.rows for part in world.catalog.parts.snapshot(table.uuid).parts) == 1


def test_a_statement_that_fails_while_the_catalog_is_away_says_why_and_is_cleaned_later(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaner = cleaner_of(world, tmp_path)

    def fail(*given: object, **options: object) -> Sequence[WrittenPart]:
        raise TilthError("the reason")

    def away(*given: object) -> None:
        raise UnavailableError("the catalog is away")

    with monkeypatch.context() as patched:
        patched.setattr("tilth.statements.inserts.commit.write_rows", fail)
        patched.setattr("tilth.statements.inserts.commit.write_parts", fail)
        patched.setattr(world.catalog.transactions, "abort", away)
        with pytest.raises(TilthError, match="the reason"):
            world.run("INSERT INTO t VALUES (1)")
    [txn] = world.catalog.transactions.unfinished()
    assert txn.state is TxnState.RUNNING
    # At once: while it is open it holds the collection of every table back.
    cleaner.tick()
    [txn] = world.catalog.transactions.unfinished()
    assert (txn.state, world.catalog.transactions.unsettled()) == (TxnState.ABORTED, set())
    for _ in range(2):
        cleaner.tick()
        world.clock.advance(GRACE_MS / 1000)
    assert world.catalog.transactions.unfinished() == []


def test_a_file_that_cannot_be_removed_is_remembered_when_those_before_it_are_gone(
    world: SqlWorld, tmp_path: Path
) -> None:
    [table] = [each for each in world.catalog.tables.all() if each.name == "t"]
    txn = world.catalog.transactions.begin("merge", outputs=[TxnOutput(table=table.uuid, tasks=1)])
    world.catalog.transactions.abort(txn.id, "it failed")
    folder = tmp_path / table.uuid / "data"
    folder.mkdir(parents=True, exist_ok=True)
    # Nobody removes a folder as a file.
    names = [f"{txn.id}-0.0-{n}.parquet" for n in range(6)]
    for name in names:
        (folder / name).mkdir() if name == names[3] else (folder / name).touch()
    cleaner = cleaner_of(world, tmp_path)
    cleaner.tick()
    world.clock.advance(GRACE_MS / 1000)
    cleaner.tick()
    assert [path.name for path in folder.iterdir()] == [names[3]]
    assert [each.id for each in world.catalog.transactions.unfinished()] == [txn.id]
    (folder / names[3]).rmdir()
    (folder / names[3]).touch()
    # A restart begins with a new one.
    cleaner_of(world, tmp_path).start()
    assert (list(folder.iterdir()), world.catalog.transactions.unfinished()) == ([], [])
