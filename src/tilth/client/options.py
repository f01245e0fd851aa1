"""Options of commands, apart from what the commands do: `tilth serve` would import that for nothing."""

from __future__ import annotations

from enum import StrEnum


class OutputFormat(StrEnum):
    """Format of printed rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    NDJSON = "ndjson"
