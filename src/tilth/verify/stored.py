"""SYSTEM CHECK FILES: all files of a table's store against all that the catalog knows, in every replica.

Covers: files that nobody knows, files that are missing or cut, removing orphans. Does not cover: what is in the files
(files.py), making copies (tilth.maintenance).
Always holds: reads only, but for orphans that are to be removed: files with the name of a transaction that can never
commit any more, older than the given age, which the catalog does not name when they go, and of which it has no
record of a loss. Memory holds some twenty bytes for each file that the catalog names, and one batch of the listing.

The catalog is read first, then the store is listed: what a listing shows and the catalog did not name is of a
transaction that runs or has landed since, which its record says, or it is an orphan.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from itertools import islice
from typing import TypeVar

import numpy as np

from tilth.base.cancel import raise_if_cancelled
from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.hybrid import milliseconds, pack
from tilth.catalog import Catalog, TxnTrace
from tilth.model.delta import Delta
from tilth.model.part import Part
from tilth.model.table import TableDef
from tilth.model.txn import Tombstone, TxnState, read_file_name
from tilth.storage import (
    EXTENSIONS,
    SIDECAR_EXTENSIONS,
    Folder,
    Roots,
    StoredFile,
    StoreRoot,
    are_there,
    list_files,
    part_of_sidecar,
    remove_listed,
)

#: Rows of one state; others are counted.
ROWS_MAX = 2_000
#: Orphans that one statement removes.
REMOVED_MAX = 100_000
#: Files of a listing that are looked up together.
BATCH = 10_000
#: Names of a request.
NAMES_AT_ONCE = 1_000
#: What has landed so shortly before the catalog was read, by clocks that differ, may have landed after it.
SETTLING_MS = 60_000
#: Transactions of which it is remembered what the catalog says.
TRACES_MAX = 10_000

T = TypeVar("T")


class FileState(StrEnum):
    """A file as CHECK FILES finds it."""

    #: A summary: files that are as the catalog names them.
    KNOWN = "known"
    #: Its transaction runs, or has landed a moment ago.
    RUNNING = "running"
    #: It is being collected; UNDROP may bring it back.
    TRASH = "in trash"
    #: Nobody will ever name it.
    ORPHAN = "orphan"
    #: An orphan that belongs beside a part's file, which is not there.
    SIDECAR = "sidecar without file"
    #: Its transaction was acknowledged, and the catalog's database has lost it.
    LOST = "lost"
    #: Its name is none that a transaction gives.
    FOREIGN = "foreign"
    #: The catalog names it, and it is not there.
    MISSING = "missing"
    #: As missing, and it is noted that the copy is to be made.
    COPYING = "copy to be made"
    WRONG_SIZE = "wrong size"
    #: The replica does not answer.
    AWAY = "away"


#: What somebody has to look at.
TROUBLES = (
    FileState.ORPHAN,
    FileState.SIDECAR,
    FileState.LOST,
    FileState.FOREIGN,
    FileState.MISSING,
    FileState.WRONG_SIZE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """A file, or a summary of a replica."""

    state: FileState
    replica: int
    #: Below the table's folder; empty: a summary.
    file: str = ""
    bytes: int = 0
    #: By the store's clock; 0: it is not there.
    modified_ms: int = 0
    #: The transaction in its name; 0: there is none.
    txn: int = 0
    #: Since when nobody needs it, as far as the catalog knows; 0: it does not.
    since_ms: int = 0
    is_removed: bool = False
    detail: str = ""


@dataclass(slots=True)
class StoredReport:
    """Rows by replica, and how many there are of each state, those without a row too."""

    rows: list[FileRow] = field(default_factory=list)
    counts: Counter[tuple[int, FileState]] = field(default_factory=Counter)
    removed: int = 0

    def add(self, row: FileRow) -> None:
        key = row.replica, row.state
        self.counts[key] += 1
        if self.counts[key] <= ROWS_MAX:
            self.rows.append(row)

    def count(self, *states: FileState) -> int:
        return sum(count for (_, state), count in self.counts.items() if state in states)


class NamedFiles:
    """Files that the catalog names, by hashes of their names: one that is named is never taken for one that is not."""

    def __init__(self, stored: Iterable[tuple[Part | Delta, bool]]) -> None:
        hashes, sizes, leaving = array("Q"), array("q"), bytearray()
        for thing, is_leaving in stored:
            hashes.append(_hash(thing.file.name))
            sizes.append(thing.file.size)
            leaving.append(is_leaving)
        order = np.argsort(np.frombuffer(hashes, np.uint64), kind="stable") if hashes else np.empty(0, np.int64)
        self._hashes = np.frombuffer(hashes, np.uint64)[order] if hashes else np.empty(0, np.uint64)
        self.sizes = np.frombuffer(sizes, np.int64)[order] if sizes else np.empty(0, np.int64)
        self.leaving = np.frombuffer(leaving, np.bool_)[order] if leaving else np.empty(0, np.bool_)

    def __len__(self) -> int:
        return len(self._hashes)

    def places(self, names: list[str]) -> list[int]:
        """Return for each name its place among the files; -1: it is not named."""
        if not len(self):
            return [-1] * len(names)
        wanted = np.array([_hash(name) for name in names], np.uint64)
        found = np.minimum(np.searchsorted(self._hashes, wanted), len(self) - 1)
        return list(np.where(self._hashes[found] == wanted, found, -1))


def check_stored(
    catalog: Catalog, roots: Roots, clock: Clock, table: TableDef, *, repair_age_ms: int | None = None
) -> StoredReport:
    """Compare what is stored of a table with the catalog; with an age, remove orphans that are older.

    Raises what the stores say, but where the table's storage has replicas: one that is away has a row; and with an age
    what `catalog.clock_check` says of a clock in doubt.
    """
    if repair_age_ms is not None:
        catalog.clock_check.check_removal()
    return _Check(catalog, roots, clock, table).run(repair_age_ms)


@dataclass(frozen=True, slots=True)
class _Orphan:
    place: StoreRoot
    row: FileRow


class _Check:
    def __init__(self, catalog: Catalog, roots: Roots, clock: Clock, table: TableDef) -> None:
        self._catalog = catalog
        self._clock = clock
        self._table = table
        self._root = roots.of(table.uuid)
        #: Before the catalog is read.
        self._began_ts = catalog.clock.now()
        self._named = NamedFiles(catalog.stored_files(table.uuid))
        self._traces: dict[int, TxnTrace] = {}
        self._report = StoredReport()
        self._orphans: list[_Orphan] = []
        self._age_ms: int | None = None

    def run(self, repair_age_ms: int | None) -> StoredReport:
        self._age_ms = repair_age_ms
        for replica, place in enumerate(self._root.places):
            try:
                self._check_place(replica, place)
            except (TilthError, OSError) as error:
                raise_if_cancelled()
                if not self._root.replicas:
                    raise
                self._report.add(FileRow(state=FileState.AWAY, replica=replica, detail=str(error)))
        if repair_age_ms is not None:
            self._remove_orphans()
        return self._report

    def _check_place(self, replica: int, place: StoreRoot) -> None:
        folder = Folder(place, self._table.uuid)
        seen, size = np.zeros(len(self._named), np.bool_), 0
        for batch in _batches(list_files(folder), BATCH):
            raise_if_cancelled()
            names = [each.path.removeprefix("data/") for each in batch]
            # What lies beside a part's file is named by it.
            owners = self._named.places([part_of_sidecar(name) or name for name in names])
            for found, name, owner in zip(batch, names, owners, strict=True):
                if found.path == ".tilth":
                    continue
                if owner < 0 or "/" in name or name == found.path:
                    self._add_unknown(replica, place, found, name)
                elif part_of_sidecar(name) is None:
                    seen[owner] = True
                    size += found.size
                    self._add_named(replica, found, owner)
        missing = np.flatnonzero(~seen & ~self._named.leaving)
        self._add_missing(replica, folder, set(missing.tolist()))
        self._report.add(self._summary(replica, int(seen.sum()), size))

    def _add_named(self, replica: int, found: StoredFile, owner: int) -> None:
        row = FileRow(
            state=FileState.TRASH, replica=replica, file=found.path, bytes=found.size, modified_ms=found.modified_ms
        )
        named = read_file_name(found.path.removeprefix("data/"))
        row = replace(row, txn=0 if named is None else named.txn)
        if self._named.leaving[owner]:
            self._report.add(replace(row, detail="garbage collection removes it"))
        elif self._named.sizes[owner] != found.size:
            size = int(self._named.sizes[owner])
            self._report.add(replace(row, state=FileState.WRONG_SIZE, detail=f"the catalog says {size} bytes"))

    def _add_unknown(self, replica: int, place: StoreRoot, found: StoredFile, name: str) -> None:
        named = read_file_name(name)
        row = FileRow(
            state=FileState.FOREIGN, replica=replica, file=found.path, bytes=found.size, modified_ms=found.modified_ms
        )
        if named is None or name == found.path or named.extension not in (*EXTENSIONS, *SIDECAR_EXTENSIONS):
            self._report.add(replace(row, detail="no transaction gives such a name: it is never removed"))
            return
        row, is_dead = _judged(replace(row, txn=named.txn), self._trace(named.txn), name, self._began_ts)
        if row.state is FileState.ORPHAN and named.extension in SIDECAR_EXTENSIONS:
            row = replace(row, state=FileState.SIDECAR)
        if is_dead and self._is_old(row) and len(self._orphans) < REMOVED_MAX:
            self._orphans.append(_Orphan(place, row))
        else:
            self._report.add(row)

    def _is_old(self, row: FileRow) -> bool:
        """Return whether it may go by its age: of the file, by the store's clock, and of its transaction."""
        if self._age_ms is None:
            return False
        newest_ms = max(row.modified_ms, milliseconds(row.txn))
        return self._clock.now_ms() - newest_ms >= self._age_ms

    def _trace(self, txn: int) -> TxnTrace:
        if txn not in self._traces:
            if len(self._traces) >= TRACES_MAX:
                self._traces.clear()
            self._traces[txn] = self._catalog.transactions.tombstones.trace(txn)
        return self._traces[txn]

    def _add_missing(self, replica: int, folder: Folder, places: set[int]) -> None:
        """Add what the catalog names and the listing has not shown, if that is so still."""
        if not places:
            return
        notes = self._catalog.copies.of(self._table.uuid, replica=replica)
        noted = {"" if note.file is None else note.file.name for note in notes}
        stored = (thing for thing, is_leaving in self._catalog.stored_files(self._table.uuid) if not is_leaving)
        for batch in _batches(stored, NAMES_AT_ONCE):
            raise_if_cancelled()
            owners = self._named.places([thing.file.name for thing in batch])
            gone = [thing for thing, owner in zip(batch, owners, strict=True) if owner in places]
            there = are_there(folder, [f"data/{thing.file.name}" for thing in gone])
            for thing in (each for each, is_there in zip(gone, there, strict=True) if not is_there):
                what = f"part {thing.name}" if isinstance(thing, Part) else f"changes of partition {thing.partition}"
                is_noted = "" in noted or thing.file.name in noted
                named = read_file_name(thing.file.name)
                self._report.add(
                    FileRow(
                        state=FileState.COPYING if is_noted else FileState.MISSING,
                        replica=replica,
                        file=f"data/{thing.file.name}",
                        bytes=thing.file.size,
                        txn=0 if named is None else named.txn,
                        detail=f"of {what}{'; REPLICATE makes the copy' if is_noted else ''}",
                    )
                )

    def _summary(self, replica: int, files: int, size: int) -> FileRow:
        hidden = [
            f"{count - ROWS_MAX} more are {state}"
            for (number, state), count in sorted(self._report.counts.items())
            if number == replica and count > ROWS_MAX
        ]
        detail = "; ".join([f"{files} files as the catalog names them", *hidden])
        return FileRow(state=FileState.KNOWN, replica=replica, bytes=size, detail=detail)

    def _remove_orphans(self) -> None:
        """Remove those of which the catalog, read once more, still says nothing."""
        named = NamedFiles(self._catalog.stored_files(self._table.uuid)) if self._orphans else self._named
        for batch in _batches(self._orphans, NAMES_AT_ONCE):
            raise_if_cancelled()
            names = [each.row.file.removeprefix("data/") for each in batch]
            owners = named.places([part_of_sidecar(name) or name for name in names])
            going = [
                each
                for each, name, owner in zip(batch, names, owners, strict=True)
                if owner < 0 and self._may_go(each.row.txn, name)
            ]
            failed: dict[tuple[StoreRoot, str], str] = {}
            for place in {each.place for each in going}:
                folder = Folder(place, self._table.uuid)
                paths = [each.row.file for each in going if each.place == place]
                for path, error in remove_listed(folder, paths).items():
                    failed[place, path] = str(error)
            for each in batch:
                why = failed.get((each.place, each.row.file), "")
                is_removed = each in going and not why
                self._report.removed += is_removed
                row = replace(each.row, is_removed=is_removed, detail=f"{each.row.detail}{why and f'; {why}'}")
                self._report.add(row)

    def _may_go(self, txn: int, name: str) -> bool:
        kept = self._catalog.transactions.tombstones.kept(txn, ())
        return kept is not None and (part_of_sidecar(name) or name) not in kept


def _judged(row: FileRow, trace: TxnTrace, name: str, began_ts: int) -> tuple[FileRow, bool]:
    """Return what a file is that the catalog did not name, and whether its transaction can never name it."""
    txn = row.txn
    if (lost := trace.lost) is not None:
        detail = (
            f"acknowledged as transaction {txn}, lost by the failover of the database "
            f"from history {lost.before} to {lost.now}: see system.lost_transactions"
        )
        return replace(row, state=FileState.LOST, since_ms=lost.found_ms, detail=detail), False
    if trace.is_running:
        begun_ms = milliseconds(txn)
        return replace(row, state=FileState.RUNNING, since_ms=begun_ms, detail=f"transaction {txn} runs"), False
    landed = trace.finished
    settled_ts = began_ts - pack(SETTLING_MS)
    if landed is not None and landed.commit_ts > settled_ts:
        return replace(row, state=FileState.RUNNING, detail=f"transaction {txn} has landed a moment ago"), False
    row = replace(row, state=FileState.ORPHAN)
    since_ms = trace.note.since_ms if isinstance(trace.note, Tombstone) else row.modified_ms
    if trace.is_committed:
        is_noted = trace.note is not None and name not in trace.note.keep
        then = "it goes by itself" if is_noted else "it is no longer named"
        return replace(row, since_ms=since_ms, detail=f"transaction {txn} has landed without it; {then}"), False
    if isinstance(trace.note, Tombstone):
        detail = f"transaction {txn} was aborted; its files are removed again until a day after that"
        return replace(row, since_ms=since_ms, detail=detail), True
    if trace.open is not None:
        assert trace.open.state is TxnState.ABORTED
        detail = f"transaction {txn} was aborted: {trace.open.reason}; it goes by itself"
        return replace(row, since_ms=since_ms, detail=detail), True
    return replace(row, since_ms=since_ms, detail=f"no record of transaction {txn}"), True


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def _batches(things: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(things)
    while batch := list(islice(left, size)):
        yield batch
