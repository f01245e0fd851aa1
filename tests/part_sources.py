"""Files as parts, and written deltas as committed ones, for tests of what reads parts."""

from __future__ import annotations

from tilth.model.delta import Delta, PartSource, WrittenDelta
from tilth.model.part import DataFile, PartName
from tilth.model.table import Schema
from tilth.storage import NewPart, TableLayout


def plain_source(file: DataFile, schema: Schema, *, number: int = 1, rows: int = 0) -> PartSource:
    """Parquet files tell their rows themselves."""
    name = PartName("all", number, number, 0, number)
    return PartSource(name=name, file=file, rows=rows, is_segment=False, schema=schema)


def as_delta(written: WrittenDelta, ts: int) -> Delta:
    """As if it were committed at that time."""
    return Delta(
        kind=written.kind,
        partition=written.partition,
        file=written.file,
        targets=written.targets,
        columns=written.columns,
        change_ts=ts,
        commit_ts=ts,
    )


def new_part(layout: TableLayout, *, txn: int) -> NewPart:
    """A part of a table without partitions."""
    return NewPart(layout=layout, partition="all", values=(), txn=txn)
