"""A whole store as one stream of bytes: all keys and values of one snapshot, in order; and what has changed since.

    TILTH-CATALOG-1\\n | frame of the header | frames of keys and values | a frame without bytes, number of keys
    TILTH-CHANGES-1\\n | the same, where a value may be nil: the key is gone

A frame is its length, its CRC32, and MessagePack under zlib. Covers: writing and reading. Does not cover: where the
stream lies, what keys mean. Always holds: it is written and read in little memory; a stream that was cut off or
changed is refused, at the latest at its end.
"""

from __future__ import annotations

import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

import msgspec

from tilth.base.errors import InvalidInputError
from tilth.catalog.kv.followed import KeyChanges
from tilth.catalog.kv.protocol import FIRST_KEY, KeyValue, Landed, ReadView, ViewUse

V = TypeVar("V")

_MAGIC = b"TILTH-CATALOG-1\n"
_CHANGES_MAGIC = b"TILTH-CHANGES-1\n"
_FRAME = struct.Struct(">II")
_COUNT = struct.Struct(">Q")
#: Keys and values of one frame, and of one commit when it is read.
_FRAME_BYTES = 1 << 20
_FRAME_BYTES_MAX = 1 << 30


class ByteSink(Protocol):
    """A file to which bytes are written one after the other."""

    def write(self, data: bytes, /) -> int: ...


class ByteSource(Protocol):
    """A file that is read from its beginning to its end."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class BadDumpError(InvalidInputError):
    """the file is no backup of a catalog, or a damaged one"""

    code = "BAD_BACKUP"


class DumpHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a dump."""

    #: Version of Tilth that wrote it.
    version: str
    server: str
    #: Milliseconds since 1970.
    created_ms: int


def write_dump(kv: KeyValue, header: DumpHeader, sink: ByteSink, *, between: Callable[[], None]) -> int:
    """Write the store as it is now; return the number of keys. `between` is called now and then, and may raise."""
    # The view is copied to a temporary file first: the sink may be slow, and a long view makes commits slow.
    with tempfile.TemporaryFile() as copied:
        with kv.view(use=ViewUse.EXPORT) as view:
            keys = write_view(view, header, copied, is_kept=lambda _: True, between=between)
        copied.seek(0)
        while piece := copied.read(_FRAME_BYTES):
            sink.write(piece)
            between()
    return keys


def write_view(
    view: ReadView,
    header: DumpHeader,
    sink: ByteSink,
    *,
    is_kept: Callable[[bytes], bool],
    between: Callable[[], None],
) -> int:
    """Write the keys of a view that are to be kept; return their number."""
    pairs = ((key, found.value) for key, found in view.scan(FIRST_KEY, None) if is_kept(key))
    return _write(_MAGIC, header, pairs, sink, between=between)


def write_key_changes(changes: KeyChanges, header: DumpHeader, sink: ByteSink) -> int:
    """Write changes; return the number of keys."""
    return _write(_CHANGES_MAGIC, header, sorted(changes.items()), sink, between=lambda: None)


def read_dump(source: ByteSource) -> tuple[DumpHeader, Iterator[list[tuple[bytes, bytes]]]]:
    """Return the header, and the keys and values in order, a frame at a time.

    Raises BadDumpError, the iterator too: what came out of it counts only when it has ended.
    """
    header = _read_header(source, _MAGIC)
    return header, _frames(source, list[tuple[bytes, bytes]])


def read_key_changes(source: ByteSource) -> tuple[DumpHeader, dict[bytes, bytes | None]]:
    """Return the header and all changes. Raises BadDumpError."""
    header = _read_header(source, _CHANGES_MAGIC)
    frames = _frames(source, list[tuple[bytes, bytes | None]])
    return header, {key: value for pairs in frames for key, value in pairs}


def load_dump(source: ByteSource, kv: KeyValue) -> tuple[DumpHeader, int]:
    """Write all of it to an empty store; return the header and the number of keys. Raises BadDumpError."""
    header, frames = read_dump(source)
    keys = 0
    for pairs in frames:
        outcome = kv.commit([], dict(pairs), [])
        # Nobody else has the store.
        assert isinstance(outcome, Landed), outcome
        keys += len(pairs)
    return header, keys


def _write(
    magic: bytes,
    header: DumpHeader,
    pairs: Iterable[tuple[bytes, bytes | None]],
    sink: ByteSink,
    *,
    between: Callable[[], None],
) -> int:
    sink.write(magic)
    _write_frame(sink, msgspec.msgpack.encode(header))
    keys = 0
    held: list[tuple[bytes, bytes | None]] = []
    held_bytes = 0
    for key, value in pairs:
        held.append((key, value))
        held_bytes += len(key) + len(value or b"")
        keys += 1
        if held_bytes >= _FRAME_BYTES:
            _write_frame(sink, msgspec.msgpack.encode(held))
            between()
            held, held_bytes = [], 0
    if held:
        _write_frame(sink, msgspec.msgpack.encode(held))
    _write_frame(sink, b"")
    sink.write(_COUNT.pack(keys))
    return keys


def _read_header(source: ByteSource, magic: bytes) -> DumpHeader:
    if source.read(len(magic)) != magic:
        raise BadDumpError("the file is no backup of a catalog", hint="give a file that BACKUP CATALOG has written")
    header = _read_frame(source)
    try:
        return msgspec.msgpack.decode(header, type=DumpHeader)
    except msgspec.MsgspecError as error:
        raise _damaged(str(error)) from error


def _frames(source: ByteSource, kind: type[list[tuple[bytes, V]]]) -> Iterator[list[tuple[bytes, V]]]:
    keys = 0
    last = b""
    while data := _read_frame(source):
        try:
            pairs = msgspec.msgpack.decode(data, type=kind)
        except msgspec.MsgspecError as error:
            raise _damaged(str(error)) from error
        for key, _ in pairs:
            if key <= last or key < FIRST_KEY:
                raise _damaged("keys out of order")
            last = key
        keys += len(pairs)
        yield pairs
    if source.read(_COUNT.size + 1) != _COUNT.pack(keys):
        raise _damaged("the number of keys at its end is another one")


def _write_frame(sink: ByteSink, data: bytes) -> None:
    # Level 1: half the size for a tenth of the time of the default.
    packed = zlib.compress(data, 1) if data else b""
    sink.write(_FRAME.pack(len(packed), zlib.crc32(packed)))
    sink.write(packed)


def _read_frame(source: ByteSource) -> bytes:
    head = source.read(_FRAME.size)
    if len(head) < _FRAME.size:
        raise _damaged("it ends too early")
    length, checksum = _FRAME.unpack(head)
    if length > _FRAME_BYTES_MAX:
        raise _damaged("a length is impossible")
    packed = source.read(length)
    if len(packed) < length:
        raise _damaged("it ends too early")
    if zlib.crc32(packed) != checksum:
        raise _damaged("a checksum differs")
    return zlib.decompress(packed) if packed else b""


def _damaged(reason: str) -> BadDumpError:
    return BadDumpError("the backup is damaged", reason=reason, hint="use another one")
