"""Secrets of stores, read by reference in the process that needs them.

Always holds: no message has more of a secret than the reference to it.
"""

from __future__ import annotations

import os

from tilth.storage.errors import StoreSecretError

#: A key is one line.
SECRET_BYTES_MAX = 16 << 10


def secret_of(reference: str) -> str:
    """Return the value of `env:NAME`, or what stands in `file:/path`. Raises StoreSecretError."""
    kind, _, name = reference.partition(":")
    if kind == "env":
        value = os.environ.get(name, "")
        if not value:
            raise StoreSecretError(
                "a variable with a secret of a store is not set",
                variable=name,
                hint="set it for every process of Tilth",
            )
        return value
    try:
        with open(name, "rb") as file:
            value = file.read(SECRET_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise StoreSecretError(
            "a file with a secret of a store cannot be read", file=name, reason=reason, hint="check its path and mode"
        ) from None
    if not value:
        raise StoreSecretError("a file with a secret of a store is empty", file=name, hint="write the secret into it")
    return value
