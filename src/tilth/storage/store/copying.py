"""Copies of single files: compared, made, removed, in one replica of a root.

Covers: what a task does with one file. Does not cover: which files are copied (tilth.maintenance).
Always holds: a copy that is wrong goes only when a right one has been read in whole; a copy counts as made when what
was written has the sum that the catalog has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tilth.base.errors import CorruptError, TilthError
from tilth.model.part import DataFile
from tilth.storage.errors import StoreAwayError
from tilth.storage.store.files import check_bytes, corrupt
from tilth.storage.store.paths import beside
from tilth.storage.store.root import Folder, StoreRoot
from tilth.storage.store.store import FileSizeError, Store
from tilth.storage.store.stores import store_of

_PIECE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class CopyCheck:
    """Copies of a file that were read, by the numbers of their replicas; 0 where the root has none."""

    #: Why a copy is not what was written.
    wrong: dict[int, str]
    #: Why a copy could not be read, which says nothing about it.
    away: dict[int, str]

    def is_good_in_one(self, root: StoreRoot) -> bool:
        """Return whether some copy is right."""
        return len(self.wrong) + len(self.away) < len(root.places)


def check_copies(folder: Folder, file: DataFile) -> CopyCheck:
    """Read every copy of a file."""
    found = CopyCheck({}, {})
    for number, root in enumerate(folder.root.places):
        place = Folder(root, folder.path)
        try:
            check_bytes(store_of(root), place, file)
        except CorruptError as error:
            found.wrong[number] = str(error)
        except OSError as error:
            found.wrong[number] = str(corrupt(place, file.name, because=str(error)))
        except TilthError as error:
            found.away[number] = str(error)
    return found


def make_copy(folder: Folder, file: DataFile, replica: int) -> int:
    """Make the copy of a replica right, whatever is there; return the bytes that were copied, 0: it was right.

    Raises what `missing` and `corrupt` return where no other replica has a right one, and what the stores say.
    """
    target = store_of(folder.root.replicas[replica])
    place = Folder(folder.root.replicas[replica], folder.path)
    try:
        check_bytes(target, place, file)
        return 0
    except (CorruptError, OSError):
        pass
    error: Exception = corrupt(folder, file.name, because="no replica has it")
    for number, root in enumerate(folder.root.replicas):
        if number == replica:
            continue
        try:
            # In whole, before anything is touched.
            check_bytes(store_of(root), Folder(root, folder.path), file)
        except (TilthError, OSError) as found:
            # That one does not answer says nothing about the file.
            error = found if isinstance(error, CorruptError) else error
            continue
        _copy(store_of(root), target, place, file)
        _copy_beside(store_of(root), target, folder, file)
        return file.size
    if isinstance(error, OSError):
        raise StoreAwayError("no replica can be read", file=folder.uri(file.name), because=str(error)) from error
    raise error


def remove_copies(folder: Folder, replica: int, names: Sequence[str]) -> None:
    """Remove files and what lies beside them from one replica. Raises why one may be there still."""
    store = store_of(folder.root.replicas[replica])
    store.remove([folder.key(each) for name in names for each in (*beside(name), name)]).check()


def missing_copies(folder: Folder, replica: int, files: Sequence[DataFile]) -> list[DataFile]:
    """Return those of the files that a replica does not have at all."""
    store = store_of(folder.root.replicas[replica])
    there = store.exist([folder.key(file.name) for file in files])
    return [file for file, is_there in zip(files, there, strict=True) if not is_there]


def _copy(source: Store, target: Store, place: Folder, file: DataFile) -> None:
    key = place.key(file.name)
    target.prepare(place.path, fsync=True)
    target.remove([key]).check()
    new = target.create(key)
    try:
        for piece in _pieces(source, key, file.size):
            new.write(piece)
        written = new.finish(fsync=True)
    except BaseException:
        new.give_up()
        target.remove([key])
        raise
    target.sync(place.path)
    if (written.size, written.checksum) != (file.size, file.checksum):
        target.remove([key]).check()
        raise corrupt(place, file.name, because="its source changed while it was copied")


def _copy_beside(source: Store, target: Store, folder: Folder, file: DataFile) -> None:
    """Copy what lies beside a file, as far as it is there: nobody is lost without it."""
    for name in beside(file.name):
        with suppress(TilthError, OSError, FileSizeError):
            target.put(folder.key(name), source.read(folder.key(name)).to_pybytes())


def _pieces(store: Store, key: str, size: int) -> Iterator[bytes]:
    with store.open(key, size=size) as source:
        while piece := source.read(_PIECE_BYTES):
            yield piece
