"""Waiting times between tries: exponential, with a ceiling. Pure."""

from __future__ import annotations

#: Ingestion (POLICIES.md 10.3): 100 ms * 2**min(n, 10).
INGEST_BACKOFF_BASE_MS = 100
INGEST_BACKOFF_DOUBLINGS_MAX = 10


def backoff_ms(failures: int, *, base_ms: int, doublings_max: int) -> int:
    """`base_ms * 2**min(failures, doublings_max)`, in milliseconds."""
    return int(base_ms * 2 ** min(failures, doublings_max))
