"""`tilth.sql`: a statement of a user's own Spark in which tables of Tilth are read by the native scan.

Covers: which names mean tables of Tilth, one time for all of them, parts that the statement does not need, the
statement with views instead. Does not cover: the scan (storage/read/spark.py). Always holds: names are found by Spark's
own parser; what is not a table of Tilth reaches Spark as it was written; no view stays in the session; a statement that
fails holds no snapshot; a part is left out only if no later run of the frame can need it.

A name means a table of Tilth if it is `tilth.database.table`, or if the session knows no table or view of that name
and the server does. A name of two parts that both know is refused: nobody should read an old table by mistake. A name
of one part that the session knows is the session's.

Tests: tests/integration/datasource/test_spark_sql.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tilth.base.errors import ErrorKind, InvalidInputError, TilthError
from tilth.datasource.attach import attachment_of
from tilth.datasource.attachment import Attachment, HeldLease
from tilth.datasource.batch import release
from tilth.model.lease import ReaderLease
from tilth.model.snapshot import Snapshot
from tilth.model.table import full_name
from tilth.model.types import quoted
from tilth.query.snapshots.protocol import AsOf, AsOfTime, AsOfVersion, Resolved
from tilth.query.snapshots.prune import keeper

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tilth.query.snapshots.predicates import Needs
    from tilth.query.worker.relations import Relations

#: First part of a name that always means a table of Tilth.
CATALOG = "tilth"

Pinned = tuple[Snapshot, ReaderLease, str]


class SnapshotCalls(Protocol):
    """A connection that pins snapshots."""

    def pin(self, database: str, table: str, as_of_ms: int | None = None, *, version: int | None = None) -> Pinned: ...

    def pin_together(self, tables: Sequence[tuple[str, str]]) -> list[Pinned | None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTable:
    """A name in a statement that may mean a table of Tilth."""

    database: str
    table: str
    #: `True` if the session has a table or view of that name, too.
    is_known: bool = False
    as_of: AsOf | None = None


def run_sql(spark: SparkSession, text: str, *, database: str, hold_seconds: float) -> DataFrame:
    """`tilth.sql`. Raises NotAttachedError, ServerError, InvalidInputError (AMBIGUOUS_TABLE), Spark's own errors."""
    from tilth.query.worker.prepared_spark import points_in_time
    from tilth.query.worker.relations import find_relations
    from tilth.warehouse import parse_plan

    attachment = attachment_of(spark)
    found = find_relations(parse_plan(spark, text), text)
    points = points_in_time(spark, [relation.past for relation in found.relations])
    named = [
        chosen_table(relation.name, as_of, database=database, is_known=lambda parts: _is_known(spark, parts))
        for relation, as_of in zip(found.relations, points, strict=True)
    ]
    wanted = list(dict.fromkeys(each for each in named if each is not None))
    pinned = dict(zip(wanted, _pinned(attachment, wanted, hold_seconds), strict=True))
    tables = [None if each is None else pinned[each] for each in named]
    try:
        return _with_views(spark, found, tables)
    except BaseException:
        # Nobody has a frame that reads them.
        for each in pinned.values():
            if each is not None:
                with suppress(TilthError):
                    release(attachment, each[1].id)
        raise


def _with_views(spark: SparkSession, found: Relations, tables: Sequence[Pinned | None]) -> DataFrame:
    """Run the statement with views of the snapshots; `tables`: by relation, None where it is the session's own."""
    from tilth.query.snapshots.predicates import nothing_known
    from tilth.query.worker.needs_spark import PREDICATE_WORDS, create_views, view_names
    from tilth.query.worker.relations import edits_of, names_of, rewrite
    from tilth.storage import parse_root
    from tilth.storage.read.spark import is_changed, read_snapshot

    relations = [relation for relation, each in zip(found.relations, tables, strict=True) if each is not None]
    snapshots = [(snapshot, root) for snapshot, _, root in filter(None, tables)]
    if not relations:
        return spark.sql(found.text)
    ours = replace(found, relations=relations)
    resolved = [
        Resolved(database=each.table.database, table=each.table.name, schema=each.table.schema) for each, _ in snapshots
    ]
    views = view_names(len(relations))
    text = rewrite(found.text, edits_of(ours, names_of(ours, resolved), resolved, views)).text
    with ExitStack() as stack:
        for view in views:
            stack.callback(spark.catalog.dropTempView, view)
        needs = nothing_known(len(views))
        if PREDICATE_WORDS.search(text) or any(is_changed(read) for read, _ in snapshots):
            create_views(spark, views, [each.schema for each in resolved])
            needs = _needs(spark, text, len(views))
        for view, (read, root), predicate, columns in zip(
            views, snapshots, needs.predicates, needs.columns, strict=True
        ):
            keep = keeper(predicate, read.table)
            needed = msgspec.structs.replace(read, parts=tuple(part for part in read.parts if keep(part)))
            read_snapshot(spark, needed, parse_root(root), columns).createOrReplaceTempView(view)
        return spark.sql(text)


def _needs(spark: SparkSession, text: str, count: int) -> Needs:
    """Return what a statement needs of the empty views that it reads. Nothing is known of one that depends on the time
    of its run, for its frame may run later again. Raises Spark's AnalysisException.
    """
    from tilth.query.snapshots.predicates import nothing_known
    from tilth.query.worker.needs_spark import call_optimizer, needs_of
    from tilth.query.worker.relations import TIME_WORDS

    nothing = nothing_known(count)
    # Any: handles of py4j have no types.
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession

    def find() -> Needs:
        state = session.sessionState()
        # A command that the statement may be is not run by this.
        skip = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        execution = state.executePlan(state.sqlParser().parsePlan(text), skip)
        analyzed = execution.analyzed()
        now = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
        if analyzed.containsPattern(now) or TIME_WORDS.search(analyzed.toString()):
            return nothing
        return needs_of(spark, execution, count)

    return call_optimizer(find, nothing)


def chosen_table(
    name: Sequence[str], as_of: AsOf | None, *, database: str, is_known: Callable[[Sequence[str]], bool]
) -> NamedTable | None:
    """Return the table of Tilth that a name may mean; None: it is the session's own."""
    match tuple(name):
        case (catalog, first, second) if catalog.lower() == CATALOG:
            return NamedTable(database=first, table=second, as_of=as_of)
        case (first, second):
            return NamedTable(database=first, table=second, is_known=is_known(name), as_of=as_of)
        case (only,) if not is_known(name):
            return NamedTable(database=database, table=only, as_of=as_of)
    return None


def _is_known(spark: SparkSession, parts: Sequence[str]) -> bool:
    return bool(spark.catalog.tableExists(".".join(quoted(part) for part in parts)))


def _pinned(attachment: Attachment, wanted: Sequence[NamedTable], hold_seconds: float) -> list[Pinned | None]:
    """Pin the tables that are there and let the driver hold them. Raises InvalidInputError (AMBIGUOUS_TABLE)."""
    if not wanted:
        return []
    with attachment.connection() as connection:
        found = pinned_tables(connection, wanted)
        leases = [
            HeldLease(id=each[1].id, url=attachment.address(), seconds=hold_seconds, table=full_name(each[0].table))
            for each in found
            if each is not None
        ]
        for table, each in zip(wanted, found, strict=True):
            if each is not None and table.is_known:
                for lease in leases:
                    connection.unpin(lease.id)
                raise InvalidInputError.coded(
                    "AMBIGUOUS_TABLE",
                    "both the Spark session and Tilth have a table of this name",
                    table=f"{table.database}.{table.table}",
                    hint=f"write {CATALOG}.{table.database}.{table.table} for that of Tilth, and spark_catalog."
                    f"{table.database}.{table.table} for that of the session",
                )
        for lease in leases:
            attachment.hold(lease)
    return found


def pinned_tables(connection: SnapshotCalls, wanted: Sequence[NamedTable]) -> list[Pinned | None]:
    """Pin the tables: those of now together, as of one time."""
    of_now = [table for table in wanted if table.as_of is None]
    together = iter(connection.pin_together([(table.database, table.table) for table in of_now]) if of_now else [])
    return [next(together) if table.as_of is None else _past(connection, table) for table in wanted]


def _past(connection: SnapshotCalls, table: NamedTable) -> Pinned | None:
    version = table.as_of.version if isinstance(table.as_of, AsOfVersion) else None
    as_of_ms = table.as_of.micros // 1000 if isinstance(table.as_of, AsOfTime) else None
    try:
        return connection.pin(table.database, table.table, as_of_ms, version=version)
    except TilthError as error:
        if error.kind is ErrorKind.NOT_FOUND:
            return None
        raise
