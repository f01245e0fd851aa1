"""`system.metrics`"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import NUMBER, TEXT, ColumnDoc, Row, SystemTable


def _rows(services: Services) -> Iterator[Row]:
    yield from _numbers("catalog", services.catalog.stats())
    yield from _numbers("warehouse", services.dispatcher.stats())
    yield from _numbers("maintenance", services.maintenance.numbers())


def _numbers(room: str, stats: object, prefix: str = "") -> Iterator[Row]:
    """The numeric fields of a room's stats, and of what stands in them."""
    if not is_dataclass(stats):
        return
    for field in fields(stats):
        value = getattr(stats, field.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield Row(name=f"{room}_{prefix}{field.name}", value=float(value), room=room)
        else:
            yield from _numbers(room, value, f"{prefix}{field.name}_")


TABLE = SystemTable(
    name="metrics",
    doc="One row for each number that a room keeps of itself.",
    columns=(
        ColumnDoc("name", TEXT, "The metric."),
        ColumnDoc("value", NUMBER, "Its value now."),
        ColumnDoc("room", TEXT, "The room that keeps it."),
    ),
    rows=_rows,
)
