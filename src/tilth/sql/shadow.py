"""Asks Spark's optimizer what a query needs of its tables, before any of their files is opened.

Covers: empty views that the optimizer cannot fold away, and reading its answer. Does not cover: using it (prune.py).
Always holds: these are internals of Spark; when they do not answer as expected, nothing is ruled out and the log says
why.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilth.base.logs import Log
from tilth.model.table import Schema
from tilth.model.types import quoted, spark_name
from tilth.sql.predicates import Predicate, Unknown, columns_of, leaf_name, predicates_of
from tilth.warehouse import make_active

#: The optimizer leaves IN lists as lists up to this length while it is asked.
IN_LIST_MAX = 100_000
_IN_LIST = "spark.sql.optimizer.inSetConversionThreshold"
_ZONE = "spark.sql.session.timeZone"
_UTC = ("UTC", "Z", "GMT", "Etc/UTC", "+00:00")

_log = Log("sql")

# Handles of Java objects of Spark's internals; py4j gives them no types.
Java = Any


def create_views(session: Java, names: Sequence[str], schemas: Sequence[Schema]) -> None:
    """An empty temporary view for each table reference; its leaf's columns are called `n:column`.

    They may all be NULL, as those of the real rows may for the optimizer: else it would do without columns that it then
    needs of those.
    """
    context = session._sc
    jvm, gateway = session._jvm, context._gateway
    row_class = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
    empty = context._jsc.sc().emptyRDD(jvm.scala.reflect.ClassTag.apply(row_class))
    for occurrence, (name, schema) in enumerate(zip(names, schemas, strict=True)):
        ddl = ", ".join(f"{quoted(leaf_name(occurrence, c.name))} {spark_name(c.type)}" for c in schema.columns)
        leaf = session._jsparkSession.internalCreateDataFrame(
            empty, jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl), False
        )
        columns = gateway.new_array(jvm.java.lang.String, len(schema.columns))
        for index, column in enumerate(schema.columns):
            columns[index] = column.name
        leaf.toDF(columns).createOrReplaceTempView(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a query needs of each of its tables."""

    predicates: list[Predicate]
    #: By name; None: perhaps all.
    columns: list[frozenset[str] | None]


def nothing_known(occurrences: int) -> Needs:
    """Every row and every column may be needed."""
    return Needs(predicates=[Unknown()] * occurrences, columns=[None] * occurrences)


def ask_needs(session: Java, text: str, occurrences: int) -> Needs:
    """What the query needs of each table. The views must be there.

    Raises Spark's AnalysisException.
    """
    keep = session.conf.get(_IN_LIST)
    session.conf.set(_IN_LIST, str(IN_LIST_MAX))
    try:
        execution = session._jsparkSession.sql(text).queryExecution()
        make_active(session)
        plan = json.loads(execution.optimizedPlan().toJSON())
        columns = columns_of(plan, occurrences)
        if session.conf.get(_ZONE) not in _UTC:
            # The plan's JSON writes timestamps in the session's zone, where an hour may come twice.
            return Needs(predicates=[Unknown()] * occurrences, columns=columns)
        return Needs(predicates=predicates_of(plan, occurrences), columns=columns)
    finally:
        session.conf.set(_IN_LIST, keep)
