"""Queries over system tables that may take long, each in a process of its own: nothing interrupts DataFusion's joins.

Covers: which queries, starting the process, its end. Does not cover: what it does (system_query_child.py).
Always holds: the process is gone when the answer is there, and soon after its statement was cancelled.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping

import pyarrow as pa
from sqlglot import exp

from tilth.base.cancel import raise_if_cancelled, reaching
from tilth.base.errors import UnavailableError
from tilth.introspection import system_query_child
from tilth.query.errors import BadQueryError

#: Rows of all tables that a query names, multiplied: up to so many, a query is fast even if all are joined with all.
PAIRS_MAX = 2_000_000
#: Functions that make many rows, or long texts, of one.
_ENDLESS = frozenset(
    {"explode", "posexplode", "unnest", "sequence", "generate_series", "range", "repeat", "array_repeat", "space"}
    | {"lpad", "rpad"}
)
_REASON_CHARACTERS_MAX = 500


def may_run_long(tree: exp.Expr, rows: Mapping[str, int]) -> bool:
    """Return whether the query may compute for long over tables with so many rows."""
    pairs = math.prod(max(1, rows.get(table.name.lower(), 1)) for table in tree.find_all(exp.Table))
    if pairs > PAIRS_MAX:
        return True
    if any(scope.args.get("recursive") for scope in tree.find_all(exp.With)):
        return True
    return any(tree.find_all(exp.Lateral, exp.Unnest)) or any(
        _name(call) in _ENDLESS for call in tree.find_all(exp.Func)
    )


def _name(call: exp.Func) -> str:
    return (call.name if isinstance(call, exp.Anonymous) else call.sql_name()).lower()


class _Process:
    """The process, as something that a statement waits for."""

    id = ""

    def __init__(self) -> None:
        command = [sys.executable, "-P", system_query_child.__file__]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)

    def cancel(self) -> None:
        self._process.kill()

    abandon = cancel

    def answer(self, question: bytes) -> tuple[bytes, str, int]:
        """Return rows, reason, exit code; the process has ended."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            try:
                process.stdin.write(question)
                process.stdin.flush()
            except BrokenPipeError:
                # It was killed, or says below why it ended.
                pass
            rows, reason = process.stdout.read(), process.stderr.read()
        finally:
            process.kill()
            code = process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                _close(pipe)
        return rows, reason.decode(errors="replace"), code


# Any: a pipe of the process.
def _close(pipe: object) -> None:
    try:
        pipe.close()  # type: ignore[attr-defined]
    except BrokenPipeError:
        return


def answered_apart(text: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows. Raises BadQueryError, UnavailableError, and why the statement was cancelled."""
    raise_if_cancelled()
    question = system_query_child.question(text, tables)
    try:
        process = _Process()
    except OSError as error:
        raise UnavailableError("no process could be started for the query", reason=error, hint="try again") from error
    with reaching(process):
        rows, reason, code = process.answer(question)
    raise_if_cancelled()
    if code and reason.strip():
        raise BadQueryError(reason.strip().splitlines()[-1][:_REASON_CHARACTERS_MAX])
    if code:
        hint = "it may need too much memory: select fewer rows"
        raise UnavailableError("the process of the query ended", exit_code=code, hint=hint)
    with pa.ipc.open_stream(rows) as reader:
        return reader.read_all()
