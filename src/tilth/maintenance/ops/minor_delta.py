"""MINOR_DELTA: of which part the delta files of a kind become one. Pure.

Rule: docs/policies/delta-compaction.md.

Covers: the part and its deltas. Does not cover: the run (delta_op.py).
Always holds: all deltas of a kind go into one, none is left between; base data is not read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilth.maintenance.op import OpKind
from tilth.maintenance.ops.delta_look import PartitionDeltas
from tilth.maintenance.ops.delta_work import DeltaChoice, DeltaWork
from tilth.maintenance.policy.flush_scores import minor_gain
from tilth.maintenance.policy.settings import DeltaSettings
from tilth.model.delta import Delta, DeltaKind

#: Rows do not merge with values: each kind for itself.
_KINDS = (DeltaKind.DELETE, DeltaKind.UPDATE)


def choose_minor(
    partitions: Sequence[PartitionDeltas], *, busy: Collection[str], settings: DeltaSettings
) -> DeltaChoice:
    """The part that gains most, or why there is none."""
    best: DeltaWork | None = None
    for partition in partitions:
        for part, deltas in partition.of_parts():
            if str(part.name) in busy:
                continue
            files = {kind.value: len(_of_kind(deltas, kind)) for kind in _KINDS}
            gain = minor_gain(files, settings)
            if gain and (best is None or gain > best.gain):
                told = " and ".join(f"{count} {kind} deltas" for kind, count in files.items() if count > 1)
                best = DeltaWork(
                    kind=OpKind.MINOR_DELTA,
                    partition=partition.partition,
                    sources=tuple(
                        delta for kind in _KINDS if files[kind.value] > 1 for delta in _of_kind(deltas, kind)
                    ),
                    parts=(part,),
                    gain=gain,
                    reason=f"{told} of {part.name}, of {settings.minor_files_max} that count fully",
                )
    return DeltaChoice(work=best, about="" if best is not None else "no part has more than one delta of a kind")


def _of_kind(deltas: Sequence[Delta], kind: DeltaKind) -> list[Delta]:
    return [delta for delta in deltas if delta.kind is kind]
