"""The seam for bytes: what storage needs of a local disk, an object store or an HDFS.

Covers: the protocol. Does not cover: its backends (backends/), a store over several of them (replicas/), which one a
root has (stores.py), what the bytes mean.
Always holds: a file that `create` made is never written to again; files are listed only to remove a folder, to make a
catalog from the files alone, and to compare a table's files with the catalog. Of a bucket, the names of one transaction
are listed, too.
A file that is missing is a FileNotFoundError, a name that is taken a FileExistsError, a file that is not as long as it
was a FileSizeError; a store that does not answer is a TilthError of that meaning.

Tests: tests/integration/storage/test_store_behaviour.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa

from tilth.base.errors import TilthError
from tilth.model.part import DataFile

T = TypeVar("T")


class FileSizeError(Exception):
    """A file is not as long as it was when it was written."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        #: Current size.
        self.size = size


class StoredFile(NamedTuple):
    """A file as a listing shows it."""

    #: Path relative to the root.
    path: str
    size: int
    #: Time of the last write, by the store's clock.
    modified_ms: int
    #: Mark of the content that the store gives it (ETag); empty: none is known.
    tag: str = ""


@dataclass(slots=True)
class Removal:
    """Outcome of a removal, for each of the paths."""

    #: Paths that are gone now, whether they existed or not.
    gone: list[str] = field(default_factory=list)
    #: Paths of `gone` that existed, if the store reports it: most object stores do not.
    found: list[str] = field(default_factory=list)
    #: Paths that may still exist, and the reason.
    failed: dict[str, TilthError | OSError] = field(default_factory=dict)

    def fail(self, paths: Iterable[str], error: TilthError | OSError) -> None:
        self.failed |= dict.fromkeys(paths, error)

    def check(self) -> None:
        """Raises why the first of them may be there still."""
        for error in self.failed.values():
            raise error


@dataclass(frozen=True, slots=True)
class OnlyCopy:
    """Call of the store that has the only copy of each file."""

    store: Store

    def __call__(self, call: Callable[[Store], T], /) -> T:
        return call(self.store)


class NewFile(Protocol):
    """A new file that sums what is written to it; Arrow's writers take it for a file of Python's."""

    @property
    def closed(self) -> bool:
        """Return false for Parquet's writer, which must be able to end after `give_up` too."""
        ...

    def write(self, data: bytes) -> int:
        """Append; return the number of bytes. After `give_up` nothing happens."""
        ...

    def tell(self) -> int: ...

    @property
    def written(self) -> DataFile:
        """Return the facts of the file with everything written to it."""
        ...

    def flush(self) -> None:
        """Do nothing: nothing is held back for a reader."""
        ...

    def close(self) -> None:
        """Do nothing; finish and give_up close: Parquet's writer closes what it writes to too early."""
        ...

    def finish(self, *, fsync: bool) -> DataFile:
        """Close the file; with `fsync`, wait until it is on the disk. Raises FileExistsError."""
        ...

    def give_up(self) -> None:
        """Free the bytes and keep the name, so that the numbers of an attempt's files have no hole."""
        ...

    def abandon(self) -> None:
        """Stop writing, and do nothing under the name: another writer may have made the file meanwhile."""
        ...


class CopyCall(Protocol):
    """Calls a function with the store of one copy of a file, and returns its result."""

    def __call__(self, call: Callable[[Store], T], /) -> T: ...


class Store(Protocol):
    """Files below one root, named by their paths below it. For any thread."""

    @property
    def copies(self) -> tuple[CopyCall, ...]:
        """Return a call for each copy of a file, in the order to read them; most stores have one copy."""
        ...

    #: Maximum number of names removed by one request.
    names_per_removal: int
    #: Maximum number of new files that are ended at a time; 1 where that takes no time.
    ending_max: int

    def prepare(self, folder: str, *, fsync: bool) -> None:
        """Make a folder and those above it where that is needed, and wait for their names."""
        ...

    def sync(self, folder: str) -> None:
        """Wait until the names in the folder are on the disk."""
        ...

    def create(self, path: str) -> NewFile:
        """Begin a new file; raises FileExistsError where the name is taken, here or when it is finished."""
        ...

    def stream(self, path: str) -> pa.NativeFile:
        """Begin a new file that no commit names: nobody waits for the disk. Raises FileExistsError as `create`."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a small file at once, over one that may be there; nobody waits for the disk."""
        ...

    def read(self, path: str, *, size: int | None = None) -> pa.Buffer:
        """Return all bytes of a file; raises FileSizeError where they are not so many."""
        ...

    def open(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        """Open a file for reading parts of it; raises FileSizeError where it is not so long."""
        ...

    def size(self, path: str) -> int: ...

    def checksum(self, path: str) -> tuple[int, int]:
        """Read a file for its size and its CRC-32."""
        ...

    def stamp(self, path: str) -> tuple[int, ...]:
        """Return numbers that differ when the file has been written anew; none where it is not there."""
        ...

    def remove(self, paths: Sequence[str]) -> Removal:
        """Remove files, in this order but for those of one request; raises no error of the store.

        One that cannot be removed stops no other; a store that does not answer is not called for the others.
        """
        ...

    def exist(self, paths: Sequence[str]) -> list[bool]:
        """Return for each path whether a file is there."""
        ...

    def list_prefix(self, prefix: str) -> list[str] | None:
        """Return the paths of all files that begin with the prefix; None if the whole folder would be read for that,
        and a request for one name costs little.
        """
        ...

    def has_folder(self, folder: str) -> bool:
        """Return whether the folder is there: with it, a missing file is lost; without it, the store is away."""
        ...

    def files(self, folder: str) -> Iterator[StoredFile]:
        """Yield each file below a folder; none if there is no such folder."""
        ...

    def remove_folder(self, folder: str) -> None:
        """Remove all below a folder; nothing where there is nothing. Raises why a file is still there when all others
        are gone.
        """
        ...
