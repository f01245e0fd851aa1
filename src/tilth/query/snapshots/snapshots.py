"""Answers the calls of a running query: what names mean, and which files to read.

Covers: names, past versions, pinned and pruned snapshots, the reader leases that keep their files, folders for large
results. Does not cover: running queries, which past times can be read (as_of.py), files of results (results/stored.py).
Always holds: a lease is there before its snapshot is taken, is renewed while the query runs, and is gone after it;
all references to one table as of one time read one and the same snapshot. See also: protocol.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import msgspec
import pyarrow as pa

from tilth.base.clock import Clock
from tilth.base.errors import CorruptError, NotFoundError, TilthError
from tilth.base.ids import random_id
from tilth.base.logs import Log
from tilth.catalog import (
    SYSTEM_DATABASE,
    Catalog,
    DatabaseNotFoundError,
    ResultFolder,
    SchemaChangedError,
    TableNotFoundError,
)
from tilth.clickhouse.dialect_sessions import check_zones
from tilth.model.lease import ReaderLease
from tilth.model.part import Part
from tilth.model.snapshot import Snapshot
from tilth.model.table import KafkaDef, Relation, TableDef, ViewDef, full_name
from tilth.query.errors import BadQueryError, SnapshotLostError, WrongKindOfTableError
from tilth.query.snapshots.as_of import ReadTime, read_time_of
from tilth.query.snapshots.held import LeaseHolder, held_past, held_snapshot, held_snapshots
from tilth.query.snapshots.predicates import Predicate, Undecided
from tilth.query.snapshots.protocol import AsOf, Resolved, Source, stream_of
from tilth.query.snapshots.prune import keeper
from tilth.storage import Folder, Roots, StoreRoot, remove_folder, schema_from_arrow
from tilth.warehouse import NotAllowedError

READER_LEASE_MS = 30_000
RENEW_SECONDS = 10.0

#: Folder of the stored results below a root.
_RESULTS = "results"
#: Formats that Spark's own SQL takes in front of a path.
_PATH_FORMATS = frozenset("avro binaryfile csv delta hudi iceberg json orc parquet text xml".split())
_PATH_HINT = "load the rows into a table: INSERT INTO t FORMAT CSV .., or POST /v1/insert/DATABASE/TABLE"

_log = Log("sql")

Keep = Callable[[Part], bool]


@dataclass(frozen=True, slots=True)
class FoundTable:
    """Table that a reference stands for."""

    #: Table with its columns at that time; the rows of a system table are read at once.
    table: TableDef | pa.Table
    #: None: as it is now.
    read_time: ReadTime | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Key that references to one snapshot share."""
        assert isinstance(self.table, TableDef)
        return self.table.uuid, 0 if self.read_time is None else self.read_time.ts


def no_system_table(name: str) -> pa.Table:
    """Raises TableNotFoundError: the query may read tables of rows only."""
    raise TableNotFoundError("no such system table", table=f"system.{name}")


@dataclass(slots=True)
class OpenQuery:
    """A query under way."""

    database: str
    prune: bool
    #: Sees each snapshot before the query does, and may leave parts out.
    seen: Callable[[Snapshot], Snapshot] | None = None
    #: Tables that `resolve` found, by reference.
    found: list[FoundTable] = field(default_factory=list)
    leases: list[ReaderLease] = field(default_factory=list)
    parts_read: int = 0
    parts_pruned: int = 0
    #: Rows of the parts that are read; those of a table that is read twice count once.
    rows_to_read: int = 0
    #: Client of the query; threads of workers open leases and do not know it.
    client: str = ""
    #: `True` if a lease had expired before its renewal: files may have been removed meanwhile.
    has_lapsed: bool = False
    #: Required zone of all columns that declare one; empty: any.
    zone: str = ""
    #: Path of the folder of its stored result below the root; empty: it has none.
    result: str = ""
    result_root: StoreRoot | None = None
    #: Function from the name of a system table to its rows.
    system_table: Callable[[str], pa.Table] = no_system_table

    def count(self, snapshot: Snapshot) -> None:
        """Add the parts of a snapshot to those that are read."""
        self.parts_read += len(snapshot.parts)
        self.parts_pruned += snapshot.pruned
        self.rows_to_read += snapshot.rows


class SnapshotService:
    """The server's side of `QueryCalls`."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        *,
        root: Roots,
        server: str,
        scanned: Callable[[Iterable[str]], None],
    ) -> None:
        """`scanned` gets the tables that a query reads."""
        self._clock = clock
        self._catalog = catalog
        self._root = root
        self._server = server
        self._scanned = scanned
        self._open: dict[str, OpenQuery] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._renew, name="tilth-reader-leases", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(RENEW_SECONDS)

    @contextmanager
    def opened(
        self,
        query_id: str,
        *,
        database: str,
        prune: bool,
        client: str = "",
        seen: Callable[[Snapshot], Snapshot] | None = None,
        zone: str = "",
        system_table: Callable[[str], pa.Table] = no_system_table,
    ) -> Iterator[OpenQuery]:
        """While it is open, calls with this id are answered; after it, its leases are gone.

        `seen` gets each snapshot that `pin` has taken, and returns what the query reads of it. `zone`: tables with
        columns of another one are refused. `system_table` gives the rows of a system table by its name.
        Raises SnapshotLostError where files are missing because the leases have ended.
        """
        query = OpenQuery(database, prune, seen, client=client, zone=zone, system_table=system_table)
        with self._lock:
            self._open[query_id] = query
        try:
            with self.naming_lapse(query):
                yield query
        finally:
            with self._lock:
                del self._open[query_id]
                leases = list(query.leases)
            self._close(leases)
            self._close_result(query)

    @contextmanager
    def naming_lapse(self, query: OpenQuery) -> Iterator[None]:
        """Raise SnapshotLostError where a file is missing because nobody has renewed the query's leases in time."""
        try:
            yield
        except CorruptError as error:
            now_ms = self._clock.now_ms()
            if not query.has_lapsed and all(lease.expires_ms > now_ms for lease in query.leases):
                raise
            hint = "send the statement again"
            raise SnapshotLostError(file=error.facts.get("file", ""), server=self._server, hint=hint) from error

    def resolve(self, query_id: str, names: list[tuple[str, ...]], as_of: Sequence[AsOf | None] = ()) -> list[Resolved]:
        query = self._query(query_id)
        resolved: list[Resolved] = []
        for name, wanted in zip(names, as_of or [None] * len(names), strict=True):
            database, table = qualified(name, query.database)
            if database.lower() == SYSTEM_DATABASE:
                if wanted is not None:
                    raise BadQueryError(
                        "a system table has no history: AS OF is not possible", table=f"{database}.{table}"
                    )
                rows = query.system_table(table)
                query.found.append(FoundTable(rows))
                schema = schema_from_arrow(rows.schema)
            else:
                found = self._as_of(self._readable(database, table), wanted)
                query.found.append(found)
                schema = found.table.schema
                if query.zone:
                    check_zones(schema, query.zone, f"{database}.{table}")
            resolved.append(Resolved(database=database, table=table, schema=schema))
        return resolved

    def _as_of(self, table: TableDef, wanted: AsOf | None) -> FoundTable:
        if wanted is None:
            return FoundTable(table)
        read_time = read_time_of(self._catalog, self._clock, table, wanted)
        return FoundTable(self._catalog.parts.snapshot(table.uuid, at=read_time.ts, partitions=()).table, read_time)

    def pin(self, query_id: str, predicates: list[Predicate]) -> list[Source]:
        query = self._query(query_id)
        if not query.prune:
            predicates = [Undecided()] * len(predicates)
        keeps: dict[tuple[str, int], list[Keep]] = {}
        tables: dict[tuple[str, int], FoundTable] = {}
        for found, predicate in zip(query.found, predicates, strict=True):
            if isinstance(found.table, TableDef):
                keeps.setdefault(found.key, []).append(keeper(predicate, found.table))
                tables[found.key] = found
        snapshots = self._snapshots(query, tables, keeps)
        for key, found in tables.items():
            assert isinstance(found.table, TableDef)
            check_same_columns(found.table, snapshots[key].table)
        if query.seen is not None:
            snapshots = {key: query.seen(snapshot) for key, snapshot in snapshots.items()}
        self._scanned(dict.fromkeys(uuid for uuid, _ in keeps))
        iterators = {key: iter(keeps_of) for key, keeps_of in keeps.items()}
        return [self._source(found, snapshots, iterators) for found in query.found]

    def open_result(self, query_id: str) -> Folder:
        query = self._query(query_id)
        if not query.result:
            # Whoever reads the table's files can write beside them, as merges do.
            uuids = (found.table.uuid for found in query.found if isinstance(found.table, TableDef))
            root = self._root.of(next(uuids, "")).with_quorum(1)
            path = f"{_RESULTS}/{random_id()}"
            self._catalog.results.add(path, ResultFolder(server=self._catalog.server, root=root.text))
            with self._lock:
                query.result, query.result_root = path, root
                has_ended = self._open.get(query_id) is not query
            if has_ended:
                # Its end has not seen the folder.
                self._close_result(query)
                raise _ended(query_id)
        assert query.result_root is not None
        return Folder(query.result_root, query.result)

    def _close_result(self, query: OpenQuery) -> None:
        if query.result_root is None:
            return
        folder = Folder(query.result_root, query.result)
        # The note comes first: the cleaner removes a folder with a note, whatever happens to this removal.
        for step in (partial(self._catalog.results.note_removal, query.result), partial(remove_folder, folder)):
            try:
                step()
            except (TilthError, OSError) as error:
                _log.warning("result_left", cause_id=query.result, reason=error)

    def hold(self, query: OpenQuery, table_uuid: str, keep: Keep) -> Snapshot:
        """The newest snapshot of a table for a statement under way, which keeps its files as long as the statement
        runs."""
        snapshot, lease = held_snapshot(self._catalog, table_uuid, self._holder(query), keep=keep)
        with self._lock:
            query.leases.append(lease)
        query.count(snapshot)
        return snapshot

    def rows_to_read(self, query_id: str) -> int | None:
        """Rows of the parts that a query under way reads; None: it reads none, or its snapshots are not there yet."""
        with self._lock:
            query = self._open.get(query_id)
        return (query.rows_to_read or None) if query is not None else None

    def _holder(self, query: OpenQuery) -> LeaseHolder:
        return LeaseHolder(holder=self._server, ttl_ms=READER_LEASE_MS, client=query.client)

    def _query(self, query_id: str) -> OpenQuery:
        with self._lock:
            query = self._open.get(query_id)
        if query is None:
            raise _ended(query_id)
        return query

    def _readable(self, database: str, name: str) -> TableDef:
        """Return the table behind a name; a view stands for the table that it writes into."""
        try:
            relation: Relation | None = self._catalog.tables.get(database, name)
        except DatabaseNotFoundError as error:
            if database.lower() in _PATH_FORMATS or "/" in name:
                message = "queries cannot read files by path"
                raise NotAllowedError(message, table=f"{database}.{name}", hint=_PATH_HINT) from error
            raise
        if isinstance(relation, ViewDef):
            relation = self._catalog.tables.by_id(relation.target)
        if isinstance(relation, KafkaDef):
            views = self._catalog.tables.views_of(relation.uuid)
            targets = [self._catalog.tables.by_id(view.target) for view in views]
            names = ", ".join(full_name(target) for target in targets if target is not None)
            raise WrongKindOfTableError(
                "a Kafka table stores no rows to read",
                table=full_name(relation),
                hint=f"read what its views write into: {names}" if names else "create a materialized view over it",
            )
        if not isinstance(relation, TableDef):
            raise NotFoundError("the table behind this view is gone", view=f"{database}.{name}")
        return relation

    def _snapshots(
        self,
        query: OpenQuery,
        tables: dict[tuple[str, int], FoundTable],
        keeps: dict[tuple[str, int], list[Keep]],
    ) -> dict[tuple[str, int], Snapshot]:
        """Acquire the snapshots of all tables; the leases of those of now are one commit."""
        holder = self._holder(query)
        wanted = {key: _any_of(keeps_of) for key, keeps_of in keeps.items()}
        present = {key: wanted[key] for key, found in tables.items() if found.read_time is None}
        snapshots: dict[tuple[str, int], Snapshot] = {}

        def note(key: tuple[str, int], snapshot: Snapshot, lease: ReaderLease) -> None:
            with self._lock:
                query.leases.append(lease)
            query.count(snapshot)
            snapshots[key] = snapshot

        if present:
            held = held_snapshots(self._catalog, {uuid: keep for (uuid, _), keep in present.items()}, holder)
            for key, (snapshot, lease) in zip(present, held, strict=True):
                note(key, snapshot, lease)
        for key, found in tables.items():
            if found.read_time is None:
                continue
            assert isinstance(found.table, TableDef)
            past = held_past(self._catalog, self._clock, found.table, found.read_time, holder, keep=wanted[key])
            note(key, *past)
        return snapshots

    def _source(
        self,
        found: FoundTable,
        snapshots: dict[tuple[str, int], Snapshot],
        iterators: dict[tuple[str, int], Iterator[Keep]],
    ) -> Source:
        if not isinstance(found.table, TableDef):
            return Source(rows=stream_of(found.table))
        snapshot, keep = snapshots[found.key], next(iterators[found.key])
        return Source(snapshot=narrowed(snapshot, keep), root=self._root.of(found.table.uuid))

    def renew_all(self) -> None:
        """Renew every lease of a running query, once. The thread calls it; tests may."""
        with self._lock:
            held = [(query, index) for query in self._open.values() for index in range(len(query.leases))]
        for query, index in held:
            lease = query.leases[index]
            query.has_lapsed |= lease.expires_ms <= self._clock.now_ms()
            try:
                query.leases[index] = self._catalog.readers.renew(lease, READER_LEASE_MS)
            except TilthError as error:
                # The query has ended meanwhile, or its files may go; then it fails by itself, or begins anew.
                _log.warning("reader_lease_lost", cause_id=lease.id, table=lease.table, reason=error)

    def _renew(self) -> None:
        while not self._clock.wait(self._stopping, RENEW_SECONDS):
            try:
                self.renew_all()
            except Exception as error:
                _log.error("reader_leases_not_renewed", error=error)

    def _close(self, leases: list[ReaderLease]) -> None:
        if not leases:
            return
        try:
            self._catalog.readers.close_all(leases)
        except TilthError as error:
            for lease in leases:
                _log.warning("reader_lease_left", cause_id=lease.id, table=lease.table, reason=error)


def _any_of(keeps: Sequence[Keep]) -> Keep:
    """Return the test of parts that one of several readings of a table needs."""
    return lambda part: any(keep(part) for keep in keeps)


def _ended(query_id: str) -> NotFoundError:
    return NotFoundError("this query has ended", query_id=query_id)


def check_same_columns(resolved: TableDef, pinned: TableDef) -> None:
    """Raises SchemaChangedError when an ALTER came between resolving the names and the snapshot."""
    if not resolved.schema.is_stored_as(pinned.schema):
        raise SchemaChangedError(
            table=full_name(resolved),
            resolved_version=resolved.schema_version,
            now=pinned.schema_version,
            hint="run the query again",
        )


def narrowed(snapshot: Snapshot, keep: Keep) -> Snapshot:
    """Return the snapshot with only those parts, and the deltas that change them."""
    parts = tuple(part for part in snapshot.parts if keep(part))
    files = {part.file.name for part in parts}
    deltas = tuple(each for each in snapshot.deltas if any(target.file in files for target in each.targets))
    return msgspec.structs.replace(snapshot, parts=parts, deltas=deltas)


def qualified(name: tuple[str, ...], database: str) -> tuple[str, str]:
    """Database and table of a name as a query writes it; raises BadQueryError for longer ones."""
    if len(name) > 2:
        raise BadQueryError("a table's name has at most two parts, database and table", table=".".join(name))
    return (name[0], name[1]) if len(name) == 2 else (database, name[0])
