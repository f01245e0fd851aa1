"""Work of statements in Spark that is done again, because its JVM or its worker was lost before anything was answered.

Covers: which errors are a loss, how often work is sent again, what is noted of it. Does not cover: waiting until Spark
is back (warehouse/tasks/state.py), rows that are on their way to a client (query/results/stream.py).
Always holds: only work that reads is sent here; each statement's is sent again once at most, for it may be the reason
why the JVM ended; nothing is sent again of a statement that was cancelled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.base.metrics import counter
from tilth.control.running import Running, RunningStatements
from tilth.warehouse import SparkRestartingError, TaskLostError

_log = Log("sql")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementStats:
    """Counts of statements since the start."""

    sent_again: int = counter(
        "tilth_statements_sent_again_total",
        "Statements whose work in Spark was lost with its JVM or worker before anything was answered, and done again.",
    )


class Resends:
    """The losses of all statements of this server; from any thread."""

    def __init__(self, running: RunningStatements) -> None:
        self._running = running
        self._lock = threading.Lock()
        self._sent_again = 0

    def stats(self) -> StatementStats:
        return StatementStats(sent_again=self._sent_again)

    def once_more(self, send: Callable[[bool], T]) -> T:
        """Return what `send` returns; where its work is lost, call it once more, with True. For the thread of a
        statement.
        """
        statement = self._running.current()
        try:
            return send(False)
        except TilthError as error:
            self.note(statement, error)
        return send(True)

    def note(self, statement: Running | None, error: TilthError) -> None:
        """Note that the work that ended with this error is sent again. Raises the error if it must not be, and why the
        statement was cancelled. `statement`: None for work of no statement, or of several.
        """
        if not isinstance(error, SparkRestartingError | TaskLostError):
            raise error
        if statement is not None:
            statement.origin.cancellation.raise_if_cancelled()
        with self._lock:
            if statement is not None:
                if statement.sent_again:
                    raise error
                statement.sent_again = f"{error.code}: {error.message}"
            self._sent_again += 1
        cause_id = "-" if statement is None else statement.query_id
        _log.warning("statement_sent_again", cause_id=cause_id, code=error.code, reason=error.message)
