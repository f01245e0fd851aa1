"""Options that several commands or modules have; `tilth serve` would import the commands that use them for nothing."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tilth.base.settings import LogSettings, setting_of
from tilth.base.sources import CONFIG_VARIABLE
from tilth.client.settings import URL_VARIABLE

#: Setting of the node that is an option, too.
LOG_FORMAT = setting_of(LogSettings, "format")

UrlOption = Annotated[str, typer.Option(help="The server's address.", envvar=URL_VARIABLE)]
DatabaseOption = Annotated[str, typer.Option("-d", "--database", help="The default database.")]
SettingsOption = Annotated[
    list[str] | None, typer.Option("--set", help="A node setting, name=value; may be given several times.")
]
ConfigOption = Annotated[Path | None, typer.Option(help="A file in TOML with node settings.", envvar=CONFIG_VARIABLE)]
LogFormatOption = Annotated[str | None, typer.Option(help=LOG_FORMAT.doc)]


class OutputFormat(StrEnum):
    """Format of printed rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    NDJSON = "ndjson"
