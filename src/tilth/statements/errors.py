"""Errors that statements alone raise. See also: query/errors.py."""

from __future__ import annotations

from tilth.base.errors import ConflictError, InvalidInputError


class BadAlterError(InvalidInputError):
    """this change of the table is not possible"""

    code = "BAD_ALTER"


class ColumnBusyError(ConflictError):
    """a mutation that is not done names this column"""

    code = "COLUMN_BUSY"


class ComputedColumnError(InvalidInputError):
    """the value of this column is computed from the others of its row"""

    code = "COMPUTED_COLUMN"


class MutationNotDoneError(ConflictError):
    """the mutation is committed, but not done yet"""

    code = "MUTATION_NOT_DONE"


class BadCopyOptionError(InvalidInputError):
    """an option of COPY INTO is not valid"""

    code = "BAD_COPY_OPTION"


class FileChangedError(ConflictError):
    """a file has changed since it was loaded"""

    code = "FILE_CHANGED"


class ExportRunsError(ConflictError):
    """another statement exports to this folder"""

    code = "EXPORT_RUNS"
