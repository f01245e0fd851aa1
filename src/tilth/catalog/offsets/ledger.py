"""Old rounds of a ledger are folded into one entry with their sums, so that the ledger does not grow for ever. Pure.

    0..5  5..9  [moved 9 -> 2]  2..4  4..8      becomes      0..9  [moved 9 -> 2]  2..8

Covers: which entries may become one, and which one. Does not cover: when (maintenance), writing (offsets.py).
Always holds: what the entries prove stays proved. Only ranges of one topic that follow each other are joined, so a hole
stays a hole; rounds that wrote to other tables are not joined with each other, so it stays known which offsets are in
which table; an entry of moved offsets, which is a decision, stays as it is and nothing is joined across it. An entry of
replayed dead letters stays as it is, too, and is left out of that order: it consumed no offsets.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from tilth.model.offset import FOLDED, REPLAYED, LedgerEntry, LedgerRange, TopicPartition


def foldable(
    entries: Iterable[LedgerEntry],
    *,
    before_ts: int,
    settled_ts: int,
    kept_max: int,
    limit: int,
    borders: Collection[int] = (),
) -> list[list[LedgerEntry]]:
    """Groups of two and more entries that may each become one, the oldest first, of about `limit` entries together.

    Those committed before `before_ts`, and as many of the others as are more than `kept_max`, but none that was
    committed since `settled_ts`: who verifies now may have read the table's version before it. `borders`: when a table
    that they wrote to was emptied; nothing is joined across it.
    """
    # The order is that of commits, not of transactions: a round that began earlier may have been committed later.
    rounds = (each for each in entries if each.consumer != REPLAYED)
    ordered = sorted(rounds, key=lambda each: each.commit_ts)
    surplus = len(ordered) - kept_max
    old = [
        each
        for number, each in enumerate(ordered)
        if each.commit_ts < settled_ts and (number < surplus or each.commit_ts < before_ts)
    ]
    chosen: list[list[LedgerEntry]] = []
    left = limit
    for group in _rounds(old, sorted(borders)):
        chunk = group[: max(2, left)]
        if len(chunk) > 1:
            chosen.append(chunk)
            left -= len(chunk)
        if left <= 0:
            break
    return chosen


def fold_entries(entries: Sequence[LedgerEntry]) -> LedgerEntry:
    """Return one entry that replaces these entries, given in commit order, with the transaction of the last one."""
    runs: dict[TopicPartition, list[LedgerRange]] = {}
    stored: dict[str, int] = {}
    for entry in entries:
        for each in entry.ranges:
            _append(runs.setdefault(TopicPartition(each.topic, each.partition), []), each)
        for table, rows in entry.stored.items():
            stored[table] = stored.get(table, 0) + rows
    ranges = tuple(each for _, run in sorted(runs.items()) for each in run)
    return msgspec.structs.replace(entries[-1], consumer=FOLDED, ranges=ranges, stored=stored)


def _rounds(entries: Iterable[LedgerEntry], borders: Sequence[int]) -> Iterator[list[LedgerEntry]]:
    """Yield the stretches of rounds between moves that wrote to the same tables, and between borders."""

    def kind(entry: LedgerEntry) -> tuple[frozenset[str], int]:
        return frozenset(entry.targets), bisect(borders, entry.commit_ts)

    group: list[LedgerEntry] = []
    for entry in entries:
        is_round = entry.consumer >= 0 or entry.consumer == FOLDED
        if group and not (is_round and kind(entry) == kind(group[0])):
            yield group
            group = []
        if is_round:
            group.append(entry)
    yield group


def _append(run: list[LedgerRange], new: LedgerRange) -> None:
    last = run[-1] if run else None
    if (
        last is None
        or last.end != new.start
        or last.end < last.start
        or new.end < new.start
        or last.topic_id != new.topic_id
    ):
        run.append(new)
        return
    run[-1] = last.joined(new)
