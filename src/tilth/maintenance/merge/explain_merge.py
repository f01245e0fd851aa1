"""The lines of EXPLAIN MERGE.

Covers: candidates with their back-off and next attempt, the history under another policy. Does not cover: verdicts
(policy). Always holds: a bounded number of lines, the last one saying so where there would be more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from tilth.base.errors import InvalidInputError
from tilth.base.units import show_bytes
from tilth.maintenance.damage.book import CURE
from tilth.maintenance.merge.policy.candidates import CandidateState, MergeCandidate
from tilth.maintenance.merge.policy.replay import HistorySums, Replay, ReplayedMerge
from tilth.maintenance.state import Failure
from tilth.maintenance.table.settings import MergePolicy
from tilth.model.part import Part

#: Maximum number of candidates that are listed.
ROWS_MAX = 10_000
_ALLOWED = frozenset({CandidateState.WOULD_RUN, CandidateState.LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCandidateRow:
    """One line of EXPLAIN MERGE."""

    partition: str
    #: Parts of the range, or of the partition if it has no range.
    parts: int
    rows: int
    bytes: int
    #: Lower is better; 0 where there is no score. Of key_range it is the gain with its sign turned.
    score: float
    #: `running`, `waiting`, `would run`, `lost`, `refused`, `lone`, `failed`, `damaged`, `stopped`; of a history
    #: `replayed`, `summary`.
    state: str
    reason: str
    #: Milliseconds since 1970; 0: at the next refresh, or when SYSTEM START starts merges again. Of a history: when it
    #: would have been merged.
    next_attempt_ms: int
    #: `True` if the policy allows it, though others may go first.
    is_allowed: bool = False
    #: Reason why its partition is polled later than others; empty if it is not.
    back_off: str = ""
    #: Names of the first and the last of the parts.
    first_part: str = ""
    last_part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSnapshot:
    """An op's knowledge beside its parts."""

    now_ms: int
    next_refresh_ms: int
    #: Parts of merges that wait for a thread.
    waiting: frozenset[str]
    #: Failures by partition.
    failures: Mapping[str, Failure]
    #: Failures of parts with damaged files, by part.
    damaged: Mapping[str, Failure] = field(default_factory=dict)
    #: End of the back-off by partition, seconds since 1970.
    postponed: Mapping[str, float]


def policy_named(text: str) -> MergePolicy:
    try:
        return MergePolicy(text.lower())
    except ValueError as error:
        known = ", ".join(policy.value for policy in MergePolicy)
        raise InvalidInputError("no such merge policy", policy=text, hint=f"there are: {known}") from error


def explain_now(
    candidates: Sequence[MergeCandidate], reserved: Sequence[Part], snapshot: MergeSnapshot
) -> list[MergeCandidateRow]:
    """Return a line for each candidate, then for each partition of which parts are reserved by merges or mutations."""
    rows = [_row(candidate, snapshot) for candidate in candidates[:ROWS_MAX]]
    if len(candidates) > ROWS_MAX:
        text = f"{len(candidates) - ROWS_MAX} more candidates"
        rows[-1] = replace(rows[-1], reason=f"{rows[-1].reason}; and {text}")
    for is_waiting in (True, False):
        mine = [part for part in reserved if (str(part.name) in snapshot.waiting) is is_waiting]
        for _, members in groupby(mine, key=lambda part: part.name.partition):
            rows.append(_reserved_row(list(members), is_waiting=is_waiting))
    return rows


def explain_held(rows: Sequence[MergeCandidateRow], why: str, until_ms: int) -> list[MergeCandidateRow]:
    """Return the lines while no merge may begin; `until_ms`: the end of that, 0: unknown."""
    return [row if row.state == "running" else _held_row(row, why, until_ms) for row in rows]


def explain_damaged(parts: Sequence[Part], snapshot: MergeSnapshot) -> list[MergeCandidateRow]:
    return [_damaged_row(part, snapshot.damaged[str(part.name)]) for part in parts]


def explain_history(found: Replay, policy: MergePolicy) -> list[MergeCandidateRow]:
    """Return a line for each merge that the policy would have done, oldest first, then the sums of both histories."""
    text = f"the newest {found.events} events of the part log"
    return [
        *(_replayed(merge) for merge in found.merges),
        _summary(f"{policy.value}, replayed over {text}", found.replayed),
        _summary(f"what really happened, in {text}", found.real),
    ]


def _row(candidate: MergeCandidate, snapshot: MergeSnapshot) -> MergeCandidateRow:
    state, reason = candidate.state.value, candidate.reason
    next_ms = snapshot.next_refresh_ms
    back_off = ""
    failure = snapshot.failures.get(candidate.partition)
    if failure is not None and failure.until_ms > snapshot.now_ms:
        state, next_ms = "failed", failure.until_ms
        back_off = f"failed {failure.count} times: {failure.reason}"
        reason = f"{failure.reason}; {reason}"
    elif (until := snapshot.postponed.get(candidate.partition, 0.0)) * 1000 > snapshot.now_ms:
        back_off = f"nothing was worth merging, others go first for {until - snapshot.now_ms / 1000:.0f} s"
    return MergeCandidateRow(
        partition=candidate.partition,
        parts=len(candidate.parts),
        rows=candidate.rows,
        bytes=candidate.size,
        score=candidate.score or 0.0,
        state=state,
        reason=reason,
        next_attempt_ms=next_ms,
        is_allowed=candidate.state in _ALLOWED,
        back_off=back_off,
        first_part=candidate.parts[0],
        last_part=candidate.parts[-1],
    )


def _reserved_row(parts: Sequence[Part], *, is_waiting: bool) -> MergeCandidateRow:
    return MergeCandidateRow(
        partition=parts[0].name.partition,
        parts=len(parts),
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
        score=0.0,
        state="waiting" if is_waiting else "running",
        reason="taken by a merge that waits for a thread" if is_waiting else "taken by a merge or a mutation that runs",
        next_attempt_ms=0,
        is_allowed=True,
        first_part=str(parts[0].name),
        last_part=str(parts[-1].name),
    )


def _held_row(row: MergeCandidateRow, why: str, until_ms: int) -> MergeCandidateRow:
    return replace(
        row,
        state="stopped" if row.is_allowed else row.state,
        reason=f"{why}; {row.reason}",
        next_attempt_ms=max(row.next_attempt_ms, until_ms) if until_ms else 0,
    )


def _damaged_row(part: Part, failure: Failure) -> MergeCandidateRow:
    return MergeCandidateRow(
        partition=part.name.partition,
        parts=1,
        rows=part.rows,
        bytes=part.bytes,
        score=0.0,
        state="damaged",
        reason=f"{failure.reason}; others are merged without it: {CURE}",
        next_attempt_ms=failure.until_ms,
        back_off=f"failed {failure.count} times: {failure.reason}",
        first_part=str(part.name),
        last_part=str(part.name),
    )


def _replayed(merge: ReplayedMerge) -> MergeCandidateRow:
    return MergeCandidateRow(
        partition=merge.spec.partition,
        parts=len(merge.spec.parts),
        rows=merge.spec.rows,
        bytes=merge.spec.size,
        score=merge.spec.score,
        state="replayed",
        reason=merge.spec.reason,
        next_attempt_ms=merge.at_ms,
        is_allowed=True,
        first_part=merge.spec.parts[0],
        last_part=merge.spec.parts[-1],
    )


def _summary(title: str, sums: HistorySums) -> MergeCandidateRow:
    written = f"{show_bytes(sums.merged_bytes)} written by {sums.merges} merges"
    return MergeCandidateRow(
        partition="",
        parts=sums.parts,
        rows=sums.inserted_rows,
        bytes=sums.merged_bytes,
        score=0.0,
        state="summary",
        reason=(
            f"{title}: {written}, {sums.write_amplification:.2f} times written, {sums.parts} parts at the end, "
            f"{sums.parts_max} at most in a partition"
        ),
        next_attempt_ms=0,
    )
