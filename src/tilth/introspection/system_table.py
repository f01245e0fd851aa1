"""System table: a name, documented columns, and rows on demand.

Tests: tests/unit/introspection/test_registry.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tilth.base.hybrid import milliseconds
from tilth.control.context.services import Services
from tilth.model.pushdown import EVERYTHING, Pushdown

TEXT = pa.string()
TEXTS = pa.list_(pa.string())
INTEGER = pa.int64()
NUMBER = pa.float64()
FLAG = pa.bool_()
#: Microseconds since 1970, UTC.
TIME = pa.timestamp("us", tz="UTC")


_ABSENT: Any = object()


class Row:
    """A row by the names of its columns.

    A value that is not given by name is the attribute of that name of the first record that has one; of a TIME, the
    attribute `NAME_ms`. Where a record is None, what no other has is NULL. An attribute is read where its column is
    wanted, so that a property of a record may cost something.
    """

    __slots__ = ("_records", "_values")

    def __init__(self, *records: object, **values: object) -> None:
        self._records = records
        self._values = values

    def named(self, columns: Sequence[ColumnDoc], *, names: frozenset[str] | None = None) -> dict[str, object]:
        """The values of exactly these columns; `names`: those of all that there are, where these are some."""
        values = self._values
        known = frozenset(each.name for each in columns) if names is None else names
        assert values.keys() <= known, values.keys() - known
        return {each.name: values[each.name] if each.name in values else self._from_records(each) for each in columns}

    def _from_records(self, column: ColumnDoc) -> object:
        is_time = column.type == TIME
        attribute = f"{column.name}_ms" if is_time else column.name
        for record in self._records:
            value = getattr(record, attribute, _ABSENT)
            if value is not _ABSENT:
                return time_of_ms(value) if is_time else value
        assert None in self._records, f"no record has {attribute}"
        return None


@dataclass(frozen=True, slots=True)
class ColumnDoc:
    name: str
    type: pa.DataType
    #: One sentence, for the reference.
    doc: str


#: Columns of rows that are about one table.
TABLE_NAME_COLUMNS = (
    ColumnDoc("database", TEXT, "The table's database."),
    ColumnDoc("table", TEXT, "The table."),
)
#: The last column of tables of which each server has rows.
SERVER = ColumnDoc("server", TEXT, "The server that says so.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTable:
    name: str
    #: Meaning of a row.
    doc: str
    columns: tuple[ColumnDoc, ...]
    #: May yield more rows than are wanted.
    rows: Callable[[Services, Pushdown], Iterable[Row]]
    #: `True` if each server has its own rows: all are queried, and the last column names the server.
    is_of_servers: bool = False

    @property
    def all_columns(self) -> tuple[ColumnDoc, ...]:
        """Return the columns, that of the server among them."""
        return (*self.columns, SERVER) if self.is_of_servers else self.columns

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.type) for column in self.all_columns])

    def build(self, services: Services, wanted: Pushdown = EVERYTHING) -> pa.Table:
        """Return the rows, those of other servers among them; columns that are not wanted are NULL."""
        own = self.build_own(services, wanted)
        return pa.concat_tables([own, *self.of_others(services, wanted)]) if self.is_of_servers else own

    def of_others(self, services: Services, wanted: Pushdown = EVERYTHING) -> list[pa.Table]:
        """Return the rows of the other servers that answer."""
        return services.peers.tables(self.name, self.schema, wanted)

    def build_own(self, services: Services, wanted: Pushdown = EVERYTHING) -> pa.Table:
        """Return the rows that this server has."""
        needed = [each for each in self.columns if wanted.has(each.name)]
        names = frozenset(each.name for each in self.columns)
        rows = [row.named(needed, names=names) for row in self.rows(services, wanted)]
        found = {each.name: pa.array([row[each.name] for row in rows], each.type) for each in needed}
        arrays = [found.get(each.name, pa.nulls(len(rows), each.type)) for each in self.columns]
        if self.is_of_servers:
            arrays.append(pa.array([services.server] * len(rows), TEXT))
        return pa.table(arrays, schema=self.schema)


def time_of_ms(ms: int) -> int | None:
    """A TIME from milliseconds; 0 means never."""
    return ms * 1000 if ms else None


def time_of_hybrid(hybrid: int) -> int | None:
    """A TIME from a hybrid time; 0 means never."""
    return milliseconds(hybrid) * 1000 if hybrid else None


class TableNames:
    """Names of tables by uuid, looked up once for all rows of one answer."""

    def __init__(self, services: Services) -> None:
        self._names = {one.uuid: (one.database, one.name) for one in services.catalog.tables.list()}
        for dropped in services.catalog.tables.dropped():
            self._names.setdefault(dropped.relation.uuid, (dropped.relation.database, dropped.relation.name))
        for uuid, former in services.catalog.offsets.former().items():
            self._names.setdefault(uuid, (former.database, former.name))

    def of(self, uuid: str) -> tuple[str, str]:
        """Database and name; the name is empty for a table that is gone for good."""
        return self._names.get(uuid, ("", ""))

    def row(self, uuid: str) -> dict[str, str]:
        """Return the columns `database` and `table` of a row."""
        database, name = self.of(uuid)
        return {"database": database, "table": name}
