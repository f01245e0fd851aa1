"""Letters of tasks that fail: in the text of their error, whole or absent, and of the same job only."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilth.base.mailbox import LETTER_BYTES_MAX, AnswerUnreadableError, Mailbox, new_mailbox


def text_of(mailbox: Mailbox, packed: bytes) -> str:
    """The text that Spark has of a task's error."""
    letter = mailbox.letter(packed)
    assert letter is not None
    return f"Job aborted: Lost task 0.3\nTraceback:\n  File x\ntilth.base.mailbox.LetterError: {letter}\n\n at a.b.C"


@given(st.binary(max_size=2000))
def test_a_letter_is_found_in_the_text_of_its_error(packed: bytes) -> None:
    mailbox = new_mailbox()
    # A task gets the mailbox by value.
    assert mailbox.find(text_of(pickle.loads(pickle.dumps(mailbox)), packed)) == packed


def test_of_several_attempts_the_first_in_the_text_counts() -> None:
    mailbox = new_mailbox()
    assert mailbox.find(text_of(mailbox, b"1") + text_of(mailbox, b"2")) == b"1"


def test_a_letter_of_another_job_is_none() -> None:
    one, other = new_mailbox(), new_mailbox()
    assert one != other
    assert other.find(text_of(one, b"1")) is None


@pytest.mark.parametrize(
    "forged", ["", "tilth-letter::AA==:end", "tilth-letter:.*:AA==:end", f"tilth-letter:{'0' * 32}:AA==:end"]
)
def test_a_value_of_a_row_that_looks_like_a_letter_is_none(forged: str) -> None:
    """As of `raise_error` in a user's query: nobody knows the mark."""
    assert new_mailbox().find(f"[USER_RAISED_EXCEPTION] {forged}") is None


def test_a_letter_that_was_cut_off_is_none() -> None:
    mailbox = new_mailbox()
    text = str(mailbox.letter(b"whole"))
    assert [mailbox.find(text[:length]) for length in range(len(text))] == [None] * len(text)
    assert mailbox.find(text) == b"whole"


def test_a_letter_that_is_damaged_is_an_error() -> None:
    mailbox = new_mailbox()
    with pytest.raises(AnswerUnreadableError, match="cannot be read"):
        mailbox.find(f"tilth-letter:{mailbox.mark}:A:end")


def test_a_letter_that_is_too_long_is_not_sent() -> None:
    mailbox = new_mailbox()
    assert mailbox.letter(bytes(LETTER_BYTES_MAX)) is not None
    assert mailbox.letter(bytes(LETTER_BYTES_MAX + 1)) is None
