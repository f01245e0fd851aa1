"""A table with a unique key without a catalog: rounds of rows in, live rows out; and what they must be by the rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from msgspec.structs import asdict

from tilth.model.delta import Delta, PartSource, WrittenDelta, by_file
from tilth.model.part import PartName, WrittenPart
from tilth.model.table import OP_COLUMN, Column, Schema, Transform, TransformKind
from tilth.model.types import DataType, Kind, Simple
from tilth.storage import (
    Folder,
    TableLayout,
    UpsertRequest,
    arrow_schema,
    fresh_sources,
    read_source,
    resolve_upserts,
    write_filter,
    write_parts,
    write_rows,
)

#: key.., version, partition, two values; `_op` behind them.
Row = tuple[object, ...]


def schema_of(*keys: DataType, version: DataType = Simple(Kind.INT64)) -> Schema:
    """Columns `k0`, `k1`, ..: the key; `v`: a version; `p`: a partition; `a` and `b`: values."""
    columns = [Column(id=i, name=f"k{i - 1}", type=kind, nullable=False) for i, kind in enumerate(keys, start=1)]
    others: tuple[tuple[str, DataType], ...] = (
        ("v", version),
        ("p", Simple(Kind.INT32)),
        ("a", Simple(Kind.STRING)),
        ("b", Simple(Kind.INT64)),
    )
    for name, kind in others:
        columns.append(Column(id=len(columns) + 1, name=name, type=kind))
    return Schema(columns=tuple(columns))


@dataclass
class UpsertTable:
    """Rounds come in by `put`."""

    folder: Folder
    schema: Schema
    version_column: str | None = None
    is_partial: bool = False
    #: `True`: partitioned by the column `p`.
    is_partitioned: bool = False
    #: `True`: a key is unique in the table, else in its partition.
    is_global: bool = False
    parts: list[PartSource] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)
    txn: int = 0
    #: Expected rows, by scope and key.
    expected: dict[Row, Row] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        return [name for name in self.schema.names if name.startswith("k")]

    @property
    def layout(self) -> TableLayout:
        by_p = (Transform(kind=TransformKind.IDENTITY, column="p"),)
        return TableLayout(
            folder=self.folder,
            schema=self.schema,
            partition_by=by_p if self.is_partitioned else (),
            order_by=tuple(self.keys),
            unique_key=tuple(self.keys),
            version_column=self.version_column,
            is_buffered=True,
            is_keyed_across=self.is_global and self.is_partitioned,
            is_partial=self.is_partial,
            row_group_rows=4,
            fsync=False,
        )

    def load(self, rows: Sequence[Row], *, with_filters: bool = True) -> None:
        """Different keys, as sorted parts."""
        self.txn += 1
        written = write_parts(self.layout, self._table(rows), txn=self.txn, task=0, attempt=0)
        for part in written:
            if with_filters:
                write_filter(self.layout, part.file)
        self._add(written)
        for row in rows:
            self.expected[self._scope(row)] = row[:-1]

    def put(self, *segments: Sequence[Row]) -> tuple[WrittenDelta, ...]:
        """One round whose rows come in these segments."""
        self.txn += 1
        written: list[WrittenPart] = []
        for rows in segments:
            table = self._table(rows, with_op=True)
            written += write_rows(self.layout, table, txn=self.txn, task=0, attempt=0, first_n=len(written))
        scopes = [None] if self.is_global else sorted({part.partition for part in written})
        deltas: list[WrittenDelta] = []
        for scope in scopes:
            deltas += resolve_upserts(
                UpsertRequest(
                    layout=self.layout,
                    is_partial=self.is_partial,
                    fresh=fresh_sources([w for w in written if scope in (None, w.partition)], self.schema),
                    existing=tuple(s for s in self.sources() if scope in (None, s.name.partition)),
                    txn=self.txn,
                    task=1,
                    attempt=0,
                    first_n=len(deltas),
                )
            )
        self._add(written)
        for delta in deltas:
            self.deltas.append(Delta(**{**asdict(delta), "change_ts": self.txn, "commit_ts": self.txn}))
        self._expect([row for rows in segments for row in rows])
        return tuple(deltas)

    def sources(self) -> list[PartSource]:
        changes = by_file(self.deltas)
        return [PartSource(**{**asdict(each), "deltas": changes.get(each.file.name, ())}) for each in self.parts]

    def rows(self) -> list[Row]:
        """The live rows."""
        tables = [read_source(self.folder, source)[0] for source in self.sources()]
        return [tuple(row.values()) for table in tables for row in table.to_pylist()]

    def check(self) -> None:
        found = sorted(self.rows(), key=str)
        assert found == sorted(self.expected.values(), key=str)

    def _table(self, rows: Sequence[Row], *, with_op: bool = False) -> pa.Table:
        schema = arrow_schema(self.schema, field_ids=False)
        columns = [pa.array([row[i] for row in rows], kind.type) for i, kind in enumerate(schema)]
        names = list(schema.names)
        if with_op:
            columns.append(pa.array([row[-1] for row in rows], pa.int8()))
            names.append(OP_COLUMN)
        return pa.table(columns, names=names)

    def _add(self, written: Iterable[WrittenPart]) -> None:
        for part in written:
            number = len(self.parts)
            self.parts.append(
                PartSource(
                    name=PartName(part.partition, number, number, 0, self.txn),
                    file=part.file,
                    rows=part.rows,
                    is_segment=part.is_segment,
                    schema=self.schema,
                )
            )

    # --- the rules, row by row -------------------------------------------------------------------------------------

    def _expect(self, rows: Sequence[Row]) -> None:
        groups: dict[Row, list[_Ranked]] = {}
        for row in rows:
            group = groups.setdefault(self._scope(row), [])
            is_forced = self.version_column is not None and bool(row[-1]) and self._version(row) == (0,)
            rank = max((each.rank for each in group), default=(0,)) if is_forced else self._version(row)
            group.append(_Ranked(row=row, rank=max(rank, self._version(row)), is_forced=is_forced))
        for scope, group in groups.items():
            self._expect_group(scope, sorted(group, key=lambda each: each.rank))

    def _expect_group(self, scope: Row, group: list[_Ranked]) -> None:
        there = self.expected.get(scope)
        if any(each.is_forced for each in group):
            there = None
        elif there is not None:
            group = [each for each in group if each.rank >= self._version(there)]
            if not group:
                return
        state = there
        for each in group:
            if each.row[-1]:
                state = None
            elif self.is_partial and state is not None:
                state = tuple(
                    old if new is None and name in self._filled else new
                    for name, new, old in zip(self.schema.names, each.row[:-1], state, strict=True)
                )
            else:
                state = each.row[:-1]
        if state is None:
            self.expected.pop(scope, None)
        else:
            self.expected[scope] = state

    @property
    def _filled(self) -> set[str]:
        """The columns in which NULL means the older value."""
        kept = [*self.keys, *(["p"] if self.is_partitioned else []), self.version_column]
        return set(self.schema.names) - set(kept)

    def _scope(self, row: Row) -> Row:
        count = len(self.keys)
        key = row[:count]
        return key if self.is_global or not self.is_partitioned else (*key, row[count + 1])

    def _version(self, row: Row) -> tuple[int, ...]:
        version = row[len(self.keys)] if self.version_column is not None else None
        return (0,) if version is None else (1, int(str(version)))


@dataclass(frozen=True)
class _Ranked:
    row: Row
    rank: tuple[int, ...]
    is_forced: bool
