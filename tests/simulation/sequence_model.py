"""What a table must hold after each change of its rows, at now and at each earlier time. Pure: no rows of files, no
catalog.

A row is (k, p, s, v, w, ver): key, partition, sort key, a number, a text, the version. Of a table with a unique key
there is at most one row of a key in its scope, which is the partition or the table.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tilth.model.table import Column, Schema, TableDef, Transform, TransformKind
from tilth.model.types import Kind, Simple


class Row(NamedTuple):
    """In the order of the table's columns."""

    k: int
    p: str
    s: int | None = None
    v: int | None = None
    w: str | None = None
    ver: int | None = None


class Fresh(NamedTuple):
    """A row that comes in: an upsert, or a delete of its key."""

    row: Row
    is_delete: bool = False


Rows = tuple[Row, ...]
SCHEMA = Schema(
    columns=tuple(
        Column(id=id, name=name, type=Simple(kind), nullable=name not in ("k", "p"))
        for id, (name, kind) in enumerate(
            [
                ("k", Kind.INT64),
                ("p", Kind.STRING),
                ("s", Kind.INT64),
                ("v", Kind.INT64),
                ("w", Kind.STRING),
                ("ver", Kind.INT64),
            ],
            start=1,
        )
    )
)
#: NULLs first, so that rows of any values have an order.
_NULL = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What kind of table it is."""

    is_unique: bool = True
    #: `True`: rows land in segments; always so in tables with a unique key.
    is_buffered: bool = True
    has_version: bool = False
    is_partial: bool = False
    #: Keys are unique within their partition; else in the table.
    is_local: bool = True
    partitions: int = 1
    order_by: tuple[str, ...] = ("k",)

    @property
    def filled(self) -> tuple[str, ...]:
        """Columns whose NULL in a fresh row means that the older value stays."""
        if not self.is_partial:
            return ()
        protected = {"k", "p", *self.order_by, *(("ver",) if self.has_version else ())}
        return tuple(name for name in Row._fields if name not in protected)


@dataclass(slots=True)
class Model:
    """The rows now, and at each time that was noted."""

    shape: Shape
    rows: Rows = ()
    #: Hybrid times, rising, and the rows since then.
    times: list[int] = field(default_factory=lambda: [0])
    states: list[Rows] = field(default_factory=lambda: [()])

    def insert(self, batch: Sequence[Fresh]) -> None:
        """What a commit of these rows makes of the table."""
        if not self.shape.is_unique:
            self.rows = (*self.rows, *(fresh.row for fresh in batch))
            return
        there = {self._key(row): row for row in self.rows}
        groups: dict[tuple[object, ...], list[Fresh]] = {}
        for fresh in batch:
            groups.setdefault(self._key(fresh.row), []).append(fresh)
        for key, group in groups.items():
            left = self._upserted(there.pop(key, None), group)
            if left is not None:
                there[key] = left
        self.rows = tuple(there.values())

    def delete(self, is_meant: Callable[[Row], bool]) -> int:
        """Returns how many rows go."""
        before = len(self.rows)
        self.rows = tuple(row for row in self.rows if not is_meant(row))
        return before - len(self.rows)

    def update(self, is_meant: Callable[[Row], bool], changed: Callable[[Row], Row]) -> int:
        """Returns how many rows get new values."""
        found = sum(map(is_meant, self.rows))
        self.rows = tuple(changed(row) if is_meant(row) else row for row in self.rows)
        return found

    def note(self, ts: int) -> None:
        """From this time on readers see the rows as they are now."""
        assert ts > self.times[-1], (ts, self.times[-1])
        self.times.append(ts)
        self.states.append(self.rows)

    def at(self, ts: int) -> Rows:
        """What a reader of that time must see."""
        return self.states[bisect_right(self.times, ts) - 1]

    def times_from(self, ts: int, others: Iterable[int] = ()) -> list[int]:
        """Those at which rows changed, and other ones, with the last moment before each: those that are not before
        `ts`, and `ts` itself.
        """
        found = {time - before for time in (*self.times, *others) for before in (0, 1)}
        return sorted(time for time in found | {ts} if time >= max(ts, 1))

    def _key(self, row: Row) -> tuple[object, ...]:
        return (row.p, row.k) if self.shape.is_local else (row.k,)

    def _upserted(self, old: Row | None, group: Sequence[Fresh]) -> Row | None:
        """The row that is left of a key; `group`: all fresh rows of it, in their order."""
        ranked = self._ranked(group)
        winner_rank, winner = ranked[-1]
        is_forced = self.shape.has_version and any(each.is_delete and each.row.ver is None for each in group)
        base = None if is_forced else old
        if base is not None and self._rank(base) > winner_rank:
            return base
        if winner.is_delete:
            return None
        # Weakest first, since the last delete; what is older than the row that is there has come too late.
        floor = self._rank(base) if base is not None else None
        givers: list[Row | None] = [base]
        for rank, each in ranked:
            if floor is not None and rank < floor:
                continue
            givers = [None] if each.is_delete else [*givers, each.row]
        return self._filled(winner.row, [giver for giver in givers if giver is not None])

    def _filled(self, row: Row, givers: Sequence[Row]) -> Row:
        values = {}
        for name in self.shape.filled:
            found = [getattr(giver, name) for giver in givers if getattr(giver, name) is not None]
            if getattr(row, name) is None and found:
                values[name] = found[-1]
        return row._replace(**values)

    def _ranked(self, group: Sequence[Fresh]) -> list[tuple[tuple[int, int], Fresh]]:
        """Weakest first. A delete without a version is as strong as the strongest before it."""
        ranks: list[tuple[int, int]] = []
        for each in group:
            rank = self._rank(each.row)
            if self.shape.has_version and each.is_delete and each.row.ver is None:
                rank = max([rank, *ranks])
            ranks.append(rank)
        return sorted(zip(ranks, group, strict=True), key=lambda pair: pair[0])

    def _rank(self, row: Row) -> tuple[int, int]:
        if not self.shape.has_version:
            return _NULL
        return _NULL if row.ver is None else (1, row.ver)


def in_order(rows: Iterable[Row]) -> list[tuple[object, ...]]:
    """As something that compares, whatever is NULL."""
    return sorted(tuple((value is not None, value) for value in row) for row in rows)


def settings_of(shape: Shape) -> dict[str, str]:
    """What says so of a table."""
    if not shape.is_unique:
        return {"memory_buffer": str(shape.is_buffered).lower()}
    return {
        "partition_level_unique_keys": str(shape.is_local).lower(),
        "enable_unique_partial_update": str(shape.is_partial).lower(),
    }


def definition(uuid: str, shape: Shape, settings: Mapping[str, str]) -> TableDef:
    """The table `default.t`."""
    return TableDef(
        uuid=uuid,
        database="default",
        name="t",
        schema=SCHEMA,
        next_column_id=len(SCHEMA.columns) + 1,
        partition_by=(Transform(kind=TransformKind.IDENTITY, column="p"),) if shape.partitions > 1 else (),
        order_by=shape.order_by,
        unique_key=("k",) if shape.is_unique else (),
        version_column="ver" if shape.has_version else None,
        settings=dict(settings),
    )
