"""Notes beside the files of tables: which transactions are not committed, for the day when the catalog is lost.

    ROOT/catalog-transactions/SERVER-0, SERVER-1       the last two notes of a server, the newer one over the older one

Covers: writing them while a node works, finding and reading them, the states of transactions in them. Does not cover:
which files make a table (attach.py).
Always holds: no commit waits for a note; nothing is written while no transaction begins or ends; a note that is damaged
says nothing.

Tests: tests/unit/recovery/test_files_alone.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from urllib.parse import quote

import msgspec

from tilth.base.clock import Clock
from tilth.base.hybrid import pack
from tilth.base.logs import Log
from tilth.catalog import Catalog
from tilth.recovery.background_writer import BackgroundWriter
from tilth.storage import Folder, StoreRoot, list_files, make_folder, put, read_file

#: Pause between two notes.
NOTE_SECONDS = 60.0
#: Maximum pause between tries that fail.
PAUSE_SECONDS_MAX = 900.0
#: Maximum time between drawing a transaction's id and recording it, unless its server was stopped in between.
BEGIN_MS_MAX = 60_000
#: Maximum ids in a note, the newest ones: some 9 bytes each.
IDS_MAX = 100_000

_log = Log("recovery")


class TxnVerdict(Enum):
    """The state of a transaction as notes show it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class TxnNote(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Transactions that a catalog had and that were not committed."""

    #: Each transaction with an id below it, and from `first`, is listed, or was committed, or has left no file.
    as_of: int
    first: int
    running: tuple[int, ...]
    aborted: tuple[int, ...]


class NotedTxns:
    """All notes that were found."""

    def __init__(self, notes: Iterable[TxnNote] = ()) -> None:
        found = sorted(notes, key=lambda note: note.as_of)
        self._aborted = frozenset(txn for note in found for txn in note.aborted)
        self._last = found[-1] if found else None

    def verdict(self, txn: int, settled_before: int) -> TxnVerdict:
        """Return the state of a transaction. Where no note shows it, one below `settled_before` counts as committed."""
        last = self._last
        if txn in self._aborted:
            return TxnVerdict.ABORTED
        if last is not None and last.first <= txn < last.as_of and txn not in last.running:
            return TxnVerdict.COMMITTED
        if last is not None and settled_before <= last.as_of and txn in last.running:
            return TxnVerdict.UNKNOWN
        return TxnVerdict.COMMITTED if txn < settled_before else TxnVerdict.UNKNOWN


def notes_folder(root: StoreRoot) -> Folder:
    return Folder(root, "catalog-transactions")


def find_txn_notes(roots: Sequence[StoreRoot]) -> NotedTxns:
    """Read all notes below the roots. Raises the errors of a store that does not answer."""
    notes = []
    for root in roots:
        folder = notes_folder(root)
        for name, *_ in list_files(folder):
            try:
                notes.append(msgspec.msgpack.decode(read_file(folder, name), type=TxnNote))
            except (msgspec.MsgspecError, FileNotFoundError) as error:
                # It was cut off by the end of its server, which has left the one before.
                _log.warning("note_of_transactions_not_read", file=folder.uri(name), reason=error)
    return NotedTxns(notes)


class TxnNotes(BackgroundWriter):
    """Writes the notes of one server from a thread of its own, while transactions begin or end."""

    def __init__(self, clock: Clock, catalog: Catalog, root: StoreRoot, *, server: str) -> None:
        super().__init__(
            clock,
            notes_folder(root),
            name="transaction_notes",
            first_seconds=NOTE_SECONDS,
            seconds=NOTE_SECONDS,
            pause_seconds_max=PAUSE_SECONDS_MAX,
        )
        self._catalog = catalog
        self._server = server
        self._last: TxnNote | None = None
        self._number = 0

    def _write(self) -> None:
        note = self._note()
        if note is not None:
            make_folder(self._folder, fsync=False)
            put(self._folder, f"{quote(self._server, safe='')}-{self._number % 2}", msgspec.msgpack.encode(note))
            self._last, self._number = note, self._number + 1

    def _note(self) -> TxnNote | None:
        # A clock that is ahead would vouch for transactions that are still to begin.
        if self._catalog.clock_check.removal_error() is not None:
            return None
        as_of = pack(self._clock.now_ms() - BEGIN_MS_MAX)
        found = self._catalog.transactions.not_committed(IDS_MAX)
        last = self._last
        if (
            last is not None
            and (last.running, last.aborted) == (found.running, found.aborted)
            and found.newest < last.as_of
        ):
            return None
        return TxnNote(as_of=as_of, first=found.first, running=found.running, aborted=found.aborted)
