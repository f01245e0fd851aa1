"""Errors of statements. See also: grammar/errors.py for text that cannot be read."""

from __future__ import annotations

from tilth.base.errors import (
    ConflictError,
    CorruptError,
    ErrorKind,
    InvalidInputError,
    RetryError,
    TilthError,
)


class UnknownColumnError(InvalidInputError):
    """no such column"""

    code = "UNKNOWN_COLUMN"


class ComputedColumnError(InvalidInputError):
    """the value of this column is computed from the others of its row"""

    code = "COMPUTED_COLUMN"


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
    """a part of the result was lost on its way"""

    code = "RESULT_LOST"


class InsertTooLargeError(InvalidInputError):
    """the rows of this INSERT are larger than allowed"""

    code = "INSERT_TOO_LARGE"


class BadDefinitionError(InvalidInputError):
    """the definition of the table contradicts itself"""

    code = "BAD_DEFINITION"


class BadAlterError(InvalidInputError):
    """this change of the table is not possible"""

    code = "BAD_ALTER"


class ColumnBusyError(ConflictError):
    """a mutation that is not done names this column"""

    code = "COLUMN_BUSY"


class BadMutationError(InvalidInputError):
    """this expression cannot change rows"""

    code = "BAD_MUTATION"


class KeyColumnUpdateError(BadMutationError):
    """UPDATE cannot change a column of UNIQUE KEY"""

    code = "KEY_COLUMN_UPDATE"


class MutationNotDoneError(ConflictError):
    """the mutation is committed, but not done yet"""

    code = "MUTATION_NOT_DONE"


class WrongKindOfTableError(InvalidInputError):
    """this kind of table cannot do that"""

    code = "WRONG_KIND_OF_TABLE"


class SnapshotLostError(RetryError):
    """files that the statement reads were removed, for its server did not run for too long"""

    code = "SNAPSHOT_LOST"


class DamagedPartError(CorruptError):
    """a part of the table cannot be read"""

    code = "PART_DAMAGED"
