"""The service token: what every call between processes carries.

Covers: where it comes from, its form, comparing. Does not cover: routes that require it (tilth.server).
Always holds: no error and no log line shows it; comparing lasts as long for a wrong one as for the right one.

Tests: tests/unit/warehouse/remote/test_channel.py.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping

from tilth.base.logs import hide_in_lines
from tilth.warehouse.remote.errors import BadTokenError

#: The variable of the environment that holds it.
VARIABLE = "TILTH_SERVICE_TOKEN"
HEADER = "authorization"
_FORM = re.compile(r"[!-~]{16,1024}")
_HINT = "16 to 1024 visible ASCII characters without blanks, as `openssl rand -hex 32` makes them"


def service_token(file: str, environment: Mapping[str, str]) -> str:
    """Return the token in the file, else that in the environment; empty: there is none. Raises BadTokenError."""
    token = _in_file(file) if file else environment.get(VARIABLE, "")
    if token and not _FORM.fullmatch(token):
        where = {"file": file} if file else {"variable": VARIABLE}
        raise BadTokenError(**where, hint=_HINT)
    if token:
        hide_in_lines([token])
    return token


def _in_file(file: str) -> str:
    try:
        with open(file, "rb") as opened:
            token = opened.read(2048).decode("ascii", "replace").strip()
    except OSError as error:
        hint = "give the path of a file that this process can read"
        raise BadTokenError(
            "the file of the service token cannot be read", file=file, reason=error.strerror, hint=hint
        ) from error
    if not token:
        raise BadTokenError("the file of the service token is empty", file=file, hint=_HINT)
    return token


def header_of(token: str) -> str:
    """Return the value of the header that carries the token."""
    return f"Bearer {token}"


def is_token(header: str, token: str) -> bool:
    """Return whether the header carries this token."""
    return hmac.compare_digest(header.encode("utf-8", "replace"), header_of(token).encode())
