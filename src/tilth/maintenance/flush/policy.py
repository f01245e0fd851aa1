"""Choice of the row segments that become one part together. Pure.

Covers: runs of neighbours that a flush may sort into one part, cut to bounded size. Does not cover: when a flush is
worth it (gains.py), doing it (flush/op.py).
Always holds: a run has segments of one partition with the same columns that need the same mutations, none of them taken
by other work, and no part stands between them; a segment that is too large for a run is one of its own.

Tests: tests/unit/maintenance/flush/test_op.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tilth.base.hybrid import milliseconds
from tilth.base.units import MIB, show_bytes
from tilth.model.mutation import Mutation, first_needed
from tilth.model.part import Part

#: Limits of the segments of one flush with their changes: all their rows are in memory at once.
FLUSH_BYTES_MAX = 128 * MIB
FLUSH_SEGMENTS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushSpec:
    """Segments to be made one part, in the order of their names."""

    partition: str
    segments: tuple[str, ...]
    #: Bytes with changes.
    size: int
    rows: int
    #: Commit time of the oldest segment.
    oldest_ms: int

    @property
    def about(self) -> str:
        return f"{self.partition}: {len(self.segments)} segments with {show_bytes(self.size)}"


def flush_runs(
    parts: Iterable[Part],
    *,
    size_of: Callable[[Part], int],
    busy: Collection[str],
    mutations: Sequence[Mutation],
    bytes_max: int = FLUSH_BYTES_MAX,
) -> list[FlushSpec]:
    """Return the flushes that visible parts allow, given in the order of their names; those that wait longest first.

    `busy` was copied before the parts were read.
    """
    specs = [
        FlushSpec(
            partition=run[0].name.partition,
            segments=tuple(str(part.name) for part in run),
            size=sum(map(size_of, run)),
            rows=sum(part.rows for part in run),
            oldest_ms=min(milliseconds(part.commit_ts) for part in run),
        )
        for whole in _runs(parts, busy, mutations)
        for run in _cut(whole, size_of, bytes_max)
    ]
    return sorted(specs, key=lambda spec: (spec.oldest_ms, spec.partition, spec.segments))


def _runs(parts: Iterable[Part], busy: Collection[str], mutations: Sequence[Mutation]) -> Iterator[list[Part]]:
    run: list[Part] = []
    for part in parts:
        is_free = part.is_segment and str(part.name) not in busy
        if run and not (is_free and _are_alike(run[-1], part, mutations)):
            yield run
            run = []
        if is_free:
            run.append(part)
    if run:
        yield run


def _are_alike(one: Part, other: Part, mutations: Sequence[Mutation]) -> bool:
    if one.name.partition != other.name.partition or one.columns_commit_ts != other.columns_commit_ts:
        return False
    needed = [first_needed(part, mutations) for part in (one, other)]
    return all(left is right or (left and right and left.id == right.id) for left, right in pairwise(needed))


def _cut(run: Sequence[Part], size_of: Callable[[Part], int], bytes_max: int) -> Iterator[list[Part]]:
    piece: list[Part] = []
    size = 0
    for part in run:
        more = size_of(part)
        if piece and (size + more > bytes_max or len(piece) == FLUSH_SEGMENTS_MAX):
            yield piece
            piece, size = [], 0
        piece.append(part)
        size += more
    if piece:
        yield piece
