"""The layout of deletion vectors, as Iceberg's third format has them: Puffin files with a `deletion-vector-v1`. Pure.

Covers: row indexes to bytes and back. Does not cover: files (deltas.py).
Always holds: what is decoded is what was encoded: lengths, magic numbers, the blob's checksum and its cardinality are
verified.

The file: `PFA1`, the blob, `PFA1`, the footer in JSON, its length, four bytes of flags, `PFA1`. The blob: the length of
the next two, `D1 D3 39 64`, a 64-bit roaring bitmap in its portable form, the CRC-32 of the two; length and CRC are
big-endian, everything else is little-endian. The same blob is what Delta Lake keeps.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import msgspec
import numpy as np
from pyroaring import BitMap64

#: Indexes of rows in a data file, from 0.
RowIndexes = np.ndarray[Any, np.dtype[np.int64]]

PUFFIN_MAGIC = b"PFA1"
VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
BLOB_TYPE = "deletion-vector-v1"
#: Iceberg's id of the column of row positions.
_POSITION_FIELD = 2_147_483_645
#: Deletion vectors belong to no Iceberg snapshot when they are written.
_NO_SNAPSHOT = -1
#: Behind the footer's JSON: its length, flags, magic.
_TAIL = struct.Struct("<i4s4s")
_LENGTH = struct.Struct(">I")
_NO_FLAGS = bytes(4)


class BadVectorError(ValueError):
    """The bytes are no deletion vector; the caller, who knows the file, reports its damage."""


class _Blob(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    type: str
    fields: tuple[int, ...] = ()
    snapshot_id: int = _NO_SNAPSHOT
    sequence_number: int = _NO_SNAPSHOT
    offset: int
    length: int
    properties: dict[str, str] = {}


class _Footer(msgspec.Struct, frozen=True, kw_only=True):
    blobs: tuple[_Blob, ...]
    properties: dict[str, str] = {}


def encode_deletes(file: str, rows: RowIndexes) -> bytes:
    """Encode a Puffin file that marks these rows of the data file as deleted."""
    bitmap = BitMap64(rows.astype(np.uint64))
    bitmap.run_optimize()
    vector = VECTOR_MAGIC + bitmap.serialize()
    blob = _LENGTH.pack(len(vector)) + vector + _LENGTH.pack(zlib.crc32(vector))
    properties = {"referenced-data-file": file, "cardinality": str(len(bitmap))}
    described = _Blob(
        type=BLOB_TYPE,
        fields=(_POSITION_FIELD,),
        offset=len(PUFFIN_MAGIC),
        length=len(blob),
        properties=properties,
    )
    footer = msgspec.json.encode(_Footer(blobs=(described,), properties={"created-by": "Tilth"}))
    tail = _TAIL.pack(len(footer), _NO_FLAGS, PUFFIN_MAGIC)
    return b"".join((PUFFIN_MAGIC, blob, PUFFIN_MAGIC, footer, tail))


def decode_deletes(data: memoryview) -> tuple[str, RowIndexes]:
    """Return the name of the data file and its deleted rows, in their order; raises BadVectorError."""
    found = _footer_of(data)
    if len(found.blobs) != 1 or found.blobs[0].type != BLOB_TYPE:
        raise BadVectorError(f"{len(found.blobs)} blobs instead of one {BLOB_TYPE}")
    blob = found.blobs[0]
    rows = _vector_of(data[blob.offset : blob.offset + blob.length], blob.length)
    if str(len(rows)) != blob.properties.get("cardinality"):
        raise BadVectorError(f"{len(rows)} rows instead of {blob.properties.get('cardinality')}")
    return blob.properties.get("referenced-data-file", ""), rows


def _footer_of(data: memoryview) -> _Footer:
    if len(data) < _TAIL.size + 2 * len(PUFFIN_MAGIC) or bytes(data[: len(PUFFIN_MAGIC)]) != PUFFIN_MAGIC:
        raise BadVectorError("not a Puffin file")
    length, flags, magic = _TAIL.unpack(data[-_TAIL.size :])
    start = len(data) - _TAIL.size - length
    if magic != PUFFIN_MAGIC or flags != _NO_FLAGS or length < 0 or start < 2 * len(PUFFIN_MAGIC):
        raise BadVectorError("the footer is damaged")
    try:
        return msgspec.json.decode(data[start : len(data) - _TAIL.size], type=_Footer)
    except msgspec.MsgspecError as error:
        raise BadVectorError(str(error)) from error


def _vector_of(blob: memoryview, length: int) -> RowIndexes:
    if len(blob) != length or length < 2 * _LENGTH.size + len(VECTOR_MAGIC):
        raise BadVectorError("the blob is cut off")
    vector = blob[_LENGTH.size : -_LENGTH.size]
    is_whole = _LENGTH.unpack(blob[: _LENGTH.size])[0] == len(vector)
    if not is_whole or _LENGTH.unpack(blob[-_LENGTH.size :])[0] != zlib.crc32(vector):
        raise BadVectorError("the blob is damaged")
    if bytes(vector[: len(VECTOR_MAGIC)]) != VECTOR_MAGIC:
        raise BadVectorError("the blob is no deletion vector")
    bitmap = BitMap64.deserialize(bytes(vector[len(VECTOR_MAGIC) :]))
    return np.array(bitmap.to_array(), dtype=np.int64)
