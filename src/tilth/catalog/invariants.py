"""What must hold between the state before a commit and what it changes. Pure; checked at each commit in tests.

A broken invariant is a defect of Tilth, so it is raised before anything is written.
"""

from __future__ import annotations

from collections import Counter

from tilth.catalog.changes import Changes, CommitState, TableChange, TableState
from tilth.catalog.errors import InvariantError
from tilth.catalog.visibility import visible
from tilth.model.part import DropRange, Entry, Mark, Part


def check_commit(before: CommitState, changes: Changes) -> None:
    """Raises InvariantError naming the rule and the table."""
    for uuid, change in changes.tables.items():
        _check_table(uuid, before.tables[uuid], change, changes.commit_ts)
    for uuid, kafka in changes.kafka.items():
        state = before.kafka[uuid]
        _require(kafka.version.counter == state.version.counter + 1, "the counter rises by one", uuid)
        _require(kafka.version.last_commit_ts > state.version.last_commit_ts, "time rises", uuid)
        _require(all(offset >= 0 for offset in kafka.offsets.values()), "offsets are not negative", uuid)


def check_entries(table: str, entries: list[Entry]) -> None:
    """Of all entries of a table: unique names, committed, and no two visible parts with the same blocks."""
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
    everything = [entry for group in before.entries.values() for entry in group]
    check_entries(uuid, everything)
    check_entries(uuid, change.entries_after(everything))
    _check_rows(uuid, before, everything, change)
    _check_counts(uuid, before, everything, change)
    _check_marks(uuid, everything, change)
    _check_columns(uuid, before, change)


def _check_rows(uuid: str, before: TableState, everything: list[Entry], change: TableChange) -> None:
    """Visible rows change by what was inserted and removed."""
    shown = sum(part.rows for part in visible(everything))
    shown_after = sum(part.rows for part in visible(change.entries_after(everything)))
    inserted = change.version.inserted_rows - before.version.inserted_rows
    removed = change.version.removed_rows - before.version.removed_rows
    _require(shown_after - shown == inserted - removed, "rows are counted", uuid)


def _check_counts(uuid: str, before: TableState, everything: list[Entry], change: TableChange) -> None:
    """The records of partitions say how many parts are visible."""
    shown = Counter(part.name.partition for part in visible(everything))
    shown_after = Counter(part.name.partition for part in visible(change.entries_after(everything)))
    for partition, record in before.partitions.items():
        _require(record.parts == shown[partition], f"parts of {partition} are counted before", uuid)
    for partition, record in change.partitions.items():
        _require(record.parts == shown_after[partition], f"parts of {partition} are counted", uuid)
    more = sum(shown_after.values()) - sum(shown.values())
    _require(change.version.parts - before.version.parts == more, "all parts are counted", uuid)


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
    hidden = {(*part.name.blocks, part.name.partition, part.name.level) for part in visible(everything)}
    for entry in change.added:
        if isinstance(entry, Mark):
            covers = [*entry.name.blocks, entry.name.partition, entry.name.level - 1]
            is_result = all(other.name.blocks != entry.name.blocks for other in everything)
            _require(tuple(covers) in hidden or is_result, "a mark hides one part", uuid)


def _require(holds: bool, rule: str, table: str) -> None:
    if not holds:
        raise InvariantError(rule=rule, table=table)
