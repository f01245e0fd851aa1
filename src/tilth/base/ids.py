"""Identifiers without meaning, as something that is handed in."""

from __future__ import annotations

import uuid
from collections.abc import Callable

#: Returns a new identifier at each call: 32 hexadecimal digits.
IdSource = Callable[[], str]


def random_id() -> str:
    """Return a random UUID as 32 hexadecimal digits."""
    return uuid.uuid4().hex
