"""A new file in several replicas at once, each copy written by a thread of its own.

Covers: passing bytes to the threads, waiting for a quorum, dropping a copy that fails, hangs or is too slow. Does not
cover: which replicas there are (replicated.py), which files one of them lacks (tilth.catalog).
Always holds: a file is written when a quorum of copies is durable, names included; the writer waits for a quorum, and
for the other replicas STRAGGLER_SECONDS at most; the bytes queued for a replica are bounded. The thread of a dropped
copy does nothing more under the file's name, however late it continues: the copy may have been made again meanwhile.

Tests: tests/unit/storage/store/replicas/test_failover.py, tests/unit/storage/store/replicas/test_replicated.py.
"""

from __future__ import annotations

import posixpath
import threading
from collections import deque
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from tilth.base.clock import SystemClock
from tilth.base.errors import TilthError, as_exception
from tilth.base.logs import Log
from tilth.model.part import DataFile, FileCopies
from tilth.storage.errors import QuorumError, StoreAwayError
from tilth.storage.store.paths import table_of
from tilth.storage.store.protocol import NewFile
from tilth.storage.store.replicas import replica as replica_times
from tilth.storage.store.replicas.health import trouble_of
from tilth.storage.store.replicas.replica import Replica
from tilth.storage.store.root import StoreRoot

#: Size of the pieces that are passed to the threads.
PIECE_BYTES = 1 << 20
#: Bytes queued for a replica beyond which the writer waits until the queue is down to half of this; the copy is dropped
#: if that takes too long.
BEHIND_BYTES_MAX = 16 << 20
HINT = "see system.replicas; ALTER STORAGE .. RESTORE REPLICA fills one that has lost its files"

_log = Log("storage")
_clock = SystemClock()


class NewCopies:
    """A new file in several replicas at once."""

    def __init__(self, root: StoreRoot, replicas: Sequence[Replica], path: str, *, is_made_again: bool = False) -> None:
        """`is_made_again`: if this write fails, another one may write the file under the same name. Raises
        FileExistsError and QuorumError.
        """
        self._root = root
        self._is_made_again = is_made_again
        self._path = path
        self._changed = threading.Condition()
        self._held = bytearray()
        self._size = 0
        self._written: DataFile | None = None
        self._why: Exception | None = None
        self._errors: list[Exception] = [
            StoreAwayError(each.trouble, file=str(each.root)) for each in replicas if each.trouble
        ]
        self._copies = [_Copy(each, path, self._changed) for each in replicas if not each.trouble]
        with self._changed:
            self._wait(lambda copy: copy.is_open)

    @property
    def closed(self) -> bool:
        return False

    def write(self, data: bytes) -> int:
        view = memoryview(data).cast("B")
        if self._is_over:
            return len(view)
        self._size += len(view)
        for start in range(0, len(view), PIECE_BYTES):
            self._held += view[start : start + PIECE_BYTES]
            if len(self._held) >= PIECE_BYTES:
                self._hand_over()
        return len(view)

    def tell(self) -> int:
        return self._size

    @property
    def written(self) -> DataFile:
        if self._written is not None:
            return self._written
        self._hand_over()
        with self._changed:
            self._wait(lambda copy: copy.is_open and not copy.queued)
            return self._facts([copy for copy in self._going if copy.is_open and not copy.queued])

    def flush(self) -> None:
        """Do nothing: nothing is held back for a reader."""

    def close(self) -> None:
        """Do nothing; finish and give_up close."""

    def finish(self, *, fsync: bool) -> DataFile:
        """End all copies. Once a quorum has ended, the others are waited for STRAGGLER_SECONDS at most."""
        if self._why is not None:
            raise self._why
        self._hand_over()
        with self._changed:
            for each in self._going:
                each.end(fsync=fsync)
            self._wait(lambda copy: copy.is_over)
            seconds = replica_times.STRAGGLER_SECONDS
            self._changed.wait_for(lambda: all(each.is_over for each in self._going), timeout=seconds)
            for each in self._going:
                if not each.is_over:
                    each.drop(f"no answer in {seconds:g} seconds")
            self._check()
            self._written = self._facts(self._going)
            for each in self._copies:
                each.settle(keeps_name=False)
        return self._written

    def abandon(self) -> None:
        self._is_made_again = True
        self.give_up()

    def give_up(self) -> None:
        if not self._is_over:
            self._why = QuorumError("the file was given up", file=f"{self._root.uri}/{self._path}")
        if self._written is None:
            with self._changed:
                for each in self._copies:
                    each.settle(keeps_name=not self._is_made_again)
                is_over = self._changed.wait_for(lambda: all(each.is_over for each in self._copies), timeout=0)
                seconds = 0 if is_over else replica_times.STRAGGLER_SECONDS
                self._changed.wait_for(lambda: all(each.is_over for each in self._copies), timeout=seconds)

    def __del__(self) -> None:
        # The threads of a file that was neither finished nor given up end with it.
        for each in getattr(self, "_copies", ()):
            each.settle(keeps_name=False)

    @property
    def _is_over(self) -> bool:
        return self._why is not None or self._written is not None

    @property
    def _going(self) -> list[_Copy]:
        """Return the copies that have not failed."""
        return [each for each in self._copies if each.error is None]

    def _facts(self, copies: Sequence[_Copy]) -> DataFile:
        facts = {copy.written for copy in copies}
        assert len(facts) == 1, "copies differ"
        ids = self._root.ids
        there = tuple(ids[copy.replica.number] for copy in self._going)
        return replace(facts.pop(), copies=FileCopies(replicas=there, quorum=self._root.quorum))

    def _hand_over(self) -> None:
        if not self._held:
            return
        piece, self._held = bytes(self._held), bytearray()
        with self._changed:
            for each in self._going:
                each.add(piece)
            self._check()
            if any(each.queued > BEHIND_BYTES_MAX for each in self._going):
                self._await_room()

    def _await_room(self) -> None:
        """Wait until the queues of a quorum have room, and STRAGGLER_SECONDS at most for the others."""
        room = BEHIND_BYTES_MAX // 2
        self._wait(lambda copy: copy.queued <= room)
        seconds = replica_times.STRAGGLER_SECONDS
        self._changed.wait_for(lambda: all(each.queued <= room for each in self._going), timeout=seconds)
        for each in self._going:
            if each.queued > room:
                each.drop(f"it is {each.queued >> 20} MiB behind for {seconds:g} seconds")
        self._check()

    def _wait(self, is_done: Callable[[_Copy], bool]) -> None:
        """Wait until a quorum is done. Raises QuorumError if too few copies are left, and FileExistsError."""
        # Each piece that a copy has written ends a wait, so the number of waits does not measure the time.
        began = _clock.monotonic()
        while (seconds := _clock.monotonic() - began) < replica_times.HUNG_SECONDS:
            self._check()
            pending = [each for each in self._going if not is_done(each)]
            if len(self._going) - len(pending) >= self._root.quorum:
                return
            for each in pending:
                if seconds >= replica_times.SLOW_SECONDS:
                    each.replica.health.check()
                if each.replica.trouble:
                    each.drop(each.replica.trouble)
            if not any(each.error for each in pending):
                self._changed.wait(replica_times.CHECK_SECONDS)
        for each in self._going:
            if not is_done(each):
                each.drop(f"no answer in {replica_times.HUNG_SECONDS:g} seconds")
        self._check()

    def _check(self) -> None:
        """Drop the copies that have failed. Raises the error that ends the whole file."""
        for each in self._copies:
            if each.error is None or each.is_noted:
                continue
            each.is_noted = True
            if not each.lacks_marker:
                each.replica.health.note_error(each.error)
            if isinstance(each.error, FileExistsError) or not isinstance(each.error, TilthError | OSError):
                self._end_with(each.error)
            else:
                _log.warning("copy_not_made", root=each.replica.root, file=self._path, reason=trouble_of(each.error))
                self._errors.append(each.error)
        if len(self._going) < self._root.quorum:
            self._end_with(too_few_copies(self._root, self._path, len(self._going), self._errors))

    def _end_with(self, why: Exception) -> None:
        if self._why is None:
            self._why = why
            self.give_up()
        raise self._why


class _Copy:
    """A copy of a new file in one replica. The state that its thread shares is guarded by the lock of `changed`."""

    def __init__(self, replica: Replica, path: str, changed: threading.Condition) -> None:
        self.replica = replica
        #: `is_open`: the file was created in the store. `is_over`: the thread has ended.
        self.is_open = self.is_over = False
        #: Error that ended the copy; None: it has not failed.
        self.error: Exception | None = None
        #: `True` once the writer has handled the error.
        self.is_noted = False
        #: `True` if the replica answers but lacks the table's marker: it may have lost the table's files.
        self.lacks_marker = False
        #: Bytes that are not written yet.
        self.queued = 0
        self._path = path
        self._changed = changed
        self._pieces: deque[bytes] = deque()
        self._is_given_up = False
        #: `True`: a failed copy keeps its name occupied; `False`: nothing more is done under the name; None: undecided.
        self._keeps_name: bool | None = None
        #: Set when the file ends after the queued pieces: whether the end waits for the disk. None: more may follow.
        self._fsync: bool | None = None
        self._file: NewFile | None = None
        threading.Thread(target=self._run, name="tilth-replica-copy", daemon=True).start()

    @property
    def written(self) -> DataFile:
        assert self._file is not None
        return self._file.written

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.queued += len(piece)
        self._changed.notify_all()

    def end(self, *, fsync: bool) -> None:
        self._fsync = fsync
        self._changed.notify_all()

    def drop(self, reason: str) -> None:
        """Drop this copy. The call that its thread has begun may still take effect later."""
        self.error = StoreAwayError(reason, file=str(self.replica.root))
        self._stop()

    def settle(self, *, keeps_name: bool) -> None:
        """Decide how a failed copy ends: its name stays occupied, or nothing more is done under it."""
        with self._changed:
            if self._keeps_name is None:
                self._keeps_name = keeps_name
            self._stop()

    def _stop(self) -> None:
        with self._changed:
            self._is_given_up = True
            self._pieces.clear()
            self.queued = 0
            self._changed.notify_all()

    def _run(self) -> None:
        is_well = False
        try:
            is_well = self._make()
        # Defects are caught too: they are raised again on the writer's thread.
        except BaseException as raised:
            with self._changed:
                self.error = self.error or as_exception(raised)
                self._changed.notify_all()
        if not is_well:
            self._end_failed()
        with self._changed:
            self.is_over = True
            self._changed.notify_all()

    def _make(self) -> bool:
        """Write the copy; return `True` if it was finished, `False` if it was given up."""
        table = table_of(self._path) if "/" in self._path else ""
        if table and not self.replica.has_marker(table):
            self.lacks_marker = True
            raise StoreAwayError("the replica is made anew", file=str(self.replica.root))
        store = self.replica.store
        self._file = store.create(self._path)
        with self._changed:
            self.is_open = True
            self._changed.notify_all()
        while (piece := self._next()) is not None:
            self._file.write(piece)
            with self._changed:
                if self._pieces:
                    self._pieces.popleft()
                    self.queued -= len(piece)
                    self._changed.notify_all()
        if self._is_given_up:
            return False
        fsync = bool(self._fsync)
        self._file.finish(fsync=fsync)
        if fsync:
            store.sync(posixpath.dirname(self._path))
        return True

    def _next(self) -> bytes | None:
        """Return the next piece, which stays in the queue until it is written; None: there are no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._pieces or self._is_given_up or self._fsync is not None)
            return None if self._is_given_up or not self._pieces else self._pieces[0]

    def _end_failed(self) -> None:
        """Wait for the decision of `settle`, and end the failed copy accordingly."""
        if self._file is None:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._keeps_name is not None)
        try:
            if self._keeps_name:
                self._file.give_up()
            else:
                self._file.abandon()
        except (TilthError, OSError) as error:
            self.replica.health.note_error(error)


def too_few_copies(root: StoreRoot, path: str, copies: int, errors: Sequence[Exception]) -> QuorumError:
    """Return the error for a file with fewer copies than its quorum."""
    because = "; ".join(str(error) for error in errors)
    return QuorumError(file=f"{root.uri}/{path}", copies=copies, quorum=root.quorum, because=because, hint=HINT)
