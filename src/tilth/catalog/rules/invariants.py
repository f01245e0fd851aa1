"""Invariants between the state before a commit and the changes that it makes. Pure; checked at each commit in tests.

A broken invariant is a defect of Tilth, so it is raised before anything is written.
"""

from __future__ import annotations

from collections import Counter

from tilth.catalog.errors import InvariantError
from tilth.catalog.rules.changes import Changes, CommitState, TableChange, TableState
from tilth.catalog.rules.visibility import lasting, visible
from tilth.model.delta import Delta, by_file, deleted_rows
from tilth.model.part import DropRange, Entry, Mark, Part


def check_commit(before: CommitState, changes: Changes) -> None:
    """Raises InvariantError naming the rule and the table."""
    for uuid, change in changes.tables.items():
        _check_table(uuid, before.tables[uuid], change, changes.commit_ts)
    for uuid, kafka in changes.kafka.items():
        state = before.kafka[uuid]
        _require(kafka.version.counter == state.version.counter + 1, "the counter rises by one", uuid)
        _require(kafka.version.last_commit_ts > state.version.last_commit_ts, "time rises", uuid)
        _require(all(each.offset >= 0 for each in kafka.offsets.values()), "offsets are not negative", uuid)
    for key, subscription in changes.subscriptions.items():
        _require(subscription is None or subscription.key == key, "a subscription has its key", key[2])


def check_entries(table: str, entries: list[Entry]) -> None:
    """Check all entries of a table: unique names, committed, and no two visible parts with the same blocks."""
    names = [entry.name for entry in entries]
    _require(len(set(names)) == len(names), "names are unique", table)
    _require(all(entry.commit_ts > 0 for entry in entries), "entries are committed", table)
    blocks = [(part.name.partition, *part.name.blocks) for part in visible(entries)]
    _require(len(set(blocks)) == len(blocks), "no blocks are visible twice", table)


def _check_table(uuid: str, before: TableState, change: TableChange, commit_ts: int) -> None:
    _require(change.version.counter == before.version.counter + 1, "the counter rises by one", uuid)
    _require(change.version.last_commit_ts == commit_ts > before.version.last_commit_ts, "time rises", uuid)
    _require(all(entry.commit_ts == commit_ts for entry in change.added), "one commit, one timestamp", uuid)
    for entry in change.added:
        if isinstance(entry, Part) and entry.name.level == 0:
            is_new = entry.name.min_block > before.version.last_commit_ts
            _require(is_new, "a new part lies behind all that was there", uuid)
        if isinstance(entry, DropRange):
            _require(entry.name.max_block < commit_ts, "a drop range hides the past only", uuid)
    everything = [entry for entries in before.entries.values() for entry in entries]
    check_entries(uuid, everything)
    for partition, shown in before.shown.items():
        _require(list(shown) == visible(before.entries[partition]), "what is kept is what is visible", uuid)
    check_entries(uuid, change.entries_after(everything))
    _check_rows(uuid, before, everything, change)
    _check_deltas(uuid, before, everything, change, commit_ts)
    _check_counts(uuid, before, everything, change)
    _check_marks(uuid, everything, change)
    _check_columns(uuid, before, change)


def _check_rows(uuid: str, before: TableState, everything: list[Entry], change: TableChange) -> None:
    """Visible rows, without those that deltas delete, change by what was inserted and removed."""
    deltas = [delta for open_deltas in before.deltas.values() for delta in open_deltas]
    shown = visible(everything)
    shown_after = visible(change.entries_after(everything))
    more = _live_rows(uuid, shown_after, change.deltas_after(deltas)) - _live_rows(uuid, shown, deltas)
    inserted = change.version.inserted_rows - before.version.inserted_rows
    removed = change.version.removed_rows - before.version.removed_rows
    _require(more == inserted - removed, "rows are counted", uuid)


def _live_rows(uuid: str, shown: list[Part], deltas: list[Delta]) -> int:
    changes = by_file(deltas)
    live = 0
    for part in shown:
        deleted = deleted_rows(part.file.name, changes.get(part.file.name, ()))
        _require(deleted <= part.rows, "no more rows are deleted than there are", uuid)
        live += part.rows - deleted
    return live


def _check_deltas(uuid: str, before: TableState, everything: list[Entry], change: TableChange, commit_ts: int) -> None:
    """Check that deltas change existing parts of their partition, end once, and that no two have one file."""
    added, ended = change.deltas_added, change.deltas_ended
    _require(all(each.commit_ts == commit_ts and not each.end_ts for each in added), "deltas are new", uuid)
    _require(all(each.change_ts <= commit_ts for each in added), "deltas change the past", uuid)
    _require(all(each.end_ts == commit_ts for each in ended), "deltas end with the commit", uuid)
    deltas = [delta for open_deltas in before.deltas.values() for delta in open_deltas]
    known = {each.file.name for each in deltas}
    _require(all(each.file.name in known for each in ended), "what ends was there", uuid)
    _require(len({each.file.name for each in (*deltas, *added)}) == len(deltas) + len(added), "one delta a file", uuid)
    # A part may have been replaced after it was changed, by the same commit.
    parts = [*visible(everything), *visible(change.entries_after(everything))]
    shown = {(part.name.partition, part.file.name) for part in parts}
    parts += [*lasting(everything), *(item.part for items in before.trash.values() for item in items)]
    kept = {(part.name.partition, part.file.name) for part in parts}
    for delta in added:
        files = [(delta.partition, target.file) for target in delta.targets]
        if delta.change_ts == commit_ts:
            _require(shown.issuperset(files), "new changes are of what is visible", uuid)
        _require(not kept.isdisjoint(files), "a delta changes what is visible or may come back", uuid)


def _check_counts(uuid: str, before: TableState, everything: list[Entry], change: TableChange) -> None:
    """Check that the records of partitions have the counts of visible parts and segments."""
    shown = _counted(everything)
    shown_after = _counted(change.entries_after(everything))
    for partition, record in before.partitions.items():
        _require(record.parts == shown[partition, False], f"parts of {partition} are counted before", uuid)
        _require(record.segments == shown[partition, True], f"segments of {partition} are counted before", uuid)
    for partition, record in change.partitions.items():
        _require(record.parts == shown_after[partition, False], f"parts of {partition} are counted", uuid)
        _require(record.segments == shown_after[partition, True], f"segments of {partition} are counted", uuid)
    ranges, ranges_after = _more_ranges(everything), _more_ranges(change.entries_after(everything))
    for partition, record in change.partitions.items():
        _require(record.more_ranges == ranges_after[partition], f"ranges of {partition} are counted", uuid)
    more = ranges_after.total() - ranges.total()
    _require(change.version.more_ranges - before.version.more_ranges == more, "all ranges are counted", uuid)
    shown_after.subtract(shown)
    parts = sum(count for (_, is_segment), count in shown_after.items() if not is_segment)
    segments = sum(count for (_, is_segment), count in shown_after.items() if is_segment)
    _require(change.version.parts - before.version.parts == parts, "all parts are counted", uuid)
    _require(change.version.segments - before.version.segments == segments, "all segments are counted", uuid)


def _counted(entries: list[Entry]) -> Counter[tuple[str, bool]]:
    return Counter((part.name.partition, part.is_segment) for part in visible(entries))


def _more_ranges(entries: list[Entry]) -> Counter[str]:
    ranges = Counter((part.name.partition, part.cut) for part in visible(entries) if part.cut)
    more: Counter[str] = Counter()
    for (partition, _), count in ranges.items():
        more[partition] += count - 1
    return more


def _check_columns(uuid: str, before: TableState, change: TableChange) -> None:
    """The columns of every part that the commit makes are known, and ids of columns are not used again."""
    definition = change.definition or before.definition
    for entry in (*change.added, *change.restored):
        if isinstance(entry, Part):
            _require(definition.schema_of(entry.schema_version) is not None, "a part's columns are known", uuid)
    if definition.schema_version != before.definition.schema_version:
        _require(definition.schema_version == before.definition.schema_version + 1, "one version more", uuid)
        old = {column.id for column in before.definition.schema.columns}
        fresh = [column.id for column in definition.schema.columns if column.id not in old]
        _require(all(each >= before.definition.next_column_id for each in fresh), "ids are not used again", uuid)


def _check_marks(uuid: str, everything: list[Entry], change: TableChange) -> None:
    """Each mark hides one part; or it is the empty result of a merge, which hides nothing."""
    hidden = {(part.name.partition, *part.name.blocks): part.name.level for part in visible(everything)}
    for entry in change.added:
        if isinstance(entry, Mark):
            level = hidden.get((entry.name.partition, *entry.name.blocks), entry.name.level)
            is_result = all(other.name.blocks != entry.name.blocks for other in everything)
            _require(level < entry.name.level or is_result, "a mark hides one part", uuid)


def _require(holds: bool, rule: str, table: str) -> None:
    if not holds:
        raise InvariantError(rule=rule, table=table)
