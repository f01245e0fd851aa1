"""Errors of reads in a user's Spark, and their words in an error of Spark.

Spark hands an error of a data source on as text, so that the kind and the code must be in it.

Tests: tests/unit/datasource/test_rows.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilth.base.errors import InvalidInputError, TilthError, UnavailableError


class SparkOptionError(InvalidInputError):
    """the option of the data source is not valid"""

    code = "BAD_SPARK_OPTION"


class NotAttachedError(InvalidInputError):
    """the Spark session is not attached to a server"""

    code = "NOT_ATTACHED"


class RootUnreadableError(UnavailableError):
    """this executor cannot read the table's files"""

    code = "ROOT_NOT_READABLE"


class ColumnsChangedError(InvalidInputError):
    """the columns of the DataFrame are not those of the table"""

    code = "COLUMNS_CHANGED"


class SaidError(Exception):
    """An error as a text that names kind, code, what happened and what to do."""


@contextmanager
def said() -> Iterator[None]:
    """Raise errors with their kind and code in the text, which is all that Spark hands on."""
    try:
        yield
    except TilthError as error:
        raise SaidError(text_of(error)) from error


def text_of(error: TilthError) -> str:
    """Return `[CODE] (kind) message; what to do: hint`."""
    hint = f"; what to do: {error.hint}" if error.hint else ""
    return f"[{error.code}] ({error.kind.value}) {error.message}{hint}"
