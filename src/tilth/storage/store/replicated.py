"""Files of a storage with replicas: written to all of them that answer, read from one that has a copy.

Covers: the store of such a root; the sign of a table in each replica. Does not cover: which copies are missing and how
they come back (tilth.catalog, tilth.maintenance), the replicas' own stores.
Always holds: a file counts as written when a quorum of copies is safe, name and all, and says which replicas lack it;
a file counts as missing only when every replica has said so; a replica without the sign of a table has lost what it
had, and takes no new files of that table until it is known what it lacks.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

import pyarrow as pa
from msgspec.structs import replace

from tilth.base.errors import TilthError, as_exception
from tilth.base.logs import Log
from tilth.model.part import DataFile
from tilth.storage.errors import QuorumError, StoreAwayError
from tilth.storage.store.paths import table_of
from tilth.storage.store.place import PLACE_FILE, place_trouble
from tilth.storage.store.replica_health import health_of, trouble_of
from tilth.storage.store.root import StoreRoot
from tilth.storage.store.store import FileSizeError, NewFile, Removal, Store
from tilth.storage.store.stores import store_of
from tilth.storage.store.streams import Stream

#: When a quorum has a file, the others have so long to end theirs.
STRAGGLER_SECONDS = 2.0
#: Whoever does not answer at all for so long, and may not be known to be away, is not waited for.
HUNG_SECONDS = 120.0
#: Between two looks whether those that are waited for are away.
LOOK_SECONDS = 0.25
#: Files that are removed by one step, or as many as one request of the replica's removes; a removal in which no step
#: ends for so long has failed for those that are left.
REMOVED_AT_ONCE = 50
REMOVAL_SECONDS = 10.0
#: Names below a folder are listed for a rebuild of the catalog alone.
LISTING_SECONDS = 3600.0
#: Names of a run of numbered files that are removed without a question: a replica that is away answers none.
BLIND_NAMES = 16
_HINT = "see system.replicas; ALTER STORAGE .. RESTORE REPLICA fills one that has lost its files"
_SIGN = b"files of a table of Tilth\n"

T = TypeVar("T")
_log = Log("storage")


class Replica:
    """One place of a storage that has several."""

    def __init__(self, number: int, root: StoreRoot, *, is_away: bool = False) -> None:
        """`is_away`: it did not answer the server that has sent this root."""
        self.number = number
        self.root = root
        self.health = health_of(root)
        self._is_away = is_away

    @property
    def trouble(self) -> str:
        """Return why it cannot be used; empty: it can, as far as is known."""
        return self.health.trouble or ("the server finds that it is away" if self._is_away else "")

    @property
    def store(self) -> Store:
        """Raises StoreSecretError."""
        return store_of(self.root)

    def has_sign(self, table: str) -> bool:
        """Return whether the replica has the sign; where asking costs a request, an answer from before will do.

        It is for disks that are not mounted: what is written to a bucket is there.
        """
        if table in self.health.signs:
            return True
        is_there = self.looks_for_sign(table)
        if is_there and not self.root.is_local:
            self.health.remember_sign(table)
        return is_there

    def looks_for_sign(self, table: str) -> bool:
        """Return whether the replica has the sign now."""
        return self.store.exist([sign_of(table)]) == [True]

    def give_sign(self, table: str) -> None:
        """Say that from now on it is known which files of the table it lacks.

        Raises StoreAwayError where the place itself is not there: it may be a disk that is not mounted.
        """
        trouble = place_trouble(self.root)
        if trouble:
            raise StoreAwayError(trouble, file=str(self.root))
        self.store.prepare(f"{table}/data", fsync=True)
        self.store.put(sign_of(table), _SIGN)
        self.store.sync(table)


def sign_of(table: str) -> str:
    """Return the path of the file by which a replica is known to have a table's files."""
    return f"{table}/{PLACE_FILE}"


def replicas_of(root: StoreRoot) -> list[Replica]:
    """Return the replicas of a root, by number; none where it has none."""
    return [Replica(number, each, is_away=number in root.away) for number, each in enumerate(root.replicas)]


def away_reason(root: StoreRoot) -> str:
    """Return why some replica of the root cannot be asked; empty: all can, as far as is known."""
    return next((f"{each.root}: {each.trouble}" for each in replicas_of(root) if each.trouble), "")


def begin_table(root: StoreRoot, table: str) -> None:
    """Give each replica that answers the sign of a new table; the others get it when they are back."""
    for each in replicas_of(root):
        try:
            each.give_sign(table)
        except (TilthError, OSError) as error:
            each.health.failed(error)
            _log.warning("replica_without_table", root=each.root, table=table, reason=trouble_of(error))


class ReplicatedStore:
    """The files of a root with replicas."""

    blind_names = BLIND_NAMES
    # Each replica makes its own requests of them.
    names_per_removal = 1000
    # A file says which replicas lack it when it is ended: it is not known before.
    ending_max = 1

    def __init__(self, root: StoreRoot) -> None:
        self._root = root
        self._replicas = replicas_of(root)

    @property
    def copies(self) -> tuple[Store, ...]:
        """Raises StoreSecretError where no replica can be asked by this process."""
        found: list[Store] = []
        errors: list[TilthError] = []
        for each in self._in_order():
            try:
                found.append(each.store)
            except TilthError as error:
                errors.append(error)
        if not found:
            raise errors[0]
        return tuple(found)

    def prepare(self, folder: str, *, fsync: bool) -> None:
        """Do nothing but at the root: a replica has the folders of each table that it knows."""
        if not folder:
            self._on_all(lambda store: store.prepare(folder, fsync=fsync), folder)

    def sync(self, folder: str) -> None:
        """Do nothing: a file that was ended is safe, name and all."""

    def create(self, path: str) -> NewFile:
        return _Copies(self._root, self._usable(path), path)

    def stream(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(Stream(self.create(path)), mode="w")

    def put(self, path: str, data: bytes) -> None:
        self._on_all(lambda store: store.put(path, data), path)

    def read(self, path: str, *, size: int | None = None) -> pa.Buffer:
        return self._first(path, lambda store: store.read(path, size=size))

    def open(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        return self._first(path, lambda store: store.open(path, size=size))

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
        """Remove every copy; a file is gone when every replica has said so."""
        whole = Removal()
        found: set[str] = set()
        for each in [_Removing(replica, paths) for replica in self._replicas]:
            removal = each.ended()
            for error in removal.failed.values():
                each.replica.health.failed(error)
            whole.failed |= removal.failed
            found |= set(removal.found)
        whole.gone = [path for path in paths if path not in whole.failed]
        whole.found = [path for path in paths if path in found]
        return whole

    def has_folder(self, folder: str) -> bool:
        """Return whether all replicas answer and one has it: what then has no copy is lost."""
        answers = self._answers(lambda store: store.has_folder(folder))
        return len(answers) == len(self._replicas) and any(answers)

    def files(self, folder: str) -> Iterator[tuple[str, int]]:
        found: dict[str, int] = {}
        answers = self._answers(lambda store: dict(store.files(folder)), seconds=LISTING_SECONDS)
        if not answers:
            raise self._away(folder)
        for each in reversed(answers):
            found |= each
        signs = (path for path in found if posixpath.basename(path) == PLACE_FILE and "/" in path)
        for sign in list(signs):
            found.pop(sign)
        yield from found.items()

    def remove_folder(self, folder: str) -> None:
        errors = []
        for each in self._replicas:
            try:
                each.store.remove_folder(folder)
            except (TilthError, OSError) as error:
                each.health.failed(error)
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
        answers = _asked(usable, lambda each: not table or each.has_sign(table), enough=self._root.quorum)
        for each in usable:
            match answers[each.number]:
                case True:
                    found.append(each)
                case False:
                    errors.append(StoreAwayError("the replica is made anew", file=str(each.root)))
                case Exception() as error:
                    errors.append(error)
        if len(found) < self._root.quorum:
            raise _too_few(self._root, path, len(found), errors)
        return found

    def _on_all(self, act: Callable[[Store], None], path: str) -> None:
        """Do what is done to every replica that answers; raises QuorumError where they are too few."""
        answers = _asked(self._usable(path), lambda each: act(each.store), enough=self._root.quorum)
        errors = [answer for answer in answers.values() if isinstance(answer, Exception)]
        if len(answers) - len(errors) < self._root.quorum:
            raise _too_few(self._root, path, len(answers) - len(errors), errors)

    def _first(self, path: str, ask: Callable[[Store], T]) -> T:
        """Return the answer of the first replica that has one; raises why none has, an absence last."""
        errors: list[Exception] = []
        for each in self._in_order():
            try:
                return ask(each.store)
            except (TilthError, OSError, FileSizeError) as error:
                each.health.failed(error)
                errors.append(error)
        raise min(errors, key=_weight)

    def _answers(self, ask: Callable[[Store], T], seconds: float = STRAGGLER_SECONDS) -> list[T]:
        """Return the answers of the replicas that give one, in their order."""
        usable = [each for each in self._replicas if not each.trouble]
        answers = _asked(usable, lambda each: ask(each.store), enough=1, seconds=seconds)
        return [answer for answer in answers.values() if not isinstance(answer, TilthError | OSError)]

    def _away(self, path: str) -> StoreAwayError:
        troubles = "; ".join(f"{each.root}: {each.trouble}" for each in self._replicas)
        return StoreAwayError("replicas do not answer", file=f"{self._root.uri}/{path}", because=troubles, hint=_HINT)


def _weight(error: Exception) -> int:
    """Order errors by what they say: one that says nothing of the file counts before one that says it is not there."""
    if isinstance(error, FileNotFoundError):
        return 2
    return 1 if isinstance(error, FileSizeError) else 0


def _too_few(root: StoreRoot, path: str, copies: int, errors: Sequence[Exception]) -> QuorumError:
    because = "; ".join(str(error) for error in errors)
    return QuorumError(file=f"{root.uri}/{path}", copies=copies, quorum=root.quorum, because=because, hint=_HINT)


class _Copies:
    """A new file in several replicas at once."""

    def __init__(self, root: StoreRoot, replicas: Sequence[Replica], path: str) -> None:
        """Raises FileExistsError, QuorumError."""
        self._root = root
        self._path = path
        self._files: dict[int, NewFile] = {}
        self._replicas = {each.number: each for each in replicas}
        self._errors: list[TilthError | OSError] = []
        for each in replicas:
            try:
                self._files[each.number] = each.store.create(path)
            except FileExistsError:
                self.give_up()
                raise
            except (TilthError, OSError) as error:
                self._fail(each.number, error)
        # Parquet's writer goes on asking after all have failed.
        self._given_up = next(iter(self._files.values()), None)
        self._check_count()

    @property
    def closed(self) -> bool:
        return False

    def write(self, data: bytes) -> int:
        for number, file in list(self._files.items()):
            try:
                file.write(data)
            except (TilthError, OSError) as error:
                self._give_up(number, file)
                self._fail(number, error)
        self._check_count()
        return len(memoryview(data).cast("B"))

    def tell(self) -> int:
        return self._file.tell()

    @property
    def written(self) -> DataFile:
        lacking = tuple(number for number in range(len(self._root.replicas)) if number not in self._files)
        return replace(self._file.written, lacking=lacking)

    def flush(self) -> None:
        """Do nothing: nothing is held back for a reader."""

    def close(self) -> None:
        """Do nothing; finish and give_up close."""

    def finish(self, *, fsync: bool) -> DataFile:
        """End all copies; a replica that takes long after a quorum has its own is not waited for."""
        folder = posixpath.dirname(self._path)

        def end(replica: Replica) -> None:
            self._files[replica.number].finish(fsync=fsync)
            if fsync:
                replica.store.sync(folder)

        ending = [self._replicas[number] for number in self._files]
        for number, answer in _asked(ending, end, enough=self._root.quorum).items():
            if isinstance(answer, TilthError | OSError):
                self._fail(number, answer)
        self._check_count()
        assert len({each.written for each in self._files.values()}) == 1, "copies differ"
        return self.written

    def give_up(self) -> None:
        for number, file in list(self._files.items()):
            self._give_up(number, file)

    def _give_up(self, number: int, file: NewFile) -> None:
        try:
            file.give_up()
        except (TilthError, OSError) as error:
            self._replicas[number].health.failed(error)

    @property
    def _file(self) -> NewFile:
        """Return one that has got all bytes, where there is one: a copy that failed says less."""
        found = next(iter(self._files.values()), self._given_up)
        assert found is not None
        return found

    def _fail(self, number: int, error: Exception) -> None:
        """Go on without this copy."""
        self._files.pop(number, None)
        replica = self._replicas[number]
        replica.health.failed(error)
        if isinstance(error, FileExistsError) or not isinstance(error, TilthError | OSError):
            raise error
        _log.warning("copy_not_made", root=replica.root, file=self._path, reason=trouble_of(error))
        self._errors.append(error)

    def _check_count(self) -> None:
        if len(self._files) < self._root.quorum:
            self.give_up()
            raise _too_few(self._root, self._path, len(self._files), self._errors)


class _Removing:
    """Files on their way out of one replica, some at a time, on a thread of its own."""

    def __init__(self, replica: Replica, paths: Sequence[str]) -> None:
        self.replica = replica
        self._paths = paths
        self._removal = Removal()
        self._changed = threading.Condition()
        self._is_over = False
        threading.Thread(target=self._run, name="tilth-replica-removal", daemon=True).start()

    def ended(self) -> Removal:
        """Wait as long as files go; what is not known to be gone has failed."""
        with self._changed:
            done = -1
            while done < self._done:
                done = self._done
                # Notified of each progress, and of the end.
                self._is_over or self._changed.wait(REMOVAL_SECONDS)
            found = Removal(list(self._removal.gone), list(self._removal.found), dict(self._removal.failed))
        known = {*found.gone, *found.failed}
        why = StoreAwayError(f"no answer in {REMOVAL_SECONDS:g} seconds", file=str(self.replica.root), hint=_HINT)
        found.fail((path for path in self._paths if path not in known), why)
        return found

    def _removed(self, start: int) -> Removal:
        """Remove the next paths; without a way to the replica, fail for all that are left."""
        removal, left = Removal(), self._paths[start:]
        if trouble := self.replica.trouble:
            removal.fail(left, StoreAwayError(trouble, file=str(self.replica.root), hint=_HINT))
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
            removal = self._removed(start)
            start += len(removal.gone) + len(removal.failed)
            with self._changed:
                self._removal.gone += removal.gone
                self._removal.found += removal.found
                self._removal.failed |= removal.failed
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


def _asked(
    replicas: Sequence[Replica], ask: Callable[[Replica], T], *, enough: int, seconds: float = STRAGGLER_SECONDS
) -> dict[int, T | TilthError | OSError]:
    """Ask all at once; return the answer of each, or why there is none, by number.

    When so many have answered well, or the others are away, these have so many seconds; one that takes longer is not
    waited for, and is not used until it answers again. What it was asked to do may happen later.
    """
    answers: dict[int, T | TilthError | OSError] = {}
    defects: list[Exception] = []
    changed = threading.Condition()

    def answer(replica: Replica) -> None:
        found: T | TilthError | OSError
        try:
            found = ask(replica)
        except (TilthError, OSError) as error:
            found = error
        # A defect, which is raised where somebody sees it.
        except BaseException as error:
            defects.append(as_exception(error))
            found = TilthError(str(error))
        with changed:
            answers[replica.number] = found
            changed.notify_all()

    # Disks too: one that hangs, as a network's may, does so for ever.
    for each in replicas:
        threading.Thread(target=answer, args=(each,), name="tilth-replica-asked", daemon=True).start()
    with changed:
        for _ in range(round(HUNG_SECONDS / LOOK_SECONDS)):
            # One that was found to be away meanwhile is not waited for.
            if _good(answers) >= enough or all(each.number in answers or each.trouble for each in replicas):
                break
            changed.wait(LOOK_SECONDS)
        changed.wait_for(lambda: len(answers) == len(replicas), timeout=seconds)
        known = dict(answers)
    for defect in defects:
        raise defect
    for each in replicas:
        found = known.get(each.number)
        if each.number not in known:
            error = known[each.number] = StoreAwayError(f"no answer in {seconds:g} seconds", file=str(each.root))
            each.health.failed(error)
        elif isinstance(found, TilthError | OSError):
            each.health.failed(found)
    return {each.number: known[each.number] for each in replicas}


def _good(answers: Mapping[int, object]) -> int:
    return sum(not isinstance(answer, Exception) for answer in answers.values())
