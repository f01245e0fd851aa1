"""Placement of tables on servers: all agree, and no more moves than must."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tilth.model.server import host_of

THINGS = [f"{number:032x}" for number in range(300)]
NAMES = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=8, unique=True)


def test_nobody_hosts_where_there_is_no_server() -> None:
    assert host_of("t", []) is None


def test_tables_are_shared_out_evenly() -> None:
    shares = Counter(host_of(thing, ["a", "b", "c"]) for thing in THINGS)
    assert set(shares) == {"a", "b", "c"}
    assert min(shares.values()) > 60


@given(NAMES)
def test_the_order_in_which_servers_are_seen_does_not_count(names: list[str]) -> None:
    assert [host_of(thing, names) for thing in THINGS[:20]] == [host_of(thing, names[::-1]) for thing in THINGS[:20]]


@given(NAMES)
def test_a_server_that_goes_moves_what_it_hosted_and_nothing_else(names: list[str]) -> None:
    left = names[1:]
    for thing in THINGS[:50]:
        before, after = host_of(thing, names), host_of(thing, left)
        assert after == before or before == names[0]
