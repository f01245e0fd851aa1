"""What `dialect = 'clickhouse'` answers is what ClickHouse answers: expressions over hostile values, and queries.

ClickHouse's functions without the dialect differ by the rules of tools/function_cases.py alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.long import cases
from tilth.grammar.text.date_diff import with_unit_diff
from tilth.warehouse import WorkerSession
from tools.clickhouse import ClickHouse
from tools.dialect_cases import COLUMNS, OVER_COLUMNS, QUERIES, ROWS, lines
from tools.dialect_constants import CONSTANTS, JSON, ZONED, ZONED_COLUMNS, ZONED_ROWS, ZONES
from tools.dialect_oracle import Compared, Sides
from tools.function_cases import AGGREGATES, DIFFERENT, NULL_WITHOUT_ROWS, REFUSED, SAME, WHOLE_QUERIES

pytestmark = pytest.mark.integration

#: Steps through the lists: `make test` compares each fifth expression.
STEPS = (5, 1)


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[ClickHouse]:
    with ClickHouse() as running:
        yield running


def _uncompiled(spark: WorkerSession) -> SparkSession:
    """Return a session that interprets expressions: to compile long ones takes ten times as long as to compute them
    for a handful of rows. The oracle's command compares compiled expressions.
    """
    session = spark.session.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


@pytest.fixture(scope="module")
def sides(spark: WorkerSession, clickhouse: ClickHouse) -> Sides:
    made = Sides(_uncompiled(spark), clickhouse)
    made.create("h", COLUMNS, ROWS)
    return made


def _check(found: Compared, same_min: int) -> None:
    """Nothing differs, and what was answered goes on being answered."""
    assert [str(each) for each in found.different] == []
    assert len(found.same) >= same_min, found.refused


def _share(same_min: int, step: int) -> int:
    """Return how many of each `step`-th expression are the same, but for as many refused ones as a step has."""
    return same_min if step == 1 else same_min // step - step


@pytest.mark.parametrize("step", cases(STEPS))
def test_constants(sides: Sides, step: int) -> None:
    _check(sides.compare(lines(CONSTANTS)[::step]), _share(210, step))


@pytest.mark.parametrize("step", cases(STEPS))
def test_json(sides: Sides, step: int) -> None:
    _check(sides.compare(lines(JSON)[::step]), _share(110, step))


@pytest.mark.parametrize("step", cases(STEPS))
def test_expressions_over_columns(sides: Sides, step: int) -> None:
    _check(sides.compare(lines(OVER_COLUMNS)[::step], "FROM h ORDER BY id"), _share(280, step))


@pytest.mark.parametrize("step", cases(STEPS))
def test_queries(sides: Sides, step: int) -> None:
    _check(sides.compare_queries(lines(QUERIES)[::step]), _share(70, step))


@pytest.mark.parametrize("zone", cases(ZONES))
def test_times_in_a_zone(spark: WorkerSession, zone: str) -> None:
    session = _uncompiled(spark)
    session.conf.set("spark.sql.session.timeZone", zone)
    with ClickHouse(zone) as clickhouse:
        zoned = Sides(session, clickhouse)
        zoned.create("z", ZONED_COLUMNS, ZONED_ROWS)
        _check(zoned.compare(lines(ZONED), "FROM z ORDER BY id"), 60)


@pytest.fixture(scope="module")
def plain(sides: Sides) -> Sides:
    """The same tables; Spark gets its own dialect."""
    return sides.reading(with_unit_diff)


def test_functions_without_the_dialect(plain: Sides) -> None:
    found = plain.compare(lines(SAME), "FROM h ORDER BY id")
    assert ([str(each) for each in found.different], found.refused, found.refused_by_clickhouse) == ([], {}, {})
    under_rules = [each for text in DIFFERENT.values() for each in lines(text)]
    found = plain.compare(under_rules, "FROM h ORDER BY id")
    assert {each.text for each in found.different} == set(under_rules)


def test_aggregates_without_the_dialect(plain: Sides) -> None:
    for source in ("FROM h", "FROM h WHERE id = 6"):
        found = plain.compare(lines(AGGREGATES), source)
        assert ([str(each) for each in found.different], found.refused, found.refused_by_clickhouse) == ([], {}, {})
    texts = lines(NULL_WITHOUT_ROWS)
    assert plain.compare(texts, "FROM h").different == []
    assert [each.tilth for each in plain.compare(texts, "FROM h WHERE id > 99").different] == [None] * len(texts)
    assert plain.compare_queries(lines(WHOLE_QUERIES)).different == []


def test_functions_that_refuse_without_the_dialect(plain: Sides) -> None:
    for text, said in REFUSED.items():
        assert said in plain.refusal(text, "FROM h"), text
