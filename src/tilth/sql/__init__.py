"""Words: statements in, answers out.

Covers: every statement and every system table, on top of all other rooms. Does not cover: HTTP (tilth.server), the
shell (tilth.client). Always holds: statements that are ours go through the grammar, anything else is a query for
Spark; a query reads one pinned snapshot of each table; a query over system tables only needs no worker.
`tilth.sql.worker.spark` is the second door, for the worker that runs queries. See also: ARCHITECTURE.md for the
folders, docs/reference/sql.md.
"""

from typing import TYPE_CHECKING

from tilth.base.doors import door

if TYPE_CHECKING:
    from tilth.sql.context.rooms import Rooms
    from tilth.sql.control.insert_groups import InsertStats
    from tilth.sql.control.resends import StatementStats
    from tilth.sql.control.running import DEFAULT_SLOTS, OTHER_TASKS, STATEMENTS_MAX, Origin, StatementLimits
    from tilth.sql.control.slots import Queue
    from tilth.sql.engine import OUTPUT_FORMATS, SqlEngine
    from tilth.sql.errors import (
        BadDefinitionError,
        BadQueryError,
        BadValueError,
        InsertTooLargeError,
        QueryFailedError,
        ReadOnlyError,
        ResultTooLargeError,
        UnknownColumnError,
        UnknownFormatError,
        WrongKindOfTableError,
    )
    from tilth.sql.grammar import Statement, parse, split
    from tilth.sql.inserts.arrow_streams import read_rows
    from tilth.sql.language.unpacked import read_own
    from tilth.sql.query.pins import Pins
    from tilth.sql.query.protocol import QueryCalls
    from tilth.sql.results.answer import Answer
    from tilth.sql.results.files import COLLECTED_BYTES_WITHOUT_LIMIT
    from tilth.sql.results.stream import RowStream
    from tilth.sql.results.waiting import ResultLimits
    from tilth.sql.settings import SESSION_SETTINGS, all_settings, session_settings
    from tilth.sql.system_tables import SYSTEM_TABLES, SystemTable
else:
    __getattr__ = door(__name__)

__all__ = [
    "COLLECTED_BYTES_WITHOUT_LIMIT",
    "DEFAULT_SLOTS",
    "OTHER_TASKS",
    "OUTPUT_FORMATS",
    "SESSION_SETTINGS",
    "STATEMENTS_MAX",
    "SYSTEM_TABLES",
    "Answer",
    "BadDefinitionError",
    "BadQueryError",
    "BadValueError",
    "InsertStats",
    "InsertTooLargeError",
    "Origin",
    "Pins",
    "QueryCalls",
    "QueryFailedError",
    "Queue",
    "ReadOnlyError",
    "ResultLimits",
    "ResultTooLargeError",
    "Rooms",
    "RowStream",
    "SqlEngine",
    "Statement",
    "StatementLimits",
    "StatementStats",
    "SystemTable",
    "UnknownColumnError",
    "UnknownFormatError",
    "WrongKindOfTableError",
    "all_settings",
    "parse",
    "read_own",
    "read_rows",
    "session_settings",
    "split",
]
