"""What stands behind the context in their tests: rooms that answer as they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa

from tilth.base.threads import Completion
from tilth.control.running import Origin
from tilth.maintenance import ManagerStatus, OpRow
from tilth.maintenance.kinds import OpKind, OpStats
from tilth.model.change_feed import ChangeSet, FeedStart
from tilth.model.lease import ReaderLease
from tilth.model.outside_write import OpenWrite, WriteOutcome, WriteRequest, WrittenFiles
from tilth.model.snapshot import Snapshot
from tilth.model.table import Schema, TableDef
from tilth.model.wire import ColumnInfo, Health
from tilth.query.results.answer import Answer
from tilth.server import AppContext, ServerSettings
from tilth.statements.inserts.bodies.heads import InsertHead
from tilth.testing.clock import ManualClock

ONE = pa.table({"a": [1]})


@dataclass
class FakeRooms:
    """Answers what it is told to, and remembers what it was asked."""

    answer: Answer = field(
        default_factory=lambda: Answer(query_id="q1", columns=[ColumnInfo("a", "bigint")], table=ONE, elapsed_ms=2.0)
    )
    error: Exception | None = None
    #: None: as `health` says.
    ready: Health | None = None
    failed_services: dict[str, str] = field(default_factory=dict)
    health: Health = field(
        default_factory=lambda: Health(status="ok", version="0", server="s", components={"catalog": "ok"})
    )
    calls: list[tuple[object, ...]] = field(default_factory=list)

    def run(
        self, text: str, *, database: str, settings: Mapping[str, str], origin: Origin, streams: bool = False
    ) -> Answer:
        return self._answered("run", text, database, dict(settings))

    def run_insert(
        self,
        text: str,
        *,
        database: str,
        settings: Mapping[str, str],
        origin: Origin,
        on_complete: Completion[Answer],
    ) -> Answer | None:
        return self._answered("run", text, database, dict(settings))

    def insert_text(
        self,
        database: str,
        table: str,
        *,
        input_format: str,
        data: bytes,
        settings: Mapping[str, str],
        origin: Origin,
        on_complete: Completion[Answer] | None = None,
    ) -> Answer | None:
        return self._answered("insert_text", database, table, input_format, data, dict(settings))

    def insert_arrow(
        self,
        database: str,
        table: str,
        data: Callable[[int], pa.Table],
        *,
        settings: Mapping[str, str],
        origin: Origin,
        on_complete: Completion[Answer] | None = None,
    ) -> Answer | None:
        return self._answered("insert_arrow", database, table, data(1 << 20).to_pylist(), dict(settings))

    def begin_write(
        self, database: str, table: str, request: WriteRequest, *, settings: Mapping[str, str], origin: Origin
    ) -> OpenWrite:
        self._answered("begin_write", database, table, request.columns)
        definition = TableDef(uuid="u", database=database, name=table, schema=Schema(columns=()))
        return OpenWrite(id="w1", txn=5, table=definition, root=b"", tasks=request.tasks, silence_seconds=1.0)

    def commit_write(self, write_id: str, files: WrittenFiles, *, origin: Origin) -> WriteOutcome:
        self._answered("commit_write", write_id, files.txn)
        return WriteOutcome(rows=len(files.parts))

    def renew_write(self, write_id: str) -> None:
        self._answered("renew_write", write_id)

    def abort_write(self, write_id: str, reason: str) -> None:
        self._answered("abort_write", write_id, reason)

    def insert_body(
        self,
        head: InsertHead,
        pieces: Iterator[bytes],
        *,
        bytes_max: int,
        database: str = "default",
        settings: Mapping[str, str],
        origin: Origin,
    ) -> Answer:
        return self._answered("insert_body", head, database, b"".join(pieces), bytes_max, dict(settings))

    def pin(
        self,
        database: str,
        table: str,
        as_of_ms: int | None = None,
        *,
        version: int | None = None,
        client: str = "",
    ) -> tuple[Snapshot, ReaderLease, str]:
        self._answered("pin", database, table, *([as_of_ms] if version is None else [as_of_ms, version]))
        definition = TableDef(uuid="u", database=database, name=table, schema=Schema(columns=()))
        lease = ReaderLease(id="r1", table="u", snapshot_ts=5, holder="h", expires_ms=9, opened_ms=8)
        return Snapshot(table=definition, ts=5, version=1, parts=()), lease, "/data"

    def pin_together(
        self, names: Sequence[tuple[str, str]], *, client: str = ""
    ) -> list[tuple[Snapshot, ReaderLease, str] | None]:
        self._answered("pin_together", list(names))
        known = len(self.calls)
        found = [None if database == "nope" else self.pin(database, table) for database, table in names]
        del self.calls[known:]
        return found

    @property
    def feeds(self) -> FakeFeeds:
        return FakeFeeds(self)

    def renew(self, lease_id: str) -> None:
        self._answered("renew", lease_id)

    def close(self, lease_id: str) -> None:
        self._answered("close", lease_id)

    @property
    def texts(self) -> list[object]:
        """The statements, in the order in which they came."""
        return [call[1] for call in self.calls if call[0] == "run"]

    def _answered(self, *call: object) -> Answer:
        self.calls.append(call)
        if self.error is not None:
            raise self.error
        return self.answer


class FakeFeeds:
    """Readers of changes of a table without any."""

    def __init__(self, rooms: FakeRooms) -> None:
        self._rooms = rooms

    def open(
        self,
        database: str,
        table: str,
        *,
        name: str,
        hold_ms: int,
        version: int | None = None,
        as_of_ms: int | None = None,
        client: str = "",
    ) -> FeedStart:
        self._rooms._answered("open_feed", database, table, name, hold_ms, version, as_of_ms)
        snapshot, lease, _ = self._rooms.pin(database, table)
        return FeedStart(lease=lease, table=snapshot.table, position=3, newest=4)

    def newest(self, lease_id: str, hold_ms: int) -> int:
        self._rooms._answered("newest", lease_id, hold_ms)
        return 7

    def advance(self, lease_id: str, version: int, hold_ms: int) -> None:
        self._rooms._answered("advance", lease_id, version, hold_ms)

    def changes(self, lease_id: str, start: int, end: int) -> ChangeSet:
        self._rooms._answered("changes", lease_id, start, end)
        table = TableDef(uuid="u", database="d", name="t", schema=Schema(columns=()))
        return ChangeSet(table=table, root="/data", changes=())


#: A manager with one table that rests.
IDLE = ManagerStatus(
    is_enabled=True,
    threads=4,
    busy=0,
    memory_used=1000,
    memory_limit=None,
    registered=(
        OpRow(
            name="MERGE(shop.orders)",
            kind=OpKind.MERGE,
            database="shop",
            table="orders",
            uuid="u1",
            running=0,
            stats=OpStats.idle("nothing <worth> merging"),
        ),
    ),
    running=(),
    completed=(),
)


def context_of(rooms: FakeRooms, settings: ServerSettings | None = None) -> AppContext:
    """Context of an HTTP application over the rooms, with ids that show their order."""
    numbers = count(1)
    return AppContext(
        clock=ManualClock(),
        statements=rooms,
        snapshots=rooms,
        health=lambda: rooms.health,
        ready=lambda: rooms.ready or rooms.health,
        failed_services=lambda: rooms.failed_services,
        metrics=lambda: b"tilth_up 1.0\n",
        maintenance=lambda: IDLE,
        ids=lambda: f"{next(numbers):032x}"[::-1],
        settings=settings or ServerSettings(),
        listen_host="tilth.test",
    )
