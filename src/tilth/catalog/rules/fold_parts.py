"""Parts that updates make: their names, their times, the merge whose key range they are. Pure.

Does not cover: what an update hides (fold_table.py).

Tests: tests/unit/catalog/rules/test_fold_ranges.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilth.catalog.errors import BadMergeError
from tilth.catalog.rules.updates import ReplaceParts
from tilth.model.part import Part, PartName, WrittenPart


def merged_name(update: ReplaceParts, *, txn: int, table: str) -> PartName:
    """Min of the first, max of the last, one level above the highest: docs/policies/visibility.md#names."""
    sources = sorted(update.sources)
    if not sources:
        raise BadMergeError("nothing to merge", table=table)
    partitions = {source.partition for source in sources}
    partitions.update(written.partition for written in update.made)
    if len(partitions) > 1:
        raise BadMergeError("only parts of one partition can be merged", table=table, partitions=sorted(partitions))
    if len(set(sources)) < len(sources):
        raise BadMergeError("a part is named twice", table=table)
    low, high = sources[0].min_block, max(source.max_block for source in sources)
    level = max(source.level for source in sources) + 1
    return PartName(sources[0].partition, low, high, level, txn)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTimes:
    """The times of a new part; see Part."""

    min_row_ts: int
    max_row_ts: int
    commit_ts: int
    columns_commit_ts: int
    mutation_ts: int


def cut_of(update: ReplaceParts, sources: Sequence[Part], *, txn: int) -> int:
    """Return the merge whose key ranges the result belongs to; 0: it is whole.

    Ranges of one merge that are written anew are still ranges of it.
    """
    cuts = {source.cut for source in sources}
    if len(cuts) == 1 and 0 not in cuts:
        return cuts.pop()
    return txn if update.more else 0


def new_part(
    name: PartName,
    written: WrittenPart,
    times: PartTimes,
    *,
    schema_version: int,
    is_rewritten: bool = False,
    cut: int = 0,
) -> Part:
    return Part(
        name=name,
        schema_version=schema_version,
        rows=written.rows,
        file=written.file,
        values=written.values,
        ranges=written.ranges,
        min_row_ts=times.min_row_ts,
        max_row_ts=times.max_row_ts,
        commit_ts=times.commit_ts,
        columns_commit_ts=times.columns_commit_ts,
        mutation_ts=times.mutation_ts,
        is_rewritten=is_rewritten,
        is_segment=written.is_segment,
        cut=cut,
    )
