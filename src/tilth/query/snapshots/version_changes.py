"""Changes of rows that versions of a table made, by the entries and deltas of its parts. Pure.

Covers: which parts brought rows, lost them or changed them in each version. Does not cover: reading the rows.
Always holds: the changes of all versions from one to another, applied to the rows of the first, give the rows of the
other; parts that were made of parts (merges, also those that were cut into key ranges, flushes, compactions) change no
row. It costs what the entries and deltas of the table are, and for each version what it brought.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from tilth.catalog import visibility
from tilth.model.change_feed import PartChange, PartChangeKind
from tilth.model.delta import Delta, by_file
from tilth.model.part import DropRange, Entry, Mark, Part

_Record = TypeVar("_Record", bound=Part | Mark | DropRange | Delta)


def changes_of(
    entries: Iterable[Entry], deltas: Iterable[Delta], *, start_ts: int, commits: Mapping[int, int]
) -> list[PartChange]:
    """Return the changes of these versions, by the times of their commits; the version before them is that of the first
    time. `entries` and `deltas` with ended ones.
    """
    entries_of: dict[str, list[Entry]] = {}
    for entry in entries:
        entries_of.setdefault(entry.name.partition, []).append(entry)
    deltas_of: dict[str, list[Delta]] = {}
    for delta in deltas:
        deltas_of.setdefault(delta.partition, []).append(delta)
    versions = {ts: version for version, ts in commits.items()}
    found: list[PartChange] = []
    for partition, group in entries_of.items():
        found += _of_partition(group, deltas_of.get(partition, ()), start_ts, versions)
    found.sort(key=lambda change: (change.version, change.part.name))
    return found


def _of_partition(
    entries: Sequence[Entry], deltas: Sequence[Delta], start_ts: int, versions: Mapping[int, int]
) -> Iterator[PartChange]:
    new_entries, new_deltas = _by_time(entries, versions), _by_time(deltas, versions)
    if not new_entries and not new_deltas:
        return
    of_file = by_file(deltas)
    shown = _Shown(visibility.visible(entries, start_ts))
    for ts in sorted(new_entries.keys() | new_deltas.keys()):
        came, gone = shown.commit(new_entries.get(ts, ()))
        yield from _of_parts(came, gone, ts, versions[ts], of_file)
        fresh = {part.file.name for part in came}
        for file in sorted(_changed_files(new_deltas.get(ts, ())) - fresh):
            part = shown.by_file.get(file)
            if part is not None:
                yield PartChange(
                    version=versions[ts],
                    kind=PartChangeKind.CHANGE,
                    part=part,
                    before=_open(of_file, part, ts - 1),
                    after=_open(of_file, part, ts),
                )


def _by_time(records: Iterable[_Record], versions: Mapping[int, int]) -> dict[int, list[_Record]]:
    """Return the records that the versions made, by the times of their commits."""
    found: dict[int, list[_Record]] = {}
    for record in records:
        if record.commit_ts in versions:
            found.setdefault(record.commit_ts, []).append(record)
    return found


class _Shown:
    """The parts of a partition that a reader sees, as its commits go by: `visibility.visible` of each time, without
    the entries of all other times.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        self.by_blocks = {part.name.blocks: part for part in parts}
        self.by_file = {part.file.name: part for part in self.by_blocks.values()}

    def commit(self, entries: Sequence[Entry]) -> tuple[list[Part], list[Part]]:
        """Apply the entries of one commit; return the parts that came and those that went."""
        hidden_up_to = max((each.name.max_block for each in entries if isinstance(each, DropRange)), default=-1)
        hidden = [blocks for blocks in self.by_blocks if blocks[1] <= hidden_up_to] if hidden_up_to >= 0 else []
        # A mark hides what has its blocks, a new part too.
        replaced = (each.name.blocks for each in entries if not isinstance(each, DropRange))
        gone = [part for blocks in (*hidden, *replaced) if (part := self.by_blocks.pop(blocks, None)) is not None]
        for part in gone:
            del self.by_file[part.file.name]
        came = visibility.visible(entries)
        for part in came:
            self.by_blocks[part.name.blocks] = self.by_file[part.file.name] = part
        return came, gone


def _of_parts(
    came: Sequence[Part], gone: Sequence[Part], ts: int, version: int, of_file: Mapping[str, tuple[Delta, ...]]
) -> Iterator[PartChange]:
    """Return the changes by parts that came and went with one commit."""
    before = {part.name.blocks: part for part in gone}
    merged: list[Part] = []
    for part in came:
        after = _open(of_file, part, ts)
        if part.max_row_ts >= ts:
            yield PartChange(version=version, kind=PartChangeKind.INSERT, part=part, after=after)
            continue
        source = before.get(part.name.blocks)
        # A mutation keeps the blocks. A merge of several parts may have accepted one later, which changed no row.
        if source is None or part.mutation_ts <= source.mutation_ts:
            merged.append(part)
            continue
        del before[part.name.blocks]
        yield PartChange(
            version=version,
            kind=PartChangeKind.REWRITE,
            part=part,
            before=_open(of_file, source, ts - 1),
            after=after,
            source=source,
        )
    for part in before.values():
        if not any(_covers(each, part) for each in merged):
            yield PartChange(
                version=version, kind=PartChangeKind.DELETE, part=part, before=_open(of_file, part, ts - 1)
            )


def _changed_files(deltas: Iterable[Delta]) -> set[str]:
    """Return the files whose rows the new deltas change; a compaction's change is as old as the newest of its
    sources.
    """
    return {target.file for delta in deltas if delta.change_ts == delta.commit_ts for target in delta.targets}


def _open(of_file: Mapping[str, tuple[Delta, ...]], part: Part, at: int) -> tuple[Delta, ...]:
    return tuple(visibility.open_deltas(of_file.get(part.file.name, ()), at))


def _covers(part: Part, source: Part) -> bool:
    """True if the source may be one of those that a merge made the part of: ranges of one merge cover all of them."""
    name, other = part.name, source.name
    return name.min_block <= other.min_block and other.max_block <= name.max_block
