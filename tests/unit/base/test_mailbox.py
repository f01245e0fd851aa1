"""Letters of tasks in other processes: complete or absent, of every attempt of a task, and from tasks only."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from tilth.base import mailbox as mailbox_module
from tilth.base.mailbox import AnswerUnreadableError, Letter, Mailbox, mailbox_in


def test_letters_come_in_the_order_of_keys_and_attempts(tmp_path: Path) -> None:
    with mailbox_in(str(tmp_path)) as mailbox:
        assert mailbox.letters() == []
        # A task gets the mailbox by value. Keys and attempts have two digits, and one letter is sent twice.
        sent = pickle.loads(pickle.dumps(mailbox))
        for key, attempt in ((2, 0), (10, 0), (1, 10), (1, 9), (1, 9)):
            sent.send(b"%d.%d" % (key, attempt), key=key, attempt=attempt)
        assert mailbox.letters() == [
            Letter(1, 9, b"1.9"),
            Letter(1, 10, b"1.10"),
            Letter(2, 0, b"2.0"),
            Letter(10, 0, b"10.0"),
        ]
    assert list(tmp_path.iterdir()) == []


def test_a_letter_that_was_cut_off_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(source: str, target: str) -> None:
        raise OSError("the process ended")

    with mailbox_in(str(tmp_path)) as mailbox:
        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", cut_off)
            with pytest.raises(OSError, match="ended"):
                mailbox.send(b"half", key=0, attempt=0)
        assert mailbox.letters() == []
        mailbox.send(b"whole", key=0, attempt=1)
        assert mailbox.letters() == [Letter(0, 1, b"whole")]


def test_who_sends_too_late_makes_nothing(tmp_path: Path) -> None:
    with mailbox_in(str(tmp_path)) as mailbox:
        pass
    assert mailbox.letters() == []
    with pytest.raises(OSError, match="No such file"):
        mailbox.send(b"late", key=0, attempt=0)
    assert list(tmp_path.iterdir()) == []


def test_a_mailbox_is_its_user_s_alone_and_no_other_job_s(tmp_path: Path) -> None:
    with mailbox_in(str(tmp_path)) as one, mailbox_in(str(tmp_path)) as other:
        assert one != other
        assert Path(one.folder).stat().st_mode & 0o077 == 0
        one.send(b"1", key=0, attempt=0)
        assert other.letters() == []
    assert isinstance(one, Mailbox)


@pytest.mark.parametrize("name", ["x", "0", "-1-0", "0-0-0", "0-", "1_0-0", "٣-0", "0-0\n", "9" * 200 + "-0"])
def test_a_file_of_another_name_is_nobody_s_letter(tmp_path: Path, name: str) -> None:
    with mailbox_in(str(tmp_path)) as mailbox:
        mailbox.send(b"1", key=0, attempt=0)
        Path(mailbox.folder, name).write_bytes(b"")
        with pytest.raises(AnswerUnreadableError, match="no task of this job"):
            mailbox.letters()


def test_a_link_a_pipe_a_folder_and_a_huge_file_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_module, "ANSWER_BYTES_MAX", 8)
    secret = tmp_path / "secret"
    secret.write_bytes(b"s")
    for make in (
        lambda path: path.symlink_to(secret),
        os.mkfifo,
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b"123456789"),
        # Not even root can open a link to itself.
        lambda path: path.symlink_to(path),
    ):
        with mailbox_in(str(tmp_path)) as mailbox:
            make(Path(mailbox.folder, "7-1"))
            with pytest.raises(AnswerUnreadableError, match="task=7 attempt=1 reason="):
                mailbox.letters()
