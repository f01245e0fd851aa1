"""The lines of EXPLAIN MERGE."""

from __future__ import annotations

from collections.abc import Sequence

from tilth.maintenance.policy import MergeSpec, Refusal
from tilth.maintenance.state import Failure
from tilth.maintenance.stats import MergeCandidateRow
from tilth.model.part import Part


def range_row(spec: MergeSpec, state: str, next_ms: int) -> MergeCandidateRow:
    return MergeCandidateRow(
        partition=spec.partition,
        parts=len(spec.parts),
        rows=spec.rows,
        bytes=spec.size,
        score=spec.score,
        state=state,
        reason=spec.reason,
        next_attempt_ms=next_ms,
    )


def refusal_row(refusal: Refusal, parts: Sequence[Part], failure: Failure | None) -> MergeCandidateRow:
    return MergeCandidateRow(
        partition=refusal.partition,
        parts=len(parts),
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
        score=0.0,
        state="refused" if failure is None else "failed",
        reason=refusal.reason if failure is None else failure.reason,
        next_attempt_ms=0 if failure is None else failure.until_ms,
    )


def taken_row(partition: str, parts: Sequence[Part]) -> MergeCandidateRow:
    return MergeCandidateRow(
        partition=partition,
        parts=len(parts),
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
        score=0.0,
        state="running",
        reason="taken by a merge that runs or waits",
        next_attempt_ms=0,
    )
