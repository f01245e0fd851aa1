"""The cases of test_beside_duckdb.py over a catalog in a real PostgreSQL: duckdb is the oracle there too.

TILTH_HOSTILE_SEED sets the seed that is otherwise new in each run, TILTH_HOSTILE_CASES how many cases follow from it.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.hostile import SEED_VARIABLE, seed_of_run
from tests.integration.sql import test_beside_duckdb as suite
from tests.long import cases
from tilth.node import Node
from tools.postgres import Postgres

pytestmark = pytest.mark.integration

#: The whole suite takes a minute; the catalog's part in it shows in a few cases.
FIXED_SEEDS = suite.FIXED_SEEDS[:3]

node, session, small_pages = suite.node, suite.session, suite.small_pages


@pytest.fixture(scope="module")
def catalog_settings(postgres: Postgres) -> dict[str, str]:
    return {"catalog.url": postgres.address(schema="beside")}


@pytest.mark.parametrize("seed", cases(FIXED_SEEDS))
def test_fixed_cases_on_postgres(node: Node, session: SparkSession, seed: int) -> None:
    suite.check_case(node, session, seed)


def test_fresh_cases_on_postgres(node: Node, session: SparkSession) -> None:
    first = seed_of_run()
    print(f"{SEED_VARIABLE}={first} TILTH_HOSTILE_CASES={suite.CASES}")
    for seed in range(first, first + suite.CASES):
        suite.check_case(node, session, seed)
