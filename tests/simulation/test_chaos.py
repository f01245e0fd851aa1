"""A short chaos run: two servers, their workers, broker, bucket and database are struck under load, and all is right.

The run is that of bench/ha_chaos.py, of which `make bench-ha` makes a hundred rounds. TILTH_CHAOS_ROUNDS and
TILTH_CHAOS_SEED say how many here, and which.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.ha_chaos import run_chaos

pytestmark = pytest.mark.simulation

ROUNDS = int(os.environ.get("TILTH_CHAOS_ROUNDS", "4"))
SEED = int(os.environ.get("TILTH_CHAOS_SEED", "1"))


def test_all_goes_on_and_nothing_is_lost_or_twice(tmp_path: Path, java_home: object) -> None:
    outcome = run_chaos(tmp_path, rounds=ROUNDS, seed=SEED)
    assert outcome.is_right, outcome
    assert outcome.rounds == ROUNDS
