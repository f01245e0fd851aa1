"""What `dialect = 'clickhouse'` answers is what ClickHouse answers: expressions over hostile values, and queries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.long import cases
from tilth.warehouse import WorkerSession
from tools.clickhouse import ClickHouse
from tools.dialect_cases import COLUMNS, OVER_COLUMNS, QUERIES, ROWS, lines
from tools.dialect_constants import CONSTANTS, JSON, ZONED, ZONED_COLUMNS, ZONED_ROWS, ZONES
from tools.dialect_oracle import Compared, Sides

pytestmark = pytest.mark.integration

#: Of the longest lists `make test` compares each fifth expression.
STEPS = (5, 1)


@pytest.fixture(scope="module")
def sides(spark: WorkerSession) -> Iterator[Sides]:
    with ClickHouse() as clickhouse:
        session = spark.session.newSession()
        # Compiling expressions of this length takes ten times as long as computing them for a handful of rows. The
        # oracle's command compares what is compiled.
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        made = Sides(session, clickhouse)
        made.create("h", COLUMNS, ROWS)
        yield made


def _check(found: Compared, same_min: int) -> None:
    """Nothing differs, and what was answered goes on being answered."""
    assert [str(each) for each in found.different] == []
    assert len(found.same) >= same_min, found.refused


def test_constants(sides: Sides) -> None:
    _check(sides.compare(lines(CONSTANTS)), 210)


@pytest.mark.parametrize("step", cases(STEPS))
def test_json(sides: Sides, step: int) -> None:
    _check(sides.compare(lines(JSON)[::step]), 110 // step - step)


@pytest.mark.parametrize("step", cases(STEPS))
def test_expressions_over_columns(sides: Sides, step: int) -> None:
    _check(sides.compare(lines(OVER_COLUMNS)[::step], "FROM h ORDER BY id"), 280 // step - step)


def test_queries(sides: Sides) -> None:
    _check(sides.compare_queries(lines(QUERIES)), 70)


@pytest.mark.parametrize("zone", cases(ZONES))
def test_times_in_a_zone(spark: WorkerSession, zone: str) -> None:
    session = spark.session.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    with ClickHouse(zone) as clickhouse:
        zoned = Sides(session, clickhouse)
        zoned.create("z", ZONED_COLUMNS, ZONED_ROWS)
        _check(zoned.compare(lines(ZONED), "FROM z ORDER BY id"), 60)
