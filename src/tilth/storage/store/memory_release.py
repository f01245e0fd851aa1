"""Memory that this process holds and does not use, given back to the system.

Covers: Arrow's pool, the allocator of C. Does not cover: when (maintenance/memory/relief.py), the memory of a JVM.

Tests: tests/unit/maintenance/memory/test_relief.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import pyarrow as pa


def release_unused() -> None:
    """Give back what Arrow and the allocator keep for later. Does nothing where the allocator has no such call."""
    pa.default_memory_pool().release_unused()
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    """Return glibc's `malloc_trim`; None: this is another library of C."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return trim
