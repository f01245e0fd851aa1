"""Imports of many modules at a start, during which no garbage is collected."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Collect no garbage during imports, and leave what is there at their end out of all later collections: modules
    stay until the process ends. It saves a tenth of the time in which a node imports its modules.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
