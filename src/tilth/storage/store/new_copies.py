"""A new file in several replicas at once, each written by a thread of its own.

Covers: handing bytes over, waiting for a quorum, leaving out one that fails, hangs or is too slow. Does not cover:
which replicas there are (replicated.py), what one of them lacks (tilth.catalog).
Always holds: a file is written when a quorum of copies is safe, name and all; whoever writes it waits for a quorum, and
for another replica some seconds at most; of the bytes that a replica has not taken yet a bounded part is kept. Where
the file goes on without a copy, its thread does nothing by the name any more, however late it goes on: somebody else
may have made the copy.
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
from tilth.storage.store import replica as replica_times
from tilth.storage.store.paths import table_of
from tilth.storage.store.replica import Replica
from tilth.storage.store.replica_health import trouble_of
from tilth.storage.store.root import StoreRoot
from tilth.storage.store.store import NewFile

#: Bytes that are handed over at a time.
PIECE_BYTES = 1 << 20
#: A replica that has so much more to take than it should gets no more until it has taken half of it, and is left out
#: where that takes long.
BEHIND_BYTES_MAX = 16 << 20
HINT = "see system.replicas; ALTER STORAGE .. RESTORE REPLICA fills one that has lost its files"

_log = Log("storage")
_clock = SystemClock()


class NewCopies:
    """A new file in several replicas at once."""

    def __init__(self, root: StoreRoot, replicas: Sequence[Replica], path: str, *, is_made_again: bool = False) -> None:
        """`is_made_again`: others may write the file under this name when it fails here. Raises FileExistsError,
        QuorumError.
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
        """End all copies; a replica that takes long after a quorum has its own is not waited for."""
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
                each.settle(takes_name=False)
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
                    each.settle(takes_name=not self._is_made_again)
                is_over = self._changed.wait_for(lambda: all(each.is_over for each in self._copies), timeout=0)
                seconds = 0 if is_over else replica_times.STRAGGLER_SECONDS
                self._changed.wait_for(lambda: all(each.is_over for each in self._copies), timeout=seconds)

    def __del__(self) -> None:
        # Of a file that nobody ended: its threads end with it.
        for each in getattr(self, "_copies", ()):
            each.settle(takes_name=False)

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
        """Wait until a quorum has room for more, and some seconds for each other that has not."""
        room = BEHIND_BYTES_MAX // 2
        self._wait(lambda copy: copy.queued <= room)
        seconds = replica_times.STRAGGLER_SECONDS
        self._changed.wait_for(lambda: all(each.queued <= room for each in self._going), timeout=seconds)
        for each in self._going:
            if each.queued > room:
                each.drop(f"it is {each.queued >> 20} MiB behind for {seconds:g} seconds")
        self._check()

    def _wait(self, is_done: Callable[[_Copy], bool]) -> None:
        """Wait until a quorum is done; raises QuorumError where too few are left, and FileExistsError."""
        # Each piece that a copy takes ends a wait: waits cannot be counted.
        began = _clock.monotonic()
        while (seconds := _clock.monotonic() - began) < replica_times.HUNG_SECONDS:
            self._check()
            waited = [each for each in self._going if not is_done(each)]
            if len(self._going) - len(waited) >= self._root.quorum:
                return
            for each in waited:
                if seconds >= replica_times.SLOW_SECONDS:
                    each.replica.health.check()
                if each.replica.trouble:
                    each.drop(each.replica.trouble)
            if not any(each.error for each in waited):
                self._changed.wait(replica_times.LOOK_SECONDS)
        for each in self._going:
            if not is_done(each):
                each.drop(f"no answer in {replica_times.HUNG_SECONDS:g} seconds")
        self._check()

    def _check(self) -> None:
        """Go on without those that failed; raises what ends all of them."""
        for each in self._copies:
            if each.error is None or each.is_noted:
                continue
            each.is_noted = True
            if not each.has_no_sign:
                each.replica.health.failed(each.error)
            if isinstance(each.error, FileExistsError) or not isinstance(each.error, TilthError | OSError):
                self._end_with(each.error)
            else:
                _log.warning("copy_not_made", root=each.replica.root, file=self._path, reason=trouble_of(each.error))
                self._errors.append(each.error)
        if len(self._going) < self._root.quorum:
            self._end_with(too_few(self._root, self._path, len(self._going), self._errors))

    def _end_with(self, why: Exception) -> None:
        if self._why is None:
            self._why = why
            self.give_up()
        raise self._why


class _Copy:
    """A copy of a new file in one replica. All but what the thread does alone under the lock of `changed`."""

    def __init__(self, replica: Replica, path: str, changed: threading.Condition) -> None:
        self.replica = replica
        #: Whether the file was begun; whether the thread has ended.
        self.is_open = self.is_over = False
        #: Why there is no copy; None: none yet. Whether that was taken note of.
        self.error: Exception | None = None
        self.is_noted = False
        #: Whether the replica answers, and is not known to have what the table's files were.
        self.has_no_sign = False
        #: Bytes that it has not taken yet.
        self.queued = 0
        self._path = path
        self._changed = changed
        self._pieces: deque[bytes] = deque()
        self._is_given_up = False
        #: Whether a copy that does not end well keeps its name taken; None: it is not known yet.
        self._takes_name: bool | None = None
        #: Whether the file ends behind the pieces, and waits for the disk; None: more may come.
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
        """Go on without this copy. What its thread is at may happen later."""
        self.error = StoreAwayError(reason, file=str(self.replica.root))
        self._stop()

    def settle(self, *, takes_name: bool) -> None:
        """Say what becomes of a copy that does not end well: its name stays taken, or nothing is done by it."""
        with self._changed:
            if self._takes_name is None:
                self._takes_name = takes_name
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
        # A defect too: it is raised where somebody sees it.
        except BaseException as raised:
            with self._changed:
                self.error = self.error or as_exception(raised)
                self._changed.notify_all()
        if not is_well:
            self._let_go()
        with self._changed:
            self.is_over = True
            self._changed.notify_all()

    def _make(self) -> bool:
        """Write the copy; return whether it was ended, and not given up."""
        table = table_of(self._path) if "/" in self._path else ""
        if table and not self.replica.has_sign(table):
            self.has_no_sign = True
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
        """Return the next piece, which stays in the queue until it is written; None: no more comes."""
        with self._changed:
            self._changed.wait_for(lambda: self._pieces or self._is_given_up or self._fsync is not None)
            return None if self._is_given_up or not self._pieces else self._pieces[0]

    def _let_go(self) -> None:
        """Wait for what becomes of the whole file, and end this copy of it."""
        if self._file is None:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._takes_name is not None)
        try:
            if self._takes_name:
                self._file.give_up()
            else:
                self._file.abandon()
        except (TilthError, OSError) as error:
            self.replica.health.failed(error)


def too_few(root: StoreRoot, path: str, copies: int, errors: Sequence[Exception]) -> QuorumError:
    """Return the error for a file with fewer copies than its quorum."""
    because = "; ".join(str(error) for error in errors)
    return QuorumError(file=f"{root.uri}/{path}", copies=copies, quorum=root.quorum, because=because, hint=HINT)
