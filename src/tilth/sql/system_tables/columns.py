"""`system.columns`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.model.table import TableDef, ViewDef
from tilth.model.types import spark_name
from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import FLAG, INTEGER, TEXT, ColumnDoc, Row, SystemTable


def _rows(services: Services) -> Iterator[Row]:
    for relation in services.catalog.tables.list():
        if isinstance(relation, ViewDef):
            continue
        is_table = isinstance(relation, TableDef)
        order_by = relation.order_by if isinstance(relation, TableDef) else ()
        unique_key = relation.unique_key if isinstance(relation, TableDef) else ()
        version = relation.version_column if isinstance(relation, TableDef) else None
        partition_by = {one.column for one in relation.partition_by} if isinstance(relation, TableDef) else set()
        for position, column in enumerate(relation.schema.columns, start=1):
            yield Row(
                column,
                database=relation.database,
                table=relation.name,
                position=position,
                type=spark_name(column.type),
                default_expression=column.default,
                is_in_sort_key=is_table and column.name in order_by,
                is_in_partition_key=column.name in partition_by,
                is_in_unique_key=column.name in unique_key,
                is_version=column.name == version,
            )


TABLE = SystemTable(
    name="columns",
    doc="One row for each column of a table or Kafka table.",
    columns=(
        ColumnDoc("database", TEXT, "The table's database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("name", TEXT, "The column."),
        ColumnDoc("position", INTEGER, "Its place, from 1."),
        ColumnDoc("type", TEXT, "The type that is stored, in Spark SQL's words."),
        ColumnDoc("declared_type", TEXT, "The type as it was written; values keep what it promises, as UInt8 does."),
        ColumnDoc("nullable", FLAG, "False where NOT NULL was written, and for columns of UNIQUE KEY and the version."),
        ColumnDoc("default_expression", TEXT, "What rows get that do not bring the column, as kept; NULL: NULL."),
        ColumnDoc("written_default", TEXT, "The default as it was written."),
        ColumnDoc(
            "is_default_computed", FLAG, "Whether the default is computed for each INSERT; false: it is a literal."
        ),
        ColumnDoc("is_in_sort_key", FLAG, "Whether ORDER BY names it."),
        ColumnDoc("is_in_partition_key", FLAG, "Whether PARTITION BY names it."),
        ColumnDoc("is_in_unique_key", FLAG, "Whether UNIQUE KEY names it."),
        ColumnDoc("is_version", FLAG, "Whether its value tells which of two rows with one key is the newer."),
        ColumnDoc("id", INTEGER, "Stays when it is renamed, and is never used again."),
        ColumnDoc("comment", TEXT, "What its creator said of it."),
    ),
    rows=_rows,
)
