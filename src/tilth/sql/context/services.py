"""What the statements stand on: the rooms below, each as far as SQL needs it.

Covers: the services and what belongs to one call. Does not cover: who makes them (node.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.ids import IdSource
from tilth.base.pressure import MemoryGate
from tilth.base.secrets import without_secrets
from tilth.base.settings import BadSettingError, Setting
from tilth.base.sources import GivenSettings
from tilth.catalog import SYSTEM_DATABASE, Catalog
from tilth.ingest import ConsumeEvent, ConsumerStats, OffsetReset, VerifyReport
from tilth.maintenance import (
    ChoiceRow,
    DamageBook,
    FlushReport,
    GcReport,
    GcRow,
    MaintenanceNumbers,
    MergeCandidateRow,
    MutationProgress,
    OpRow,
    OptimizeReport,
)
from tilth.model.audit import AuditEvent
from tilth.model.offset import TopicPartition
from tilth.model.service import ServiceStats
from tilth.model.snapshot import Snapshot
from tilth.model.table import KafkaDef, Relation, TableDef, ViewDef, full_name
from tilth.model.task import TaskInfo, TaskKind, TaskSpec
from tilth.sql.control.insert_groups import InsertGroups, PreparedInsert
from tilth.sql.control.query_log import QueryLog
from tilth.sql.control.running import RunningStatements
from tilth.sql.errors import ReadOnlyError, WrongKindOfTableError
from tilth.sql.grammar import Name
from tilth.sql.query.desk import OpenQuery, QueryDesk
from tilth.sql.results.waiting import OpenResults
from tilth.sql.settings import UTC_NAMES, ZONE, SessionSettings
from tilth.warehouse import Handle, TaskProgress, TaskResult, WarehouseInfo, WarehouseStats, WorkerInfo


class Dispatch(Protocol):
    """The dispatcher of the warehouse room."""

    def new_spec(
        self,
        kind: TaskKind,
        *,
        warehouse: str,
        table: str,
        payload: bytes,
        txn: int = 0,
        input_bytes: int = 0,
        rows: int = 0,
    ) -> TaskSpec: ...

    def run(self, spec: TaskSpec) -> TaskResult: ...

    def run_until(
        self, spec: TaskSpec, is_enough: Callable[[], bool], *, look_seconds: float
    ) -> TaskResult | Handle: ...

    def tasks(self) -> list[TaskInfo]: ...

    def workers(self) -> list[WorkerInfo]: ...

    def warehouses(self) -> list[WarehouseInfo]: ...

    def stats(self) -> WarehouseStats: ...


class Consume(Protocol):
    """The consume manager of the ingest room."""

    def wake(self, kafka_uuid: str | None = None) -> None: ...

    def start_table(self, kafka_uuid: str, *, because: str = "", until_ms: int = 0, query_id: str = "") -> None: ...

    def stop_table(self, kafka_uuid: str, *, because: str = "", until_ms: int = 0, query_id: str = "") -> None: ...

    def restart(self, kafka_uuid: str) -> None: ...

    def reset_offsets(self, kafka_uuid: str, reset: OffsetReset) -> dict[TopicPartition, int]: ...

    def verify(self, table_uuid: str) -> VerifyReport: ...

    def stats(self) -> list[ServiceStats]: ...

    def kafka_tables(self) -> list[ConsumerStats]: ...

    def log(self) -> list[ConsumeEvent]: ...


class Maintenance(Protocol):
    """The maintenance manager."""

    def wake(self, table_uuid: str | None = None) -> None: ...

    def scanned(self, table_uuids: Iterable[str]) -> None: ...

    def optimize(self, table_uuid: str, partition: str | None = None, final: bool = False) -> OptimizeReport: ...

    def flush_now(self, table_uuid: str, partition: str | None = None) -> FlushReport: ...

    def gc_now(self, table_uuid: str, partition: str | None = None, *, is_forced: bool = False) -> GcReport: ...

    def explain_gc(self, table_uuid: str) -> list[GcRow]: ...

    def cancel_partition(self, table_uuid: str, partition: str | None) -> int: ...

    def mutations(self, table_uuid: str | None = None) -> list[MutationProgress]: ...

    def explain_merge(self, table_uuid: str, policy: str | None = None) -> list[MergeCandidateRow]: ...

    def stats(self) -> list[ServiceStats]: ...

    def numbers(self) -> MaintenanceNumbers: ...

    def ops(self) -> list[OpRow]: ...

    def choices(self) -> list[ChoiceRow]: ...


@dataclass(slots=True)
class Audit:
    """What the audit log is to say of a statement that was not refused."""

    outcome: str = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """One node's rooms."""

    clock: Clock
    ids: IdSource
    catalog: Catalog
    dispatcher: Dispatch
    consume: Consume
    maintenance: Maintenance
    desk: QueryDesk
    #: Where small inserts meet.
    groups: InsertGroups[PreparedInsert]
    #: What refuses writes when memory runs out.
    memory: MemoryGate
    #: Files of tables that cannot be read.
    damage: DamageBook
    #: Below which the tables' folders are.
    root: str
    #: This server's name.
    server: str
    started_ms: int
    #: The node's settings as given, by name.
    node_settings: GivenSettings
    #: Settings of rooms that stand above SQL, to be shown beside the others.
    # Any: settings of every type stand in one list.
    upper_settings: tuple[Setting[Any], ...] = ()
    query_log: QueryLog = field(default_factory=QueryLog)
    #: Below which large results wait for their clients; empty: they are collected in memory.
    results: str = ""
    open_results: OpenResults
    #: The statements under way.
    running: RunningStatements
    #: How far Spark is with a task, by its id.
    progress: Callable[[str], TaskProgress]

    def opened(
        self, call: Call, *, seen: Callable[[Snapshot], Snapshot] | None = None
    ) -> AbstractContextManager[OpenQuery]:
        """Inside, the worker that runs the statement's query may ask for names and files; see desk.py."""
        return self.desk.opened(
            call.query_id, database=call.database, prune=call.settings.prune_parts, client=call.client, seen=seen
        )

    def record(
        self,
        call: Call,
        *,
        verb: str,
        table: str = "",
        outcome: str = "done",
        because: str = "",
        duration_ms: int = 0,
    ) -> None:
        """A line of the audit log: who asked is the call, what came of it the outcome.

        `verb` is the statement without names, as in `ALTER .. DROP PARTITION`; `table` is `database.table`.
        """
        event = AuditEvent(
            at_ms=self.clock.now_ms(),
            verb=verb,
            table=table,
            statement=call.text,
            duration_ms=duration_ms,
            because=because,
            query_id=call.query_id,
            outcome=without_secrets(outcome, call.secrets),
        )
        self.catalog.audit.record(event)

    @contextmanager
    def audited(
        self, call: Call, *, verb: str, table: str = "", because: str = "", duration_ms: int = 0
    ) -> Iterator[Audit]:
        """Records the verb when the block is over, with what the block says of its outcome, or the error that refused
        it."""
        audit = Audit()
        outcome = "INTERNAL_ERROR: a defect, see the log"
        try:
            yield audit
            outcome = audit.outcome
        except TilthError as error:
            outcome = f"{error.code}: {error}"
            raise
        finally:
            self.record(call, verb=verb, table=table, outcome=outcome, because=because, duration_ms=duration_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One statement under way."""

    query_id: str
    #: For names without one.
    database: str
    settings: SessionSettings
    #: As it was written, redacted.
    text: str = ""
    #: The secrets that were in it.
    secrets: tuple[str, ...] = field(default=(), repr=False)
    #: Whether the caller takes the rows as a stream.
    streams: bool = False
    #: Who sent it; empty: it comes from this process.
    client: str = ""

    @property
    def zone_name(self) -> str:
        """The zone of times without one."""
        return self.settings.spark.get(ZONE, UTC_NAMES[0])

    @property
    def zone(self) -> tzinfo:
        """The same; raises BadSettingError for one that is not known."""
        if self.zone_name in UTC_NAMES:
            return UTC
        try:
            return ZoneInfo(self.zone_name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise BadSettingError(setting=ZONE, value=self.zone_name, allowed="the name of a time zone") from error


def place_of(call: Call, name: Name) -> tuple[str, str]:
    """Database and table that a name means; raises ReadOnlyError for what cannot be defined or changed."""
    database = name.database or call.database
    if database.lower() == SYSTEM_DATABASE:
        raise ReadOnlyError(table=f"{database}.{name.table}")
    return database, name.table


def relation_of(services: Services, call: Call, name: Name) -> Relation:
    """Raises DatabaseNotFoundError or TableNotFoundError."""
    return services.catalog.tables.get(*place_of(call, name))


def table_of(services: Services, call: Call, name: Name, *, what: str) -> TableDef:
    """A table that stores rows; raises WrongKindOfTableError that says what cannot be done."""
    relation = relation_of(services, call, name)
    if not isinstance(relation, TableDef):
        raise wrong_kind(relation, what=what, needed="a MergeTree table")
    return relation


def kafka_of(services: Services, call: Call, name: Name, *, what: str) -> KafkaDef:
    """A Kafka table; raises WrongKindOfTableError that says what cannot be done."""
    relation = relation_of(services, call, name)
    if not isinstance(relation, KafkaDef):
        raise wrong_kind(relation, what=what, needed="a Kafka table")
    return relation


def wrong_kind(relation: Relation, *, what: str, needed: str) -> WrongKindOfTableError:
    """An error that says what is needed; a view's hint names the table behind it."""
    hint = "name the table that the view writes into" if isinstance(relation, ViewDef) else ""
    return WrongKindOfTableError(
        f"{what} needs {needed}", table=full_name(relation), engine=relation.engine.value, hint=hint
    )
