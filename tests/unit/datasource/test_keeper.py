"""Renewal of leases: while they are used, while jobs run, until the server says that they have ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.codes import WithCode
from tilth.base.errors import FencedError, NotFoundError, TilthError, UnavailableError
from tilth.datasource.attachment import Attachment, HeldLease, HeldWrite, new_attachment
from tilth.datasource.keeper import RENEW_SECONDS, TURN_SECONDS, WRITE_SECONDS_MAX, LeaseKeeper
from tilth.datasource.write_options import SILENCE_SECONDS_MIN
from tilth.testing import ManualClock

HOLD = 100.0


class Calls:
    """A server that writes down what it is asked."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.error: TilthError | None = None

    def renew(self, lease_id: str) -> None:
        self._call("renew", lease_id)

    def unpin(self, lease_id: str) -> None:
        self._call("unpin", lease_id)

    def renew_write(self, write_id: str) -> None:
        self._call("renew_write", write_id)

    def abort_write(self, write_id: str, reason: str) -> None:
        self._call("abort_write", write_id)

    def close(self) -> None:
        self.made.append("close")

    def _call(self, verb: str, lease_id: str) -> None:
        self.made.append(f"{verb} {lease_id}")
        if self.error is not None:
            raise self.error


class World:
    def __init__(self, attachment: Attachment) -> None:
        self.attachment = attachment
        self.clock = ManualClock()
        self.calls = Calls()
        self.is_busy = False
        self.keeper = LeaseKeeper(self.clock, attachment, is_busy=lambda: self.is_busy, connect=lambda url: self.calls)

    def hold(self, lease_id: str) -> None:
        self.attachment.hold(HeldLease(id=lease_id, url="http://h", seconds=HOLD, table="db.t"))
        self.use(lease_id)

    def use(self, lease_id: str) -> None:
        now = self.clock.now_ms() / 1000
        os.utime(Path(self.attachment.folder, f"{lease_id}.held"), (now, now))

    def hold_write(self, write_id: str, txn: int, silence: float = 120) -> None:
        self.attachment.hold_write(
            HeldWrite(id=write_id, txn=txn, url="http://h", silence_seconds=silence, table="db.t")
        )
        now = self.clock.now_ms() / 1000
        os.utime(Path(self.attachment.folder, f"{txn}.write"), (now, now))

    def turn(self, seconds: float = 0.0) -> list[str]:
        self.clock.advance(seconds)
        self.calls.made.clear()
        self.keeper.turn()
        return list(self.calls.made)


@pytest.fixture
def world() -> Iterator[World]:
    attachment = new_attachment()
    yield World(attachment)
    attachment.remove()


def test_a_lease_is_renewed_until_it_is_unused_for_long(world: World) -> None:
    world.hold("a")
    assert world.turn() == []
    assert world.turn(RENEW_SECONDS) == ["renew a"]
    assert world.turn(1) == []
    world.use("a")
    assert world.turn(HOLD) == ["renew a"]
    assert world.turn(1) == ["unpin a"]
    assert world.attachment.held() == []
    assert world.turn(HOLD) == []


def test_jobs_that_run_hold_every_snapshot(world: World) -> None:
    world.hold("a")
    world.turn()
    world.is_busy = True
    assert world.turn(HOLD * 10) == ["renew a"]
    world.is_busy = False
    assert world.turn(1) == ["unpin a"]


def test_a_lease_that_has_ended_is_held_no_more(world: World) -> None:
    world.hold("a")
    world.turn()
    world.calls.error = UnavailableError("away")
    assert world.turn(RENEW_SECONDS) == ["renew a"]
    # It is tried again: the server may come back in time.
    assert world.turn(1) == ["renew a"]
    world.calls.error = FencedError("it has ended")
    assert world.turn(1) == ["renew a"]
    assert world.attachment.held() == []


def test_closing_releases_everything_once(world: World) -> None:
    world.hold("a")
    world.hold("b")
    world.keeper.close()
    assert world.calls.made == ["unpin a", "unpin b", "close"]
    assert not Path(world.attachment.folder).exists()
    world.keeper.close()
    assert len(world.calls.made) == 3


def test_closing_does_not_wait_for_a_server_that_is_away_more_than_once(world: World) -> None:
    world.hold("a")
    world.hold("b")
    world.calls.error = UnavailableError("away")
    world.keeper.close()
    assert world.calls.made == ["unpin a", "close"]


def test_a_write_that_the_server_aborts_soon_is_renewed_in_time(world: World) -> None:
    world.is_busy = True
    world.hold_write("w", 7, SILENCE_SECONDS_MIN)
    world.hold_write("v", 8)
    renewed = [world.turn(TURN_SECONDS) for _ in range(8)]
    assert [calls.count("renew_write w") for calls in renewed] == [1] * 8
    assert [calls.count("renew_write v") for calls in renewed] == [0, 0, 0, 1] * 2
    assert SILENCE_SECONDS_MIN >= 4 * TURN_SECONDS


def test_open_writes_are_renewed_while_jobs_run(world: World) -> None:
    world.hold_write("w", 7)
    assert world.turn(RENEW_SECONDS) == []
    world.is_busy = True
    assert world.turn(1) == ["renew_write w"]
    assert world.turn(1) == []
    world.calls.error = FencedError("it has ended")
    assert world.turn(RENEW_SECONDS) == ["renew_write w"]
    # The commit needs its address, and says why it has ended.
    assert world.attachment.write_of(7).id == "w"
    world.calls.error = None
    assert world.turn(1) == ["renew_write w"]
    world.attachment.forget_write(7)
    assert world.turn(RENEW_SECONDS) == []
    with pytest.raises(NotFoundError, check=WithCode("WRITE_UNKNOWN")):
        world.attachment.write_of(7)


def test_a_write_that_nobody_ends_is_not_renewed_for_ever(world: World) -> None:
    world.hold_write("w", 7)
    world.is_busy = True
    assert world.turn(WRITE_SECONDS_MAX + 1) == []
    assert world.attachment.writes() == []


def test_closing_aborts_open_writes(world: World) -> None:
    world.hold("a")
    world.hold_write("w", 7)
    world.hold_write("x", 8)
    world.keeper.close()
    assert world.calls.made == ["unpin a", "abort_write w", "abort_write x", "close"]
