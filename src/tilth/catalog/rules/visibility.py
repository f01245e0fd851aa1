"""Visibility: the entries and deltas that a reader sees, and the time since when nobody needs them. Pure.

Rules: docs/policies/visibility.md.
Always holds: what hides is a mark or a newer version of the same blocks, which hide the chain below them, or a drop
range; an entry's own commit is visible at its timestamp. See also: catalog/parts/parts.py, which reads the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from tilth.model.delta import Delta, applied_order
from tilth.model.part import DropRange, Entry, Mark, Part

#: Entries with the same blocks, newest first.
Chain = tuple[Part | Mark, ...]


def visible(entries: Iterable[Entry], at: int | None = None) -> list[Part]:
    """The parts that a reader at `at` (None: now) sees, in the order of their names. Partitions may be mixed."""
    heads = [chain[0] for chain in visible_chains(entries, at)]
    return [head for head in heads if isinstance(head, Part)]


def visible_chains(entries: Iterable[Entry], at: int | None = None) -> list[Chain]:
    """Return the same parts as `visible`, each with the older versions of the same blocks behind it."""
    known = [entry for entry in entries if entry.commit_ts > 0 and (at is None or entry.commit_ts <= at)]
    found: list[Chain] = []
    for ranges, rest in _by_partition(known):
        hidden_up_to = max((entry.name.max_block for entry in ranges), default=-1)
        shown = [entry for entry in rest if entry.name.max_block > hidden_up_to]
        found.extend(chain for chain in _chains(shown) if isinstance(chain[0], Part))
    return found


def lasting(entries: Iterable[Entry]) -> list[Part]:
    """Return the parts that are visible, and those that would be if nothing had been dropped: all that an UNDROP may
    bring back. The parts left out were replaced for good.
    """
    return visible(entry for entry in entries if not isinstance(entry, DropRange))


def open_deltas(deltas: Iterable[Delta], at: int | None = None) -> list[Delta]:
    """The deltas that a reader at `at` (None: now) sees, in the order in which they apply."""
    if at is None:
        return applied_order(delta for delta in deltas if not delta.end_ts)
    return applied_order(delta for delta in deltas if delta.commit_ts <= at and (not delta.end_ts or at < delta.end_ts))


def deltas_of(parts: Iterable[Part], deltas: Iterable[Delta]) -> list[Delta]:
    """Return the deltas that change one of these parts, in the order in which they were given."""
    files = {part.file.name for part in parts}
    return [delta for delta in deltas if any(target.file in files for target in delta.targets)]


def end_times(entries: Iterable[Entry]) -> list[tuple[Entry, int]]:
    """The entries that no reader at or after the time beside them needs, in the order of their names.

    What hides is only ended when nothing is left to hide: data goes first, marks and ranges in a later round, so that a
    crash in between never brings rows back.
    """
    ended: list[tuple[Entry, int]] = []
    for ranges, rest in _by_partition([entry for entry in entries if entry.commit_ts > 0]):
        for chain in _chains(rest):
            ended.extend(_ended_of_chain(chain, ranges))
        lowest = min((entry.name.max_block for entry in rest), default=None)
        ended.extend((each, each.commit_ts) for each in ranges if lowest is None or lowest > each.name.max_block)
    ended.sort(key=lambda pair: pair[0].name)
    return ended


def _ended_of_chain(chain: Chain, ranges: Sequence[DropRange]) -> Iterator[tuple[Entry, int]]:
    """Newest first: what lies below a mark or a rewritten part ended when the nearest of them was committed; what lies
    below none ended with the first drop range that hides the head.
    """
    head = chain[0]
    if isinstance(head, Mark):
        if len(chain) == 1:
            yield head, head.commit_ts
        end: int | None = None
    else:
        end = next((each.commit_ts for each in ranges if each.name.max_block >= head.name.max_block), None)
    for entry in chain:
        if end is not None:
            yield entry, end
        if isinstance(entry, Mark) or entry.is_rewritten:
            end = entry.commit_ts


def _by_partition(entries: list[Entry]) -> Iterator[tuple[list[DropRange], list[Part | Mark]]]:
    """Drop ranges and the rest of each partition, each in the order of (min, max, level, commit)."""
    entries.sort(key=_order)
    for _, in_partition in groupby(entries, key=lambda entry: entry.name.partition):
        ranges: list[DropRange] = []
        rest: list[Part | Mark] = []
        for entry in in_partition:
            if isinstance(entry, DropRange):
                ranges.append(entry)
            else:
                rest.append(entry)
        yield ranges, rest


def _order(entry: Entry) -> tuple[str, int, int, int, int]:
    name = entry.name
    return name.partition, name.min_block, name.max_block, name.level, entry.commit_ts


def _chains(entries: list[Part | Mark]) -> Iterator[Chain]:
    """Yield chains of sorted entries of one partition, cut where the blocks change."""
    chain: list[Part | Mark] = []
    for entry in entries:
        if chain and not _follows(entry, chain[-1]):
            yield tuple(reversed(chain))
            chain = []
        chain.append(entry)
    if chain:
        yield tuple(reversed(chain))


def _follows(entry: Part | Mark, before: Part | Mark) -> bool:
    if entry.name.blocks != before.name.blocks:
        return False
    return entry.name.level > before.name.level or entry.commit_ts > before.commit_ts
