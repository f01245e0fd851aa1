"""Prepared statements of the store, sent through libpq with binary parameters.

Covers: preparing a statement once for a connection, the binary form of parameters, errors. Does not cover: texts
(postgres_schema.py), the callers (postgres.py), long answers: there psycopg's cursors are as fast.
Always holds: one question is one round trip; an error is psycopg's own class. A cursor spends as long on the lists of a
commit as the database on the commit (docs/design/0006-measured.md).

Tests: tests/integration/catalog/test_postgres_kv.py.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from psycopg import Connection, OperationalError, errors
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import TupleRow

_BINARY = 1
_BYTEA, _INT8 = 17, 20
_INT4_FORM = struct.Struct(">i")
_INT8_FORM = struct.Struct(">q")
#: Dimensions, no flags of nulls, type of the elements; then length and lower bound of the one dimension.
_LIST_FORM = struct.Struct(">iiIii")
_EMPTY = {kind: struct.pack(">iiI", 0, 0, kind) for kind in (_BYTEA, _INT8)}
_INT8_ELEMENT = struct.Struct(">iq")

_ANSWERED = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class PreparedStatements:
    """The prepared statements of one connection. For one thread."""

    def __init__(self, connection: Connection[TupleRow]) -> None:
        self._connection = connection
        self._names: dict[str, bytes] = {}

    def execute(self, query: str, *parameters: bytes) -> PGresult:
        """Return the answer to a query with parameters `$1`, `$2`, .. in binary form. Raises psycopg.Error."""
        name = self._names.get(query)
        if name is None:
            name = b"tilth_%d" % len(self._names)
            self._check(self._connection.pgconn.prepare(name, query.encode()))
            self._names[query] = name
        formats = (_BINARY,) * len(parameters)
        return self._check(self._connection.pgconn.exec_prepared(name, parameters, formats, _BINARY))

    def do(self, command: bytes) -> None:
        """Send a command, or several, that need no parameters. Raises psycopg.Error."""
        self._check(self._connection.pgconn.exec_(command))

    def _check(self, answer: PGresult) -> PGresult:
        if answer.status in _ANSWERED:
            return answer
        connection = self._connection.pgconn
        if connection.status == ConnStatus.BAD:
            raise OperationalError(connection.get_error_message())
        error = errors.error_from_result(answer)
        if isinstance(error, errors.InvalidSqlStatementName):
            # The statements of this connection were dropped; nothing was done.
            self._names.clear()
        raise error


def int4(value: int) -> bytes:
    return _INT4_FORM.pack(value)


def int8(value: int) -> bytes:
    return _INT8_FORM.pack(value)


def int_of(answer: bytes) -> int:
    return int.from_bytes(answer, signed=True)


def bytes_list(values: Sequence[bytes]) -> bytes:
    """Return an array of bytea."""
    if not values:
        return _EMPTY[_BYTEA]
    pieces = [_LIST_FORM.pack(1, 0, _BYTEA, len(values), 1)]
    for value in values:
        pieces += (_INT4_FORM.pack(len(value)), value)
    return b"".join(pieces)


def int8_list(values: Sequence[int]) -> bytes:
    """Return an array of bigint."""
    if not values:
        return _EMPTY[_INT8]
    return _LIST_FORM.pack(1, 0, _INT8, len(values), 1) + b"".join(_INT8_ELEMENT.pack(8, value) for value in values)
