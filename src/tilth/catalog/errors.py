"""Errors of the catalog. See also: `tilth.base.errors`."""

from __future__ import annotations

from tilth.base.errors import (
    ConflictError,
    CorruptError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    RetryError,
    TilthError,
    UnavailableError,
)


class StoreLockedError(UnavailableError):
    """another process has this catalog open"""

    code = "STORE_LOCKED"


class StoreClosedError(UnavailableError):
    """the catalog is closed"""

    code = "STORE_CLOSED"


class StoreIOError(UnavailableError):
    """the catalog's disk does not work"""

    code = "STORE_IO"


class CatalogAwayError(UnavailableError):
    """the catalog's database does not answer as it should"""

    code = "CATALOG_AWAY"


class FormerPrimaryError(UnavailableError):
    """the catalog's database is a former primary: whatever is written there is lost"""

    code = "FORMER_PRIMARY"


class CatalogExistsError(ConflictError):
    """there is a catalog already"""

    code = "CATALOG_EXISTS"


class CatalogMovedError(ConflictError):
    """this catalog was moved to another location and is in use there"""

    code = "CATALOG_MOVED"


class NotHostedError(RetryError):
    """another server hosts this"""

    code = "NOT_HOSTED"


class ServerNameTakenError(ConflictError):
    """another server of this catalog has this name, and lives"""

    code = "SERVER_NAME_TAKEN"


class ServerVersionError(UnavailableError):
    """a server of another version lives in this catalog"""

    code = "SERVER_VERSION"


CLOCK_HINT = "set the clock of this machine right, as by NTP, or raise server.clock-bound on all servers"


class ClockSkewError(UnavailableError):
    """the clock of this server is wrong: nothing is committed with its times"""

    code = "CLOCK_SKEW"


class LeaseHeldError(RetryError):
    """another server has not released it yet"""

    code = "LEASE_HELD"


class NewerFormatError(CorruptError):
    """a newer version of the program wrote this value"""

    code = "NEWER_FORMAT"


class DatabaseNotFoundError(NotFoundError):
    """no such database"""

    code = "DATABASE_NOT_FOUND"


class ReservedNameError(InvalidInputError):
    """the name is reserved"""

    code = "RESERVED_NAME"


class TableNotFoundError(NotFoundError):
    """no such table"""

    code = "TABLE_NOT_FOUND"


class TableExistsError(ConflictError):
    """the table exists already"""

    code = "TABLE_EXISTS"


class TableInUseError(ConflictError):
    """views still use the table"""

    code = "TABLE_IN_USE"


class WrongEngineError(InvalidInputError):
    """this kind of table cannot do that"""

    code = "WRONG_ENGINE"


class TxnNotFoundError(NotFoundError):
    """no such transaction"""

    code = "TXN_NOT_FOUND"


class TxnAbortedError(RetryError):
    """the transaction was aborted: nothing of it is applied"""

    code = "TXN_ABORTED"


class TxnFinishedError(ConflictError):
    """the transaction is committed already"""

    code = "TXN_FINISHED"


class OffsetsMovedError(ConflictError):
    """the stored offsets are not those that the change was computed from"""

    code = "OFFSETS_MOVED"


class SubscriptionMovedError(ConflictError):
    """the subscription of the group to the topic has changed meanwhile"""

    code = "SUBSCRIPTION_MOVED"


class PartsGoneError(ConflictError):
    """parts that the commit builds on are not visible any more"""

    code = "PARTS_GONE"


class PartsChangedError(ConflictError):
    """rows of parts that the commit builds on have changed meanwhile"""

    code = "PARTS_CHANGED"


class DeltasGoneError(ConflictError):
    """deltas that the commit builds on are not in use any more"""

    code = "DELTAS_GONE"


class ColumnsPendingError(RetryError):
    """parts do not have the table's present columns yet"""

    code = "COLUMNS_PENDING"


class LabelTakenError(ConflictError):
    """an insert with this label is committed already"""

    code = "INSERT_LABEL_TAKEN"


class FileTakenError(ConflictError):
    """another statement has loaded this file meanwhile"""

    code = "FILE_TAKEN"


class BatchLandedError(ConflictError):
    """this batch of the stream is committed already"""

    code = "STREAM_BATCH_LANDED"


class SchemaChangedError(ConflictError):
    """the table's columns have changed meanwhile"""

    code = "SCHEMA_CHANGED"


class StorageChangedError(RetryError):
    """replicas of the storage were replaced while files were written: too few of its current replicas have them"""

    code = "STORAGE_CHANGED"


class ReplicaNeededError(ConflictError):
    """no other replica has all files of a table"""

    code = "REPLICA_NEEDED"


class MutationNotFoundError(NotFoundError):
    """no such mutation"""

    code = "MUTATION_NOT_FOUND"


class MutationEndedError(ConflictError):
    """the mutation is done or was killed"""

    code = "MUTATION_ENDED"


class NothingToUndropError(NotFoundError):
    """there is nothing dropped that can be restored"""

    code = "NOTHING_TO_UNDROP"


class BadMergeError(TilthError):
    """these parts cannot be merged into one"""

    kind = ErrorKind.INVALID
    code = "BAD_MERGE"


class TooManyPartsError(RetryError):
    """a partition or the table has too many parts for another insert"""

    code = "TOO_MANY_PARTS"


class TooManyConflictsError(RetryError):
    """others committed to the same keys at every try"""

    code = "TOO_MANY_CONFLICTS"


class InvariantError(TilthError):
    """a commit would break a rule that must always hold"""

    code = "INVARIANT_BROKEN"
