"""A few rounds of jepsen with a fixed seed for each subject: overlapping blows under load, and nothing is lost.

`make test` makes a round of two servers, `make test-long` some of each subject, `make jepsen` hundreds (tools/jepsen).
TILTH_JEPSEN_ROUNDS and TILTH_JEPSEN_SEED set the number of rounds of each subject and the seed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.long import cases
from tools.jepsen.run import Order, run_jepsen

pytestmark = pytest.mark.simulation

ROUNDS = int(os.environ.get("TILTH_JEPSEN_ROUNDS", "1"))
SEED = int(os.environ.get("TILTH_JEPSEN_SEED", "1"))
#: Longest blow of a round, in seconds: longer than a server may be silent before the others end it.
BLOW_SECONDS_MAX = 4.0
#: Clients of a single round pause longer than those of `make jepsen`, and leave the processor to other tests.
PAUSE_FACTOR = 4.0 if ROUNDS == 1 else 1.0


@pytest.mark.parametrize("subject", cases(["two-servers", "servers", "rocksdb", "s3", "hdfs"]))
def test_what_was_acknowledged_is_there_once(tmp_path: Path, java_home: object, subject: str) -> None:
    order = Order(
        subject=subject, rounds=ROUNDS, seed=SEED, blow_seconds_max=BLOW_SECONDS_MAX, pause_factor=PAUSE_FACTOR
    )
    report = run_jepsen(tmp_path, order)
    assert report.is_right, report.line()
    assert report.rounds == ROUNDS
