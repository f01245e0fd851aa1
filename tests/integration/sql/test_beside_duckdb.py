"""Random tables with hostile values: whatever is done to them, the node answers as duckdb does, and as Spark in memory.

A case is a table, made from a seed, and steps, each with a seed of its own: inserts, some of which write parts for
which Parquet's filters are switched off, changes of rows and of columns, flushes and merges. After each step all rows
are compared, and what random filters find, and sometimes aggregates and the past. TILTH_HOSTILE_SEED sets the seed that
is otherwise new in each run, TILTH_HOSTILE_CASES how many cases there are beside those with fixed seeds. A failure
tells the seed, the statements, and the steps that are needed for it.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import count

import duckdb
import pytest
from msgspec.structs import replace as with_changes
from pyspark.sql import SparkSession

from tests.beside_duckdb import DATABASE, DisagreementError, Sides, declared, duck_name
from tests.filter_trees import Dialect, Operand, Tree, duck_type, literal, operands_of, random_tree, written
from tests.hostile import SEED_VARIABLE, Values, narrowed, seed_of_run, value, values_of
from tests.lane_spark import LaneSpark
from tests.long import cases
from tilth.base.errors import TilthError
from tilth.model.table import Column
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct, quoted, spark_name
from tilth.node import Node
from tilth.statements.errors import ColumnBusyError
from tilth.storage.parts import part_files

pytestmark = pytest.mark.integration

#: Cases whose seeds are fixed: what they found once they would find again.
FIXED_SEEDS = range(1, 10)
CASES = int(os.environ.get("TILTH_HOSTILE_CASES", "1"))
STEPS = 6
FILTERS = 4
#: From so many rows filters take values to compare with.
ROWS_LOOKED_AT = 200
#: A failing case is run again without some of its steps so many times, to tell which of them it needs.
REPLAYS_MAX = 10
#: Time limit until the parts of a table have its new columns.
SECONDS_MAX = 60.0
_FLAT: tuple[DataType, ...] = (
    *(Simple(kind) for kind in Kind),
    Decimal(9, 2),
    Decimal(18, 4),
    Decimal(38, 10),
    # Types that have broken more often than others.
    Simple(Kind.FLOAT64),
    Simple(Kind.FLOAT64),
    Simple(Kind.FLOAT32),
    Simple(Kind.DATE),
    Simple(Kind.TIMESTAMP),
    Simple(Kind.STRING),
)
_NESTED: tuple[DataType, ...] = (
    Struct((Field("b", Simple(Kind.FLOAT64)),)),
    Array(Simple(Kind.FLOAT64)),
    Array(Array(Simple(Kind.DATE))),
    Map(Simple(Kind.STRING), Simple(Kind.FLOAT32)),
    Map(Simple(Kind.INT32), Struct((Field("t", Simple(Kind.TIMESTAMP)),))),
    Struct((Field("x", Simple(Kind.FLOAT64)), Field("d", Simple(Kind.DATE)), Field("s", Simple(Kind.STRING)))),
    Struct((Field("in", Struct((Field("t", Simple(Kind.TIMESTAMP)), Field("m", Decimal(20, 5))))),)),
)
_NAMES = ("x", "y", "a", "a.b", "Größe", "select", "two words", "_op_", "z")
_WIDER: dict[DataType, DataType] = {
    Simple(Kind.INT8): Simple(Kind.INT32),
    Simple(Kind.INT16): Simple(Kind.FLOAT32),
    Simple(Kind.INT32): Simple(Kind.FLOAT64),
    Simple(Kind.FLOAT32): Simple(Kind.FLOAT64),
    Simple(Kind.DATE): Simple(Kind.TIMESTAMP_NTZ),
    Decimal(9, 2): Decimal(18, 4),
}
_TIMES = (Simple(Kind.DATE), Simple(Kind.TIMESTAMP), Simple(Kind.TIMESTAMP_NTZ))
#: The steps that there are, methods of Case, and how often each is drawn.
_WEIGHTS = {
    "insert": 30,
    "copy": 8,
    "delete": 10,
    "update": 10,
    "alter_delete": 5,
    "alter_update": 5,
    "flush": 7,
    "merge": 9,
    "add": 4,
    "drop": 3,
    "rename": 3,
    "widen": 4,
    "remember": 4,
}
_numbers = count(1)


@pytest.fixture(scope="module")
def catalog_settings() -> dict[str, str]:
    """Settings that say where the catalog is: nothing but the node's own folder."""
    return {}


@pytest.fixture(scope="module")
def node(
    lane_spark: LaneSpark, tmp_path_factory: pytest.TempPathFactory, catalog_settings: dict[str, str]
) -> Iterator[Node]:
    with lane_spark.node(tmp_path_factory.mktemp("beside"), catalog_settings) as made:
        # Merges and flushes are steps: else no seed would tell what happened.
        made.engine.run("SYSTEM STOP MERGES", database="default")
        made.engine.run("SYSTEM STOP FLUSH", database="default")
        made.engine.run("SYSTEM STOP DELTAS", database="default")
        yield made


@pytest.fixture(scope="module")
def session(node: Node) -> SparkSession:
    return node._session.session.newSession()


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few rows fill several: page indexes are read only where there are."""
    monkeypatch.setattr(part_files, "PAGE_BYTES_MIN", 64)
    monkeypatch.setattr(part_files, "PAGE_BYTES_MAX", 64)


@contextmanager
def _unfilterable() -> Iterator[None]:
    """Parts as they are where all values that mislead Parquet's filters came too late."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_files, "unfilterable_paths", lambda *_: set())
        patch.setattr(part_files, "replace", lambda file, **_: file)
        yield


@dataclass(frozen=True, slots=True)
class Step:
    kind: str
    seed: int


class Case:
    """A table on both sides, and what can be done to it."""

    def __init__(self, node: Node, session: SparkSession, seed: int) -> None:
        rng = random.Random(seed)
        names = rng.sample(_NAMES, rng.randint(2, 5))
        columns = [Column(id=1, name="id", type=Simple(Kind.INT64))]
        for place, name in enumerate(names, start=2):
            kinds = _FLAT if place < 4 or rng.random() < 0.5 else _NESTED
            columns.append(Column(id=place, name=name, type=rng.choice(kinds)))
        self.flat = [column for column in columns[1:] if isinstance(column.type, Simple | Decimal)]
        keys = rng.choice((1, 1, 2)) if rng.random() < 0.25 else 0
        self.key = [column.name for column in rng.sample(self.flat, keys)]
        self.version = "id" if self.key and rng.random() < 0.4 else None
        self.sides = Sides(node, session, f"t{next(_numbers)}", columns)
        self.fixed = {"id", *self.key}
        self._is_pending = False
        self._next_id = count(1)
        # Each is twice the one before, so that no sum of some of them is the sum of others.
        self._next_offset = (1_000_000 << place for place in count())
        self._create(rng)

    def _create(self, rng: random.Random) -> None:
        sort = [column.name for column in rng.sample(self.flat, min(len(self.flat), rng.choice((0, 1, 1, 2))))]
        partition = self._partition(rng)
        self.fixed |= {*sort, *([partition[0]] if partition else [])}
        settings = {"parquet_row_group_rows": rng.choice(("7", "50", "100000"))}
        if not self.key and rng.random() < 0.3:
            settings["memory_buffer"] = "1"
        engine = "MergeTree" if self.version is None else f"MergeTree({quoted(self.version)})"
        clauses = [
            f"CREATE TABLE {self.sides.name} ({', '.join(map(declared, self.sides.columns))}) ENGINE = {engine}",
            f"PARTITION BY {partition[1]}" if partition else "",
            f"ORDER BY ({', '.join(map(quoted, sort))})" if sort else "",
            f"UNIQUE KEY ({', '.join(map(quoted, self.key))})" if self.key else "",
            "SETTINGS " + ", ".join(f"{name} = {text}" for name, text in settings.items()),
        ]
        self.sides.tilth(" ".join(filter(None, clauses)))

    def _partition(self, rng: random.Random) -> tuple[str, str] | None:
        """A column and how it is partitioned by; none of most tables. With a unique key one of the key's columns."""
        fit = [column for column in self.flat if not self.key or column.name in self.key]
        if not fit or rng.random() < 0.6:
            return None
        column = rng.choice(fit)
        name = quoted(column.name)
        if column.type in (Simple(Kind.FLOAT32), Simple(Kind.FLOAT64)):
            return None
        if column.type == Simple(Kind.BOOLEAN):
            return column.name, name
        if column.type in _TIMES and rng.random() < 0.3:
            return column.name, f"toYYYYMM({name})"
        return column.name, f"bucket({rng.choice((2, 3))}, {name})"

    def perform(self, step: Step) -> None:
        """One step, and a look at everything."""
        rng = random.Random(step.seed)
        getattr(self, step.kind)(rng)
        self.sides.check_content()
        trees = [self._tree(rng) for _ in range(FILTERS)]
        self.sides.check_filters(trees)
        if rng.random() < 0.5:
            flat = [column for column in self.sides.columns if isinstance(column.type, Simple | Decimal)]
            self.sides.check_aggregates(trees[0], rng.choice(flat))
        if self.sides.past and rng.random() < 0.5:
            past = rng.choice(self.sides.past)
            operands = operands_of(past.columns, self.sides.rows(past.duck, past.columns)[:ROWS_LOOKED_AT])
            self.sides.check_past(past, [random_tree(rng, operands) for _ in range(2)])

    # --- rows ---

    def insert(self, rng: random.Random) -> None:
        rows = rng.choice((1, 3, 10, 30, 300)) if rng.random() < 0.95 else 3000
        # Some inserts have no NULL, most only few values of each type.
        null_share = rng.choice((0.0, 0.1, 0.5))
        values = narrowed(rng) if rng.random() < 0.7 else values_of
        made = [
            tuple(self._value(rng, column, null_share, values) for column in self.sides.columns) for _ in range(rows)
        ]
        rng.shuffle(made)
        with _unfilterable() if rng.random() < 0.3 else nullcontext():
            self.sides.insert(made, self.key, self.version)

    def copy(self, rng: random.Random) -> None:
        """Some of the rows once more, written by Spark's tasks."""
        tree = self._tree(rng)
        first = next(self._next_offset)
        names = [column.name for column in self.sides.columns[1:]]
        self.sides.tilth(
            f"INSERT INTO {self.sides.name} SELECT id + {first}, {', '.join(map(quoted, names))} "
            f"FROM {self.sides.name} WHERE {written(tree, Dialect.SPARK)}"
        )
        self.sides.upsert(
            f"SELECT id + {first} AS id, {', '.join(map(duck_name, names))} FROM t WHERE {written(tree, Dialect.DUCK)}",
            self.key,
            self.version,
        )

    def delete(self, rng: random.Random) -> None:
        tree = self._tree(rng)
        self.sides.tilth(f"DELETE FROM {self.sides.name} WHERE {written(tree, Dialect.SPARK)}")
        self.sides.duck(f"DELETE FROM t WHERE {written(tree, Dialect.DUCK)}")

    def alter_delete(self, rng: random.Random) -> None:
        tree = self._tree(rng)
        filtered = f"WHERE {written(tree, Dialect.SPARK)}"
        self._rewrite(f"DELETE {filtered}", f"DELETE FROM {self.sides.name} {filtered}")
        self.sides.duck(f"DELETE FROM t WHERE {written(tree, Dialect.DUCK)}")

    def update(self, rng: random.Random) -> None:
        self._settle()
        for spark, duck in self._assigned(rng):
            self.sides.tilth(f"UPDATE {self.sides.name} SET {spark}")
            self.sides.duck(f"UPDATE t SET {duck}")

    def alter_update(self, rng: random.Random) -> None:
        for spark, duck in self._assigned(rng):
            self._rewrite(f"UPDATE {spark}", f"UPDATE {self.sides.name} SET {spark}")
            self.sides.duck(f"UPDATE t SET {duck}")

    # --- files ---

    def flush(self, rng: random.Random) -> None:
        self.sides.tilth(f"SYSTEM FLUSH {self.sides.name}")

    def merge(self, rng: random.Random) -> None:
        self.sides.tilth(f"OPTIMIZE TABLE {self.sides.name} FINAL")

    def remember(self, rng: random.Random) -> None:
        self.sides.remember()

    # --- columns ---

    def add(self, rng: random.Random) -> None:
        taken = {column.name.lower() for column in self.sides.columns}
        free = [name for name in (*_NAMES, "new1", "new2", "new3") if name.lower() not in taken]
        if not free:
            return
        column = Column(id=0, name=rng.choice(free), type=rng.choice((*_FLAT, *_NESTED)))
        default = ""
        if isinstance(column.type, Simple | Decimal) and rng.random() < 0.6:
            of = rng.choice(values_of(column.type))
            default = f" DEFAULT {literal(of, column.type, Dialect.DUCK)}"
            column = with_changes(column, default=literal(of, column.type, Dialect.SPARK))
        self._alter_columns(rng, f"ADD COLUMN {declared(column)}")
        self.sides.duck(f"ALTER TABLE t ADD COLUMN {duck_name(column.name)} {duck_type(column.type)}{default}")
        self.sides.columns.append(column)

    def drop(self, rng: random.Random) -> None:
        for column in self._free(rng):
            self._alter_columns(rng, f"DROP COLUMN {quoted(column.name)}")
            self.sides.duck(f"ALTER TABLE t DROP COLUMN {duck_name(column.name)}")
            self.sides.columns.remove(column)

    def rename(self, rng: random.Random) -> None:
        taken = {column.name.lower() for column in self.sides.columns}
        free = [name for name in _NAMES if name.lower() not in taken]
        for column in self._free(rng) if free else []:
            new = rng.choice(free)
            self._alter_columns(rng, f"RENAME COLUMN {quoted(column.name)} TO {quoted(new)}")
            self.sides.duck(f"ALTER TABLE t RENAME COLUMN {duck_name(column.name)} TO {duck_name(new)}")
            self._replace(column, with_changes(column, name=new))

    def widen(self, rng: random.Random) -> None:
        for column in self._free(rng):
            wider = _WIDER.get(column.type)
            if wider is None:
                continue
            self._alter_columns(rng, f"MODIFY COLUMN {quoted(column.name)} {spark_name(wider)}")
            self.sides.duck(f"ALTER TABLE t ALTER COLUMN {duck_name(column.name)} TYPE {duck_type(wider)}")
            self._replace(column, with_changes(column, type=wider))

    # --- what the steps draw ---

    def _value(self, rng: random.Random, column: Column, null_share: float, values: Values) -> object:
        if column.name == "id":
            return next(self._next_id)
        return value(rng, column.type, 0.0 if column.name in self.key else null_share, values)

    def _tree(self, rng: random.Random) -> Tree:
        return random_tree(rng, operands_of(self.sides.columns, self.sides.rows()[:ROWS_LOOKED_AT]))

    def _free(self, rng: random.Random) -> list[Column]:
        """A column that may be changed, if there is one."""
        free = [column for column in self.sides.columns if column.name not in self.fixed]
        return rng.sample(free, min(1, len(free))) if len(self.sides.columns) > 2 else []

    def _assigned(self, rng: random.Random) -> Iterator[tuple[str, str]]:
        """`column = value WHERE filter` in both dialects."""
        free = [
            column
            for column in self.sides.columns
            if column.name not in self.fixed and isinstance(column.type, Simple | Decimal)
        ]
        if not free:
            return
        column = rng.choice(free)
        tree = self._tree(rng)
        alike = [other for other in self.sides.columns if other.type == column.type and other != column]
        given: Callable[[Dialect], str]
        is_float = column.type in (Simple(Kind.FLOAT32), Simple(Kind.FLOAT64))
        if alike and not is_float and rng.random() < 0.3:
            given = Operand((rng.choice(alike).name,), column.type).text
        else:
            # duckdb leaves 0.0 where -0.0 is to take its place: the two are equal.
            chosen = rng.choice([value for value in (*values_of(column.type), None) if not (is_float and value == 0)])
            given = lambda dialect: literal(chosen, column.type, dialect)  # noqa: E731
        yield (
            f"{quoted(column.name)} = {given(Dialect.SPARK)} WHERE {written(tree, Dialect.SPARK)}",
            f"{duck_name(column.name)} = {given(Dialect.DUCK)} WHERE {written(tree, Dialect.DUCK)}",
        )

    def _alter(self, text: str) -> None:
        self.sides.tilth(f"ALTER TABLE {self.sides.name} {text} SETTINGS mutations_sync = 1")

    def _alter_columns(self, rng: random.Random, text: str) -> None:
        """At once, or so that parts keep their old columns for some steps."""
        if rng.random() < 0.5:
            self.sides.tilth(f"SYSTEM STOP MUTATIONS {self.sides.name}")
            self._is_pending = True
            with suppress(ColumnBusyError):
                self.sides.tilth(f"ALTER TABLE {self.sides.name} {text}")
                return
        self._settle()
        self._alter(text)

    def _settle(self) -> None:
        """Waits until all parts have the present columns."""
        if not self._is_pending:
            return
        self.sides.tilth(f"SYSTEM START MUTATIONS {self.sides.name}")
        pending = f"SELECT count(*) FROM system.mutations WHERE table = '{self.sides.name}' AND NOT is_done"
        deadline = time.monotonic() + SECONDS_MAX
        while self.sides.tilth(pending).column(0)[0].as_py():
            assert time.monotonic() < deadline, pending
            time.sleep(0.05)
        self._is_pending = False

    def _rewrite(self, altered: str, otherwise: str) -> None:
        """By a mutation; tables with a unique key take none."""
        self._settle()
        if self.key:
            self.sides.tilth(otherwise)
        else:
            self._alter(altered)

    def _replace(self, old: Column, new: Column) -> None:
        self.sides.columns[self.sides.columns.index(old)] = new


@dataclass(frozen=True, slots=True)
class Failure:
    #: Up to the one that failed.
    steps: tuple[Step, ...]
    error: Exception
    statements: tuple[str, ...]


def _drawn(seed: int) -> list[Step]:
    rng = random.Random(f"steps of {seed}")
    kinds = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=STEPS)
    return [Step(kind, rng.randrange(1 << 40)) for kind in ("insert", *kinds)]


def _failure_of(node: Node, session: SparkSession, seed: int, steps: Sequence[Step]) -> Failure | None:
    case = Case(node, session, seed)
    try:
        for place, step in enumerate(steps):
            try:
                case.perform(step)
            except (DisagreementError, TilthError, duckdb.Error) as error:
                return Failure(tuple(steps[: place + 1]), error, tuple(case.sides.statements))
        return None
    finally:
        case.sides.close()
        node.engine.run(f"DROP TABLE {case.sides.name}", database=DATABASE)


def _shrunk(node: Node, session: SparkSession, seed: int, failure: Failure) -> Failure:
    """The failure without steps that it does not need; the last ones are left out first."""
    place = len(failure.steps) - 2
    for _ in range(REPLAYS_MAX):
        if place < 0:
            break
        steps = (*failure.steps[:place], *failure.steps[place + 1 :])
        other = _failure_of(node, session, seed, steps)
        if other is not None and type(other.error) is type(failure.error):
            failure = other
        place = min(place, len(failure.steps) - 1) - 1
    return failure


def check_case(node: Node, session: SparkSession, seed: int) -> None:
    failure = _failure_of(node, session, seed, _drawn(seed))
    if failure is None:
        return
    failure = _shrunk(node, session, seed, failure)
    steps = ", ".join(step.kind for step in failure.steps)
    text = "\n  ".join(failure.statements)
    raise AssertionError(
        f"seed {seed}, steps {steps}\n  {text}\n{type(failure.error).__name__}: {failure.error}"
    ) from failure.error


@pytest.mark.parametrize("seed", cases(FIXED_SEEDS, first=2))
def test_fixed_cases(node: Node, session: SparkSession, seed: int) -> None:
    check_case(node, session, seed)


def test_fresh_cases(node: Node, session: SparkSession) -> None:
    first = seed_of_run()
    print(f"{SEED_VARIABLE}={first} TILTH_HOSTILE_CASES={CASES}")
    for seed in range(first, first + CASES):
        check_case(node, session, seed)
