"""Rows that a client sends as an Arrow stream, in no more memory than an INSERT may take.

Covers: the limit and its error. Does not cover: sizes (query/language/unpacked.py), what becomes of the rows
(insert.py).
"""

from __future__ import annotations

import pyarrow as pa

from tilth.base.errors import InvalidInputError
from tilth.query.language.unpacked import read_stream

_HINT = "send fewer rows at once, use INSERT .. SELECT, or raise the setting max_insert_bytes"


def read_rows(stream: bytes, bytes_max: int) -> pa.Table:
    """Return the rows of a stream.

    Raises InvalidInputError (INSERT_TOO_LARGE) before they take more than `bytes_max`, and Arrow's errors for what is
    no such stream.
    """
    return read_stream(stream, bytes_max, lambda size: too_large(size, bytes_max))


def check_size(size: int, bytes_max: int) -> None:
    """Raises InvalidInputError (INSERT_TOO_LARGE)."""
    if size > bytes_max:
        raise too_large(size, bytes_max)


def too_large(size: int, bytes_max: int, *, hint: str = _HINT) -> InvalidInputError:
    """Return the error of rows, or of a body, of at least this size."""
    return InvalidInputError.coded(
        "INSERT_TOO_LARGE",
        "the rows of this INSERT are larger than allowed",
        bytes=size,
        bytes_max=bytes_max,
        hint=hint,
    )
