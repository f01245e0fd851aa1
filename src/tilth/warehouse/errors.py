"""Errors between a server, a worker and Spark."""

from __future__ import annotations

from tilth.base.errors import (
    ConflictError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    RetryError,
    TilthError,
    UnavailableError,
)


class WrongJavaError(UnavailableError):
    """no Java that Spark can run on"""

    code = "WRONG_JAVA"


class SparkStartError(UnavailableError):
    """Spark does not start"""

    code = "SPARK_START_FAILED"


class SparkRestartingError(UnavailableError):
    """Spark is being restarted; nothing was applied"""

    code = "SPARK_RESTARTING"


class SparkAwayError(UnavailableError):
    """Spark did not come back while the statement waited for it; nothing was applied"""

    code = "SPARK_AWAY"


class SparkMemoryError(UnavailableError):
    """Spark has too little memory for this"""

    code = "SPARK_OUT_OF_MEMORY"


class SessionTakenError(UnavailableError):
    """this process already runs a worker session"""

    code = "SESSION_TAKEN"


class WarehouseInUseError(ConflictError):
    """the warehouse is in use"""

    code = "WAREHOUSE_IN_USE"


class WorkerUnfitError(InvalidInputError):
    """the worker does not meet the requirements of its warehouse"""

    code = "WORKER_UNFIT"


class WarehouseEmptyError(UnavailableError):
    """the warehouse has no workers"""

    code = "WAREHOUSE_EMPTY"


class WorkerNotFoundError(NotFoundError):
    """no such worker"""

    code = "WORKER_NOT_FOUND"


class TaskCancelledError(RetryError):
    """the task was cancelled"""

    code = "TASK_CANCELLED"


class TaskLostError(RetryError):
    """the worker no longer knows the task"""

    code = "TASK_LOST"


class TaskStalledError(UnavailableError):
    """the task made no progress and was cancelled"""

    code = "TASK_STALLED"


class WorkerBusyError(RetryError):
    """the worker does not accept the task now"""

    code = "WORKER_BUSY"


class TaskFailedError(TilthError):
    """the task failed"""

    kind = ErrorKind.INTERNAL
    code = "TASK_FAILED"


class NotAllowedError(InvalidInputError):
    """this is not allowed in a query"""

    code = "NOT_ALLOWED"


class UnknownFunctionError(InvalidInputError):
    """no such function"""

    code = "UNKNOWN_FUNCTION"


class TooComplexError(InvalidInputError):
    """the statement is too complex"""

    code = "TOO_COMPLEX"
