"""Plans by which rounds run a materialized view: picking columns, kernels, or Spark SQL. Values only; they travel to
Spark tasks.

Covers: plans of each kind. Does not cover: choosing one (views.py), running it (rounds/source.py, rounds/spark.py).
Always holds: a plan fills every column of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tilth.ingest.views.kernels import ViewKernel
from tilth.ingest.views.refusals import RowCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """A column of the target that is a column of the Kafka table, or a constant."""

    target: str
    #: None: the constant for all rows.
    source: str | None
    #: Value of the type, as msgspec and Arrow represent it; None is null.
    constant: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedPlan:
    """The view picks and renames: done in the Arrow pass that decodes."""

    #: `database.view`.
    view: str
    #: The target's uuid.
    target: str
    columns: tuple[Picked, ...]
    #: The names of the view's columns with the ids of the target's columns that they fill.
    outputs: tuple[tuple[str, int], ...] = ()
    #: The column of the Kafka table with the operations of rows; None: all become the row of their key.
    op: str | None = None
    #: Checks that a message must pass so that its rows can be stored.
    checks: tuple[RowCheck, ...] = ()

    @property
    def decoded(self) -> tuple[str, ...]:
        """The columns of the Kafka table that it reads or checks."""
        sources = (*(each.source for each in self.columns), self.op, *_checked_columns(self.checks))
        return tuple(dict.fromkeys(source for source in sources if source is not None))

    def __reduce__(self) -> tuple[Callable[..., FusedPlan], tuple[object, ...]]:
        # Each round sends it to its tasks: plain tuples pickle ten times as fast as hundreds of objects.
        columns = [(each.target, each.source, each.constant) for each in self.columns]
        return _fused_plan, (self.view, self.target, columns, self.outputs, self.op, self.checks)


# Any: fields of a plan and of its columns.
def _fused_plan(view: str, target: str, columns: Iterable[tuple[Any, ...]], *more: Any) -> FusedPlan:
    outputs, op, checks = more
    picked = tuple(Picked(target=to, source=source, constant=constant) for to, source, constant in columns)
    return FusedPlan(view=view, target=target, columns=picked, outputs=outputs, op=op, checks=checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlPlan:
    """The view computes: run by Spark SQL over the decoded rows, or by kernels in the pass that decodes."""

    view: str
    target: str
    #: Spark SQL over a temporary view of the Kafka table's name.
    text: str
    #: Spark SQL for the columns of the target, over the columns o0, o1, ... of the text; behind them perhaps `_op`.
    projection: tuple[str, ...]
    #: Spark SQL for each column of the target over those of the projection, where some are computed from others; empty:
    #: the projection has them all.
    computed: tuple[str, ...] = ()
    #: The columns of the Kafka table that it reads.
    needed: tuple[str, ...]
    #: `True` if each row is read once, as a stream, so that rows need not be retained for it.
    is_streamable: bool = False
    #: Outputs and checks, as in FusedPlan.
    outputs: tuple[tuple[str, int], ...] = ()
    checks: tuple[RowCheck, ...] = ()
    #: Program of Arrow kernels that computes the same; None: there is none, for the reason in `no_kernel`.
    kernel: ViewKernel | None = None
    no_kernel: str = ""

    @property
    def decoded(self) -> tuple[str, ...]:
        """Columns to decode, as in FusedPlan."""
        return tuple(dict.fromkeys((*self.needed, *_checked_columns(self.checks))))


ViewPlan = FusedPlan | SqlPlan


def _checked_columns(checks: Iterable[RowCheck]) -> list[str]:
    return [name for check in checks for name in check.columns]
