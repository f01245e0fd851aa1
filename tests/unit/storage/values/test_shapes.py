"""Which parts are scanned alike, and what each column of a reader is made of."""

from __future__ import annotations

import pytest

from tilth.model.part import DataFile, Part, PartName
from tilth.model.table import Column, Schema, SchemaVersion, TableDef
from tilth.model.types import DataType, Decimal, Kind, Simple, quoted
from tilth.storage import PartShapeUnknownError, expressions
from tilth.storage.values.shapes import is_read_by, scans_by_shape, wanted_of

INT, BIG, TEXT = Simple(Kind.INT32), Simple(Kind.INT64), Simple(Kind.STRING)


def _schema(*columns: tuple[int, str, DataType] | tuple[int, str, DataType, str]) -> Schema:
    return Schema(
        columns=tuple(
            Column(id=each[0], name=each[1], type=each[2], default=each[3] if len(each) == 4 else None)
            for each in columns
        )
    )


def _table(*schemas: Schema) -> TableDef:
    """A table that has had these columns, one after the other."""
    versions = [SchemaVersion(version=number, schema=schema) for number, schema in enumerate(schemas, start=1)]
    now = versions.pop()
    return TableDef(
        uuid="a",
        database="d",
        name="t",
        schema=now.schema,
        schema_version=now.version,
        older_schemas=tuple(versions),
    )


def _part(version: int, number: int) -> Part:
    file = DataFile(name=f"{number}.parquet", size=1, checksum=0)
    return Part(name=PartName("all", number, number, 0, number), schema_version=version, rows=1, file=file)


@pytest.mark.parametrize(
    ("stored", "wanted", "is_alike"),
    [
        (_schema((1, "k", INT)), _schema((1, "k", INT)), True),
        # Gone, come, moved.
        (_schema((1, "k", INT), (2, "v", INT)), _schema((1, "k", INT)), True),
        (_schema((1, "k", INT)), _schema((1, "k", INT), (2, "v", INT)), True),
        (_schema((1, "k", INT), (2, "v", INT)), _schema((2, "v", INT), (1, "k", INT)), True),
        (_schema((1, "k", INT)), _schema((1, "k", INT), (2, "v", INT, "1")), False),
        (_schema((1, "k", INT)), _schema((1, "key", INT)), False),
        (_schema((1, "k", INT)), _schema((1, "K", INT)), False),
        (_schema((1, "k", INT)), _schema((1, "k", BIG)), False),
        # A new column with an old name.
        (_schema((1, "k", INT), (2, "v", INT)), _schema((1, "k", INT), (3, "v", INT)), False),
        (_schema((1, "k", INT), (2, "v", INT)), _schema((1, "k", INT), (3, "V", INT)), False),
    ],
)
def test_one_scan_reads_what_has_the_same_columns_under_the_same_names(
    stored: Schema, wanted: Schema, is_alike: bool
) -> None:
    assert is_read_by(stored, wanted) is is_alike


def test_parts_are_distinguished_by_shape_not_by_version() -> None:
    table = _table(
        _schema((1, "k", INT)),
        _schema((1, "key", INT)),
        _schema((1, "key", INT), (2, "v", INT)),
    )
    scans = scans_by_shape(table, [_part(1, 1), _part(2, 2), _part(3, 3), _part(1, 4)])
    assert [(group.stored, [file.name for file in group.files]) for group in scans] == [
        (table.older_schemas[0].schema, ["1.parquet", "4.parquet"]),
        (table.schema, ["2.parquet", "3.parquet"]),
    ]
    assert [group.wanted for group in scans] == [table.schema, table.schema]
    assert scans_by_shape(table, []) == []


def test_a_part_whose_columns_nobody_knows_is_named() -> None:
    with pytest.raises(PartShapeUnknownError, match="part=all_4_4_0_4"):
        scans_by_shape(_table(_schema((1, "k", INT))), [_part(1, 3), _part(7, 4)])


def test_a_row_that_lacks_a_column_has_the_default_that_it_came_with() -> None:
    table = _table(
        _schema((1, "k", INT)),
        _schema((1, "k", INT), (2, "v", INT, "1"), (3, "w", INT)),
        _schema((1, "k", INT), (2, "v", INT, "2"), (3, "w", INT, "3")),
        _schema((1, "k", INT), (2, "u", BIG, "4"), (3, "w", INT, "3"), (4, "x", TEXT, "'x'")),
    )
    assert [column.default for column in wanted_of(table, 1).columns] == [None, "CAST(1 AS int)", None, "'x'"]
    # A column that the part has needs no default.
    assert expressions(table.older_schemas[1].schema, wanted_of(table, 2)) == [
        "`k`",
        "CAST(`v` AS bigint) AS `u`",
        "`w`",
        "CAST('x' AS string) AS `x`",
    ]
    assert wanted_of(table, 4) is table.schema


def test_columns_are_matched_by_id() -> None:
    stored = _schema((1, "a", Decimal(9, 2)), (2, "b`c", TEXT), (3, "gone", INT))
    wanted = _schema((2, "a", TEXT), (1, "b`c", Decimal(12, 2)), (4, "gone", INT), (5, "n", INT, "1 + 1"))
    assert expressions(stored, wanted) == [
        "`b``c` AS `a`",
        "CAST(`a` AS decimal(12,2)) AS `b``c`",
        "CAST(NULL AS int) AS `gone`",
        "CAST(1 + 1 AS int) AS `n`",
    ]
    assert quoted("a`b") == "`a``b`"


def test_a_later_default_is_not_for_rows_that_are_there() -> None:
    table = _table(
        _schema((1, "k", INT)),
        _schema((1, "k", INT), (2, "v", INT, "5"), (3, "w", INT)),
        _schema((1, "k", INT), (2, "v", INT, "6"), (3, "w", INT, "7")),
    )
    first, second = scans_by_shape(table, [_part(1, 1), _part(2, 2), _part(3, 3)])
    assert [column.default for column in first.wanted.columns] == [None, "5", None]
    assert expressions(first.stored, first.wanted)[1:] == ["CAST(5 AS int) AS `v`", "CAST(NULL AS int) AS `w`"]
    assert [file.name for file in second.files] == ["2.parquet", "3.parquet"]
