"""Files of an HDFS, through hdfs-native: no JVM, no listing.

Covers: the store of a folder of an HDFS, its errors. Does not cover: Spark's own reading of it (read/spark.py).
Always holds: a name is taken when its file is begun, so what a killed writer leaves has a name and goes by it; nothing
waits longer than its time, whatever the NameNode does.

What finish with `fsync` waited for is on the disks of every DataNode that holds it, and its name on that of the
NameNode; after a loss of power a DataNode may have to take its newest blocks up again, which it does by itself.
Clients run in one thread with a loop, where an answer that is no longer waited for is given up for good; each is
sent one request at a time (`_Client`). The user is that of the process, or HADOOP_USER_NAME; HADOOP_CONF_DIR holds
the rest of Hadoop's configuration.

Tests: tests/integration/storage/test_hdfs_faults.py.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import TypeVar

import pyarrow as pa
from hdfs_native import AsyncClient, AsyncFileReader, AsyncFileWriter, FileStatus, WriteOptions

from tilth.base.errors import TilthError
from tilth.storage.errors import StoreAwayError, StoreBusyError, StoreRefusedError
from tilth.storage.store.backends.streams import READ_BYTES_MIN, HeldFile, Pieces, Stream, spans
from tilth.storage.store.protocol import FileSizeError, NewFile, OnlyCopy, Removal, StoredFile
from tilth.storage.store.root import StoreRoot

#: Times that a file is written whose outcome is not known; all of its bytes must be held still.
WRITE_TRIES_MAX = 2
#: Requests at a time, each to a client with a connection and a thread of its own.
REQUESTS_MAX = 16
#: Names beyond which a removal checks first which of them are there.
CHECKED_MIN = 8
#: Files that are ended at a time: a client takes half a second for each.
ENDING_MAX = REQUESTS_MAX
#: Entries of a folder that one request lists.
LISTED_AT_ONCE = 1000
_FOLDER_MODE = 0o755

#: Error text of the NameNode for a file that the same client has begun.
_OWN_LEASE = "is already the current lease holder"
#: Patterns in the client's errors: the class of the NameNode's error; errors that mean a refusal.
_CLASS = re.compile(r"RPCError\(\"[\w.]*?(\w+)\"")
_REFUSALS = re.compile(r"AccessControl|Authorization|QuotaExceeded|InvalidToken|SASL|GSSAPI|NoSASLMechanism")
#: Each DataNode is unavailable, or its disk has changed bytes.
_NO_DATA_NODE = "All DataNodes failed"
_NO_CONNECTION = re.compile(r"[Cc]onnection refused|PanicException")
_BECAUSE_CHARS_MAX = 200

T = TypeVar("T")
Request = Callable[[AsyncClient], Awaitable[T]]


@dataclass(frozen=True, slots=True)
class _Client:
    """A client and its lock: it is sent one request at a time. When its connection breaks, it wakes those that wait
    for an answer while it holds a lock of its own; waking needs the GIL, and whoever sends a new request holds the GIL
    and waits for that lock. The process would hang for ever.
    """

    native: AsyncClient
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class _Writer:
    """A file that is written, and the client that has begun it."""

    client: _Client
    file: AsyncFileWriter


#: Clients by address and identity, kept as long as the process: a client that is freed waits, with the GIL, for its
#: threads to end, and one that delivers an answer waits for the GIL. The process would hang for ever.
_clients: dict[tuple[str | None, ...], tuple[_Client, ...]] = {}
_IDENTITY = ("HADOOP_USER_NAME", "HADOOP_CONF_DIR")
#: Number of threads of each client that is made; by default, the number of cores.
_THREADS = "TOKIO_WORKER_THREADS"
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_is_exiting = False
_EXIT_SECONDS_MAX = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsTimes:
    """Times that an HDFS may take."""

    connect_seconds: float = 3.0
    #: Time limit of one request, and of sending or fetching one piece of a file.
    request_seconds: float = 30.0


class HdfsStore:
    """The files below a folder of an HDFS."""

    names_per_removal = 1
    ending_max = ENDING_MAX

    def __init__(self, root: StoreRoot, times: HdfsTimes | None = None) -> None:
        """Raises StoreAwayError where Hadoop's configuration does not know the name service; sends no request yet."""
        self._root = root
        self._times = times or HdfsTimes()
        self._lock = threading.Lock()
        #: Files that this process is writing.
        self._begun: set[str] = set()
        self._is_reached = False
        with self._translate_errors(""):
            self._clients = _clients_of(f"hdfs://{root.bucket}")
        #: Round robin over the clients, for folders that are listed, and where none is free.
        self._round_robin = cycle(self._clients)

    @property
    def copies(self) -> tuple[OnlyCopy, ...]:
        return (OnlyCopy(self),)

    def prepare(self, folder: str, *, fsync: bool) -> None:
        """Make the folder; the NameNode's answer confirms that its name is safe."""
        full_path = self._full_path(folder)
        self._call(folder, lambda client: client.mkdirs(full_path, _FOLDER_MODE, True))

    def sync(self, folder: str) -> None:
        """Do nothing: the NameNode answers for a name when it is safe."""

    def create(self, path: str) -> NewFile:
        return _NewFile(self, path)

    def stream(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(Stream(self.create(path)), mode="w")

    def put(self, path: str, data: bytes) -> None:
        for tries in range(1, WRITE_TRIES_MAX + 1):
            try:
                self.fill(path, self.begin_again(path), data, fsync=False)
                return
            except StoreBusyError:
                if tries == WRITE_TRIES_MAX:
                    raise

    def read(self, path: str, *, size: int | None = None) -> pa.Buffer:
        reader = self._reader(path, size)
        pieces = [self._piece(path, reader, start, end) for start, end in spans(0, len(reader))]
        return pa.py_buffer(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def open(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        """Open a file with its end: all of it where it is small."""
        reader = self._reader(path, size)
        whole = len(reader)
        start = max(0, whole - READ_BYTES_MIN)
        end = self._piece(path, reader, start, whole) if whole else b""
        return pa.PythonFile(Pieces(lambda at, to: self._piece(path, reader, at, to), whole, start, end), mode="r")

    def size(self, path: str) -> int:
        return self._status(path).length

    def checksum(self, path: str) -> tuple[int, int]:
        reader = self._reader(path, None)
        checksum = 0
        for start, end in spans(0, len(reader)):
            checksum = zlib.crc32(self._piece(path, reader, start, end), checksum)
        return len(reader), checksum

    def stamp(self, path: str) -> tuple[int, ...]:
        try:
            found = self._status(path)
        except FileNotFoundError:
            return ()
        return found.length, found.modification_time

    def exist(self, paths: Sequence[str]) -> list[bool]:
        async def is_there(client: AsyncClient, path: str) -> bool:
            try:
                await client.get_file_info(self._full_path(path))
            except FileNotFoundError:
                return False
            return True

        async def all_of() -> list[bool]:
            checks = [asyncio.ensure_future(self._answer(partial(is_there, path=path))) for path in paths]
            try:
                return await asyncio.gather(*checks)
            finally:
                for each in checks:
                    each.cancel()

        return self._run(paths[0], all_of()) if paths else []

    def remove(self, paths: Sequence[str]) -> Removal:
        """Remove files one after the other: HDFS takes one name at a time. Many names are checked first, because most
        names of a sweep were never written.
        """
        removal = Removal()
        if len(paths) > CHECKED_MIN:
            try:
                there = self.exist(paths)
            except StoreRefusedError:
                there = [True] * len(paths)
            except (TilthError, OSError) as error:
                removal.fail(paths, error)
                return removal
            removal.gone += [path for path, is_there in zip(paths, there, strict=True) if not is_there]
            paths = [path for path, is_there in zip(paths, there, strict=True) if is_there]
        for index, path in enumerate(paths):
            try:
                if self._remove(path):
                    removal.found.append(path)
                removal.gone.append(path)
            except StoreRefusedError as error:
                removal.fail([path], error)
            except (TilthError, OSError) as error:
                removal.fail(paths[index:], error)
                break
        return removal

    def list_prefix(self, prefix: str) -> None:
        """Return None: a folder is read whole."""

    def has_folder(self, folder: str) -> bool:
        try:
            return self._status(folder).isdir
        except (FileNotFoundError, StoreAwayError):
            return False

    def files(self, folder: str) -> Iterator[StoredFile]:
        above = self._full_path("").rstrip("/") + "/"
        waiting = [self._full_path(folder)]
        while waiting:
            for each in self._children(folder, waiting.pop()):
                if each.isdir:
                    waiting.append(each.path)
                else:
                    yield StoredFile(each.path.removeprefix(above), each.length, each.modification_time)

    def _children(self, folder: str, full_path: str) -> Iterator[FileStatus]:
        """Yield the entries of a folder, LISTED_AT_ONCE in each request; none if there is no such folder."""
        left: AsyncIterator[FileStatus] | None = None
        client = next(self._round_robin)

        async def some(native: AsyncClient) -> list[FileStatus]:
            nonlocal left
            left = left or aiter(native.list_status(full_path))
            found: list[FileStatus] = []
            async for each in left:
                found.append(each)
                if len(found) == LISTED_AT_ONCE:
                    break
            return found

        try:
            while found := self._call(folder, some, client):
                yield from found
        except FileNotFoundError:
            return

    def remove_folder(self, folder: str) -> None:
        self._remove(folder, is_folder=True)

    def begin(self, path: str) -> _Writer:
        """Take a name that nobody has. Raises FileExistsError."""
        with self._lock:
            is_own = path in self._begun
        try:
            return self._begin(path, is_over=False)
        except FileExistsError as error:
            # An earlier answer was lost, and the client repeated the request.
            if is_own or _OWN_LEASE not in str(error):
                raise FileExistsError(self._uri(path)) from None
            return self.begin_again(path)

    def begin_again(self, path: str) -> _Writer:
        """Write from the start what is there under a name that was taken for this, or under none."""
        return self._begin(path, is_over=True)

    def fill(self, path: str, writer: _Writer, data: bytes, *, fsync: bool) -> None:
        """Write the last bytes of a file and end it."""

        async def filled(file: AsyncFileWriter) -> None:
            if data:
                await file.write(data)
            if fsync:
                await file.hsync()
            await file.close()

        self.write(path, writer, filled)

    def write(self, path: str, writer: _Writer, request: Callable[[AsyncFileWriter], Awaitable[T]]) -> T:
        """Call a method of a file that was begun."""
        try:
            return self._call(path, lambda _: request(writer.file), writer.client)
        except FileNotFoundError:
            because = "the file was removed while it was written"
            raise StoreBusyError(file=self._uri(path), because=because, hint="the operation is tried again") from None

    def note(self, path: str, *, is_begun: bool) -> None:
        """Remember whether this process is writing a file."""
        with self._lock:
            (self._begun.add if is_begun else self._begun.discard)(path)

    def _begin(self, path: str, *, is_over: bool) -> _Writer:
        options = WriteOptions(overwrite=is_over, create_parent=False)
        # The same one each time: the NameNode knows by it that a name is this process's own.
        client = self._clients[zlib.crc32(path.encode()) % len(self._clients)]
        try:
            return _Writer(
                client, self._call(path, lambda native: native.create(self._full_path(path), options), client)
            )
        except FileNotFoundError:
            hint = "check the address of the store, and whether somebody removed the folder"
            raise StoreAwayError(file=self._uri(path), hint=hint) from None

    def _reader(self, path: str, size: int | None) -> AsyncFileReader:
        reader = self._call(path, lambda client: client.read(self._full_path(path)))
        if size is not None and len(reader) != size:
            raise FileSizeError(len(reader))
        return reader

    def _piece(self, path: str, reader: AsyncFileReader, start: int, end: int) -> bytes:
        # DataNodes are called, and no lock of the client is needed.
        return self._run(path, self._bounded(lambda: reader.read_range(start, end - start)))

    def _status(self, path: str) -> FileStatus:
        return self._call(path, lambda client: client.get_file_info(self._full_path(path)))

    def _remove(self, path: str, *, is_folder: bool = False) -> bool:
        return self._call(path, lambda client: client.delete(self._full_path(path), is_folder))

    def _full_path(self, path: str) -> str:
        return "/" + "/".join(part for part in (self._root.prefix, path) if part)

    def _uri(self, path: str) -> str:
        return f"{self._root.uri}/{path}" if path else self._root.uri

    def _call(self, path: str, request: Request[T], client: _Client | None = None) -> T:
        """Return the answer of the client, or of one that is free. Raises the errors of the protocol. The loop's own
        thread must not call it.
        """
        return self._run(path, self._answer(request, client))

    def _run(self, path: str, answer: Coroutine[None, None, T]) -> T:
        with self._translate_errors(path):
            try:
                loop = _running_loop()
            except _NoConnectionError:
                answer.close()
                raise
            return asyncio.run_coroutine_threadsafe(answer, loop).result()

    async def _answer(self, request: Request[T], client: _Client | None = None) -> T:
        async def answer() -> T:
            free = next((each for each in self._clients if not each.lock.locked()), None)
            one = client or free or next(self._round_robin)
            async with one.lock:
                return await request(one.native)

        return await self._bounded(answer)

    async def _bounded(self, request: Callable[[], Awaitable[T]]) -> T:
        if not self._is_reached:
            await self._reach()
        try:
            async with asyncio.timeout(self._times.request_seconds):
                answer = await request()
        except (FileNotFoundError, FileExistsError):
            raise
        except asyncio.CancelledError:
            raise
        except BaseException:
            if self._is_reached:
                # It was there shortly before: the error of a connection that broke does not show who is gone.
                self._is_reached = False
                await self._reach()
            raise
        self._is_reached = True
        return answer

    async def _reach(self) -> None:
        """Check whether somebody listens: the client itself would try a closed port again and again."""
        host, _, port = self._root.bucket.partition(":")
        if not port:
            return
        try:
            async with asyncio.timeout(self._times.connect_seconds):
                _, writer = await asyncio.open_connection(host, int(port))
        except OSError as error:
            raise _NoConnectionError(str(error) or "it accepts no connection") from None
        writer.close()

    @contextmanager
    def _translate_errors(self, path: str) -> Iterator[None]:
        """Translate errors of the client into those of the protocol."""
        try:
            yield
        except (FileNotFoundError, FileExistsError) as error:
            if _OWN_LEASE in str(error):
                raise
            raise type(error)(self._uri(path)) from None
        except TimeoutError:
            because = f"no answer in {self._times.request_seconds:g} seconds"
            raise StoreBusyError(file=self._uri(path), because=because, hint="the operation is tried again") from None
        # The client panics where it should wait, and such a panic is no Exception.
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise self._error(path, error) from None

    def _error(self, path: str, error: BaseException) -> TilthError:
        text = f"{type(error).__name__}: {error}"
        found = _CLASS.search(text)
        because = found[1] if found else " ".join(str(error).split())[:_BECAUSE_CHARS_MAX]
        if _NO_DATA_NODE in text:
            because = "no DataNode gives these bytes"
        if _REFUSALS.search(text):
            hint = "check the user (HADOOP_USER_NAME), what it may do in this folder, and quotas"
            return StoreRefusedError(file=self._uri(path), because=because, hint=hint)
        if isinstance(error, _NoConnectionError | ValueError) or _NO_CONNECTION.search(text) or "No NameNode" in text:
            hint = "check the address of the NameNode and that it runs"
            return StoreAwayError("the store does not answer", file=self._uri(path), because=because, hint=hint)
        return StoreBusyError(file=self._uri(path), because=because, hint="the operation is tried again")


class _NoConnectionError(Exception):
    """Nobody accepts the connection."""


class _NewFile(HeldFile):
    """A new file of this store."""

    def __init__(self, store: HdfsStore, path: str) -> None:
        super().__init__(path)
        self._writer = store.begin(path)
        store.note(path, is_begun=True)
        self._store = store
        self._is_held = True

    def send(self, held: bytes) -> None:
        self._is_held = False
        self._store.write(self.path, self._writer, lambda file: file.write(held))

    def end(self, held: bytes, *, fsync: bool) -> None:
        try:
            self._store.fill(self.path, self._writer, held, fsync=fsync)
        except StoreBusyError:
            if not self._is_held:
                raise
            # The file may have been ended or not; its name is its own, and nobody has read it.
            self._store.fill(self.path, self._store.begin_again(self.path), held, fsync=fsync)
        finally:
            self._store.note(self.path, is_begun=False)

    def forget(self) -> None:
        self._store.note(self.path, is_begun=False)

    def end_empty(self) -> None:
        with suppress(TilthError, OSError):
            self._store.fill(self.path, self._store.begin_again(self.path), b"", fsync=False)
        self._store.note(self.path, is_begun=False)


def _clients_of(address: str) -> tuple[_Client, ...]:
    key = (address, *map(os.environ.get, _IDENTITY))
    with _lock:
        if key not in _clients:
            is_chosen = _THREADS in os.environ
            os.environ.setdefault(_THREADS, "1")
            try:
                _clients[key] = tuple(_Client(AsyncClient(address)) for _ in range(REQUESTS_MAX))
            finally:
                if not is_chosen:
                    del os.environ[_THREADS]
        return _clients[key]


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _is_exiting:
            raise _NoConnectionError("this process ends")
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="hdfs", daemon=True).start()
            atexit.register(_end_questions, _loop)
        return _loop


def _end_questions(loop: asyncio.AbstractEventLoop) -> None:
    """Give up all questions when the process exits: an answer that arrives while Python ends would abort it."""
    global _is_exiting
    with _lock:
        _is_exiting = True

    async def cancel_all() -> None:
        questions = asyncio.all_tasks() - {asyncio.current_task()}
        for each in questions:
            each.cancel()
        await asyncio.gather(*questions, return_exceptions=True)

    with suppress(TimeoutError):
        asyncio.run_coroutine_threadsafe(cancel_all(), loop).result(_EXIT_SECONDS_MAX)
