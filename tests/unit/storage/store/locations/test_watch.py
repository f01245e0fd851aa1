"""Locations of tables: whose they are, and how they are when one hangs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tilth.base.clock import SystemClock
from tilth.storage import StoreLocationError, StoreRoot, local_root, reserve_location
from tilth.storage.store.locations.watch import LocationWatch


def test_a_location_belongs_to_one_node(tmp_path: Path) -> None:
    root = local_root(tmp_path / "location")
    reserve_location(root, "one")
    reserve_location(root, "one")
    with pytest.raises(StoreLocationError, match="another node"):
        reserve_location(root, "two")
    # A node's own location, without its owner.
    other = local_root(tmp_path / "other")
    reserve_location(other)
    with pytest.raises(StoreLocationError, match="another node"):
        reserve_location(other, "one")


def test_a_location_that_hangs_costs_one_thread_and_no_other_location_anything() -> None:
    answers, probed = threading.Event(), []

    def probe(root: StoreRoot) -> str:
        probed.append(root.uri)
        if root.uri == "/hangs":
            answers.wait(30)
        return ""

    locations = {"well": local_root("/well"), "hangs": local_root("/hangs")}
    watch = LocationWatch(SystemClock(), lambda: locations, probe=probe, timeout_seconds=0.1)
    for _ in range(3):
        states = watch.states()
        assert states["well"].trouble == ""
        assert states["hangs"].trouble == "no answer in 0.1 seconds"
    assert probed.count("/hangs") == 1
    since = states["hangs"].since_ms
    assert watch.states()["hangs"].since_ms == since
    answers.set()
    while watch.states()["hangs"].trouble:
        threading.Event().wait(0.01)
    locations.pop("hangs")
    assert list(watch.states()) == ["well"]


def test_last_states_wait_for_no_location() -> None:
    answers = threading.Event()

    def probe(root: StoreRoot) -> str:
        answers.wait(30)
        return "it is gone"

    watch = LocationWatch(SystemClock(), lambda: {"a": local_root("/a")}, probe=probe, timeout_seconds=0.1)
    assert watch.last_states() == {}, "nobody knows it yet"
    while not (states := watch.last_states()):
        threading.Event().wait(0.01)
    assert states["a"].trouble == "no answer in 0.1 seconds"
    answers.set()
    while watch.last_states()["a"].trouble != "it is gone":
        threading.Event().wait(0.01)


def test_a_location_that_goes_away_is_reported_with_its_reason() -> None:
    troubles = {"/a": ""}
    watch = LocationWatch(SystemClock(), lambda: {"a": local_root("/a")}, probe=lambda root: troubles[root.uri])
    assert watch.states()["a"].trouble == ""
    troubles["/a"] = "it is gone"
    while watch.states()["a"].trouble != "it is gone":
        threading.Event().wait(0.05)
