"""How long what was dropped can be brought back: tables by the node's setting, partitions by their table's."""

from __future__ import annotations

from typing import Any

from tilth.base.settings import BadSettingError, Setting
from tilth.base.units import show_time
from tilth.catalog import Catalog
from tilth.maintenance import NODE_SETTINGS, TABLE_SETTINGS, GcSettings, gc_settings
from tilth.model.part import DataFile, Part
from tilth.model.table import TableDef
from tilth.sql.services import Services

#: Items of the trash that are read at once.
_BATCH = 1000


def gc_settings_of(table: TableDef) -> GcSettings:
    """What the collecting of the table is given."""
    return gc_settings({each.name: _value(each, table.settings.get(each.name)) for each in TABLE_SETTINGS.all})


def trash_lifetime_ms(table: TableDef) -> int:
    """How long the table's trash keeps what it holds, counted from when it was hidden."""
    return round(gc_settings_of(table).trash_lifetime * 1000)


def dropped_keep_ms(services: Services) -> int:
    """How long a dropped table is kept."""
    setting = NODE_SETTINGS.find("dropped_table_keep_seconds")
    given = services.node_settings.get(setting.name)
    return int((setting.default if given is None else setting.read(given)) * 1000)


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


def told_time(at_ms: int) -> str:
    """A time for messages, in UTC."""
    return show_time(at_ms)


# Any: settings of every type stand in one list.
def _value(setting: Setting[Any], given: str | None) -> object:
    """One that an older version allowed counts as not given; collecting says so."""
    if given is None:
        return setting.default
    try:
        return setting.read(given)
    except BadSettingError:
        return setting.default
