"""ALTER TABLE. Pure.

Always holds: several operations in one statement are operations on columns; anything else stands alone.
"""

from __future__ import annotations

from dataclasses import replace

from tilth.grammar import statements as st
from tilth.grammar.create import parse_ttl
from tilth.grammar.literals import parse_partition, parse_settings, read_settings_clause
from tilth.grammar.phrases import (
    at_description,
    at_settings,
    parse_assignments,
    parse_column,
    parse_description,
    parse_table_name,
    parse_where,
    read_if_exists,
    read_if_not_exists,
    refuse_in_partition,
)
from tilth.grammar.text.cursor import Cursor
from tilth.grammar.text.tokens import Token
from tilth.grammar.types import parse_type

_REFUSED = {
    "INDEX": "parts carry the range of each sort key and partition column",
    "CONSTRAINT": "filter in the materialized view's SELECT",
    "PROJECTION": "write to a second table by a second view",
    "ORDER": "create a table with the new sort key, then INSERT .. SELECT",
    "STATISTICS": "leave it out: they are taken while parts are written",
    "COMMENT": "comments of tables are written by CREATE TABLE; COMMENT COLUMN changes those of columns",
    "SAMPLE": "leave it out; SELECT .. FROM t TABLESAMPLE (10 PERCENT) works without",
    "CLUSTER": "leave it out: PARTITION BY bucket(n, column) spreads rows when a table is created",
    "UNIQUE": "create a table with the new key, then INSERT .. SELECT",
    "QUERY": "DROP VIEW and CREATE MATERIALIZED VIEW again; offsets are kept",
    "PARTS": "ALTER TABLE t DROP PARTITION p, or DELETE FROM t WHERE ..",
    "PART": "ALTER TABLE t DROP PARTITION p, or DELETE FROM t WHERE ..",
}
_VERBS = ("ADD", "DROP", "MODIFY", "COMMENT", "RENAME", "RESET", "REMOVE", "UPDATE", "DELETE", "UNDROP")
#: Other verbs of ClickHouse's ALTER.
_VERBS_REFUSED = {
    "CLEAR": "UPDATE t SET column = NULL WHERE true; for a partition, ALTER TABLE t DROP PARTITION p",
    "FREEZE": "files of parts never change: copy those that system.parts lists",
    "ATTACH": "INSERT INTO t SELECT .. FROM another table",
    "DETACH": "ALTER TABLE t DROP PARTITION p, and UNDROP PARTITION to have it back",
    "REPLACE": "DROP PARTITION p, then INSERT INTO t SELECT .. FROM the other table",
    "MOVE": "INSERT INTO the other table SELECT .. FROM t, then DROP PARTITION p",
    "FETCH": "INSERT INTO t SELECT .. FROM another table",
    "MATERIALIZE": "UPDATE t SET column = .. WHERE true; DROP COLUMN and ADD COLUMN .. MATERIALIZED computes it anew",
    "INGEST": "UPDATE t SET column = .. WHERE ..; or INSERT the rows again into a table with UNIQUE KEY",
    "SAMPLE": "leave it out; SELECT .. FROM t TABLESAMPLE (10 PERCENT) works without",
    "PREATTACH": "INSERT INTO t SELECT .. FROM another table",
    "CLUSTER": "leave it out: PARTITION BY bucket(n, column) spreads rows when a table is created",
    "RECLUSTER": "leave it out",
    "ENABLE": "SYSTEM START MERGES t, and so on, switches services of a table",
    "DISABLE": "SYSTEM STOP MERGES t, and so on, switches services of a table",
}
#: Objects of CLEAR and MATERIALIZE other than columns, with hints.
_NOUNS_REFUSED = {
    "INDEX": "leave it out: there are no indexes, parts carry the range of each sort key and partition column",
    "PROJECTION": "leave it out: there are no projections; write to a second table by a second view",
    "STATISTICS": "leave it out: statistics are taken while parts are written",
    "TTL": "leave it out: expired rows go by themselves; OPTIMIZE TABLE t FINAL removes them at once",
    "MAP": "UPDATE t SET m = map_filter(m, (k, v) -> k <> 'key') WHERE true",
}


def parse_alter(cursor: Cursor) -> st.AlterTable | st.RenameTable | st.DeleteRows:
    """Read what follows ALTER."""
    cursor.expect("TABLE")
    name = parse_table_name(cursor)
    if cursor.accept("RENAME", "TO"):
        new = parse_table_name(cursor)
        return st.RenameTable(old=name, new=replace(new, database=new.database or name.database))
    if cursor.accept("FASTDELETE"):
        return _fast_delete(cursor, name)
    first = cursor.peek()
    operations: list[st.AlterOperation] = _operations(cursor)
    while cursor.accept_symbol(","):
        _check_combines(cursor, operations[0], first)
        token = cursor.peek()
        operations += _operations(cursor)
        _check_combines(cursor, operations[-1], token)
    return st.AlterTable(name=name, operations=tuple(operations), settings=read_settings_clause(cursor))


def _check_combines(cursor: Cursor, operation: st.AlterOperation, token: Token) -> None:
    if not isinstance(operation, st.ColumnOperation):
        hint = "write one ALTER for each"
        raise cursor.refused("one ALTER can combine only operations on columns", at=token, hint=hint)


def _fast_delete(cursor: Cursor, name: st.Name) -> st.DeleteRows:
    """`FASTDELETE WHERE p` of ByConity: rows go without parts being written anew, which is DELETE FROM."""
    if cursor.is_name() and not (cursor.at("WHERE") or cursor.at("IN", "PARTITION")):
        hint = "UPDATE t SET column = NULL WHERE .. empties a column; FASTDELETE WHERE .. deletes rows"
        raise cursor.refused("FASTDELETE of columns is not supported", hint=hint)
    predicate = parse_where(cursor)
    return st.DeleteRows(name=name, predicate=predicate, settings=read_settings_clause(cursor))


def _operations(cursor: Cursor) -> list[st.AlterOperation]:
    if not (cursor.at("ADD", "COLUMNS") and cursor.is_symbol("(", 2)):
        return [_operation(cursor)]
    cursor.expect("ADD", "COLUMNS")
    added: list[st.AlterOperation] = []
    while cursor.accept_symbol("(" if not added else ","):
        added.append(st.AddColumn(column=parse_column(cursor)))
    cursor.expect_symbol(")")
    return added


def _operation(cursor: Cursor) -> st.AlterOperation:
    for word, hint in _VERBS_REFUSED.items():
        if cursor.at(word):
            of_what = cursor.peek(1).text.upper()
            hint = _NOUNS_REFUSED.get(of_what, hint) if word in ("CLEAR", "MATERIALIZE") else hint
            raise cursor.refused(f"ALTER TABLE .. {word} is not supported", hint=hint)
    if cursor.accept("ALTER"):
        return _alter_column(cursor)
    verb = cursor.choose(*_VERBS)
    if verb in ("ADD", "DROP", "MODIFY"):
        for word, hint in _REFUSED.items():
            if cursor.at(word):
                raise cursor.refused(f"ALTER TABLE .. {verb} {word} is not supported", hint=hint)
    match verb:
        case "ADD":
            return _add(cursor)
        case "DROP":
            return _drop(cursor)
        case "MODIFY":
            return _modify(cursor)
        case "COMMENT":
            return _comment(cursor)
        case "RENAME":
            return _rename(cursor)
        case "RESET":
            return _reset(cursor)
        case "REMOVE":
            cursor.expect("TTL")
            return st.RemoveTtl()
        case "UPDATE":
            assignments = parse_assignments(cursor)
            return st.MutateUpdate(assignments=assignments, predicate=parse_where(cursor))
        case "UNDROP":
            cursor.expect("PARTITION")
            return st.UndropPartition(partition=parse_partition(cursor))
        case _:
            refuse_in_partition(cursor)
            return st.MutateDelete(predicate=parse_where(cursor))


def _alter_column(cursor: Cursor) -> st.ModifyColumn | st.DescribeColumn:
    """`ALTER COLUMN a TYPE T`, `SET DEFAULT e`, `DROP DEFAULT` and `COMMENT 'text'`: MODIFY COLUMN in other words."""
    cursor.expect("COLUMN")
    if_exists = read_if_exists(cursor)
    if cursor.is_word("COMMENT", 1):
        return parse_description(cursor, if_exists=if_exists)
    name = cursor.name("a column")
    if cursor.accept("DROP", "DEFAULT"):
        return st.DescribeColumn(column=name, no_default=True, if_exists=if_exists)
    if cursor.accept("SET", "DEFAULT"):
        default = cursor.expression("an expression", at_settings, stop_at_comma=True)
        return st.DescribeColumn(column=name, default=default, if_exists=if_exists)
    cursor.expect("TYPE")
    written = parse_type(cursor)
    spec = st.ColumnSpec(
        name=name,
        type=written.type,
        declared=written.text,
        checks=written.checks,
        zones=written.zones,
        states_null=written.is_nullable,
    )
    return st.ModifyColumn(column=spec, if_exists=if_exists)


def _add(cursor: Cursor) -> st.AddColumn:
    cursor.expect("COLUMN")
    if_not_exists = read_if_not_exists(cursor)
    column = parse_column(cursor)
    after = cursor.name("a column") if cursor.accept("AFTER") else None
    first = after is None and cursor.accept("FIRST")
    return st.AddColumn(column=column, if_not_exists=if_not_exists, after=after, first=first)


def _drop(cursor: Cursor) -> st.DropColumn | st.DropPartition:
    if cursor.choose("COLUMN", "PARTITION") == "PARTITION":
        if cursor.at("WHERE"):
            hint = (
                "DELETE FROM t WHERE .. deletes rows; DROP PARTITION p drops one of those that system.partitions lists"
            )
            raise cursor.refused("DROP PARTITION WHERE is not supported", hint=hint)
        return st.DropPartition(partition=parse_partition(cursor))
    if_exists = read_if_exists(cursor)
    return st.DropColumn(column=cursor.name("a column"), if_exists=if_exists)


def _modify(cursor: Cursor) -> st.ModifyColumn | st.DescribeColumn | st.ModifySetting | st.ModifyTtl:
    match cursor.choose("COLUMN", "SETTING", "TTL"):
        case "COLUMN":
            if_exists = read_if_exists(cursor)
            if at_description(cursor):
                return parse_description(cursor, if_exists=if_exists)
            return st.ModifyColumn(column=parse_column(cursor), if_exists=if_exists)
        case "SETTING":
            return st.ModifySetting(settings=parse_settings(cursor))
        case _:
            return st.ModifyTtl(ttl=parse_ttl(cursor, at_settings))


def _comment(cursor: Cursor) -> st.DescribeColumn:
    cursor.expect("COLUMN")
    if_exists = read_if_exists(cursor)
    name = cursor.name("a column")
    return st.DescribeColumn(column=name, comment=cursor.string("a comment"), if_exists=if_exists)


def _rename(cursor: Cursor) -> st.RenameColumn:
    cursor.expect("COLUMN")
    if_exists = read_if_exists(cursor)
    old = cursor.name("a column")
    cursor.expect("TO")
    return st.RenameColumn(old=old, new=cursor.name("the column's new name"), if_exists=if_exists)


def _reset(cursor: Cursor) -> st.ResetSetting:
    cursor.expect("SETTING")
    names = [cursor.name("the name of a setting")]
    while cursor.accept_symbol(","):
        names.append(cursor.name("the name of a setting"))
    return st.ResetSetting(names=tuple(names))
