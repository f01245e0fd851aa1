"""Blocks of Avro files: the container, its codecs, and pieces of a file that tasks read by themselves.

    file    header, block, block ..
    header  "Obj" 1, a map (schema, codec), the marker: 16 bytes of this file
    block   number of records, number of bytes, bytes in the codec, the marker

Covers: bytes. Does not cover: what a schema means (query/language/avro_types.py), values (avro_arrays.py).
Always holds: each block belongs to the piece in which the marker before it begins, the first one to the first piece; a
block is in memory as a whole and no more than one; its end is checked by the marker, and no more bytes are decompressed
than BLOCK_BYTES_MAX.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tilth.base.units import MIB
from tilth.query.errors import UnreadableFileError

#: Maximum size of a block, and of its content.
BLOCK_BYTES_MAX = 128 * MIB
#: Maximum number of records in a block whose records have less than a byte each.
EMPTY_RECORDS_MAX = 1_000_000
_HEADER_BYTES_MAX = 16 * MIB
_READ_BYTES = MIB
#: Twice the memory that xz needs at its highest level.
_XZ_MEMORY_MAX = 128 * MIB
_MAGIC = b"Obj\x01"
_MARKER_BYTES = 16
#: Maximum length of an encoded number of 64 bits.
_NUMBER_BYTES_MAX = 10


class AvroSource(Protocol):
    """A file to read."""

    def seek(self, position: int, /) -> object: ...

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroHeader:
    """Header of a file."""

    #: The schema, as JSON.
    schema: bytes
    codec: str
    marker: bytes
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroBlock:
    """Records of a file."""

    #: Byte of the file at which it begins.
    start: int
    records: int
    #: The records, decompressed.
    data: bytes


def read_header(source: AvroSource) -> AvroHeader:
    """Read the header of a file. Raises UnreadableFileError."""
    reader = _Reader(source, 0)
    try:
        if reader.exactly(len(_MAGIC)) != _MAGIC:
            raise UnreadableFileError("the file is not in the format of Avro's files")
        found: dict[bytes, bytes] = {}
        while count := reader.number():
            if count < 0:
                # Its size in bytes follows.
                count = -count
                reader.number()
            for _ in range(count):
                key = reader.sized(_HEADER_BYTES_MAX)
                found[key] = reader.sized(_HEADER_BYTES_MAX)
                if reader.position > _HEADER_BYTES_MAX:
                    raise UnreadableFileError("the begin of the file is too large", limit=_HEADER_BYTES_MAX)
        marker = reader.exactly(_MARKER_BYTES)
    except EOFError as error:
        raise UnreadableFileError("the file ends in its begin", because=error) from error
    codec = found.get(b"avro.codec", b"null").decode(errors="backslashreplace")
    if codec not in _CODECS:
        known = ", ".join(_CODECS)
        raise UnreadableFileError("the codec of the file is not supported", codec=codec, hint=f"there are: {known}")
    if b"avro.schema" not in found:
        raise UnreadableFileError("the file has no schema")
    return AvroHeader(schema=found[b"avro.schema"], codec=codec, marker=marker, size=reader.position)


def read_blocks(source: AvroSource, header: AvroHeader, start: int, end: int) -> Iterator[AvroBlock]:
    """Yield the blocks of a piece of the file. Raises UnreadableFileError, naming the block, where it is damaged."""
    decompress = _CODECS[header.codec]
    first = header.size if start == 0 else _after_marker(source, header, start, end)
    if first is None:
        return
    reader = _Reader(source, first)
    while reader.position - _MARKER_BYTES < end or (start == 0 and reader.position == header.size):
        at = reader.position
        if reader.is_at_end():
            return
        try:
            records = reader.number()
            packed = reader.sized(BLOCK_BYTES_MAX)
            if reader.exactly(_MARKER_BYTES) != header.marker:
                raise UnreadableFileError("a block of the file does not end with its marker", block_start=at)
            data = decompress(packed)
        except EOFError as error:
            raise UnreadableFileError("the file is truncated", block_start=at, because=error) from error
        except (zlib.error, OSError, lzma.LZMAError, ValueError) as error:
            # OSError: what bz2 and Arrow raise; errors of a store have gone through the reader as they are.
            raise UnreadableFileError("a block of the file is damaged", block_start=at, because=error) from error
        if not 0 <= records <= max(len(data), EMPTY_RECORDS_MAX):
            message = "a block of the file has a wrong number of records"
            raise UnreadableFileError(message, block_start=at, records=records, bytes=len(data))
        yield AvroBlock(start=at, records=records, data=data)


def _after_marker(source: AvroSource, header: AvroHeader, start: int, end: int) -> int | None:
    """Return the first byte behind the first marker that begins in the piece; None: there is none."""
    at, kept = max(start, header.size), b""
    source.seek(at)
    while at - len(kept) < end:
        data = source.read(_READ_BYTES)
        if not data:
            return None
        text = kept + data
        found = text.find(header.marker)
        if found >= 0:
            begin = at - len(kept) + found
            return begin + _MARKER_BYTES if begin < end else None
        at += len(data)
        kept = text[1 - _MARKER_BYTES :]
    return None


class _Reader:
    """Reads a file from one position on, in large pieces."""

    def __init__(self, source: AvroSource, position: int) -> None:
        source.seek(position)
        self._source = source
        self._held = b""
        self._at = 0
        #: Byte of the file that comes next.
        self.position = position

    def is_at_end(self) -> bool:
        return self._at == len(self._held) and not self._fill(1)

    def exactly(self, size: int) -> bytes:
        """Raises EOFError."""
        if len(self._held) - self._at < size and not self._fill(size):
            raise EOFError(f"{size} bytes at {self.position}")
        found = self._held[self._at : self._at + size]
        self._at += size
        self.position += size
        return found

    def number(self) -> int:
        """Read a whole number in Avro's variable length. Raises EOFError and ValueError."""
        value = 0
        for index in range(_NUMBER_BYTES_MAX):
            byte = self.exactly(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise UnreadableFileError("the file has a number that is too long", position=self.position)

    def sized(self, size_max: int) -> bytes:
        """Read bytes behind their number. Raises EOFError, UnreadableFileError."""
        size = self.number()
        if not 0 <= size <= size_max:
            raise UnreadableFileError("the file has a block that is too large", bytes=size, limit=size_max)
        return self.exactly(size)

    def _fill(self, size: int) -> bool:
        """Read on until so many bytes are there; False: the file ends before."""
        pieces = [self._held[self._at :]]
        there = len(pieces[0])
        while there < size:
            piece = self._source.read(max(_READ_BYTES, size - there))
            if not piece:
                break
            pieces.append(piece)
            there += len(piece)
        self._held, self._at = b"".join(pieces), 0
        return there >= size


def _bounded(data: bytes, is_whole: bool) -> bytes:
    """Raises ValueError where it is not the whole content."""
    if len(data) > BLOCK_BYTES_MAX:
        raise ValueError(f"more than {BLOCK_BYTES_MAX} bytes")
    if not is_whole:
        raise ValueError("the compressed bytes end before their end")
    return data


def _plain(packed: bytes) -> bytes:
    return packed


def _deflate(packed: bytes) -> bytes:
    reader = zlib.decompressobj(-zlib.MAX_WBITS)
    data = reader.decompress(packed, BLOCK_BYTES_MAX + 1)
    return _bounded(data, reader.eof)


def _bzip2(packed: bytes) -> bytes:
    reader = bz2.BZ2Decompressor()
    data = reader.decompress(packed, BLOCK_BYTES_MAX + 1)
    return _bounded(data, reader.eof)


def _xz(packed: bytes) -> bytes:
    reader = lzma.LZMADecompressor(memlimit=_XZ_MEMORY_MAX)
    data = reader.decompress(packed, BLOCK_BYTES_MAX + 1)
    return _bounded(data, reader.eof)


def _zstandard(packed: bytes) -> bytes:
    # A stream that ends before its end is found by the records, which are too few then.
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        data = stream.read(BLOCK_BYTES_MAX + 1)
    return _bounded(bytes(data), True)


def _snappy(packed: bytes) -> bytes:
    # Snappy's own size comes first; the checksum, last.
    size = _snappy_size(packed)
    _bounded(b"", len(packed) > 4)
    if size > BLOCK_BYTES_MAX:
        raise ValueError(f"{size} bytes are more than {BLOCK_BYTES_MAX}")
    data: bytes = pa.Codec("snappy").decompress(packed[:-4], decompressed_size=size, asbytes=True)
    if zlib.crc32(data) != int.from_bytes(packed[-4:], "big"):
        raise ValueError("its checksum differs")
    return data


def _snappy_size(packed: bytes) -> int:
    size = 0
    for index, byte in enumerate(packed[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise ValueError("it has no size")


_CODECS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": _plain,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": _bzip2,
    "xz": _xz,
}
