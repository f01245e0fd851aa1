"""Errors of queries, and of what definitions and expressions share with them.

See also: grammar/errors.py for text that cannot be read, statements/errors.py.
"""

from __future__ import annotations

from tilth.base.errors import (
    ErrorKind,
    InvalidInputError,
    RetryError,
    TilthError,
)


class UnknownColumnError(InvalidInputError):
    """no such column"""

    code = "UNKNOWN_COLUMN"


class BadQueryError(InvalidInputError):
    """the query cannot be answered"""

    code = "BAD_QUERY"


class QueryFailedError(TilthError):
    """the query failed while it ran"""

    kind = ErrorKind.INTERNAL
    code = "QUERY_FAILED"


class ResultTooLargeError(InvalidInputError):
    """the result is larger than allowed"""

    code = "RESULT_TOO_LARGE"


class ResultLostError(RetryError):
    """rows of the result are lost"""

    code = "RESULT_LOST"


class BadDefinitionError(InvalidInputError):
    """the definition of the table contradicts itself"""

    code = "BAD_DEFINITION"


class BadMutationError(InvalidInputError):
    """this expression cannot change rows"""

    code = "BAD_MUTATION"


class WrongKindOfTableError(InvalidInputError):
    """this kind of table cannot do that"""

    code = "WRONG_KIND_OF_TABLE"


class SnapshotLostError(RetryError):
    """files that the statement reads were removed, for its server did not run for too long"""

    code = "SNAPSHOT_LOST"


class BadFileRowError(InvalidInputError):
    """a row of a file cannot be stored"""

    code = "BAD_FILE_ROW"


class UnreadableFileError(InvalidInputError):
    """a file cannot be read in this format"""

    code = "FILE_UNREADABLE"
