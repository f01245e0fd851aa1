"""The process dies at each failpoint of maintenance, twice, and another one goes on: nothing is lost, no file stays.

Real files, RocksDB, the real ops; no Spark and no processes (tests/sequence_world.py), so that every place takes
part in each run. Real nodes die by real SIGKILLs in test_crash.py, rounds and mutations among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.sequence_standins import Died, failpoints_to
from tests.sequence_world import AT_ONCE, SequenceWorld
from tests.simulation.sequence_model import Fresh, Row, Shape
from tilth.maintenance.kinds import OpKind
from tilth.model.txn import TxnState
from tilth.storage import file_name

pytestmark = pytest.mark.simulation

WORK = ("flush", "flush_deltas", "minor_delta", "major_delta", "merge")
COMMIT_SIDES = ("before_commit", "after_commit")
PLACES = (
    *(f"{verb}.{side}_{step}" for verb in WORK for step in ("files", "commit") for side in ("before", "after")),
    "rebase.before_files",
    "rebase.before_commit",
    "work.before_sweep",
    *(f"{verb}.{side}" for verb in ("log_gc", "gc") for side in ("before_trash", "after_trash")),
    *(f"{verb}.{side}_remove" for verb in ("history_gc", "gc") for side in ("before", "after")),
    "gc.before_forget",
    "deleted_part_gc.before_commit",
    "deleted_part_gc.after_commit",
)
#: In one life, always at the same place.
DEATHS = 2
HISTORY_SECONDS = 20.0


class Life:
    """All that maintenance does to a table, more than once; at one failpoint the process dies, and so does the next."""

    def __init__(self, folder: Path, place: str) -> None:
        self.world = SequenceWorld(folder, Shape(partitions=2), history=HISTORY_SECONDS, settings=AT_ONCE)
        self.passes: Counter[str] = Counter()
        self.deaths = 0
        self._place = place
        self._changes_left = 0
        self._value = 0

    def at(self, name: str) -> None:
        self.passes[name] += 1
        if name.endswith(".after_files"):
            self._fail_attempt()
        if name == self._place and self.deaths < DEATHS:
            self.deaths += 1
            self.world.die()
        if name == "merge.before_commit" and self._changes_left:
            # The change makes a rebase necessary.
            self._changes_left -= 1
            self._change(3)

    def live(self) -> None:
        for _ in range(DEATHS):
            self._insert()
            self._do(OpKind.FLUSH)
            for key in (0, 1):
                self._change(key)
                self._do(OpKind.FLUSH_DELTAS)
            self._do(OpKind.MINOR_DELTA)
            self._change(2)
            self._do(OpKind.FLUSH_DELTAS)
            self._do(OpKind.MAJOR_DELTA)
            self._insert()
            self._do(OpKind.FLUSH)
            self._merge()
            self._delete_all()
            self._do(OpKind.FLUSH_DELTAS)
            self.world.step_time(2 * HISTORY_SECONDS)
            self._do(OpKind.HISTORY_GC, OpKind.DELETED_PART_GC, OpKind.LOG_GC, OpKind.PART_GC)
        self._insert()
        self.world.collect_all()
        self.world.check()
        self.world.check_files()

    def _fail_attempt(self) -> None:
        """A first attempt of a task has failed, and its files are there; the ones that count are the second's."""
        for txn in self.world.catalog.transactions.unfinished():
            if txn.state is TxnState.RUNNING and txn.outputs:
                name = file_name(txn=txn.id, task=0, attempt=1, n=0)
                Path(self.world.folder, name).touch()

    def _insert(self) -> None:
        self._value += 1
        self.world.insert([Fresh(Row(k, p, v=self._value)) for p in "ab" for k in range(6)])
        self.world.check()

    def _change(self, key: int) -> None:
        """Updates one key and deletes another."""
        self._value += 1
        value = self._value
        self.world.change(lambda row: row.k == key + 1, lambda row: row.k == key, lambda row: row._replace(v=value))

    def _delete_all(self) -> None:
        self.world.change(lambda _: True)
        self.world.check()

    def _do(self, *kinds: OpKind) -> None:
        """As often as there is something to do."""
        for kind in kinds:
            for _ in range(10):
                self.world.step_time()
                if self._survived(partial(self.world.run, kind)) is None:
                    break

    def _merge(self) -> None:
        self._changes_left = 1
        # A second time, for what the death left to do.
        for _ in range(2):
            self._survived(self.world.merge_all)

    def _survived(self, act: Callable[[], object]) -> object:
        """What it returns; the process may die of it, and another begins."""
        try:
            result = act()
        except Died:
            self.world.restart(is_killed=True)
            result = "died"
        self.world.check()
        return result


def test_files_of_refused_tries_are_found_after_a_death(folder: Path) -> None:
    """A DELETE is refused, for others were faster; the process dies between its commit and the removal of the files."""
    world = SequenceWorld(folder, Shape(partitions=2), settings=AT_ONCE)
    before: set[str] = set()

    def at(name: str) -> None:
        if name == "catalog.before_commit" and not before:
            before.update(world.files())
            # In the same part.
            world.change(lambda row: row.k == 1)
        if name == "work.before_sweep":
            world.die()

    try:
        world.insert([Fresh(Row(k, p, v=1)) for p in "ab" for k in range(6)])
        with failpoints_to(at), pytest.raises(Died):
            world.change(lambda row: row.k == 0)
        world.restart(is_killed=True)
        # It had landed.
        world.model.delete(lambda row: row.k == 0)
        world.model.note(world.catalog.parts.version(world.uuid).last_commit_ts)
        world.check(past=0)
        [note] = world.catalog.transactions.leftover_notes()
        # The start has removed them; the note goes with the next round.
        refused = {name for name in before if name.startswith(f"{note.txn.id}-")}
        assert refused
        assert not refused.intersection(note.keep)
        assert not refused.intersection(world.files())
        world.collect_all()
        world.check(past=0)
        world.check_files()
    finally:
        world.close()


@pytest.mark.parametrize("place", PLACES)
def test_a_death_loses_nothing_and_leaves_nothing(folder: Path, place: str) -> None:
    life = Life(folder, place)
    try:
        with failpoints_to(life.at):
            life.live()
    finally:
        life.world.close()
    assert life.deaths == DEATHS, life.passes
