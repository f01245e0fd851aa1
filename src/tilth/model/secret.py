"""What belongs to a table and nobody may read: passwords and keys.

Always holds: its `repr` shows names only, so that no message, log line or traceback shows a value.
"""

from __future__ import annotations

import msgspec


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """Of one relation. Its definition has what people may see in the place of each."""

    #: Texts of settings, by canonical name.
    settings: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Secrets({', '.join(sorted(self.settings))})"
