"""Slots and turns as a state machine: arrivals and ends in, grants out; then the same by chance, beside a model."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codes import WithCode
from tilth.base.errors import RetryError
from tilth.control.slots import Queue, SlotBoard


def board(queries: int = 1, *, waiting_max: int = 100) -> SlotBoard:
    return SlotBoard({Queue.QUERY: queries, Queue.INSERT: 1}, waiting_max=waiting_max)


def test_queues_do_not_take_each_others_slots() -> None:
    slots = board()
    assert slots.arrive("q1", Queue.QUERY, ("a",))
    assert not slots.arrive("q2", Queue.QUERY, ("a",))
    assert slots.arrive("i1", Queue.INSERT, ("a",))
    assert slots.leave("i1") == []
    assert slots.leave("q1") == ["q2"]


def test_a_client_with_many_statements_waits_behind_one_with_few() -> None:
    slots = board()
    slots.arrive("running", Queue.QUERY, ("x",))
    for number in range(3):
        slots.arrive(f"greedy{number}", Queue.QUERY, ("greedy",))
    slots.arrive("modest", Queue.QUERY, ("modest",))
    assert slots.ahead() == {"greedy0": 0, "modest": 1, "greedy1": 2, "greedy2": 3}
    order, last = [], "running"
    for _ in range(4):
        (last,) = slots.leave(last)
        order.append(last)
    assert order == ["greedy0", "modest", "greedy1", "greedy2"]


def test_connections_of_one_host_share_the_turns_of_the_host() -> None:
    slots = board()
    slots.arrive("running", Queue.QUERY, ("x", "1"))
    for port in range(3):
        for number in range(2):
            slots.arrive(f"a{port}.{number}", Queue.QUERY, ("a", str(port)))
    slots.arrive("b", Queue.QUERY, ("b", "1"))
    assert list(slots.ahead()) == ["a0.0", "b", "a1.0", "a2.0", "a0.1", "a1.1", "a2.1"]


def test_one_that_gives_up_waiting_leaves_no_trace() -> None:
    slots = board()
    slots.arrive("q1", Queue.QUERY, ("a",))
    slots.arrive("q2", Queue.QUERY, ("b",))
    slots.arrive("q3", Queue.QUERY, ("c",))
    assert slots.leave("q2") == []
    assert slots.leave("q1") == ["q3"]
    assert slots.leave("q3") == []
    assert slots.ahead() == {}
    assert slots.arrive("q4", Queue.QUERY, ("a",))


def test_too_many_are_refused_and_may_try_again() -> None:
    slots = board(waiting_max=1)
    slots.arrive("q1", Queue.QUERY, ("a",))
    slots.arrive("q2", Queue.QUERY, ("a",))
    with pytest.raises(RetryError, check=WithCode("TOO_MANY_STATEMENTS"), match="queue=query waiting=1"):
        slots.arrive("q3", Queue.QUERY, ("b",))
    assert slots.leave("q1") == ["q2"]
    assert not slots.arrive("q3", Queue.QUERY, ("b",))


@given(
    limit=st.integers(1, 3),
    events=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 20)), max_size=80),
)
def test_no_slot_is_lost_and_no_client_overtakes_twice(limit: int, events: list[tuple[int, int, int]]) -> None:
    """Event 0 and 1: a statement of a client arrives; 2 and 3: one of those that are there ends or gives up."""
    slots = board(limit, waiting_max=1000)
    client_of: dict[str, tuple[str, str]] = {}
    running: list[str] = []
    waiting: list[str] = []
    #: Turns of other clients since this one began to wait without a slot.
    overtaken: dict[str, Counter[str]] = {}
    for index, (event, host, choice) in enumerate(events):
        if event < 2:
            name, client = f"s{index}", (f"h{host}", f"p{choice % 2}")
            client_of[name] = client
            is_running = slots.arrive(name, Queue.QUERY, client)
            assert is_running == (len(running) < limit)
            (running if is_running else waiting).append(name)
            if not is_running:
                overtaken.setdefault(client[0], Counter())
            continue
        present = running + waiting
        if not present:
            continue
        name = present[choice % len(present)]
        granted = slots.leave(name)
        (running if name in running else waiting).remove(name)
        for each in granted:
            waiting.remove(each)
            running.append(each)
            host_of = client_of[each][0]
            overtaken[host_of] = Counter()
            for other, counted in overtaken.items():
                if other != host_of and any(client_of[one][0] == other for one in waiting):
                    counted[host_of] += 1
                    assert counted[host_of] <= 1, "a host had two turns while another one waited for its first"
        hosts_waiting = {client_of[one][0] for one in waiting}
        overtaken = {each: counted for each, counted in overtaken.items() if each in hosts_waiting}
        assert len(running) <= limit
        assert not waiting or len(running) == limit, "a slot is free while somebody waits"
        assert sorted(slots.ahead()) == sorted(waiting)
        assert slots.running(Queue.QUERY) == len(running)
