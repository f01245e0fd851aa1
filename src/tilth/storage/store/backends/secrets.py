"""Secrets of stores, read by reference in the process that needs them (base/secret_source.py)."""

from __future__ import annotations

import os

from tilth.base.secret_source import read_secret
from tilth.storage.errors import StoreSecretError


def secret_of(reference: str) -> str:
    """Return the value of `env:NAME`, or what stands in `file:/path`. Raises StoreSecretError."""
    return read_secret(reference, os.environ, of="a store", error=StoreSecretError)
