"""MAJOR_DELTA: of which part updated columns are written anew. Pure.

Rule: docs/policies/delta-compaction.md.

Covers: the part, its deltas, the columns. Does not cover: the run (delta_op.py).
Always holds: all updates of the part go into the columns, with the columns' earlier versions that they are laid over;
so no update is older than a column, and no column has two versions. Deletes stay.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilth.maintenance.op import OpKind
from tilth.maintenance.ops.delta_look import PartitionDeltas
from tilth.maintenance.ops.delta_work import DeltaChoice, DeltaWork
from tilth.maintenance.policy.flush_scores import major_gain
from tilth.maintenance.policy.settings import DeltaSettings
from tilth.model.delta import Delta, DeltaKind

_SPARSE = (DeltaKind.DELETE, DeltaKind.UPDATE)


def choose_major(
    partitions: Sequence[PartitionDeltas], *, busy: Collection[str], settings: DeltaSettings
) -> DeltaChoice:
    """The part that gains most, or why there is none."""
    best: DeltaWork | None = None
    highest = 0.0
    updated = 0
    for partition in partitions:
        for part, deltas in partition.of_parts():
            updates = [delta for delta in deltas if delta.kind is DeltaKind.UPDATE]
            updated += bool(updates)
            if str(part.name) in busy or not updates or not part.bytes:
                continue
            sparse = sum(delta.bytes for delta in deltas if delta.kind in _SPARSE)
            highest = max(highest, sparse / part.bytes)
            gain = major_gain(update_files=len(updates), delta_bytes=sparse, base_bytes=part.bytes, settings=settings)
            if gain and (best is None or gain > best.gain):
                sources = folded(deltas)
                columns = {column for delta in sources for column in delta.columns}
                best = DeltaWork(
                    kind=OpKind.MAJOR_DELTA,
                    partition=partition.partition,
                    sources=tuple(sources),
                    parts=(part,),
                    gain=gain,
                    reason=f"deltas of {part.name} have {sparse / part.bytes:.3f} of its bytes, {len(columns)} columns",
                )
    if best is not None:
        return DeltaChoice(work=best)
    if not updated:
        return DeltaChoice(about="no part has updates")
    wanted = f"{settings.major_ratio_min} are needed"
    return DeltaChoice(about=f"the deltas of a part have at most {highest:.3f} of its bytes, {wanted}")


def folded(deltas: Sequence[Delta]) -> list[Delta]:
    """The updates of a part and those of its column deltas that have columns of theirs, in their order."""
    updated = {column for delta in deltas if delta.kind is DeltaKind.UPDATE for column in delta.columns}
    return [
        delta
        for delta in deltas
        if delta.kind is DeltaKind.UPDATE or (delta.kind is DeltaKind.COLUMN and not updated.isdisjoint(delta.columns))
    ]
