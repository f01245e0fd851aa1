"""Texts in both forms, and messages chosen from a batch."""

from __future__ import annotations

import numpy as np
import pytest

from tilth.ingest.batch import MessageBatch, Texts

GIVEN = [b"a", None, b"", b"\0\0", b"\xff" * 300]


def in_buffer(given: list[bytes | None]) -> Texts:
    lengths = [len(each or b"") + 1 for each in given]
    return Texts(
        buffer=b"".join((each or b"") + b"\0" for each in given),
        offsets=np.cumsum([0, *lengths]),
        lacking=np.array([each is None for each in given]),
    )


@pytest.mark.parametrize("given", [GIVEN, GIVEN[:1], [None], []])
def test_both_forms_hold_the_same(given: list[bytes | None]) -> None:
    listed, joined = Texts(list(given)), in_buffer(given)
    # Elements before the whole list, which replaces the buffer as their source.
    assert [joined[index] for index in range(len(joined))] == given
    assert joined.items == listed.items == given
    assert [joined[index] for index in range(len(joined))] == given
    assert listed.buffer == joined.buffer
    assert listed.offsets.tolist() == joined.offsets.tolist()
    assert listed.size == joined.size == sum(len(each or b"") for each in given)
    assert len(listed) == len(joined) == len(given)


def test_messages_are_chosen_with_all_that_they_have() -> None:
    headers = [[("h", b"%d" % number)] for number in range(5)]
    batch = MessageBatch(
        in_buffer(GIVEN),
        offsets=np.arange(7, 12),
        keys=in_buffer([None, b"k", b"", b"\xff", b"l"]),
        times=np.array([-1, 5, 6, 7, 8]),
        headers=headers,
    )
    chosen = batch.select([4, 1])
    assert chosen.values.items == [GIVEN[4], None]
    assert chosen.offsets.tolist() == [11, 8]
    assert list(chosen.keys) == [b"l", b"k"]
    assert [chosen.time(index) for index in (0, 1)] == [8, 5]
    assert list(chosen.headers) == [headers[4], headers[1]]
    assert len(batch.select([])) == 0


def test_what_no_message_has_is_lacking_for_each() -> None:
    batch = MessageBatch(Texts([b"a", b"b"]), offsets=np.array([0, 1])).select([1])
    assert (batch.key(0), batch.time(0), list(batch.headers)) == (None, -1, [()])
    assert (list(batch.keys), batch.times.tolist()) == ([None], [-1])
