"""Changes of rows: what a delta needs to be committed, who learns that a part has changed, what readers of each time
see of it, and what becomes of it when its parts are merged, dropped and brought back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import msgspec
import pytest

from tests.catalog_world import WIDER, World
from tilth.base.errors import FencedError, InvalidInputError
from tilth.catalog import (
    AddDelta,
    Catalog,
    ColumnsPendingError,
    DeltasGoneError,
    ExpirePartition,
    HidePartition,
    InsertPart,
    MemoryKV,
    PartsChangedError,
    PartsGoneError,
    ReplaceDeltas,
    ReplaceParts,
    RestorePartition,
    RewritePart,
    visibility,
)
from tilth.catalog.kv import KVOutcome, Precondition, ReadView, Versioned, ViewUse
from tilth.catalog.records.keys import Space
from tilth.model.delta import Delta, DeltaKind, Target, WrittenDelta
from tilth.model.part import DataFile, FileCopies, Part
from tilth.model.storage import Storage

Event = Literal["flush_deltas", "minor_delta", "major_delta"]


@pytest.fixture
def world() -> World:
    return World()


def rows(world: World, at: int | None = None) -> int:
    return world.catalog.parts.snapshot(world.t, at=at).rows


def files(world: World, at: int) -> list[DataFile]:
    """Of the deltas that a reader of that time has."""
    return [delta.file for delta in world.catalog.parts.snapshot(world.t, at=at).deltas]


def live(world: World) -> int:
    """As the counters say it."""
    version = world.catalog.parts.version(world.t)
    return version.inserted_rows - version.removed_rows


def add(world: World, written: WrittenDelta, *seen: tuple[Part, int]) -> None:
    world.commit(AddDelta(table=world.t, written=written, seen=tuple((part.file.name, ts) for part, ts in seen)))


def compact(world: World, *sources: Delta, written: tuple[WrittenDelta, ...], event: Event = "flush_deltas") -> None:
    names = tuple(source.file.name for source in sources)
    partition = sources[0].partition
    world.commit(
        ReplaceDeltas(table=world.t, partition=partition, sources=names, written=written, event=event, duration_ms=3)
    )


def seen(delta: Delta, *parts: Part) -> tuple[tuple[str, int], ...]:
    return tuple((part.file.name, delta.change_ts) for part in parts)


# --- adding ---


def test_a_delta_deletes_rows_from_its_commit_on(world: World) -> None:
    a, b = world.insert("all", "all")
    before = world.catalog.parts.version(world.t).last_commit_ts
    delta = world.delete((a, 3), (b, 1))
    assert delta.change_ts == delta.commit_ts > before
    assert delta.end_ts == 0
    assert (rows(world), rows(world, before), live(world)) == (16, 20, 16)
    assert world.catalog.parts.snapshot(world.t).deltas == (delta,)
    assert world.catalog.parts.snapshot(world.t, at=before).deltas == ()
    assert world.catalog.parts.snapshot(world.t, at=delta.commit_ts).deltas == (delta,)
    event = world.catalog.part_log.recent(limit=10)[-1]
    assert (event.event, event.part, event.rows, event.sources) == ("delete", str(a.name), 4, 2)


def test_deltas_of_parts_that_are_not_asked_for_are_left_out(world: World) -> None:
    a, b = world.insert("a", "b")
    of_a, of_b = world.delete((a, 1)), world.delete((b, 1))
    snapshot = world.catalog.parts.snapshot
    assert snapshot(world.t, partitions=["b"]).deltas == (of_b,)
    assert snapshot(world.t, keep=lambda part: part == a).deltas == (of_a,)
    assert world.catalog.parts.deltas(world.t, "a") == [of_a]
    assert world.catalog.parts.deltas(world.t) == [of_a, of_b]


def test_a_writer_that_did_not_see_the_newest_change_gets_the_changed_parts(world: World) -> None:
    a, b, c = world.insert("all", "all", "all")
    first = world.delete((a, 1), (b, 1))
    written = world.delta((a, 1), (b, 1), (c, 1))
    with pytest.raises(PartsChangedError) as refused:
        add(world, written)
    assert refused.value.facts["files"] == f"{a.file.name},{b.file.name}"
    with pytest.raises(PartsChangedError) as refused:
        add(world, written, (a, first.change_ts), (b, first.change_ts - 1))
    assert refused.value.facts["files"] == b.file.name
    add(world, written, (a, first.change_ts), (b, first.change_ts))
    assert live(world) == 25


def test_a_delta_of_parts_that_are_gone_is_refused(world: World) -> None:
    a, b = world.insert("all", "all")
    world.merge([a, b])
    with pytest.raises(PartsGoneError) as refused:
        world.delete((a, 1), (b, 1))
    assert refused.value.facts["files"] == f"{a.file.name},{b.file.name}"


def test_a_delta_changes_parts_of_its_own_partition_only(world: World) -> None:
    a, b = world.insert("a", "b")
    with pytest.raises(PartsGoneError) as refused:
        world.delete((a, 1), (b, 1))
    assert refused.value.facts["files"] == b.file.name


def test_one_commit_inserts_rows_and_deletes_older_and_new_ones(world: World) -> None:
    [old] = world.insert(rows=10)
    fresh = world.segment(rows=5)
    losers = WrittenDelta(
        kind=DeltaKind.CHANGES,
        partition="all",
        file=DataFile(name="losers.arrow", size=1, checksum=0),
        targets=(Target(file=old.file.name, deleted=4), Target(file=fresh.file.name, deleted=1)),
    )
    more = msgspec.structs.replace(
        losers, file=DataFile(name="more.arrow", size=1, checksum=0), targets=(Target(file=fresh.file.name, deleted=2),)
    )
    [segment] = world.commit(
        InsertPart(table=world.t, written=fresh),
        AddDelta(table=world.t, written=losers),
        AddDelta(table=world.t, written=more),
    )
    assert segment.is_segment
    assert rows(world) == live(world) == 8
    version = world.catalog.parts.version(world.t)
    assert (version.parts, version.segments) == (1, 1)
    assert world.catalog.parts.counts(world.t) == {"all": 1}


@pytest.mark.parametrize(
    "broken",
    [
        {"targets": ()},
        {"kind": DeltaKind.DELETE},
        {"targets": (Target(file="x", deleted=-1),)},
        {"targets": (Target(file="x"), Target(file="x"))},
        {"change_ts": 1 << 62},
    ],
)
def test_a_delta_that_does_not_say_what_it_changes_is_refused(world: World, broken: dict[str, object]) -> None:
    a, b = world.insert("all", "all")
    written = msgspec.structs.replace(world.delta((a, 1), (b, 1)), **broken)
    with pytest.raises(InvalidInputError):
        add(world, written)


def test_new_values_need_the_present_columns(world: World) -> None:
    [old] = world.insert()
    mutation = world.alter(WIDER)
    [new] = world.insert()
    add(world, world.delta((new, 0), columns=(2,)))
    add(world, world.delta((old, 1)))
    [changed] = [each for each in world.catalog.parts.deltas(world.t) if not each.columns]
    with pytest.raises(ColumnsPendingError) as refused:
        add(world, world.delta((old, 0), columns=(1,)), (old, changed.change_ts))
    assert refused.value.facts["files"] == old.file.name
    written = world.written(rows=9)
    [rewritten] = world.commit(
        RewritePart(table=world.t, source=old.name, written=written, mutation=mutation.id, seen=seen(changed, old))
    )
    add(world, world.delta((rewritten, 0), columns=(1,)))


# --- replacing parts ---


def test_a_merge_that_missed_a_change_is_refused_and_lands_with_the_change_on_its_result(world: World) -> None:
    a, b = world.insert("all", "all")
    first = world.delete((a, 1))
    late = world.delete((b, 2))
    names, written = (a.name, b.name), world.written(rows=19)
    merge = ReplaceParts(table=world.t, sources=names, written=written, seen=seen(first, a))
    with pytest.raises(PartsChangedError) as refused:
        world.commit(merge)
    assert refused.value.facts["files"] == b.file.name
    rebased = WrittenDelta(
        kind=DeltaKind.CHANGES,
        partition="all",
        file=DataFile(name="late.arrow", size=1, checksum=0),
        targets=(Target(file=written.file.name, deleted=2),),
    )
    before = world.catalog.parts.version(world.t).last_commit_ts
    merge = ReplaceParts(
        table=world.t, sources=names, written=written, seen=(*seen(first, a), *seen(late, b)), event="flush"
    )
    [part] = world.commit(merge, AddDelta(table=world.t, written=rebased))
    assert (rows(world), live(world), rows(world, before)) == (17, 17, 17)
    assert [event.event for event in world.catalog.part_log.recent(limit=10)][-2:] == ["flush", "delete"]
    [left] = world.catalog.parts.deltas(world.t)
    assert [target.file for target in left.targets] == [part.file.name]
    # The deltas of what was merged ended with it; readers of the past still have them.
    assert files(world, before) == [first.file, late.file]


def test_changes_end_with_the_last_part_that_they_change(world: World) -> None:
    a, b, c = world.insert("all", "all", "all")
    both = world.delete((a, 1), (c, 1))
    world.commit(
        ReplaceParts(table=world.t, sources=(a.name, b.name), written=world.written(rows=19), seen=seen(both, a))
    )
    assert world.catalog.parts.deltas(world.t) == [both]
    world.commit(ReplaceParts(table=world.t, sources=(c.name,), written=world.written(rows=9), seen=seen(both, c)))
    assert world.catalog.parts.deltas(world.t) == []
    [over] = world.catalog.parts.deltas(world.t, is_all=True)
    assert over.end_ts == world.catalog.parts.version(world.t).last_commit_ts
    assert world.catalog.parts.deltas(world.t, at=over.end_ts - 1) == [over]
    assert world.catalog.parts.deltas(world.t, at=over.end_ts) == []
    assert rows(world) == live(world) == 28


def test_one_source_is_replaced_by_its_newer_version(world: World) -> None:
    [segment] = world.commit(InsertPart(table=world.t, written=world.segment()))
    delta = world.delete((segment, 4))
    [part] = world.commit(
        ReplaceParts(
            table=world.t,
            sources=(segment.name,),
            written=world.written(rows=6),
            seen=seen(delta, segment),
            event="flush",
        )
    )
    assert part.name.blocks == segment.name.blocks
    assert (part.name.level, part.is_rewritten, part.is_segment) == (1, True, False)
    version = world.catalog.parts.version(world.t)
    assert (version.parts, version.segments, live(world), rows(world)) == (1, 0, 6, 6)
    assert [event.event for event in world.catalog.part_log.recent(limit=1)] == ["flush"]
    assert world.catalog.parts.entries(world.t, "all") == [segment, part]
    ended = visibility.end_times(world.catalog.parts.entries(world.t, "all"))
    assert ended == [(segment, part.commit_ts)]
    assert world.collect() == 1
    [item] = world.catalog.trash.items(world.t, limit=10)[0]
    assert (item.item.part, item.item.is_dropped) == (segment, False)


def test_one_source_without_rows_left_is_hidden(world: World) -> None:
    [part] = world.insert()
    delta = world.delete((part, 10))
    assert (rows(world), live(world)) == (0, 0)
    removed = ReplaceParts(
        table=world.t, sources=(part.name,), written=None, seen=seen(delta, part), event="remove_deleted"
    )
    world.commit(removed)
    assert (world.names(), live(world), world.catalog.parts.version(world.t).parts) == ([], 0, 0)
    assert world.collect() == 2


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_result_with_the_blocks_of_one_source_of_several(world: World, is_empty: bool) -> None:
    """Such blocks come when a part lies between those of another: marks hide the others, the chain hides that one."""
    a, b, c = world.insert("all", "all", "all")
    outer = world.merge([a, c])
    inner = world.merge([b, *world.insert()])
    # A rewrite lifts the inner one above the outer one.
    [inner] = world.commit(ReplaceParts(table=world.t, sources=(inner.name,), written=world.written(rows=20)))
    around = world.merge([outer, *world.insert()])
    written = None if is_empty else world.written(rows=50)
    made = world.commit(ReplaceParts(table=world.t, sources=(around.name, inner.name), written=written))
    assert [part.name for part in made] == world.names()
    if made:
        assert made[0].is_rewritten
        assert made[0].name.level == 3
    assert live(world) == (0 if is_empty else 50)
    world.collect()
    assert [part.name for part in made] == world.names()
    assert len(list(world.catalog.parts.all_entries(world.t))) == len(made)


# --- compaction ---


def test_a_compaction_says_the_same_in_other_files(world: World) -> None:
    a, b = world.insert("all", "all")
    first = world.delete((a, 1), (b, 2))
    second = world.delete((a, 3), seen=seen(first, a))
    before = world.catalog.parts.version(world.t).last_commit_ts
    of_a = world.delta((a, 4), kind=DeltaKind.DELETE, change_ts=second.change_ts)
    of_b = world.delta((b, 2), kind=DeltaKind.DELETE, change_ts=first.change_ts)
    compact(world, first, second, written=(of_a, of_b))
    now = world.catalog.parts.deltas(world.t)
    assert [(each.file, each.change_ts) for each in now] == [
        (of_b.file, first.change_ts),
        (of_a.file, second.change_ts),
    ]
    assert (rows(world), live(world), rows(world, before)) == (14, 14, 14)
    assert files(world, before) == [first.file, second.file]
    event = world.catalog.part_log.recent(limit=1)[0]
    assert (event.event, event.part, event.rows, event.sources, event.duration_ms) == (
        "flush_deltas",
        str(a.name),
        6,
        2,
        3,
    )
    # Nobody who knew the changes has to look again.
    world.delete((a, 1), seen=seen(second, a))
    with pytest.raises(DeltasGoneError):
        compact(world, first, written=(of_a,))


def test_a_compaction_must_keep_what_is_deleted(world: World) -> None:
    [a] = world.insert()
    first = world.delete((a, 2))
    for number in (1, 3):
        fewer = world.delta((a, number), kind=DeltaKind.DELETE, change_ts=first.change_ts)
        with pytest.raises(DeltasGoneError):
            compact(world, first, written=(fewer,))
    with pytest.raises(InvalidInputError):
        compact(world, first, written=(world.delta((a, 2), kind=DeltaKind.DELETE),))


def test_a_compaction_for_parts_that_are_gone_is_refused(world: World) -> None:
    a, b, c = world.insert("all", "all", "all")
    first = world.delete((a, 2), (c, 1))
    world.commit(
        ReplaceParts(table=world.t, sources=(a.name, b.name), written=world.written(rows=18), seen=seen(first, a))
    )
    of_a = world.delta((a, 2), kind=DeltaKind.DELETE, change_ts=first.change_ts)
    of_c = world.delta((c, 1), kind=DeltaKind.DELETE, change_ts=first.change_ts)
    with pytest.raises(PartsGoneError):
        compact(world, first, written=(of_a, of_c))
    compact(world, first, written=(of_c,))
    assert rows(world) == live(world) == 27


def test_a_compaction_must_not_forget_parts_that_may_come_back(world: World) -> None:
    a, b = world.insert("all", "all")
    first = world.delete((a, 2), (b, 1))
    world.commit(HidePartition(table=world.t, partition="all"))
    of_a = world.delta((a, 2), kind=DeltaKind.DELETE, change_ts=first.change_ts)
    of_b = world.delta((b, 1), kind=DeltaKind.DELETE, change_ts=first.change_ts)
    for collected in (False, True):
        if collected:
            world.collect()
        with pytest.raises(DeltasGoneError):
            compact(world, first, written=(of_b,))
    compact(world, first, written=(of_a, of_b))
    world.commit(RestorePartition(table=world.t, partition="all"))
    assert rows(world) == live(world) == 17


def test_parts_expire_with_all_that_shares_a_delta_with_them(world: World) -> None:
    world.catalog.tables.modify_ttl(world.t, "d")
    a, b = world.insert("all", "all")
    world.delete((a, 2), (b, 1))
    expire = ExpirePartition(table=world.t, partition="all", parts=(a.name,), ttl="d", reason="old")
    with pytest.raises(PartsGoneError):
        world.commit(expire)
    world.commit(replace(expire, parts=(a.name, b.name)))
    assert rows(world) == 0


# --- drops ---


@pytest.mark.parametrize("is_collected", [False, True])
def test_what_comes_back_comes_back_with_its_changes(world: World, is_collected: bool) -> None:
    [a] = world.insert()
    delta = world.delete((a, 4))
    world.commit(HidePartition(table=world.t, partition="all"))
    assert (rows(world), live(world)) == (0, 0)
    assert world.catalog.parts.snapshot(world.t).deltas == ()
    if is_collected:
        world.collect()
    assert world.catalog.parts.deltas(world.t) == [delta]
    world.commit(RestorePartition(table=world.t, partition="all"))
    assert (rows(world), live(world)) == (6, 6)
    assert world.catalog.parts.snapshot(world.t).deltas == (delta,)


def test_deltas_of_nothing_are_forgotten_by_their_file(world: World) -> None:
    [a] = world.insert()
    open_one = world.delete((a, 4))
    lease = world.catalog.leases.acquire(f"table/{world.t}", "s1")
    world.catalog.leases.acquire(f"table/{world.t}", "s2")
    parts = world.catalog.parts
    with pytest.raises(FencedError):
        parts.remove_deltas(world.t, [open_one], fence=lease.fence)
    world.commit(HidePartition(table=world.t, partition="all"))
    world.collect()
    trashed = world.catalog.trash.items(world.t, limit=10)[0]
    world.catalog.trash.remove(world.t, trashed)
    assert not parts.drop_partition_record(world.t, "all")
    assert parts.remove_deltas(world.t, [open_one]) == 1
    assert parts.remove_deltas(world.t, [open_one]) == 0
    assert parts.deltas(world.t, is_all=True) == []
    assert parts.drop_partition_record(world.t, "all")


def test_a_delta_that_ended_since_it_was_read_is_forgotten_too(world: World) -> None:
    [a] = world.insert()
    was_open = world.delete((a, 4))
    world.commit(ReplaceParts(table=world.t, sources=(a.name,), written=world.written(rows=6), seen=seen(was_open, a)))
    [over] = world.catalog.parts.deltas(world.t, is_all=True)
    assert over.end_ts
    assert world.catalog.parts.remove_deltas(world.t, [was_open]) == 1


def test_a_table_is_forgotten_with_its_deltas(world: World) -> None:
    a, b = world.insert("all", "all")
    first = world.delete((a, 1))
    world.delete((b, 1))
    world.commit(ReplaceParts(table=world.t, sources=(a.name,), written=None, seen=seen(first, a)))
    world.catalog.tables.drop(world.t)
    world.catalog.tables.forget(world.t)
    assert world.catalog.parts.deltas(world.t, is_all=True) == []
    assert world.catalog.history.listing(world.t, 10) == []


def test_an_insert_costs_the_same_however_large_the_table_is() -> None:
    """No look at entries or deltas, and a fixed number of keys."""
    kv = Recording()
    world = World(kv)
    [a] = world.insert()
    world.delete((a, 1))
    catalog = Catalog(kv, world.clock, "s2", world.new_id)
    txn = catalog.transactions.open("insert")
    kv.puts, kv.scanned = [], []
    txn.commit([InsertPart(table=world.t, written=world.segment())])
    assert kv.scanned == []
    spaces = [Space(key[:1]) for key in kv.puts]
    assert sorted(spaces, key=str) == sorted(
        [Space.FINISHED_TXN, Space.VERSION, Space.VERSION_COMMIT, Space.PARTITION, Space.ENTRY, Space.PART_LOG], key=str
    )


class Recording(MemoryKV):
    """Records what was written, and where it was searched."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[bytes] = []
        self.scanned: list[bytes] = []

    def commit(
        self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
    ) -> KVOutcome:
        self.puts += puts
        return super().commit(preconditions, puts, deletes)

    @contextmanager
    def view(self, keys: Collection[bytes] = (), use: ViewUse = ViewUse.LISTING) -> Iterator[ReadView]:
        with super().view(keys, use) as view:
            yield _Watched(view, self.scanned)


class _Watched:
    def __init__(self, view: ReadView, scanned: list[bytes]) -> None:
        self._view = view
        self._scanned = scanned

    def get(self, key: bytes) -> Versioned | None:
        return self._view.get(key)

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        self._scanned.append(start)
        return self._view.scan(start, end, limit=limit, reverse=reverse)


def test_copies_that_a_file_of_changes_lacks_are_noted_in_its_commit(world: World) -> None:
    assert world.catalog.storages.create(Storage(name="r", root="replicas://r", replica_ids=("i", "ii", "iii")))
    table = world.table("replicated", settings={"storage_policy": "r"})
    inserted = world.written()
    every = FileCopies(replicas=("i", "ii", "iii"), quorum=2)
    file = msgspec.structs.replace(inserted.file, copies=every)
    [part] = world.commit(InsertPart(table=table, written=msgspec.structs.replace(inserted, file=file)))
    written = world.delta((part, 3))
    lacking = msgspec.structs.replace(written.file, copies=FileCopies(replicas=("i", "ii"), quorum=2))
    world.commit(AddDelta(table=table, written=msgspec.structs.replace(written, file=lacking)))
    [note] = world.catalog.copies.of(table)
    assert (note.replica, note.file) == (2, written.file)
