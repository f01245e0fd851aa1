"""Compares what Tilth answers, as a rule where `dialect = 'clickhouse'` is set, with what ClickHouse answers.

    python -m tools.dialect_oracle [--expressions 3000] [--selects 500] [--seed N]

Covers: the tables of hostile values that both sides have, many expressions in one query, whole queries, values that
are the same although their types differ. Does not cover: which expressions (dialect_cases.py, dialect_random.py).
Always holds: a difference is an expression that both sides answer and whose values differ; what either side refuses is
counted and named.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tilth.base.errors import TilthError
from tilth.clickhouse.dialect import to_spark
from tilth.warehouse import WorkerSession, warehouse_settings
from tools import dialect_random
from tools.clickhouse import ClickHouse, ClickHouseError
from tools.dialect_cases import COLUMNS, ROWS

#: Expressions in one query.
BATCH = 60
_FILLED = {"INT": "0", "DOUBLE": "0D", "STRING": "''", "TIMESTAMP": "timestamp_seconds(0)", "DATE": "DATE'1970-01-01'"}
#: Functions of numbers differ in their last digits.
_RELATIVE = 1e-13


@dataclass(frozen=True, slots=True)
class Difference:
    text: str
    tilth: object
    clickhouse: object

    def __str__(self) -> str:
        return f"{self.text}: Tilth {self.tilth!r}, ClickHouse {self.clickhouse!r}; read as {_read_as(self.text)}"


@dataclass(slots=True)
class Compared:
    """Texts by the outcome of their comparison."""

    same: list[str] = field(default_factory=list)
    different: list[Difference] = field(default_factory=list)
    #: Texts that Tilth refused, with its messages.
    refused: dict[str, str] = field(default_factory=dict)
    #: Texts that ClickHouse refused, with its messages; Tilth answers, or fails too.
    refused_by_clickhouse: dict[str, str] = field(default_factory=dict)


def _headed(query: str) -> str:
    return to_spark(query, is_headed=True)


class Sides:
    """Both systems, with the same tables. Tilth's is a Spark that has its functions."""

    def __init__(self, spark: SparkSession, clickhouse: ClickHouse, read: Callable[[str], str] = _headed) -> None:
        """`read` returns the query that Spark gets for one of ClickHouse."""
        self._spark = spark
        self._clickhouse = clickhouse
        self._read = read

    def reading(self, read: Callable[[str], str]) -> Sides:
        """Return the same sides for queries that are read otherwise."""
        return Sides(self._spark, self._clickhouse, read)

    def create(self, name: str, columns: Sequence[tuple[str, str, str, bool]], rows: Sequence[str]) -> None:
        """Create a table. `columns`: as in dialect_cases.py; `rows`: literals that both systems read, with commas."""
        theirs = ", ".join(f"{column} {f'Nullable({kind})' if can else kind}" for column, kind, _, can in columns)
        self._clickhouse.run(f"CREATE TABLE {name} ({theirs}) ENGINE = MergeTree ORDER BY {columns[0][0]}")
        self._clickhouse.run(f"INSERT INTO {name} VALUES {', '.join(f'({row})' for row in rows)}")
        # Literals of one column differ in their types.
        texts = [" ".join(("SELECT", ", ".join(map(_column, row.split(", "), columns)))) for row in rows]
        # The texts are rows: Spark would plan each expression once for each literal row.
        self._spark.sql(" UNION ALL ".join(texts)).coalesce(1).localCheckpoint().createOrReplaceTempView(name)

    def compare(self, expressions: Sequence[str], source: str = "") -> Compared:
        """Compare expressions, each of them in all rows of `source`, which is what follows: FROM t ORDER BY id."""
        found = Compared()
        readable = []
        for each in expressions:
            try:
                self._read(f"SELECT {each} AS c {source}")
                readable.append(each)
            except TilthError as error:
                found.refused[each] = _message_of(error)
        for begin in range(0, len(readable), BATCH):
            self._compare(readable[begin : begin + BATCH], source, found)
        return found

    def compare_queries(self, queries: Sequence[str]) -> Compared:
        """Compare whole queries; each has an ORDER BY."""
        found = Compared()
        for query in queries:
            try:
                theirs = self._clickhouse.run(query).rows
            except ClickHouseError as error:
                found.refused_by_clickhouse[query] = str(error)
                continue
            try:
                ours = _rows(self._spark.sql(self._read(query)).toArrow())
            except (TilthError, PySparkException) as error:
                found.refused[query] = _message_of(error)
                continue
            if is_same(ours, [list(row) for row in theirs]):
                found.same.append(query)
            else:
                found.different.append(Difference(query, ours, theirs))
        return found

    def refusal(self, expression: str, source: str) -> str:
        """Return Tilth's error for an expression; empty: there is none."""
        try:
            self._run_tilth([expression], source)
        except (PySparkException, TilthError) as error:
            return str(error)
        return ""

    def _compare(self, expressions: Sequence[str], source: str, found: Compared) -> None:
        theirs = dict(self._split(expressions, source, self._run_clickhouse, found.refused_by_clickhouse))
        # To analyze is cheaper than to run.
        analyzed = [text for text, _ in self._split(list(theirs), source, self._analyzed, found.refused)]
        ours = dict(self._split(analyzed, source, self._run_tilth, found.refused))
        for text, values in ours.items():
            if is_same(values, theirs[text]):
                found.same.append(text)
            else:
                found.different.append(Difference(text, *_first_different(values, theirs[text])))

    def _split(
        self,
        expressions: Sequence[str],
        source: str,
        run: Callable[[Sequence[str], str], list[list[Any]]],
        refused: dict[str, str],
    ) -> Iterator[tuple[str, list[Any]]]:
        """Run all in one query; where it is refused, each half in its own."""
        if not expressions:
            return
        try:
            yield from zip(expressions, run(expressions, source), strict=True)
        except (PySparkException, ClickHouseError) as error:
            if len(expressions) == 1:
                refused[expressions[0]] = _message_of(error)
                return
            half = len(expressions) // 2
            yield from self._split(expressions[:half], source, run, refused)
            yield from self._split(expressions[half:], source, run, refused)

    def _run_clickhouse(self, expressions: Sequence[str], source: str) -> list[list[Any]]:
        rows = self._clickhouse.run(f"SELECT {_listed(expressions)} {source}").rows
        return [[row[index] for row in rows] for index in range(len(expressions))]

    def _analyzed(self, expressions: Sequence[str], source: str) -> list[list[Any]]:
        self._spark.sql(self._read(f"SELECT {_listed(expressions)} {source}"))
        return [[] for _ in expressions]

    def _run_tilth(self, expressions: Sequence[str], source: str) -> list[list[Any]]:
        rows = _rows(self._spark.sql(self._read(f"SELECT {_listed(expressions)} {source}")).toArrow())
        return [[row[index] for row in rows] for index in range(len(expressions))]


def _column(literal: str, column: tuple[str, str, str, bool]) -> str:
    name, _, kind, can_be_null = column
    value = f"CAST({literal} AS {kind})"
    # Spark knows by it that there is no NULL.
    return f"{value} AS {name}" if can_be_null else f"coalesce({value}, {_FILLED[kind]}) AS {name}"


def _message_of(error: Exception) -> str:
    return error.message if isinstance(error, TilthError) else str(error).splitlines()[0]


def is_same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(is_same(*pair) for pair in zip(ours, theirs, strict=True))
    if isinstance(ours, float) or isinstance(theirs, float):
        return _is_number(ours) and _is_number(theirs) and _is_near(float(ours), float(theirs))
    if _is_number(ours) and _is_number(theirs):
        return bool(ours == theirs)
    return type(ours) is type(theirs) and bool(ours == theirs)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal)


def _is_near(one: float, other: float) -> bool:
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=_RELATIVE)


def _first_different(ours: list[Any], theirs: list[Any]) -> tuple[object, object]:
    if len(ours) != len(theirs):
        return ours, theirs
    return next((one, other) for one, other in zip(ours, theirs, strict=True) if not is_same(one, other))


def _listed(expressions: Sequence[str]) -> str:
    return ", ".join(f"{each} AS c{index}" for index, each in enumerate(expressions))


def _rows(table: pa.Table) -> list[list[Any]]:
    columns = [[_value(each.as_py(), column.type) for each in column] for column in table.columns]
    return [[column[row] for column in columns] for row in range(table.num_rows)]


def _value(value: Any, kind: pa.DataType) -> Any:
    """A value of Arrow in the form of clickhouse.value_of."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return sorted([[_value(key, kind.key_type), _value(each, kind.item_type)] for key, each in value], key=str)
    if pa.types.is_list(kind):
        return [_value(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return [_value(each, kind.field(index).type) for index, each in enumerate(value.values())]
    if isinstance(value, datetime):
        whole = value.replace(microsecond=0).timestamp()
        return Decimal(int(whole)) + Decimal(value.microsecond).scaleb(-6)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, date | int | float | Decimal | str):
        return value
    return str(value)


def _read_as(text: str) -> str:
    try:
        return to_spark(text if text.upper().startswith(("SELECT", "WITH")) else f"SELECT {text}")
    except TilthError as error:
        return error.message


def main() -> None:
    options = argparse.ArgumentParser(description="compare random expressions and queries with ClickHouse")
    options.add_argument("--expressions", type=int, default=3000)
    options.add_argument("--selects", type=int, default=500)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    print(f"seed {given.seed}", flush=True)
    draw = random.Random(given.seed)
    settings = warehouse_settings({"warehouse.master": "local[2]", "warehouse.driver-memory": "1g"})
    with tempfile.TemporaryDirectory() as folder, ClickHouse() as clickhouse:
        session = WorkerSession(settings, folder=f"{folder}/spark", log_folder=f"{folder}/log")
        session.start()
        try:
            sides = Sides(session.session.newSession(), clickhouse)
            sides.create("h", COLUMNS, ROWS)
            expressions = [dialect_random.expression(draw) for _ in range(given.expressions)]
            queries = [dialect_random.query(draw) for _ in range(given.selects)]
            of_expressions = sides.compare(expressions, "FROM h ORDER BY id")
            _show("expressions", of_expressions)
            of_queries = sides.compare_queries(queries)
            _show("queries", of_queries)
        finally:
            session.stop()
    sys.exit(bool(of_expressions.different or of_queries.different))


def _show(what: str, found: Compared) -> None:
    """Print at once: a run takes many minutes."""
    print(f"{what}: same {len(found.same)}, different {len(found.different)}, refused {len(found.refused)}, ", end="")
    print(f"refused by ClickHouse {len(found.refused_by_clickhouse)}", flush=True)
    for each in found.different:
        print(each, flush=True)


if __name__ == "__main__":
    main()
