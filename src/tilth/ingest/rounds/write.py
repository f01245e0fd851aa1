"""Writing of a view's rows by a task: as parts, or only as a trial whether they could be written.

Covers: names of parts within a task, rows that a view has computed. Does not cover: reading the topic (source.py), the
Spark jobs (spark.py). Always holds: rows are held up to a bound; what a task writes follows from its rows alone.

Tests: tests/integration/ingest/test_ingest_rounds.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.base.errors import TilthError
from tilth.base.units import MIB
from tilth.ingest.errors import ViewFailedError
from tilth.ingest.messages.arrays import MISFITS
from tilth.ingest.rounds.round import Culprit, WrittenTo
from tilth.ingest.views.ops import bad_ops, ops_of
from tilth.ingest.views.plans import SqlPlan, ViewPlan
from tilth.ingest.views.refusals import Refused, by_message, check_rows, misfits, without
from tilth.model.table import OP_COLUMN
from tilth.storage import BadColumnError, BadPartitionError, TableLayout, UniqueKeyNullError, stretches, write_rows

#: A task sorts and writes what it has when it holds this much; more: larger parts, more memory.
HELD_BYTES_MAX = 128 * MIB
#: Messages that one view may refuse in a round; beyond, the round is done with fewer messages.
CULPRITS_MAX = 100_000

#: Errors that mean that rows do not fit, and not that writing them failed.
_REFUSALS = (BadColumnError, BadPartitionError, UniqueKeyNullError, *MISFITS)


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Parts and culprits of a view's tasks."""

    parts: tuple[WrittenTo, ...] = ()
    culprits: tuple[Culprit, ...] = ()


class RoundPartWriter:
    """Writes parts under one task's names; numbers run on within a table."""

    def __init__(self, *, txn: int, task: int, attempt: int) -> None:
        self._txn = txn
        self._task = task
        self._attempt = attempt
        self._next: dict[str, int] = {}
        self.written: list[WrittenTo] = []

    def write(self, table: str, layout: TableLayout, rows: pa.Table) -> None:
        """Raises what `write_rows` does."""
        if rows.num_rows == 0:
            return
        first = self._next.get(table, 0)
        parts = write_rows(layout, rows, txn=self._txn, task=self._task, attempt=self._attempt, first_n=first)
        self._next[table] = first + len(parts)
        self.written.extend(WrittenTo(table=table, part=part) for part in parts)

    def write_view(self, plan: ViewPlan, layout: TableLayout, rows: pa.Table) -> None:
        """Raises ViewFailedError where rows do not fit the target."""
        try:
            self.write(plan.target, layout, rows)
        except _REFUSALS as error:
            raise failed(plan, error) from error


def failed(plan: ViewPlan, error: Exception) -> ViewFailedError:
    """Return the error for rows that do not fit the view's target."""
    return ViewFailedError.of({plan.view: error.message if isinstance(error, TilthError) else str(error)})


def too_many(plan: ViewPlan, culprits: Sequence[Culprit]) -> ViewFailedError:
    """Return the error for a round with more refused messages than it can remember."""
    return ViewFailedError.of({plan.view: f"it refuses {len(culprits)} messages at once"})


def write_computed(
    writer: RoundPartWriter, batches: Iterable[pa.RecordBatch], *, plan: SqlPlan, layout: TableLayout
) -> Written:
    """Sort and write what the view computed; raises ViewFailedError."""
    for rows in stretches(batches, bytes_max=HELD_BYTES_MAX):
        try:
            ready = _with_op(rows, layout)
        except _REFUSALS as error:
            raise failed(plan, error) from error
        writer.write_view(plan, layout, ready)
    return Written(parts=tuple(writer.written))


def check_computed(batches: Iterable[pa.RecordBatch], *, plan: SqlPlan, layout: TableLayout) -> Written:
    """Check whether the rows could be written; raises ViewFailedError."""
    for rows in stretches(batches, bytes_max=HELD_BYTES_MAX):
        try:
            check_rows(layout, _with_op(rows, layout))
        except _REFUSALS as error:
            raise failed(plan, error) from error
    return Written()


def write_guarded(
    writer: RoundPartWriter, batches: Iterable[pa.RecordBatch], *, plan: SqlPlan, layout: TableLayout
) -> Written:
    """Write the rows of all messages but those with a row that could not be computed or does not fit the target.

    The first column has the number of the row's message; the second is NULL, or where computing the row has failed (see
    `Culprit.step`). The rows of a message follow each other. Raises ViewFailedError where such messages are too many.
    """
    culprits: list[Culprit] = []
    for rows in _whole_messages(stretches(batches, bytes_max=HELD_BYTES_MAX)):
        owners, values = rows.column(0).to_numpy(), rows.select(range(2, rows.num_columns))
        steps: dict[int, int] = {}
        for row, step in _failing(rows.column(1)):
            steps.setdefault(int(owners[row]), step)
        culprits += (Culprit(number=number, step=step) for number, step in steps.items())
        values, owners = without(values, owners, steps)
        try:
            refused = by_message(_refused_ops(values, layout), owners)
            values, owners = without(values, owners, refused)
            values = _with_op(values, layout)
            unfit = by_message(misfits(layout, values), owners)
        except _REFUSALS as error:
            raise failed(plan, error) from error
        culprits += (Culprit(number=number, reason=why) for number, why in (refused | unfit).items())
        if len(culprits) > CULPRITS_MAX:
            raise too_many(plan, culprits)
        writer.write_view(plan, layout, without(values, owners, unfit)[0])
    return Written(parts=tuple(writer.written), culprits=tuple(culprits))


def _whole_messages(stretches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows, cut between messages only."""
    left: pa.Table | None = None
    for stretch in stretches:
        rows = stretch if left is None else pa.concat_tables([left, stretch])
        owners = rows.column(0).to_numpy()
        others = np.flatnonzero(owners != owners[-1])
        start_of_last = int(others[-1]) + 1 if len(others) else 0
        if start_of_last:
            yield rows.slice(0, start_of_last)
        left = rows.slice(start_of_last)
    if left is not None:
        yield left


def _failing(steps: pa.ChunkedArray) -> Iterator[tuple[int, int]]:
    """Rows that could not be computed, and where."""
    rows = np.flatnonzero(pc.is_valid(steps).to_numpy())
    return zip(rows.tolist(), steps.take(pa.array(rows)).to_pylist(), strict=True)


def _refused_ops(rows: pa.Table, layout: TableLayout) -> Refused:
    """Return the rows whose last column has no known operation."""
    if not _has_op(rows, layout):
        return {}
    words = rows.column(rows.num_columns - 1).combine_chunks()
    found = np.flatnonzero(bad_ops(words).to_numpy(zero_copy_only=False)).tolist()
    return {row: f"column `{OP_COLUMN}`: {words[row].as_py()} does not say what a row does" for row in found}


def _with_op(rows: pa.Table, layout: TableLayout) -> pa.Table:
    """Return the rows that Spark computed, with the operations named as such if the last column has them."""
    if not _has_op(rows, layout):
        return rows
    last = rows.num_columns - 1
    return rows.set_column(last, OP_COLUMN, ops_of(rows.column(last)))


def _has_op(rows: pa.Table, layout: TableLayout) -> bool:
    return bool(rows.num_columns > len(layout.schema.columns))
