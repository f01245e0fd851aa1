"""Errors of statements. See also: grammar/errors.py for text that cannot be read."""

from __future__ import annotations

from tilth.base.errors import (
    ConflictError,
    CorruptError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
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


class UnknownVersionError(InvalidInputError):
    """the table has no such version, or not any more"""

    code = "UNKNOWN_VERSION"


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


class UnknownFormatError(InvalidInputError):
    """unknown output format"""

    code = "UNKNOWN_OUTPUT_FORMAT"


class BadValueError(InvalidInputError):
    """a value does not fit its column"""

    code = "BAD_VALUE"


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


class RowsBusyError(RetryError):
    """others changed the same rows at every try"""

    code = "ROWS_BUSY"


class MutationKilledError(ConflictError):
    """the mutation was killed"""

    code = "MUTATION_KILLED"


class MutationNotDoneError(ConflictError):
    """the mutation is committed, but not done yet"""

    code = "MUTATION_NOT_DONE"


class MutationFailedError(ConflictError):
    """the mutation is committed, but fails on a part"""

    code = "MUTATION_FAILED"


class WrongKindOfTableError(InvalidInputError):
    """this kind of table cannot do that"""

    code = "WRONG_KIND_OF_TABLE"


class ReadOnlyError(ConflictError):
    """system tables cannot be changed"""

    code = "READ_ONLY"


class PartitionNotFoundError(NotFoundError):
    """no such partition"""

    code = "PARTITION_NOT_FOUND"


class SnapshotLostError(RetryError):
    """files that the statement reads were removed, for its server did not run for too long"""

    code = "SNAPSHOT_LOST"


class DamagedPartError(CorruptError):
    """a part of the table cannot be read"""

    code = "PART_DAMAGED"


class DamagedPartsNotSkippedError(InvalidInputError):
    """a statement that changes or copies rows cannot leave out damaged parts"""

    code = "DAMAGED_PARTS_NOT_SKIPPED"
