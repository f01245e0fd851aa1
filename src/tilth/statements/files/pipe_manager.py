"""Pipes on one server: which it runs, when they poll, the switch of the service COPY, what it reports.

Covers: following the catalog's pipes, polls that are due, STOP. Does not cover: a poll (pipe_poll.py), the statements
(pipes.py). Always holds: a pipe polls on the host of its table alone, one poll at a time; a table whose service COPY is
stopped begins no load; polls of all tables share POLLS_AT_ONCE threads.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.base.units import show_time
from tilth.catalog import Catalog
from tilth.control.context.services import Services
from tilth.control.pipe_stats import PipeState, PipeStats
from tilth.model.pipe import Pipe
from tilth.model.service import (
    ALL_TABLES,
    ServiceKind,
    ServiceState,
    ServiceStats,
    Switch,
    SwitchState,
    effective_switch,
)
from tilth.model.table import TableDef
from tilth.statements.files.pipe_poll import PipeRun, RunInside

#: Polls of all pipes at a time; most of them wait for a listing or for Spark.
POLLS_AT_ONCE = 8
#: Longest time between two readings of the pipes of the catalog; a change of one is news at once.
FOLLOW_SECONDS = 5.0
#: Longest wait of a stopping server for polls under way, whose statements were cancelled.
STOP_SECONDS_MAX = 10.0

_log = Log("pipes")

#: The order in which a table's row shows the state of one of its pipes.
_WORST_FIRST = (
    ServiceState.FAILED,
    ServiceState.RUNNING,
    ServiceState.WAITING,
    ServiceState.IDLE,
    ServiceState.STOPPED,
)


def spawn(act: Callable[[], None], name: str) -> threading.Thread | None:
    """Run it on a thread of its own."""
    thread = threading.Thread(target=act, name=name, daemon=True)
    thread.start()
    return thread


@dataclass(slots=True)
class _Hosted:
    """A pipe that runs here."""

    run: PipeRun
    switch: Switch
    is_polling: bool = False
    #: Thread of the poll under way.
    thread: threading.Thread | None = None


class PipeManager:
    """`services.pipes`: the pipes of the tables that this server hosts."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        *,
        server: str,
        hosts: Callable[[str], bool],
        start_poll: Callable[[Callable[[], None], str], threading.Thread | None] = spawn,
    ) -> None:
        self._clock = clock
        self._catalog = catalog
        self._server = server
        self._hosts = hosts
        self._start_poll = start_poll
        self._lock = threading.Lock()
        self._hosted: dict[tuple[str, str], _Hosted] = {}
        #: Counts of pipes that run here no more.
        self._past = PipeStats()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._followed = float("-inf")
        self._thread: threading.Thread | None = None
        self._services: Services | None = None
        self._run_inside: RunInside | None = None

    def serve(self, services: Services, run: RunInside) -> None:
        """Use the services of this node and the engine's way to run statements. Call it before anything else."""
        self._services, self._run_inside = services, run

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="tilth-pipes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing more, cancel loads under way and wait for their ends."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            hosted = list(self._hosted.values())
        for each in hosted:
            each.run.end("the server, which stops")
        deadline = self._clock.monotonic() + STOP_SECONDS_MAX
        for each in hosted:
            if each.thread is not None:
                each.thread.join(max(0.0, deadline - self._clock.monotonic()))

    def wake(self, table_uuid: str | None = None) -> None:
        """Follow the catalog at once. Call it after every change of a pipe, its table or a switch."""
        self._followed = float("-inf")
        self._wake.set()

    def wait_stopped(self, table_uuid: str) -> None:
        """Return when no pipe of the table, or of ALL_TABLES, begins a load on this server any more: the catalog says
        that the service is stopped, and so do the states from now on.
        """
        for each in self._all():
            if table_uuid in (ALL_TABLES, each.run.pipe.table):
                each.run.wait_begun()
                each.switch = self._switch(each.run.pipe.table)
        self.wake()

    # --- what it shows -----------------------------------------------------------------------------------------------

    def states(self) -> list[PipeState]:
        """Rows of `system.pipes`."""
        return [_shown(each) for each in self._all()]

    def stats(self) -> list[ServiceStats]:
        """Rows of `system.bg_threads`: one for each table with pipes."""
        by_table: dict[str, list[_Hosted]] = defaultdict(list)
        for each in self._all():
            by_table[each.run.pipe.table].append(each)
        return [self._row(group) for group in by_table.values()]

    def numbers(self) -> PipeStats:
        """Counts for the metrics."""
        found = self._all()
        with self._lock:
            total = self._past
        for each in found:
            total = _with_counts(total, each.run)
        states = [each.run.state for each in found]
        return replace(
            total,
            pipes=len(found),
            waiting=sum(each.files_waiting for each in states),
            failing=sum(each.files_failed for each in states),
        )

    # --- inside ------------------------------------------------------------------------------------------------------

    def turn(self) -> float:
        """Follow the catalog where that is due, and begin polls that are due; return the seconds to the next turn."""
        if self._clock.monotonic() - self._followed >= FOLLOW_SECONDS:
            self._followed = self._clock.monotonic()
            self._follow()
        now_ms = self._clock.now_ms()
        with self._lock:
            free = POLLS_AT_ONCE - sum(each.is_polling for each in self._hosted.values())
            ready = [each for each in self._hosted.values() if not each.is_polling and _is_on(each.switch)]
            ready.sort(key=lambda each: each.run.state.next_poll_ms)
            due = [each for each in ready if each.run.state.next_poll_ms <= now_ms][: max(0, free)]
        for each in due:
            self._begin(each)
        if len(due) == max(0, free):
            # The end of a poll wakes the thread.
            return FOLLOW_SECONDS
        with self._lock:
            later = [
                (each.run.state.next_poll_ms - now_ms) / 1000
                for each in self._hosted.values()
                if not each.is_polling and _is_on(each.switch)
            ]
        return max(0.05, min([FOLLOW_SECONDS, *later]))

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                wait = self.turn()
            # The outermost loop of the service: it goes on whatever happened.
            except BaseException as error:
                _log.error("pipes_not_followed", error=error)
                wait = FOLLOW_SECONDS
            self._clock.wait(self._wake, wait)

    def _begin(self, hosted: _Hosted) -> None:
        def act() -> None:
            try:
                hosted.run.poll()
            finally:
                with self._lock:
                    hosted.is_polling = False
                self._wake.set()

        with self._lock:
            hosted.is_polling = True
        try:
            hosted.thread = self._start_poll(act, f"tilth-pipe-{hosted.run.pipe.name[:20]}")
        except BaseException:
            # The machine has no thread left: a later turn begins the poll.
            with self._lock:
                hosted.is_polling = False
            raise

    def _follow(self) -> None:
        """Keep a run for each pipe whose table is there and is hosted by this server, and none for others."""
        assert self._services is not None
        assert self._run_inside is not None
        found = [each for each in self._catalog.pipes.all() if self._hosts(each.table)]
        there = {uuid: table for uuid in {each.table for each in found} if (table := self._table(uuid)) is not None}
        wanted = {(each.table, each.id): each for each in found if each.table in there}
        switches = {uuid: self._switch(uuid) for uuid in there}
        with self._lock:
            gone = [self._hosted.pop(key) for key in list(self._hosted) if key not in wanted]
            for each in gone:
                self._past = _with_counts(self._past, each.run)
            for key, pipe in wanted.items():
                hosted = self._hosted.get(key)
                if hosted is None:
                    run = PipeRun(self._services, self._run_inside, pipe, may_begin=self._may_begin)
                    hosted = self._hosted[key] = _Hosted(run, switches[pipe.table])
                hosted.run.follow(there[pipe.table])
                hosted.switch = switches[pipe.table]
                if hosted.run.pipe != pipe:
                    hosted.run.adopt(pipe)
        for each in gone:
            each.run.end("the pipe, which is gone from this server")

    def _table(self, uuid: str) -> TableDef | None:
        found = self._catalog.tables.by_id(uuid)
        return found if isinstance(found, TableDef) else None

    def _switch(self, uuid: str) -> Switch:
        switches = self._catalog.services.of_table(uuid, ServiceKind.COPY)
        return effective_switch(switches, ServiceKind.COPY, now_ms=self._clock.now_ms())

    def _may_begin(self, pipe: Pipe) -> bool:
        """Return whether a pipe may begin a load, by what the catalog says now."""
        if self._stopping.is_set() or not self._hosts(pipe.table):
            return False
        switch = self._switch(pipe.table)
        with self._lock:
            hosted = self._hosted.get((pipe.table, pipe.id))
            if hosted is not None:
                hosted.switch = switch
        if not _is_on(switch):
            return False
        known = self._catalog.pipes.find(pipe.table, pipe.name)
        return known is not None and known.id == pipe.id

    def _all(self) -> list[_Hosted]:
        with self._lock:
            return list(self._hosted.values())

    def _row(self, group: list[_Hosted]) -> ServiceStats:
        states = sorted(map(_shown, group), key=lambda each: _WORST_FIRST.index(each.state))
        first, switch = states[0], group[0].switch
        failed = max(states, key=lambda each: each.last_error_ms)
        return ServiceStats(
            database=first.database,
            table=first.table,
            uuid=first.pipe.table,
            service=ServiceKind.COPY,
            switch=switch.state,
            because=switch.because,
            state=first.state.value,
            reason="; ".join(f"{each.pipe.name}: {each.reason}" for each in states),
            wakeups=sum(each.polls for each in states),
            last_wakeup_ms=max(each.last_poll_ms for each in states),
            running_tasks=sum(each.state is ServiceState.RUNNING for each in states),
            failures=max(each.failures for each in states),
            last_exception=failed.last_error,
            last_exception_ms=failed.last_error_ms,
            server=self._server,
            until_ms=switch.until_ms,
            asked_by=switch.query_id,
            asked_from=switch.client,
            next_wakeup_ms=min((each.next_poll_ms for each in states if each.next_poll_ms), default=0),
            next_attempt_ms=min((each.next_poll_ms for each in states if each.failures), default=0),
        )


def _is_on(switch: Switch) -> bool:
    return switch.state is SwitchState.RUNNING


def _shown(hosted: _Hosted) -> PipeState:
    """Return the state for people: of a pipe whose table is stopped, that it is."""
    state = hosted.run.state
    if _is_on(hosted.switch) or state.state is ServiceState.RUNNING:
        return state
    switch = hosted.switch
    until = f" until {show_time(switch.until_ms)}" if switch.until_ms else ""
    because = f": {switch.because}" if switch.because else ""
    return replace(state, state=ServiceState.STOPPED, reason=f"stopped{until}{because}", next_poll_ms=0)


def _with_counts(total: PipeStats, run: PipeRun) -> PipeStats:
    counts = run.counts
    return replace(
        total,
        polls=total.polls + counts.polls,
        failures=total.failures + counts.failures,
        loads=total.loads + counts.loads,
        files=total.files + counts.files,
        rows=total.rows + counts.rows,
        failed=total.failed + counts.failed,
    )
