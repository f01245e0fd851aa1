"""A few rounds of jepsen with a fixed seed for each subject: overlapping blows under load, and nothing is lost.

`make jepsen` makes hundreds (tools/jepsen). TILTH_JEPSEN_ROUNDS and TILTH_JEPSEN_SEED set the number of rounds of each
subject and the seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tools.jepsen.report import Report
from tools.jepsen.run import Order, run_jepsen

pytestmark = pytest.mark.simulation

#: Subjects, the longest run first.
SUBJECTS = ("servers", "hdfs", "s3", "rocksdb")
#: Runs at the same time. Most of a run is waiting: for the end of blows, for servers that notice them, for clean-up.
TOGETHER = 2

ROUNDS = int(os.environ.get("TILTH_JEPSEN_ROUNDS", "2"))
SEED = int(os.environ.get("TILTH_JEPSEN_SEED", "1"))
#: Longest blow of a round, in seconds: longer than a server may be silent before the others end it.
BLOW_SECONDS_MAX = 4.0


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, java_home: object
) -> Iterator[Mapping[str, Future[Report]]]:
    """Runs of the subjects whose tests are selected, several at the same time."""
    names = {item.name for item in request.session.items if item.path == request.path}
    pool = ThreadPoolExecutor(TOGETHER)
    try:
        yield {
            subject: pool.submit(
                run_jepsen,
                tmp_path_factory.mktemp(subject),
                Order(subject=subject, rounds=ROUNDS, seed=SEED, blow_seconds_max=BLOW_SECONDS_MAX),
            )
            for subject in SUBJECTS
            if any(f"[{subject}]" in name for name in names)
        }
    finally:
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_was_acknowledged_is_there_once(runs: Mapping[str, Future[Report]], subject: str) -> None:
    report = runs[subject].result()
    assert report.is_right, report.line()
    assert report.rounds == ROUNDS
