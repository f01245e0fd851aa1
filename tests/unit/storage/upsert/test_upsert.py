"""Which parts may have the keys of new rows, and what is held of files that were read."""

from __future__ import annotations

import pytest

from tilth.model.part import Bound, ColumnRange, DataFile, Part, PartName, WrittenPart
from tilth.model.table import Column, Schema, SchemaVersion, TableDef
from tilth.model.types import DataType, Decimal, Kind, Simple
from tilth.storage import candidates
from tilth.storage.upsert.cache import ENTRY_BYTES, HeldFiles

FILE = DataFile(name="1-0.0-0.parquet", size=1, checksum=0)


def table_of(kind: DataType, *, old_name: str = "k", old: DataType | None = None) -> TableDef:
    """With one older version, in which the key had perhaps another name or type."""
    columns = (Column(id=1, name="k", type=kind), Column(id=2, name="a", type=Simple(Kind.STRING)))
    older = Schema(columns=(Column(id=1, name=old_name, type=old or kind),))
    return TableDef(
        uuid="t",
        database="db",
        name="t",
        schema=Schema(columns=columns),
        schema_version=2,
        unique_key=("k",),
        older_schemas=(SchemaVersion(version=1, schema=older),),
    )


def part(low: Bound, high: Bound, *, name: str = "k", version: int = 1) -> Part:
    return Part(
        name=PartName("all", 1, 1, 0, 1),
        schema_version=version,
        rows=1,
        file=FILE,
        ranges={name: ColumnRange(low, high, 0)},
    )


def written(low: Bound, high: Bound) -> WrittenPart:
    return WrittenPart(
        partition="all", values=(), rows=1, file=FILE, ranges={"k": ColumnRange(low, high, 0)}, is_segment=True
    )


@pytest.mark.parametrize(
    ("kind", "there", "fresh", "may_share"),
    [
        (Simple(Kind.INT64), (1, 5), (5, 9), True),
        (Simple(Kind.INT64), (1, 5), (6, 9), False),
        (Simple(Kind.INT64), (7, 8), (1, 6), False),
        (Simple(Kind.STRING), ("a", "b"), ("b", "z"), True),
        (Simple(Kind.STRING), ("a", "b"), ("c", "z"), False),
        # A text so long that its end is not kept.
        (Simple(Kind.STRING), ("a", None), ("c", "z"), True),
        (Simple(Kind.STRING), ("d", None), ("a", "b"), False),
        # Kept as text, which does not compare as numbers do.
        (Decimal(9, 2), ("10.00", "20.00"), ("9.00", "9.50"), True),
        (Simple(Kind.BINARY), (None, None), (None, None), True),
    ],
)
def test_parts_are_searched_where_ranges_meet(
    kind: DataType, there: tuple[Bound, Bound], fresh: tuple[Bound, Bound], may_share: bool
) -> None:
    found = candidates(table_of(kind), [part(*there)], [written(*fresh)])
    assert bool(found) == may_share


def test_a_part_is_known_by_the_columns_that_it_was_written_with() -> None:
    number = Simple(Kind.INT64)
    renamed = table_of(number, old_name="was")
    assert not candidates(renamed, [part(1, 5, name="was")], [written(6, 9)])
    # Another column that had the name means nothing.
    assert candidates(renamed, [part(1, 5, name="k")], [written(6, 9)])
    changed = table_of(number, old=Simple(Kind.DATE))
    assert candidates(changed, [part(1, 5)], [written(6, 9)])


def test_any_of_the_written_parts_is_enough() -> None:
    number = table_of(Simple(Kind.INT64))
    assert candidates(number, [part(1, 5)], [written(6, 9), written(0, 1)])
    assert not candidates(number, [part(1, 5)], [])


def test_what_was_read_last_is_held_up_to_a_bound() -> None:
    held = HeldFiles(bytes_max=2 * ENTRY_BYTES + 10)
    reads: list[str] = []

    def get(name: str, size: int) -> str:
        def read() -> str:
            reads.append(name)
            return name

        return held.get(("folder",), DataFile(name=name, size=1, checksum=2), read, lambda _: size)

    for name, size in (("a", 4), ("b", 4), ("a", 4), ("c", 4), ("a", 4), ("b", 4), ("huge", 3 * ENTRY_BYTES), ("b", 4)):
        assert get(name, size) == name
    assert reads == ["a", "b", "c", "b", "huge"]


def test_one_file_may_be_held_as_several_things() -> None:
    held = HeldFiles()
    assert held.get(("folder", "keys"), FILE, lambda: 1, lambda _: 1) == 1
    assert held.get(("folder", "deletes"), FILE, lambda: 2, lambda _: 1) == 2
