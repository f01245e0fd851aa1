"""Removals by a server that does not know of a new replica yet: the files are removed from the new replica too.

The roots of that server are read before ALTER STORAGE; writers after it know the new replica.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.sql_world import SqlWorld, table_of
from tilth.base.errors import UnavailableError
from tilth.maintenance.cleaner.cleaner import Cleaner
from tilth.maintenance.cleaner.current_replicas import CHANGES_MAX, remove_from_current
from tilth.maintenance.cleaner.left_files import sweep_again, sweep_transaction
from tilth.maintenance.gc.round import Round
from tilth.maintenance.gc.trash import TrashPhase
from tilth.maintenance.table.settings import GcSettings
from tilth.model.txn import TxnOutput
from tilth.storage import NamedRoots, Roots, local_root, replicas_of

NAMES = ("one", "two", "three", "four")


class Storage:
    """A table in a storage of three folders, of which the third is replaced by the fourth."""

    def __init__(self, folder: Path) -> None:
        self.locations = [folder / "locations" / name for name in NAMES]
        self.world = SqlWorld(folder, settings={"storage.local-folder": str(folder)})
        self.catalog = self.world.catalog
        one, two, three, four = self.locations
        self.world.run(f"CREATE STORAGE r REPLICAS ('{one}', '{two}', '{three}')")
        self.world.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a SETTINGS storage_policy = 'r'")
        self.table = table_of(self.world)
        # The roots as another server knows them.
        self.stale = NamedRoots(self.world.clock, local_root(folder), self.catalog.storage_of)
        self.stale.follow(self.catalog.storages.all)
        self.world.run(f"ALTER STORAGE r REPLACE REPLICA '{three}' WITH '{four}'")
        replicas_of(self.now().of(self.table.uuid))[2].write_marker(self.table.uuid)

    def now(self) -> NamedRoots:
        roots = NamedRoots(self.world.clock, self.stale.default, self.catalog.storage_of)
        roots.follow(self.catalog.storages.all)
        return roots

    def files(self, number: int) -> list[str]:
        return sorted(path.name for path in (self.locations[number] / self.table.uuid / "data").glob("*"))


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path)


def test_the_file_of_a_part_goes_from_the_replica_that_the_collecting_server_does_not_know(storage: Storage) -> None:
    storage.world.run("INSERT INTO t VALUES (1)")
    [part] = storage.catalog.parts.snapshot(storage.table.uuid).parts
    assert storage.files(3) == [part.file.name]
    table = SimpleNamespace(
        catalog=storage.catalog,
        root=storage.stale,
        uuid=storage.table.uuid,
        watch=SimpleNamespace(leftovers=None),
        settings=GcSettings(),
        clock=storage.world.clock,
    )
    item = SimpleNamespace(item=SimpleNamespace(part=part))
    # Any: stand-ins with what the phase uses of a table and an item.
    phase, items = TrashPhase(cast(Any, table)), cast(Any, [item])
    assert phase._remove(Round(settings=GcSettings()), items) == items
    assert [storage.files(number) for number in (0, 1, 3)] == [[], [], []]


@pytest.mark.parametrize("sweep", [sweep_transaction, sweep_again])
def test_what_a_transaction_left_goes_from_it_too_however_many(storage: Storage, sweep: Callable[..., int]) -> None:
    outputs = [TxnOutput(table=storage.table.uuid, tasks=2, quorum=2)]
    work = storage.catalog.transactions.open("merge", outputs=outputs, has_tasks=True)
    txn = next(each for each in storage.catalog.transactions.unfinished() if each.id == work.id)
    for number in (0, 1, 3):
        for n in range(40):
            (storage.locations[number] / storage.table.uuid / "data" / f"{txn.id}-1.0-{n}.arrow").touch()
    work.give_up("it was cancelled", is_settled=False)
    sweep(storage.catalog, storage.stale, txn)
    assert [storage.files(number) for number in (0, 1, 3)] == [[], [], []]


def test_the_folder_of_a_dropped_table_goes_from_it(storage: Storage) -> None:
    storage.world.run("INSERT INTO t VALUES (1)")
    storage.world.run("DROP TABLE t")
    cleaner = Cleaner(storage.world.clock, storage.catalog, storage.stale, dropped_kept_ms=1)
    cleaner.forget_table(storage.table.uuid)
    # The files of the former replica stay.
    assert [(location / storage.table.uuid).exists() for location in storage.locations] == [False, False, True, False]


def test_replicas_that_change_all_the_time_are_an_error(storage: Storage) -> None:
    calls = list[Roots]()
    one, two = storage.locations[3], storage.locations[2].parent / "five"

    def remove(roots: Roots) -> int:
        nonlocal one, two
        calls.append(roots)
        storage.world.run(f"ALTER STORAGE r REPLACE REPLICA '{one}' WITH '{two}'")
        one, two = two, two.parent / f"next{len(calls)}"
        return 0

    with pytest.raises(UnavailableError, match="replicas change"):
        remove_from_current(storage.catalog, storage.stale, [storage.table.uuid], remove)
    assert len(calls) == CHANGES_MAX
