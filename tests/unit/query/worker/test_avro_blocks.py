"""Containers of Avro files: codecs, pieces, damage. Files are written by another library, or byte by byte."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise

import fastavro
import pyarrow as pa
import pytest

from tilth.base.rand import new_rng
from tilth.query.errors import UnreadableFileError
from tilth.query.worker import avro_blocks
from tilth.query.worker.avro_blocks import EMPTY_RECORDS_MAX, read_blocks, read_header

SCHEMA = {"type": "record", "name": "Row", "fields": [{"name": "a", "type": "long"}]}
MARKER = bytes(range(16))


def number(value: int) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, "long", value)
    return file.getvalue()


def header(codec: str, schema: object = SCHEMA, marker: bytes = MARKER) -> bytes:
    file = io.BytesIO()
    metadata = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    fastavro.schemaless_writer(file, {"type": "map", "values": "bytes"}, metadata)
    return b"Obj\x01" + file.getvalue() + marker


def block(data: bytes, records: int, marker: bytes = MARKER) -> bytes:
    return number(records) + number(len(data)) + data + marker


def snappy(data: bytes) -> bytes:
    packed: bytes = pa.Codec("snappy").compress(data, asbytes=True)
    return packed + zlib.crc32(data).to_bytes(4, "big")


def deflate(data: bytes) -> bytes:
    return zlib.compress(data)[2:-4]


CODECS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": deflate,
    "snappy": snappy,
    "zstandard": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


def content(file: bytes, start: int = 0, end: int | None = None) -> list[tuple[int, bytes]]:
    """Records and bytes of each block of a piece."""
    source = io.BytesIO(file)
    found = read_blocks(source, read_header(source), start, len(file) if end is None else end)
    return [(each.records, each.data) for each in found]


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_is_read(codec: str) -> None:
    data = [b"", b"x" * 100_000, bytes(range(256))]
    file = header(codec) + b"".join(block(CODECS[codec](each), len(each)) for each in data)
    assert content(file) == [(len(each), each) for each in data]


@pytest.mark.parametrize("codec", sorted(set(CODECS) - {"null"}))
def test_more_bytes_than_a_block_may_have_are_not_decompressed(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_blocks, "BLOCK_BYTES_MAX", 1000)
    assert content(header(codec) + block(CODECS[codec](bytes(1000)), 1)) == [(1, bytes(1000))]
    with pytest.raises(UnreadableFileError) as caught:
        content(header(codec) + block(CODECS[codec](bytes(1001)), 1))
    assert "1000" in str(caught.value)


@pytest.mark.parametrize("codec", ["deflate", "snappy", "bzip2", "xz"])
def test_damaged_bytes_of_a_block_are_found(codec: str) -> None:
    packed = CODECS[codec](bytes(range(256)))
    begin = len(header(codec))
    for bad in (packed[: len(packed) // 2], b"", b"\xff" * 40):
        with pytest.raises(UnreadableFileError) as caught:
            content(header(codec) + block(bad, 1))
        assert caught.value.facts["block_start"] == str(begin), bad


@pytest.mark.parametrize("codec", ["lz4", "", "DEFLATE", "a\nb"])
def test_other_codecs_are_refused_by_name(codec: str) -> None:
    with pytest.raises(UnreadableFileError) as caught:
        content(header(codec))
    assert (caught.value.facts["codec"], "snappy" in (caught.value.hint or "")) == (codec, True)


def test_a_file_without_a_codec_is_not_compressed() -> None:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, {"type": "map", "values": "bytes"}, {"avro.schema": b"{}", "x": b"\xff"})
    assert content(b"Obj\x01" + file.getvalue() + MARKER + block(b"ab", 2)) == [(2, b"ab")]


def test_each_block_is_in_one_piece() -> None:
    file = header("null") + b"".join(block(bytes([each]) * each, each) for each in range(1, 40))
    whole = content(file)
    for size in (1, 7, 16, 100, 333, len(file)):
        cuts = [*range(0, len(file), size), len(file)]
        found = [each for start, end in pairwise(cuts) for each in content(file, start, end)]
        assert found == whole, size
    assert content(header("null"), 0, 1) == []


def test_a_marker_over_the_border_of_what_is_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    file = header("null") + b"".join(block(bytes(50), 1) for _ in range(20))
    for size in (1, 15, 16, 17, 64):
        monkeypatch.setattr(avro_blocks, "_READ_BYTES", size)
        half = len(file) // 2
        assert len(content(file, 0, half)) + len(content(file, half)) == 20, size


def test_a_truncated_file_is_refused() -> None:
    begin, each = header("deflate"), block(deflate(b"abc"), 3)
    file = begin + each + each
    for size in range(len(file)):
        if (size - len(begin)) % len(each) == 0 and size >= len(begin):
            # No file says how many blocks it has.
            assert len(content(file[:size])) == (size - len(begin)) // len(each)
            continue
        with pytest.raises(UnreadableFileError):
            content(file[:size])


@pytest.mark.parametrize(
    "tail",
    [
        block(b"a", 1, marker=bytes(16)),
        block(b"a", -1),
        block(b"a", EMPTY_RECORDS_MAX + 1),
        number(1) + number(-1) + MARKER,
        number(1) + number(1 << 62) + MARKER,
        b"\xff" * 30,
        b"PAR1",
    ],
)
def test_what_is_no_block_is_refused(tail: bytes) -> None:
    with pytest.raises(UnreadableFileError):
        content(header("null") + block(b"a", 1) + tail)


def test_damage_anywhere_is_an_error_or_other_bytes() -> None:
    rand = new_rng(7)
    for codec in CODECS:
        good = header(codec) + b"".join(block(CODECS[codec](b"abc" * 30), 90) for _ in range(3))
        for _ in range(200):
            bad = bytearray(good)
            bad[int(rand.random() * len(bad))] ^= 1 << int(8 * rand.random())
            with suppress(UnreadableFileError):
                content(bytes(bad))
