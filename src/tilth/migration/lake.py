"""CREATE TABLE of Delta and Iceberg, as Spark SQL writes it. Pure.

Covers: columns, PARTITIONED BY, CLUSTER BY, TBLPROPERTIES, COMMENT. Does not cover: rows, versions and branches of the
tables. Always holds: a clause that is not known refuses the statement.

Tests: tests/unit/migration/test_translate_lake.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilth.base.errors import TilthError
from tilth.grammar.errors import SqlSyntaxError
from tilth.grammar.keys import parse_key, parse_partition_by
from tilth.grammar.statements import CreateTable
from tilth.grammar.text.cursor import Cursor
from tilth.migration.draft import Draft, shown
from tilth.migration.foreign_columns import ForeignTable, read_columns, read_table, text_value
from tilth.migration.report import Difference
from tilth.model.table import Engine, Transform, TransformKind
from tilth.query.settings import TABLE_SETTINGS

#: Setting for how long earlier versions can be read.
_HISTORY = "tablet_history_max_age_sec"
#: Properties that a setting of a table has the meaning of, with what makes its value of theirs.
_SETTINGS_OF = {
    "write.parquet.compression-level": ("parquet_compression_level", 1),
    "write.parquet.row-group-size-bytes": ("parquet_row_group_bytes", 1),
    "history.expire.max-snapshot-age-ms": (_HISTORY, 1000),
}
_BY_ITSELF = (
    "delta.autooptimize",
    "delta.tuneFileSizesForRewrites",
    "delta.deletionvectors",
    "delta.enabledeletionvectors",
    "delta.checkpoint",
    "delta.minreaderversion",
    "delta.minwriterversion",
    "delta.feature",
    "delta.dataskipping",
    "delta.targetfilesize",
    "delta.columnmapping",
    "format-version",
    "write.format.default",
    "write.metadata",
    "write.distribution-mode",
    "write.delete",
    "write.update",
    "write.merge",
    "write.target-file-size-bytes",
    "write.parquet.compression-codec",
    "write.spark",
    "commit.",
    "read.",
    "gc.enabled",
)
_PROPERTY_INSTEAD = {
    "delta.logretentionduration": "SETTINGS tablet_history_max_age_sec = 604800 keeps a week of versions",
    "delta.deletedfileretentionduration": "SETTINGS tablet_history_max_age_sec = 604800 keeps a week of versions",
    "delta.enablechangedatafeed": "read the topic that the changes come from",
    "delta.appendonly": "guard the port: there are no accounts",
    "delta.isolationlevel": "each statement is a transaction of its own",
    "write.upsert.enabled": "UNIQUE KEY (..) makes each INSERT an upsert",
}
_YEARS = {"YEARS": TransformKind.TO_YEAR, "YEAR": TransformKind.TO_YEAR}


@dataclass(slots=True)
class _Clauses:
    partition_by: tuple[Transform, ...] = ()
    order_by: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    comment: str = ""
    is_sorted: bool = False


def read_lake_table(draft: Draft) -> CreateTable:
    """Read a CREATE TABLE of Spark SQL. Raises RefusedError and SqlSyntaxError."""
    cursor = Cursor(draft.text)
    cursor.expect("CREATE")
    _read_head(draft, cursor)
    table = read_table(draft, cursor, {})
    clauses = _Clauses()
    while not cursor.at_end:
        _read_clause(draft, cursor, table, clauses)
    if table.primary_key:
        why = "it is not enforced elsewhere, and a UNIQUE KEY would replace rows"
        key = ", ".join(table.primary_key)
        draft.find(Difference.LEFT_OUT, 0, f"PRIMARY KEY ({shown(key)})", why, f"UNIQUE KEY ({shown(key)})")
    if not clauses.is_sorted:
        why = "queries skip parts and row groups by the sort key; these tables do not say one"
        draft.find(Difference.NOTE, 0, "the table is created without ORDER BY", why, "add ORDER BY (..)")
    if _HISTORY not in clauses.settings:
        why = "elsewhere they are kept for days"
        instead = f"SETTINGS {_HISTORY} = 604800 keeps them for a week"
        draft.find(Difference.DIFFERS, 0, "earlier versions of the table are kept for an hour", why, instead)
    return CreateTable(
        name=table.name,
        columns=tuple(table.columns),
        engine=Engine.MERGE_TREE,
        if_not_exists=table.if_not_exists,
        partition_by=clauses.partition_by,
        order_by=clauses.order_by,
        settings=tuple(clauses.settings.items()),
        comment=clauses.comment,
    )


def _read_head(draft: Draft, cursor: Cursor) -> None:
    at = cursor.peek().start
    if cursor.accept("OR", "REPLACE"):
        why = "an existing table would be lost: nothing is dropped"
        draft.find(Difference.LEFT_OUT, at, "OR REPLACE", why, "DROP TABLE first, if it is meant")
    if cursor.accept("EXTERNAL"):
        why = "files lie in the storage of the table"
        draft.find(Difference.LEFT_OUT, at, "EXTERNAL", why, "load the rows: docs/migrate/delta-iceberg.md")
    cursor.expect("TABLE")


def _read_clause(draft: Draft, cursor: Cursor, table: ForeignTable, clauses: _Clauses) -> None:
    at = cursor.peek().start
    if cursor.accept("USING"):
        name = cursor.name("a format")
        if name.lower() not in ("delta", "iceberg"):
            raise draft.refused(
                at, f"USING {shown(name)}", "a table of Delta or Iceberg was expected", "load the files"
            )
    elif cursor.accept("PARTITIONED", "BY"):
        _read_partitions(draft, cursor, table, clauses)
    elif cursor.accept("CLUSTER", "BY"):
        clauses.is_sorted = True
        written = cursor.peek()
        if cursor.accept("AUTO") or cursor.accept("NONE"):
            clauses.is_sorted = False
            draft.find(Difference.LEFT_OUT, at, f"CLUSTER BY {written.text}", "a sort key names its columns")
            return
        clauses.order_by = parse_key(cursor, "CLUSTER BY")
        why = "rows of a part are sorted by these columns, one after the other; elsewhere they are clustered by all"
        draft.find(Difference.DIFFERS, at, "CLUSTER BY is created as ORDER BY", why)
    elif cursor.accept("CLUSTERED", "BY"):
        text = cursor.expression("columns", _at_clause)
        why = "PARTITION BY bucket(n, column) makes partitions of buckets"
        draft.find(Difference.LEFT_OUT, at, f"CLUSTERED BY {shown(text)}", why)
    elif cursor.accept("COMMENT"):
        clauses.comment = text_value(cursor, "a comment")
    elif cursor.accept("LOCATION"):
        text_value(cursor, "a location")
        why = "files lie in the storage of the table"
        draft.find(Difference.LEFT_OUT, at, "LOCATION", why, "SETTINGS storage_policy names a storage")
    elif cursor.accept("TBLPROPERTIES") or cursor.accept("OPTIONS"):
        _read_properties(draft, cursor, clauses)
    elif cursor.accept("AS"):
        cursor.expression("a SELECT")
        why = "a table is created empty"
        draft.find(Difference.LEFT_OUT, at, "AS SELECT", why, "INSERT INTO the table SELECT ..")
    else:
        raise draft.refused(at, f"the clause {shown(cursor.found())}", "it is not known here", "leave it out")


def _at_clause(cursor: Cursor) -> bool:
    words = ("USING", "COMMENT", "LOCATION", "TBLPROPERTIES", "OPTIONS", "PARTITIONED", "AS")
    return any(cursor.at(word) for word in words)


def _read_partitions(draft: Draft, cursor: Cursor, table: ForeignTable, clauses: _Clauses) -> None:
    """Read columns and transforms; a column with a type is one more column of the table, as in Hive."""
    cursor.expect_symbol("(")
    transforms: list[Transform] = []
    while True:
        at = cursor.peek().start
        if cursor.is_name(1) and not cursor.is_symbol("(", 1):
            more = ForeignTable(name=table.name)
            text = cursor.expression("a column", stop_at_comma=True)
            inner = Cursor(f"({text})")
            read_columns(Draft(inner.text, draft.line_at(at) - 1, draft.findings), inner, more)
            if not more.columns:
                raise draft.refused(at, f"PARTITIONED BY {shown(text)}", "no column and no partition function of Tilth")
            table.columns += more.columns
            transforms.append(Transform(kind=TransformKind.IDENTITY, column=more.columns[0].name))
        else:
            transforms.append(_transform(draft, at, cursor.expression("a transform", stop_at_comma=True)))
        if cursor.accept_symbol(")"):
            break
        if not cursor.accept_symbol(","):
            raise cursor.expected("',' or ')'")
    clauses.partition_by = tuple(transforms)
    if any(each.kind is TransformKind.BUCKET for each in transforms):
        what = "bucket(n, column) has a hash of its own"
        draft.find(Difference.DIFFERS, cursor.last_end, what, "rows are spread over as many partitions, others")


def _transform(draft: Draft, at: int, text: str) -> Transform:
    cursor = Cursor(text)
    if cursor.is_symbol("(", 1) and cursor.peek().text.upper() in _YEARS:
        kind = _YEARS[cursor.advance().text.upper()]
        cursor.expect_symbol("(")
        column = cursor.name("a column")
        cursor.expect_symbol(")")
        return Transform(kind=kind, column=column)
    try:
        (transform,) = parse_partition_by(cursor)
        cursor.end()
    except (SqlSyntaxError, ValueError) as error:
        hint = error.hint if isinstance(error, TilthError) else ""
        raise draft.refused(at, f"PARTITIONED BY {shown(text)}", "no partition function of Tilth", hint) from error
    return transform


def _read_properties(draft: Draft, cursor: Cursor, clauses: _Clauses) -> None:
    cursor.expect_symbol("(")
    while not cursor.accept_symbol(")"):
        at = cursor.peek().start
        name = _property_name(cursor)
        cursor.accept_symbol("=")
        token = cursor.peek()
        is_text = cursor.is_string() or token.text[:1] == '"'
        value = text_value(cursor, "a value") if is_text else cursor.advance().text
        _set_property(draft, at, name, value, clauses)
        if not cursor.accept_symbol(",") and not cursor.is_symbol(")"):
            raise cursor.expected("',' or ')'")


def _property_name(cursor: Cursor) -> str:
    if cursor.is_string() or cursor.peek().text[:1] == '"':
        return text_value(cursor, "a property")
    name = cursor.name("a property")
    while cursor.accept_symbol(".") or cursor.accept_symbol("-"):
        name += f"{cursor.text[cursor.last_end - 1]}{cursor.name('a property')}"
    return name


def _set_property(draft: Draft, at: int, name: str, value: str, clauses: _Clauses) -> None:
    lowered = name.lower()
    if lowered in _SETTINGS_OF and value.strip().isdecimal():
        setting, divisor = _SETTINGS_OF[lowered]
        text = str(max(1, int(value) // divisor))
        try:
            TABLE_SETTINGS.find(setting).read(text)
        except TilthError as error:
            draft.find(Difference.LEFT_OUT, at, f"property {shown(name)}", error.message, error.hint)
            return
        clauses.settings[setting] = text
        draft.find(Difference.NOTE, at, f"property {shown(name)} is created as the setting {setting} = {text}")
    elif lowered.startswith(tuple(each.lower() for each in _BY_ITSELF)):
        why = "files, their sizes and their removal are the work of background services"
        draft.find(Difference.NOTE, at, f"property {shown(name)}", why)
    else:
        instead = _PROPERTY_INSTEAD.get(lowered, "")
        draft.find(Difference.LEFT_OUT, at, f"property {shown(name)}", "no setting of Tilth has its meaning", instead)
