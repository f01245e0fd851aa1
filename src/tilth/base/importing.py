"""Imports of many modules at a start, during which no garbage is collected."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Collect no garbage while modules are imported: they are none, and are never scanned again. A tenth of the time
    of the imports of a node.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
