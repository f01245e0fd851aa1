"""CREATE TABLE .. STORED AS KUDU, as Impala writes it. Pure.

Covers: the primary key, partitions by hash and by range. Does not cover: tables that exist in Kudu already and are
named by kudu.table_name alone. Always holds: the columns of the primary key are the UNIQUE KEY; partitions are made of
columns of the key, so that a key is unique in the table.

Tests: tests/unit/migration/test_translate_lake.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from tilth.grammar.statements import CreateTable
from tilth.grammar.text.cursor import Cursor
from tilth.migration.draft import Draft, shown
from tilth.migration.foreign_columns import ForeignTable, read_table, text_value
from tilth.migration.report import Difference
from tilth.model.table import Engine, Transform, TransformKind
from tilth.model.types import Kind, Simple

#: Impala's names of types that Tilth's grammar reads as other ones.
_SPELLED = MappingProxyType({"real": "DOUBLE", "decimal": "DECIMAL(9, 0)"})
_TIMES = (Simple(Kind.TIMESTAMP), Simple(Kind.TIMESTAMP_NTZ), Simple(Kind.DATE))


@dataclass(slots=True)
class _Partitions:
    transforms: tuple[Transform, ...] = ()
    comment: str = ""


def read_kudu_table(draft: Draft) -> CreateTable:
    """Read a CREATE TABLE of Impala. Raises RefusedError and SqlSyntaxError."""
    cursor = Cursor(draft.text)
    cursor.expect("CREATE")
    at = cursor.peek().start
    if cursor.accept("EXTERNAL"):
        draft.find(Difference.LEFT_OUT, at, "EXTERNAL", "files lie in the storage of the table")
    cursor.expect("TABLE")
    table = read_table(draft, cursor, _SPELLED, "in Impala")
    clauses = _Partitions()
    while not cursor.at_end:
        _read_clause(draft, cursor, table, clauses)
    if not table.primary_key:
        raise draft.refused(0, "CREATE TABLE .. STORED AS KUDU without PRIMARY KEY", "Kudu's tables have one")
    key = table.primary_key
    for each in clauses.transforms:
        if each.column.lower() not in (column.lower() for column in key):
            why = "in a partition by another column than those of the key, a key would be there once in each"
            raise draft.refused(0, f"PARTITION BY {shown(each.column)}", why, "partition by columns of the key")
    return CreateTable(
        name=table.name,
        columns=tuple(table.columns),
        engine=Engine.MERGE_TREE,
        if_not_exists=table.if_not_exists,
        partition_by=clauses.transforms,
        order_by=key,
        unique_key=key if table.is_key_unique else (),
        comment=clauses.comment,
    )


def _read_clause(draft: Draft, cursor: Cursor, table: ForeignTable, clauses: _Partitions) -> None:
    at = cursor.peek().start
    if cursor.at("NON", "UNIQUE", "PRIMARY", "KEY") or cursor.at("PRIMARY", "KEY"):
        table.is_key_unique = not cursor.accept("NON", "UNIQUE")
        cursor.expect("PRIMARY", "KEY")
        cursor.expect_symbol("(")
        table.primary_key = tuple(name.strip(' `"') for name in cursor.expression("columns").split(","))
        cursor.expect_symbol(")")
    elif cursor.accept("PARTITION", "BY"):
        _read_partitions(draft, cursor, table, clauses)
    elif cursor.accept("STORED", "AS"):
        name = cursor.name("a format")
        if name.upper() != "KUDU":
            raise draft.refused(at, f"STORED AS {shown(name)}", "a table of Kudu was expected", "load its files")
    elif cursor.accept("COMMENT"):
        clauses.comment = text_value(cursor, "a comment")
    elif cursor.accept("TBLPROPERTIES"):
        cursor.expect_symbol("(")
        text = cursor.expression("properties")
        cursor.expect_symbol(")")
        why = "addresses and replicas are those of the storage"
        hint = "CREATE STORAGE .. REPLICAS, and SETTINGS storage_policy" if "replicas" in text else ""
        draft.find(Difference.LEFT_OUT, at, f"TBLPROPERTIES ({shown(text)})", why, hint)
    elif cursor.accept("SORT", "BY"):
        cursor.expression("columns", lambda each: each.at("PARTITION") or each.at("STORED"))
        draft.find(Difference.NOTE, at, "SORT BY", "rows are sorted by the key")
    else:
        raise draft.refused(at, f"the clause {shown(cursor.found())}", "it is not known here", "leave it out")


def _read_partitions(draft: Draft, cursor: Cursor, table: ForeignTable, clauses: _Partitions) -> None:
    """Read HASH (a, ..) PARTITIONS n and RANGE (a, ..) (..), one after the other."""
    transforms: list[Transform] = []
    while True:
        at = cursor.peek().start
        if cursor.accept("HASH"):
            transforms.append(_hash(draft, cursor, table, at))
        elif cursor.accept("RANGE"):
            transforms += _range(draft, cursor, table, at)
        else:
            raise cursor.expected("HASH or RANGE", words=("HASH", "RANGE"))
        if not cursor.accept_symbol(","):
            break
    columns = [each.column for each in transforms]
    clauses.transforms = tuple(each for at, each in enumerate(transforms) if each.column not in columns[:at])


def _columns(cursor: Cursor) -> list[str]:
    if not cursor.is_symbol("("):
        return []
    cursor.advance()
    names: list[str] = []
    while not cursor.accept_symbol(")"):
        names.append(cursor.name("a column"))
        cursor.accept_symbol(",")
    return names


def _hash(draft: Draft, cursor: Cursor, table: ForeignTable, at: int) -> Transform:
    columns = _columns(cursor) or list(table.primary_key)
    cursor.expect("PARTITIONS")
    count = cursor.integer("a number of partitions")
    if not columns or count < 1:
        raise draft.refused(at, "PARTITION BY HASH without columns", "the table has no PRIMARY KEY before it")
    what = f"HASH ({', '.join(columns)}) PARTITIONS {count} is created as bucket({count}, {columns[0]})"
    why = "bucket takes one column, and has a hash of its own; a key is unique in the table, as before"
    if count > 1:
        instead = "fewer buckets where partitions are small: each has parts of its own"
        draft.find(Difference.DIFFERS, at, what, why, instead)
    return Transform(kind=TransformKind.BUCKET, column=columns[0], argument=count)


def _range(draft: Draft, cursor: Cursor, table: ForeignTable, at: int) -> list[Transform]:
    columns = _columns(cursor) or list(table.primary_key)
    if cursor.is_symbol("("):
        cursor.advance()
        if not cursor.is_symbol(")"):
            cursor.expression("ranges")
        cursor.expect_symbol(")")
    column = next((each for each in table.columns if columns and each.name.lower() == columns[0].lower()), None)
    if column is not None and column.type in _TIMES:
        what = f"RANGE ({', '.join(columns)}) is created as toYYYYMM({column.name})"
        why = "partitions appear with their rows, one for each month"
        draft.find(Difference.DIFFERS, at, what, why, "toDate, toMonday or toYear for other ranges")
        return [Transform(kind=TransformKind.TO_YYYYMM, column=column.name)]
    what = f"RANGE ({', '.join(columns)})"
    why = "partitions appear with their rows; ranges of values are not declared"
    draft.find(Difference.LEFT_OUT, at, what, why, "PARTITION BY truncate(n, column)")
    return []
