"""Commits of files beside ALTER STORAGE: copies in replicas that were replaced do not count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from tests.catalog_world import Racing, World
from tests.codes import WithCode
from tilth.base.errors import RetryError
from tilth.catalog import (
    AddDelta,
    InsertPart,
    Joining,
    ReplaceDeltas,
    ReplaceParts,
    RewritePart,
    StorageChangedError,
    Update,
)
from tilth.catalog.errors import InvariantError, ReplicaNeededError
from tilth.catalog.records.keys import Space, pack
from tilth.model.copy_note import CopyNote
from tilth.model.delta import DeltaKind
from tilth.model.part import DataFile, FileCopies
from tilth.model.storage import Storage


class Replicas(World):
    """A table in a storage with replicas; each replica is a set of file names, by its id."""

    def __init__(self, count: int, quorum: int) -> None:
        self.racing = Racing()
        super().__init__(self.racing)
        self.quorum = quorum
        ids = tuple(f"r{number}" for number in range(count))
        #: Names of the files in each replica, present or replaced.
        self.disks: dict[str, set[str]] = {each: set() for each in ids}
        assert self.catalog.storages.create(Storage(name="r", root="replicas://r", replica_ids=ids))
        self.u = self.table("u", settings={"storage_policy": "r"})

    @property
    def now(self) -> Storage:
        [storage] = self.catalog.storages.all()
        return storage

    def stored(self, file: DataFile, ids: Sequence[str], *, quorum: int | None = None) -> DataFile:
        """The file as its writer returns it, with copies in these replicas."""
        for each in ids:
            self.disks[each].add(file.name)
        return replace(file, copies=FileCopies(replicas=tuple(ids), quorum=quorum or self.quorum))

    def part(self, ids: Sequence[str], *, quorum: int | None = None) -> InsertPart:
        written = self.written()
        return InsertPart(table=self.u, written=replace(written, file=self.stored(written.file, ids, quorum=quorum)))

    def altered(self, before: Storage, ids: Sequence[str], others: Mapping[str, Sequence[int]] | None = None) -> bool:
        """Change the definition, and write the notes that new replicas lack all files."""
        new = [number for number, each in enumerate(ids) if each not in before.replica_ids]
        notes = [CopyNote(table=self.u, replica=number, file=None, since_ms=1, reason="it is new") for number in new]
        for each in ids:
            self.disks.setdefault(each, set())
        stay = {self.u: [number for number in range(len(ids)) if number not in new]}
        return self.catalog.storages.replace(replace(before, replica_ids=tuple(ids)), before, notes, others or stay)

    def notes(self) -> set[tuple[int, str]]:
        notes = self.catalog.copies.of(self.u)
        return {(note.replica, "" if note.file is None else note.file.name) for note in notes}

    def check(self) -> None:
        """Check that every file of the table is in a present replica, and that each replica without it has a note."""
        notes, ids = self.notes(), self.now.replica_ids
        for name in self.catalog.files_of(self.u).live:
            assert any(name in self.disks[each] for each in ids), f"{name} is lost"
            for number, each in enumerate(ids):
                assert name in self.disks[each] or notes & {(number, name), (number, "")}, (name, number)


def test_what_was_written_to_replicas_of_before_is_refused() -> None:
    world = Replicas(2, 2)
    update = world.part(world.now.replica_ids)
    assert world.altered(world.now, ("r0", "r9"))
    reported: list[str] = []
    world.catalog.follow_storages(lambda: reported.append("changed"))
    with pytest.raises(StorageChangedError, match="copies=1 quorum=2"), world.catalog.transactions.open("w") as handle:
        handle.commit([update])
    assert (world.catalog.files_of(world.u).live, reported) == ({}, ["changed"])
    world.commit(world.part(world.now.replica_ids))
    world.check()


def test_a_commit_lands_where_a_quorum_has_its_files_and_the_new_replica_is_noted_to_lack_them() -> None:
    world = Replicas(3, 2)
    update = world.part(world.now.replica_ids)
    world.altered(world.now, ("r0", "r9", "r2"))
    world.commit(update)
    assert world.notes() == {(1, ""), (1, update.written.file.name)}
    added = world.part(world.now.replica_ids)
    world.altered(world.now, ("r0", "r9", "r2", "r3"))
    world.commit(added)
    assert (3, added.written.file.name) in world.notes()
    assert all(file.copies is None for file in world.catalog.files_of(world.u).live.values())
    assert all(note.file is None or note.file.copies is None for note in world.catalog.copies.of(world.u))
    world.check()


def test_a_replica_that_comes_back_is_another_one() -> None:
    """Its disk may have been emptied meanwhile."""
    world = Replicas(2, 1)
    update = world.part(("r1",))
    world.altered(world.now, ("r0", "r9"))
    world.altered(world.now, ("r0", "r1 again"))
    with pytest.raises(StorageChangedError):
        world.commit(update)


def test_a_storage_that_changes_while_a_commit_is_on_its_way() -> None:
    world = Replicas(2, 2)
    update = world.part(world.now.replica_ids)
    with world.catalog.transactions.open("w") as handle:
        world.racing.before = lambda: world.altered(world.now, ("r0", "r9"))
        with pytest.raises(StorageChangedError):
            handle.commit([update])
    world.check()


def test_a_commit_that_comes_while_a_storage_changes() -> None:
    """With a quorum of one its file is only in the replica that is replaced."""
    world = Replicas(2, 1)
    update = world.part(("r1",))
    with world.catalog.transactions.open("w") as handle:
        world.racing.before = lambda: handle.commit([update])
        with pytest.raises(ReplicaNeededError):
            world.altered(world.now, ("r0", "r9"), {world.u: (0,)})
    world.check()


def test_a_replica_found_to_lack_a_file_while_a_storage_changes() -> None:
    world = Replicas(2, 2)
    [part] = world.commit(world.part(world.now.replica_ids))
    note = CopyNote(table=world.u, replica=0, file=part.file, since_ms=1, reason="a checksum")
    world.racing.before = lambda: world.catalog.copies.note([note])
    with pytest.raises(ReplicaNeededError):
        world.altered(world.now, ("r0", "r9"), {world.u: (0,)})


def test_a_note_stays_where_its_copy_was_made_in_a_replica_of_before() -> None:
    world = Replicas(2, 1)
    before = world.now
    [part] = world.commit(world.part(("r0",)))
    [note] = world.catalog.copies.of(world.u)
    world.altered(world.now, ("r0", "r9"))
    world.catalog.copies.settle([note], storage="r", replica_ids=before.replica_ids)
    assert world.notes() == {(1, ""), (1, part.file.name)}
    world.catalog.copies.settle([note], storage="r", replica_ids=world.now.replica_ids)
    assert world.notes() == {(1, "")}


def every_kind(world: Replicas, stored: Callable[[DataFile], DataFile]) -> Iterator[Update]:
    """Return an update of each kind that names files, after committing what it requires."""
    part = world.written()
    yield InsertPart(table=world.u, written=replace(part, file=stored(part.file)))
    [first, second] = [world.commit(world.part(world.now.replica_ids))[0] for _ in range(2)]
    delta = world.delta((first, 1))
    yield AddDelta(table=world.u, written=replace(delta, file=stored(delta.file)))
    merged = world.written(rows=20)
    written = replace(merged, file=stored(merged.file))
    yield ReplaceParts(table=world.u, sources=(first.name, second.name), written=written)
    change = world.delta((second, 2))
    world.commit(
        AddDelta(table=world.u, written=replace(change, file=world.stored(change.file, world.now.replica_ids)))
    )
    [known] = world.catalog.parts.deltas(world.u)
    compacted = world.delta((second, 2), kind=DeltaKind.DELETE, change_ts=known.change_ts)
    yield ReplaceDeltas(
        table=world.u,
        partition="all",
        sources=(known.file.name,),
        written=(replace(compacted, file=stored(compacted.file)),),
        event="flush_deltas",
    )
    mutation = world.alter(table=world.u)
    rewritten = world.written(rows=10)
    written = replace(rewritten, file=stored(rewritten.file))
    yield RewritePart(table=world.u, source=first.name, written=written, mutation=mutation.id)


@pytest.mark.parametrize("copies", ["too few", "not said"])
def test_every_kind_of_update_that_names_files_is_refused(copies: str) -> None:
    world = Replicas(2, 2)
    kinds: set[type] = set()

    def stored(file: DataFile) -> DataFile:
        return world.stored(file, ("r0",)) if copies == "too few" else file

    for update in every_kind(world, stored):
        kinds.add(type(update))
        error = StorageChangedError if copies == "too few" else InvariantError
        with pytest.raises(error), world.catalog.transactions.open("w") as handle:
            handle.commit([update])
    assert len(kinds) == 5
    world.check()


def test_a_commit_asks_for_the_storage_with_the_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store behind a network answers all keys in one query; tables without replicas have no storage key."""
    world = Replicas(2, 2)
    asked: list[list[bytes]] = []
    view = world.kv.view

    def seen(keys: Collection[bytes] = ()) -> Any:
        asked.append([key for key in keys if key[:1] == Space.STORAGE.value])
        return view(keys)

    monkeypatch.setattr(world.kv, "view", seen)
    for _ in range(2):
        world.commit(world.part(world.now.replica_ids))
    assert asked[-1] == [pack(Space.STORAGE, "r")]
    world.insert("all")
    assert asked[-1] == []


# --- all orders of the steps of writers and of ALTER STORAGE ---


@dataclass(slots=True)
class Writer:
    """A writer. Its steps: read the replicas, write the file, commit; after a refusal all of them again at the end."""

    world: Replicas
    #: Index of a replica that gets no copy.
    away: int | None
    ids: tuple[str, ...] = ()
    update: InsertPart | None = None
    acknowledged: list[str] = field(default_factory=list)

    def begin(self) -> None:
        self.ids = self.world.now.replica_ids

    def write(self) -> None:
        there = [each for number, each in enumerate(self.ids) if number != self.away]
        self.update = self.world.part(there, quorum=min(self.world.quorum, len(there)))

    def commit(self) -> None:
        assert self.update is not None
        try:
            with self.world.catalog.transactions.open("w") as handle:
                handle.commit([self.update])
        except StorageChangedError:
            self.begin()
            self.write()
            self.commit()
            return
        self.acknowledged.append(self.update.written.file.name)
        there = [each for each in self.world.now.replica_ids if self.acknowledged[-1] in self.world.disks[each]]
        assert self.update.written.file.copies is not None
        assert len(there) >= self.update.written.file.copies.quorum

    @property
    def steps(self) -> list[Callable[[], None]]:
        return [self.begin, self.write, self.commit]


@dataclass(slots=True)
class Alter:
    """An ALTER STORAGE. Its steps: find a replica with all files, change the definition."""

    world: Replicas
    #: Index of the replica that is replaced; None: one is added.
    number: int | None
    new: str
    before: Storage | None = None
    others: tuple[int, ...] = ()

    def check_others(self) -> None:
        self.before = self.world.now
        lacking = {replica for replica, _ in self.world.notes()}
        numbers = set(range(len(self.before.replica_ids))) - {self.number} - lacking
        self.others = tuple(sorted(numbers))

    def change(self) -> None:
        assert self.before is not None
        ids = list(self.before.replica_ids)
        index = len(ids) if self.number is None else self.number
        ids = [*ids[:index], self.new, *ids[index + 1 :]]
        try:
            self.world.altered(self.before, ids, {self.world.u: self.others})
        except ReplicaNeededError:
            # The statement is refused.
            return

    @property
    def steps(self) -> list[Callable[[], None]]:
        return [self.check_others, self.change]


def orders(lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Return all orders of the steps of several actors, as lists of the actors' numbers."""
    if not any(lengths):
        yield ()
    for actor, length in enumerate(lengths):
        if length:
            left = [each - (number == actor) for number, each in enumerate(lengths)]
            for rest in orders(left):
                yield (actor, *rest)


@pytest.mark.parametrize(
    ("count", "quorum", "away", "changed"),
    [
        (2, 2, None, (1, None)),
        (2, 1, 0, (1, 0)),
        (2, 1, 1, (1, 0)),
        (3, 2, 0, (1, 1)),
        (3, 2, 2, (1, 0)),
        (3, 1, 0, (2, None)),
    ],
)
def test_no_order_of_writers_and_alters_loses_a_file(
    count: int, quorum: int, away: int | None, changed: tuple[int | None, int | None]
) -> None:
    every = list(orders([3, 2, 2]))
    for is_inside, is_restarted, chosen in (
        (False, False, every[::3]),
        (True, False, every),
        (False, True, every[::6]),
    ):
        for order in chosen:
            world = Replicas(count, quorum)
            writer = Writer(world, away)
            actors: list[Any] = [writer, *(Alter(world, number, f"n{at}") for at, number in enumerate(changed))]
            steps = [actor.steps for actor in actors]
            left = list(order)
            while left:
                act = steps[left.pop(0)].pop(0)
                # The next step of another actor happens between this actor's read and its commit.
                if is_inside and left and act in (writer.commit, actors[1].change, actors[2].change):
                    other = left[0]
                    if steps[other] and steps[other][0].__self__ is not act.__self__:
                        left.pop(0)
                        world.racing.before = steps[other].pop(0)
                act()
                late, world.racing.before = world.racing.before, None
                if late is not None:
                    late()
                if is_restarted:
                    world.catalog = world.reopened()
                world.check()
            assert set(writer.acknowledged) == set(world.catalog.files_of(world.u).live)
            assert len(writer.acknowledged) == 1


def test_replicas_that_lack_files_are_found_with_a_read_each() -> None:
    world = Replicas(3, 1)
    copies, other = world.catalog.copies, world.table("v", settings={"storage_policy": "r"})
    assert copies.lacking(10) == []
    files = [world.written().file for _ in range(5)]
    lacking = [(world.u, 0), (world.u, 2), (other, 1)]
    copies.note(
        CopyNote(table=table, replica=replica, file=file, since_ms=1, reason="it was away")
        for table, replica in lacking
        for file in files
    )
    assert sorted(copies.lacking(10)) == sorted(lacking)
    assert copies.lacking(2) == sorted(lacking)[:2]


def test_a_note_that_comes_while_an_equal_one_is_settled_stays() -> None:
    world = Replicas(2, 2)
    copies, ids = world.catalog.copies, world.now.replica_ids
    old = CopyNote(table=world.u, replica=1, file=None, since_ms=1, reason="its disk was swapped")
    copies.note([old])
    # The note is written again in the same millisecond, by the server that hosts the table now.
    copies.note([old])
    copies.settle([old], storage="r", replica_ids=ids)
    [newer] = copies.of(world.u)
    assert newer.since_ms > old.since_ms
    # The failure of the older note does not change the newer one.
    copies.fail([(old, "no answer")])
    assert copies.of(world.u) == [newer]
    copies.fail([(newer, "no answer")])
    [failed] = copies.of(world.u)
    assert (failed.failures, failed.error) == (1, "no answer")
    copies.settle([failed], storage="r", replica_ids=ids)
    assert copies.of(world.u) == []


def test_a_server_that_was_ended_settles_no_note() -> None:
    world = Replicas(2, 2)
    record = world.catalog.servers.join(Joining(name="a", run="1", version="1"))
    world.catalog.serve_as(record)
    note = CopyNote(table=world.u, replica=1, file=None, since_ms=1, reason="its disk was swapped")
    world.catalog.copies.note([note])
    world.catalog.servers.end(record)
    with pytest.raises(RetryError, check=WithCode("SERVER_ENDED")):
        world.catalog.copies.settle([note], storage="r", replica_ids=world.now.replica_ids)
    assert world.catalog.copies.of(world.u) == [note]
