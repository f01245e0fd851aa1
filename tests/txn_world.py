"""A catalog whose store fails by plan, transactions in it, and a storage that records what it has to remove."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tests.catalog_world import World
from tilth.base.rand import new_rng
from tilth.catalog import Catalog, InsertPart, MemoryKV, TxnHandle, Update
from tilth.model.lease import Fence
from tilth.model.part import WrittenPart
from tilth.model.txn import Txn, TxnOutput, TxnState
from tilth.testing import FaultyKV


class Files:
    """Removals requested of the storage: by transaction, the names that stay."""

    def __init__(self) -> None:
        self.swept: list[tuple[int, frozenset[str]]] = []
        self.error: Exception | None = None

    def sweep(self, txn: Txn, *, keep: Collection[str]) -> None:
        self.swept.append((txn.id, frozenset(keep)))
        if self.error is not None:
            raise self.error


class TxnWorld(World):
    """A catalog whose store fails by plan, beside a storage that records its removals."""

    def __init__(self) -> None:
        self.faulty = FaultyKV(MemoryKV(), new_rng(1))
        super().__init__(self.faulty)
        self.disk = Files()
        self.catalog = Catalog(self.faulty, self.clock, "s1", self.new_id, is_checking=True, sweep=self.disk.sweep)

    def open(self, *, has_tasks: bool = False, fences: Collection[Fence] = ()) -> TxnHandle:
        outputs = [TxnOutput(table=self.t, tasks=2)]
        return self.catalog.transactions.open("test", outputs=outputs, fences=tuple(fences), has_tasks=has_tasks)

    def one_part(self) -> tuple[WrittenPart, list[Update]]:
        written = self.written()
        return written, [InsertPart(table=self.t, written=written)]

    def state(self, handle: TxnHandle) -> TxnState | None:
        return self.catalog.transactions.resolve(handle.id)

    def live(self) -> set[int]:
        return self.catalog.transactions.live()

    def parts(self) -> int:
        return len(self.catalog.parts.snapshot(self.t).parts)


def fail_in(handle: TxnHandle, error: BaseException, updates: Sequence[Update] = ()) -> None:
    """Ends the context with the error, behind a commit where there are updates."""
    with handle:
        if updates:
            handle.commit(updates)
        raise error


def noted(world: TxnWorld) -> list[int]:
    """Transactions that have a note in the store, as another process finds them."""
    return [each.txn.id for each in world.reopened().transactions.leftover_notes()]
