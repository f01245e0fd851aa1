"""SYSTEM CHECK FILES: a comparison of a table's stored files with the catalog, in every replica.

Covers: unknown files, missing files, files of the wrong size, removing orphans. Does not cover: the content of files
(files.py), making copies (tilth.maintenance).
Always holds: reads only, except that orphans may be removed: files with the name of a transaction that can never commit
any more, older than the given age, which the catalog does not name at the time of the removal, and of whose loss it has
no record. Memory holds some twenty bytes for each file that the catalog names, and one batch of the listing.

The catalog is read before the store is listed: a listed file that the catalog did not name belongs to a transaction
that runs or has committed since, as its record shows, or it is an orphan.

Tests: tests/unit/statements/operate/test_check_files.py.
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

#: Number of rows of one state; further files are only counted.
ROWS_MAX = 2_000
#: Number of orphans that one statement removes.
REMOVED_MAX = 100_000
#: Files of a listing that are searched together.
BATCH = 10_000
#: Names in one request.
NAMES_AT_ONCE = 1_000
#: Allowance for clocks that differ: a commit this shortly before the catalog was read may have come after it.
SETTLING_MS = 60_000
#: Number of transactions whose traces are cached.
TRACES_MAX = 10_000

T = TypeVar("T")


class FileState(StrEnum):
    """State in which CHECK FILES finds a file."""

    #: Summary of the files that match the catalog.
    KNOWN = "known"
    #: Its transaction runs, or has just committed.
    RUNNING = "running"
    #: Garbage collection is going to remove it; UNDROP may bring it back.
    TRASH = "in trash"
    #: No commit will ever name it.
    ORPHAN = "orphan"
    #: An orphan that is the sidecar of a part's file which the catalog does not name.
    SIDECAR = "sidecar without file"
    #: Its transaction was acknowledged, and the catalog's database has lost it.
    LOST = "lost"
    #: Its name is not one that a transaction gives.
    FOREIGN = "foreign"
    #: The catalog names it, and it does not exist.
    MISSING = "missing"
    #: Missing, with a note in the catalog that the copy has to be made.
    COPYING = "copy to be made"
    WRONG_SIZE = "wrong size"
    #: The replica does not answer.
    AWAY = "away"


#: States that need an operator.
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
    """Row of a file, or summary of a replica."""

    state: FileState
    replica: int
    #: Path relative to the table's folder; empty: a summary.
    file: str = ""
    bytes: int = 0
    #: Time of the last write, by the store's clock; 0: it does not exist.
    modified_ms: int = 0
    #: Transaction in its name; 0: there is none.
    txn: int = 0
    #: Time since which it is in this state, according to the catalog, or of its last write; 0: not known.
    since_ms: int = 0
    is_removed: bool = False
    detail: str = ""


@dataclass(slots=True)
class StoredReport:
    """Rows by replica, and the number of files in each state, including those without a row."""

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
    """Files that the catalog names, by hashes of their names: each of them is found, and rarely another name too."""

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

    def indexes(self, names: list[str]) -> list[int]:
        """Return for each name the index of its file; -1: the catalog does not name it."""
        if not len(self):
            return [-1] * len(names)
        wanted = np.array([_hash(name) for name in names], np.uint64)
        found = np.minimum(np.searchsorted(self._hashes, wanted), len(self) - 1)
        return list(np.where(self._hashes[found] == wanted, found, -1))


def check_stored(
    catalog: Catalog, roots: Roots, clock: Clock, table: TableDef, *, repair_age_ms: int | None = None
) -> StoredReport:
    """Compare the stored files of a table with the catalog; with an age, remove orphans that are older.

    Raises the store's errors, but in a storage with replicas a replica that is away gets a row. With an age, also
    raises the error of `catalog.clock_check` while the clock is in doubt.
    """
    if repair_age_ms is not None:
        catalog.clock_check.check_removal()
    return _Check(catalog, roots, clock, table).run(repair_age_ms)


@dataclass(frozen=True, slots=True)
class _Orphan:
    location: StoreRoot
    row: FileRow


class _Check:
    def __init__(self, catalog: Catalog, roots: Roots, clock: Clock, table: TableDef) -> None:
        self._catalog = catalog
        self._clock = clock
        self._table = table
        self._root = roots.of(table.uuid)
        #: Time before the catalog was read.
        self._began_ts = catalog.clock.now()
        self._named = NamedFiles(catalog.stored_files(table.uuid))
        self._traces: dict[int, TxnTrace] = {}
        self._report = StoredReport()
        self._orphans: list[_Orphan] = []
        self._age_ms: int | None = None

    def run(self, repair_age_ms: int | None) -> StoredReport:
        self._age_ms = repair_age_ms
        for replica, location in enumerate(self._root.locations):
            try:
                self._check_location(replica, location)
            except (TilthError, OSError) as error:
                raise_if_cancelled()
                if not self._root.replicas:
                    raise
                self._report.add(FileRow(state=FileState.AWAY, replica=replica, detail=str(error)))
        if repair_age_ms is not None:
            self._remove_orphans()
        return self._report

    def _check_location(self, replica: int, location: StoreRoot) -> None:
        folder = Folder(location, self._table.uuid)
        seen, size = np.zeros(len(self._named), np.bool_), 0
        for batch in _batches(list_files(folder), BATCH):
            raise_if_cancelled()
            names = [each.path.removeprefix("data/") for each in batch]
            # A sidecar counts as named if its part's file is.
            owners = self._named.indexes([part_of_sidecar(name) or name for name in names])
            for found, name, owner in zip(batch, names, owners, strict=True):
                if found.path == ".tilth":
                    continue
                if owner < 0 or "/" in name or name == found.path:
                    self._add_unknown(replica, location, found, name)
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

    def _add_unknown(self, replica: int, location: StoreRoot, found: StoredFile, name: str) -> None:
        named = read_file_name(name)
        row = FileRow(
            state=FileState.FOREIGN, replica=replica, file=found.path, bytes=found.size, modified_ms=found.modified_ms
        )
        if named is None or name == found.path or named.extension not in (*EXTENSIONS, *SIDECAR_EXTENSIONS):
            self._report.add(replace(row, detail="no transaction gives such a name: it is never removed"))
            return
        row, is_dead = _judge(replace(row, txn=named.txn), self._trace(named.txn), name, self._began_ts)
        if row.state is FileState.ORPHAN and named.extension in SIDECAR_EXTENSIONS:
            row = replace(row, state=FileState.SIDECAR)
        if is_dead and self._is_old(row) and len(self._orphans) < REMOVED_MAX:
            self._orphans.append(_Orphan(location, row))
        else:
            self._report.add(row)

    def _is_old(self, row: FileRow) -> bool:
        """Return whether the file, by the store's clock, and its transaction are old enough for a removal."""
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

    def _add_missing(self, replica: int, folder: Folder, missing: set[int]) -> None:
        """Add the files that the catalog still names and that are still missing after the listing."""
        if not missing:
            return
        notes = self._catalog.copies.of(self._table.uuid, replica=replica)
        noted = {"" if note.file is None else note.file.name for note in notes}
        stored = (thing for thing, is_leaving in self._catalog.stored_files(self._table.uuid) if not is_leaving)
        for batch in _batches(stored, NAMES_AT_ONCE):
            raise_if_cancelled()
            owners = self._named.indexes([thing.file.name for thing in batch])
            gone = [thing for thing, owner in zip(batch, owners, strict=True) if owner in missing]
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
        """Remove the orphans that the catalog, read once more, still does not name."""
        named = NamedFiles(self._catalog.stored_files(self._table.uuid)) if self._orphans else self._named
        for batch in _batches(self._orphans, NAMES_AT_ONCE):
            raise_if_cancelled()
            names = [each.row.file.removeprefix("data/") for each in batch]
            owners = named.indexes([part_of_sidecar(name) or name for name in names])
            going: dict[StoreRoot, list[str]] = {}
            for each, name, owner in zip(batch, names, owners, strict=True):
                if owner < 0 and self._may_go(each.row.txn, name):
                    going.setdefault(each.location, []).append(each.row.file)
            tried = {(location, path) for location, paths in going.items() for path in paths}
            failed = {
                (location, path): str(error)
                for location, paths in going.items()
                for path, error in remove_listed(Folder(location, self._table.uuid), paths).items()
            }
            for each in batch:
                key = each.location, each.row.file
                why = failed.get(key, "")
                is_removed = key in tried and not why
                self._report.removed += is_removed
                row = replace(each.row, is_removed=is_removed, detail=f"{each.row.detail}{why and f'; {why}'}")
                self._report.add(row)

    def _may_go(self, txn: int, name: str) -> bool:
        kept = self._catalog.transactions.tombstones.protected_files(txn, ())
        return kept is not None and (part_of_sidecar(name) or name) not in kept


def _judge(row: FileRow, trace: TxnTrace, name: str, began_ts: int) -> tuple[FileRow, bool]:
    """Return the row of an unnamed file with its state, and whether its transaction can never commit any more."""
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
    finished = trace.finished
    settled_ts = began_ts - pack(SETTLING_MS)
    if finished is not None and finished.commit_ts > settled_ts:
        return replace(row, state=FileState.RUNNING, detail=f"transaction {txn} has just committed"), False
    row = replace(row, state=FileState.ORPHAN)
    since_ms = trace.note.since_ms if isinstance(trace.note, Tombstone) else row.modified_ms
    if trace.is_committed:
        is_noted = trace.note is not None and name not in trace.note.keep
        then = "it goes by itself" if is_noted else "it is no longer named"
        return replace(row, since_ms=since_ms, detail=f"transaction {txn} has committed without it; {then}"), False
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
