"""The Spark jobs of a round.

    only views that pick columns, or  1 job    messages -> parts, dead letters; none where it is small (inline.py)
    that kernels compute
    one that Spark SQL computes       1 job    messages -> parts, dead letters, rows -> SQL -> parts
    several, or one that has failed   1 job    messages -> parts, dead letters, kept rows
                                      1 each   kept rows -> SQL -> parts; more where it has failed (failing_view.py)
                                      1 job    kept messages -> dead letters, where such a view refuses some

Covers: these jobs, the facts on their way back. Does not cover: choosing ranges (consumer/task.py), what tasks do
(source.py, write.py), commits (service/manager.py).
Always holds: the topic is read and decoded once, whatever the views are; a job that writes and fails spoils the round,
so that nothing is committed while a task of its transaction may still be writing. See also:
docs/policies/consumers.md#rounds.

Tests: tests/integration/ingest/test_ingest_rounds.py, tests/integration/ingest/test_round_matrix.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tilth.base.clock import SystemClock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.ingest.batch import Numbers
from tilth.ingest.errors import ViewFailedError
from tilth.ingest.rounds.failing_view import run_failing_view
from tilth.ingest.rounds.inline import Waiting, disk_errors, run_small
from tilth.ingest.rounds.keep import MESSAGE, NO_NUMBERS, Kept
from tilth.ingest.rounds.round import Culprit, RoundFacts, RoundJob, ViewRefusal, total_of, with_refused
from tilth.ingest.rounds.source import SourceTask, write_refused
from tilth.ingest.rounds.spark_errors import why_not_computed
from tilth.ingest.rounds.timed import Timed
from tilth.ingest.rounds.write import (
    CULPRITS_MAX,
    RoundPartWriter,
    Written,
    check_computed,
    write_computed,
    write_guarded,
)
from tilth.ingest.views.plans import SqlPlan
from tilth.ingest.views.probe import Probes, probes_of
from tilth.ingest.views.views import spark_ddl
from tilth.model.types import quoted
from tilth.warehouse import Send, mapped_beside, run_in_tasks, run_tasks

#: The node by which Spark's plans read what our tasks give.
_LEAF = "MapInArrow"

#: Messages whose reason is computed for one step of a view; others get the reason of one of these.
REASONS_MAX = 200

T = TypeVar("T")
#: Function that a task applies to the rows of a view.
_Sink = Callable[[RoundPartWriter, Iterable[pa.RecordBatch]], Written]

_log = Log("ingest")
# pyspark would log every error of a view with the stacks of both languages; what is wrong is kept with the message.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


def run_round(
    session: SparkSession,
    job: RoundJob,
    *,
    check_cancelled: Callable[[], None] = lambda: None,
    view_begins: Callable[[str], None] = lambda view: None,
    waiting: Waiting = lambda _: nullcontext(),
) -> RoundFacts:
    """Run all views over the job's ranges; return what was read and written. `view_begins` is called with the name of
    each view that Spark computes, before it runs. `waiting` surrounds work besides Spark, with words for it.

    Raises the TilthError of a task as it was; ViewFailedError where the round has to be done in another way, ViewError
    where a view cannot be computed at all. Files of a round that failed are left for the transaction's cleaner.
    """
    computed = job.computed
    small = run_small(job, waiting)
    job = replace(job, fetch_inline=None)
    if small is not None:
        facts = total_of([small])
    elif not computed:
        facts = total_of(_run_source(session, job))
    elif len(computed) == 1 and computed[0].is_streamable and computed[0].view not in job.failing:
        view_begins(computed[0].view)
        facts = _run_streaming(session, job, computed[0])
    else:
        facts = _run_keeping(session, job, check_cancelled, view_begins)
    return msgspec.structs.replace(
        facts,
        ranges=job.joined(facts.ranges),
        write_seconds=facts.write_seconds + sum(facts.view_seconds.get(plan.view, 0.0) for plan in computed),
    )


def _run_source(session: SparkSession, job: RoundJob) -> list[RoundFacts]:
    """Run the tasks that read; return their results by split. They retain rows if a view is computed."""

    def read(split: int, attempt: int) -> RoundFacts:
        task = SourceTask(job, split, attempt=attempt)
        return task.keep() if job.computed else task.run()

    return _by_split(session, job, read)


def _run_streaming(session: SparkSession, job: RoundJob, plan: SqlPlan) -> RoundFacts:
    """The rows go straight from the tasks that read to the view; the facts of these tasks come beside them."""

    def source(batches: Iterator[pa.RecordBatch], send: Send, /) -> Iterator[pa.RecordBatch]:
        spark_task = TaskContext.get()
        assert spark_task is not None
        for split in _numbers_in(batches):
            task = SourceTask(job, split, attempt=spark_task.attemptNumber())
            rows = Timed(SystemClock(), task.stream(plan))
            answer: RoundFacts | TilthError
            try:
                with disk_errors():
                    yield from rows
                answer = msgspec.structs.replace(task.facts(), reading_seconds=rows.seconds)
            except TilthError as error:
                answer = error
            send(split, answer)

    ddl = spark_ddl(job.schema, plan.needed)
    with mapped_beside(_splits(session, job), source, ddl, RoundFacts) as (rows, answers):
        sink = partial(write_computed, plan=plan, layout=job.layouts[plan.target])
        clock, started = SystemClock(), SystemClock().monotonic()
        try:
            written = _run_view(_view_of(session, job, plan, rows), job, plan, sink, first_task=job.task_of_view(0))
        except (TilthError, PySparkException, Py4JError):
            # If messages could not be read, the result of the view over the others has no meaning.
            answers.all()
            raise
        sources = answers.all()
    # Reading and SQL go on at the same time, so the SQL's share is what the job took longer than reading alone.
    reading = max((each.reading_seconds for each in sources), default=0.0)
    seconds = max(0.0, clock.monotonic() - started - reading)
    facts = total_of(sources)
    return msgspec.structs.replace(
        facts,
        parts=(*facts.parts, *written.parts),
        view_seconds=facts.view_seconds | {plan.view: round(seconds, 3)},
    )


def _run_keeping(
    session: SparkSession, job: RoundJob, check_cancelled: Callable[[], None], view_begins: Callable[[str], None]
) -> RoundFacts:
    """The rows are kept until all views have read them."""
    sources = _run_source(session, job)
    kept = Kept(job, tuple(facts.attempt for facts in sources))
    facts = total_of(sources)
    refusals: list[ViewRefusal] = []
    failures: dict[str, str] = {}
    clock, view_seconds = SystemClock(), dict[str, float]()
    for index, plan in enumerate(job.computed):
        view = _KeptView(session, kept, index, check_cancelled)
        is_failing = plan.view in job.failing
        view_begins(plan.view)
        if failures:
            # Nothing of this round will be committed; it only matters which other views fail.
            why = None if is_failing else view.check()
            failures |= {} if why is None else {plan.view: why}
            continue
        started = clock.monotonic()
        try:
            written = run_failing_view(clock, view, job, plan) if is_failing else view.write(excluded=NO_NUMBERS)
        except ViewFailedError as error:
            failures |= error.facts
            continue
        view_seconds[plan.view] = round(clock.monotonic() - started, 3)
        refusals += (ViewRefusal(number=each.number, view=plan.view, reason=each.reason) for each in written.culprits)
        facts = msgspec.structs.replace(facts, parts=(*facts.parts, *written.parts))
    if failures:
        raise ViewFailedError.of(failures)
    if refusals:
        facts = with_refused(facts, job, refusals)
        if job.dead_letters is not None:
            check_cancelled()
            kept.write_refusals(refusals)
            answers = _by_split(session, job, lambda split, attempt: write_refused(kept, split, attempt=attempt))
            facts = msgspec.structs.replace(facts, parts=(*facts.parts, *total_of(answers).parts))
    kept.remove()
    return msgspec.structs.replace(facts, view_seconds=facts.view_seconds | view_seconds)


class _KeptView:
    """One view over the rows that the round has kept: the trials of failing_view.py."""

    def __init__(self, session: SparkSession, kept: Kept, index: int, check_cancelled: Callable[[], None]) -> None:
        self._session = session
        self._kept = kept
        self._job = kept.job
        self._plan = kept.job.computed[index]
        self._layout = kept.job.layouts[self._plan.target]
        self._first_task = kept.job.task_of_view(index)
        self._check_cancelled = check_cancelled
        self._probes = Probes()

    def find_failing(self) -> list[Culprit]:
        self._probes = self._probe(NO_NUMBERS)
        found: dict[int, int] = {}
        for plan in self._probes.before:
            for number, step in self._run_probe(plan):
                found.setdefault(number, step)
        return [Culprit(number=number, step=step) for number, step in sorted(found.items())]

    def find_reasons(self, found: Sequence[Culprit]) -> dict[int, str]:
        wanted = {each.number for each in found}
        plans = [self._probes.steps[each.step].plan for each in found]
        reasons: dict[int, str] = {}
        for plan in {id(plan): plan for plan in plans}.values():
            self._check_cancelled()
            reasons |= self._evaluate(plan)
        return {number: why for number, why in reasons.items() if number in wanted}

    def check(self, *, numbers: range | None = None, excluded: Numbers = NO_NUMBERS) -> str | None:
        sink = partial(check_computed, plan=self._plan, layout=self._layout)
        try:
            self._run(self._view(numbers, excluded), lambda _, batches: sink(batches))
        except ViewFailedError as error:
            return error.facts[self._plan.view]
        return None

    def write_guarded(self, *, excluded: Numbers) -> Written | None:
        # The probes of `find_failing` exclude no message.
        guarded = (self._probe(excluded) if len(excluded) else self._probes).guarded
        if guarded is None:
            return None
        return self._run(
            DataFrame(self._dataset(guarded), self._session),
            partial(write_guarded, plan=self._plan, layout=self._layout),
        )

    def write(self, *, excluded: Numbers) -> Written:
        return self._run(self._view(None, excluded), partial(write_computed, plan=self._plan, layout=self._layout))

    def _run(self, view: DataFrame, sink: _Sink) -> Written:
        self._check_cancelled()
        return _run_view(view, self._job, self._plan, sink, first_task=self._first_task)

    def _view(self, numbers: range | None, excluded: Numbers) -> DataFrame:
        return _view_of(self._session, self._job, self._plan, self._rows(numbers, excluded, is_numbered=False))

    def _rows(self, numbers: range | None, excluded: Numbers, *, is_numbered: bool) -> DataFrame:
        kept, plan = self._kept, self._plan

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for split in _numbers_in(batches):
                yield from kept.rows(plan, split, numbers=numbers, excluded=excluded, is_numbered=is_numbered)

        ddl = spark_ddl(self._job.schema, plan.needed)
        return _splits(self._session, self._job).mapInArrow(
            read, f"{quoted(MESSAGE)} bigint, {ddl}" if is_numbered else ddl
        )

    def _probe(self, excluded: Numbers) -> Probes:
        rows = self._rows(None, excluded, is_numbered=True)
        named = rows.select(*map(quoted, self._plan.needed))
        view = _view_of(self._session, self._job, self._plan, named)
        try:
            return probes_of(self._session, view._jdf.queryExecution().optimizedPlan(), leaf=_LEAF)
        except (PySparkException, Py4JError, TypeError) as error:
            # A Spark whose inside is another one; what it calls a class that is not there raises TypeError.
            _log.warning("view_not_probed", view=self._plan.view, reason=error)
            return Probes()

    def _run_probe(self, plan: Any) -> list[tuple[int, int]]:
        """Numbers of messages and steps that a plan gives."""
        self._check_cancelled()
        try:
            found = DataFrame(self._dataset(plan), self._session).limit(CULPRITS_MAX + 1).toArrow()
        except (PySparkException, Py4JError) as error:
            if why_not_computed(error) is None:
                raise
            # Something fails that is not marked: other trials will find it.
            return []
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def _evaluate(self, plan: Any) -> dict[int, str]:
        """Return by message why a plan's rows fail: what throws in Spark's tasks throws here too, row by row."""
        expressions = self._session._jvm.org.apache.spark.sql.catalyst.expressions  # type: ignore[union-attr]  # there is one
        columns = getattr(expressions, "package$AttributeSeq")(plan.output())
        reasons: dict[int, str] = {}
        for row in self._dataset(plan).limit(REASONS_MAX).queryExecution().executedPlan().executeCollect():
            number, failing = row.getLong(0), self._probes.steps[row.getInt(1)]
            bound = expressions.BindReferences.bindReference(failing.expression, columns, False)
            try:
                bound.eval(row)
            except (PySparkException, Py4JError) as error:
                reasons.setdefault(number, why_not_computed(error) or "it cannot be computed")
        return reasons

    # Any: plans and data sets are handles of the JVM.
    def _dataset(self, plan: Any) -> Any:
        datasets = self._session._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr]  # there is one
        return datasets.ofRows(self._session._jsparkSession, plan)


# --- jobs ------------------------------------------------------------------------------------------------------------


def _splits(session: SparkSession, job: RoundJob) -> DataFrame:
    """The numbers of the splits, each read by a task."""
    tasks = len(job.splits)
    return session.range(0, tasks, 1, tasks)


def _by_split(session: SparkSession, job: RoundJob, run: Callable[[int, int], RoundFacts]) -> list[RoundFacts]:
    """Call `run` for each split in a task of its own; return the results in the order of the splits."""

    def call(*, task: int, attempt: int) -> RoundFacts:
        with disk_errors():
            return run(task, attempt)

    return run_in_tasks(session, call, RoundFacts, tasks=len(job.splits))


def _view_of(session: SparkSession, job: RoundJob, plan: SqlPlan, rows: DataFrame) -> DataFrame:
    """Return the view's result over these rows, in the form of its target."""
    rows.createOrReplaceTempView(quoted(job.name))
    computed = session.sql(plan.text)
    made = computed.toDF(*[f"o{i}" for i in range(len(computed.columns))]).selectExpr(*plan.projection)
    return made.selectExpr(*plan.computed) if plan.computed else made


def _run_view(view: DataFrame, job: RoundJob, plan: SqlPlan, sink: _Sink, *, first_task: int) -> Written:
    """Raises ViewFailedError where the view cannot be computed, or its rows do not fit."""
    txn = job.txn

    def call(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> Written:
        with disk_errors():
            return sink(RoundPartWriter(txn=txn, task=first_task + task, attempt=attempt), rows)

    try:
        # There are no more writers than reserved task numbers, whatever the view shuffles.
        answers = run_tasks(view.coalesce(len(job.splits)), call, Written)
    except (PySparkException, Py4JError) as error:
        why = why_not_computed(error)
        if why is None:
            raise
        raise ViewFailedError.of({plan.view: why}) from error
    return Written(
        parts=tuple(part for answer in answers for part in answer.parts),
        culprits=tuple(culprit for answer in answers for culprit in answer.culprits),
    )


# --- inside tasks ----------------------------------------------------------------------------------------------------


def _numbers_in(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    """Yield the splits that this task reads: the numbers in its rows.

    The task's own number is not used: Spark may put several splits into one task.
    """
    for batch in batches:
        yield from batch.column(0).to_pylist()
