"""Files of a storage with replicas: written to all of them that answer, read from one that has a copy.

Covers: the store of such a root; the marker of a new table. Does not cover: which copies are missing and how they are
restored (tilth.catalog, tilth.maintenance), writing several copies (new_copies.py), reading from another replica when
one fails (failover.py).
Always holds: a file counts as written when a quorum of copies is durable, names included, and names their replicas;
a file counts as missing only when every replica has confirmed it; a replica without the marker of a table has lost what
it had, and takes no new files of that table until it is known what it lacks.

Tests: tests/integration/storage/test_store_behaviour.py.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

import pyarrow as pa

from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.storage.errors import StoreAwayError
from tilth.storage.store.backends.marker import LOCATION_FILE
from tilth.storage.store.backends.streams import Stream
from tilth.storage.store.paths import table_of
from tilth.storage.store.protocol import CopyCall, FileSizeError, NewFile, Removal, Store, StoredFile
from tilth.storage.store.replicas.failover import FailoverReader, error_rank
from tilth.storage.store.replicas.health import trouble_of
from tilth.storage.store.replicas.new_copies import HINT, NewCopies, too_few_copies
from tilth.storage.store.replicas.replica import Replica, call_replica, call_replicas, replicas_of
from tilth.storage.store.root import StoreRoot

#: Files that are removed by one step, or as many as one request of the replica's removes; a removal in which no step
#: ends for so long has failed for those that are left.
REMOVED_AT_ONCE = 50
REMOVAL_SECONDS = 10.0
#: Names below a folder are listed for a rebuild of the catalog alone.
LISTING_SECONDS = 3600.0

T = TypeVar("T")
_log = Log("storage")


def away_reason(root: StoreRoot) -> str:
    """Return why some replica of the root cannot be called; empty: none is known to be away."""
    return next((f"{each.root}: {each.trouble}" for each in replicas_of(root) if each.trouble), "")


def begin_table(root: StoreRoot, table: str) -> None:
    """Give each replica that answers the marker of a new table; the others get it when they are back."""
    replicas = replicas_of(root)
    if not replicas:
        return
    answers = call_replicas(replicas, lambda each: each.write_marker(table), enough=root.quorum)
    for each in replicas:
        if isinstance(error := answers[each.number], TilthError | OSError):
            _log.warning("replica_without_table", root=each.root, table=table, reason=trouble_of(error))


class ReplicatedStore:
    """The files of a root with replicas."""

    # Each replica makes its own requests of them.
    names_per_removal = 1000
    # A file shows which replicas lack it when it is ended: it is not known before.
    ending_max = 1

    def __init__(self, root: StoreRoot) -> None:
        self._root = root
        self._replicas = replicas_of(root)

    @property
    def copies(self) -> tuple[CopyCall, ...]:
        return tuple(partial(_call_one, each) for each in self._in_order())

    def prepare(self, folder: str, *, fsync: bool) -> None:
        """Do nothing but at the root: a replica has the folders of each table that it knows."""
        if not folder:
            self._on_all(lambda store: store.prepare(folder, fsync=fsync), folder)

    def sync(self, folder: str) -> None:
        """Do nothing: a file that was ended is safe, name and all."""

    def create(self, path: str) -> NewFile:
        return NewCopies(self._root, self._replicas, path)

    def stream(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(Stream(self.create(path)), mode="w")

    def put(self, path: str, data: bytes) -> None:
        self._on_all(lambda store: store.put(path, data), path)

    def read(self, path: str, *, size: int | None = None) -> pa.Buffer:
        return self._first(path, lambda store: store.read(path, size=size))

    def open(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        """Open a file for reading parts of it, each from a replica that answers."""
        return pa.PythonFile(FailoverReader(self._in_order(), path, size=size), mode="r")

    def size(self, path: str) -> int:
        return self._first(path, lambda store: store.size(path))

    def checksum(self, path: str) -> tuple[int, int]:
        return self._first(path, lambda store: store.checksum(path))

    def stamp(self, path: str) -> tuple[int, ...]:
        return tuple(chain.from_iterable(self._answers(lambda store: store.stamp(path))))

    def exist(self, paths: Sequence[str]) -> list[bool]:
        """Return for each path whether some replica has it. Raises StoreAwayError where one that may have it does not
        answer.
        """
        answers = self._answers(lambda store: store.exist(paths))
        found = [any(each) for each in zip(*answers, strict=True)] if answers else [False] * len(paths)
        if len(answers) < len(self._replicas) and not all(found):
            raise self._away(paths[found.index(False)])
        return found

    def remove(self, paths: Sequence[str]) -> Removal:
        """Remove every copy; a file is gone when every replica has confirmed it."""
        return self.remove_from(range(len(self._replicas)), paths)

    def remove_from(self, numbers: Collection[int], paths: Sequence[str]) -> Removal:
        """Remove the copies in these replicas; a file counts as removed when each of them has confirmed it."""
        whole = Removal()
        found: set[str] = set()
        replicas = [each for each in self._replicas if each.number in numbers]
        for each in [_ReplicaRemoval(replica, paths) for replica in replicas]:
            removal = each.wait()
            for error in removal.failed.values():
                each.replica.health.note_error(error)
            whole.failed |= removal.failed
            found |= set(removal.found)
        whole.gone = [path for path in paths if path not in whole.failed]
        whole.found = [path for path in paths if path in found]
        return whole

    def list_prefix(self, prefix: str) -> None:
        """Return None: some of the replicas may be folders."""

    def has_folder(self, folder: str) -> bool:
        """Return whether all replicas answer and one has it: what then has no copy is lost."""
        answers = self._answers(lambda store: store.has_folder(folder))
        return len(answers) == len(self._replicas) and any(answers)

    def files(self, folder: str) -> Iterator[StoredFile]:
        found: dict[str, StoredFile] = {}
        answers = self._answers(
            lambda store: {each.path: each for each in store.files(folder)}, seconds=LISTING_SECONDS
        )
        if not answers:
            raise self._away(folder)
        for each in reversed(answers):
            found |= each
        markers = (path for path in found if posixpath.basename(path) == LOCATION_FILE and "/" in path)
        for marker in list(markers):
            found.pop(marker)
        yield from found.values()

    def remove_folder(self, folder: str) -> None:
        errors = []
        for each in self._replicas:
            try:
                each.store.remove_folder(folder)
            except (TilthError, OSError) as error:
                each.health.note_error(error)
                errors.append(error)
        for why in errors:
            raise why

    def _in_order(self) -> list[Replica]:
        """Return them as they are read: those that are known to lack files late, those that are away last."""
        missing = self._root.incomplete
        return sorted(self._replicas, key=lambda each: (bool(each.trouble), each.number in missing))

    def _usable(self, path: str) -> list[Replica]:
        """Return those that take a new file; raises QuorumError where they are too few."""
        table = table_of(path) if "/" in path else ""
        usable = [each for each in self._replicas if not each.trouble]
        errors: list[Exception] = [
            StoreAwayError(each.trouble, file=str(each.root)) for each in self._replicas if each.trouble
        ]
        found: list[Replica] = []
        answers = call_replicas(usable, lambda each: not table or each.has_marker(table), enough=self._root.quorum)
        for each in usable:
            match answers[each.number]:
                case True:
                    found.append(each)
                case False:
                    errors.append(StoreAwayError("the replica is made anew", file=str(each.root)))
                case Exception() as error:
                    errors.append(error)
        if len(found) < self._root.quorum:
            raise too_few_copies(self._root, path, len(found), errors)
        return found

    def _on_all(self, act: Callable[[Store], None], path: str) -> None:
        """Do what is done to every replica that answers; raises QuorumError where they are too few."""
        answers = call_replicas(self._usable(path), lambda each: act(each.store), enough=self._root.quorum)
        errors = [answer for answer in answers.values() if isinstance(answer, Exception)]
        if len(answers) - len(errors) < self._root.quorum:
            raise too_few_copies(self._root, path, len(answers) - len(errors), errors)

    def _first(self, path: str, call: Callable[[Store], T]) -> T:
        """Return the answer of the first replica that has one; raises why none has, an absence last."""
        errors: list[Exception] = []
        for each in self._in_order():
            try:
                return _call_one(each, call)
            except (TilthError, OSError, FileSizeError) as error:
                errors.append(error)
        raise min(errors, key=error_rank)

    def _answers(self, call: Callable[[Store], T], seconds: float | None = None) -> list[T]:
        """Return the answers of the replicas that give one, in their order."""
        usable = [each for each in self._replicas if not each.trouble]
        answers = call_replicas(usable, lambda each: call(each.store), enough=1, seconds=seconds)
        return [answer for answer in answers.values() if not isinstance(answer, TilthError | OSError)]

    def _away(self, path: str) -> StoreAwayError:
        troubles = "; ".join(f"{each.root}: {each.trouble}" for each in self._replicas)
        return StoreAwayError("replicas do not answer", file=f"{self._root.uri}/{path}", because=troubles, hint=HINT)


def _call_one(replica: Replica, call: Callable[[Store], T]) -> T:
    """Return the result of a call of one replica's store; a failure is noted in the replica's health."""
    try:
        return call_replica(replica, lambda: call(replica.store))
    except (TilthError, OSError, FileSizeError) as error:
        replica.health.note_error(error)
        raise


class _ReplicaRemoval:
    """Files on their way out of one replica, some at a time, on a thread of its own."""

    def __init__(self, replica: Replica, paths: Sequence[str]) -> None:
        self.replica = replica
        self._paths = paths
        self._removal = Removal()
        self._changed = threading.Condition()
        self._is_over = False
        threading.Thread(target=self._run, name="tilth-replica-removal", daemon=True).start()

    def wait(self) -> Removal:
        """Wait as long as files go; what is not known to be gone has failed."""
        with self._changed:
            done = -1
            while done < self._done:
                done = self._done
                # Notified of each progress, and of the end.
                self._is_over or self._changed.wait(REMOVAL_SECONDS)
            found = Removal(list(self._removal.gone), list(self._removal.found), dict(self._removal.failed))
        known = {*found.gone, *found.failed}
        why = StoreAwayError(f"no answer in {REMOVAL_SECONDS:g} seconds", file=str(self.replica.root), hint=HINT)
        found.fail((path for path in self._paths if path not in known), why)
        return found

    def _remove_next(self, start: int) -> Removal:
        """Remove the next paths; without a way to the replica, fail for all that are left."""
        removal, left = Removal(), self._paths[start:]
        if trouble := self.replica.trouble:
            removal.fail(left, StoreAwayError(trouble, file=str(self.replica.root), hint=HINT))
            return removal
        try:
            store = self.replica.store
            left = left[: max(REMOVED_AT_ONCE, store.names_per_removal)]
            return store.remove(left)
        except (TilthError, OSError) as error:
            removal.fail(left, error)
            return removal

    @property
    def _done(self) -> int:
        return len(self._removal.gone) + len(self._removal.failed)

    def _run(self) -> None:
        start = 0
        while start < len(self._paths):
            removal = self._remove_next(start)
            start += len(removal.gone) + len(removal.failed)
            with self._changed:
                self._removal.gone += removal.gone
                self._removal.found += removal.found
                self._removal.failed |= removal.failed
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
