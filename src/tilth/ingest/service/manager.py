"""Ingestion on one server: a service for each Kafka table.

Covers: finding Kafka tables, starting and ending their services, the user's statements, what system tables show, and
the server's side of the consumers' calls. Does not cover: one table's consumers (service.py). Always holds: switches
are persisted before they act. See also: docs/policies/consumers.md.

Tests: tests/unit/ingest/service/test_service.py.
"""

from __future__ import annotations

import threading

from tilth.base.errors import FencedError, InvalidInputError, UnavailableError
from tilth.base.logs import Log
from tilth.catalog import NotHostedError
from tilth.ingest.consumer.calls import (
    BeginGranted,
    BeginRound,
    EndsReport,
    RoundCommitted,
    RoundDone,
    SnapshotTables,
    TableSnapshots,
    ViewReport,
)
from tilth.ingest.offsets.reset import OffsetReset
from tilth.ingest.service.context import ConsumeContext
from tilth.ingest.service.letter_replay import (
    LetterReplay,
    ReplayCounts,
    ReplayReport,
    ReplayStats,
    RunReplay,
    dead_letters_of,
)
from tilth.ingest.service.service import KafkaService
from tilth.ingest.service.stats import ConsumeEvent, ConsumerStats, EventLog, StreamState
from tilth.model.offset import TopicPartition
from tilth.model.service import (
    ALL_TABLES,
    ServiceKind,
    ServiceStats,
    Switch,
    SwitchState,
    newer_since_ms,
)
from tilth.model.table import KafkaDef, TableDef, full_name

_log = Log("ingest")


class ConsumeManager:
    """The CONSUME services of one server, and the other end of their consumers' calls (ConsumerCalls)."""

    def __init__(self, context: ConsumeContext) -> None:
        """Register `consume_runner(clock, manager)` with the workers."""
        self._context = context
        self._clock = context.clock
        self._catalog = context.catalog
        self._settings = context.settings
        self._events = EventLog(events_max=context.settings.log_events_max)
        self._replays = ReplayCounts()
        self._lock = threading.Lock()
        self._services: dict[str, KafkaService] = {}
        #: Services that are ending, each on a thread of its own, so that a consumer that hangs delays no other table.
        self._ending: dict[str, threading.Thread] = {}
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tilth-ingest", daemon=True)

    def start(self) -> None:
        """Start the thread that finds Kafka tables; their consumers start by themselves."""
        self._thread.start()

    def stop(self) -> None:
        """End all consumers; what they had not committed is read again at the next start."""
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        with self._lock:
            for uuid in list(self._services):
                self._end(uuid)
            enders = list(self._ending.values())
        for ender in enders:
            ender.join()

    def wake(self, kafka_uuid: str | None = None) -> None:
        """Check at once: one Kafka table, or all. Call it after every change of a definition."""
        with self._lock:
            known = list(self._services.values()) if kafka_uuid is None else [self._services.get(kafka_uuid)]
        for service in known:
            if service is not None:
                service.wake(is_changed=kafka_uuid is not None)
        self._wake.set()

    # --- statements ------------------------------------------------------------------------------------------------

    def start_table(
        self, kafka_uuid: str, *, because: str = "", until_ms: int = 0, query_id: str = "", client: str = ""
    ) -> None:
        """SYSTEM START CONSUME of one table, or of all with ALL_TABLES."""
        self._switch(
            kafka_uuid, SwitchState.RUNNING, because=because, until_ms=until_ms, query_id=query_id, client=client
        )
        self.wake(kafka_uuid or None)

    def stop_table(
        self, kafka_uuid: str, *, because: str = "", until_ms: int = 0, query_id: str = "", client: str = ""
    ) -> None:
        """SYSTEM STOP CONSUME of one table, or of all with ALL_TABLES; returns when no consumer of this server runs any
        more. Raises UnavailableError if that takes too long; the switch is set then.
        """
        self._switch(
            kafka_uuid, SwitchState.STOPPED, because=because, until_ms=until_ms, query_id=query_id, client=client
        )
        self.wait_stopped(kafka_uuid)

    def wait_stopped(self, kafka_uuid: str) -> None:
        """Wait until no consumer of this server runs any more for a table, or for ALL_TABLES, which are switched off.
        Raises UnavailableError.
        """
        one = self._find(kafka_uuid)
        services = self._all() if kafka_uuid == ALL_TABLES else [one] if one is not None else []
        for service in services:
            service.wake()
        for service in services:
            service.wait_switched_off()

    def restart(self, kafka_uuid: str) -> None:
        """SYSTEM RESTART CONSUME: ends the consumers; new ones start unless the table is stopped."""
        self._service(kafka_uuid).restart()

    def adopt_settings(self, kafka_uuid: str) -> None:
        """Let consumers begin anew with settings that were stored; those of another server do so by the news of the
        change. Raises UnavailableError where they do not end in time: they begin anew later.
        """
        service = self._find(kafka_uuid)
        if service is not None:
            service.restart()
        self.wake(kafka_uuid)

    def reset_offsets(self, kafka_uuid: str, reset: OffsetReset) -> dict[TopicPartition, int]:
        """SYSTEM RESET CONSUME OFFSET: returns the new offsets. Raises ResetError or errors of the broker.

        Consumers end first, and start again if they ran, whatever comes of it.
        """
        return self._service(kafka_uuid).move(reset)

    def dead_letters(self, kafka_uuid: str) -> TableDef:
        """The table whose dead letters can be replayed now.

        Raises NoDeadLettersError, ConflictError (CONSUME_STOPPED).
        """
        return dead_letters_of(self._catalog, self._kafka(kafka_uuid), now_ms=self._clock.now_ms())

    def replay(self, kafka_uuid: str, *, predicate: str, run: RunReplay) -> ReplayReport:
        """SYSTEM REPLAY DEAD LETTERS: returns when all letters that were there went through their views again; any
        server may do it. Raises what `dead_letters` does, ViewError, and errors of the worker or the catalog.

        `predicate`: Spark SQL over the dead-letter table, as checked; empty: all letters. `run` runs on a worker.
        """
        return LetterReplay(self._context, self._kafka(kafka_uuid), self._replays, predicate=predicate, run=run).run()

    # --- what it shows -----------------------------------------------------------------------------------------------

    def stats(self) -> list[ServiceStats]:
        """Rows of `system.bg_threads`."""
        return [service.stats() for service in self._all()]

    def streams(self) -> list[StreamState]:
        """States of the services, for alarms: the catalog is not read."""
        return [service.stream() for service in self._all()]

    def kafka_tables(self) -> list[ConsumerStats]:
        """Rows of `system.kafka_tables`, one for each consumer."""
        return [row for service in self._all() for row in service.consumers()]

    def replays(self) -> list[ReplayStats]:
        """Replays of this server, by Kafka table."""
        return self._replays.stats()

    def log(self) -> list[ConsumeEvent]:
        """Rows of `system.kafka_log`, oldest first."""
        return self._events.events()

    # --- the consumers' calls ----------------------------------------------------------------------------------------

    def begin(self, call: BeginRound) -> BeginGranted:
        return self._for_call(call.kafka_table).begin(call)

    def snapshot_tables(self, call: SnapshotTables) -> TableSnapshots:
        return self._for_call(call.kafka_table).snapshot_tables(call)

    def commit(self, call: RoundDone) -> RoundCommitted:
        return self._for_call(call.kafka_table).commit(call)

    def report_view(self, call: ViewReport) -> None:
        self._for_call(call.kafka_table).report_view(call)

    def report_ends(self, call: EndsReport) -> None:
        self._for_call(call.kafka_table).report_ends(call)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self._reconcile()
            # The outermost loop of the room: it goes on whatever happened.
            except BaseException as error:
                _log.error("reconcile_failed", error=error)
            self._clock.wait(self._wake, self._settings.manager_interval)

    def _reconcile(self) -> None:
        """A service for each Kafka table that exists and is this server's, and none for others."""
        kafkas = (each for each in self._catalog.tables.list() if isinstance(each, KafkaDef))
        wanted = {each.uuid: each for each in kafkas if self._context.hosts(each.uuid)}
        with self._lock:
            for uuid in [each for each in self._services if each not in wanted]:
                self._end(uuid)
            there = self._services.keys() | self._ending.keys()
            new = [self._add(kafka) for uuid, kafka in wanted.items() if uuid not in there]
        for service in new:
            service.start()

    def _end(self, uuid: str) -> None:
        """Begin to end the service; none starts for its table before it has ended. The caller holds the lock."""
        service = self._services.pop(uuid)

        def end() -> None:
            try:
                service.stop()
            finally:
                with self._lock:
                    self._ending.pop(uuid, None)
                # This server may host the table again by now.
                self._wake.set()

        self._ending[uuid] = threading.Thread(target=end, name=f"tilth-end-{uuid[:8]}", daemon=True)
        self._ending[uuid].start()

    def _add(self, kafka: KafkaDef) -> KafkaService:
        service = KafkaService(self._context, self._events, kafka)
        self._services[kafka.uuid] = service
        return service

    def _switch(
        self, kafka_uuid: str, state: SwitchState, *, because: str, until_ms: int, query_id: str, client: str
    ) -> None:
        if kafka_uuid != ALL_TABLES:
            self._kafka(kafka_uuid)
        others = [each for each in self._catalog.services.all() if each.service is ServiceKind.CONSUME]
        self._catalog.services.set(
            Switch(
                table=kafka_uuid,
                service=ServiceKind.CONSUME,
                state=state,
                since_ms=newer_since_ms(others, now_ms=self._clock.now_ms()),
                until_ms=until_ms,
                because=because,
                query_id=query_id,
                client=client,
            )
        )

    def _kafka(self, kafka_uuid: str) -> KafkaDef:
        relation = self._catalog.tables.by_id(kafka_uuid)
        if not isinstance(relation, KafkaDef):
            raise InvalidInputError("not a Kafka table", uuid=kafka_uuid, hint="name a table with ENGINE = Kafka")
        return relation

    def _service(self, kafka_uuid: str) -> KafkaService:
        """The service, made at once if the loop has not come to it yet. Raises NotHostedError."""
        kafka = self._kafka(kafka_uuid)
        self._check_hosted(kafka)
        with self._lock:
            if kafka_uuid in self._ending:
                hint = "repeat the statement in a few seconds"
                raise UnavailableError(
                    "former consumers of the table are still ending", table=full_name(kafka), hint=hint
                )
            found = self._services.get(kafka_uuid)
            service = found or self._add(kafka)
        if found is None:
            service.start()
        return service

    def _check_hosted(self, kafka: KafkaDef) -> None:
        """Raises NotHostedError."""
        if not self._context.hosts(kafka.uuid):
            raise NotHostedError(table=full_name(kafka), uuid=kafka.uuid)

    def _find(self, kafka_uuid: str) -> KafkaService | None:
        with self._lock:
            return self._services.get(kafka_uuid)

    def _for_call(self, kafka_uuid: str) -> KafkaService:
        service = self._find(kafka_uuid)
        if service is None:
            raise FencedError("this server does not host the Kafka table", uuid=kafka_uuid)
        return service

    def _all(self) -> list[KafkaService]:
        with self._lock:
            return list(self._services.values())
