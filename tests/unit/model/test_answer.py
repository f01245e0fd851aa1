"""Answers of tasks in other processes: values and errors come back as they were, and hostile bytes run no code."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilth.base.errors import CorruptError, ErrorKind, RetryError, TilthError
from tilth.base.mailbox import AnswerUnreadableError, new_mailbox
from tilth.model.answer import answers_of, error_in, pack, unpack
from tilth.model.part import DataFile, WrittenPart


class OddError(TilthError):
    """an odd thing"""

    kind = ErrorKind.FENCED
    code = "ODD"


class CodeOnReading:
    """Object that runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return pytest.fail, ("the driver has run code of a task",)


FILE = DataFile(name="1-0.0-0.parquet", size=3, checksum=1 << 32)
PART = WrittenPart(partition="all", values=(None, 1.0, 1, True, "x"), rows=3, file=FILE, ranges={})
HOSTILE = [
    pickle.dumps(CodeOnReading()),
    pickle.dumps(OddError("gone")),
    pickle.dumps({"type": "value", "value": 1}),
    b"",
    b"\x00",
    b"{}",
    b"\x91" * 100_000,
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    pack(1)[:-1],
    pack(1) + b"\x00",
    pack("text"),
    pack(None),
    msgspec.msgpack.encode(1),
    msgspec.msgpack.encode({"type": "value"}),
    msgspec.msgpack.encode({"type": "call", "value": 1}),
    msgspec.msgpack.encode({"type": "value", "value": 1, "error": {}}),
    msgspec.msgpack.encode({"type": "error", "error": {"kind": "retry"}}),
    msgspec.msgpack.encode({"type": "error", "error": "os.system"}),
    msgspec.msgpack.encode({"type": "tilth.base.mailbox.new_mailbox", "value": 1}),
]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (None, type(None)),
        (7, int),
        ("text", str),
        ((1, [2.5]), tuple[int, list[float]]),
        ({"a": b"\x00"}, dict[str, bytes]),
        (ErrorKind.RETRY, ErrorKind),
        ({"f": PART}, dict[str, WrittenPart]),
        ([(3, PART)], list[tuple[int, WrittenPart]]),
    ],
)
def test_an_answer_comes_back_as_it_was(answer: object, kind: type[object]) -> None:
    found = unpack(pack(answer), kind, task=0)
    assert found == answer
    assert repr(found) == repr(answer)


def test_an_error_comes_back_with_type_kind_code_facts_and_hint() -> None:
    with pytest.raises(OddError) as caught:
        unpack(pack(OddError("gone", file="a=b", hint="look")), int, task=0)
    error = caught.value
    assert (error.kind, error.code, error.facts, error.hint) == (ErrorKind.FENCED, "ODD", {"file": "a=b"}, "look")
    assert error.message == "gone: file=a=b"


def test_an_error_of_a_class_that_is_not_known_here_is_one_of_its_kind() -> None:
    """A handler of all errors of that kind catches it."""
    body = {"kind": "retry", "code": "NEWER", "message": "m", "hint": "h"}
    with pytest.raises(RetryError) as caught:
        unpack(msgspec.msgpack.encode({"type": "error", "error": body}), int, task=0)
    assert (caught.value.code, str(caught.value)) == ("NEWER", "m (h)")


def test_what_is_no_value_is_not_packed() -> None:
    for answer in (CodeOnReading(), object(), 1 << 70, {"a": CodeOnReading()}):
        with pytest.raises((TypeError, OverflowError)):
            pack(answer)


@pytest.mark.parametrize("packed", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_bytes_are_an_error_of_their_task(packed: bytes) -> None:
    with pytest.raises(AnswerUnreadableError, match="task=3 reason="):
        unpack(packed, int, task=3)


@given(st.binary(max_size=200) | st.sampled_from(HOSTILE).flatmap(lambda one: st.binary(max_size=20).map(one.__add__)))
def test_any_bytes_are_a_value_of_the_type_or_an_error_of_ours(packed: bytes) -> None:
    for kind in (int, dict[str, WrittenPart], list[tuple[int, str]]):
        with suppress(AnswerUnreadableError):
            assert isinstance(unpack(packed, kind, task=0), int | dict | list)


@given(st.data())
def test_a_changed_byte_is_a_value_of_the_type_or_an_error_of_ours(data: st.DataObject) -> None:
    whole = bytearray(data.draw(st.sampled_from([pack({"f": PART}), pack(OddError("gone", a="b"))])))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with suppress(TilthError):
        assert isinstance(unpack(bytes(whole), dict[str, WrittenPart], task=0), dict)


def test_of_each_key_the_last_answer_counts_once() -> None:
    letters = [(key, pack(f"{key}.{number}")) for key, number in ((2, 0), (10, 0), (1, 9), (1, 10))]
    assert answers_of(letters, str) == ["1.10", "2.0", "10.0"]
    assert answers_of([], str) == []


def test_an_error_of_any_answer_is_not_forgotten() -> None:
    letters = [(0, pack(CorruptError(file="f"))), (0, pack("well")), (1, pack("well"))]
    with pytest.raises(CorruptError, match="file=f"):
        answers_of(letters, str)


@pytest.mark.parametrize("packed", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_letter_runs_nothing_and_is_an_error_of_its_task(packed: bytes) -> None:
    with pytest.raises(AnswerUnreadableError, match="task=5"):
        answers_of([(0, pack(1)), (5, packed)], int)
    mailbox = new_mailbox()
    letter = mailbox.letter(packed)
    # A letter of an error has no value, except None.
    expected = type(None) if packed == pack(None) else AnswerUnreadableError
    assert letter is None or isinstance(error_in(str(letter), mailbox), expected)


def test_an_error_in_the_text_of_spark_s_error_comes_back_as_it_was() -> None:
    mailbox = new_mailbox()
    letter = mailbox.letter(pack(CorruptError(file="f", hint="look")))
    found = error_in(f"Job aborted: {letter}\n at x", mailbox)
    assert isinstance(found, CorruptError)
    assert (found.facts, found.hint) == ({"file": "f"}, "look")
    assert error_in("Job aborted", mailbox) is None
