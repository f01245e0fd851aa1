"""What operations on columns make, and what is refused: pure, without catalog or Spark."""

from __future__ import annotations

import pytest

from tilth.base.errors import TilthError
from tilth.grammar.statements import AlterTable, ColumnOperation
from tilth.model.mutation import Mutation, MutationKind
from tilth.model.table import Column, Schema, SchemaVersion, TableDef, Transform, TransformKind
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct
from tilth.statements.definitions.columns import NewColumns, changed, is_widening
from tilth.statements.registry import parse

INT, LONG, TEXT = Simple(Kind.INT32), Simple(Kind.INT64), Simple(Kind.STRING)
TABLE = TableDef(
    uuid="u",
    database="d",
    name="t",
    schema=Schema(
        columns=(
            Column(id=1, name="k", type=INT, declared="Int32"),
            Column(id=2, name="day", type=Simple(Kind.DATE), declared="Date"),
            Column(id=3, name="at", type=Simple(Kind.TIMESTAMP), declared="timestamp"),
            Column(id=4, name="v", type=INT, default="7", comment="old", declared="Int32"),
            Column(id=6, name="s", type=TEXT, nullable=False, declared="String"),
        )
    ),
    order_by=("k",),
    partition_by=(Transform(kind=TransformKind.IDENTITY, column="day"),),
    ttl="at + INTERVAL 1 DAY",
    next_column_id=7,
)


def operations(text: str) -> list[ColumnOperation]:
    statement = parse(f"ALTER TABLE t {text}")
    assert isinstance(statement, AlterTable)
    return [each for each in statement.operations if isinstance(each, ColumnOperation)]


def made(text: str, table: TableDef = TABLE) -> NewColumns:
    new = changed(table, operations(text))
    assert new is not None
    return new


def pending(command: str) -> Mutation:
    return Mutation(table="u", id=9, kind=MutationKind.UPDATE, command=command, schema=TABLE.schema_now)


def refused(text: str, *entries: Mutation, versions: tuple[int, ...] = (), table: TableDef = TABLE) -> TilthError:
    with pytest.raises(TilthError) as caught:
        changed(table, operations(text), entries, versions=versions)
    return caught.value


@pytest.mark.parametrize(
    ("text", "names", "next_id"),
    [
        ("ADD COLUMN n Int32", "k day at v s n", 8),
        ("ADD COLUMN n Int32 FIRST", "n k day at v s", 8),
        ("ADD COLUMN n Int32 AFTER DAY, ADD COLUMN m Int32 AFTER n", "k day n m at v s", 9),
        ("DROP COLUMN v", "k day at s", 7),
        ("DROP COLUMN v, ADD COLUMN v String", "k day at s v", 8),
        ("RENAME COLUMN v TO w", "k day at w s", 7),
        ("RENAME COLUMN v TO V", "k day at V s", 7),
        ("RENAME COLUMN v TO x, RENAME COLUMN s TO v, RENAME COLUMN x TO s", "k day at s v", 7),
        ("ADD COLUMN n Int32, DROP COLUMN n", "k day at v s", 8),
    ],
)
def test_columns_and_their_order(text: str, names: str, next_id: int) -> None:
    new = changed(TABLE, operations(text))
    if names == " ".join(TABLE.schema.names):
        assert new is None
        return
    assert new is not None
    assert " ".join(new.schema.names) == names
    assert new.next_column_id == next_id
    assert len({column.id for column in new.schema.columns}) == len(new.schema.columns)


def test_ids_stay_with_their_columns_and_are_never_used_again() -> None:
    new = made("DROP COLUMN v, ADD COLUMN v String, RENAME COLUMN s TO t")
    assert {column.name: column.id for column in new.schema.columns} == {"k": 1, "day": 2, "at": 3, "t": 6, "v": 7}


def test_modify_takes_type_and_null_and_keeps_what_is_not_said() -> None:
    changed_column = made("MODIFY COLUMN V Int64").schema.find("v")
    assert changed_column == Column(id=4, name="v", type=LONG, default="7", comment="old", declared="Int64")
    assert made("MODIFY COLUMN s String").schema.find("s") == Column(id=6, name="s", type=TEXT, declared="String")
    told = made("MODIFY COLUMN v Int32 DEFAULT 8 COMMENT 'new'").schema.find("v")
    assert told == Column(id=4, name="v", type=INT, default="8", written_default="8", comment="new", declared="Int32")


@pytest.mark.parametrize(
    "text",
    [
        "ADD COLUMN IF NOT EXISTS V Int32",
        "DROP COLUMN IF EXISTS x",
        "RENAME COLUMN IF EXISTS x TO y",
        "MODIFY COLUMN IF EXISTS x Int32",
        "MODIFY COLUMN v Int32",
    ],
)
def test_nothing_to_change(text: str) -> None:
    assert changed(TABLE, operations(text)) is None


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("ADD COLUMN V Int32", "BAD_ALTER", "exists already"),
        ("ADD COLUMN n Int32 NOT NULL", "BAD_ALTER", "needs a default"),
        ("ADD COLUMN n Int32 NOT NULL DEFAULT NULL", "BAD_ALTER", "needs a default"),
        ("ADD COLUMN n Int32 AFTER x", "UNKNOWN_COLUMN", "x"),
        ("DROP COLUMN x", "UNKNOWN_COLUMN", "k, day, at, v, s"),
        ("RENAME COLUMN v TO s", "BAD_ALTER", "exists already"),
        ("MODIFY COLUMN v Int16", "BAD_ALTER", "might be lost"),
        ("MODIFY COLUMN v String", "BAD_ALTER", "might be lost"),
        ("MODIFY COLUMN v LowCardinality(String)", "BAD_ALTER", "wanted=LowCardinality(String)"),
        ("MODIFY COLUMN v Int32 NOT NULL", "BAD_ALTER", "cannot become NOT NULL"),
        ("MODIFY COLUMN s String NOT NULL DEFAULT NULL", "BAD_ALTER", "cannot be NULL"),
        ("DROP COLUMN k", "BAD_ALTER", "ORDER BY"),
        ("RENAME COLUMN k TO kk", "BAD_ALTER", "ORDER BY"),
        ("MODIFY COLUMN k Int64", "BAD_ALTER", "ORDER BY"),
        ("DROP COLUMN day", "BAD_ALTER", "PARTITION BY"),
        ("RENAME COLUMN at TO t", "BAD_ALTER", "TTL"),
        # All or nothing: the first operation would do.
        ("ADD COLUMN n Int32, DROP COLUMN x", "UNKNOWN_COLUMN", "x"),
    ],
)
def test_refusals(text: str, code: str, named: str) -> None:
    error = refused(text)
    assert error.code == code
    assert named in f"{error} {error.hint}"


def test_the_last_column_stays() -> None:
    one = TableDef(uuid="u", database="d", name="t", schema=Schema(columns=(Column(id=1, name="a", type=INT),)))
    assert "the last column of a table cannot be dropped" in str(refused("DROP COLUMN a", table=one))


def test_a_column_that_an_unfinished_mutation_names_is_not_modified_or_renamed() -> None:
    entry = pending("UPDATE `V` = 'day' WHERE s = 'x'")
    for text in ("MODIFY COLUMN v Int64", "RENAME COLUMN s TO t"):
        error = refused(text, entry)
        assert error.code == "COLUMN_BUSY"
        assert "mutation=9" in str(error)
    for text in ("ADD COLUMN x Int32", "MODIFY COLUMN v Int32 DEFAULT 8 COMMENT 'x'"):
        assert changed(TABLE, operations(text), [entry]) is not None


def test_a_column_of_the_sort_key_gets_a_default_and_a_comment() -> None:
    new = made("MODIFY COLUMN k Int32 DEFAULT 1 COMMENT 'x'").schema
    assert new.find("k") == Column(
        id=1, name="k", type=INT, default="1", written_default="1", comment="x", declared="Int32"
    )
    assert new.is_stored_as(TABLE.schema)
    assert not made("MODIFY COLUMN v Int64").schema.is_stored_as(TABLE.schema)
    assert not made("MODIFY COLUMN s String").schema.is_stored_as(TABLE.schema), "it was NOT NULL"


def test_a_default_does_not_change_under_rows_that_stand_for_it() -> None:
    before = SchemaVersion(version=1, schema=Schema(columns=TABLE.schema.columns[:3]))
    table = TableDef(
        uuid="u",
        database="d",
        name="t",
        schema=TABLE.schema,
        schema_version=2,
        older_schemas=(before,),
        next_column_id=7,
    )
    for text in ("MODIFY COLUMN v Int32 DEFAULT 8", "MODIFY COLUMN v Int64"):
        assert refused(text, versions=(1, 2), table=table).code == "COLUMN_BUSY"
        assert changed(table, operations(text), versions=(2,)) is not None
    assert changed(table, operations("MODIFY COLUMN v Int32 COMMENT 'x'"), versions=(1, 2)) is not None


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (Simple(Kind.INT8), LONG, True),
        (LONG, INT, False),
        (INT, Simple(Kind.FLOAT64), True),
        (LONG, Simple(Kind.FLOAT64), False),
        (INT, Simple(Kind.FLOAT32), False),
        (Simple(Kind.FLOAT32), Simple(Kind.FLOAT64), True),
        (Simple(Kind.FLOAT64), Simple(Kind.FLOAT32), False),
        (INT, Decimal(10, 0), True),
        (INT, Decimal(10, 1), False),
        (LONG, Decimal(21, 2), True),
        (Decimal(10, 2), Decimal(12, 4), True),
        (Decimal(10, 2), Decimal(11, 4), False),
        (Decimal(10, 2), Decimal(10, 1), False),
        (Decimal(3, 0), INT, False),
        # A day begins at another instant in another zone.
        (Simple(Kind.DATE), Simple(Kind.TIMESTAMP), False),
        (Simple(Kind.DATE), Simple(Kind.TIMESTAMP_NTZ), True),
        (INT, TEXT, False),
        (Array(INT), Array(LONG), True),
        (Map(TEXT, INT), Map(TEXT, LONG), True),
        (Map(INT, TEXT), Map(LONG, TEXT), False),
        (Struct((Field("a", INT),)), Struct((Field("a", LONG),)), True),
        (Struct((Field("a", INT),)), Struct((Field("b", INT),)), False),
        (Struct((Field("a", INT),)), Struct((Field("a", INT), Field("b", INT))), False),
    ],
)
def test_widening(old: DataType, new: DataType, expected: bool) -> None:
    assert is_widening(old, new) is expected
