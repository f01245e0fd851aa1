"""Objects in a bucket of S3, of a store that speaks like it, of GCS, or in a container of Azure, through obstore.

Covers: the store of a bucket's prefix, its errors. Does not cover: how a bucket is opened (buckets.py), Spark's own
reading of it (read/spark.py).
Always holds: an object is written once, under a name that nobody had; one that could not be written for sure is written
again with the same bytes, or given up. No error carries a secret, nor the store's own words about one.

A large object goes up in pieces while it is written. What a killed process has sent of one is no object and stays in
the bucket until a lifecycle rule for incomplete uploads removes it.
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
from tilth.model.part import DataFile
from tilth.storage.errors import StoreAwayError, StoreBusyError, StoreRefusedError
from tilth.storage.store.buckets import ObjectTimes, open_bucket
from tilth.storage.store.root import StoreRoot
from tilth.storage.store.store import FileSizeError, NewFile
from tilth.storage.store.streams import READ_BYTES_MAX, READ_BYTES_MIN, Pieces, Stream, spans

#: Up to so many bytes are one request, which also refuses a name that is taken; more are sent in pieces of this size.
PUT_BYTES_MAX = 8 << 20
#: Times that an object is sent whose outcome is not known.
PUT_TRIES_MAX = 3
#: Names in a request to remove them, by the kind of store.
REMOVE_NAMES_MAX = {"s3": 1000, "az": 256, "gs": 1}
#: Where a question for a name costs as much as removing hundreds; on GCS each removal is a request too.
BLIND_NAMES = 16
#: Questions at a time.
ASKING_MAX = 16

#: Of what the client says: nobody took the connection; the answer was an error of whoever asks.
_NOBODY = re.compile(r"kind: Connect\b")
_REFUSAL = re.compile(r"status code: (4(?!08|29)\d\d|3\d\d)")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound")
_NO_RANGE = "status code: 416"
_ERROR_CODE = re.compile(r"<Code>(\w+)</Code>")
#: Of what the client says why it failed.
_BECAUSE_CHARS_MAX = 200

T = TypeVar("T")


class ObjectStore:
    """The objects below a prefix of a bucket."""

    def __init__(self, root: StoreRoot, times: ObjectTimes | None = None) -> None:
        """Raises StoreSecretError; asks the store nothing yet."""
        self._root = root
        self._bucket = open_bucket(root, times or ObjectTimes())
        self.blind_names = 0 if root.kind == "gs" else BLIND_NAMES
        # Not more than there may be holes in the names of a run that was killed.
        self.ending_max = max(1, self.blind_names // 2)

    def prepare(self, folder: str, *, fsync: bool) -> None:
        """Do nothing: a bucket has no folders."""

    def sync(self, folder: str) -> None:
        """Do nothing: an object that was answered for is safe, name and all."""

    def create(self, path: str) -> NewFile:
        return _Upload(self, path)

    def stream(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(Stream(self.create(path)), mode="w")

    def put(self, path: str, data: bytes) -> None:
        with self._asking(path, is_write=True):
            obstore.put(self._bucket, path, data, use_multipart=False)

    def read(self, path: str, *, size: int | None = None) -> pa.Buffer:
        with self._asking(path):
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
        with self._asking(path):
            whole, start, end = self._end(path, length)
        if size is not None and whole != size:
            raise FileSizeError(whole)
        return pa.PythonFile(Pieces(partial(self.piece, path), whole, start, end), mode="r")

    def size(self, path: str) -> int:
        with self._asking(path):
            return obstore.head(self._bucket, path)["size"]

    def checksum(self, path: str) -> tuple[int, int]:
        size = checksum = 0
        with self._asking(path):
            whole = obstore.head(self._bucket, path)["size"]
            for start, end in spans(0, whole):
                piece = obstore.get_range(self._bucket, path, start=start, end=end)
                checksum = zlib.crc32(piece, checksum)
                size += len(piece)
        return size, checksum

    def stamp(self, path: str) -> tuple[int, ...]:
        try:
            with self._asking(path):
                found = obstore.head(self._bucket, path)
        except FileNotFoundError:
            return ()
        changed_ms = int(found["last_modified"].timestamp() * 1000)
        return found["size"], zlib.crc32((found["e_tag"] or "").encode()), changed_ms

    def exist(self, paths: Sequence[str]) -> list[bool]:
        if len(paths) <= 1:
            return [self._is_there(path) for path in paths]
        with ThreadPoolExecutor(min(ASKING_MAX, len(paths))) as pool:
            return list(pool.map(self._is_there, paths))

    def remove(self, paths: Sequence[str]) -> Sequence[str]:
        step = REMOVE_NAMES_MAX[self._root.kind]
        for start in range(0, len(paths), step):
            names = list(paths[start : start + step])
            # Of several names in one request all were removed that were there.
            with suppress(FileNotFoundError), self._asking(names[0]):
                obstore.delete(self._bucket, names)
        # The store answers alike for what was there and what was not.
        return ()

    def has_folder(self, folder: str) -> bool:
        """Return whether the bucket is there."""
        try:
            # Only the answer to a GET says what is missing.
            with self._asking(folder):
                obstore.get(self._bucket, f"{folder}/-" if folder else "-")
        except StoreAwayError:
            return False
        except FileNotFoundError:
            return True
        return True

    def files(self, folder: str) -> Iterator[tuple[str, int]]:
        with self._asking(folder):
            for chunk in obstore.list(self._bucket, f"{folder}/" if folder else None):
                yield from ((found["path"], found["size"]) for found in chunk)

    def remove_folder(self, folder: str) -> None:
        with self._asking(folder):
            names = (found["path"] for chunk in obstore.list(self._bucket, f"{folder}/") for found in chunk)
            while chunk := list(islice(names, REMOVE_NAMES_MAX["s3"])):
                obstore.delete(self._bucket, chunk)

    def send(self, path: str, data: bytes) -> None:
        """Write an object whose name nobody has. Raises FileExistsError."""
        for tries in range(1, PUT_TRIES_MAX + 1):
            try:
                with self._asking(path, is_write=True):
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

    def send_in_pieces(self, path: str) -> obstore.WritableFile:
        """Begin a large object. Raises FileExistsError."""
        if self._is_there(path):
            raise FileExistsError(self._uri(path))
        with self._asking(path, is_write=True):
            return obstore.open_writer(self._bucket, path, buffer_size=PUT_BYTES_MAX)

    def asked(self, path: str, question: Callable[[], T]) -> T:
        """Return the answer to a question of a file that is open; raises the errors of the store."""
        with self._asking(path, is_write=True):
            return question()

    def piece(self, path: str, start: int, end: int) -> bytes:
        """Return bytes of an object."""
        with self._asking(path):
            return bytes(obstore.get_range(self._bucket, path, start=start, end=end))

    def _end(self, path: str, length: int) -> tuple[int, int, bytes]:
        """Return the size of an object, a place in it and the bytes from there on."""
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
            # Of an empty object there is no end.
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
    def _asking(self, path: str, *, is_write: bool = False) -> Iterator[None]:
        """Turn errors of the client into those of the protocol."""
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
        if _NOBODY.search(text):
            hint = "check the endpoint and that the store runs"
            return StoreAwayError("the store does not answer", file=self._uri(path), because=because, hint=hint)
        return StoreBusyError(file=self._uri(path), because=because, hint="the operation is tried again")


class _Upload:
    """A new object that sums what is written to it."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        self._held = bytearray()
        self._writer: obstore.WritableFile | None = None
        self._checksum = 0
        self._size = 0
        self._is_over = False

    @property
    def closed(self) -> bool:
        return False

    def write(self, data: bytes) -> int:
        view = memoryview(data).cast("B")
        if self._is_over:
            return len(view)
        self._checksum = zlib.crc32(view, self._checksum)
        self._size += len(view)
        self._held += view
        if len(self._held) > PUT_BYTES_MAX:
            self._send_held()
        return len(view)

    def tell(self) -> int:
        return self._size

    @property
    def written(self) -> DataFile:
        return DataFile(name=self._path.rpartition("/")[2], size=self._size, checksum=self._checksum)

    def flush(self) -> None:
        """Do nothing: an object is there when it is finished."""

    def close(self) -> None:
        """Do nothing; finish and give_up close."""

    def finish(self, *, fsync: bool) -> DataFile:
        """Send the rest; what was answered for is safe, whatever `fsync` says."""
        self._is_over = True
        if self._writer is None:
            self._store.send(self._path, bytes(self._held))
        else:
            self._send_held()
            self._store.asked(self._path, self._writer.close)
            self._writer = None
        self._held.clear()
        return self.written

    def give_up(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._held.clear()
        # Without `close` it never becomes an object; to Azure its name is taken already, by this file.
        end = self._store.send if self._writer is None else self._store.put
        self._writer = None
        with suppress(TilthError, FileExistsError):
            end(self._path, b"")

    def _send_held(self) -> None:
        if self._writer is None:
            self._writer = self._store.send_in_pieces(self._path)
        writer, held = self._writer, bytes(self._held)
        self._held.clear()
        self._store.asked(self._path, lambda: writer.write(held))
