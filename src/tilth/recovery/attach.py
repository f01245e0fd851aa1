"""Tables made of their files alone, without a journal.

Covers: which files count, the tables and parts that are made of them, what no file records. Does not cover: notes in
files (tilth.storage), listing (found.py), catalogs of a journal (rebuild.py).
Always holds: where the files record it, a part and the part that replaced it are never both in a table; no file is
removed or changed, new ones record which rows are deleted; each file that is not in a table, and each kind of thing
that no file records, is a line of the report.

Tests: tests/unit/recovery/test_files_alone.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from msgspec.structs import replace

from tilth.base.errors import CorruptError
from tilth.base.hybrid import pack
from tilth.catalog import AddDelta, Catalog, InsertPart
from tilth.model.part import DataFile, WrittenPart
from tilth.model.table import SchemaVersion, TableDef, full_name
from tilth.recovery.found import FoundFiles, TableFiles, WrittenBy, txn_of, without_sidecars, written_by
from tilth.recovery.report import FindingKind, RebuildNotes, RebuildOptions, RebuiltTable
from tilth.recovery.txn_notes import NotedTxns, TxnVerdict
from tilth.storage import (
    FILTER_EXTENSION,
    MAP_EXTENSION,
    DeltaWriter,
    Folder,
    FoundChanges,
    PartNote,
    RowIndexes,
    layout_of,
    output_of,
    read_note,
    read_unrecorded,
    whole_checksum,
)

#: Files that are read at a time.
READING_MAX = 8
#: Parts of one commit.
COMMIT_PARTS_MAX = 1000
#: Age before the newest file at which a transaction had ended and its failed files were removed: lost transactions
#: are aborted after ten minutes.
SETTLED_MS = 15 * 60_000
#: Extensions of files beside parts.
SIDECAR_EXTENSIONS = (MAP_EXTENSION, FILTER_EXTENSION)
#: Characters of the uuid in a table's name, if its own is in use.
_UUID_CHARS = 8

_NOT_SURE = "whether it was committed is not known: it was written just before the end; --uncommitted keep includes it"
_NOT_IN_FILES = (
    "Kafka tables, views and offsets are not in files: create them again, and set positions with SYSTEM RESET CONSUME "
    "OFFSET before rounds begin, or rows come twice",
    "drops are not in files: partitions, tables and rows that were dropped, or had expired, in the last hours are back "
    "where their files are still there",
    "files of transactions that failed after the last note of transactions, or more than a day before it, count as "
    "committed after 15 minutes; compare counts with the source of the rows",
    "storages are not in files: CREATE STORAGE those again that storage_policy of a table names",
    "tables without files, mutations under way, labels of inserts, warehouses, switches and reads of the past are not "
    "in files",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedFile:
    """A part's file with a note."""

    name: str
    size: int
    by: WrittenBy
    note: PartNote


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChoice:
    """Files that make a table, and why the others are not among them."""

    chosen: tuple[NotedFile, ...]
    #: Reasons by file name.
    left: Mapping[str, tuple[FindingKind, str]]
    #: Transactions whose files count.
    landed: frozenset[int]


def choose(
    files: Sequence[NotedFile],
    *,
    verdict: Callable[[int], TxnVerdict],
    changed: Collection[str] = (),
    keeps_uncommitted: bool = False,
) -> FileChoice:
    """Return which of a table's files make it. `verdict`: the state of a transaction (NotedTxns); `changed`: names of
    files with rows that other files delete.

    Transactions read committed files only. A file that another one names, as a source or in `changed`, was therefore
    committed, and so were its transaction and the attempt that wrote it. A file counts if its transaction is known to
    be committed, and not if it was aborted. Otherwise one that replaces others counts only if one of these is missing;
    if all exist, they count, with the same rows. A file that counts hides those that it replaces. Of several that
    replace the same file those of one transaction count: the key ranges of a merge, or one file.
    """
    left: dict[str, tuple[FindingKind, str]] = {}
    known = {source for file in files for source in file.note.sources}.union(changed)
    shown = [by for name in known if (by := written_by(name)) is not None]
    best = _attempts(files, shown)
    usable = {file.name: file for file in files if best[file.by.txn, file.by.task] == file.by.attempt}
    for file in files:
        if file.name not in usable:
            left[file.name] = FindingKind.LEFTOVER, "another attempt of its task wrote the same: it can be removed"
    named = {source for file in usable.values() for source in file.note.sources}
    landed = {by.txn for by in shown}
    hidden: dict[str, str] = {}
    made = Counter(file.by.txn for file in usable.values())
    counting: list[NotedFile] = []
    # Files that were read later come first, then those that were written later.
    for file in sorted(usable.values(), key=lambda file: (file.name in named, file.by), reverse=True):
        sources = file.note.sources
        if any(source in hidden and txn_of(hidden[source]) != file.by.txn for source in sources):
            left[file.name] = FindingKind.LEFTOVER, "another file replaced the same source: it can be removed"
            continue
        state = TxnVerdict.COMMITTED if file.by.txn in landed else verdict(file.by.txn)
        if state is TxnVerdict.ABORTED:
            left[file.name] = FindingKind.LEFTOVER, "its transaction was aborted: it can be removed"
            continue
        is_sure = state is TxnVerdict.COMMITTED
        # A merge that was cut and not committed may have written some of its ranges only.
        is_kept = keeps_uncommitted and (file.note.pieces == 1 or made[file.by.txn] >= file.note.pieces)
        if is_sure or (sources and not all(source in usable for source in sources)) or is_kept:
            counting.append(file)
            hidden |= dict.fromkeys(sources, file.name)
        elif sources:
            text = "it is not known whether it replaced other files: those are in the table, with the same rows"
            left[file.name] = FindingKind.LEFTOVER, text
        else:
            left[file.name] = FindingKind.UNKNOWN, _NOT_SURE
    for file in counting:
        if file.name in hidden:
            text = f"its rows are in {hidden[file.name]}, which replaced it: it can be removed"
            left[file.name] = FindingKind.LEFTOVER, text
    return FileChoice(
        chosen=tuple(sorted((file for file in counting if file.name not in hidden), key=lambda file: file.by)),
        left=left,
        landed=frozenset(file.by.txn for file in counting),
    )


def _attempts(files: Sequence[NotedFile], shown: Iterable[WrittenBy]) -> dict[tuple[int, int], int]:
    """Return by transaction and task the attempt that was committed, if it is one of `shown`; else the one that wrote
    the most files, and of several the last one.
    """
    counts = Counter((file.by.txn, file.by.task, file.by.attempt) for file in files)
    ordered = sorted(counts.items(), key=lambda item: (item[1], item[0]))
    most = {(txn, task): attempt for (txn, task, attempt), _ in ordered}
    return most | {(by.txn, by.task): by.attempt for by in shown}


@dataclass(frozen=True, slots=True)
class _TableFound:
    """Files of one table that have notes."""

    files: TableFiles
    noted: list[NotedFile]
    #: Changes by file name.
    changes: dict[str, FoundChanges]


class Attach:
    """Steps that add the tables of existing files to an empty catalog."""

    def __init__(
        self, catalog: Catalog, found: FoundFiles, noted: NotedTxns, report: RebuildNotes, options: RebuildOptions
    ) -> None:
        self._catalog = catalog
        self._found = found
        self._report = report
        self._options = options
        self._verdict = partial(noted.verdict, settled_before=found.newest_txn - pack(SETTLED_MS))

    def run(self) -> None:
        self._catalog.transactions.pass_over(self._found.newest_txn)
        read = [self._read(uuid, files) for uuid, files in self._found.tables.items()]
        # The later one of two tables with one name has it.
        with_parts = [each for each in read if each.noted]
        for each in sorted(with_parts, key=lambda each: _newest(each.noted).by, reverse=True):
            self._make(each)
        for text in _NOT_IN_FILES:
            self._report.note(FindingKind.NOT_IN_FILES, text)

    def _read(self, uuid: str, files: TableFiles) -> _TableFound:
        """Return the files of a table that have notes; report the others."""
        names = without_sidecars(files.sizes)
        with ThreadPoolExecutor(READING_MAX, thread_name_prefix="rebuild") as pool:
            notes = list(pool.map(partial(_read_own_note, files.folder), names))
        found = _TableFound(files, [], {})
        others: list[tuple[FindingKind, str, str]] = []
        for name, note in zip(names, notes, strict=True):
            by = written_by(name)
            if isinstance(note, FoundChanges):
                found.changes[name] = note
            elif not isinstance(note, PartNote):
                others.append((note[0], name, note[1]))
            elif by is None or note.table.uuid != uuid:
                others.append((FindingKind.FOREIGN, name, "its note names another table: it is not touched"))
            else:
                found.noted.append(NotedFile(name=name, size=files.sizes[name], by=by, note=note))
        table = full_name(_newest(found.noted).note.table) if found.noted else ""
        for kind, name, text in others:
            self._report.note(kind, text, table=table, file=files.folder.uri(name))
        return found

    def _make(self, found: _TableFound) -> None:
        files, noted = found.files, found.noted
        keeps = self._options.keeps_uncommitted
        # A transaction may delete rows of its own files, committed or not.
        changed = {
            target for name, each in found.changes.items() for target in each.deletes if txn_of(target) != txn_of(name)
        }
        choice = choose(noted, verdict=self._verdict, changed=changed, keeps_uncommitted=keeps)
        table = self._create_table(noted)
        with ThreadPoolExecutor(READING_MAX, thread_name_prefix="rebuild") as pool:
            written = list(pool.map(partial(_checked_part, files.folder), choice.chosen))
        parts = [
            InsertPart(table=table.uuid, written=each, schema_version=file.note.shape.version)
            for file, each in zip(choice.chosen, written, strict=True)
        ]
        for first in range(0, len(parts), COMMIT_PARTS_MAX):
            self._catalog.transactions.apply("rebuild", parts[first : first + COMMIT_PARTS_MAX])
        rows = {file.name: file.note.rows for file in noted}
        for name, (kind, text) in sorted(choice.left.items()):
            uri = files.folder.uri(name)
            self._report.note(kind, text, table=full_name(table), file=uri, rows=rows[name])
        deleted = self._delete(table, found, choice)
        snapshot = self._catalog.parts.snapshot(table.uuid)
        left = sum(part.rows for part in snapshot.parts) - deleted
        self._report.tables.append(RebuiltTable(name=full_name(table), rows=left, parts=len(snapshot.parts)))

    def _delete(self, table: TableDef, found: _TableFound, choice: FileChoice) -> int:
        """Apply the deletes of files with changes to the parts that exist; return how many rows.

        A deleted row stays deleted, however many files delete it; together they show which rows are gone.
        """
        gone: dict[str, list[RowIndexes]] = {}
        for name, changes in sorted(found.changes.items()):
            txn = txn_of(name) or 0
            state = TxnVerdict.COMMITTED if txn in choice.landed else self._verdict(txn)
            uri = found.files.folder.uri(name)
            if state is TxnVerdict.ABORTED:
                text = "its transaction was aborted: it can be removed"
                self._report.note(FindingKind.LEFTOVER, text, table=full_name(table), file=uri)
                continue
            if state is TxnVerdict.UNKNOWN and not self._options.keeps_uncommitted:
                self._report.note(FindingKind.UNKNOWN, _NOT_SURE, table=full_name(table), file=uri)
                continue
            for file, rows in changes.deletes.items():
                gone.setdefault(file, []).append(rows)
            if changes.has_updates:
                text = (
                    "its new values are not applied: rows that it updates are as they were when their part was written"
                )
                self._report.note(FindingKind.CHANGES, text, table=full_name(table), file=uri)
        deletes = [(file, np.unique(np.concatenate(gone[file.name]))) for file in choice.chosen if file.name in gone]
        if deletes and not self._options.is_dry_run:
            self._write_deletes(table, found.files.folder, deletes)
        return sum(len(rows) for _, rows in deletes)

    def _write_deletes(self, table: TableDef, folder: Folder, deletes: Sequence[tuple[NotedFile, RowIndexes]]) -> None:
        outputs = [output_of(table, folder.root, tasks=1)]
        with self._catalog.transactions.open("rebuild", outputs=outputs) as handle:
            with DeltaWriter(layout_of(table, folder.root), txn=handle.id, task=0, attempt=0) as out:
                written = [out.deletes(file.note.partition, file.name, rows) for file, rows in deletes]
            handle.commit([AddDelta(table=table.uuid, written=each) for each in written])

    def _create_table(self, noted: Sequence[NotedFile]) -> TableDef:
        """Create the table from the note of its newest file, with the columns that other files have."""
        newest = _newest(noted).note.table
        shapes: dict[int, SchemaVersion] = {file.note.shape.version: file.note.shape for file in noted}
        older = tuple(shapes[version] for version in sorted(shapes) if version != newest.schema_version)
        table = replace(newest, older_schemas=older)
        tables = self._catalog.tables
        tables.create_database(table.database, if_not_exists=True)
        if tables.find(table.database, table.name) is not None:
            name = f"{table.name}_{table.uuid[:_UUID_CHARS]}"
            text = f"there are files of two tables of this name: this one, which is older, is `{name}` now"
            self._report.note(FindingKind.NOT_IN_FILES, text, table=full_name(table))
            table = replace(table, name=name)
        tables.create(table, may_lack_storage=True)
        return table


def _newest(noted: Collection[NotedFile]) -> NotedFile:
    return max(noted, key=lambda file: (file.note.table.schema_version, file.by))


def _read_own_note(folder: Folder, name: str) -> PartNote | FoundChanges | tuple[FindingKind, str]:
    """Read the note in a file; without one, return the kind of the file and a text for the report."""
    if name.endswith(SIDECAR_EXTENSIONS):
        return FindingKind.LEFTOVER, "the part that it lay beside is not there: it can be removed"
    try:
        note = None if name.endswith(".puffin") else read_note(folder, name)
        changes = read_unrecorded(folder, name) if note is None else None
    except FileNotFoundError:
        return FindingKind.LEFT_OUT, "it was removed meanwhile"
    except CorruptError as error:
        return FindingKind.LEFT_OUT, f"it is damaged, or was never ended: {error.message}"
    text = "it has no note of its table; its rows are left out"
    return note or changes or (FindingKind.LEFT_OUT, text)


def _checked_part(folder: Folder, file: NotedFile) -> WrittenPart:
    size, checksum = whole_checksum(folder, file.name)
    note = file.note
    return WrittenPart(
        partition=note.partition,
        values=note.values,
        rows=note.rows,
        file=DataFile(name=file.name, size=size, checksum=checksum, is_filterable=note.is_filterable),
        ranges=note.ranges,
        is_segment=file.name.endswith(".arrow"),
    )
