"""Reasons why a JVM has ended: the first one is kept, whatever its exit code is and however late it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilth.warehouse import SparkRestartingError, WarehouseSettings
from tilth.warehouse.session.session import WorkerSession


class SlowProcess:
    """A JVM's process that takes a while to end after SIGKILL."""

    pid = 1

    def __init__(self) -> None:
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        """Do nothing: the process ends later."""


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerSession:
    made = WorkerSession(WarehouseSettings(), folder=str(tmp_path), log_folder=str(tmp_path))
    monkeypatch.setattr(made, "_session", object())
    monkeypatch.setattr(made, "_jvm_process", SlowProcess())
    return made


def test_a_jvm_that_was_killed_is_gone_at_once_and_for_the_first_reason(session: WorkerSession) -> None:
    assert session.is_alive()
    session.kill("the JVM was killed because it hung")
    session.kill("later")
    # Its process has not ended yet, but it must not count as alive.
    assert (session.is_alive(), session.exit_reason()) == (False, "the JVM was killed because it hung")
    session._jvm_process.returncode = -9
    assert session.exit_reason() == "the JVM was killed because it hung"
    with pytest.raises(SparkRestartingError, match="killed because it hung"):
        _ = session.session


def test_a_jvm_that_others_ended_says_by_what(session: WorkerSession) -> None:
    session._jvm_process.returncode = -9
    assert (session.is_alive(), session.exit_reason()) == (False, "the JVM was ended by SIGKILL")


def test_the_reason_is_that_of_the_former_jvm_after_a_restart(
    session: WorkerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.warehouse.session.session._owner", session)
    monkeypatch.setattr(session, "_end", lambda: None)
    monkeypatch.setattr(session, "_launch", lambda: None)
    session.kill("the JVM was killed because it hung")
    assert session.restart_if_gone()
    assert session.why_ended == "the JVM was killed because it hung"
