"""Changes of rows that versions of a table made, by the entries and deltas of its parts. Pure.

Covers: which parts brought rows, lost them or changed them in each version. Does not cover: reading the rows.
Always holds: the changes of all versions from one to another, applied to the rows of the first, give the rows of the
other; parts that were made of parts (merges, flushes, compactions) change no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from tilth.catalog import visibility
from tilth.model.change_feed import PartChange, PartChangeKind
from tilth.model.delta import Delta, by_file
from tilth.model.part import Entry, Part


def changes_of(
    entries: Iterable[Entry], deltas: Sequence[Delta], *, start_ts: int, commits: Mapping[int, int]
) -> list[PartChange]:
    """Return the changes of these versions, by the times of their commits; the version before them is that of the first
    time. `entries` and `deltas` with ended ones.
    """
    ordered = sorted(entries, key=lambda entry: entry.name.partition)
    by_partition: dict[str, list[Delta]] = {}
    for delta in deltas:
        by_partition.setdefault(delta.partition, []).append(delta)
    versions = {ts: version for version, ts in commits.items()}
    found: list[PartChange] = []
    for partition, group in groupby(ordered, key=lambda entry: entry.name.partition):
        found += _of_partition(list(group), by_partition.get(partition, ()), start_ts, versions)
    found.sort(key=lambda change: (change.version, change.part.name))
    return found


def _of_partition(
    entries: list[Entry], deltas: Sequence[Delta], start_ts: int, versions: Mapping[int, int]
) -> Iterator[PartChange]:
    times = {entry.commit_ts for entry in entries} | {delta.commit_ts for delta in deltas}
    before_ts = start_ts
    before: dict[str, Part] | None = None
    for ts in sorted(times & versions.keys()):
        if before is None:
            before = _shown(entries, before_ts)
        after = _shown(entries, ts)
        yield from _of_version(
            versions[ts],
            before,
            after,
            by_file(visibility.open_deltas(deltas, before_ts)),
            by_file(visibility.open_deltas(deltas, ts)),
            ts,
        )
        before, before_ts = after, ts


def _shown(entries: list[Entry], at: int) -> dict[str, Part]:
    return {part.file.name: part for part in visibility.visible(entries, at)}


def _of_version(
    version: int,
    before: Mapping[str, Part],
    after: Mapping[str, Part],
    old: Mapping[str, tuple[Delta, ...]],
    new: Mapping[str, tuple[Delta, ...]],
    ts: int,
) -> Iterator[PartChange]:
    gone = [part for file, part in before.items() if file not in after]
    for file, part in after.items():
        if file in before:
            # A compaction's change is as old as the newest of its sources.
            if any(delta.commit_ts == ts == delta.change_ts for delta in new.get(file, ())):
                yield PartChange(
                    version=version,
                    kind=PartChangeKind.CHANGE,
                    part=part,
                    before=old.get(file, ()),
                    after=new.get(file, ()),
                )
            continue
        sources = [each for each in gone if _covers(part, each)] if part.max_row_ts < part.commit_ts == ts else []
        if not sources:
            yield PartChange(version=version, kind=PartChangeKind.INSERT, part=part, after=new.get(file, ()))
            continue
        gone = [each for each in gone if each not in sources]
        if part.mutation_ts > max(source.mutation_ts for source in sources):
            [source] = sources
            yield PartChange(
                version=version,
                kind=PartChangeKind.REWRITE,
                part=part,
                before=old.get(source.file.name, ()),
                after=new.get(file, ()),
                source=source,
            )
    for part in gone:
        yield PartChange(version=version, kind=PartChangeKind.DELETE, part=part, before=old.get(part.file.name, ()))


def _covers(part: Part, source: Part) -> bool:
    name, other = part.name, source.name
    return name.min_block <= other.min_block and other.max_block <= name.max_block
