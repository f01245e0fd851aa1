"""Passwords and keys of a table.

Always holds: `repr` shows names only, so that no message, log line or traceback shows a value.
"""

from __future__ import annotations

import msgspec


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets of one relation; its definition holds the redacted texts."""

    #: Full texts of settings, by canonical name.
    settings: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Secrets({', '.join(sorted(self.settings))})"
