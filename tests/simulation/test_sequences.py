"""Rows are inserted, upserted, changed and deleted while maintenance does all it can: now and the past stay right.

Real files, a real catalog, the real ops; no Spark (tests/sequence_world.py). The four fixed sequences come from
Kudu's tests (tests/README.md#sequences). The random ones follow from seeds, which are printed; TILTH_SEQUENCE_SEED sets
the one that is otherwise new in each run, TILTH_SEQUENCES how many there are. A failure tells the seed and the shortest
beginning of the sequence that fails.
"""

from __future__ import annotations

import os
import random
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sequence_standins import Died, failpoints_to
from tests.sequence_world import AT_ONCE, SequenceWorld
from tests.simulation.sequence_model import Fresh, Row, Shape
from tilth.maintenance.kinds import OpKind

pytestmark = pytest.mark.simulation

#: Sequences of Kudu's tests, with the presence of key 0 after each `.`.
FIXED = {
    "I0 . ft D0 I0 . ft ct": (True, True),
    "I0 D0 . ft I0 D0 I0 . ft ct D0 . ct": (False, True, False),
    "I0 . ft D0 I0 D0 . ft ct": (True, False),
    "I0 . ct D0 . ct I0 U0 . ft D0 I0 . ft U0 . ft U0 D0 I0 D0 . ft ct": (True, False, True, True, True, False),
}
#: Ops and restarts that follow each step of a fixed sequence.
BETWEEN = ("", "rs", "kill", "fd", "fd mi rs", "fd ma", "gc", "fd mi ma gc rs")
OPS = {
    "ft": (OpKind.FLUSH,),
    "fd": (OpKind.FLUSH_DELTAS,),
    "mi": (OpKind.MINOR_DELTA,),
    "ma": (OpKind.MAJOR_DELTA,),
    "gc": (OpKind.LOG_GC, OpKind.PART_GC, OpKind.HISTORY_GC, OpKind.DELETED_PART_GC),
}
STEP_KINDS = ("write", "op", "merge", "restart", "time", "hold", "drop")
KINDS = (
    OpKind.FLUSH,
    OpKind.FLUSH_DELTAS,
    OpKind.MINOR_DELTA,
    OpKind.MAJOR_DELTA,
    OpKind.MERGE,
    OpKind.LOG_GC,
    OpKind.PART_GC,
    OpKind.HISTORY_GC,
    OpKind.DELETED_PART_GC,
)
SEQUENCES = int(os.environ.get("TILTH_SEQUENCES", "120"))
FRESH_SEED = int(os.environ.get("TILTH_SEQUENCE_SEED", "0")) or secrets.randbelow(1 << 40)
STEPS = 16
KEYS = 6
#: Ops that ask again for a commit whose outcome is not known.
COMMITTING = (OpKind.FLUSH, OpKind.FLUSH_DELTAS, OpKind.MINOR_DELTA, OpKind.MAJOR_DELTA, OpKind.MERGE)
#: Failpoints of the ops that write, at which something may come between.
INTERRUPTED = ("before_files", "after_files", "before_commit")


# --- the fixed sequences ---


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("is_by_delta", [False, True], ids=["rows", "deltas"])
@pytest.mark.parametrize("sequence", FIXED)
def test_a_fixed_sequence(folder: Path, sequence: str, is_by_delta: bool, between: str) -> None:
    world = SequenceWorld(folder, Shape())
    batch: list[str] = []
    present: list[bool] = []
    for number, token in enumerate(sequence.split()):
        if token[0] in "IPUD":
            batch.append(token[0])
            continue
        if token == ".":
            commit(world, batch, number, is_by_delta=is_by_delta)
            batch = []
            present.append(bool(world.model.rows))
        else:
            act(world, token)
        world.check()
        for each in between.split():
            act(world, each)
            world.check()
    assert tuple(present) == FIXED[sequence]
    world.collect_all()
    world.check()
    world.check_files()
    world.close()


def commit(world: SequenceWorld, batch: list[str], number: int, *, is_by_delta: bool) -> None:
    """The batch as rows that come in; by deltas where it only changes what is there."""
    if is_by_delta and batch == ["D"]:
        world.change(lambda row: row.k == 0)
        return
    if is_by_delta and batch == ["U"]:
        world.change(lambda _: False, lambda row: row.k == 0, lambda row: row._replace(v=number), columns=("v",))
        return
    world.insert([Fresh(Row(0, "a", v=10 * number + place), each == "D") for place, each in enumerate(batch)])


def act(world: SequenceWorld, token: str) -> None:
    match token:
        case "ct":
            world.merge_all()
        case "rs":
            world.restart()
        case "kill":
            world.restart(is_killed=True)
        case _:
            for kind in OPS[token]:
                # It runs until there is nothing to do.
                for _ in range(10):
                    world.step_time()
                    if world.run(kind) is None:
                        break


# --- what is left of the past: the oracle of docs/policies/history.md ---


@pytest.mark.parametrize("op", ["mi", "ma", "ct"])
def test_older_values_stay_readable(folder: Path, op: str) -> None:
    """insert 0, updates 1 and 2 as deltas, then an op; and what is older than allowed is gone for good."""
    world = SequenceWorld(folder, Shape(), history=1000.0)
    world.insert([Fresh(Row(0, "a", v=0))])
    act(world, "ft")
    for value in (1, 2):
        world.step_time()
        world.change(nobody, of_key(0), valued(value), columns=("v",))
        act(world, "fd")
    act(world, op)
    assert [world.rows(ts)[0].v for ts in world.model.times[1:]] == [0, 1, 2]
    world.check()
    world.step_time(2000.0)
    act(world, "gc")
    act(world, "gc")
    world.check()
    assert [row.v for row in world.rows()] == [2]
    world.close()


@pytest.mark.parametrize("order_by", [("k",), ()])
def test_lives_of_a_key(folder: Path, order_by: tuple[str, ...]) -> None:
    """Key 0 in three parts: 0; 0, 1; 0, 2 and in between deleted. A merge changes no past."""
    world = SequenceWorld(folder, Shape(order_by=order_by))
    for values in ((0,), (0, 1), (0, 2)):
        if world.model.rows or values != (0,):
            world.change(of_key(0))
        world.insert([Fresh(Row(0, "a", v=values[0]))])
        act(world, "ft")
        for value in values[1:]:
            world.change(nobody, of_key(0), valued(value), columns=("v",))
    world.merge_all()
    world.check()
    assert [[row.v for row in world.rows(ts)] for ts in world.model.times[1:]] == [[0], [], [0], [1], [], [0], [2]]
    world.close()


def test_dead_copies_are_gone_once_they_are_ancient(folder: Path) -> None:
    """3 x (insert, delete, FLUSH), insert 3, all of it ancient, a merge: one row."""
    world = SequenceWorld(folder, Shape(), history=10.0, settings=AT_ONCE)
    for value in range(3):
        world.insert([Fresh(Row(0, "a", v=value))])
        world.change(of_key(0))
        act(world, "ft")
    world.insert([Fresh(Row(0, "a", v=3))])
    act(world, "ft")
    world.step_time(100.0)
    world.merge_all()
    world.check()
    assert [row.v for row in world.rows()] == [3]
    world.collect_all()
    world.check_files()
    world.close()


def test_updates_while_a_merge_leaves_deleted_rows_out(folder: Path) -> None:
    """Parts of five rows, odd keys deleted: what is updated meanwhile lands on the right rows, whose places shift."""
    world = SequenceWorld(folder, Shape(is_unique=False))
    for first in range(0, 20, 5):
        world.insert([Fresh(Row(k, "a", v=0)) for k in range(first, first + 5)])
        act(world, "ft")
    world.change(lambda row: row.k % 2 == 1)
    act(world, "fd")

    left = ["merge.after_files", "merge.before_commit"]

    def update(name: str) -> None:
        if left and name == left[0]:
            del left[0]
            world.change(nobody, lambda row: row.k % 3 == 0, lambda row: row._replace(v=(row.v or 0) + row.k))

    with failpoints_to(update):
        # The second one folds what was brought over.
        assert world.merge_all() == 2
    world.check()
    assert sorted((row.k, row.v) for row in world.rows()) == [(k, 2 * k if k % 3 == 0 else 0) for k in range(0, 20, 2)]
    world.close()


@pytest.mark.parametrize("deltas", ["", "fd", "fd mi", "fd ma"])
def test_parts_without_rows_go_when_their_past_is_over(folder: Path, deltas: str) -> None:
    """All rows deleted; the deletes as change segments, deltas, compacted ones."""
    world = SequenceWorld(folder, Shape(is_unique=False, partitions=2), history=50.0, settings=AT_ONCE)
    for p in ("a", "b"):
        world.insert([Fresh(Row(k, p, v=k)) for k in range(4)])
    act(world, "ft")
    world.change(lambda row: row.k < 2, lambda row: row.k == 2, valued(7), columns=("v",))
    for token in deltas.split():
        act(world, token)
    world.change(lambda _: True)
    for token in deltas.split():
        act(world, token)
    act(world, "gc")
    assert len(world.catalog.parts.snapshot(world.uuid).parts) == 2
    world.check()
    world.step_time(60.0)
    act(world, "gc")
    assert not world.catalog.parts.snapshot(world.uuid).parts
    world.check()
    world.collect_all()
    assert not world.files()
    world.close()


@pytest.mark.parametrize("deltas", ["", "fd", "fd mi", "fd ma"])
def test_what_was_dropped_comes_back_from_the_trash_with_its_changes(folder: Path, deltas: str) -> None:
    """The part leaves its table at once and waits in the trash; what deletes and updates its rows waits for it."""
    world = SequenceWorld(
        folder, Shape(is_unique=False), history=0.0, settings={**AT_ONCE, "ttl_for_trash_items": "1000000"}
    )
    world.insert([Fresh(Row(k, "a", v=k)) for k in range(6)])
    act(world, "ft")
    world.change(lambda row: row.k < 2, of_key(2), valued(7), columns=("v",))
    for token in deltas.split():
        act(world, token)
    world.change(of_key(3), of_key(4), valued(8), columns=("v",))
    [part] = world.catalog.parts.snapshot(world.uuid).parts
    rows = world.drop(part.name.partition)
    for _ in range(3):
        world.step_time(100.0)
        act(world, "gc")
        # A command looks at everything, whatever there was news of.
        world.manager.gc_now(world.uuid)
    assert not world.catalog.parts.entries(world.uuid, part.name.partition)
    world.undrop(part.name.partition, rows)
    world.check()
    assert sorted((row.k, row.v) for row in world.rows()) == [(2, 7), (4, 8), (5, 5)]
    world.collect_all()
    world.check_files()
    world.close()


def of_key(k: int) -> Callable[[Row], bool]:
    return lambda row: row.k == k


def nobody(_: Row) -> bool:
    return False


def valued(v: int) -> Callable[[Row], Row]:
    return lambda row: row._replace(v=v)


# --- random sequences ---


class Sequence:
    """One random sequence; the same seed does the same."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        rng = self.rng
        is_unique = rng.random() < 0.65
        shape = Shape(
            is_unique=is_unique,
            is_buffered=is_unique or rng.random() < 0.6,
            has_version=is_unique and rng.random() < 0.4,
            is_partial=is_unique and rng.random() < 0.35,
            is_local=rng.random() < 0.6,
            partitions=rng.choice((1, 2)),
            order_by=rng.choice((("k",), ("s", "k"), ())),
        )
        lifetime, trash_lifetime = rng.choice((("0", "0"), ("0", "3600"), ("5", "5"), ("5", "3600"), ("3600", "3600")))
        #: `True`: dropped parts outlive the sequence, in the table or in the trash.
        self._can_undrop = trash_lifetime == "3600"
        #: `True`: dropped parts soon lie in the trash and stay there.
        self._is_trash_used = self._can_undrop and lifetime != trash_lifetime
        self.world = SequenceWorld(
            folder,
            shape,
            seed=seed,
            history=rng.choice((0.0, 4.0, 15.0, 3600.0)),
            settings={**AT_ONCE, "old_parts_lifetime": lifetime, "ttl_for_trash_items": trash_lifetime},
        )
        #: Each sequence does some ops more than others; the larger, the later one is asked.
        self._dislikes = {kind: rng.choice((0.2, 1.0, 5.0)) for kind in KINDS}
        self._merges = rng.choice((0, 0, 8, 16))
        self._inserts = rng.choice((15, 50, 80))
        self.done: list[str] = []
        self._number = 0
        #: Depth of the nested steps, and number of steps that may still come between the parts of the present one.
        self._depth = 0
        self._budget = 0
        self._running: OpKind | None = None
        self.world.at = self._at

    def play(self, steps: int) -> None:
        if self.rng.random() < 0.5:
            # Parts to begin with.
            self._insert(8)
            self.world.step_time()
            self._op(OpKind.FLUSH)
        for _ in range(steps):
            self._step()
            self.world.check(past=3)
        self.world.check()
        self.done.append("the end")
        self.world.collect_all()
        self.world.check()
        self.world.check_files()

    def _step(self) -> None:
        rng = self.rng
        self._budget = rng.choice((0, 0, 1, 2, 4))
        try:
            match rng.choices(STEP_KINDS, (42, 42, self._merges, 4, 5, 3, 4))[0]:
                case "write":
                    self._write()
                case "op":
                    self._any_op()
                case "merge":
                    self._told("merge all")
                    self._running = OpKind.MERGE
                    self.world.merge_all()
                case "restart":
                    is_killed = rng.random() < 0.5
                    self._told("killed" if is_killed else "restart")
                    self.world.restart(is_killed=is_killed)
                case "time":
                    seconds = rng.choice((3.0, 10.0, 20.0))
                    self._told(f"{seconds:g} s")
                    self.world.step_time(seconds)
                case "hold":
                    self._hold()
                case "drop":
                    self._drop()
        except Died:
            self._told("died")
            self.world.counts["died"] += 1
            self.world.restart(is_killed=True)
        finally:
            self._running, self._budget = None, 0

    def _hold(self) -> None:
        if self.world.holds and self.rng.random() < 0.5:
            self._told("release")
            self.world.release()
        else:
            self._told("hold")
            self.world.hold()

    def _drop(self) -> None:
        """A partition goes; maintenance works on; where it is still there it comes back with all its changes."""
        world, rng = self.world, self.rng
        there = [
            name for name in world.catalog.parts.partitions(world.uuid) if world.catalog.parts.visible(world.uuid, name)
        ]
        if not there:
            return
        partition = rng.choice(there)
        self._told(f"drop {partition}")
        rows = world.drop(partition)
        # Nobody writes the same keys while the rows are away.
        self._budget = 0
        world.check(past=2)
        for number in range(rng.randrange(4)):
            if number or not self._is_trash_used:
                self._any_op()
            else:
                world.step_time()
                self._op(OpKind.PART_GC)
            world.check(past=2)
        if rows and self._can_undrop and rng.random() < 0.7:
            self._told(f"undrop {partition}")
            trashed, _ = world.catalog.trash.items(world.uuid, limit=1000)
            from_trash = any(each.item.is_dropped for each in trashed if each.item.part.name.partition == partition)
            world.undrop(partition, rows)
            world.counts["undrop from the trash" if from_trash else "undrop"] += 1

    def _any_op(self) -> None:
        """The first of all kinds but the one that runs, in a random order, that has something to do."""
        self.world.step_time()
        for kind in sorted(KINDS, key=lambda kind: self.rng.random() ** (1 / self._dislikes[kind])):
            if kind is not self._running and self._op(kind):
                return

    def _op(self, kind: OpKind) -> bool:
        """Whether it did something."""
        self._told(kind.value)
        before, self._running = self._running, kind
        try:
            told = self.world.run(kind)
        finally:
            self._running = before
        if told is None:
            self.done.pop()
            return False
        self._told(f"{kind.value} did: {told}")
        return True

    def _write(self) -> None:
        """Several keys, of which few are there, so that they meet again and again."""
        rng, world = self.rng, self.world
        value = self._next()
        match rng.choices(("insert", "delete", "update", "both"), (self._inserts, 20, 22, 8))[0]:
            case "insert":
                self._insert(rng.choice((1, 1, 2, 3, 5, 8)))
            case "delete":
                keys = self._keys()
                self._told(f"delete {sorted(keys)}")
                world.change(lambda row: row.k in keys)
            case "update":
                keys, columns = self._keys(), rng.choice((("v",), ("w",), ("v", "w")))
                self._told(f"update {columns} of {sorted(keys)}")
                world.change(
                    lambda _: False, lambda row: row.k in keys, self._change_of(columns, value), columns=columns
                )
            case "both":
                keys, others = self._keys(), self._keys()
                self._told(f"delete {sorted(keys)}, update {sorted(others)}")
                world.change(lambda row: row.k in keys, lambda row: row.k in others, self._change_of(("v", "w"), value))

    def _insert(self, rows: int) -> None:
        value = self._next()
        batch = [self._fresh(value * 10 + place) for place in range(rows)]
        self._told(f"insert {[(*fresh.row, fresh.is_delete) for fresh in batch]}")
        self.world.insert(batch)

    def _next(self) -> int:
        """A value that no row has yet."""
        self._number += 1
        return self._number

    def _change_of(self, columns: tuple[str, ...], value: int) -> Callable[[Row], Row]:
        v = None if self.rng.random() < 0.2 else value
        w = None if self.rng.random() < 0.2 else f"w{value}"
        return lambda row: row._replace(v=v if "v" in columns else row.v, w=w if "w" in columns else row.w)

    def _fresh(self, value: int) -> Fresh:
        rng, shape = self.rng, self.world.shape
        row = Row(
            k=rng.randrange(KEYS),
            p=rng.choice("ab") if shape.partitions > 1 else "a",
            s=rng.choice((None, 1, 2, 3)),
            v=rng.choice((None, value, value)),
            w=rng.choice((None, f"t{value}")),
            ver=rng.choice((None, 1, 2, 3, value)) if shape.has_version else rng.choice((None, value)),
        )
        return Fresh(row, shape.is_unique and rng.random() < 0.2)

    def _keys(self) -> set[int]:
        return set(self.rng.sample(range(KEYS), self.rng.choice((1, 1, 2, 3, KEYS))))

    def _at(self, name: str) -> None:
        """Something comes in between: a write, another op, or the end of the process."""
        rng = self.rng
        if name == "rebase.before_commit" and self._running is not None:
            self.world.counts[f"{self._running} rebased"] += 1
        is_write = name == "catalog.before_commit" and self._running is None
        is_work = self._running is not None and name.endswith(INTERRUPTED)
        if name == "catalog.before_commit" and self._running in COMMITTING and not self._depth and rng.random() < 0.04:
            has_landed = rng.random() < 0.5
            self._told(f"the answer is lost, {'landed' if has_landed else 'not landed'}")
            self.world.lose_answer(has_landed=has_landed)
            return
        if self._depth or not self._budget or not (is_write or is_work) or rng.random() < (0.7 if is_write else 0.4):
            return
        self._budget -= 1
        self._depth += 1
        self.world.faulty.settle()
        try:
            self.done.append(f"  at {name}:")
            kind = rng.choices(("write", "op", "die"), (75, 22, 3) if is_work else (0, 97, 3))[0]
            if kind == "die":
                self.world.die()
            if kind == "write":
                running, self._running = self._running, None
                self._write()
                self._running = running
            else:
                self._any_op()
            self.world.counts[f"{kind} in between"] += 1
            self.world.check(past=1)
        finally:
            self._depth -= 1

    def _told(self, text: str) -> None:
        self.done.append(f"{'    ' if self._depth else ''}{text}")


@contextmanager
def sequence_of(folder: Path, seed: int) -> Iterator[Sequence]:
    with tempfile.TemporaryDirectory(dir=folder) as path:
        sequence = Sequence(Path(path), seed)
        try:
            with failpoints_to(sequence.world.at):
                yield sequence
        finally:
            sequence.world.close()


def test_random_sequences(folder: Path) -> None:
    """Each seed gives one sequence; the counts show that all ops did something, also while rows changed."""
    seeds = [*range(SEQUENCES), FRESH_SEED]
    print(f"seeds 0 to {SEQUENCES - 1} and {FRESH_SEED}")
    counts: Counter[str] = Counter()
    started = time.process_time()
    for seed in seeds:
        failure = played(folder, seed, STEPS, counts)
        if failure is not None:
            pytest.fail(shortest(folder, seed, failure))
    print(f"{len(seeds)} sequences, {time.process_time() - started:.1f} s of CPU, {dict(sorted(counts.items()))}")
    if SEQUENCES >= 100:
        for kind in KINDS:
            assert counts[kind.value] >= SEQUENCES // 50, (kind, counts)
        for what in (
            "FLUSH rebased",
            "MERGE rebased",
            "change again",
            "upsert again",
            "outcome unknown",
            "undrop",
            "undrop from the trash",
            "died",
        ):
            assert counts[what] > 0, (what, counts)


def played(folder: Path, seed: int, steps: int, counts: Counter[str]) -> str | None:
    """What went wrong, with what had been done; None: nothing."""
    with sequence_of(folder, seed) as sequence:
        try:
            sequence.play(steps)
        # Whatever it is, it is a failure of this seed.
        except Exception as error:
            done = "\n  ".join(sequence.done)
            return f"seed {seed}, {steps} steps, {sequence.world.shape}:\n  {done}\n{type(error).__name__}: {error}"
        counts.update(sequence.world.counts)
    return None


def shortest(folder: Path, seed: int, failure: str) -> str:
    """The failure of the shortest beginning that fails."""
    for steps in range(1, STEPS):
        found = played(folder, seed, steps, Counter())
        if found is not None:
            return found
    return failure
