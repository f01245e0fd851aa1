"""Scan paths: the ways in which the rows of each part of a snapshot are read. Pure.

Covers: the three scan paths, what goes to the executors, how much of it one task takes. Does not cover: reading
(spark.py).
Always holds: each part that has a row left is in exactly one scan path; the scan paths give the same rows, only their
cost differs.

Plain: nothing has changed, Spark scans the file. Masked: rows are gone, Spark scans the file and leaves them out
(masks.py). Overlaid: a row segment, or a part with new values in a column that is read: Python reads the
file, lays the changes over it, and hands the rows to Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tilth.model.delta import Delta, DeltaKind, PartSource, applied_order, deleted_rows, source_of
from tilth.model.part import Part
from tilth.model.snapshot import Snapshot
from tilth.model.table import Schema, TableDef
from tilth.model.types import DataType, Kind, Simple
from tilth.storage.read.masks import mask_bytes_max
from tilth.storage.values.shapes import stored_schema

#: Limit of the masks of a snapshot, which each task holds. Parts beyond are overlaid.
MASK_BYTES_MAX = 32 << 20
#: A task reads at least this much before there is another one.
TASK_BYTES = 64 << 20
#: Cost of opening a file, in bytes to read.
OPEN_BYTES = 256 << 10

_WIDTHS = (
    Kind.BOOLEAN,
    Kind.INT8,
    Kind.INT16,
    Kind.INT32,
    Kind.DATE,
    Kind.FLOAT32,
    Kind.INT64,
    Kind.FLOAT64,
    Kind.TIMESTAMP,
    Kind.TIMESTAMP_NTZ,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPaths:
    """The parts of a snapshot by the way they are read; those without a row are in none."""

    plain: tuple[Part, ...]
    masked: tuple[Part, ...]
    overlaid: tuple[Part, ...]
    #: Deltas by the name of a part's data file, in the order in which they apply; each names that part only.
    changes: Mapping[str, tuple[Delta, ...]]

    @property
    def changed_rows(self) -> int:
        """Number of rows that the parts of the masked and the overlaid scan path have now."""
        changed = (*self.masked, *self.overlaid)
        return sum(part.rows - deleted_rows(part.file.name, self.changes.get(part.file.name, ())) for part in changed)

    def source(self, table: TableDef, part: Part) -> PartSource:
        """Raises PartShapeUnknownError."""
        return source_of(part, stored_schema(table, part), self.changes.get(part.file.name, ()))


class Masked(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the masked scan path, for the task that reads what is gone of it."""

    #: Number of its first block, by which the scan identifies the part's file.
    first_block: int
    file: str
    deltas: tuple[Delta, ...]

    @property
    def bytes(self) -> int:
        return sum(delta.bytes for delta in self.deltas)


def scan_paths_of(snapshot: Snapshot, needed: Collection[int] | None = None) -> ScanPaths:
    """The scan paths for a reader of the columns with these ids; None: of all."""
    changes = _by_target(snapshot.deltas)
    plain: list[Part] = []
    masked: list[Part] = []
    overlaid: list[Part] = []
    for part in snapshot.parts:
        deltas = changes.get(part.file.name, ())
        deleted = deleted_rows(part.file.name, deltas)
        if deleted and deleted >= part.rows:
            continue
        if part.is_segment or any(_gives_values(delta, needed) for delta in deltas):
            overlaid.append(part)
        elif deleted:
            masked.append(part)
        else:
            plain.append(part)
    kept, rest = _limit_masks(masked, changes)
    return ScanPaths(plain=tuple(plain), masked=kept, overlaid=(*overlaid, *rest), changes=changes)


def is_changed(snapshot: Snapshot) -> bool:
    """True if it saves reads to know which columns are read; else Spark's scan finds out for itself."""
    return bool(snapshot.deltas) or any(part.is_segment for part in snapshot.parts)


def needed_ids(schema: Schema, names: Collection[str] | None) -> frozenset[int] | None:
    """The ids of the columns of these names, compared as Spark does; None for None."""
    if names is None:
        return None
    lowered = {name.lower() for name in names}
    return frozenset(column.id for column in schema.columns if column.name.lower() in lowered)


def read_columns(stored: Schema, needed: Collection[int] | None) -> Schema:
    """Return the stored columns that are read; if none is needed, the narrowest, because rows are counted by one."""
    if needed is None:
        return stored
    columns = tuple(column for column in stored.columns if column.id in needed)
    return Schema(columns=columns or (min(stored.columns, key=lambda column: _width(column.type)),))


def split_by_cost(costs: Sequence[int], *, tasks: int) -> list[range]:
    """Ranges of neighbours that one task reads, by what each costs in bytes; at least so many tasks, if they last."""
    if not costs:
        return []
    weights = [cost + OPEN_BYTES for cost in costs]
    count = min(len(costs), max(tasks, -(-sum(weights) // TASK_BYTES)))
    found: list[range] = []
    start, assigned, total = 0, 0, sum(weights)
    for index, weight in enumerate(weights):
        assigned += weight
        left = count - len(found) - 1
        # Each task's end is where its share of all that there is is reached; each later one gets one part at least.
        is_full = assigned * count >= total * (len(found) + 1)
        if left and (is_full or len(costs) - index - 1 <= left):
            found.append(range(start, index + 1))
            start = index + 1
    found.append(range(start, len(costs)))
    return found


def _by_target(deltas: Sequence[Delta]) -> dict[str, tuple[Delta, ...]]:
    """Split the deltas by target: one with a thousand would cross to a thousand tasks with all of them."""
    found: dict[str, list[Delta]] = {}
    for delta in applied_order(deltas):
        for target in delta.targets:
            alone = delta if len(delta.targets) == 1 else msgspec.structs.replace(delta, targets=(target,))
            found.setdefault(target.file, []).append(alone)
    return {file: tuple(split) for file, split in found.items()}


def _gives_values(delta: Delta, needed: Collection[int] | None) -> bool:
    match delta.kind:
        case DeltaKind.DELETE:
            return False
        case DeltaKind.CHANGES if not any(target.updated for target in delta.targets):
            return False
    return needed is None or any(column in needed for column in delta.columns)


def _limit_masks(
    parts: list[Part], changes: Mapping[str, tuple[Delta, ...]]
) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """The parts whose masks together stay below the bound, those with the smallest first; and the rest."""
    sizes = {
        part.file.name: mask_bytes_max(part.rows, deleted_rows(part.file.name, changes[part.file.name]))
        for part in parts
    }
    if sum(sizes.values()) <= MASK_BYTES_MAX:
        return tuple(parts), ()
    held = 0
    kept: list[Part] = []
    rest: list[Part] = []
    for part in sorted(parts, key=lambda part: sizes[part.file.name]):
        held += sizes[part.file.name]
        (kept if held <= MASK_BYTES_MAX else rest).append(part)
    return tuple(kept), tuple(rest)


def _width(kind: DataType) -> int:
    if isinstance(kind, Simple) and kind.kind in _WIDTHS:
        return _WIDTHS.index(kind.kind)
    return len(_WIDTHS)
