"""Rows and messages that are kept for the time of a round: each computed view reads them, and the topic is read once.

Covers: writing them in the tasks that read the topic, reading them back for a view, the messages that views refuse,
removing all of it. Does not cover: what views make of rows (write.py), when a round keeps anything (spark.py).
Always holds: a row knows the number of its message; what is read for a view follows from the files and the arguments.

Files of Arrow (storage/store/files/scratch.py), not Spark's cache: measured with one view over rounds of 130 MiB, the
cache made rounds 1.5 times as long as streaming, the files 1.1 times; and a task that is tried again finds them as they
were.

Tests: tests/unit/ingest/rounds/test_failing_view.py, tests/integration/ingest/test_source_tasks.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tilth.ingest.batch import MessageBatch, Numbers
from tilth.ingest.messages.decode import Broken, Decoded, micros_of
from tilth.ingest.rounds.round import RoundJob, ViewRefusal
from tilth.ingest.views.plans import SqlPlan
from tilth.ingest.views.refusals import by_message, failed_checks, without
from tilth.storage import ScratchWriter, TableLayout, read_scratch, remove_scratch, scratch_name

#: The column with the number of a row's message; a name that nobody gives to a column.
MESSAGE = "tilth:message"

_MESSAGES = pa.schema([(MESSAGE, pa.int64()), ("timestamp", pa.int64()), ("key", pa.binary()), ("raw", pa.binary())])
_REFUSALS = pa.schema([(MESSAGE, pa.int64()), ("view", pa.string()), ("reason", pa.string())])
#: The files of a task, in the order in which they are begun; the refusals of all tasks are in a file of the first.
_ROWS_N, _MESSAGES_N, _REFUSALS_N = 0, 1, 2

NO_NUMBERS: Numbers = np.zeros(0, np.int64)


class Keeper:
    """Writes what one task has read; a context manager."""

    def __init__(self, job: RoundJob, split: int, schema: pa.Schema, *, attempt: int) -> None:
        self._shifts = job.numbers.shifts(split)
        self._schema = schema.insert(0, pa.field(MESSAGE, pa.int64()))
        self._rows = ScratchWriter(_layout(job), _name(job, split, attempt, _ROWS_N), self._schema)
        self._messages = ScratchWriter(_layout(job), _name(job, split, attempt, _MESSAGES_N), _MESSAGES)
        self._keeps_messages = job.keeps_messages

    def keep(self, topic: str, partition: int, decoded: Decoded, messages: MessageBatch) -> None:
        """Write the rows, and the messages that they were made of."""
        if not decoded.rows.num_rows:
            return
        numbers = messages.offsets + self._shifts[topic, partition]
        of_rows = numbers if decoded.owners is None else numbers[decoded.owners]
        self._rows.write(pa.RecordBatch.from_arrays([pa.array(of_rows), *decoded.rows.columns], schema=self._schema))
        if self._keeps_messages:
            self._messages.write(_batch_of(numbers, messages, decoded))

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *error: Any) -> None:
        for writer in (self._rows, self._messages):
            writer.__exit__(*error)


@dataclass(frozen=True, slots=True)
class Kept:
    """Rows that a round retains; goes to the tasks that read them."""

    job: RoundJob
    #: Attempt number of the task that wrote each split.
    attempts: tuple[int, ...]

    def rows(
        self, plan: SqlPlan, split: int, *, numbers: range | None, excluded: Numbers, is_numbered: bool
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a split that a view reads: of messages with these numbers (None: of all), but not of those in
        `excluded`, nor of those that the view's checks refuse. `is_numbered`: with the numbers in front.
        """
        names = [MESSAGE, *plan.needed] if is_numbered else list(plan.needed)
        is_wanted = None if numbers is None else partial(_has_some, numbers)
        columns = (MESSAGE, *plan.decoded)
        for batch in read_scratch(_layout(self.job), self._name(split, _ROWS_N), columns, is_wanted=is_wanted):
            owners = batch.column(MESSAGE).to_numpy()
            is_read = np.ones(len(owners), np.bool_) if numbers is None else _within(owners, numbers)
            if len(excluded):
                is_read &= ~np.isin(owners, excluded)
            rows = batch if is_read.all() else batch.filter(pa.array(is_read))
            owners = owners[is_read]
            rows, _ = without(rows, owners, by_message(failed_checks(rows, plan.checks), owners))
            if rows.num_rows:
                yield rows.select(names)

    def write_refusals(self, refusals: Sequence[ViewRefusal]) -> None:
        """Write the refusals for `refused_messages`, once a round."""
        columns = [
            pa.array([each.number for each in refusals], pa.int64()),
            pa.array([each.view for each in refusals], pa.string()),
            pa.array([each.reason for each in refusals], pa.string()),
        ]
        with ScratchWriter(_layout(self.job), self._name(0, _REFUSALS_N), _REFUSALS) as writer:
            writer.write(pa.RecordBatch.from_arrays(columns, schema=_REFUSALS))

    def refused_messages(self, split: int) -> Iterator[Broken]:
        """Yield the messages of a split that views have refused, once for each refusal."""
        refusals: dict[int, list[tuple[str, str]]] = {}
        for batch in read_scratch(_layout(self.job), self._name(0, _REFUSALS_N), _REFUSALS.names):
            for number, view, reason in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                refusals.setdefault(number, []).append((view, reason))
        wanted, numbers = np.fromiter(refusals, np.int64, len(refusals)), self.job.numbers
        for batch in read_scratch(_layout(self.job), self._name(split, _MESSAGES_N), _MESSAGES.names):
            found = batch.filter(pa.array(np.isin(batch.column(MESSAGE).to_numpy(), wanted)))
            for message in found.to_pylist():
                topic, partition, offset = numbers.position(message[MESSAGE])
                for view, reason in refusals[message[MESSAGE]]:
                    yield Broken(
                        topic=topic,
                        partition=partition,
                        offset=offset,
                        timestamp=message["timestamp"],
                        key=message["key"],
                        view=view,
                        reason=reason,
                        raw=message["raw"],
                    )

    def remove(self) -> None:
        for split in range(len(self.attempts)):
            # From the last one, for names have no holes.
            for n in (_REFUSALS_N, _MESSAGES_N, _ROWS_N):
                remove_scratch(_layout(self.job), self._name(split, n))

    def _name(self, split: int, n: int) -> str:
        return _name(self.job, split, self.attempts[split], n)


def _batch_of(numbers: Numbers, messages: MessageBatch, decoded: Decoded) -> pa.RecordBatch:
    """The messages that have rows."""
    positions = list(range(len(messages))) if decoded.owners is None else np.unique(decoded.owners).tolist()
    chosen = messages.select(positions)
    columns = [
        pa.array(numbers[positions]),
        pa.array([micros_of(millis, 1000) for millis in chosen.times.tolist()], pa.int64()),
        pa.array(chosen.keys, pa.binary()),
        pa.array(chosen.values.items, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_MESSAGES)


def _has_some(numbers: range, owners: pa.Array) -> bool:
    return bool(_within(owners.to_numpy(), numbers).any())


def _within(owners: Numbers, numbers: range) -> Any:
    return (owners >= numbers.start) & (owners < numbers.stop)


def _layout(job: RoundJob) -> TableLayout:
    """Return the layout of the table in whose folder the rows lie: the target of the first computed view."""
    return job.layouts[job.computed[0].target]


def _name(job: RoundJob, split: int, attempt: int, n: int) -> str:
    return scratch_name(txn=job.txn, task=job.task_of_kept + split, attempt=attempt, n=n)
