"""Objects in a bucket of S3, of a store that speaks like it, of GCS, or in a container of Azure, through obstore.

Covers: the store of a bucket's prefix, its errors. Does not cover: how a bucket is opened (buckets.py), Spark's own
reading of it (read/spark.py).
Always holds: an object is written once, under a name that nobody had; one that could not be written for sure is written
again with the same bytes, or given up. No error carries a secret, nor the store's own words about one.

A large object goes up in pieces while it is written (uploads.py). What a killed process has sent of one is no object:
it stays in the bucket until a lifecycle rule for incomplete uploads removes it.

Tests: tests/integration/storage/test_store_behaviour.py, tests/integration/storage/test_store_faults.py.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError

from tilth.base.errors import TilthError
from tilth.storage.errors import StoreAwayError, StoreBusyError, StoreRefusedError
from tilth.storage.store.backends.buckets import ObjectTimes, open_bucket
from tilth.storage.store.backends.streams import (
    HELD_BYTES_MAX,
    READ_BYTES_MAX,
    READ_BYTES_MIN,
    HeldFile,
    Pieces,
    Stream,
    spans,
)
from tilth.storage.store.backends.uploads import Upload
from tilth.storage.store.protocol import FileSizeError, NewFile, OnlyCopy, Removal, StoredFile
from tilth.storage.store.root import StoreRoot

#: Times that an object is sent whose outcome is not known.
PUT_TRIES_MAX = 3
#: Names in a request to remove them, by the kind of store.
REMOVE_NAMES_MAX = {"s3": 1000, "az": 256, "gs": 1}
#: Names in a page of a listing.
LIST_MAX = 1000
#: Times that such a request is sent again without a name that was refused.
REMOVE_TRIES_MAX = 8
#: Names that are checked one by one after a removal in which one was missing; more are found in a listing.
SINGLE_CHECKS_MAX = 8
#: Pieces of a large object that are under way at a time.
PIECES_AT_A_TIME = 4
#: New objects that are ended at a time.
ENDING_MAX = 8
#: Requests at a time.
REQUESTS_MAX = 16

#: Patterns in the client's errors: no connection; a status that rejects the request.
_NO_CONNECTION = re.compile(r"kind: Connect\b")
_REFUSAL = re.compile(r"status code: (4(?!08|29)\d\d|3\d\d)")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound")
_NO_RANGE = "status code: 416"
_NOT_REMOVED = re.compile(r"(?:DeleteObjects|Bulk delete) request failed for key (.+?): .*?\(code: (\w+)\)", re.DOTALL)
#: Error codes of a removal that is not permitted; after any other code it is retried.
_REFUSED_CODES = re.compile(r"AccessDenied|Invalid\w+|\w*Lock\w*|4(?!08|29)\d\d")
_ERROR_CODE = re.compile(r"<Code>(\w+)</Code>")
#: Maximum length of a cause quoted from the client's error.
_BECAUSE_CHARS_MAX = 200

T = TypeVar("T")


class ObjectStore:
    """The objects below a prefix of a bucket."""

    def __init__(self, root: StoreRoot, times: ObjectTimes | None = None) -> None:
        """Raises StoreSecretError; sends no request yet."""
        self._root = root
        self._bucket = open_bucket(root, times or ObjectTimes())
        self.names_per_removal = REMOVE_NAMES_MAX[root.kind]
        self.ending_max = ENDING_MAX

    @property
    def copies(self) -> tuple[OnlyCopy, ...]:
        return (OnlyCopy(self),)

    def prepare(self, folder: str, *, fsync: bool) -> None:
        """Do nothing: a bucket has no folders."""

    def sync(self, folder: str) -> None:
        """Do nothing: an object that was answered for is safe, name and all."""

    def create(self, path: str) -> NewFile:
        return _Upload(self, path)

    def stream(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(Stream(self.create(path)), mode="w")

    def put(self, path: str, data: bytes) -> None:
        with self._translate_errors(path, is_write=True):
            obstore.put(self._bucket, path, data, use_multipart=False)

    def read(self, path: str, *, size: int | None = None) -> pa.Buffer:
        with self._translate_errors(path):
            found = obstore.get(self._bucket, path)
            whole = found.meta["size"]
            if size is not None and whole != size:
                raise FileSizeError(whole)
            if whole <= READ_BYTES_MAX:
                return pa.py_buffer(found.bytes())
            pieces = [obstore.get_range(self._bucket, path, start=start, end=end) for start, end in spans(0, whole)]
            return pa.py_buffer(b"".join(memoryview(piece) for piece in pieces))

    def open(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        """Open an object with one request (on Azure: two), which brings its end: all of it where it is small."""
        length = READ_BYTES_MIN if size is None else max(1, min(size, READ_BYTES_MIN))
        with self._translate_errors(path):
            whole, start, end = self._end(path, length)
        if size is not None and whole != size:
            raise FileSizeError(whole)
        return pa.PythonFile(Pieces(partial(self.piece, path), whole, start, end), mode="r")

    def size(self, path: str) -> int:
        with self._translate_errors(path):
            return obstore.head(self._bucket, path)["size"]

    def checksum(self, path: str) -> tuple[int, int]:
        size = checksum = 0
        with self._translate_errors(path):
            whole = obstore.head(self._bucket, path)["size"]
            for start, end in spans(0, whole):
                piece = obstore.get_range(self._bucket, path, start=start, end=end)
                checksum = zlib.crc32(piece, checksum)
                size += len(piece)
        return size, checksum

    def stamp(self, path: str) -> tuple[int, ...]:
        try:
            with self._translate_errors(path):
                found = obstore.head(self._bucket, path)
        except FileNotFoundError:
            return ()
        changed_ms = int(found["last_modified"].timestamp() * 1000)
        return found["size"], zlib.crc32((found["e_tag"] or "").encode()), changed_ms

    def exist(self, paths: Sequence[str]) -> list[bool]:
        if len(paths) <= 1:
            return [self._is_there(path) for path in paths]
        with ThreadPoolExecutor(min(REQUESTS_MAX, len(paths))) as pool:
            return list(pool.map(self._is_there, paths))

    def remove(self, paths: Sequence[str]) -> Removal:
        removal = Removal()
        for start in range(0, len(paths), self.names_per_removal):
            error = self._remove(list(paths[start : start + self.names_per_removal]), removal)
            if error is not None:
                removal.fail(paths[start + self.names_per_removal :], error)
                break
        return removal

    def list_prefix(self, prefix: str) -> list[str]:
        """List the names from the prefix on until others follow: on S3 and GCS one request for a thousand names; on
        Azure the names before the prefix are read, too.
        """
        folder, after, found = prefix.rpartition("/")[0], prefix, list[str]()
        while True:
            with self._translate_errors(prefix):
                # Each page is a listing of its own: s3proxy refuses the second page of one that began at a name.
                pages = obstore.list(self._bucket, f"{folder}/", offset=after, chunk_size=LIST_MAX)
                page = [each["path"] for each in next(iter(pages), ())]
            if page != sorted(page):
                # A bucket that lists in another order is read whole.
                return [each.path for each in self.files(folder) if each.path.startswith(prefix)]
            matches = [each for each in page if each.startswith(prefix)]
            found += matches
            if len(matches) < LIST_MAX:
                return found
            after = matches[-1]

    def has_folder(self, folder: str) -> bool:
        """Return whether the bucket is there."""
        try:
            # Only the answer to a GET shows what is missing.
            with self._translate_errors(folder):
                obstore.get(self._bucket, f"{folder}/-" if folder else "-")
        except StoreAwayError:
            return False
        except FileNotFoundError:
            return True
        return True

    def files(self, folder: str) -> Iterator[StoredFile]:
        with self._translate_errors(folder):
            for chunk in obstore.list(self._bucket, f"{folder}/" if folder else None):
                for found in chunk:
                    modified_ms = int(found["last_modified"].timestamp() * 1000)
                    yield StoredFile(found["path"], found["size"], modified_ms, found["e_tag"] or "")

    def remove_folder(self, folder: str) -> None:
        removal = Removal()
        paths = (found.path for found in self.files(folder))
        while chunk := list(islice(paths, REMOVE_NAMES_MAX["s3"])):
            removal.failed |= self.remove(chunk).failed
            if not all(isinstance(error, StoreRefusedError) for error in removal.failed.values()):
                break
        removal.check()

    def send(self, path: str, data: bytes) -> None:
        """Write an object whose name nobody has. Raises FileExistsError."""
        for tries in range(1, PUT_TRIES_MAX + 1):
            try:
                with self._translate_errors(path, is_write=True):
                    obstore.put(self._bucket, path, data, mode="create", use_multipart=False)
                return
            except FileExistsError:
                # An earlier request whose answer was lost may have written it, perhaps one that the client repeated.
                if self._has(path, data):
                    return
                raise
            except StoreBusyError:
                if tries == PUT_TRIES_MAX:
                    raise

    def send_in_pieces(self, path: str) -> Upload:
        """Begin a large object. Raises FileExistsError."""
        if self._is_there(path):
            raise FileExistsError(self._uri(path))

        def put(pieces: Iterator[bytes]) -> None:
            obstore.put(
                self._bucket,
                path,
                pieces,
                use_multipart=True,
                chunk_size=HELD_BYTES_MAX,
                max_concurrency=PIECES_AT_A_TIME,
            )

        return Upload(put)

    def end_pieces(self, path: str, upload: Upload, size: int) -> None:
        """End a large object of this size. A lost answer is no failure if the object is there: the client has repeated
        the request, and the store does not know the upload any more.
        """
        try:
            with self._translate_errors(path, is_write=True):
                upload.close()
        except TilthError:
            with suppress(TilthError, FileNotFoundError):
                if self.size(path) == size:
                    return
            raise

    def call_upload(self, path: str, call: Callable[[], T]) -> T:
        """Return the result of a call of an upload that is open; raises the errors of the store."""
        with self._translate_errors(path, is_write=True):
            return call()

    def piece(self, path: str, start: int, end: int) -> bytes:
        """Return bytes of an object."""
        with self._translate_errors(path):
            return bytes(obstore.get_range(self._bucket, path, start=start, end=end))

    def _remove(self, names: list[str], removal: Removal) -> TilthError | None:
        """Remove names by one request; return why no further request is sent, if so."""
        left = names
        why: TilthError = StoreBusyError(file=self._uri(names[0]), hint="the operation is tried again")
        for _ in range(REMOVE_TRIES_MAX):
            try:
                refused = self._first_refusal(left)
            except FileNotFoundError:
                left = self._remaining(left, removal)
                if not left:
                    return None
                continue
            except TilthError as error:
                removal.fail(left, error)
                return None if isinstance(error, StoreRefusedError) and self.names_per_removal == 1 else error
            if refused is None:
                removal.gone += left
                # The answer to a removal of several names does not show which of them existed.
                removal.found += left if self.names_per_removal == 1 else ()
                return None
            name, why = refused
            removal.fail([name], why)
            left = [each for each in left if each != name]
            if not left:
                return None
        removal.fail(left, why)
        return None

    def _remaining(self, names: list[str], removal: Removal) -> list[str]:
        """Return the names that are there after a request to remove all of them, whose answer was that one was not
        there.

        Azure has tried each of the names then, and its answer is about one of them. Few names are checked one by one:
        a listing of their folders costs a request for some thousands of files, whatever the number of names.
        """
        there: set[str] = set()
        try:
            if len(names) > SINGLE_CHECKS_MAX:
                for folder in {name.rpartition("/")[0] for name in names}:
                    there.update(found.path for found in self.files(folder))
            elif len(names) > 1:
                there.update(name for name in names if self._is_there(name))
        except TilthError as error:
            removal.fail(names, error)
            return []
        removal.gone += [name for name in names if name not in there]
        return [name for name in names if name in there]

    def _first_refusal(self, names: list[str]) -> tuple[str, TilthError] | None:
        """Remove names by one request; return one that stays, and why, where the store reports one."""
        with self._translate_errors(names[0]):
            try:
                obstore.delete(self._bucket, names)
            except BaseError as error:
                found = _NOT_REMOVED.search(str(error))
                name = found[1].removeprefix(f"{self._root.prefix}/") if found else ""
                if found is None or name not in names:
                    raise
                facts = {"file": self._uri(name), "because": found[2]}
                if _REFUSED_CODES.fullmatch(found[2]):
                    return name, StoreRefusedError(**facts, hint="check what the key may remove in this bucket")
                return name, StoreBusyError(**facts, hint="the operation is tried again")
        return None

    def _end(self, path: str, length: int) -> tuple[int, int, bytes]:
        """Return the size of an object, an offset in it and the bytes from there on."""
        if self._root.kind == "az":
            # Azure gives no range that is counted from the end.
            whole = obstore.head(self._bucket, path)["size"]
            start = max(0, whole - length)
            end = obstore.get_range(self._bucket, path, start=start, end=whole) if whole else b""
            return whole, start, bytes(end)
        try:
            found = obstore.get(self._bucket, path, options={"range": {"suffix": length}})
            return found.meta["size"], found.range[0], bytes(found.bytes())
        except BaseError as error:
            # An empty object has no range.
            if _NO_RANGE not in str(error):
                raise
            return 0, 0, b""

    def _has(self, path: str, data: bytes) -> bool:
        try:
            return bool(self.read(path, size=len(data)).equals(pa.py_buffer(data)))
        except (FileSizeError, FileNotFoundError):
            return False

    def _is_there(self, path: str) -> bool:
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def _uri(self, path: str) -> str:
        return f"{self._root.uri}/{path}"

    @contextmanager
    def _translate_errors(self, path: str, *, is_write: bool = False) -> Iterator[None]:
        """Translate errors of the client into those of the protocol."""
        try:
            yield
        except FileNotFoundError as error:
            if is_write or _NO_BUCKET.search(str(error)):
                hint = "create the bucket, or correct the address of the store"
                raise StoreAwayError("the bucket is not there", file=self._uri(path), hint=hint) from None
            raise FileNotFoundError(self._uri(path)) from None
        except AlreadyExistsError:
            raise FileExistsError(self._uri(path)) from None
        except (BaseError, OSError) as error:
            raise self._error(path, error) from None

    def _error(self, path: str, error: Exception) -> TilthError:
        text = str(error)
        status = _REFUSAL.search(text)
        if status is not None or isinstance(error, PermissionDeniedError | UnauthenticatedError):
            # The answer may hold the key and what was signed.
            code = _ERROR_CODE.search(text)
            because = code[1] if code else status[1] if status else type(error).__name__
            hint = "check the key, the secret, the region and what they may do in this bucket"
            return StoreRefusedError(file=self._uri(path), because=because, hint=hint)
        because = " ".join(text.partition("Debug source:")[0].split())[:_BECAUSE_CHARS_MAX]
        if _NO_CONNECTION.search(text):
            hint = "check the endpoint and that the store runs"
            return StoreAwayError("the store does not answer", file=self._uri(path), because=because, hint=hint)
        return StoreBusyError(file=self._uri(path), because=because, hint="the operation is tried again")


class _Upload(HeldFile):
    """A new object of this store."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        super().__init__(path)
        self._store = store
        self._upload: Upload | None = None

    def send(self, held: bytes) -> None:
        if self._upload is None:
            self._upload = self._store.send_in_pieces(self.path)
        upload = self._upload
        self._store.call_upload(self.path, lambda: upload.write(held))

    def end(self, held: bytes, *, fsync: bool) -> None:
        """Send the rest; what was answered for is safe, whatever `fsync` is."""
        if self._upload is None:
            self._store.send(self.path, held)
        else:
            self.send(held)
            self._store.end_pieces(self.path, self._upload, self.written.size)
            self._upload = None

    def forget(self) -> None:
        if self._upload is not None:
            self._upload.give_up()
        self._upload = None

    def end_empty(self) -> None:
        # To Azure the name of an upload is taken already, by this file.
        end = self._store.send if self._upload is None else self._store.put
        self.forget()
        with suppress(TilthError, FileExistsError):
            end(self.path, b"")
