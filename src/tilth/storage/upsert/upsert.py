"""Upserts: which rows must go so that each unique key has one row.

Covers: what fresh row segments of a transaction do to the rows that are there, and to each other. Does not cover:
finding keys in files (key_lookup.py), rows that give only some values (fill.py), when it is all done again
(whoever commits).
Always holds: when the fresh segments and these deltas are committed together, each key of the fresh rows has at most
one row among all sources, if it had at most one before. Of fresh rows with one key the one with the greatest version
wins, and of those the last one; the winner also replaces the row that is there, unless that one's version is greater.
NULL is the smallest version; but a row that deletes its key and has no version deletes it whatever the version of what
is there.

Tests: tests/property/test_upsert_resolve.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.model.delta import Delta, DeltaKind, PartSource, WrittenDelta
from tilth.model.part import ColumnRange, Part, PartName, WrittenPart
from tilth.model.table import OP_COLUMN, OP_DELETE, Schema, TableDef
from tilth.model.types import Decimal
from tilth.storage.deltas.deltas import CHANGE_DELETE, DeltaWriter, read_changes, read_deletes
from tilth.storage.errors import UniqueKeyNullError
from tilth.storage.parts.key_filter import key_names, key_types
from tilth.storage.parts.segments import read_segment
from tilth.storage.store.paths import TableLayout
from tilth.storage.store.root import Folder
from tilth.storage.upsert.cache import HELD
from tilth.storage.upsert.fill import filled_rows
from tilth.storage.upsert.key_lookup import FoundRows, find_keys, in_threads, wanted_keys
from tilth.storage.upsert.rows import Existing, Fresh, Judged, RowsByKey, change_tables
from tilth.storage.values.arrow import arrow_type
from tilth.storage.values.order import ranks_of
from tilth.storage.values.unique_keys import Mask, Rows, are_among, keys_of


class UpsertRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One key scope: a partition, or the whole table."""

    layout: TableLayout
    #: NULL in a fresh row means that the older value stays.
    is_partial: bool = False
    #: Segments that this transaction has written, in the order of their rows.
    fresh: tuple[PartSource, ...]
    #: Visible sources that may have the same keys.
    existing: tuple[PartSource, ...]
    txn: int
    task: int
    attempt: int
    first_n: int = 0


def resolve_upserts(request: UpsertRequest) -> tuple[WrittenDelta, ...]:
    """Write the change segments that make the fresh rows the only ones with their keys, one for each partition.

    The deltas' targets are fresh and existing files. Raises UniqueKeyNullError, what reading the sources raises, and
    RetryError where an older part lacks values that an ALTER still has to bring.
    """
    layout = request.layout
    if not any(source.rows for source in request.fresh):
        return ()
    fresh = _read_fresh(layout, request.fresh, is_partial=request.is_partial)
    by_key = _by_key(fresh)
    wanted = wanted_keys(layout, fresh.rows.select(key_names(layout)).take(pa.array(by_key.winners)))
    existing = _live(layout, request.existing, find_keys(layout, wanted, request.existing))
    judged = _judge(fresh, by_key, existing)
    changes = [*existing.deletes(judged.deleted), *fresh.deletes(np.flatnonzero(~judged.is_kept))]
    if request.is_partial:
        changes += filled_rows(layout, fresh, by_key, existing, judged)
    with DeltaWriter(
        layout, txn=request.txn, task=request.task, attempt=request.attempt, first_n=request.first_n
    ) as out:
        return tuple(out.changes(partition, table) for partition, table in change_tables(layout.schema, changes))


def fresh_sources(written: Iterable[WrittenPart], schema: Schema) -> tuple[PartSource, ...]:
    """Return uncommitted segments as sources; they have a partition and no block numbers."""
    return tuple(
        PartSource(
            name=PartName(part.partition, 0, 0, 0, 0),
            file=part.file,
            rows=part.rows,
            is_segment=part.is_segment,
            schema=schema,
        )
        for part in written
    )


def newest_rows(layout: TableLayout, rows: pa.Table) -> pa.Table:
    """Return only the winning row of each key, in the order given.

    For rows that go to several partitions of a table whose keys are unique in all of it: each partition gets a segment
    of its own, and which of two rows came later is known only before. Rows without a key stay as they are, for whoever
    writes them to refuse.
    """
    names = key_names(layout)
    given = {name.lower(): name for name in rows.column_names}
    if not rows.num_rows or any(name.lower() not in given for name in names):
        return rows
    columns = [rows.column(given[name.lower()]) for name in names]
    if any(column.null_count for column in columns):
        return rows
    version = None if layout.version_column is None else given.get(layout.version_column.lower())
    by_key = _by_key(
        Fresh(
            sources=(),
            rows=rows,
            firsts=np.zeros(0, np.int64),
            is_delete=rows.column(OP_COLUMN).to_numpy() == OP_DELETE
            if OP_COLUMN in rows.column_names
            else np.zeros(rows.num_rows, np.bool_),
            versions=None if version is None else rows.column(version),
            codes=key_codes(columns, key_types(layout)),
        )
    )
    return rows if len(by_key.winners) == rows.num_rows else rows.take(pa.array(np.sort(by_key.winners)))


def candidates(table: TableDef, parts: Iterable[Part], written: Sequence[WrittenPart]) -> list[Part]:
    """Return the parts that may have a key of the written rows, by the ranges that both have of the key's columns."""
    return [part for part in parts if any(_may_share(table, part, each) for each in written)]


# --- the fresh rows --------------------------------------------------------------------------------------------------


def _read_fresh(layout: TableLayout, sources: tuple[PartSource, ...], *, is_partial: bool) -> Fresh:
    names = key_names(layout)
    version = None if layout.version_column is None else layout.schema.find(layout.version_column)
    wanted = [*names, *([] if version is None else [version.name]), *(layout.schema.names if is_partial else ())]
    columns = [*dict.fromkeys(wanted), OP_COLUMN]

    def read(source: PartSource) -> pa.Table:
        return pa.concat_tables(read_segment(layout.folder, source.file, source.schema, columns))

    tables = in_threads(read, [source for source in sources if source.rows])
    rows = pa.concat_tables(tables)
    keys = [rows.column(name) for name in names]
    for name, column in zip(names, keys, strict=True):
        if column.null_count:
            hint = "give each row a value in each column of the UNIQUE KEY"
            raise UniqueKeyNullError(column=name, rows=column.null_count, hint=hint)
    return Fresh(
        sources=tuple(source for source in sources if source.rows),
        rows=rows,
        firsts=np.cumsum([0, *(table.num_rows for table in tables[:-1])]),
        is_delete=rows.column(OP_COLUMN).to_numpy() == OP_DELETE,
        versions=None if version is None else rows.column(version.name),
        codes=key_codes(keys, key_types(layout)),
    )


def key_codes(columns: Sequence[pa.ChunkedArray], types: Sequence[pa.DataType]) -> Rows:
    """Return a number for each row that is equal for equal keys only: the key's hash, or its rank where hashes meet."""
    keys = keys_of(columns, types)
    hashes = keys.hashes.view(np.int64)
    if keys.is_exact:
        return hashes
    order = np.argsort(hashes, kind="stable")
    is_same = hashes[order[1:]] == hashes[order[:-1]]
    is_exact = bool(np.all(keys.equal(order[:-1][is_same], keys, order[1:][is_same])))
    return hashes if is_exact else ranks_of(columns, len(keys))


def _by_key(fresh: Fresh) -> RowsByKey:
    ranks, is_forced = _strength(fresh)
    order = np.lexsort((ranks, fresh.codes))
    ordered = fresh.codes[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(is_new)
    ends = np.append(starts[1:], len(order))
    return RowsByKey(
        order=order, starts=starts, winners=order[ends - 1], is_forced=np.logical_or.reduceat(is_forced[order], starts)
    )


def _strength(fresh: Fresh) -> tuple[Rows, Mask]:
    """Rank each row among those with its key, equal ones by their position; and mark each delete without a version,
    which is as strong as the strongest before it.
    """
    count = len(fresh.codes)
    if fresh.versions is None:
        return np.zeros(count, np.int64), np.zeros(count, np.bool_)
    ranks = np.unique(ranks_of([fresh.versions], count), return_inverse=True)[1].astype(np.int64)
    is_forced: Mask = fresh.is_delete & pc.is_null(fresh.versions).to_numpy()
    if is_forced.any():
        order = np.argsort(fresh.codes, kind="stable")
        ordered = fresh.codes[order]
        # Apart from each other, so that one running maximum serves all keys.
        bases = np.cumsum(np.append(True, ordered[1:] != ordered[:-1])) * (count + 1)
        strongest = np.maximum.accumulate(bases + ranks[order]) - bases
        ranks[order] = np.where(is_forced[order], strongest, ranks[order])
    return ranks, is_forced


# --- the rows that are there -----------------------------------------------------------------------------------------


def _live(layout: TableLayout, sources: tuple[PartSource, ...], found: Sequence[FoundRows]) -> Existing:
    """Return the rows that were found, without deleted ones."""
    deleted = _read_deleted(layout.folder, [sources[number] for number in sorted({each.source for each in found})])
    version = None if layout.version_column is None else layout.schema.find(layout.version_column)
    kind = None if version is None else arrow_type(version.type)
    none = np.zeros(0, np.int64)
    numbers, rows, keys = [none], [none], [none]
    versions: list[pa.Array] = []
    for each in found:
        kept = np.flatnonzero(~are_among(each.rows, deleted[sources[each.source].file.name]))
        numbers.append(np.full(len(kept), each.source))
        rows.append(each.rows[kept])
        keys.append(each.keys[kept])
        if kind is not None and each.versions is not None:
            versions += pc.cast(each.versions.take(pa.array(kept)), kind).chunks
    return Existing(
        all_sources=sources,
        sources=np.concatenate(numbers),
        rows=np.concatenate(rows),
        keys=np.concatenate(keys),
        versions=None if kind is None else pa.chunked_array(versions, kind),
    )


def _read_deleted(folder: Folder, sources: Sequence[PartSource]) -> dict[str, Rows]:
    """Return the deleted rows of each source by the name of its file, in order. A change segment is read once, however
    many files it changes.
    """
    gone: dict[str, list[Rows]] = {source.file.name: [np.zeros(0, np.int64)] for source in sources}
    segments: dict[str, Delta] = {}
    for source in sources:
        for delta in source.deltas:
            if delta.kind is DeltaKind.CHANGES:
                segments[delta.file.name] = delta
            elif delta.kind is DeltaKind.DELETE:
                gone[source.file.name].append(read_deletes(folder, delta, source.file.name))
    for delta in segments.values():
        for file, rows in _deletes_in(folder, delta):
            if file in gone:
                gone[file].append(rows)
    return {file: np.sort(np.concatenate(rows)) for file, rows in gone.items()}


def _deletes_in(folder: Folder, delta: Delta) -> list[tuple[str, Rows]]:
    """Return the rows that a change segment deletes, by file."""

    def read() -> list[tuple[str, Rows]]:
        # A batch has the rows of one file.
        return [
            (batch.column("file")[0].as_py(), rows[batch.column("op").to_numpy() == CHANGE_DELETE])
            for batch in read_changes(folder, delta.file).to_batches()
            if len(rows := batch.column("row").to_numpy())
        ]

    return HELD.get((str(folder), "deletes"), delta.file, read, lambda found: sum(rows.nbytes for _, rows in found))


# --- who wins --------------------------------------------------------------------------------------------------------


def _judge(fresh: Fresh, by_key: RowsByKey, existing: Existing) -> Judged:
    is_kept = np.zeros(len(fresh.codes), np.bool_)
    is_kept[by_key.winners] = True
    count = len(existing.rows)
    late = np.zeros(len(by_key.starts), np.int64)
    deleted = np.arange(count)
    if fresh.versions is not None and existing.versions is not None:
        both = pa.chunked_array([*existing.versions.chunks, *fresh.versions.chunks], fresh.versions.type)
        ranks = ranks_of([both], len(both))
        older, newer = ranks[:count], ranks[count:]
        is_stronger = (older > newer[by_key.winners][existing.keys]) & ~by_key.is_forced[existing.keys]
        is_lost = np.zeros(len(by_key.starts), np.bool_)
        is_lost[existing.keys[is_stronger]] = True
        is_kept[by_key.winners[is_lost]] = False
        deleted = np.flatnonzero(~is_lost[existing.keys])
        there = np.full(len(by_key.starts), np.iinfo(np.int64).min)
        np.maximum.at(there, existing.keys, older)
        sizes = np.diff(np.append(by_key.starts, len(by_key.order)))
        late = np.add.reduceat((newer[by_key.order] < np.repeat(there, sizes)).astype(np.int64), by_key.starts)
    return Judged(is_kept=is_kept & ~fresh.is_delete, deleted=deleted, late=late)


# --- candidates ------------------------------------------------------------------------------------------------------


def _may_share(table: TableDef, part: Part, written: WrittenPart) -> bool:
    """False where the two have no value of some column of the key in common."""
    stored = table.schema_of(part.schema_version)
    for name in table.unique_key:
        column = table.schema.find(name)
        old = None if column is None or stored is None else next((c for c in stored.columns if c.id == column.id), None)
        if column is None or old is None or old.type != column.type or isinstance(column.type, Decimal):
            # Bounds of another type, or kept as text, do not compare.
            continue
        one, two = part.ranges.get(old.name), written.ranges.get(column.name)
        if one is not None and two is not None and (_is_below(one, two) or _is_below(two, one)):
            return False
    return True


def _is_below(one: ColumnRange, two: ColumnRange) -> bool:
    high, low = one.high, two.low
    if isinstance(high, str) and isinstance(low, str):
        return high < low
    if isinstance(high, str) or isinstance(low, str) or high is None or low is None:
        return False
    return high < low
