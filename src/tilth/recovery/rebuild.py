"""A catalog that was lost, made again of what lies beside the files of tables, and compared with these files.

Covers: the steps, and with a journal what is left out, the report on other files. Does not cover: reading a
journal (journals.py), listing (found.py), tables of files alone (attach.py).
Always holds: with a journal no row exists twice, because what no record of a commit names is not in the catalog; no
file is removed or changed; each thing that is not known is a line of the report. What rounds of consumers wrote after
the journal's end is read from the topics again, because the offsets are of the same time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tilth.base.clock import SystemClock
from tilth.base.errors import CorruptError, InvalidInputError
from tilth.base.hybrid import pack
from tilth.base.ids import random_id
from tilth.base.secrets import HIDDEN
from tilth.catalog import Catalog, ReplaceParts, RocksKV
from tilth.model.delta import by_file, deleted_rows
from tilth.model.part import DataFile, Part
from tilth.model.snapshot import Snapshot
from tilth.model.table import KafkaDef, TableDef, full_name
from tilth.model.txn import TxnState
from tilth.recovery.attach import Attach
from tilth.recovery.found import FoundFiles, TableFiles, find_files, txn_of, without_sidecars
from tilth.recovery.journals import LoadedJournal, find_journals, load_journal, usable_journal
from tilth.recovery.report import FindingKind, RebuildNotes, RebuildOptions, RebuildReport, RebuiltTable
from tilth.recovery.restore import check_no_catalog, new_catalog
from tilth.recovery.txn_notes import find_txn_notes
from tilth.storage import Folder, check_file, local_root, parse_root

#: Maximum number of files read at a time.
READING_MAX = 8
#: Maximum trash items read at a time.
TRASH_ITEMS_MAX = 1000
#: A transaction that began earlier than this before the journal's end, and that the journal does not know, had ended.
BEGUN_MS_MAX = 60_000


def rebuild_catalog(locations: Sequence[str], folder: Path, options: RebuildOptions) -> RebuildReport:
    """Make the catalog of a node's folder of the journal and the files below the roots, or of the files alone where
    there is no journal; report what is not known.

    `locations`: the roots, folders or addresses with options. Raises BadStoreError, CatalogExistsError where the folder
    has a catalog, InvalidInputError (NOTHING_TO_REBUILD), FolderError, and the errors of a store that does not answer:
    then nothing was made.
    """
    check_no_catalog(folder)
    roots = [parse_root(each) if "://" in each else local_root(Path(each).absolute()) for each in locations]
    journal, damaged = usable_journal([] if options.is_files_only else find_journals(roots))
    clock, report = SystemClock(), RebuildNotes()
    found = find_files(roots, now_ms=clock.now_ms())
    if journal is None and not found.tables:
        hint = "give the root that the node had with --root, or restore a backup: tilth catalog restore"
        raise InvalidInputError.coded(
            "NOTHING_TO_REBUILD",
            "there are neither a journal nor files of tables below these roots",
            damaged_journals=", ".join(damaged) or "none",
            hint=hint,
        )
    for file in damaged:
        report.note(FindingKind.JOURNAL, "it is damaged: what is older was read instead", file=file)
    known_until_ms = 0
    with _trial() if options.is_dry_run else new_catalog(folder) as store:
        if journal is None:
            catalog = Catalog(store, clock, "rebuild", random_id)
            Attach(catalog, found, find_txn_notes(roots), report, options).run()
        else:
            loaded = load_journal(journal, store)
            known_until_ms = loaded.known_until_ms
            catalog = Catalog(store, clock, "rebuild", random_id)
            _Rebuild(catalog, found, loaded, report, is_quick=options.is_quick).run()
        for file in found.foreign:
            report.note(FindingKind.FOREIGN, "Tilth did not write this file: it is left alone", file=file)
        with store.view() as view:
            records = sum(1 for _ in view.scan(b"\x01", None))
    return RebuildReport(
        known_until_ms=known_until_ms,
        records=records,
        is_dry_run=options.is_dry_run,
        tables=tuple(report.tables),
        findings=tuple(report.findings),
    )


class _Rebuild:
    """Steps that bring a catalog from the journal's end to the existing files."""

    def __init__(
        self, catalog: Catalog, found: FoundFiles, loaded: LoadedJournal, report: RebuildNotes, *, is_quick: bool
    ) -> None:
        self._catalog = catalog
        self._found = found
        self._loaded = loaded
        self._is_quick = is_quick
        #: Transactions that were under way, with who worked.
        self._open: dict[int, str] = {}
        self._report = report

    def run(self) -> None:
        if self._loaded.trouble:
            text = f"what changed after {self._end} is not known: {self._loaded.trouble}"
            self._report.note(FindingKind.JOURNAL, text)
        self._end_transactions()
        relations = self._catalog.tables.all()
        dropped = [each.relation for each in self._catalog.tables.dropped()]
        for relation in relations:
            if isinstance(relation, TableDef):
                self._rebuild_table(relation)
            elif isinstance(relation, KafkaDef):
                self._check_secrets(relation)
        for each in dropped:
            if isinstance(each, TableDef):
                self._check_others(each, self._files_of(each), set())
        known = {each.uuid for each in (*relations, *dropped)}
        for uuid, files in self._found.tables.items():
            if uuid not in known:
                text = f"{len(files.sizes)} files of a table that the journal does not know: nothing of it is rebuilt"
                self._report.note(FindingKind.UNKNOWN_TABLE, text, file=str(files.folder))

    @property
    def _end(self) -> str:
        return f"{datetime.fromtimestamp(self._loaded.known_until_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"

    def _end_transactions(self) -> None:
        """Forget transactions that may have landed after the journal's end: nobody may remove their files."""
        transactions = self._catalog.transactions
        transactions.pass_over(max(self._found.newest_txn, pack(self._loaded.known_until_ms)))
        for txn in transactions.unfinished():
            if txn.state is TxnState.RUNNING:
                self._open[txn.id] = txn.actor
                transactions.abort(txn.id, "the catalog was rebuilt while it ran")
                transactions.forget(txn.id)

    def _files_of(self, table: TableDef) -> TableFiles | None:
        return self._found.tables.get(table.uuid)

    def _rebuild_table(self, table: TableDef) -> None:
        files = self._files_of(table)
        snapshot = self._catalog.parts.snapshot(table.uuid)
        wrong = self._wrong_files(
            files, [*(each.file for each in snapshot.parts), *(each.file for each in snapshot.deltas)]
        )
        for part in snapshot.parts:
            if part.file.name in wrong:
                self._leave_out(snapshot, part, wrong[part.file.name])
        # Deltas of parts that are left out have ended with them.
        for delta in self._catalog.parts.deltas(table.uuid):
            if delta.file.name in wrong:
                text = (
                    f"{wrong[delta.file.name]}: rows whose changes it has cannot be read; put it back, or give up the "
                )
                self._report.note(
                    FindingKind.UNREADABLE,
                    f"{text}partition with ALTER TABLE .. DROP PARTITION",
                    table=full_name(table),
                    file=_address(files, delta.file.name),
                )
        self._check_others(table, files, wrong.keys())
        rebuilt = self._catalog.parts.snapshot(table.uuid)
        self._report.tables.append(RebuiltTable(name=full_name(table), rows=rebuilt.rows, parts=len(rebuilt.parts)))

    def _wrong_files(self, files: TableFiles | None, wanted: Sequence[DataFile]) -> dict[str, str]:
        """Return by name what is wrong with files that are missing, or are not what was written."""
        if files is None:
            return {file.name: "it is not there" for file in wanted}
        wrong: dict[str, str] = {}
        there: list[DataFile] = []
        for file in wanted:
            size = files.sizes.get(file.name)
            if size is None:
                wrong[file.name] = "it is not there"
            elif size != file.size:
                wrong[file.name] = f"it is damaged: it has {size} bytes, {file.size} were written"
            else:
                there.append(file)
        if not self._is_quick:
            with ThreadPoolExecutor(READING_MAX, thread_name_prefix="rebuild") as pool:
                damages = pool.map(partial(_damage, files.folder), there)
                wrong |= {file.name: damage for file, damage in zip(there, damages, strict=True) if damage}
        return wrong

    def _leave_out(self, snapshot: Snapshot, part: Part, reason: str) -> None:
        table = snapshot.table
        deltas = by_file(snapshot.deltas).get(part.file.name, ())
        change_ts = max((delta.change_ts for delta in deltas), default=0)
        update = ReplaceParts(
            table=table.uuid,
            sources=(part.name,),
            written=None,
            reason=f"rebuild: {reason}",
            seen=((part.file.name, change_ts),),
            event="remove_deleted",
        )
        self._catalog.transactions.apply("rebuild", [update])
        self._report.note(
            FindingKind.LEFT_OUT,
            f"{reason}: the rows of part {part.name} are left out",
            table=full_name(table),
            file=_address(self._files_of(table), part.file.name),
            rows=part.rows - deleted_rows(part.file.name, deltas),
        )

    def _check_others(self, table: TableDef, files: TableFiles | None, reported: Collection[str]) -> None:
        """Report files that only the past needs and that are not there, and files that no record names."""
        known = _known_files(self._catalog, table)
        there = {} if files is None else files.sizes
        for name in sorted(known - there.keys() - set(reported)):
            text = "it is not there: reads of the past and UNDROP that need it fail"
            self._report.note(FindingKind.PAST, text, table=full_name(table), file=_address(files, name))
        landed = {txn_of(name) for name in known}
        for name in without_sidecars(there.keys() | known):
            txn = txn_of(name)
            if name not in known and txn is not None:
                kind, text = self._judge(txn, is_landed=txn in landed)
                self._report.note(kind, text, table=full_name(table), file=_address(files, name))

    def _judge(self, txn: int, *, is_landed: bool) -> tuple[FindingKind, str]:
        """Return what a file is that no record names."""
        if is_landed:
            return FindingKind.LEFTOVER, "a failed attempt of work that landed wrote it: it can be removed"
        actor = self._open.get(txn)
        if actor is not None:
            text = f"`{actor}` was under way at {self._end}: whether it was committed later is not known"
            return FindingKind.UNKNOWN, text
        if txn > pack(max(0, self._loaded.known_until_ms - BEGUN_MS_MAX)):
            return FindingKind.UNKNOWN, f"whether its work was committed after {self._end} is not known"
        return FindingKind.LEFTOVER, "its work was over long before, and no record names it: it can be removed"

    def _check_secrets(self, kafka: KafkaDef) -> None:
        hidden = [name for name, text in kafka.settings.items() if HIDDEN in text]
        if hidden:
            text = f"secrets are not written beside files: ALTER TABLE .. MODIFY SETTING {', '.join(sorted(hidden))}"
            self._report.note(FindingKind.SECRETS, text, table=full_name(kafka))


def _known_files(catalog: Catalog, table: TableDef) -> set[str]:
    """Return the names of all files that records of the table name."""
    known = {entry.file.name for entry in catalog.parts.all_entries(table.uuid) if isinstance(entry, Part)}
    known |= {delta.file.name for delta in catalog.parts.deltas(table.uuid, is_all=True)}
    after: bytes | None = None
    while True:
        items, after = catalog.trash.items(table.uuid, after=after, limit=TRASH_ITEMS_MAX)
        known |= {each.item.part.file.name for each in items}
        if after is None:
            return known


def _damage(folder: Folder, file: DataFile) -> str:
    """Read a file; return what is wrong with it, empty where nothing is."""
    try:
        check_file(folder, file)
    except CorruptError as error:
        return f"it is damaged: {error.message}"
    return ""


def _address(files: TableFiles | None, name: str) -> str:
    return name if files is None else files.folder.uri(name)


@contextmanager
def _trial() -> Iterator[RocksKV]:
    """Open an empty store that nobody keeps."""
    with tempfile.TemporaryDirectory() as folder, closing(RocksKV(str(Path(folder) / "catalog"))) as store:
        yield store
