"""Objects in a bucket of S3, or of a store that speaks like it, through obstore.

Covers: the store of a bucket's prefix, its errors. Does not cover: Spark's own reading of the bucket (read/spark.py).
Always holds: an object is written once, under a name that nobody had; one that could not be written for sure is written
again with the same bytes, or given up. No error carries a secret, nor the store's own words about one.

A large object goes up in pieces while it is written. What a killed process has sent of one is no object and stays in
the bucket until a lifecycle rule for incomplete uploads removes it.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store as Bucket

from tilth.base.errors import TilthError
from tilth.model.part import DataFile
from tilth.storage.errors import StoreAwayError, StoreBusyError, StoreRefusedError
from tilth.storage.store.root import StoreRoot
from tilth.storage.store.secrets import secret_of
from tilth.storage.store.store import FileSizeError, NewFile

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config

#: Up to so many bytes are one request, which also refuses a name that is taken; more are sent in pieces of this size.
PUT_BYTES_MAX = 8 << 20
#: A request for a part of a file brings so many bytes at least.
READ_BYTES_MIN = 1 << 20
#: And at most, so that it ends within its time.
READ_BYTES_MAX = 32 << 20
#: Pieces of a file that is open which are kept.
PIECES_MAX = 4
#: Times that an object is sent whose outcome is not known.
PUT_TRIES_MAX = 3
#: Names in a request to remove them.
REMOVE_NAMES_MAX = 1000
#: Questions at a time.
ASKING_MAX = 16

#: Of what the client says: nobody took the connection; the answer was an error of whoever asks.
_NOBODY = re.compile(r"kind: Connect\b")
_REFUSAL = re.compile(r"status code: (4(?!08|29)\d\d|3\d\d)")
_NO_BUCKET = "NoSuchBucket"
_NO_RANGE = "status code: 416"
_ERROR_CODE = re.compile(r"<Code>(\w+)</Code>")
#: Of what the client says why it failed.
_BECAUSE_CHARS_MAX = 200

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Times:
    """Times that a store may take."""

    connect_seconds: float = 3.0
    #: Of one request.
    request_seconds: float = 30.0
    retries_max: int = 3
    #: After this no request is begun again.
    retry_seconds: float = 60.0


class S3Store:
    """The objects below a prefix of a bucket."""

    #: A question for a name costs as much as removing a thousand.
    blind_names = 16

    def __init__(self, root: StoreRoot, times: S3Times | None = None) -> None:
        """Raises StoreSecretError; asks the store nothing yet."""
        self._root = root
        self._bucket = _bucket(root, times or S3Times())

    def prepare(self, folder: str, *, fsync: bool) -> None:
        """Do nothing: a bucket has no folders."""

    def sync(self, folder: str) -> None:
        """Do nothing: an object that was answered for is safe, name and all."""

    def create(self, path: str) -> NewFile:
        return _Upload(self, path)

    def stream(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(_Stream(self.create(path)), mode="w")

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
            pieces = [
                obstore.get_range(self._bucket, path, start=start, end=min(start + READ_BYTES_MAX, whole))
                for start in range(0, whole, READ_BYTES_MAX)
            ]
            return pa.py_buffer(b"".join(memoryview(piece) for piece in pieces))

    def open(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        """Open an object with one request, which brings its end: all of it where it is small."""
        length = READ_BYTES_MIN if size is None else max(1, min(size, READ_BYTES_MIN))
        with self._asking(path):
            try:
                found = obstore.get(self._bucket, path, options={"range": {"suffix": length}})
                whole, start, end = found.meta["size"], found.range[0], bytes(found.bytes())
            except BaseError as error:
                # Of an empty object there is no end.
                if _NO_RANGE not in str(error):
                    raise
                whole, start, end = 0, 0, b""
        if size is not None and whole != size:
            raise FileSizeError(whole)
        return pa.PythonFile(_Pieces(self, path, whole, start, end), mode="r")

    def size(self, path: str) -> int:
        with self._asking(path):
            return obstore.head(self._bucket, path)["size"]

    def checksum(self, path: str) -> tuple[int, int]:
        size = checksum = 0
        with self._asking(path):
            whole = obstore.head(self._bucket, path)["size"]
            while size < whole:
                piece = obstore.get_range(self._bucket, path, start=size, end=min(size + READ_BYTES_MAX, whole))
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
        for start in range(0, len(paths), REMOVE_NAMES_MAX):
            names = list(paths[start : start + REMOVE_NAMES_MAX])
            with self._asking(names[0]), suppress(FileNotFoundError):
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

    def remove_folder(self, folder: str) -> None:
        with self._asking(folder):
            names = (found["path"] for chunk in obstore.list(self._bucket, f"{folder}/") for found in chunk)
            while chunk := list(islice(names, REMOVE_NAMES_MAX)):
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
            if is_write or _NO_BUCKET in str(error):
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

    def __init__(self, store: S3Store, path: str) -> None:
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
        return DataFile(name=self._path.rpartition("/")[2], size=self._size, checksum=self._checksum)

    def give_up(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._held.clear()
        # Without `close` it never becomes an object.
        self._writer = None
        with suppress(TilthError, FileExistsError):
            self._store.send(self._path, b"")

    def _send_held(self) -> None:
        if self._writer is None:
            self._writer = self._store.send_in_pieces(self._path)
        writer, held = self._writer, bytes(self._held)
        self._held.clear()
        self._store.asked(self._path, lambda: writer.write(held))


class _Stream(io.RawIOBase):
    """A new object as a file that is complete when it is closed."""

    def __init__(self, file: NewFile) -> None:
        super().__init__()
        self._file = file

    def writable(self) -> bool:
        return True

    # Any: whatever Arrow hands over as bytes.
    def write(self, data: Any) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._file.finish(fsync=False)


class _Pieces(io.RawIOBase):
    """An object that is read in pieces; the last ones are kept."""

    def __init__(self, store: S3Store, path: str, size: int, start: int, end: bytes) -> None:
        """`end`: the bytes from `start` on."""
        super().__init__()
        self._store = store
        self._path = path
        self._size = size
        self._place = 0
        self._end = start, end
        self._pieces: list[tuple[int, bytes]] = []

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = max(0, base + offset)
        return self._place

    def read(self, size: int = -1) -> bytes:
        start = self._place
        end = self._size if size < 0 else min(self._size, start + size)
        if start >= end:
            return b""
        self._place = end
        return self._known(start, end) or self._fetched(start, end)

    def _known(self, start: int, end: int) -> bytes:
        for first, piece in (self._end, *self._pieces):
            if first <= start and end <= first + len(piece):
                return piece[start - first : end - first]
        return b""

    def _fetched(self, start: int, end: int) -> bytes:
        if end - start >= READ_BYTES_MIN:
            spans = range(start, end, READ_BYTES_MAX)
            return b"".join(self._store.piece(self._path, at, min(at + READ_BYTES_MAX, end)) for at in spans)
        piece = self._store.piece(self._path, start, min(start + READ_BYTES_MIN, self._size))
        self._pieces = [*self._pieces[-PIECES_MAX + 1 :], (start, piece)]
        return piece[: end - start]


def _bucket(root: StoreRoot, times: S3Times) -> Bucket:
    config: S3Config = {"region": root.option("region") or "us-east-1"}
    endpoint = root.option("endpoint")
    if endpoint:
        config["endpoint"] = endpoint.rstrip("/")
    if root.option("key"):
        config["access_key_id"] = secret_of(root.option("key"))
        config["secret_access_key"] = secret_of(root.option("secret"))
    if root.option("token"):
        config["session_token"] = secret_of(root.option("token"))
    client: ClientConfig = {
        "allow_http": endpoint.startswith("http://"),
        "connect_timeout": timedelta(seconds=times.connect_seconds),
        "timeout": timedelta(seconds=times.request_seconds),
    }
    retry: RetryConfig = {
        "max_retries": times.retries_max,
        "retry_timeout": timedelta(seconds=times.retry_seconds),
    }
    return Bucket(root.bucket, prefix=root.prefix or None, config=config, client_options=client, retry_config=retry)
