"""Answers of tasks in other processes: what comes back, also of tasks that were tried again, failed or were cut off."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from tilth.base.errors import CorruptError, ErrorKind, TilthError
from tilth.base.mailbox import Mailbox, mailbox_in, pack, unpack


class OddError(TilthError):
    """an odd thing"""

    kind = ErrorKind.FENCED
    code = "ODD"


@pytest.mark.parametrize("answer", [None, 7, "text", (1, [2.5]), {"a": b"\x00"}, ErrorKind.RETRY])
def test_an_answer_comes_back_as_it_was(answer: object) -> None:
    assert unpack(pack(answer)) == answer


def test_an_error_comes_back_with_type_kind_code_facts_and_hint() -> None:
    with pytest.raises(OddError) as caught:
        unpack(pack(OddError("gone", file="a=b", hint="look")))
    error = caught.value
    assert (error.kind, error.code, error.facts, error.hint) == (ErrorKind.FENCED, "ODD", {"file": "a=b"}, "look")
    assert error.message == "gone: file=a=b"


def test_of_each_key_the_last_attempt_counts_once(tmp_path: Path) -> None:
    with mailbox_in(str(tmp_path)) as mailbox:
        assert (mailbox.answers(), mailbox.error()) == ([], None)
        # As a task has it, that got it by value; in no order, and more than nine of both.
        sent = pickle.loads(pickle.dumps(mailbox))
        for key, attempt in ((2, 0), (10, 0), (1, 10), (1, 9), (1, 9)):
            sent.send(f"{key}.{attempt}", key=key, attempt=attempt)
        assert mailbox.answers() == ["1.10", "2.0", "10.0"]
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_any_attempt_is_not_forgotten(tmp_path: Path) -> None:
    with mailbox_in(str(tmp_path)) as mailbox:
        mailbox.send(CorruptError(file="f"), key=0, attempt=0)
        mailbox.send("well", key=0, attempt=1)
        mailbox.send("well", key=1, attempt=0)
        with pytest.raises(CorruptError, match="file=f"):
            mailbox.answers()
        assert isinstance(mailbox.error(), CorruptError)


def test_an_answer_that_was_cut_off_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(source: str, target: str) -> None:
        raise OSError("the process ended")

    with mailbox_in(str(tmp_path)) as mailbox:
        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", cut_off)
            with pytest.raises(OSError, match="ended"):
                mailbox.send("half", key=0, attempt=0)
        assert mailbox.answers() == []
        mailbox.send("whole", key=0, attempt=1)
        assert mailbox.answers() == ["whole"]


def test_who_sends_too_late_makes_nothing(tmp_path: Path) -> None:
    with mailbox_in(str(tmp_path)) as mailbox:
        pass
    assert (mailbox.answers(), mailbox.error()) == ([], None)
    with pytest.raises(OSError, match="No such file"):
        mailbox.send("late", key=0, attempt=0)
    assert list(tmp_path.iterdir()) == []


def test_a_mailbox_is_its_user_s_alone_and_no_other_job_s(tmp_path: Path) -> None:
    with mailbox_in(str(tmp_path)) as one, mailbox_in(str(tmp_path)) as other:
        assert one != other
        assert Path(one.folder).stat().st_mode & 0o077 == 0
        one.send(1, key=0, attempt=0)
        assert other.answers() == []
    assert isinstance(one, Mailbox)
