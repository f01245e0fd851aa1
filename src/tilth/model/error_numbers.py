"""Numbers of ClickHouse's and ByConity's errors, for tools that match them. Pure.

Covers: the number for each code of Tilth. Does not cover: the codes (the errors' classes).
Sources: `src/Common/ErrorCodes.cpp` of ClickHouse, and of ByConity (023ca3c) for numbers from 5000 on.
"""

from __future__ import annotations

from tilth.base.errors import ErrorKind, TilthError

#: Numbers by code.
NUMBERS = {
    "BAD_ARGUMENTS": 42,
    "BAD_BODY": 117,
    "BAD_COLUMN": 53,
    "BAD_QUERY": 80,
    "BAD_VALUE": 53,
    "BAD_VIEW": 80,
    "BROKEN_MESSAGE": 117,
    "CATALOG_AWAY": 8053,
    "CATALOG_BUSY": 8053,
    "COLUMN_BUSY": 517,
    "COMPUTED_COLUMN": 44,
    "DATABASE_EXISTS": 82,
    "DATABASE_NOT_EMPTY": 219,
    "DATABASE_NOT_FOUND": 81,
    "DELTA_FILE_CORRUPT": 40,
    "DELTA_FILE_NOT_FOUND": 107,
    "INSERT_LABEL_TAKEN": 5035,
    "INSERT_TOO_LARGE": 307,
    "KAFKA_UNAVAILABLE": 279,
    "KEY_COLUMN_UPDATE": 420,
    "MEMORY_PRESSURE": 241,
    "MUTATION_FAILED": 341,
    "MUTATION_NOT_DONE": 341,
    "NODE_STOPPING": 236,
    "NOT_ALLOWED": 446,
    "PARTITION_NOT_FOUND": 257,
    "PART_FILE_CORRUPT": 40,
    "PART_FILE_NOT_FOUND": 107,
    "QUERY_WAS_CANCELLED": 394,
    "QUORUM_NOT_MET": 285,
    "READ_ONLY": 164,
    "READONLY_SETTING": 164,
    "RESERVED_NAME": 357,
    "RESULT_TOO_LARGE": 396,
    "ROWS_BUSY": 11008,
    "SERVICE_TOKEN_NOT_SET": 516,
    "SERVICE_TOKEN_REFUSED": 516,
    "SPARK_OUT_OF_MEMORY": 241,
    "STORAGE_NOT_FOUND": 478,
    "STORE_FULL": 243,
    "SYNTAX_ERROR": 62,
    "TABLE_EXISTS": 57,
    "TABLE_IN_USE": 630,
    "TABLE_NOT_FOUND": 60,
    "TIMEOUT_EXCEEDED": 159,
    "TOO_COMPLEX": 167,
    "TOO_MANY_CONFLICTS": 11003,
    "TOO_MANY_PARTS": 252,
    "TOO_MANY_STATEMENTS": 202,
    "TXN_ABORTED": 11002,
    "TYPE_NOT_SUPPORTED": 50,
    "UNIQUE_KEY_NULL": 349,
    "UNKNOWN_COLUMN": 47,
    "UNKNOWN_FUNCTION": 46,
    "UNKNOWN_OUTPUT_FORMAT": 73,
    "UNKNOWN_SETTING": 115,
    "UNSUPPORTED_SYNTAX": 48,
    "WAREHOUSE_EMPTY": 7107,
    "WAREHOUSE_EXISTS": 5037,
    "WAREHOUSE_IN_USE": 5043,
    "WAREHOUSE_NOT_FOUND": 5025,
    "WRONG_ENGINE": 48,
    "WRONG_KIND_OF_TABLE": 48,
}
#: Numbers of all other codes, by kind.
NUMBERS_OF_KINDS = {
    ErrorKind.INVALID: 36,
    ErrorKind.UNKNOWN_OUTCOME: 319,
    ErrorKind.CORRUPT: 246,
    ErrorKind.INTERNAL: 49,
}
#: Number of an error without a counterpart: UNKNOWN_EXCEPTION.
OTHER_NUMBER = 1002


def number_of(error: TilthError | type[TilthError]) -> int:
    """Return the number of the error that is most like this one."""
    return NUMBERS.get(error.code, NUMBERS_OF_KINDS.get(error.kind, OTHER_NUMBER))
