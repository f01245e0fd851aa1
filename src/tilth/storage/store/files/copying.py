"""Copies of single files: compared, made, removed, in one replica of a root.

Covers: what a task does with one file. Does not cover: which files are copied (tilth.maintenance).
Always holds: a copy that is wrong goes only when a right one has been read in whole; a copy counts as made when what
was written has the sum that the catalog has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial

from tilth.base.errors import CorruptError, TilthError
from tilth.model.part import DataFile
from tilth.storage.errors import StoreAwayError
from tilth.storage.store.files.files import check_bytes, corrupt_error
from tilth.storage.store.paths import sidecars_of
from tilth.storage.store.protocol import FileSizeError
from tilth.storage.store.replicas.failover import FailoverReader
from tilth.storage.store.replicas.new_copies import NewCopies
from tilth.storage.store.replicas.replica import Replica, call_replica, replicas_of
from tilth.storage.store.root import Folder, StoreRoot
from tilth.storage.store.stores import store_of

_PIECE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class CopyCheck:
    """Copies of a file that were read, by the numbers of their replicas; 0 where the root has none."""

    #: Reason why a copy differs from what was written.
    wrong: dict[int, str]
    #: Reason why a copy could not be read; its content is unknown.
    away: dict[int, str]

    def is_good_in_one(self, root: StoreRoot) -> bool:
        """Return whether some copy is right."""
        return len(self.wrong) + len(self.away) < len(root.locations)


def read_copies(folder: Folder, file: DataFile) -> CopyCheck:
    """Read every copy of a file."""
    found = CopyCheck({}, {})
    if not folder.root.replicas:
        _check_one(found, 0, folder, file, lambda: check_bytes(store_of(folder.root), folder, file))
    for each in replicas_of(folder.root):
        _check_one(found, each.number, Folder(each.root, folder.path), file, partial(_read, each, folder, file))
    return found


def _check_one(found: CopyCheck, number: int, folder: Folder, file: DataFile, read: Callable[[], None]) -> None:
    try:
        read()
    except CorruptError as error:
        found.wrong[number] = str(error)
    except OSError as error:
        found.wrong[number] = str(corrupt_error(folder, file.name, because=str(error)))
    except TilthError as error:
        found.away[number] = str(error)


def make_copy(folder: Folder, file: DataFile, replica: int) -> int:
    """Make the copy of a replica right, whatever is there; return the bytes that were copied, 0: it was right.

    Raises what `missing_error` and `corrupt_error` return where no other replica has a right one, and the errors of
    the stores.
    """
    replicas = replicas_of(folder.root)
    target = replicas[replica]
    try:
        _read(target, folder, file)
        return 0
    except (CorruptError, OSError):
        pass
    error: Exception = corrupt_error(folder, file.name, because="no replica has it")
    for source in replicas:
        if source is target:
            continue
        try:
            # The whole source is checked before the target is changed.
            _read(source, folder, file)
        except (TilthError, OSError) as found:
            # A replica that does not answer is no evidence about the file.
            error = found if isinstance(error, CorruptError) else error
            continue
        _copy(source, target, folder, file)
        _copy_beside(source, target, folder, file)
        return file.size
    if isinstance(error, OSError):
        raise StoreAwayError("no replica can be read", file=folder.uri(file.name), because=str(error)) from error
    raise error


def remove_copies(folder: Folder, replica: int, names: Sequence[str]) -> None:
    """Remove files and their sidecars from one replica. Raises the error of a file that may still exist."""
    one = replicas_of(folder.root)[replica]
    paths = [folder.key(each) for name in names for each in (*sidecars_of(name), name)]
    call_replica(one, lambda: one.store.remove(paths)).check()


def missing_copies(folder: Folder, replica: int, files: Sequence[DataFile]) -> list[DataFile]:
    """Return those of the files that a replica does not have at all."""
    one = replicas_of(folder.root)[replica]
    there = call_replica(one, lambda: one.store.exist([folder.key(file.name) for file in files]))
    return [file for file, is_there in zip(files, there, strict=True) if not is_there]


def _read(replica: Replica, folder: Folder, file: DataFile) -> None:
    """Read one copy completely. Raises the errors of `check_bytes`, and StoreAwayError if the replica is away."""
    call_replica(replica, lambda: check_bytes(replica.store, Folder(replica.root, folder.path), file))


def _copy(source: Replica, target: Replica, folder: Folder, file: DataFile) -> None:
    key, target_folder = folder.key(file.name), Folder(target.root, folder.path)
    call_replica(target, lambda: target.store.prepare(folder.path, fsync=True))
    call_replica(target, lambda: target.store.remove([key])).check()
    new = NewCopies(folder.root.with_quorum(1), [target], key, is_made_again=True)
    try:
        for piece in _pieces(source, key, file.size):
            new.write(piece)
        written = new.finish(fsync=True)
    except BaseException:
        new.give_up()
        call_replica(target, lambda: target.store.remove([key]))
        raise
    if (written.size, written.checksum) != (file.size, file.checksum):
        call_replica(target, lambda: target.store.remove([key])).check()
        raise corrupt_error(target_folder, file.name, because="its source changed while it was copied")


def _copy_beside(source: Replica, target: Replica, folder: Folder, file: DataFile) -> None:
    """Copy the sidecars of a file that exist; none of them is indispensable."""
    for name in sidecars_of(file.name):
        with suppress(TilthError, OSError, FileSizeError):
            content = call_replica(source, partial(source.store.read, folder.key(name)))
            call_replica(target, partial(target.store.put, folder.key(name), content.to_pybytes()))


def _pieces(source: Replica, key: str, size: int) -> Iterator[bytes]:
    with closing(FailoverReader([source], key, size=size)) as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
