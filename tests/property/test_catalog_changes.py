"""A table whose rows change: inserts, deletes, merges and flushes that missed changes, compactions, drops, UNDROPs,
rewrites and collection in any order, against a model that knows which rows there are at each commit.

A row is (file, index). The model keeps for each delta's file the rows that it deletes; what a reader of a time sees is
computed from the parts and deltas of the catalog's snapshot alone, and must be the model's rows of that time. Every
commit checks its invariants, the counts among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.catalog_world import World
from tilth.base.rand import new_rng
from tilth.catalog import (
    AddDelta,
    HideEverything,
    HidePartition,
    InsertPart,
    NothingToUndropError,
    PartsChangedError,
    PartsGoneError,
    ReplaceDeltas,
    ReplaceParts,
    RestorePartition,
    Update,
    visibility,
)
from tilth.model.delta import Delta, DeltaKind, Seen, Target, WrittenDelta, by_file
from tilth.model.part import DataFile, Part, WrittenPart

PARTITIONS = "ab"
ACTIONS = (
    *("insert", "insert", "insert", "delete", "delete", "delete", "stale", "replace", "late", "late", "late", "alone"),
    *("compact", "compact", "drop", "truncate", "undrop", "undrop", "collect", "empty", "forget"),
)


@dataclass(frozen=True, slots=True)
class Old:
    """A merge that read its sources a while ago."""

    sources: tuple[Part, ...]
    written: WrittenPart
    seen: Seen


class Life:
    def __init__(self) -> None:
        self.world = World()
        self.rows_made = 0
        self.files = 0
        #: Rows of each part's file, in their order.
        self.content: dict[str, list[int]] = {}
        #: Rows that each delta's file deletes, by part.
        self.deletes: dict[str, dict[str, set[int]]] = {}
        #: Visible rows by partition.
        self.shown: dict[str, set[int]] = {partition: set() for partition in PARTITIONS}
        #: Drops that can be undone, by partition: the time, and the rows that were hidden.
        self.dropped: dict[str, list[tuple[int, set[int]]]] = {partition: [] for partition in PARTITIONS}
        #: Rows that were visible at each commit.
        self.past: dict[int, set[int]] = {}
        #: `True` for partitions that had something to drop before the step.
        self.had_parts = dict.fromkeys(PARTITIONS, False)
        self.late: Old | None = None

    def step(self, action: str, number: int) -> None:
        partition = PARTITIONS[number % 2]
        match action:
            case "insert":
                self.insert(partition, number)
            case "delete":
                self.delete(partition, number)
            case "stale":
                self.change_stale(partition)
            case "replace":
                self.replace(self.choose(partition, number))
            case "late":
                self.replace_late(partition, number)
            case "alone":
                self.replace(self.choose(partition, number)[:1])
            case "compact":
                self.compact(partition, number)
            case "drop" | "truncate":
                self.drop(PARTITIONS if action == "truncate" else partition)
            case "undrop":
                self.undrop(partition)
            case "collect":
                self.world.collect(rounds=1 + number % 3)
                self.past.clear()
            case "empty":
                self.empty()
            case _:
                self.forget()

    # --- what is done ---

    def insert(self, partition: str, number: int) -> None:
        """A part or a segment of 4 rows, of which the same commit may delete one."""
        written = self.write(partition, rows=4, is_segment=number > 2)
        rows = list(range(self.rows_made, self.rows_made + 4))
        self.rows_made += 4
        self.content[written.file.name] = rows
        updates: list[Update] = [InsertPart(table=self.world.t, written=written)]
        gone: set[int] = set()
        if number == 5:
            gone = {rows[1]}
            updates.append(
                AddDelta(table=self.world.t, written=self.written_delta(partition, {written.file.name: gone}))
            )
        self.world.commit(*updates)
        self.shown[partition] |= set(rows) - gone

    def delete(self, partition: str, number: int) -> None:
        """One row each of some parts."""
        changes = by_file(self.open_deltas(partition))
        gone: dict[str, set[int]] = {}
        for part in self.choose(partition, number):
            live = self.live(part, changes.get(part.file.name, ()))
            if live:
                gone[part.file.name] = {live[number % len(live)]}
        if not gone:
            return
        seen = tuple((file, _newest(changes.get(file, ()))) for file in gone)
        self.world.commit(AddDelta(table=self.world.t, written=self.written_delta(partition, gone), seen=seen))
        self.shown[partition] -= set().union(*gone.values())

    def change_stale(self, partition: str) -> None:
        """Whoever knows of no change is refused where there is one."""
        changed = by_file(self.open_deltas(partition))
        for part in self.visible(partition):
            if part.file.name in changed:
                written = self.world.delta((part, 0))
                with pytest.raises(PartsChangedError):
                    self.world.commit(AddDelta(table=self.world.t, written=written))
                return

    def replace(self, sources: list[Part]) -> None:
        if sources:
            old = self.read(sources)
            assert self.commit_replace(old, ())

    def replace_late(self, partition: str, number: int) -> None:
        """Commits what was read some time ago, with the changes since on the result, and reads anew."""
        if self.late is not None:
            self.finish_late(self.late)
        sources = self.choose(partition, number)
        self.late = self.read(sources) if sources else None

    def finish_late(self, old: Old) -> None:
        try:
            if not self.commit_replace(old, ()):
                self.rebase(old)
        except PartsGoneError:
            shown = {part.name for part in self.visible(old.sources[0].name.partition)}
            assert any(source.name not in shown for source in old.sources)

    def rebase(self, old: Old) -> None:
        partition = old.sources[0].name.partition
        known = dict(old.seen)
        changes = by_file(self.open_deltas(partition))
        kept = set(self.content[old.written.file.name])
        gone: set[int] = set()
        seen: list[tuple[str, int]] = []
        for source in old.sources:
            file = source.file.name
            deltas = changes.get(file, ())
            for delta in deltas:
                if delta.change_ts > known.get(file, 0):
                    gone |= self.deletes[delta.file.name].get(file, set())
            seen.append((file, _newest(deltas)))
        rebased = self.written_delta(partition, {old.written.file.name: gone & kept})
        again = Old(sources=old.sources, written=old.written, seen=tuple(seen))
        assert self.commit_replace(again, (AddDelta(table=self.world.t, written=rebased),))

    def commit_replace(self, old: Old, more: tuple[Update, ...]) -> bool:
        """False: there are newer changes."""
        names = tuple(source.name for source in old.sources)
        written = old.written if old.written.rows else None
        update = ReplaceParts(table=self.world.t, sources=names, written=written, seen=old.seen)
        try:
            self.world.commit(update, *(more if written else ()))
        except PartsChangedError:
            changes = by_file(self.open_deltas(names[0].partition))
            known = dict(old.seen)
            files = [source.file.name for source in old.sources]
            assert any(_newest(changes.get(file, ())) > known.get(file, 0) for file in files)
            return False
        return True

    def compact(self, partition: str, number: int) -> None:
        """Some deltas become one of each part, or all one."""
        deltas = self.open_deltas(partition)
        sources = deltas[number % 2 : number % 2 + 1 + number // 2]
        gone: dict[str, set[int]] = {}
        for source in sources:
            for file, rows in self.deletes[source.file.name].items():
                gone.setdefault(file, set()).update(rows)
        kept = {part.file.name for part in self.lasting(partition)}
        gone = {file: rows for file, rows in gone.items() if file in kept}
        if not gone:
            return
        grouped = [gone] if number == 0 else [{file: rows} for file, rows in gone.items()]
        newest = _newest(sources)
        update = ReplaceDeltas(
            table=self.world.t,
            partition=partition,
            sources=tuple(source.file.name for source in sources),
            written=tuple(self.written_delta(partition, each, change_ts=newest) for each in grouped),
            event="flush_deltas",
        )
        self.world.commit(update)

    def drop(self, partitions: str) -> None:
        if partitions == PARTITIONS:
            self.world.commit(HideEverything(table=self.world.t))
        else:
            self.world.commit(HidePartition(table=self.world.t, partition=partitions))
        for partition in partitions:
            if self.had_parts[partition]:
                ts = self.world.catalog.parts.version(self.world.t).last_commit_ts
                self.dropped[partition].append((ts, self.shown[partition]))
                self.shown[partition] = set()

    def undrop(self, partition: str) -> None:
        try:
            self.world.commit(RestorePartition(table=self.world.t, partition=partition))
        except NothingToUndropError:
            assert self.dropped[partition] == []
            return
        ts, back = self.dropped[partition].pop()
        self.shown[partition] |= back
        # To readers of the time since then it is as if it had not been dropped.
        self.past = {at: rows for at, rows in self.past.items() if at < ts}

    def empty(self) -> None:
        """All that nobody needs is gone for good."""
        self.world.collect()
        items, _ = self.world.catalog.trash.items(self.world.t, limit=1000)
        self.world.catalog.trash.remove(self.world.t, self.world.catalog.trash.mark_for_removal(self.world.t, items))
        self.dropped = {partition: [] for partition in PARTITIONS}
        self.past.clear()

    def forget(self) -> None:
        """Deltas that have ended, or whose parts are all gone."""
        parts = {part.file.name for partition in PARTITIONS for part in self.there(partition)}
        gone = [
            delta
            for delta in self.world.catalog.parts.deltas(self.world.t, is_all=True)
            if delta.end_ts or parts.isdisjoint(target.file for target in delta.targets)
        ]
        assert self.world.catalog.parts.remove_deltas(self.world.t, gone) == len(gone)
        self.past.clear()

    # --- what is there ---

    def write(self, partition: str, *, rows: int, is_segment: bool = False) -> WrittenPart:
        return self.world.segment(partition, rows=rows) if is_segment else self.world.written(partition, rows=rows)

    def written_delta(self, partition: str, gone: dict[str, set[int]], *, change_ts: int = 0) -> WrittenDelta:
        self.files += 1
        file = DataFile(name=f"delta{self.files}.arrow", size=1, checksum=0)
        self.deletes[file.name] = gone
        return WrittenDelta(
            kind=DeltaKind.CHANGES,
            partition=partition,
            file=file,
            targets=tuple(Target(file=each, deleted=len(rows)) for each, rows in gone.items()),
            change_ts=change_ts,
        )

    def read(self, sources: list[Part]) -> Old:
        """A merge up to its commit."""
        partition = sources[0].name.partition
        changes = by_file(self.open_deltas(partition))
        rows = [row for part in sources for row in self.live(part, changes.get(part.file.name, ()))]
        written = self.write(partition, rows=len(rows))
        self.content[written.file.name] = rows
        seen = tuple((part.file.name, _newest(changes.get(part.file.name, ()))) for part in sources)
        return Old(sources=tuple(sources), written=written, seen=seen)

    def live(self, part: Part, deltas: tuple[Delta, ...]) -> list[int]:
        gone: set[int] = set()
        for delta in deltas:
            fresh = self.deletes[delta.file.name].get(part.file.name, set())
            assert gone.isdisjoint(fresh), "a row is deleted once"
            gone |= fresh
        return [row for row in self.content[part.file.name] if row not in gone]

    def choose(self, partition: str, number: int) -> list[Part]:
        return self.visible(partition)[number % 3 : number % 3 + 1 + number % 4]

    def visible(self, partition: str) -> list[Part]:
        return self.world.catalog.parts.visible(self.world.t, partition)

    def there(self, partition: str) -> list[Part]:
        """All parts, those in the trash too."""
        items, _ = self.world.catalog.trash.items(self.world.t, limit=1000)
        trashed = [each.item.part for each in items if each.item.part.name.partition == partition]
        entries = self.world.catalog.parts.entries(self.world.t, partition)
        return [*trashed, *(entry for entry in entries if isinstance(entry, Part))]

    def lasting(self, partition: str) -> list[Part]:
        """What is visible, and what an UNDROP may bring back."""
        items, _ = self.world.catalog.trash.items(self.world.t, limit=1000)
        back = [each.item.part for each in items if each.item.is_dropped and not each.item.is_going]
        shown = visibility.lasting(self.world.catalog.parts.entries(self.world.t, partition))
        return [*shown, *(part for part in back if part.name.partition == partition)]

    def open_deltas(self, partition: str) -> list[Delta]:
        return self.world.catalog.parts.deltas(self.world.t, partition)

    def rows_at(self, at: int | None) -> set[int]:
        snapshot = self.world.catalog.parts.snapshot(self.world.t, at=at)
        changes = by_file(snapshot.deltas)
        rows = [row for part in snapshot.parts for row in self.live(part, changes.get(part.file.name, ()))]
        assert len(set(rows)) == len(rows) == snapshot.rows, "every row once"
        return set(rows)

    def note(self) -> None:
        self.had_parts = {partition: bool(self.visible(partition)) for partition in PARTITIONS}

    def check(self) -> None:
        everything = set().union(*self.shown.values())
        assert self.rows_at(None) == everything
        version = self.world.catalog.parts.version(self.world.t)
        assert version.inserted_rows - version.removed_rows == len(everything)
        for at, rows in self.past.items():
            assert self.rows_at(at) == rows
        if version.counter:
            self.past[version.last_commit_ts] = everything
            assert self.world.catalog.history.time_of(self.world.t, version.counter) == version.last_commit_ts


def _newest(deltas: tuple[Delta, ...] | list[Delta]) -> int:
    return max((delta.change_ts for delta in deltas), default=0)


@pytest.mark.parametrize("seed", range(60))
def test_every_reader_sees_the_rows_of_his_time(seed: int) -> None:
    rng = new_rng(seed)
    life = Life()
    for _ in range(40):
        life.note()
        life.step(ACTIONS[int(rng.random() * len(ACTIONS))], int(rng.random() * 6))
        life.check()
    if life.late is not None:
        life.finish_late(life.late)
    life.empty()
    life.forget()
    life.check()
