"""Answers beside rows, by the bytes that a Python worker sends: hostile ones run no code. Spark's own part is in
tests/integration/warehouse/test_tasks_on_spark.py.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark import accumulators
from pyspark.serializers import CPickleSerializer

from tilth.base.errors import NotFoundError, TilthError
from tilth.base.mailbox import AnswerUnreadableError
from tilth.model.answer import pack
from tilth.warehouse.session import beside_spark
from tilth.warehouse.session.beside_spark import AnswersBeside, Send


class Accumulator:
    """Of an accumulator of the JVM what the driver reads."""

    def __init__(self, *updates: bytes) -> None:
        self._updates = updates

    def value(self) -> list[bytes]:
        return list(self._updates)


class CodeOnReading:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return pytest.fail, ("the driver has run code of a task",)


def sent_by(function: Callable[[Send], None], monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return what a Python worker sends of a task that calls `function`, as worker_util.send_accumulator_updates."""
    registry: dict[object, object] = {}
    monkeypatch.setattr(accumulators, "_accumulatorRegistry", registry)

    def over(batches: Iterator[pa.RecordBatch], send: Send, /) -> Iterator[pa.RecordBatch]:
        function(send)
        yield from batches

    assert list(beside_spark._InTask(over)(iter([]))) == []
    [(name, sent)] = registry.items()
    # The worker's own serializer, which pyspark leaves untyped.
    serializer: Any = CPickleSerializer()
    values: Any = sent
    return bytes(serializer.dumps((name, values._value)))


def test_answers_come_in_the_order_of_their_keys_and_the_last_of_each_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(send: Send) -> None:
        send(10, "ten")
        send(2, "two")

    first, second = sent_by(one, monkeypatch), sent_by(lambda send: send(2, "two again"), monkeypatch)
    assert AnswersBeside(Accumulator(first, second), str).all() == ["two again", "ten"]
    assert AnswersBeside(Accumulator(), str).all() == []


def test_an_error_is_raised_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    update = sent_by(lambda send: send(1, NotFoundError("gone", file="f")), monkeypatch)
    with pytest.raises(NotFoundError, match="gone: file=f"):
        AnswersBeside(Accumulator(update), str).all()


def test_answers_that_are_too_large_are_an_error_of_their_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside_spark, "ANSWER_BYTES_MAX", 100)

    def much(send: Send) -> None:
        for key in range(2):
            send(key, "x" * 60)

    update = sent_by(much, monkeypatch)
    with pytest.raises(TilthError, match="too large"):
        AnswersBeside(Accumulator(update), str).all()


def test_values_of_other_accumulators_are_passed_over() -> None:
    others = (pickle.dumps((7, 3)), pickle.dumps((-1, [])), pickle.dumps(("tilth", CodeOnReading())), b"", b"\x80")
    assert AnswersBeside(Accumulator(*others), str).all() == []


def test_answers_of_any_size_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickles have large values in another place than small ones."""
    for size in (0, 1, 255, 256, 65_535, 65_536, 200_000):
        text = "x" * size
        update = sent_by(lambda send, text=text: send(1, text), monkeypatch)  # type: ignore[misc]  # called here
        assert AnswersBeside(Accumulator(update), str).all() == [text]


def _framed(content: bytes, size: int | None = None) -> bytes:
    return b"\x80\x05tilth-letters:" + (len(content) if size is None else size).to_bytes(8) + content


@pytest.mark.parametrize(
    "update",
    [
        b"tilth-letters:",
        _framed(b""),
        _framed(msgspec.msgpack.encode([(1, pack("a"))]), 3),
        _framed(b"", 1 << 63),
        _framed(pickle.dumps(CodeOnReading())),
        _framed(msgspec.msgpack.encode([(1, pack("a"), 2)])),
        _framed(msgspec.msgpack.encode([(1.5, pack("a"))])),
        _framed(msgspec.msgpack.encode([(1, "text")])),
        _framed(msgspec.msgpack.encode(5)),
        _framed(b"\x91" * 100_000),
        _framed(msgspec.msgpack.encode([(1, pickle.dumps(CodeOnReading()))])),
        _framed(msgspec.msgpack.encode([(1, pack(7))])),
    ],
    ids=range(12),
)
def test_hostile_bytes_run_no_code(update: bytes) -> None:
    with pytest.raises(AnswerUnreadableError):
        AnswersBeside(Accumulator(update), str).all()
