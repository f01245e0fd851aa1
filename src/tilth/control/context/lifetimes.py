"""Time for which a drop can be undone: of tables by the node's setting, of partitions by their table's.

Tests: tests/unit/maintenance/gc/test_explain_gc.py.
"""

from __future__ import annotations

from tilth.base.settings import read_settings
from tilth.catalog import Catalog
from tilth.control.context.services import Services
from tilth.maintenance import ManagerSettings, gc_settings
from tilth.model.part import DataFile, Part
from tilth.model.table import TableDef

#: Items of the trash that are read at once.
_BATCH = 1000


def trash_lifetime_ms(table: TableDef) -> int:
    """Milliseconds for which the table's trash keeps an item, counted from when it was hidden."""
    return round(gc_settings(table.settings).trash_lifetime * 1000)


def dropped_keep_ms(services: Services) -> int:
    return int(read_settings(ManagerSettings, services.node_settings.texts).dropped_table_keep * 1000)


def files_of(catalog: Catalog, table: str) -> list[DataFile]:
    """Files of a table, or a dropped one, that the catalog still knows: of parts, deltas and the trash."""
    files = [entry.file for entry in catalog.parts.all_entries(table) if isinstance(entry, Part)]
    files += (delta.file for delta in catalog.parts.deltas(table, is_all=True))
    after: bytes | None = None
    while True:
        items, after = catalog.trash.items(table, after=after, limit=_BATCH)
        files += (each.item.part.file for each in items)
        if after is None:
            return files
