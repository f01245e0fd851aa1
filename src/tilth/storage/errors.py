"""Errors with a table's bytes."""

from __future__ import annotations

from collections.abc import Sequence

from tilth.base.errors import CorruptError, InvalidInputError, RetryError, UnavailableError


class PartFileCorruptError(CorruptError):
    """a part file is damaged"""

    code = "PART_FILE_CORRUPT"


class PartFileNotFoundError(CorruptError):
    """a part file is missing"""

    code = "PART_FILE_NOT_FOUND"


class DeltaFileCorruptError(CorruptError):
    """a file with changes of rows is damaged"""

    code = "DELTA_FILE_CORRUPT"


class DeltaFileNotFoundError(CorruptError):
    """a file with changes of rows is missing"""

    code = "DELTA_FILE_NOT_FOUND"


class StoreAwayError(UnavailableError):
    """the folder of a table's files is not there"""

    code = "STORE_AWAY"


class StoreRefusedError(UnavailableError):
    """the store refuses the request"""

    code = "STORE_REFUSED"


class StoreBusyError(RetryError):
    """the store did not answer in time, or demands fewer requests"""

    code = "STORE_BUSY"


class QuorumError(UnavailableError):
    """fewer copies of a file could be made than a commit needs"""

    code = "QUORUM_NOT_MET"


class FilesLeftError(UnavailableError):
    """files cannot be removed"""

    code = "FILES_LEFT"

    def __init__(self, left: Sequence[str], **facts: object) -> None:
        super().__init__(None, hint="", **facts)
        #: Paths of those that no other search for names of their transaction finds.
        self.left = tuple(left)


class StoreSecretError(UnavailableError):
    """a secret of a store cannot be read"""

    code = "STORE_SECRET"


class PartShapeUnknownError(CorruptError):
    """the columns of a part are not known"""

    code = "PART_SHAPE_UNKNOWN"


class BadColumnError(InvalidInputError):
    """the values do not fit the column"""

    code = "BAD_COLUMN"


class UniqueKeyNullError(InvalidInputError):
    """a row has no value in a column of the unique key"""

    code = "UNIQUE_KEY_NULL"


class UnmappedTypeError(InvalidInputError):
    """this type cannot be stored"""

    code = "TYPE_NOT_SUPPORTED"


class BadPartitionError(InvalidInputError):
    """this partition transform does not fit its column"""

    code = "BAD_PARTITION_TRANSFORM"
