"""Services of one node that statements use, and the call itself.

Covers: the services, what belongs to one call, calls to a worker for what only Spark knows. Does not cover: who makes
the rooms (node.py), who the services (statements/engine.py).

Tests: tests/unit/control/test_resends.py.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import pyarrow as pa

from tilth.base.settings import BadSettingError, Setting
from tilth.base.sources import GivenSettings
from tilth.base.threads import Completion
from tilth.catalog import AuditSettings
from tilth.clickhouse.dialect_words import CLICKHOUSE
from tilth.control.context.rooms import PipesRoom, Rooms
from tilth.control.insert_batches import InsertBatches, PreparedInsert
from tilth.control.query_log import QueryLog
from tilth.control.resends import Resends
from tilth.control.running import RunningStatements, sending_id
from tilth.model.snapshot import Snapshot
from tilth.model.task import TaskKind
from tilth.model.text.zones import UTC_NAMES, ZONE
from tilth.query.results.answer import Outcome
from tilth.query.results.waiting import OpenResults
from tilth.query.settings import SessionSettings
from tilth.query.snapshots.protocol import WorkerTask
from tilth.query.snapshots.snapshots import OpenQuery, SnapshotService
from tilth.warehouse import QUERY_WAREHOUSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Services(Rooms):
    """The rooms of one node, with what its engine makes of them."""

    snapshots: SnapshotService
    #: Batches small inserts.
    insert_batches: InsertBatches[PreparedInsert]
    pipes: PipesRoom
    started_ms: int
    #: The node's settings as given, by name.
    node_settings: GivenSettings
    #: Settings of rooms that stand above statements, to be shown beside the others.
    # Any: settings of every type stand in one list.
    upper_settings: tuple[Setting[Any], ...] = ()
    query_log: QueryLog
    #: Settings for literals in the logs.
    audit: AuditSettings
    open_results: OpenResults
    #: The statements under way.
    running: RunningStatements
    #: Work in Spark that was lost and is done again.
    resends: Resends
    #: Rows of the system table with a name, from these services.
    system_table: Callable[[Services, str], pa.Table]

    def opened(
        self, call: Call, *, seen: Callable[[Snapshot], Snapshot] | None = None
    ) -> AbstractContextManager[OpenQuery]:
        """Let the worker of the statement's query request names and files; see query/snapshots/snapshots.py."""
        return self.snapshots.opened(
            call.sending_id,
            database=call.database,
            prune=call.settings.prune_parts,
            client=call.client,
            seen=seen,
            zone=call.zone_name if call.settings.dialect == CLICKHOUSE else "",
            system_table=partial(self.system_table, self),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One statement under way."""

    query_id: str
    #: Database of unqualified names.
    database: str
    settings: SessionSettings
    #: Text as written, redacted.
    text: str = ""
    #: The secrets that were in it.
    secrets: tuple[str, ...] = field(default=(), repr=False)
    #: `True` if the caller takes a stream of rows.
    streams: bool = False
    #: Client that sent it; empty: this process.
    client: str = ""
    #: `False` if its query fails at once while Spark is away.
    waits_for_spark: bool = True
    #: `True` if its query was lost in Spark and is sent there again.
    is_sent_again: bool = False
    #: Gets the outcome of a statement whose function returns `PENDING`; None: the caller waits for it.
    on_complete: Completion[Outcome] | None = None

    @property
    def sending_id(self) -> str:
        return sending_id(self.query_id, is_again=self.is_sent_again)

    @property
    def zone_name(self) -> str:
        return self.settings.spark.get(ZONE, UTC_NAMES[0])

    @property
    def zone(self) -> tzinfo:
        """Raises BadSettingError for an unknown zone."""
        if self.zone_name in UTC_NAMES:
            return UTC
        try:
            return ZoneInfo(self.zone_name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise BadSettingError(setting=ZONE, value=self.zone_name, allowed="the name of a time zone") from error


def run_on_worker(services: Services, task: WorkerTask) -> bytes:
    """Return the payload of a worker's answer; raises what the worker raises, and UnavailableError. For tasks that only
    read: where Spark is lost, the task is sent again.
    """

    def send(is_again: bool) -> bytes:
        spec = services.dispatcher.new_spec(
            TaskKind.QUERY, warehouse=QUERY_WAREHOUSE, table="", payload=msgspec.msgpack.encode(task)
        )
        return services.dispatcher.run(msgspec.structs.replace(spec, waits_for_spark=True)).payload

    return services.resends.once_more(send)
