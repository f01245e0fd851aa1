"""Finds what a query needs of its tables by Spark's optimizer, before any of their files is opened.

Covers: names of views, empty views that the optimizer cannot fold away, and reading its answer. Does not cover: using
it (snapshots/prune.py).
Always holds: these are internals of Spark; when they do not answer as expected, nothing is ruled out and the log says
why.

Tests: tests/integration/storage/test_query_needs.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tilth.base.ids import random_id
from tilth.base.java_class import compiled_once
from tilth.base.logs import Log
from tilth.model.table import Schema
from tilth.model.types import quoted, spark_name
from tilth.query.snapshots.predicates import AnyOf, Needs, Predicate, Undecided, leaf_name
from tilth.warehouse import make_active, read_needs

#: Words of which a statement has at least one if it rules out rows of a table.
PREDICATE_WORDS = re.compile(r"\b(where|on|having|join|filter|using|qualify)\b", re.IGNORECASE)
#: Random digits in the names of a statement's views.
_DIGITS = 12
#: Ends each text of a view on its way to EmptyViews.java.
_END = "\0"

_log = Log("sql")

T = TypeVar("T")

# Handles of Java objects of Spark's internals; py4j gives them no types.
Java = Any


def view_names(count: int) -> list[str]:
    """Return random names of views, which no statement can contain: a CTE of the same name would hide the view."""
    drawn = random_id()[:_DIGITS]
    return [f"__tilth_{drawn}_{index}" for index in range(count)]


def create_views(
    session: Java,
    names: Sequence[str],
    schemas: Sequence[Schema],
    shown: Sequence[Sequence[str] | None] | None = None,
) -> None:
    """Create an empty temporary view for each table reference; its leaf's columns are called `n:column`.

    `shown`: Spark SQL for each column of the view over the stored ones; None: the view has the stored ones.

    All columns are nullable, as the optimizer takes those of the real rows to be: otherwise it would leave out columns
    here that it needs there.
    """
    texts = []
    projections = shown or [None] * len(names)
    for occurrence, (name, schema, projection) in enumerate(zip(names, schemas, projections, strict=True)):
        ddl = ", ".join(f"{quoted(leaf_name(occurrence, c.name))} {spark_name(c.type)}" for c in schema.columns)
        if _END in ddl:
            raise ValueError("a column's name has a NUL")
        texts.append(f"{_stored(name, projection)}{_END}{ddl}{_END}")
    assert __package__ is not None
    compiled_once(session, __package__, "EmptyViews").apply(session._jsparkSession, "".join(texts))
    for name, projection in zip(names, projections, strict=True):
        if projection is not None:
            rows = session._jsparkSession.table(_stored(name, projection)).selectExpr(_array(session, projection))
            rows.createOrReplaceTempView(name)


def _stored(name: str, projection: Sequence[str] | None) -> str:
    """Return the name of the view of the stored columns."""
    return name if projection is None else f"{name}_stored"


def _array(session: Java, texts: Sequence[str]) -> Java:
    made = session._sc._gateway.new_array(session._jvm.java.lang.String, len(texts))
    for index, text in enumerate(texts):
        made[index] = text
    return made


class _Scan(msgspec.Struct):
    """One occurrence of a table in a query, as NeedsReader.java writes it."""

    table: int
    columns: frozenset[str] | None
    where: Predicate


_decoder = msgspec.json.Decoder(list[_Scan])


def call_optimizer(find: Callable[[], T], otherwise: T, *, cause_id: str = "-") -> T:
    """Call Spark's optimizer; return `otherwise` if its internals do not answer as expected."""
    try:
        return find()
    except PySparkException:
        raise
    except (Py4JError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        _log.warning("query_not_pruned", cause_id=cause_id, reason=f"{type(error).__name__}: {error}")
        return otherwise


def find_needs(session: Java, text: str, occurrences: int) -> Needs:
    """Return what the query needs of each table. The views must be there.

    Raises Spark's AnalysisException.
    """
    return needs_of(session, session._jsparkSession.sql(text).queryExecution(), occurrences)


def needs_of(session: Java, execution: Java, occurrences: int) -> Needs:
    """Return what a query needs of each table; `execution`: Spark's QueryExecution of it, over the views."""
    make_active(session)
    scans = _decoder.decode(read_needs(session, execution.optimizedPlan()))
    by_table: list[list[_Scan]] = [[] for _ in range(occurrences)]
    for scan in scans:
        by_table[scan.table].append(scan)
    return Needs(
        predicates=[AnyOf(tuple(scan.where for scan in found)) if found else Undecided() for found in by_table],
        columns=[_all_of([scan.columns for scan in found]) for found in by_table],
    )


def _all_of(readings: list[frozenset[str] | None]) -> frozenset[str] | None:
    """Union of the needs of all readings of a table."""
    if not readings or None in readings:
        return None
    return frozenset().union(*(reading for reading in readings if reading is not None))
