"""The bytes of deletion vectors: as in the format, and as others read them."""

from __future__ import annotations

import json
import struct
import zlib

import numpy as np
import pytest
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap, BitMap64

from tilth.storage.deltas.deletes import BadVectorError, decode_deletes, encode_deletes

FILE = "7-0.0-0.parquet"
CASES = [
    [0],
    [1, 5, 7],
    list(range(10_000)),
    [0, 65_535, 65_536, (1 << 32) - 1, 1 << 32, (3 << 32) + 5],
    list(range(0, 300_000, 3)),
]


def _encoded(rows: list[int]) -> bytes:
    return encode_deletes(FILE, np.array(rows, np.int64))


@pytest.mark.parametrize("rows", CASES)
def test_what_is_written_is_read_again(rows: list[int]) -> None:
    file, found = decode_deletes(memoryview(_encoded(rows)))
    assert (file, found.dtype, found.tolist()) == (FILE, np.dtype(np.int64), rows)


@pytest.mark.parametrize("rows", CASES)
def test_iceberg_reads_the_file(rows: list[int]) -> None:
    (vector,) = deletion_vectors_from_puffin_file(PuffinFile(_encoded(rows)))
    assert vector.referenced_data_file == FILE
    assert vector.to_vector().to_pylist() == rows


@pytest.mark.parametrize("rows", CASES)
def test_the_blob_is_laid_out_as_in_the_format(rows: list[int]) -> None:
    data = _encoded(rows)
    (blob,) = PuffinFile(data).footer.blobs
    assert (blob.type, blob.fields, blob.snapshot_id, blob.sequence_number) == (
        "deletion-vector-v1",
        [2_147_483_645],
        -1,
        -1,
    )
    assert blob.properties == {"referenced-data-file": FILE, "cardinality": str(len(rows))}
    assert blob.compression_codec is None
    assert "compression-codec" not in data.decode("latin1")
    payload = data[blob.offset : blob.offset + blob.length]
    length, magic = struct.unpack(">I4s", payload[:8])
    assert (length, magic) == (len(payload) - 8, b"\xd1\xd3\x39\x64")
    assert payload[-4:] == struct.pack(">I", zlib.crc32(payload[4:-4]))
    assert list(BitMap64.deserialize(payload[8:-4])) == rows


def test_the_bitmap_is_in_the_portable_form() -> None:
    data = _encoded([2, (1 << 32) + 9])
    (blob,) = PuffinFile(data).footer.blobs
    bitmaps = data[blob.offset + 8 : blob.offset + blob.length - 4]
    first, second = BitMap([2]).serialize(), BitMap([9]).serialize()
    assert bitmaps == struct.pack("<QI", 2, 0) + first + struct.pack("<I", 1) + second


def test_what_is_cut_off_is_reported() -> None:
    data = _encoded([1, 5, 7])
    for length in range(len(data)):
        with pytest.raises(BadVectorError):
            decode_deletes(memoryview(data[:length]))


def test_a_flipped_bit_of_the_blob_is_reported() -> None:
    data = _encoded([1, 5, 7])
    (blob,) = PuffinFile(data).footer.blobs
    for offset in range(blob.offset, blob.offset + blob.length):
        with pytest.raises(BadVectorError):
            decode_deletes(memoryview(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"cardinality":"3"', '"cardinality":"4"'),
        ("deletion-vector-v1", "deletion-vector-v2"),
        ('"offset":4', '"offset":5'),
        ('{"blobs"', '["blobs"'),
        ('"type"', '"typo"'),
    ],
)
def test_a_footer_with_other_content_is_reported(old: str, new: str) -> None:
    data = _encoded([1, 5, 7])
    assert old.encode() in data
    with pytest.raises(BadVectorError):
        decode_deletes(memoryview(data.replace(old.encode(), new.encode())))


def test_several_blobs_are_none_of_ours() -> None:
    data = _encoded([1])
    (length,) = struct.unpack("<i", data[-12:-8])
    footer = json.loads(data[-12 - length : -12])
    footer["blobs"] *= 2
    text = json.dumps(footer).encode()
    with pytest.raises(BadVectorError, match="2 blobs"):
        decode_deletes(memoryview(data[: -12 - length] + text + struct.pack("<i", len(text)) + data[-8:]))
