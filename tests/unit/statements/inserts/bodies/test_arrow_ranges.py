"""Ranges of Arrow streams, each read for itself, are the rows of the whole stream."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from tests.codes import WithCode
from tilth.base.errors import TilthError
from tilth.query.snapshots.protocol import BodyRange
from tilth.statements.inserts.bodies import arrow_ranges
from tilth.statements.inserts.bodies.arrow_ranges import ArrowRanges

PLAIN = pa.schema({"a": pa.int64(), "s": pa.string()})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_ranges, "RANGE_BYTES", 2000)
    monkeypatch.setattr(arrow_ranges, "RANGE_BYTES_MAX", 20_000)


def stream(batches: list[pa.RecordBatch], **options: object) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def ranges_of(body: bytes, block: int = 777) -> list[BodyRange]:
    ranges = ArrowRanges()
    for at in range(0, len(body), block):
        ranges.add(body[at : at + block])
    return ranges.end()


def read(body: bytes) -> pa.Table:
    with pa.ipc.open_stream(body) as reader:
        return reader.read_all().cast(PLAIN)


def check(body: bytes) -> list[BodyRange]:
    found = ranges_of(body)
    tables = []
    for each in found:
        heads = b"".join(body[start : start + size] for start, size in each.heads)
        tables.append(read(heads + body[each.start : each.start + each.size]))
    assert pa.concat_tables(tables).equals(read(body))
    return found


def batch(first: int, words: int, *, is_dictionary: bool = True) -> pa.RecordBatch:
    texts = pa.array([f"{first * words}-{row % 7}" for row in range(100)])
    return pa.record_batch({"a": range(first, first + 100), "s": texts.dictionary_encode() if is_dictionary else texts})


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"compression": "lz4"}, {"use_legacy_format": True}])
def test_batches(options: dict[str, object]) -> None:
    assert len(check(stream([batch(n, 1, is_dictionary=False) for n in range(50)], **options))) > 5


@pytest.mark.parametrize("words", [0, 1])
def test_dictionaries_that_stay_and_that_change(words: int) -> None:
    found = check(stream([batch(n, words) for n in range(50)]))
    assert len(found) > 5
    # The schema, and the dictionary that counts there, though each batch has replaced it.
    assert {len(each.heads) for each in found} == {2}


def test_dictionaries_that_grow() -> None:
    batches = []
    words: list[str] = []
    for number in range(50):
        words.append(f"word {number}")
        values = pa.DictionaryArray.from_arrays([number % len(words)] * 200, words)
        batches.append(pa.record_batch({"a": range(200), "s": values}))
    found = check(stream(batches, emit_dictionary_deltas=True))
    assert len(found) > 5
    assert max(len(each.heads) for each in found) > 10


def test_a_stream_without_rows_and_one_that_nobody_ended() -> None:
    [only] = check(stream([pa.record_batch({"a": pa.array([], pa.int64()), "s": pa.array([], pa.string())})]))
    assert only.heads
    whole = stream([batch(1, 1)])
    assert len(check(whole[:-8])) == 1


@pytest.mark.parametrize("cut", [1, 4, 8, 100, 700, -9])
def test_what_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(TilthError, check=WithCode("BAD_BODY")):
        ranges_of(stream([batch(1, 1)])[:cut])


@pytest.mark.parametrize(
    "body", [b"", b"x" * 5000, b"\xff" * 5000, b"\xff\xff\xff\xff" + b"\x10\0\0\0" + b"\x01" * 500, b"ARROW1\0\0" * 99]
)
def test_what_is_no_stream_is_refused(body: bytes) -> None:
    with pytest.raises(TilthError, check=WithCode("BAD_BODY")):
        ranges_of(body)


def test_a_batch_that_is_too_large_for_a_task_is_refused() -> None:
    large = pa.record_batch({"a": range(5000), "s": ["x"] * 5000})
    with pytest.raises(TilthError, check=WithCode("INSERT_NOT_CUT"), match="bytes_max"):
        ranges_of(stream([large]))
