"""Rounds of blows follow from their seed, overlap, and are mended whatever happens."""

from __future__ import annotations

import random
import threading

import pytest

from tools.jepsen.harm import Blow
from tools.jepsen.nemesis import LASTING_SECONDS, Strike, draw_round, perform


def blow(name: str, target: str, done: list[str], **options: bool) -> Blow:
    return Blow(
        name=name,
        target=target,
        strike=lambda: done.append(f"strike {name}"),
        mend=lambda: done.append(f"mend {name}"),
        seconds=(0.001, 0.002),
        **options,
    )


def test_a_seed_gives_the_same_rounds_of_blows_on_different_things() -> None:
    blows = [blow(f"{name}{target}", target, []) for target in "xyz" for name in "ab"]
    rounds = [draw_round(blows, random.Random(seed), seconds_max=100) for seed in range(50)]
    assert rounds == [draw_round(blows, random.Random(seed), seconds_max=100) for seed in range(50)]
    assert {len(each) for each in rounds} == {1, 2, 3}
    for each in rounds:
        targets = [strike.blow.target for strike in each]
        assert len(targets) == len(set(targets))
        assert all(0 < strike.end - strike.begin <= 0.0021 for strike in each)


def test_some_blows_last_and_none_longer_than_asked() -> None:
    blows = [blow("a", "x", [], may_last=True)]
    [free, bounded] = [
        [draw_round(blows, random.Random(seed), seconds_max=most)[0] for seed in range(200)] for most in (100, 3)
    ]
    lasting = [each.end - each.begin for each in free if each.end - each.begin > 1]
    assert lasting
    assert LASTING_SECONDS[0] <= min(lasting) <= max(lasting) <= LASTING_SECONDS[1]
    assert max(each.end - each.begin for each in bounded) <= 3.001


def test_blows_overlap_and_are_mended() -> None:
    done: list[str] = []
    is_struck, is_mended = threading.Event(), threading.Event()

    def mend_first() -> None:
        assert is_struck.wait(10.0)
        done.append("mend a")
        is_mended.set()

    def mend_second() -> None:
        assert is_mended.wait(10.0)
        done.append("mend b")

    def strike_second() -> None:
        done.append("strike b")
        is_struck.set()

    first = Blow(name="a", target="x", strike=lambda: done.append("strike a"), mend=mend_first)
    second = Blow(name="b", target="y", strike=strike_second, mend=mend_second)
    perform([Strike(first, 0.0, 0.0), Strike(second, 0.01, 0.0)], lambda what: None)
    assert done == ["strike a", "strike b", "mend a", "mend b"]


def test_a_strike_may_wait_for_the_mending_of_another_blow() -> None:
    """A process that is killed while its disk hangs ends only when the disk is mended."""
    done: list[str] = []
    is_mended = threading.Event()
    disk = Blow(name="disk hangs", target="x", strike=lambda: done.append("hangs"), mend=is_mended.set)

    def kill() -> None:
        assert is_mended.wait(10.0)
        done.append("killed")

    killed = Blow(name="killed", target="y", strike=kill, mend=lambda: done.append("started"))
    perform([Strike(disk, 0.0, 0.05), Strike(killed, 0.01, 0.02)], lambda what: None)
    assert done == ["hangs", "killed", "started"]


def test_what_was_struck_is_mended_when_a_strike_fails() -> None:
    done: list[str] = []
    is_struck = threading.Event()

    def fail() -> None:
        assert is_struck.wait(10.0)
        raise RuntimeError("a defect")

    first = Blow(name="a", target="x", strike=is_struck.set, mend=lambda: done.append("mend a"))
    broken = Blow(name="b", target="y", strike=fail, mend=lambda: done.append("mend b"))
    with pytest.raises(RuntimeError):
        perform([Strike(first, 0.0, 9.0), Strike(broken, 0.0, 9.0)], lambda what: None)
    assert sorted(done) == ["mend a", "mend b"]
