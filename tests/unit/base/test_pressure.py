"""A budget of bytes that requests share."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tilth.base.pressure import MemoryBudget, MemoryPressureError


def budget(limit: int = 100) -> MemoryBudget:
    return MemoryBudget(limit, free=10, what="bodies", setting="server.insert-memory")


def test_what_is_too_much_is_refused_until_others_have_gone() -> None:
    bodies = budget()
    with bodies.share() as first:
        first.grow_to(60)
        first.grow_to(50)
        with bodies.share() as second:
            second.grow_to(40)
            with pytest.raises(MemoryPressureError, match="bodies") as refused:
                second.grow_to(41)
            assert "server.insert-memory" in refused.value.hint
            assert (bodies.used, bodies.refused) == (100, 1)
        with bodies.share() as third:
            third.grow_to(40)
    assert bodies.used == 0


def test_a_share_is_released_by_its_last_user() -> None:
    bodies = budget()
    with bodies.share() as left, ExitStack() as thread:
        left.grow_to(60)
        thread.enter_context(left.in_use())
        # It may grow there.
        left.grow_to(80)
        assert bodies.used == 80
        lasting = thread.pop_all()
    assert bodies.used == 80
    with pytest.raises(MemoryPressureError), bodies.share() as other:
        other.grow_to(30)
    lasting.close()
    assert bodies.used == 0
    # A thread that begins late.
    with left.in_use():
        assert bodies.used == 80
    assert bodies.used == 0


def test_small_requests_and_lone_ones_always_pass() -> None:
    """KILL QUERY is small; one request above the limit could never succeed otherwise."""
    bodies = budget()
    with bodies.share() as large:
        large.grow_to(1000)
        with bodies.share() as small:
            small.grow_to(10)
            with pytest.raises(MemoryPressureError):
                small.grow_to(11)
    assert bodies.used == 0
