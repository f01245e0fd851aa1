"""One table twice: in a node, and in duckdb. Whatever is done to both, they must answer alike.

Covers: the two tables, statements for both, comparing contents, filters, aggregates and the past. Does not cover: which
statements (tests/integration/sql/test_beside_duckdb.py), the filters' words (filter_trees.py).
Filters are also evaluated by Spark over the same rows in memory, where no file, no part and no index can rule any out:
that is the truth of what Spark means by a filter, and duckdb's answer is the truth of what the rows are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from tests.filter_trees import Dialect, Tree, duck_type, named, smaller, written
from tests.hostile import bits_of, key_of, plain
from tilth.model.table import Column
from tilth.model.types import Array, DataType, Kind, Map, Simple, Struct, quoted, spark_name
from tilth.node import Node
from tilth.storage.values.arrow import arrow_type

DATABASE = "default"
_SHOWN_MAX = 5
_NTZ = Simple(Kind.TIMESTAMP_NTZ)

# Any: values of a row, as tests/hostile.py has them.
Row = tuple[Any, ...]


class DisagreementError(AssertionError):
    """the two tables answer differently"""


@dataclass(frozen=True, slots=True)
class Past:
    """The table at one of its versions."""

    version: int
    columns: tuple[Column, ...]
    #: The table in duckdb that has its rows.
    duck: str


class Sides:
    """A table in the node and its twin; the first column is `id`, different in each row that was ever inserted."""

    def __init__(self, node: Node, session: SparkSession, name: str, columns: Sequence[Column]) -> None:
        self.node = node
        self.session = session
        self.name = name
        self.columns = list(columns)
        self.statements: list[str] = []
        self.past: list[Past] = []
        self._duck = duckdb.connect()
        declared = ", ".join(f"{duck_name(column.name)} {duck_type(column.type)}" for column in columns)
        self._duck.execute(f"CREATE TABLE t ({declared})")

    def close(self) -> None:
        self._duck.close()

    # --- statements ---

    def tilth(self, text: str) -> pa.Table:
        """What the node answers."""
        self.statements.append(text)
        return self.node.engine.run(text, database=DATABASE).table

    def duck(self, text: str) -> list[Row]:
        """What duckdb answers; its table is `t`."""
        return self._duck.execute(text).fetchall()

    def insert(self, rows: Sequence[Row], key: Sequence[str] = (), version: str | None = None) -> None:
        """Into both; with a key the newest row of each stays, by the version column or as they come."""
        self.statements.append(f"INSERT {len(rows)} rows as Arrow")
        self.node.engine.insert_arrow(DATABASE, self.name, _arrow(rows, self.columns))
        self._duck.register("given", _arrow(rows, [_in_duck(column) for column in self.columns]))
        self.upsert("SELECT * FROM given", key, version)
        self._duck.unregister("given")

    def upsert(self, query: str, key: Sequence[str] = (), version: str | None = None) -> None:
        """Inserts the query's rows into duckdb's table as the node does."""
        self._duck.execute(f"CREATE OR REPLACE TEMP TABLE fresh AS SELECT row_number() OVER () AS n, * FROM ({query})")
        if key:
            keys = ", ".join(map(duck_name, key))
            newest = f"{duck_name(version)} DESC, n DESC" if version else "n DESC"
            same = " AND ".join(f"fresh.{duck_name(name)} = t.{duck_name(name)}" for name in key)
            self._duck.execute(
                f"DELETE FROM fresh WHERE n NOT IN (SELECT first(n ORDER BY {newest}) FROM fresh GROUP BY {keys})"
            )
            if version:
                newer = f"t.{duck_name(version)} > fresh.{duck_name(version)}"
                self._duck.execute(f"DELETE FROM fresh WHERE EXISTS (SELECT 1 FROM t WHERE {same} AND {newer})")
            self._duck.execute(f"DELETE FROM t WHERE EXISTS (SELECT 1 FROM fresh WHERE {same})")
        self._duck.execute("INSERT INTO t SELECT * EXCLUDE n FROM fresh ORDER BY n")

    def rows(self, table: str = "t", columns: Sequence[Column] | None = None) -> list[Row]:
        """What duckdb's table holds."""
        found = self._duck.execute(f"SELECT * FROM {table}").to_arrow_table()
        return _rows(found, columns or self.columns)

    def remember(self) -> None:
        """The present version, so that it can be read again later."""
        found = self.node.engine.run(
            f"SELECT max(version) FROM system.table_versions WHERE table = '{self.name}'", database=DATABASE
        ).table
        past = Past(found.column(0)[0].as_py(), tuple(self.columns), f"past_{len(self.past)}")
        self._duck.execute(f"CREATE TABLE {past.duck} AS SELECT * FROM t")
        self.past.append(past)

    # --- comparing ---

    def check_content(self) -> None:
        """Every value of every row is the same to the bit."""
        names = ", ".join(quoted(column.name) for column in self.columns)
        found = _rows(self.tilth(f"SELECT {names} FROM {self.name}"), self.columns)
        self._check("the rows", _counted(found), _counted(self.rows()))

    def check_filters(self, trees: Sequence[Tree]) -> None:
        """Each filter finds the rows that it finds without files, and those that duckdb finds."""
        rows = self.rows()
        found = self._found(trees)
        in_memory = self._in_memory(trees, rows)
        in_duck = self._in_duck(trees, "t")
        for tree, here, there, elsewhere in zip(trees, found, in_memory, in_duck, strict=True):
            if here != there:
                self._fail_filter(tree, here, there, rows)
            if here != elsewhere:
                self._fail(f"duckdb and Spark differ: {written(tree, Dialect.SPARK)}", here, elsewhere, rows)

    def check_past(self, past: Past, trees: Sequence[Tree]) -> None:
        """The filters over the table as it was."""
        found = self._found(trees, f" VERSION AS OF {past.version}")
        for tree, here, there in zip(trees, found, self._in_duck(trees, past.duck), strict=True):
            if here != there:
                told = f"VERSION AS OF {past.version}: {written(tree, Dialect.SPARK)}"
                self._fail(told, here, there, self.rows(past.duck, past.columns))

    def check_aggregates(self, tree: Tree, column: Column) -> None:
        """Counts, smallest and largest values, and groups of a column that has an order."""
        asked = "count(*), count({0}), min({0}), max({0})"
        for select, rest in ((asked, ""), ("{0}, count(*)", " GROUP BY {0}")):
            here = self.tilth(
                f"SELECT {select.format(quoted(column.name))} FROM {self.name} WHERE {written(tree, Dialect.SPARK)}"
                + rest.format(quoted(column.name))
            )
            there = self._duck.execute(
                f"SELECT {select.format(duck_name(column.name))} FROM t WHERE {written(tree, Dialect.DUCK)}"
                + rest.format(duck_name(column.name))
            ).to_arrow_table()
            told = f"{select.format(column.name)} {written(tree, Dialect.SPARK)}"
            self._check(told, _grouped(here), _grouped(there))

    def _found(self, trees: Sequence[Tree], as_of: str = "") -> list[set[int]]:
        """By filter the ids that the node finds; a scan of its own for each, all in one statement."""
        scans = (
            f"SELECT {number} AS q, id FROM {self.name}{as_of} WHERE {written(tree, Dialect.SPARK)}"
            for number, tree in enumerate(trees)
        )
        table = self.tilth(" UNION ALL ".join(scans))
        return _ids(zip(table.column("q").to_pylist(), table.column("id").to_pylist(), strict=True), len(trees))

    def _in_memory(self, trees: Sequence[Tree], rows: Sequence[Row]) -> list[set[int]]:
        frame = self.session.createDataFrame(_arrow(rows, self.columns))
        found = frame.selectExpr("id", *(written(tree, Dialect.SPARK) for tree in trees)).toArrow()
        return _true_ids(found)

    def _in_duck(self, trees: Sequence[Tree], table: str) -> list[set[int]]:
        asked = ", ".join(written(tree, Dialect.DUCK) for tree in trees)
        return _true_ids(self._duck.execute(f"SELECT id, {asked} FROM {table}").to_arrow_table())

    # --- telling ---

    def _fail_filter(self, tree: Tree, here: set[int], there: set[int], rows: Sequence[Row]) -> None:
        """Tells the smallest part of the filter that fails by itself."""
        while True:
            for part in smaller(tree):
                (part_here,), (part_there,) = self._found([part]), self._in_memory([part], rows)
                if part_here != part_there:
                    tree, here, there = part, part_here, part_there
                    break
            else:
                break
        self._fail(f"WHERE {written(tree, Dialect.SPARK)}", here, there, rows)

    def _fail(self, told: str, here: set[int], there: set[int], rows: Sequence[Row]) -> None:
        missing = [row for row in rows if row[0] in there - here][:_SHOWN_MAX]
        extra = [row for row in rows if row[0] in here - there][:_SHOWN_MAX]
        raise DisagreementError(
            f"{told}\n  missing {len(there - here)}: {missing}\n  extra {len(here - there)}: {extra}"
        )

    def _check(self, told: str, here: Counter[Any], there: Counter[Any]) -> None:
        if here != there:
            missing, extra = list((there - here).elements()), list((here - there).elements())
            raise DisagreementError(
                f"{told}\n  missing {len(missing)}: {missing[:_SHOWN_MAX]}\n  extra {len(extra)}: {extra[:_SHOWN_MAX]}"
            )


def declared(column: Column) -> str:
    """The column as CREATE TABLE and ADD COLUMN name it."""
    default = "" if column.default is None else f" DEFAULT {column.default}"
    return f"{quoted(column.name)} {spark_name(column.type)}{default}"


def duck_name(name: str) -> str:
    """The name as duckdb writes any name."""
    return named(name, Dialect.DUCK)


def _rows(table: pa.Table, columns: Sequence[Column]) -> list[Row]:
    assert table.num_columns == len(columns), table.schema
    arrays = (pa.concat_arrays(column.chunks) if column.num_chunks else [] for column in table.columns)
    return list(zip(*(plain(array) if isinstance(array, pa.Array) else [] for array in arrays), strict=True))


def _arrow(rows: Sequence[Row], columns: Sequence[Column]) -> pa.Table:
    return pa.table(
        {
            column.name: pa.array([row[place] for row in rows], arrow_type(column.type))
            for place, column in enumerate(columns)
        }
    )


def _in_duck(column: Column) -> Column:
    """With instants as what the wall clock in UTC shows: duckdb's other type needs an extension."""
    return Column(id=column.id, name=column.name, type=_without_zone(column.type))


def _without_zone(data_type: DataType) -> DataType:
    match data_type:
        case Simple(kind=Kind.TIMESTAMP):
            return _NTZ
        case Array(element=element):
            return Array(_without_zone(element))
        case Map(key=key, value=value):
            return Map(_without_zone(key), _without_zone(value))
        case Struct(fields=fields):
            return Struct(tuple(type(field)(field.name, _without_zone(field.type)) for field in fields))
        case _:
            return data_type


def _counted(rows: Iterable[Row]) -> Counter[Row]:
    return Counter(tuple(map(bits_of, row)) for row in rows)


def _grouped(table: pa.Table) -> Counter[Row]:
    """Rows of an aggregate: which of two equal values stands for a group is the engine's affair."""
    columns = ([key_of(value) for chunk in column.chunks for value in plain(chunk)] for column in table.columns)
    return Counter(zip(*columns, strict=True))


def _ids(pairs: Iterable[tuple[int, int]], count: int) -> list[set[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for number, row in pairs:
        found[number].append(row)
    # A row that is found twice is an error too: its number is in no other answer.
    return [set(rows) | {-row for row, times in Counter(rows).items() if times > 1} for rows in found]


def _true_ids(table: pa.Table) -> list[set[int]]:
    ids = table.column(0).to_pylist()
    return [
        {row for row, is_true in zip(ids, column.to_pylist(), strict=True) if is_true} for column in table.columns[1:]
    ]
