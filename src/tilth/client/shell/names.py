"""Names that the server knows: databases, tables, columns, functions, settings; read by SQL, kept for completion.

Covers: reading them on a thread of its own, when they are read again. Does not cover: which of them fit
(completion.py).
Always holds: a caller gets what is known at once and waits for nothing; where names cannot be read, the former ones
stay.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tilth.base.clock import Clock
from tilth.base.errors import ErrorKind, TilthError
from tilth.client.http import Connection
from tilth.client.settings import READING
from tilth.client.shell.relations import TablePath, condition
from tilth.model.types import quoted

#: Names are read again after this when something is completed.
STALE_SECONDS = 60.0
#: Each reading gives up after this.
READ_SECONDS_MAX = 10.0
TABLES_MAX = 20_000
#: Columns of more tables are read when a statement names the table.
TABLES_WITH_COLUMNS_MAX = 500
#: Tables whose columns wait to be read.
_WAITING_MAX = 100
SYSTEM = "system"

_TABLES = f"SELECT database, name, engine FROM system.tables ORDER BY database, name LIMIT {TABLES_MAX}"
_COLUMNS = 'SELECT database, "table", name, type FROM system.columns ORDER BY database, "table", position'
_COLUMNS_OF = "SELECT name, type FROM system.columns WHERE {condition} ORDER BY position"
_SETTINGS = "SELECT name, scope FROM system.settings WHERE scope IN ('session', 'table', 'kafka') ORDER BY name"


@dataclass(frozen=True, slots=True)
class Named:
    """A name, and what it is, for the list of completions."""

    name: str
    #: Type of a column, engine of a table, scope of a setting.
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """All names at one time."""

    databases: tuple[Named, ...] = ()
    #: Tables by their database in lower case.
    tables: Mapping[str, tuple[Named, ...]] = field(default_factory=dict)
    #: Columns by database and table in lower case.
    columns: Mapping[TablePath, tuple[Named, ...]] = field(default_factory=dict)
    functions: tuple[Named, ...] = ()
    settings: tuple[Named, ...] = ()


class Names:
    """The names, read in the background."""

    def __init__(self, clock: Clock, connection: Connection, *, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called on the thread when there are new names, or the server does not answer any more."""
        self._clock = clock
        self._connection = connection
        self._changed = changed
        self._known = Known()
        #: Reason why the last reading failed; empty: it did not.
        self.problem = ""
        #: None: all names; a path: its columns.
        self._wanted: queue.Queue[TablePath | None] = queue.Queue(_WAITING_MAX)
        self._waiting: set[TablePath | None] = set()
        self._read_at = clock.monotonic()
        self._over = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Read them for the first time."""
        threading.Thread(target=self._work, name="tilth-names", daemon=True).start()
        self.refresh()

    def stop(self) -> None:
        """End the thread after what it reads now; nobody waits for it."""
        self._over.set()
        # A queue that is full wakes it, too.
        with suppress(queue.Full):
            self._wanted.put_nowait(None)

    def known(self) -> Known:
        """Return what is known; what is old is read again meanwhile."""
        if self._clock.monotonic() - self._read_at > STALE_SECONDS:
            self.refresh()
        return self._known

    def refresh(self) -> None:
        """Read all names again, as after a statement that changes definitions."""
        self._want(None)

    def want_columns(self, path: TablePath) -> None:
        """Read the columns of a table that are not known; they are there for a later completion."""
        database, table = path
        names = self._known.tables.get(database.lower(), ())
        if any(one.name.lower() == table.lower() for one in names):
            self._want(path)

    def _want(self, path: TablePath | None) -> None:
        with self._lock:
            if path in self._waiting:
                return
            try:
                self._wanted.put_nowait(path)
            except queue.Full:
                return
            self._waiting.add(path)

    def _work(self) -> None:
        with self._connection.beside(timeout_seconds=READ_SECONDS_MAX) as connection:
            while True:
                path = self._wanted.get()
                if self._over.is_set():
                    return
                with self._lock:
                    self._waiting.discard(path)
                try:
                    self._known = self._all(connection) if path is None else self._with_columns(connection, path)
                    self.problem = ""
                except TilthError as error:
                    self.problem = error.message
                self._read_at = self._clock.monotonic()
                self._changed()

    def _all(self, connection: Connection) -> Known:
        tables: dict[str, list[Named]] = {}
        for database, name, engine in _rows(connection, _TABLES, columns=3):
            tables.setdefault(database.lower(), []).append(Named(name, engine))
        system = _rows(connection, "SHOW TABLES FROM system", columns=1)
        tables[SYSTEM] = [Named(name, "system table") for (name,) in system]
        columns: dict[TablePath, list[Named]] = {}
        if sum(map(len, tables.values())) <= TABLES_WITH_COLUMNS_MAX:
            for database, table, name, about in _rows(connection, _COLUMNS, columns=4):
                columns.setdefault((database.lower(), table.lower()), []).append(Named(name, about))
        before = {path: names for path, names in self._known.columns.items() if path[0] == SYSTEM}
        databases = _rows(connection, "SHOW DATABASES", columns=1)
        functions = _rows(connection, "SHOW FUNCTIONS", columns=1)
        settings = _rows(connection, _SETTINGS, columns=2)
        return Known(
            databases=tuple(Named(name, "database") for (name,) in databases),
            tables={database: tuple(names) for database, names in tables.items()},
            columns=before | {path: tuple(names) for path, names in columns.items()},
            functions=tuple(Named(name, "function") for (name,) in functions),
            settings=tuple(Named(name, scope) for name, scope in settings),
        )

    def _with_columns(self, connection: Connection, path: TablePath) -> Known:
        database, table = path
        if database.lower() == SYSTEM:
            question = f"DESCRIBE system.{quoted(table)}"
        else:
            question = _COLUMNS_OF.format(condition=condition(path))
        rows = _rows(connection, question, columns=2)
        found = tuple(Named(name, about) for name, about in rows)
        return replace(self._known, columns={**self._known.columns, (database.lower(), table.lower()): found})


def _rows(connection: Connection, question: str, *, columns: int) -> list[tuple[str, ...]]:
    """Return the first columns as texts; nothing from a server that does not know the question, or answers otherwise.

    Raises TilthErrors of a server that does not answer.
    """
    try:
        result = connection.sql(question, READING)
    except TilthError as error:
        if error.kind in (ErrorKind.INVALID, ErrorKind.NOT_FOUND):
            return []
        raise
    if len(result.names) < columns:
        return []
    return [tuple(str(cell or "") for cell in row[:columns]) for row in result.rows]
