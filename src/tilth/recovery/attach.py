"""Tables made of their files alone, where no journal says what was true.

Covers: which files count, the tables and parts that are made of them, what no file says. Does not cover: notes in files
(tilth.storage), listing (found.py), catalogs of a journal (rebuild.py).
Always holds: a part and what took its place are never both in a table where the files say so; no file is removed or
changed; each file that is not in a table, and each kind of thing that no file says, is a line of the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from tilth.base.errors import CorruptError
from tilth.base.hybrid import pack
from tilth.catalog import Catalog, InsertPart
from tilth.model.part import DataFile, WrittenPart
from tilth.model.table import SchemaVersion, TableDef, full_name
from tilth.recovery.found import FoundFiles, TableFiles, WrittenBy, without_sidecars, written_by
from tilth.recovery.report import FindingKind, RebuiltTable, RebuildNotes
from tilth.storage import Folder, PartNote, checksum_of, read_note

#: Files that are read at a time.
READING_MAX = 8
#: Parts of one commit.
COMMIT_PARTS_MAX = 1000
#: Work that began so long before the newest file was over by then, and what failed of it was removed: lost work is
#: given up after ten minutes.
SETTLED_MS = 15 * 60_000
#: Of the uuid, in the name of a table whose own is taken.
_UUID_CHARS = 8

_NOT_IN_FILES = (
    "Kafka tables, views and offsets are not in files: create them again, and set positions with SYSTEM RESET CONSUME "
    "OFFSET before rounds begin, or rows come twice",
    "drops are not in files: partitions, tables and rows that were dropped, or had expired, in the last hours are back "
    "where their files are still there",
    "tables without files, mutations under way, labels of inserts, warehouses, switches and reads of the past are not "
    "in files",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedFile:
    """A part's file that says what it is."""

    name: str
    size: int
    by: WrittenBy
    note: PartNote


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChoice:
    """Files that make a table, and why the others are not among them."""

    taken: tuple[NotedFile, ...]
    #: By name.
    left: Mapping[str, tuple[FindingKind, str]]


def choose(files: Sequence[NotedFile], *, settled_before: int, keeps_uncommitted: bool = False) -> FileChoice:
    """Return which of a table's files make it.

    A file counts where its work was over for sure (`settled_before`), or where another file says that it came in its
    place. One that came in the place of others hides them where it counts, or where one of them is not there any more;
    else they are taken instead, which have the same rows.
    """
    left: dict[str, tuple[FindingKind, str]] = {}
    best = _attempts(files)
    usable = {file.name: file for file in files if best[file.by.txn, file.by.task] == file.by.attempt}
    for file in files:
        if file.name not in usable:
            left[file.name] = FindingKind.LEFTOVER, "another attempt of its task wrote the same: it can be removed"
    named = {source for file in usable.values() for source in file.note.sources}
    hidden: dict[str, str] = {}
    counting: list[NotedFile] = []
    for file in sorted(usable.values(), key=lambda file: file.by):
        sources = file.note.sources
        is_sure = file.by.txn < settled_before or file.name in named
        if is_sure or (sources and not all(source in usable for source in sources)) or keeps_uncommitted:
            counting.append(file)
            hidden |= dict.fromkeys(sources, file.name)
        elif sources:
            text = "whether it took the place of others is not known: those are in the table, with the same rows"
            left[file.name] = FindingKind.LEFTOVER, text
        else:
            text = (
                "whether it was committed is not known: it was written just before the end; --uncommitted keep takes it"
            )
            left[file.name] = FindingKind.UNKNOWN, text
    for file in counting:
        if file.name in hidden:
            text = f"its rows are in {hidden[file.name]}, which came in its place: it can be removed"
            left[file.name] = FindingKind.LEFTOVER, text
    return FileChoice(taken=tuple(file for file in counting if file.name not in hidden), left=left)


def _attempts(files: Sequence[NotedFile]) -> dict[tuple[int, int], int]:
    """Return by transaction and task the attempt that wrote the most files; of several, the last one."""
    counts = Counter((file.by.txn, file.by.task, file.by.attempt) for file in files)
    ordered = sorted(counts.items(), key=lambda item: (item[1], item[0]))
    return {(txn, task): attempt for (txn, task, attempt), _ in ordered}


class Attach:
    """A catalog without tables on its way to one with those whose files are there."""

    def __init__(self, catalog: Catalog, found: FoundFiles, report: RebuildNotes, *, keeps_uncommitted: bool) -> None:
        self._catalog = catalog
        self._found = found
        self._report = report
        self._keeps_uncommitted = keeps_uncommitted

    def run(self) -> None:
        newest = self._found.newest_txn
        self._catalog.transactions.pass_over(newest)
        read = {uuid: self._read(uuid, files) for uuid, files in self._found.tables.items()}
        # Of two tables with one name the later one has it.
        for noted in sorted(filter(None, read.values()), key=lambda noted: _newest(noted).by, reverse=True):
            files = self._found.tables[noted[0].note.table.uuid]
            self._make(files, noted, settled_before=newest - pack(SETTLED_MS))
        for text in _NOT_IN_FILES:
            self._report.note(FindingKind.NOT_IN_FILES, text)

    def _read(self, uuid: str, files: TableFiles) -> list[NotedFile]:
        """Return the files of a table that say what they are; report the others."""
        names = without_sidecars(files.sizes)
        with ThreadPoolExecutor(READING_MAX, thread_name_prefix="rebuild") as pool:
            notes = list(pool.map(partial(_note_of, files.folder), names))
        noted: list[NotedFile] = []
        others: list[tuple[FindingKind, str, str]] = []
        for name, note in zip(names, notes, strict=True):
            by = written_by(name)
            if isinstance(note, PartNote) and by is not None and note.table.uuid == uuid:
                noted.append(NotedFile(name=name, size=files.sizes[name], by=by, note=note))
            elif isinstance(note, PartNote):
                others.append((FindingKind.FOREIGN, name, "it says that it is of another table: it is left alone"))
            else:
                others.append((note[0], name, note[1]))
        table = full_name(_newest(noted).note.table) if noted else ""
        for kind, name, text in others:
            self._report.note(kind, text, table=table, file=files.folder.uri(name))
        return noted

    def _make(self, files: TableFiles, noted: Sequence[NotedFile], *, settled_before: int) -> None:
        choice = choose(noted, settled_before=settled_before, keeps_uncommitted=self._keeps_uncommitted)
        table = self._created(noted)
        with ThreadPoolExecutor(READING_MAX, thread_name_prefix="rebuild") as pool:
            written = list(pool.map(partial(_written, files.folder), choice.taken))
        parts = [
            InsertPart(table=table.uuid, written=each, schema_version=file.note.shape.version)
            for file, each in zip(choice.taken, written, strict=True)
        ]
        for first in range(0, len(parts), COMMIT_PARTS_MAX):
            self._catalog.transactions.apply("rebuild", parts[first : first + COMMIT_PARTS_MAX])
        rows = {file.name: file.note.rows for file in noted}
        for name, (kind, text) in sorted(choice.left.items()):
            uri = files.folder.uri(name)
            self._report.note(kind, text, table=full_name(table), file=uri, rows=rows[name])
        snapshot = self._catalog.parts.snapshot(table.uuid)
        self._report.tables.append(RebuiltTable(name=full_name(table), rows=snapshot.rows, parts=len(snapshot.parts)))

    def _created(self, noted: Sequence[NotedFile]) -> TableDef:
        """Create the table as its newest file says, with the columns that other files have."""
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
        tables.create(table)
        return table


def _newest(noted: Collection[NotedFile]) -> NotedFile:
    return max(noted, key=lambda file: (file.note.table.schema_version, file.by))


def _note_of(folder: Folder, name: str) -> PartNote | tuple[FindingKind, str]:
    """Read what a file says of itself; else return the kind of the file and a text for the report."""
    changes = "it has changes of rows, which are not applied: rows that it deletes or replaces are back as they were"
    if name.endswith(".puffin"):
        return FindingKind.CHANGES, changes
    try:
        note = read_note(folder, name)
    except CorruptError as error:
        return FindingKind.LEFT_OUT, f"it is damaged, or was never ended: {error.message}"
    if note is None:
        text = f"it does not say what it is: an older version wrote it, or {changes}"
        return FindingKind.CHANGES, text
    return note


def _written(folder: Folder, file: NotedFile) -> WrittenPart:
    size, checksum = checksum_of(folder, file.name)
    note = file.note
    return WrittenPart(
        partition=note.partition,
        values=note.values,
        rows=note.rows,
        file=DataFile(name=file.name, size=size, checksum=checksum, is_filterable=note.is_filterable),
        ranges=note.ranges,
        is_segment=file.name.endswith(".arrow"),
    )
