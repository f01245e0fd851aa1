"""A query's text with snapshots instead of its relations, prepared anew or by what is cached of it.

Covers: relations, needs, snapshots and views of one query, on its way to a DataFrame. Does not cover: running it
(spark.py), what is cached and for how long (query_cache.py).
Always holds: what the optimizer does not say for certain rules out nothing; names and snapshots are the server's answer
to this query, whatever is cached.

Tests: tests/integration/sql/test_sql_on_spark.py, tests/integration/sql/test_query_cache.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tilth.base import tracing
from tilth.base.mailbox import Mailbox
from tilth.query.errors import BadQueryError
from tilth.query.language.explained import explains
from tilth.query.language.spark_errors import from_spark
from tilth.query.snapshots import protocol
from tilth.query.snapshots.predicates import Needs, nothing_known
from tilth.query.worker.headings import headings
from tilth.query.worker.hidden import shown_columns, star_edits
from tilth.query.worker.needs_spark import PREDICATE_WORDS, call_optimizer, create_views, find_needs, view_names
from tilth.query.worker.plan_cache_spark import is_timeless, open_plan, retain_plan
from tilth.query.worker.query_cache import PlanBasis, Preparation, QueryCache, QueryKey, may_cache_plan
from tilth.query.worker.relations import (
    TIME_WORDS,
    Edit,
    Past,
    Relations,
    edits_of,
    frozen_times,
    has_fine_times,
    names_of,
    rewrite,
)
from tilth.query.worker.target_spark import parsed_query
from tilth.storage import note_unanswered
from tilth.storage.read.spark import file_error, is_changed, read_snapshot
from tilth.warehouse import make_active

_VERSION = re.compile(r"[0-9]{1,18}")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Answer:
    """The optimizer's answer about a query over empty views."""

    #: None: the optimizer was not needed.
    needs: Needs | None
    #: Edits that fix the time for which the needs hold.
    times: list[Edit]
    #: Names of the query's columns, which must not show those edits; None: as Spark gives them.
    names: list[str] | None = None
    #: `True` if the answer is the same at any time.
    is_constant: bool = False


class PreparedQuery:
    """A query's text with snapshots instead of its relations."""

    def __init__(
        self,
        session: SparkSession,
        mailbox: Mailbox,
        calls: protocol.QueryCalls,
        task: protocol.QueryTask | protocol.InsertTask,
        *,
        cache: QueryCache,
        tasks: int | None = None,
    ) -> None:
        """`tasks`: number of tasks that share a scan; None: the query's plan is not cached."""
        self._session = session
        self._mailbox = mailbox
        self._calls = calls
        self._query_id = task.query_id
        self._text = task.text
        self._spark_settings = task.spark
        self._cache = cache
        self._key = QueryKey(task.text, tuple(sorted(task.spark.items())))
        self._tasks = tasks
        #: Its rows are stored, so no value may differ from its text.
        self._is_insert = isinstance(task, protocol.InsertTask)
        #: Text sent to Spark, for the positions in its messages.
        self._sent = rewrite(task.text, [])
        #: The instant of the whole query, where it was fixed before Spark ran it.
        self.now_us: int | None = None
        self.input_bytes = 0
        #: Bytes of its rows when its cached plan ran last; None: not known.
        self.answer_bytes: int | None = None
        #: Handle of its plan, if that is cached.
        self._handle: Any | None = None

    def guarded(self, act: Callable[[], T]) -> T:
        """Run it; raises Spark's errors as TilthErrors that point into the user's text."""
        try:
            return act()
        except (PySparkException, Py4JError, RecursionError) as error:
            damage = file_error(error, self._mailbox)
            if damage is not None:
                note_unanswered(damage)
                raise damage from error
            raise from_spark(error, self._text, self._sent.original, self._sent.text) from error

    def note_answer(self, answer_bytes: int) -> None:
        """Note how many bytes its rows had, for the next query by the same plan."""
        if self._handle is not None:
            self._cache.note_answer(self._key, self._handle, answer_bytes)

    def frame(self) -> DataFrame:
        """Analyze the query; nothing else has run yet."""
        with tracing.part("analyze"):
            return self._frame()

    def _frame(self) -> DataFrame:
        session = self._session
        for name, value in self._spark_settings.items():
            session.conf.set(name, value)
        # Parsing would do this, and a cached text is not parsed.
        make_active(session)
        found = self._cache.relations(self._key)
        if found is None:
            found = parsed_query(session, self._text)
            self._cache.add_relations(self._key, found)
        if self._is_insert and has_fine_times(found):
            raise BadQueryError("a time has microseconds at most", hint="remove the digits after the sixth")
        if not found.relations:
            return self._named(found, session.sql(self._text))
        as_of = points_in_time(session, [relation.past for relation in found.relations])
        with tracing.part("snapshot"):
            resolved = self._calls.resolve(self._query_id, [relation.name for relation in found.relations], as_of)
        prepared, times, names = self._preparation(found, resolved)
        nothing = nothing_known(len(resolved))
        with tracing.part("snapshot"):
            sources = self._calls.pin(self._query_id, (prepared.needs or nothing).predicates)
        sent = self._sent = rewrite(self._text, prepared.edits + times)
        basis = self._basis(sources)
        cached = None if basis is None else self._cached_frame(resolved, basis)
        self._cache.note_plan(is_reused=cached is not None)
        if cached is not None:
            return cached
        self._put_views(prepared, sources)
        # Views may need the optimizer, which gets another text.
        self._sent = sent
        frame = self._named(found, session.sql(sent.text), names)
        handle = None if basis is None else retain_plan(frame)
        if basis is not None and handle is not None:
            self._cache.add_plan(self._key, resolved, basis, handle)
            self._handle = handle
        return frame

    def _preparation(
        self, found: Relations, resolved: list[protocol.Resolved]
    ) -> tuple[Preparation, list[Edit], list[str] | None]:
        """Return the preparation, the edits that fix the time, and the columns' names if there are such edits."""
        cached = self._cache.preparation(self._key, resolved)
        if cached is not None:
            return cached, [], None
        views, known = view_names(len(resolved)), names_of(found, resolved)
        shown = [shown_columns(one.schema, self._text) for one in resolved]
        edits = edits_of(found, known, resolved, views) + star_edits(found, shown, known)
        prepared = Preparation(resolved=resolved, views=views, shown=shown, edits=edits, needs=None)
        otherwise = _Answer(nothing_known(len(resolved)), [])
        answer = call_optimizer(lambda: self._answer(found, prepared), otherwise, cause_id=self._query_id)
        prepared = replace(prepared, needs=answer.needs)
        if answer.is_constant:
            self._cache.add_preparation(self._key, prepared)
        return prepared, answer.times, answer.names

    def _basis(self, sources: list[protocol.Source]) -> PlanBasis | None:
        """Return the basis of a plan over the sources; None: the plan is not cached."""
        if self._tasks is None or explains(self._text) or not is_timeless(self._text) or not may_cache_plan(sources):
            return None
        return PlanBasis(sources=sources, tasks=self._tasks, context=self._session.sparkContext)

    def _cached_frame(self, resolved: list[protocol.Resolved], basis: PlanBasis) -> DataFrame | None:
        cached = self._cache.plan(self._key, resolved, basis)
        if cached is None:
            return None
        frame = open_plan(self._session, cached.handle)
        if frame is None:
            self._cache.remove_plan(self._key)
            return None
        self.input_bytes, self.answer_bytes, self._handle = basis.bytes, cached.answer_bytes, cached.handle
        return frame

    def _put_views(self, prepared: Preparation, sources: list[protocol.Source]) -> None:
        """Give the session a view of each source."""
        needs, nothing = prepared.needs, nothing_known(len(sources))
        if needs is None and any(source.snapshot is not None and is_changed(source.snapshot) for source in sources):
            needs = call_optimizer(lambda: self._find_needs(prepared), nothing, cause_id=self._query_id)
        columns = (needs or nothing).columns
        for view, source, needed, shown in zip(prepared.views, sources, columns, prepared.shown, strict=True):
            rows = self._rows_of(source, needed)
            rows = rows if shown.projection is None else rows.selectExpr(*shown.projection)
            rows.createOrReplaceTempView(view)

    def _named(self, found: Relations, frame: DataFrame, names: Sequence[str] | None = None) -> DataFrame:
        """Return the frame with the headings of its answer; `names`: those that Spark would give to the user's text."""
        wanted = headings(found.nodes[0], self._text, lambda: frame.columns if names is None else names) or names
        return frame if wanted is None else frame.toDF(*wanted)

    def _answer(self, found: Relations, prepared: Preparation) -> _Answer:
        if not PREDICATE_WORDS.search(self._text):
            return _Answer(None, [], is_constant=True)
        times = self._frozen_times(found, prepared.resolved)
        names = None
        if times:
            self._create_views(prepared)
            self._sent = rewrite(self._text, prepared.edits)
            names = self._session.sql(self._sent.text).columns
        needs = self._find_needs(prepared, times or [])
        if times is None:
            return _Answer(replace(needs, predicates=nothing_known(len(prepared.resolved)).predicates), [])
        return _Answer(needs, times, names, is_constant=not times and is_timeless(self._text))

    def _create_views(self, prepared: Preparation) -> None:
        schemas = [one.schema for one in prepared.resolved]
        create_views(self._session, prepared.views, schemas, [shown.projection for shown in prepared.shown])

    def _find_needs(self, prepared: Preparation, times: Sequence[Edit] = ()) -> Needs:
        self._create_views(prepared)
        self._sent = rewrite(self._text, [*prepared.edits, *times])
        return find_needs(self._session, self._sent.text, len(prepared.resolved))

    def _frozen_times(self, found: Relations, resolved: list[protocol.Resolved]) -> list[Edit] | None:
        """Return None if the query depends on the time in a way that cannot be fixed: it must not choose parts."""
        if not TIME_WORDS.search(found.present):
            return []
        if any(TIME_WORDS.fullmatch(column.name) for one in resolved for column in one.schema.all_columns):
            return None
        jvm: Any = self._session._jvm
        now = jvm.java.time.Instant.now()
        self.now_us = now.getEpochSecond() * 1_000_000 + now.getNano() // 1000
        return frozen_times(found, self.now_us)

    def _rows_of(self, source: protocol.Source, columns: frozenset[str] | None) -> DataFrame:
        if source.snapshot is not None:
            assert source.root is not None
            self.input_bytes += source.snapshot.bytes
            return read_snapshot(self._session, source.snapshot, source.root, columns, mailbox=self._mailbox)
        table = source.table
        self.input_bytes += table.nbytes
        if not table.num_rows:
            return self._session.createDataFrame([], from_arrow_schema(table.schema))
        return self._session.createDataFrame(table)


def points_in_time(session: SparkSession, pasts: Sequence[Past | None]) -> list[protocol.AsOf | None]:
    """Past states of AS OF clauses; now() is one instant for all of them. Raises BadQueryError."""
    times = list(dict.fromkeys(past.time for past in pasts if past is not None and past.time is not None))
    micros = dict(zip(times, _micros(session, times), strict=True)) if times else {}
    points: list[protocol.AsOf | None] = []
    for past in pasts:
        if past is None:
            points.append(None)
        elif past.time is not None:
            points.append(protocol.AsOfTime(micros=micros[past.time]))
        else:
            points.append(protocol.AsOfVersion(version=_version(past.version or "")))
    return points


def _version(text: str) -> int:
    if not _VERSION.fullmatch(text):
        hint = "system.table_versions lists them; for a time write TIMESTAMP AS OF '2026-01-31 12:00:00'"
        raise BadQueryError("a version is a whole number", version=text, hint=hint)
    return int(text)


def _micros(session: SparkSession, times: Sequence[str]) -> list[int]:
    """Values of constant expressions, in microseconds since 1970."""
    shown = ", ".join(times)
    columns = ", ".join(f"unix_micros(CAST(({time}\n) AS TIMESTAMP))" for time in times)
    try:
        (row,) = session.sql(f"SELECT {columns}").collect()
    except PySparkException as error:
        hint = "write a constant, as in TIMESTAMP AS OF '2026-01-31 12:00:00' or now() - INTERVAL 1 HOUR"
        condition = error.getCondition() or type(error).__name__
        raise BadQueryError("AS OF needs a time", time=shown, reason=condition, hint=hint) from error
    # `in` of a Row checks the names of its fields.
    values = list(row)
    if None in values:
        raise BadQueryError("AS OF needs a time", time=shown, hint="its value is NULL")
    return values
