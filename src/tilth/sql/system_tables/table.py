"""What a system table is: a name, documented columns, and rows on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from tilth.base.hybrid import milliseconds
from tilth.sql.services import Services

TEXT = pa.string()
TEXTS = pa.list_(pa.string())
INTEGER = pa.int64()
NUMBER = pa.float64()
FLAG = pa.bool_()
#: Microseconds since 1970, UTC.
TIME = pa.timestamp("us", tz="UTC")

#: A row's values in the order of the columns.
Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class ColumnDoc:
    name: str
    type: pa.DataType
    #: One sentence, for the reference.
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTable:
    name: str
    #: What a row stands for.
    doc: str
    columns: tuple[ColumnDoc, ...]
    rows: Callable[[Services], Iterable[Row]]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    def build(self, services: Services) -> pa.Table:
        """The rows as of now."""
        rows = list(self.rows(services))
        values = zip(*rows, strict=True) if rows else [()] * len(self.columns)
        arrays = [pa.array(list(cells), column.type) for cells, column in zip(values, self.columns, strict=True)]
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
