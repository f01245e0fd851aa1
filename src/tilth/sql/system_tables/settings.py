"""`system.settings`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.base.settings import Scope
from tilth.base.sources import Source
from tilth.sql.context.services import Services
from tilth.sql.settings import all_settings
from tilth.sql.system_tables.table import FLAG, TEXT, TEXTS, ColumnDoc, Row, SystemTable


def _rows(services: Services) -> Iterator[Row]:
    given = services.node_settings
    for setting in all_settings(services.upper_settings):
        text = given.texts.get(setting.name) if setting.scope is Scope.NODE else None
        yield Row(
            setting,
            value=setting.default_text if text is None else setting.shown(text),
            default_value=setting.default_text,
            is_set=text is not None,
            aliases=list(setting.aliases),
            source=(Source.DEFAULT if text is None else given.source(setting.name)).value,
        )


TABLE = SystemTable(
    name="settings",
    doc="One row for each setting of every scope. Values of tables are in SHOW CREATE TABLE.",
    columns=(
        ColumnDoc("name", TEXT, "The setting."),
        ColumnDoc("scope", TEXT, "`node`, `table`, `kafka` or `session`."),
        ColumnDoc("value", TEXT, "Of a node's setting: its value; of others: the default."),
        ColumnDoc("default_value", TEXT, "What holds where nothing is said."),
        ColumnDoc("is_set", FLAG, "Whether this node was given a value."),
        ColumnDoc("unit", TEXT, "What its number counts."),
        ColumnDoc("allowed", TEXT, "What it may be."),
        ColumnDoc("aliases", TEXTS, "Further names."),
        ColumnDoc("doc", TEXT, "What gets better and what gets worse in each direction."),
        ColumnDoc(
            "source", TEXT, "Where the value comes from: `default`, `file`, `environment` or `flag` (or a program)."
        ),
    ),
    rows=_rows,
)
