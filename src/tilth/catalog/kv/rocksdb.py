"""The embedded key-value store: RocksDB, owned by one process.

Covers: opening, locking, durable batches, what happens after a failed write. Does not cover: several processes.
Always holds: one write at a time, and nobody sees it before it is on the disk; a value is its commit's sequence number
(8 bytes, big-endian) and then the bytes given; the newest sequence number is written in each batch, so it survives a
restart and shows whether a batch landed.

A write puts its batch into the log and into memory, then it syncs the log. Readers wait meanwhile, at a gate.

- If the batch cannot be put into the log, memory does not have it. The database is opened anew as soon as its folder
  can be written; until then it stays open for reading, so that everything else can be read while the disk is full.
- If the log cannot be synced, or a panic or an interrupt ends the write, memory has what the disk may not have. Nobody
  reads that database again: until it can be opened anew, each read and write raises why it cannot. Opening writes what
  is left of the log to files and syncs them, and decides whether the batch has landed.

Views that are open when it is opened anew end with an error that may be tried again: RocksDB is not opened a second
time while one of them holds it.

Tests: tests/integration/catalog/test_rocksdb_kv.py.
"""

from __future__ import annotations

import copy
import fcntl
import os
import struct
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    WriteBatch,
    WriteOptions,
)

from tilth.base.errors import CorruptError, TilthError, UnavailableError
from tilth.base.full import ROOM_BYTES_MIN, free_bytes, full_error, store_full
from tilth.base.logs import Log
from tilth.base.units import MIB
from tilth.catalog.errors import NewerFormatError, StoreClosedError, StoreIOError, StoreLockedError
from tilth.catalog.kv.incarnation import ONLY
from tilth.catalog.kv.protocol import (
    FIRST_KEY,
    Absent,
    Commit,
    Conflict,
    KVOutcome,
    Landed,
    Precondition,
    ReadView,
    TimeReached,
    Unknown,
    Versioned,
    ViewUse,
    outcome_of,
)

_SEQUENCE_KEY = b"\x00sequence"
_FORMAT_KEY = b"\x00format"
_FORMAT = 1
_U64 = struct.Struct(">Q")
#: Memory that writes gather in before they become a file, twice: one fills while the other is written.
_WRITE_BUFFER_BYTES = 16 * MIB
_WAL_BYTES_MAX = 64 * MIB
_BLOCK_BYTES = 16 << 10
_BLOOM_BITS = 10
_OPEN_FILES_MAX = 512
#: Written and synced to see whether the folder can be written.
_PROBE_BYTES = 64 << 10
#: Attempts to open a database that a reader still holds inside one call, and the pause between them.
_OPEN_TRIES_MAX = 40
_OPEN_TRY_SECONDS = 0.05

#: `struct flock` of Linux: kind, whence, start, length, process.
_FLOCK = struct.Struct("hhqqi4x")
#: Files of a database that a reader does not need.
_NOT_READ = ("LOCK", "LOG", "rocksdict-config.json")

_log = Log("catalog")


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksFacts:
    """Facts about a database that were read from outside."""

    #: Process that has it open; 0: none has; -1: one that this process cannot see, as of another container.
    holder: int = 0


class _Gate:
    """Makes readers wait for the end of a write, and lets each of them pass before the next write."""

    def __init__(self) -> None:
        #: Both are acquired in this order; a reader that waits holds the entrance, so that no later write overtakes it.
        self.entrance = threading.Lock()
        self.inside = threading.Lock()

    @contextmanager
    def closed(self) -> Iterator[None]:
        with self.entrance:
            self.inside.acquire()
        try:
            yield
        finally:
            self.inside.release()


class RocksKV:
    """The store in a folder, made if it is not there.

    Raises StoreLockedError when another process (or this one) has it open, StoreIOError when the folder cannot be used.
    """

    def __init__(self, path: str, *, cache_bytes: int = 64 * MIB) -> None:
        self.path = os.path.abspath(path)
        self._cache_bytes = cache_bytes
        self._lock = threading.Lock()
        #: False only in simulations that kill processes and no machines: commits do not wait for the disk then.
        self._is_synced = True
        self._is_closed = False
        #: True after a failed write: the database must be opened anew before it is written again.
        self._is_broken = False
        #: False while not even reading is possible, as memory may have what the disk has not; the database is broken
        #: then, too. Readers check it inside the gate: it is False during each write.
        self._is_open = True
        self._views: set[_View] = set()
        #: Closed while there is a commit that the disk does not have yet.
        self._gate = _Gate()
        self.incarnation = ONLY
        self._db, self._sequence = self._open()

    def get(self, key: bytes) -> Versioned | None:
        with _reading(self.path), self._opened() as db:
            return _versioned(db.get(key))

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        with self.view() as view:
            yield from view.scan(start, end, limit=limit, reverse=reverse)

    @contextmanager
    def view(self, keys: Collection[bytes] = (), use: ViewUse = ViewUse.LISTING) -> Iterator[ReadView]:
        with _reading(self.path), self._opened() as db:
            view = _View(db, self.path)
            # This is inside the gate, as a thread that opens the database anew must find the view.
            self._views.add(view)
        try:
            yield view
        finally:
            view.release()
            self._views.discard(view)

    def commit(
        self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
    ) -> KVOutcome:
        return outcome_of(self.commit_all([Commit(preconditions, puts, deletes)])[0])

    def commit_all(self, commits: Sequence[Commit]) -> list[KVOutcome | Exception]:
        """Apply commits in their order, as a group commit: one write, and one wait for the disk. All commits whose
        preconditions hold are applied, or none.
        """
        with self._lock:
            try:
                if self._is_broken:
                    self._reopen()
                self._check_room()
                return self._write_all(commits)
            except TilthError as error:
                # Each commit gets an error of its own, as raising an error changes it.
                return [error, *(copy.copy(error) for _ in commits[1:])]

    def confirm(self) -> None:
        """Return if the database can be read, as each commit that a view shows is on the disk then.

        Raises UnavailableError while memory may have what the disk has not.
        """
        with self._opened():
            pass

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._close_db()

    @contextmanager
    def _opened(self) -> Iterator[Rdict]:
        """Yield the database, inside the gate; open it anew if it is not open, as the disk may work again by now."""
        while True:
            with self._gate.entrance, self._gate.inside:
                if self._is_open:
                    yield self._db
                    return
            # This is outside of the gate, for which a thread that holds the lock may wait.
            with self._lock:
                if not self._is_open:
                    self._reopen()

    def _write_all(self, commits: Sequence[Commit]) -> list[KVOutcome | Exception]:
        """Apply commits in one write. The caller holds the lock."""
        sequence = self._sequence
        # Versions of the keys that earlier ones of these commits write; None: deleted.
        written: dict[bytes, int | None] = {}
        batch = WriteBatch(raw_mode=True)
        outcomes: list[KVOutcome | Exception] = []
        for each in commits:
            try:
                assert all(key >= FIRST_KEY for key in (*each.puts, *each.deletes))
                broken = self._broken_key(each.preconditions, written)
            # A damaged key fails only the commits that need it.
            except Exception as error:
                outcomes.append(error)
                continue
            if broken is not None:
                outcomes.append(Conflict(broken))
                continue
            sequence += 1
            mark = _U64.pack(sequence)
            for key in each.deletes:
                batch.delete(key)
                written[key] = None
            for key, value in each.puts.items():
                batch.put(key, mark + value)
                written[key] = sequence
            outcomes.append(Landed(sequence))
        if sequence == self._sequence:
            return outcomes
        batch.put(_SEQUENCE_KEY, _U64.pack(sequence))
        failure = self._write(batch, sequence)
        if failure is not None:
            unknown = self._after_failed_write(sequence, failure)
            if unknown is not None:
                return [unknown if isinstance(each, Landed) else each for each in outcomes]
        return outcomes

    def _write(self, batch: WriteBatch, sequence: int) -> Exception | None:
        """Return what has failed; the database is not open then if memory may have the batch. The caller holds the
        lock.
        """
        with self._gate.closed():
            # This comes first, so that nobody reads the batch if a panic or an interrupt ends the write.
            self._is_open, self._is_broken = False, True
            try:
                # A write that waits for the disk itself would stop all threads, as rocksdict holds Python's lock.
                self._db.write(batch)
            except DbClosedError as error:
                raise StoreClosedError(path=self.path) from error
            # rocksdict raises bare Exceptions for what goes wrong in RocksDB; memory does not have the batch.
            except Exception as error:
                self._is_open = True
                return error
            try:
                self._db.flush_wal(self._is_synced)
            except Exception as error:
                return error
            self._sequence = sequence
            self._is_open, self._is_broken = True, False
        return None

    def _broken_key(self, preconditions: Sequence[Precondition], written: Mapping[bytes, int | None]) -> bytes | None:
        """Return the key of the first precondition that does not hold; None: all hold."""
        with _reading(self.path):
            for precondition in preconditions:
                if isinstance(precondition, TimeReached):
                    # The store has no clock of its own to compare with.
                    continue
                key = precondition.key
                if key in written:
                    version = written[key]
                else:
                    found = self._db.get(key)
                    version = None if found is None else _U64.unpack_from(found)[0]
                if version != (None if isinstance(precondition, Absent) else precondition.version):
                    return key
        return None

    def _after_failed_write(self, sequence: int, error: Exception) -> Unknown | None:
        """Return None if the batch is there all the same, Unknown if that is not known yet; raise the error if it is
        lost.

        The log may or may not hold the batch: opening the database anew shows which.
        """
        _log.error("catalog_write_failed", error=error, path=self.path, is_open=self._is_open)
        try:
            self._reopen()
        except UnavailableError:
            return Unknown(f"the catalog could not be written: {error}")
        if self._sequence >= sequence:
            return None
        full = full_error(error, folder=self.path)
        if full is not None:
            raise full from error
        raise StoreIOError(
            path=self.path, error=error, hint="nothing was applied; is the disk full or read-only?"
        ) from error

    def _reopen(self) -> None:
        if self._is_closed:
            raise StoreClosedError(path=self.path)
        # A closed store cannot be read, and a store is opened only where it can be written.
        self._check_writable()
        # The gate is closed, as no reader may be using the database when it goes.
        with self._gate.closed():
            self._is_open, self._is_broken = False, True
            for view in list(self._views):
                view.interrupt()
            self._close_db()
        try:
            self._db, self._sequence = self._open_unheld()
        except UnavailableError:
            _log.warning("catalog_not_reopened", path=self.path)
            raise
        self._is_open, self._is_broken = True, False
        _log.info("catalog_reopened", path=self.path, sequence=self._sequence)

    def _open_unheld(self) -> tuple[Rdict, int]:
        """Open the database after views were interrupted: each still holds it until its present call returns."""
        for _ in range(_OPEN_TRIES_MAX - 1):
            try:
                return self._open()
            except StoreLockedError:
                threading.Event().wait(_OPEN_TRY_SECONDS)
        return self._open()

    def _close_db(self) -> None:
        try:
            self._db.close()
        except DbClosedError:
            pass
        except Exception as error:
            # Flushing fails, as the write before did; the lock is given up all the same, and the log is on the disk.
            _log.warning("catalog_closed_broken", path=self.path, error=error)

    def _check_room(self) -> None:
        """Raises StoreFullError before a write that might fail half way."""
        if free_bytes(self.path) < ROOM_BYTES_MIN:
            raise store_full(self.path)

    def _check_writable(self) -> None:
        """Raises StoreFullError or StoreIOError; a quota shows only in a write, a broken disk often only in a sync."""
        self._check_room()
        try:
            with tempfile.TemporaryFile(dir=self.path) as probe:
                probe.write(bytes(_PROBE_BYTES))
                probe.flush()
                os.fsync(probe.fileno())
        except OSError as error:
            full = full_error(error, folder=self.path)
            hint = "check the disk and the folder's permissions; the catalog goes on by itself when it can be written"
            raise full or StoreIOError(path=self.path, error=error, hint=hint) from error

    def _open(self) -> tuple[Rdict, int]:
        try:
            os.makedirs(self.path, exist_ok=True)
            db = Rdict(self.path, _options(self._cache_bytes))
        except OSError as error:
            full = full_error(error, folder=self.path)
            hint = "give a folder that can be written"
            raise full or StoreIOError(path=self.path, error=error, hint=hint) from error
        except Exception as error:
            raise _store_error(self.path, error) from error
        try:
            with _reading(self.path):
                return db, _read_own_keys(db, self.path)
        except TilthError:
            db.close()
            raise


def inspect_rocks(path: str) -> RocksFacts | None:
    """Read facts about the database in a folder without changing anything in it; None: there is no database.

    Raises StoreIOError, CorruptError, NewerFormatError.
    """
    try:
        if not os.path.lexists(os.path.join(path, "CURRENT")):
            return None
        holder = _holder(os.path.join(path, "LOCK"))
    except OSError as error:
        hint = "check the disk and the folder's permissions"
        raise StoreIOError(path=path, error=error.strerror, hint=hint) from error
    if holder:
        return RocksFacts(holder=holder)
    # RocksDB writes a log, and rocksdict its options, beside the files that they read: here, beside links to them.
    with tempfile.TemporaryDirectory() as links:
        for name in os.listdir(path):
            if not name.startswith(_NOT_READ):
                os.symlink(os.path.join(os.path.abspath(path), name), os.path.join(links, name))
        options = _options(MIB)
        options.create_if_missing(False)
        with _reading(path):
            db = Rdict(links, options, access_type=AccessType.read_only(False))
            try:
                # The reads of a start, which fail where files are broken.
                _check_format(db, path)
                _newest_sequence(db)
                return RocksFacts()
            finally:
                db.close()


def _holder(lock: str) -> int:
    """Return the process that holds the lock file; 0: none does; -1: one of another PID namespace."""
    try:
        file = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return 0
    try:
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, wanted))
    finally:
        os.close(file)
    return 0 if kind == fcntl.F_UNLCK else int(process) or -1


class _View:
    """One iterator of RocksDB, which sees the store as it was when the iterator was made. For one thread.

    Not a snapshot of rocksdict: iterators over those (0.3.29) show what was written after it was taken.
    """

    def __init__(self, db: Rdict, path: str) -> None:
        self._iterator: RdictIter | None = db.iter()
        self._path = path
        #: Counts who has moved the iterator: a scan that was overtaken seeks its position again.
        self._moves = 0
        self._is_interrupted = False

    def get(self, key: bytes) -> Versioned | None:
        iterator = self._open()
        with _reading(self._path):
            self._moves += 1
            iterator.seek(key)
            return _versioned(iterator.value()) if _key_at(iterator) == key else None

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        start = max(start, FIRST_KEY)
        left = -1 if limit is None else limit
        last: bytes | None = None
        moves = -1
        with _reading(self._path):
            while left != 0:
                iterator = self._open()
                if self._moves != moves:
                    self._moves += 1
                    moves = self._moves
                    _seek(iterator, start, end, last=last, reverse=reverse)
                elif reverse:
                    iterator.prev()
                else:
                    iterator.next()
                last = _key_at(iterator)
                if last is None or last < start or (end is not None and last >= end):
                    return
                data = iterator.value()
                # While the reader is busy nothing here holds the database.
                del iterator
                yield last, Versioned(data[8:], _U64.unpack_from(data)[0])
                left -= 1

    def release(self) -> None:
        self._iterator = None

    def interrupt(self) -> None:
        """End the view of its reader; any thread may call it."""
        self._is_interrupted = True
        self._iterator = None

    def _open(self) -> RdictIter:
        iterator = self._iterator
        if self._is_interrupted:
            raise StoreIOError("the catalog was opened anew meanwhile", path=self._path, hint="try again")
        assert iterator is not None, "the view has ended"
        return iterator


def _seek(iterator: RdictIter, start: bytes, end: bytes | None, *, last: bytes | None, reverse: bool) -> None:
    """Move to the first pair of a scan, or to the one after the last that it has returned."""
    if not reverse:
        iterator.seek(start if last is None else last + b"\x00")
        return
    before = end if last is None else last
    if before is None:
        iterator.seek_to_last()
        return
    iterator.seek_for_prev(before)
    if _key_at(iterator) == before:
        iterator.prev()


def _key_at(iterator: RdictIter) -> bytes | None:
    """None behind the last key; raises when the iterator stopped because of an error."""
    if iterator.valid():
        key = iterator.key()
        assert isinstance(key, bytes)
        return key
    iterator.status()
    return None


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Convert RocksDB's errors while reading to ours; rocksdict raises bare Exceptions."""
    try:
        yield
    except (AssertionError, TilthError):
        raise
    except DbClosedError as error:
        raise StoreClosedError(path=path) from error
    except Exception as error:
        raise _store_error(path, error) from error


# Any: what rocksdict returns in raw mode is bytes or None, but its types are wider.
def _versioned(data: Any) -> Versioned | None:
    return None if data is None else Versioned(data[8:], _U64.unpack_from(data)[0])


def _options(cache_bytes: int) -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_cache(Cache(cache_bytes))
    blocks.set_block_size(_BLOCK_BYTES)
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    # Otherwise indexes and filters grow with the store, outside of the cache's bound.
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(2)
    options.set_max_total_wal_size(_WAL_BYTES_MAX)
    options.set_max_open_files(_OPEN_FILES_MAX)
    options.set_skip_stats_update_on_db_open(True)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_keep_log_file_num(4)
    return options


def _read_own_keys(db: Rdict, path: str) -> int:
    """Check the format and return the newest sequence number; a new store gets its format here."""
    if not _check_format(db, path):
        sync = WriteOptions()
        sync.sync = True
        db.put(_FORMAT_KEY, _U64.pack(_FORMAT), sync)
    return _newest_sequence(db)


def _newest_sequence(db: Rdict) -> int:
    newest = db.get(_SEQUENCE_KEY)
    return 0 if newest is None else int(_U64.unpack(newest)[0])


def _check_format(db: Rdict, path: str) -> bool:
    """Return whether the store has a format. Raises NewerFormatError."""
    found = db.get(_FORMAT_KEY)
    if found is not None and (version := _U64.unpack(found)[0]) > _FORMAT:
        raise NewerFormatError(path=path, found=version, known=_FORMAT, hint="start the version that wrote it")
    return found is not None


def _store_error(path: str, error: Exception) -> CorruptError | UnavailableError:
    text = str(error)
    full = full_error(error, folder=path)
    if full is not None:
        return full
    if "/LOCK:" in text:
        hint = "stop the node that uses this folder, or give this one another --data folder"
        return StoreLockedError(path=path, hint=hint)
    if "Corruption" in text:
        return CorruptError("the catalog is damaged", path=path, error=text, hint="restore it from a backup")
    return StoreIOError(path=path, error=text, hint="check the disk and the folder's permissions")
