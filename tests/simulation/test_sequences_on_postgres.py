"""The random sequences of test_sequences.py over a catalog in a real PostgreSQL, each in a schema of its own.

The seeds are those of that file; TILTH_POSTGRES_SEQUENCES says how many. Answers of commits are lost here too, by the
same stand-in; what the database itself can do to a commit is in integration/catalog/test_postgres_kv.py.
"""

from __future__ import annotations

import os
from collections import Counter
from hashlib import blake2b
from pathlib import Path

import pytest

from tests.sequence_world import SequenceWorld
from tests.simulation.test_sequences import FIXED, FRESH_SEED, STEPS, played, shortest
from tests.simulation.test_sequences import test_a_fixed_sequence as play_fixed
from tilth.base.clock import SystemClock
from tilth.catalog import PostgresKV, parse_postgres
from tools.postgres import Postgres

pytestmark = pytest.mark.simulation

SEQUENCES = int(os.environ.get("TILTH_POSTGRES_SEQUENCES", "8"))


@pytest.fixture(autouse=True)
def in_postgres(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_kv(world: SequenceWorld, folder: str) -> PostgresKV:
        schema = f"s{blake2b(folder.encode(), digest_size=12).hexdigest()}"
        return PostgresKV(SystemClock(), parse_postgres(postgres.address(schema=schema)))

    monkeypatch.setattr(SequenceWorld, "open_kv", open_kv)


def test_random_sequences_on_postgres(folder: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in (*range(SEQUENCES), FRESH_SEED):
        failure = played(folder, seed, STEPS, counts)
        if failure is not None:
            pytest.fail(shortest(folder, seed, failure))
    print(dict(sorted(counts.items())))
    for what in ("MERGE", "FLUSH", "outcome unknown", "died"):
        assert counts[what] > 0, (what, counts)


@pytest.mark.parametrize("sequence", FIXED)
def test_a_fixed_sequence_on_postgres(folder: Path, sequence: str) -> None:
    play_fixed(folder, sequence, True, "fd ma kill")
