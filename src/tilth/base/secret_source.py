"""Secrets by reference: `env:NAME` or `file:/path`, read in the process that needs them.

Covers: the form of references, reading. Does not cover: which settings are references (each room).
Always holds: no error message contains a secret, only the reference to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilth.base.errors import TilthError
from tilth.base.units import KIB

#: Pattern of a reference, and its description for messages.
REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/.+")
REFERENCE_FORM = "env:NAME or file:/path"
#: Greatest size of a file with a secret, which is one line.
SECRET_BYTES_MAX = 16 * KIB


def read_secret(reference: str, environment: Mapping[str, str], *, of: str, error: type[TilthError]) -> str:
    """Return the secret without surrounding blanks. Raises `error`, whose message names `of`, the secret's user."""
    kind, _, name = reference.partition(":")
    if kind == "env":
        value = environment.get(name, "").strip()
        if not value:
            hint = "set it for every process of Tilth"
            raise error(f"a variable with a secret of {of} is not set", variable=name, hint=hint)
        return value
    try:
        with open(name, "rb") as file:
            found = file.read(SECRET_BYTES_MAX + 1)
        value = found.decode().strip()
    except (OSError, UnicodeDecodeError) as failed:
        reason = failed.strerror if isinstance(failed, OSError) else "it is not text"
        message = f"a file with a secret of {of} cannot be read"
        raise error(message, file=name, reason=reason, hint="check its path and mode") from None
    if not value:
        raise error(f"a file with a secret of {of} is empty", file=name, hint="write the secret into it")
    if len(found) > SECRET_BYTES_MAX:
        message = f"a file with a secret of {of} is too long for one"
        raise error(message, file=name, bytes_max=SECRET_BYTES_MAX, hint="check its path: a secret is one line")
    return value
